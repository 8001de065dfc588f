//! One call to a provider: sent once, its answer read, its outcome recorded, whoever still waits for it.

use super::gate::GatePermit;
use super::plan::Plan;
use super::sign_if_wanted;
use super::way::{Way, ended_as, fault_code, is_connect_fault};
use crate::dialects::{self, AnswerContext, ApprovalMark, CallAnswer, InboundAnswer, OutboundRequest, agent_provider};
use crate::domain::ids::RunId;
use crate::domain::json::JsonText;
use crate::domain::operation::{Operation, OperationEvent, OperationMark, OperationProgress, OperationVerdict};
use crate::domain::risk::Risk;
use crate::domain::run::{Attempt, Run, RunOutcome, RunStatus};
use crate::domain::tool::{Dialect, ToolKind};
use crate::engine::Engine;
use crate::engine::actors::org_handle::OrgHandle;
use crate::engine::catalog::{Catalog, CatalogTool};
use crate::engine::in_flight::InFlightGuard;
use crate::engine::mcp::Server;
use crate::engine::mcp::call::{Calling, Lost};
use crate::engine::mcp::round::McpPart;
use crate::engine::operation::OperationRecord;
use crate::engine::ports::{RunTimes, StoreError, TransportError, TransportFault};
use crate::engine::run::lifetime_once_sent;
use crate::engine::store_port::{ChangedRun, RunChange};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Everything a call needs; owns its place in the endpoint's gate and in the count of calls under way.
pub(in crate::engine) struct Dispatch {
    pub(in crate::engine) engine: Engine,
    pub(in crate::engine) org: OrgHandle,
    pub(in crate::engine) catalog: Arc<Catalog>,
    pub(in crate::engine) tool: Arc<CatalogTool>,
    pub(in crate::engine) run: Arc<Run>,
    /// What is sent, where the provider keeps receipts of it.
    pub(in crate::engine) operation: Option<Box<Operation>>,
    /// The yes a person gave.
    pub(in crate::engine) approval: ApprovalMark,
    /// Given back as soon as the exchange is over: a slow store takes no provider's slots.
    pub(in crate::engine) permit: Option<GatePermit>,
    /// Held until the outcome is recorded.
    pub(in crate::engine) _guard: InFlightGuard,
    /// When the agent's request came in.
    pub(in crate::engine) begun: Instant,
    pub(in crate::engine) traceparent: Option<String>,
    /// How an MCP client takes part.
    pub(in crate::engine) mcp: Option<McpPart>,
    /// The run is in the store already; otherwise it is recorded later, whole.
    pub(in crate::engine) durable: bool,
}

/// Pauses between attempts to record an outcome; after the last one the run is left to its expiry.
const RECORD_AGAIN_AFTER_MS: [u64; 6] = [50, 200, 1_000, 3_000, 10_000, 30_000];

/// A call is repeated at most so often, where it may be at all.
const MAX_REPEATS: u32 = 2;

/// All that an answer is read by.
struct Reading {
    tool: Arc<CatalogTool>,
    run: Arc<Run>,
    mark: Option<OperationMark>,
    repeatable: bool,
}

impl Reading {
    fn of(&self, answer: &InboundAnswer) -> CallAnswer {
        let context = &self.run.intent.context;
        let context = AnswerContext {
            operation: self.mark.as_ref(),
            repeatable: self.repeatable,
            locale: context.locale.as_deref(),
            timezone: context.timezone.as_deref(),
        };
        dialects::decode_answer(self.tool.endpoint.settings.dialect, &self.tool.spec, &context, answer)
    }
}

/// What an exchange brought.
pub(in crate::engine) struct Exchanged {
    pub(in crate::engine) answer: CallAnswer,
    pub(in crate::engine) attempts: Vec<Attempt>,
    /// A result that breaks the tool's output schema: for the tenant's eyes only.
    pub(in crate::engine) withheld: Option<JsonText>,
}

impl Exchanged {
    pub(in crate::engine) const fn of(answer: CallAnswer, attempts: Vec<Attempt>) -> Self {
        Self { answer, attempts, withheld: None }
    }
}

