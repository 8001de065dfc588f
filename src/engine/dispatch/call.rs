//! One call to a provider: sent once, its answer read, its outcome recorded, whoever still waits for it.

use super::gate::GatePermit;
use super::sign_if_wanted;
use crate::dialects::{self, ApprovalMark, Call, CallAnswer, OutboundRequest};
use crate::domain::endpoint::EndpointState;
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::RunId;
use crate::domain::risk::Risk;
use crate::domain::run::{Attempt, Run, RunOutcome, RunStatus};
use crate::domain::tool::{Dialect, ToolKind};
use crate::engine::Engine;
use crate::engine::actors::org_handle::OrgHandle;
use crate::engine::catalog::{Catalog, CatalogTool};
use crate::engine::in_flight::InFlightGuard;
use crate::engine::ports::{RunTimes, StoreError, TransportError, TransportFault};
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
    /// Given back as soon as the exchange is over: a slow store takes no provider's slots.
    pub(in crate::engine) permit: Option<GatePermit>,
    /// Held until the outcome is recorded.
    pub(in crate::engine) guard: InFlightGuard,
    /// When the agent's request came in.
    pub(in crate::engine) begun: Instant,
    pub(in crate::engine) traceparent: Option<String>,
    /// The run is in the store already; otherwise it is recorded later, whole.
    pub(in crate::engine) durable: bool,
}

/// Pauses between attempts to record an outcome; after the last one the run is left to its expiry.
const RECORD_AGAIN_AFTER_MS: [u64; 6] = [50, 200, 1_000, 3_000, 10_000, 30_000];

impl Dispatch {
    /// Sends the call, reads the answer and records it. Answers the run as it stands then.
    pub(in crate::engine) async fn send_and_record(mut self) -> Arc<Run> {
        let sent_at = Instant::now();
        let (answer, attempt) = self.exchange().await;
        let provider = sent_at.elapsed();
        let run = self.record(answer, attempt).await;
        let gateway = self.begun.elapsed().saturating_sub(provider);
        let dialect = self.tool.endpoint.settings.dialect.as_str();
        self.engine.metrics().run_times(dialect, RunTimes { gateway, provider });
        run
    }

    async fn exchange(&mut self) -> (CallAnswer, Attempt) {
        let request = self.encode();
        let (at, begun) = (self.engine.clock().now(), Instant::now());
        let limit = self.engine.settings().provider_response_bytes;
        let transport = &self.engine.0.ports.transport;
        let result = transport.send(&request, &self.catalog.egress, limit, begun + self.tool.timeout).await;
        let (outcome, healthy) = match &result {
            Ok(answer) => (http_outcome(answer.status), Some(answer.status < 500)),
            Err(error) => (error.kind.as_str(), healthy_despite(error.kind)),
        };
        self.leave_gate(healthy);
        let endpoint = &self.tool.endpoint;
        self.engine.metrics().provider_request(&self.catalog.org.slug, &endpoint.settings.name, outcome);
        let attempt = Attempt {
            at,
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            outcome: outcome.to_owned(),
            http_status: result.as_ref().ok().map(|answer| answer.status),
        };
        let answer = match result {
            Ok(answer) => dialects::decode_answer(endpoint.settings.dialect, &self.tool.spec, &answer),
            Err(error) => self.without_answer(&error),
        };
        (answer, attempt)
    }

    /// Reports to the breaker and frees the slot; a breaker that opens or closes is shown.
    fn leave_gate(&mut self, healthy: Option<bool>) {
        let (Some(permit), Some(healthy)) = (self.permit.take(), healthy) else { return };
        if let Some(closed) = permit.report(self.engine.clock().monotonic(), healthy) {
            let endpoint = &self.tool.endpoint;
            let up = closed && endpoint.state() == EndpointState::Connected;
            self.engine.metrics().endpoint_up(&self.catalog.org.slug, &endpoint.settings.name, up);
        }
    }

    fn encode(&mut self) -> OutboundRequest {
        let (endpoint, intent) = (&self.tool.endpoint, &self.run.intent);
        // Where the answer comes at once there is no other to be delivered.
        let at_once = self.tool.answers_at_once();
        let callback_url = if at_once { String::new() } else { self.engine.callback_url(endpoint.id) };
        let call = Call {
            run_id: intent.id,
            tool: &self.tool.spec,
            arguments: intent.arguments(),
            caller: intent.caller.as_deref(),
            conversation: intent.conversation.as_deref(),
            callback_url: &callback_url,
            approval: &ApprovalMark::None,
        };
        let mut request = dialects::encode_call(endpoint, &call);
        if let Some(traceparent) = self.traceparent.take() {
            request.headers.push((Cow::Borrowed("traceparent"), traceparent));
        }
        sign_if_wanted(&mut request, &endpoint.settings.auth, self.engine.clock().now());
        request
    }

