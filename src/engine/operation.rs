//! Operations at providers that keep receipts: their answers recorded, their receipts looked at, the same operation sent
//! again where its provider says that it never arrived.
//!
//! **Invariant:** what is sent is what was recorded: id, fingerprint, contract version and body never change.
//! **Invariant:** a POST leaves only after its step is durable, and a step is taken only upon the one before it: of two
//! that would send again, on one node or two, one does.

use super::Engine;
use super::actors::org_handle::OrgHandle;
use super::actors::registry::RegistryFault;
use super::dispatch::gate::GatePermit;
use super::dispatch::way::{Way, ended_as, fault_code};
use super::ports::StoreError;
use super::run::INTERRUPTED_AFTER;
use super::store_port::{ChangedRun, RunChange};
use crate::dialects::CallAnswer;
use crate::dialects::agent_provider::{self, ReceiptAnswer};
use crate::domain::endpoint::Endpoint;
use crate::domain::ids::{OrgId, RunId};
use crate::domain::json::JsonText;
use crate::domain::operation::{
    Operation, OperationEvent, OperationNext, OperationProgress, OperationState, OperationVerdict,
};
use crate::domain::org::OrgState;
use crate::domain::run::{Attempt, Run, RunOutcome, RunStatus};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A look at a receipt takes no longer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// An operation whose news is about to be recorded, and the run it belongs to.
pub(super) struct OperationRecord<'a> {
    pub(super) org: &'a OrgHandle,
    pub(super) run: &'a Arc<Run>,
    pub(super) operation: Operation,
    pub(super) attempts: Vec<Attempt>,
}

/// What an exchange about an operation said.
struct News {
    event: OperationEvent,
    /// What the run becomes by it; `None` leaves it uncertain.
    outcome: Option<RunOutcome>,
    /// A word for why it is uncertain.
    reason: &'static str,
    receipt: Option<JsonText>,
}

impl News {
    fn of_verdict(verdict: OperationVerdict, receipt: Option<JsonText>) -> Self {
        let told = |event, outcome| Self { event, outcome: Some(outcome), reason: "", receipt };
        match verdict {
            OperationVerdict::Applied(outcome) => told(OperationEvent::Applied, outcome),
            OperationVerdict::Rejected(outcome) => told(OperationEvent::Rejected, outcome),
            OperationVerdict::Conflict(outcome) => told(OperationEvent::Conflict, outcome),
            OperationVerdict::Unclear { code, .. } => Self::unclear(OperationEvent::Unclear, code.as_str()),
        }
    }

    const fn unclear(event: OperationEvent, reason: &'static str) -> Self {
        Self { event, outcome: None, reason, receipt: None }
    }

    fn of_answer(answer: CallAnswer) -> Self {
        match answer {
            CallAnswer::Operation(verdict) => Self::of_verdict(verdict, None),
            // No byte has left.
            CallAnswer::Settled(outcome) => {
                Self { event: OperationEvent::NotSent, outcome: Some(outcome), reason: "", receipt: None }
            }
            // This dialect has no acknowledgements.
            CallAnswer::Accepted { .. } => Self::unclear(OperationEvent::Unclear, "provider_protocol_error"),
        }
    }
}

impl Engine {
    /// Records what the answer to an operation's POST says, or its absence. Answers the run as it stands then.
    pub(super) async fn record_answer(&self, record: OperationRecord<'_>, answer: CallAnswer) -> Arc<Run> {
        self.record_news(record, News::of_answer(answer)).await
    }

    /// One durable step: the operation and its run together.
    async fn record_news(&self, record: OperationRecord<'_>, news: News) -> Arc<Run> {
        let OperationRecord { org, run, operation, attempts } = record;
        let (id, org_id) = (run.intent.id, run.intent.org_id);
        let (progress, _) = self.next_step(&operation, news.event);
        let outcome = outcome_of(&progress, news.outcome, news.reason);
        let progress = OperationProgress { receipt: news.receipt.or(progress.receipt.clone()), ..progress };
        let still_open = outcome.status.is_open();
        let change = RunChange {
            org_id,
            run_id: id,
            outcome,
            withheld_result: None,
            attempts,
            operation: Some(progress),
            approval: None,
            by_sender: false,
            at: self.clock().now(),
        };
        let recorded = self.until_recorded(id, || async { self.store().change_run(&change).await }).await;
        match recorded {
            Some(ChangedRun::Changed(changed)) => {
                let changed: Arc<Run> = Arc::from(changed);
                if still_open {
                    self.tell_accepted(org.clone(), Arc::new(changed.slim())).await;
                } else {
                    self.count_status_of(&org.catalog().org.slug, &changed);
                    self.tell_settled(Arc::clone(&changed)).await;
                }
                changed
            }
            Some(ChangedRun::WasFinal(run)) => Arc::from(run),
            // Another step came first, or the store is away: the due table knows the operation.
            None => Arc::clone(run),
        }
    }