impl Dispatch {
    /// Sends the call, reads the answer and records it. Answers the run as it stands then.
    pub(in crate::engine) async fn send_and_record(mut self) -> Arc<Run> {
        let sent_at = Instant::now();
        let exchanged = match self.tool.endpoint.settings.dialect {
            Dialect::Mcp => Box::pin(self.call_mcp_server()).await,
            Dialect::Topology | Dialect::AgentProvider | Dialect::Median => self.exchange().await,
        };
        let provider = sent_at.elapsed();
        let run = self.record(exchanged).await;
        let gateway = self.begun.elapsed().saturating_sub(provider);
        let dialect = self.tool.endpoint.settings.dialect.as_str();
        self.engine.metrics().run_times(dialect, RunTimes { gateway, provider });
        run
    }

    /// Records that the call was given up before anything of it was sent.
    pub(in crate::engine) async fn record_unsent(mut self, outcome: RunOutcome) -> Arc<Run> {
        self.record(Exchanged::of(CallAnswer::Settled(outcome), Vec::new())).await
    }

    /// Sends the call, again where that can do no harm, all within its one deadline.
    async fn exchange(&mut self) -> Exchanged {
        let deadline = Instant::now() + self.tool.timeout;
        let mut attempts = Vec::with_capacity(1);
        loop {
            let (result, attempt) = self.way().send(&self.encode(), deadline).await;
            attempts.push(attempt);
            let repeats = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
            if repeats <= MAX_REPEATS && self.may_repeat(&result) && self.engine.pause(repeats, deadline).await {
                continue;
            }
            if let Some(permit) = self.permit.take() {
                self.way().leave(permit, ended_as(&result));
            }
            let answer = match result {
                Ok(answer) => self.read(answer).await,
                Err(error) => self.without_answer(&error),
            };
            return Exchanged::of(answer, attempts);
        }
    }

    /// Calls an MCP server: in its era, in as many rounds and sessions as that takes, all within the deadline.
    async fn call_mcp_server(&mut self) -> Exchanged {
        let server = Server {
            engine: &self.engine,
            org: &self.catalog.org.slug,
            egress: &self.catalog.egress,
            endpoint: &self.tool.endpoint,
            max_answer_bytes: self.engine.settings().provider_response_bytes,
        };
        let calling = Calling {
            tool: &self.tool,
            arguments: self.run.intent.arguments(),
            part: self.mcp.as_ref(),
            traceparent: self.traceparent.as_deref(),
        };
        let mut attempts = Vec::with_capacity(1);
        if let Some(part) = &self.mcp {
            part.keep(self.permit.take());
        }
        let called = server.call(calling, &mut attempts).await;
        let ended = match &called {
            Ok(called) => Some(Ok(called.status)),
            Err(Lost::Failed(error)) => Some(Err(error.kind)),
            Err(Lost::Unopened { ended, .. }) => *ended,
            Err(Lost::Cancelled) => None,
        };
        let kept = self.mcp.as_ref().and_then(McpPart::take_place);
        if let (Some(permit), Some(ended)) = (kept.or(self.permit.take()), ended) {
            self.way().leave(permit, ended);
        }
        match called {
            Ok(called) => {
                Exchanged { answer: CallAnswer::Settled(called.outcome), attempts, withheld: called.withheld }
            }
            Err(Lost::Failed(error)) => Exchanged::of(self.without_answer(&error), attempts),
            Err(Lost::Unopened { outcome, .. }) => Exchanged::of(CallAnswer::Settled(outcome), attempts),
            Err(Lost::Cancelled) => Exchanged::of(CallAnswer::Settled(self.taken_back()), attempts),
        }
    }

    /// What becomes of a call that its client has taken back when it was sent already.
    fn taken_back(&self) -> RunOutcome {
        let status = if self.tool.is_plain_read() { RunStatus::Cancelled } else { RunStatus::Uncertain };
        RunOutcome::ended(status, true, "cancelled_by_agent")
    }

    /// A plain read may be repeated where the provider was not reached or not ready; an operation with receipts as long
    /// as no byte of it has left.
    fn may_repeat(&self, result: &Result<InboundAnswer, TransportError>) -> bool {
        match result {
            Ok(answer) => self.tool.is_plain_read() && matches!(answer.status, 502..=504),
            Err(error) => {
                let nothing_left = !error.bytes_sent && is_connect_fault(error.kind);
                nothing_left && (self.tool.is_plain_read() || self.operation.is_some())
            }
        }
    }

    async fn read(&self, answer: InboundAnswer) -> CallAnswer {
        let reading = Reading {
            tool: Arc::clone(&self.tool),
            run: Arc::clone(&self.run),
            mark: self.operation.as_ref().map(|operation| operation.intent.mark.clone()),
            repeatable: self.is_repeatable(),
        };
        let bytes = answer.body.len();
        self.engine.read_answer(bytes, move || reading.of(&answer)).await
    }