    /// What a call means whose answer never came.
    fn without_answer(&self, error: &TransportError) -> CallAnswer {
        let code = fault_code(error.kind);
        let message = format!("the call to the provider failed: {}", error.kind);
        if !error.bytes_sent {
            return CallAnswer::Settled(RunOutcome::failed(false, code, message));
        }
        let garbled = matches!(error.kind, TransportFault::Malformed | TransportFault::TooLarge);
        let failed = || CallAnswer::Settled(RunOutcome::failed(true, code, message.clone()));
        // Whether it took effect is not known, and it is not sent again.
        let uncertain = || CallAnswer::Settled(RunOutcome::ended(RunStatus::Uncertain, true, code.as_str()));
        match (self.tool.endpoint.settings.dialect, self.tool.spec.kind) {
            (Dialect::Topology, ToolKind::Query) if garbled => failed(),
            // Our id is registered: the payload still finds its run.
            (Dialect::Topology, ToolKind::Query) => CallAnswer::Settled(RunOutcome::bare(RunStatus::Pending, true)),
            (Dialect::Topology, ToolKind::Command) => uncertain(),
            (Dialect::Median, _) if self.tool.spec.risk == Some(Risk::Low) => failed(),
            (Dialect::Median, _) => uncertain(),
        }
    }

    async fn record(&mut self, answer: CallAnswer, attempt: Attempt) -> Arc<Run> {
        match answer {
            CallAnswer::Accepted { correlation_id } => Box::pin(self.record_accepted(&correlation_id, attempt)).await,
            CallAnswer::Settled(outcome) if self.durable => Box::pin(self.record_settled(outcome, attempt)).await,
            CallAnswer::Settled(outcome) => self.record_later(outcome, attempt),
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

    async fn record_settled(&self, outcome: RunOutcome, attempt: Attempt) -> Arc<Run> {
        let intent = &self.run.intent;
        let still_open = outcome.status.is_open();
        let mut change = RunChange {
            org_id: intent.org_id,
            run_id: intent.id,
            outcome,
            withheld_result: None,
            attempts: vec![attempt],
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

    fn record_later(&mut self, outcome: RunOutcome, attempt: Attempt) -> Arc<Run> {
        let at = self.engine.clock().now();
        // Nobody else holds the run yet, so it is finished in place.
        let run = Arc::make_mut(&mut self.run);
        run.finished_at = (!outcome.status.is_open()).then_some(at);
        run.outcome = outcome;
        run.attempts.push(attempt);
        run.updated_at = at;
        self.engine.count_status_of(&self.catalog.org.slug, &self.run);
        if !self.engine.store().record_later(Arc::clone(&self.run)) {
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
                Err(StoreError::NotFound) => return None,
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
        attempts: change.attempts,
        updated_at: change.at,
        finished_at,
    }
}

/// Whether a fault speaks for or against the provider's health; `None` when it says nothing about it.
const fn healthy_despite(fault: TransportFault) -> Option<bool> {
    match fault {
        TransportFault::BlockedAddress | TransportFault::BadUrl => None,
        TransportFault::TooLarge => Some(true),
        TransportFault::Unresolvable
        | TransportFault::ConnectFailed
        | TransportFault::ConnectTimeout
        | TransportFault::Tls
        | TransportFault::Timeout
        | TransportFault::Reset
        | TransportFault::Malformed => Some(false),
    }
}

/// The code of an exchange that fails like this.
pub(in crate::engine) const fn fault_code(fault: TransportFault) -> ErrorCode {
    match fault {
        TransportFault::BlockedAddress
        | TransportFault::BadUrl
        | TransportFault::Unresolvable
        | TransportFault::ConnectFailed
        | TransportFault::ConnectTimeout
        | TransportFault::Tls => ErrorCode::EndpointUnavailable,
        TransportFault::Timeout => ErrorCode::ProviderTimeout,
        TransportFault::Reset => ErrorCode::ProviderError,
        TransportFault::TooLarge | TransportFault::Malformed => ErrorCode::ProviderProtocolError,
    }
}

/// The metrics' word for an answered exchange.
pub(in crate::engine) const fn http_outcome(status: u16) -> &'static str {
    match status {
        0..400 => "ok",
        400..500 => "http_4xx",
        _ => "http_5xx",
    }
}
