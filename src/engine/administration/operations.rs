//! Operations and messages to the organization's application, for the tenant's eyes.

use super::{AdminFault, AdminResult};
use crate::domain::announcement::{Delivery, DeliveryState};
use crate::domain::ids::{DeliveryId, OperationId};
use crate::domain::operation::OperationState;
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::{OperationView, Page, PageRequest};

impl Engine {
    /// Operations of the organization, newest first.
    pub async fn list_operations(
        &self,
        by: &WorkspaceAccess,
        state: Option<OperationState>,
        page: &PageRequest,
    ) -> AdminResult<Page<OperationView>> {
        Ok(self.store().list_operations(by.org_id(), state, page).await?)
    }

    /// One operation.
    pub async fn operation(&self, by: &WorkspaceAccess, id: OperationId) -> AdminResult<OperationView> {
        self.store().operation_view(by.org_id(), id).await?.ok_or(AdminFault::NotFound)
    }

    /// Messages to the organization's application, newest first.
    pub async fn list_deliveries(
        &self,
        by: &WorkspaceAccess,
        state: Option<DeliveryState>,
        page: &PageRequest,
    ) -> AdminResult<Page<Delivery>> {
        Ok(self.store().list_deliveries(by.org_id(), state, page).await?)
    }

    /// One message.
    pub async fn delivery(&self, by: &WorkspaceAccess, id: DeliveryId) -> AdminResult<Delivery> {
        self.store().delivery(by.org_id(), id).await?.ok_or(AdminFault::NotFound)
    }
}
