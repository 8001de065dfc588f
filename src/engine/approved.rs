//! Approved runs on their way: sent once, by whoever takes the right to, as what was approved and nothing else.

use super::Engine;
use super::actors::org_handle::OrgHandle;
use super::approval::{CHANGED, is_unchanged};
use super::catalog::{Catalog, CatalogTool};
use super::dispatch::call::Dispatch;
use super::dispatch::gate::{GatePermit, GateRefusal};
use super::in_flight::InFlightGuard;
use super::ports::StoreError;
use super::run::lifetime_once_sent;
use super::store_port::ApprovalView;
use crate::dialects::ApprovalMark;
use crate::domain::approval::{Approval, ApprovalStage};
use crate::domain::error_code::ErrorCode;
use crate::domain::operation::OperationEvent;
use crate::domain::run::{Run, RunOutcome, RunStatus};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An approved run waits this long for its place at the endpoint's gate.
const GATE_PATIENCE: Duration = Duration::from_secs(30);

impl Engine {
    /// Takes up a run that was approved and not sent: its sender was cut off.
    pub(super) async fn resume_approved(&self, org: &OrgHandle, run: Run) -> Result<(), StoreError> {
        if let Some(approval) = self.store().approval_of_run(run.intent.org_id, run.intent.id).await? {
            self.send_approved(org, ApprovalView { approval, run }).await;
        }
        Ok(())
    }

    /// Sends an approved run once: the right to do so is taken from the store right before.
    pub(super) async fn send_approved(&self, org: &OrgHandle, view: ApprovalView) {
        let id = view.run.intent.id;
        // A stop that has begun leaves the run to the next start.
        let (Some(_here), Some(guard)) = (self.0.in_flight.dispatch(id), self.0.in_flight.enter()) else { return };
        let Some((_, tool)) = sendable(org, &view) else { return self.give_up_changed(&view).await };
        let permit = self.patient_permit(&tool).await;
        // As it is now: much may have changed while this waited.
        let Some((catalog, tool)) = sendable(org, &view) else { return self.give_up_changed(&view).await };
        let mut dispatch = self.approved_dispatch(org, (catalog, tool), view, guard);
        match self.take_right_to_send(&mut dispatch).await {
            Ok(true) => {}
            // It was cancelled, or another node sends it.
            Ok(false) => return,
            // The due table brings it back.
            Err(error) => {
                tracing::warn!(run = %id, %error, "an approved run could not be started; it is tried again");
                return;
            }
        }
        // From here on it may have been carried out, whatever ends it.
        self.tell_released(Arc::new(dispatch.run.slim())).await;
        match permit {
            Ok(permit) => {
                dispatch.permit = Some(permit);
                dispatch.send_and_record().await;
            }
            Err(refusal) => {
                let message = format!("the endpoint could not take the approved call: {}", refusal.as_str());
                let outcome = RunOutcome::failed(false, ErrorCode::EndpointUnavailable, message);
                dispatch.record_unsent(outcome).await;
            }
        }
    }

    /// True once only, for a run that nobody has begun to send and nobody has ended.
    async fn take_right_to_send(&self, dispatch: &mut Dispatch) -> Result<bool, StoreError> {
        let (org_id, id) = (dispatch.run.intent.org_id, dispatch.run.intent.id);
        let now = self.clock().now();
        let overdue_at = now.plus(lifetime_once_sent(&dispatch.tool));
        let mut operation = self.store().operation(org_id, id).await?;
        if let Some(operation) = &mut operation {
            let retention = operation.intent.terms.receipt_retention.unwrap_or_default();
            let (progress, _) = operation.progress.after(OperationEvent::Sending { overdue_at }, retention, now);
            operation.progress = progress;
        }
        let progress = operation.as_ref().map(|operation| &operation.progress);
        let taken = self.store().start_run(org_id, id, progress, overdue_at, now).await?;
        let run = Arc::make_mut(&mut dispatch.run);
        run.outcome = RunOutcome::bare(RunStatus::Pending, true);
        run.operation_id = operation.as_ref().map(|operation| operation.intent.mark.id);
        dispatch.operation = operation.map(Box::new);
        Ok(taken)
    }

    fn approved_dispatch(
        &self,
        org: &OrgHandle,
        (catalog, tool): (Arc<Catalog>, Arc<CatalogTool>),
        view: ApprovalView,
        guard: InFlightGuard,
    ) -> Dispatch {
        Dispatch {
            engine: self.clone(),
            org: org.clone(),
            catalog,
            tool,
            run: Arc::new(view.run),
            operation: None,
            approval: approval_mark(&view.approval),
            permit: None,
            _guard: guard,
            begun: Instant::now(),
            traceparent: None,
            // Whoever asked for it may be gone: nobody can be asked.
            mcp: None,
            durable: true,
        }
    }

    /// A place at the gate: a person's yes is not lost to a moment's crowd or a breaker's rest.
    async fn patient_permit(&self, tool: &CatalogTool) -> Result<GatePermit, GateRefusal> {
        let until = Instant::now() + GATE_PATIENCE;
        loop {
            match tool.gate.enter(self.clock().monotonic()).await {
                Ok(permit) => return Ok(permit),
                Err(refusal) if Instant::now() + refusal.retry_after() >= until => return Err(refusal),
                Err(refusal) => tokio::time::sleep(refusal.retry_after()).await,
            }
        }
    }

    async fn give_up_changed(&self, view: &ApprovalView) {
        let outcome = RunOutcome::ended(RunStatus::Denied, false, CHANGED);
        let id = view.run.intent.id;
        match self.end_run(view.run.intent.org_id, id, outcome, None).await {
            // It was begun elsewhere since.
            Ok(_) | Err(StoreError::Stale) => {}
            Err(error) => tracing::warn!(run = %id, %error, "an approved run could not be ended; it is tried again"),
        }
    }
}

/// The tool of an approved run with the catalog it is in, if it is still what was approved.
fn sendable(org: &OrgHandle, view: &ApprovalView) -> Option<(Arc<Catalog>, Arc<CatalogTool>)> {
    let catalog = org.catalog();
    let tool = catalog.tool(&view.run.intent.tool).filter(|tool| is_unchanged(&catalog, tool, view)).cloned()?;
    Some((catalog, tool))
}

/// The yes as the provider is told of it.
fn approval_mark(approval: &Approval) -> ApprovalMark {
    match approval.stage {
        ApprovalStage::Reviewer => ApprovalMark::Reviewer { by: None },
        ApprovalStage::Teammate => ApprovalMark::Teammate { by: approval.decided_by.clone() },
    }
}