    fn next_step(&self, operation: &Operation, event: OperationEvent) -> (OperationProgress, OperationNext) {
        let retention = operation.intent.terms.receipt_retention.unwrap_or_default();
        operation.progress.after(event, retention, self.clock().now())
    }

    /// Looks after an operation that is due: one that was cut off becomes uncertain, an uncertain one has its receipt
    /// looked at.
    pub(super) async fn attend_operation(&self, org_id: OrgId, run_id: RunId) {
        let Some(_guard) = self.0.in_flight.enter() else { return };
        let Some(_here) = self.0.in_flight.dispatch(run_id) else { return };
        if let Err(error) = self.try_attend(org_id, run_id).await {
            tracing::warn!(org = %org_id, run = %run_id, %error, "an operation could not be looked after; it is tried again");
        }
    }

    async fn try_attend(&self, org_id: OrgId, run_id: RunId) -> Result<(), StoreError> {
        let Some(operation) = self.store().operation(org_id, run_id).await? else { return Ok(()) };
        let Some(run) = self.store().run(org_id, run_id).await?.map(Arc::new) else { return Ok(()) };
        if operation.progress.is_final() {
            return Ok(());
        }
        // Its actor counts and shows what is open.
        let org = match self.0.registry.get(org_id).await {
            Ok(org) => org,
            Err(RegistryFault::NotFound) => return Ok(()),
            Err(RegistryFault::Store(error)) => return Err(error),
        };
        match operation.progress.state {
            // It waits for its run to be dispatched.
            OperationState::Prepared => {}
            OperationState::Sent => {
                let record = OperationRecord { org: &org, run: &run, operation, attempts: Vec::new() };
                self.record_news(record, News::unclear(OperationEvent::Unclear, "interrupted")).await;
            }
            OperationState::Uncertain => self.inspect(&org, run, operation).await,
            OperationState::Applied | OperationState::Rejected | OperationState::Conflict => {}
        }
        Ok(())
    }

    async fn inspect(&self, org: &OrgHandle, run: Arc<Run>, operation: Operation) {
        let catalog = org.catalog();
        // Deleting an endpoint ends its operations.
        let Some(endpoint) = catalog.endpoint(operation.intent.endpoint_id).cloned() else { return };
        let record = |operation, attempts| OperationRecord { org, run: &run, operation, attempts };
        if endpoint.settings.base_url != operation.intent.origin {
            // Another address knows nothing of it, and to be unknown there must not make it be sent again.
            let news = News::unclear(OperationEvent::ReceiptGone, "endpoint_moved");
            self.record_news(record(operation, Vec::new()), news).await;
            return;
        }
        let way = Way { engine: self, catalog: &catalog, endpoint: &endpoint };
        let Some(permit) = self.enter_gate_of(org, &endpoint).await else {
            return self.look_again(record(operation, Vec::new())).await;
        };
        let request = agent_provider::encode_receipt_request(&endpoint.settings, &operation.intent);
        let (ended, attempt) = way.send(&request, Instant::now() + LOOK_TIMEOUT).await;
        way.leave(permit, ended_as(&ended));
        let answer = match ended {
            Ok(answer) => {
                let intent = operation.intent.clone();
                let bytes = answer.body.len();
                self.read_answer(bytes, move || agent_provider::decode_receipt(&intent, &answer)).await
            }
            Err(error) => ReceiptAnswer::Unclear { code: fault_code(error.kind), message: String::new() },
        };
        let news = match answer {
            ReceiptAnswer::Adopted(verdict, receipt) => News::of_verdict(verdict, Some(receipt)),
            ReceiptAnswer::Conflict(outcome) => News::of_verdict(OperationVerdict::Conflict(outcome), None),
            ReceiptAnswer::Gone => News::unclear(OperationEvent::ReceiptGone, "receipt_gone"),
            ReceiptAnswer::Missing => {
                if self.next_step(&operation, OperationEvent::ReceiptMissing).1 == OperationNext::Resend {
                    return self.resend(record(operation, vec![attempt])).await;
                }
                News::unclear(OperationEvent::ReceiptMissing, "receipt_missing")
            }
            ReceiptAnswer::Pending | ReceiptAnswer::Unclear { .. } => {
                return self.look_again(record(operation, vec![attempt])).await;
            }
        };
        self.record_news(record(operation, vec![attempt]), news).await;
    }