    fn way(&self) -> Way<'_> {
        Way { engine: &self.engine, catalog: &self.catalog, endpoint: &self.tool.endpoint }
    }

    /// Makes an operation of the call where the provider keeps receipts, as sent: it is stored so before the first byte
    /// leaves.
    pub(in crate::engine) fn prepare_operation(&mut self) {
        let Some(intent) = self.plan().operation_intent() else { return };
        let now = self.engine.clock().now();
        let prepared = OperationProgress::prepared(now);
        let overdue_at = now.plus(lifetime_once_sent(&self.tool));
        let retention = intent.terms.receipt_retention.unwrap_or_default();
        let (progress, _) = prepared.after(OperationEvent::Sending { overdue_at }, retention, now);
        Arc::make_mut(&mut self.run).operation_id = Some(intent.mark.id);
        self.operation = Some(Box::new(Operation { intent, progress }));
    }

    fn plan(&self) -> Plan<'_> {
        Plan {
            engine: &self.engine,
            catalog: &self.catalog,
            tool: &self.tool,
            run: &self.run,
            approval: &self.approval,
            traceparent: self.traceparent.as_deref(),
        }
    }

    fn encode(&self) -> OutboundRequest {
        let settings = &self.tool.endpoint.settings;
        let mut request = match &self.operation {
            // What was recorded is what is sent.
            Some(operation) => agent_provider::encode_operation(settings, &operation.intent),
            None => self.plan().encode(),
        };
        if let Some(traceparent) = &self.traceparent {
            request.headers.push((Cow::Borrowed("traceparent"), traceparent.clone()));
        }
        sign_if_wanted(&mut request, &settings.auth, self.engine.clock().now());
        request
    }

    /// Whether nobody is harmed when the call is made again: it is of low risk, by its declaration and the tenant's policy,
    /// and no key promises that it is made once. Only then may it be called failed although that is not known.
    fn is_repeatable(&self) -> bool {
        self.tool.risk == Some(Risk::Low) && !self.run.intent.keyed
    }

    /// What a call means whose answer never came.
    fn without_answer(&self, error: &TransportError) -> CallAnswer {
        let code = fault_code(error.kind);
        let message = format!("the call to the provider failed: {}", error.kind);
        if !error.bytes_sent {
            return CallAnswer::Settled(RunOutcome::failed(false, code, message));
        }
        if self.operation.is_some() {
            return CallAnswer::Operation(OperationVerdict::Unclear { code, message });
        }
        let garbled = matches!(error.kind, TransportFault::Malformed | TransportFault::TooLarge);
        let failed = || CallAnswer::Settled(RunOutcome::failed(true, code, message.clone()));
        // Whether it took effect is not known, and it is not sent again.
        let uncertain = || CallAnswer::Settled(RunOutcome::ended(RunStatus::Uncertain, true, code.as_str()));
        match (self.tool.endpoint.settings.dialect, self.tool.spec.kind) {
            (Dialect::Topology, ToolKind::Query) if garbled => failed(),
            // Our id is registered: the payload still finds its run.
            (Dialect::Topology, ToolKind::Query) => CallAnswer::Settled(RunOutcome::bare(RunStatus::Pending, true)),
            (Dialect::Mcp, _) if self.tool.is_plain_read() => failed(),
            (Dialect::Mcp, _) => uncertain(),
            (Dialect::Topology | Dialect::AgentProvider, ToolKind::Command) => uncertain(),
            (Dialect::AgentProvider, ToolKind::Query) => failed(),
            (Dialect::Median, _) if self.is_repeatable() => failed(),
            (Dialect::Median, _) => uncertain(),
        }
    }

    async fn record(&mut self, Exchanged { answer, attempts, withheld }: Exchanged) -> Arc<Run> {
        if let Some(operation) = self.operation.take() {
            let record = OperationRecord { org: &self.org, run: &self.run, operation: *operation, attempts };
            return Box::pin(self.engine.record_answer(record, answer)).await;
        }
        match answer {
            CallAnswer::Accepted { correlation_id } => {
                let attempt = attempts.into_iter().next_back().expect("an exchange has at least one attempt");
                Box::pin(self.record_accepted(&correlation_id, attempt)).await
            }
            // Only an operation has a verdict.
            CallAnswer::Operation(verdict) => {
                Box::pin(self.record_settled(verdict.outcome_so_far(), attempts, withheld)).await
            }
            CallAnswer::Settled(outcome) if self.durable => {
                Box::pin(self.record_settled(outcome, attempts, withheld)).await
            }
            CallAnswer::Settled(outcome) => self.record_later(outcome, attempts, withheld),
        }
    }

    async fn record_accepted(&self, correlation_id: &str, attempt: Attempt) -> Arc<Run> {
        let intent = &self.run.intent;
        let early = self
            .engine
            .until_recorded(intent.id, || {
                let at = self.engine.clock().now();
                self.engine.store().accept_run(intent.org_id, intent.id, correlation_id, &attempt, at)
            })
            .await;
        let mut run = Run::clone(&self.run);
        run.provider_correlation_id = Some(correlation_id.to_owned());
        run.attempts.push(attempt.clone());
        self.engine.tell_accepted(self.org.clone(), Arc::new(run.slim())).await;
        if let Some(Some(callback)) = early {
            // It came before the acknowledgement and was kept: now it has a run.
            self.engine.settle_kept(callback, &run).await;
        }
        Arc::new(run)
    }

    async fn record_settled(
        &self,
        outcome: RunOutcome,
        attempts: Vec<Attempt>,
        withheld_result: Option<JsonText>,
    ) -> Arc<Run> {
        let intent = &self.run.intent;
        let still_open = outcome.status.is_open();
        let mut change = RunChange {
            org_id: intent.org_id,
            run_id: intent.id,
            outcome,
            withheld_result,
            attempts,
            operation: None,
            approval: None,
            by_sender: true,
            at: self.engine.clock().now(),
        };
        let recorded = self
            .engine
            .until_recorded(intent.id, || {
                change.at = self.engine.clock().now();
                let change = change.clone();
                async move { self.engine.store().change_run(&change).await }
            })
            .await;
        let (run, changed) = match recorded {
            Some(ChangedRun::Changed(run)) => (Arc::from(run), true),
            Some(ChangedRun::WasFinal(run)) => (Arc::from(run), false),
            None => (Arc::new(changed_run(&self.run, change)), false),
        };
        if still_open {
            self.engine.tell_accepted(self.org.clone(), Arc::new(run.slim())).await;
        } else if changed {
            self.engine.count_status_of(&self.catalog.org.slug, &run);
            self.engine.tell_settled(Arc::clone(&run)).await;
        }
        run
    }

    fn record_later(
        &mut self,
        outcome: RunOutcome,
        attempts: Vec<Attempt>,
        withheld_result: Option<JsonText>,
    ) -> Arc<Run> {
        let at = self.engine.clock().now();
        // Nobody else holds the run yet, so it is finished in place.
        let run = Arc::make_mut(&mut self.run);
        run.finished_at = (!outcome.status.is_open()).then_some(at);
        run.outcome = outcome;
        run.withheld_result = withheld_result;
        run.attempts = attempts;
        run.updated_at = at;
        self.engine.count_status_of(&self.catalog.org.slug, &self.run);
        if !self.engine.store().record_later(Arc::clone(&self.run), self.catalog.org.webhook.is_some()) {
            self.engine.metrics().records_dropped(1);
        }
        Arc::clone(&self.run)
    }
}

impl Engine {
    /// Tries to record until it works: what a provider has done must not be forgotten because the store was busy.
    pub(in crate::engine) async fn until_recorded<T, F>(&self, run: RunId, mut record: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pauses = RECORD_AGAIN_AFTER_MS.iter();
        loop {
            let error = match record().await {
                Ok(recorded) => return Some(recorded),
                // Deleted with its organization: nobody is left to record it for.
                // And a step upon one that is not the last is none.
                Err(StoreError::NotFound | StoreError::Stale) => return None,
                Err(error) => error,
            };
            let Some(pause) = pauses.next() else {
                tracing::error!(%run, %error, "an outcome could not be recorded");
                return None;
            };
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
    }
}

fn changed_run(run: &Run, change: RunChange) -> Run {
    let finished_at = (!change.outcome.status.is_open()).then_some(change.at);
    Run {
        intent: run.intent.clone(),
        outcome: change.outcome,
        provider_correlation_id: run.provider_correlation_id.clone(),
        withheld_result: change.withheld_result,
        operation_id: run.operation_id,
        attempts: change.attempts,
        updated_at: change.at,
        finished_at,
    }
}
