//! Approvals, for the tenant's eyes. Deciding about one is [`Engine::decide_approval`].

use super::{AdminFault, AdminResult};
use crate::domain::approval::ApprovalState;
use crate::domain::ids::ApprovalId;
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::{ApprovalView, Page, PageRequest};

impl Engine {
    /// Approvals of the organization, newest first; of the open ones those that a teammate is asked about.
    pub async fn list_approvals(
        &self,
        by: &WorkspaceAccess,
        state: Option<ApprovalState>,
        page: &PageRequest,
    ) -> AdminResult<Page<ApprovalView>> {
        Ok(self.store().list_approvals(by.org_id(), state, page).await?)
    }

    /// One approval with its run.
    pub async fn approval(&self, by: &WorkspaceAccess, id: ApprovalId) -> AdminResult<ApprovalView> {
        self.store().approval(by.org_id(), id).await?.ok_or(AdminFault::NotFound)
    }
}