    /// Notes when the receipt is looked at next. The run stays as it is, unless receipts are not kept any more.
    async fn look_again(&self, record: OperationRecord<'_>) {
        let (progress, next) = self.next_step(&record.operation, OperationEvent::NoReceiptYet);
        if next == OperationNext::Done {
            self.record_news(record, News::unclear(OperationEvent::NoReceiptYet, "no_receipt")).await;
            return;
        }
        let (org_id, run_id) = (record.run.intent.org_id, record.run.intent.id);
        match self.store().update_operation(org_id, run_id, &progress).await {
            Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
            // Its lease brings it back.
            Err(error) => tracing::warn!(run = %run_id, %error, "a look at a receipt was not recorded"),
        }
    }

    /// Sends the same operation again, through the endpoint's gate like every call.
    async fn resend(&self, mut record: OperationRecord<'_>) {
        let operation = &record.operation;
        let (org_id, run_id, timeout) = (operation.intent.org_id, operation.intent.run_id, operation.intent.timeout);
        let found = record.org.catalog().endpoint(operation.intent.endpoint_id).cloned();
        let permit = match &found {
            Some(endpoint) => self.enter_gate_of(record.org, endpoint).await,
            None => return,
        };
        // As it is now: it may have been switched off while this waited. A suspended organization's calls are not made.
        let catalog = record.org.catalog();
        let endpoint = catalog.endpoint(operation.intent.endpoint_id).filter(|endpoint| {
            let same_place = endpoint.settings.base_url == operation.intent.origin;
            same_place && endpoint.settings.enabled && catalog.org.state == OrgState::Active
        });
        let (Some(permit), Some(endpoint)) = (permit, endpoint) else {
            return self.look_again(record).await;
        };
        let overdue_at = self.clock().now().plus(timeout + INTERRUPTED_AFTER);
        let (progress, _) = self.next_step(operation, OperationEvent::Sending { overdue_at });
        if let Err(error) = self.store().update_operation(org_id, run_id, &progress).await {
            // Another node sends it, or its lease brings it back.
            tracing::debug!(run = %run_id, %error, "a resend did not begin");
            return;
        }
        record.operation.progress = progress;
        let way = Way { engine: self, catalog: &catalog, endpoint };
        let request = agent_provider::encode_operation(&endpoint.settings, &record.operation.intent);
        let (ended, attempt) = way.send(&request, Instant::now() + timeout).await;
        way.leave(permit, ended_as(&ended));
        record.attempts.push(attempt);
        let news = match ended {
            Ok(answer) => {
                let intent = record.operation.intent.clone();
                let bytes = answer.body.len();
                let read = move || agent_provider::decode_resend(&intent, &answer);
                News::of_verdict(self.read_answer(bytes, read).await, None)
            }
            Err(error) if error.bytes_sent => News::unclear(OperationEvent::Unclear, fault_code(error.kind).as_str()),
            Err(error) => News::unclear(OperationEvent::NotSent, fault_code(error.kind).as_str()),
        };
        self.record_news(record, news).await;
    }

    async fn enter_gate_of(&self, org: &OrgHandle, endpoint: &Endpoint) -> Option<GatePermit> {
        org.gate(endpoint.id)?.enter(self.clock().monotonic()).await.ok()
    }
}

/// What a run is by the state of its operation.
fn outcome_of(progress: &OperationProgress, told: Option<RunOutcome>, reason: &'static str) -> RunOutcome {
    let status = match progress.state {
        OperationState::Uncertain if progress.next_at.is_some() => RunStatus::Inspecting,
        OperationState::Prepared
        | OperationState::Sent
        | OperationState::Applied
        | OperationState::Rejected
        | OperationState::Conflict
        | OperationState::Uncertain => RunStatus::Uncertain,
    };
    match told {
        // A resend that never left tells nothing about the POST before it.
        Some(outcome) if progress.state != OperationState::Uncertain => outcome,
        Some(_) => RunOutcome::ended(status, true, "endpoint_unavailable"),
        None => RunOutcome::ended(status, true, reason),
    }
}
