//! Running a tool: from an agent's request to its answer, as one visible sequence of phases.

use super::Engine;
use super::access::AgentAccess;
use super::carry_on::CarryOn;
use super::catalog::CatalogTool;
use super::confirmation::{Confirmation, Round};
use super::dispatch::call::Dispatch;
use super::dispatch::gate::{GatePermit, GateRefusal};
use super::in_flight::InFlightGuard;
use super::mcp::caller::McpCaller;
use super::mcp::round::{McpPart, binding};
use super::org::rate_limits::RateRefusal;
use super::ports::StoreError;
use super::runs::{Admitted, Patience};
use super::schemas::Side;
use super::settings::MAX_WAIT;
use super::store_port::{Admission, TokenUse};
use crate::dialects::ApprovalMark;
use crate::domain::canonical;
use crate::domain::ids::RunId;
use crate::domain::json::JsonText;
use crate::domain::org::ConfirmationFallback;
use crate::domain::run::{CallContext, Run, RunIntent, RunOutcome, RunStatus};
use crate::domain::schema::FieldError;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What an agent asks for.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Canonical id or bare name.
    pub tool: String,
    /// A JSON object.
    pub arguments: JsonText,
    /// The caller's own id, echoed.
    pub request_id: Option<String>,
    /// A confirmation token.
    pub confirmation: Option<String>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// `X-Caller-Identity`.
    pub caller: Option<String>,
    /// Where the call comes from.
    pub context: CallContext,
    /// `Prefer: wait`.
    pub wait: Option<Duration>,
    /// `traceparent` to send on.
    pub traceparent: Option<String>,
    /// Whoever sends the request can put the question of a confirmation to a person.
    pub can_confirm: bool,
    /// How the client takes part, when the call comes over MCP.
    pub mcp: Option<Box<McpCaller>>,
}

/// What an agent is answered.
#[derive(Clone, Debug)]
pub enum RunReply {
    /// A run, as it stands.
    Run(Arc<Run>),
    /// The run that the `Idempotency-Key` stands for, as it stands.
    Replay(Arc<Run>),
    /// The end user has to say yes first; nothing was sent.
    ConfirmationRequired {
        /// The tool that was asked for.
        tool: Arc<CatalogTool>,
        /// The token to come back with.
        confirmation: Confirmation,
    },
}

/// Why no run was made.
#[derive(Debug, thiserror::Error)]
pub enum RunRefusal {
    /// No tool of that name is visible to this key.
    #[error("there is no such tool")]
    UnknownTool,
    /// The arguments do not satisfy the schema.
    #[error("the arguments are not valid")]
    InvalidArguments(Vec<FieldError>),
    /// The holder of this key cannot confirm for a person.
    #[error("the call needs a confirmation this key cannot give")]
    CannotConfirm,
    /// The `Idempotency-Key` stands for another call.
    #[error("the idempotency key stands for another call")]
    KeyConflict,
    /// What the client carried from the round before is not for this call.
    #[error("the request state does not match")]
    StateMismatch,
    /// The token is not for this call.
    #[error("the confirmation does not match")]
    ConfirmationMismatch,
    /// A limit is used up.
    #[error("a rate limit refused the call")]
    RateLimited(RateRefusal),
    /// The endpoint cannot take the call now.
    #[error("the endpoint is unavailable")]
    Unavailable(GateRefusal),
    /// toolgate is too busy, or stopping.
    #[error("the gateway is overloaded")]
    Overloaded,
    /// The store does not answer.
    #[error("the store does not answer")]
    Store(#[source] StoreError),
}

impl From<StoreError> for RunRefusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Overloaded => RunRefusal::Overloaded,
            // The endpoint went away since the tool was found.
            StoreError::NotFound => RunRefusal::UnknownTool,
            other => RunRefusal::Store(other),
        }
    }
}

/// Arguments that satisfy the tool's schema.
pub(super) struct ValidArguments {
    sent: JsonText,
    /// `None` when coercion changed nothing.
    coerced: Option<JsonText>,
    pub(super) value: Value,
}

/// What the confirmation phase found.
enum Consent {
    NotNeeded,
    Given(TokenUse),
    Missing(Confirmation),
    /// Nobody can confirm; a teammate is asked instead.
    ByTeammate,
}

/// A call that passed every check.
pub(super) struct Checked<'a> {
    pub(super) access: &'a AgentAccess,
    pub(super) tool: &'a Arc<CatalogTool>,
    pub(super) request: &'a RunRequest,
    pub(super) arguments: ValidArguments,
    mcp: Option<McpPart>,
    token: Option<TokenUse>,
    pub(super) guard: InFlightGuard,
    pub(super) begun: Instant,
}

/// How long a client that says nothing waits for a person's decision.
const WAIT_FOR_PEOPLE: Duration = Duration::from_secs(30);

/// Time for recording an outcome, beyond the provider's own deadline.
const RECORDING_SLACK: Duration = Duration::from_secs(2);

impl Engine {
    /// Runs a tool: one phase after the other, in the order the contract checks things. The branches of the rarer kinds
    /// of run are boxed, so that a plain call does not carry their state about.
    pub async fn run(&self, access: &AgentAccess, mut request: RunRequest) -> Result<RunReply, RunRefusal> {
        let begun = Instant::now();
        let guard = self.0.in_flight.enter().ok_or(RunRefusal::Overloaded)?;
        let tool = resolve(access, &request.tool)?;
        if request.idempotency_key.is_some()
            && let Some(replay) = Box::pin(self.replay(access, &tool, &request, begun)).await?
        {
            return Ok(replay);
        }
        let arguments = self.validate(&tool, &request)?;
        let round = self.round(access, &tool, &arguments, &request)?;
        let consent = self.consent(access, &tool, &arguments, &request, round.as_ref())?;
        self.charge(access, &tool, &request)?;
        let (token, by_teammate) = match consent {
            Consent::NotNeeded => (None, false),
            Consent::ByTeammate => (None, true),
            Consent::Given(token) => {
                // A used token answers its run, however its endpoint is by now.
                if let Some(run) = Box::pin(self.run_of_token(access, &token)).await? {
                    let patience = patience(&tool, &request, begun);
                    let run = Box::pin(self.await_known(run, patience)).await?;
                    // With a key, whoever is not the first is told so, whichever of the two found the run.
                    let is_replay = request.idempotency_key.is_some();
                    return Ok(if is_replay { RunReply::Replay(run) } else { RunReply::Run(run) });
                }
                (Some(token), false)
            }
            Consent::Missing(confirmation) => return Ok(RunReply::ConfirmationRequired { tool, confirmation }),
        };
        let mcp = request.mcp.take().map(|caller| McpPart::of(caller, round));
        let checked = Checked { access, tool: &tool, request: &request, arguments, mcp, token, guard, begun };
        if by_teammate || tool.risk.is_some_and(|risk| risk.needs_approval()) {
            return Box::pin(self.hold(checked, by_teammate)).await;
        }
        let permit = self.enter_gate(access, &tool).await?;
        let waits_to_the_end = request.wait.is_none_or(|wait| wait >= tool.timeout);
        let binds_nothing = checked.token.is_none() && request.idempotency_key.is_none();
        if tool.is_recorded_later() && binds_nothing && waits_to_the_end {
            let run = self.new_run(&checked, RunStatus::Pending);
            let dispatch = self.dispatch(checked, run, permit);
            // Its record is written behind; a client that goes away cancels nothing that was sent.
            return Ok(RunReply::Run(CarryOn::new(dispatch.send_and_record()).await));
        }
        Box::pin(self.run_durably(checked, permit)).await
    }

    /// Coerces and validates, before anything is charged or anyone is asked.
    fn validate(&self, tool: &CatalogTool, request: &RunRequest) -> Result<ValidArguments, RunRefusal> {
        let spec = &tool.spec;
        let draft = tool.endpoint.settings.dialect.default_draft();
        let fault = |message: String| {
            RunRefusal::InvalidArguments(vec![FieldError {
                pointer: String::new(),
                keyword: "schema".to_owned(),
                message,
            }])
        };
        let schema = self
            .0
            .schemas
            .get(&spec.hash, Side::Input, &spec.input_schema, draft)
            .map_err(|refused| fault(format!("the tool's own schema is refused: {refused}")))?;
        let mut value: Value = serde_json::from_str(request.arguments.as_str())
            .map_err(|error| fault(format!("the arguments cannot be read: {error}")))?;
        let changed = schema.coerce(&mut value);
        schema.validate(&value).map_err(RunRefusal::InvalidArguments)?;
        let coerced = changed.then(|| JsonText::of(&value));
        Ok(ValidArguments { sent: request.arguments.clone(), coerced, value })
    }

    fn consent(
        &self,
        access: &AgentAccess,
        tool: &CatalogTool,
        arguments: &ValidArguments,
        request: &RunRequest,
        round: Option<&Round>,
    ) -> Result<Consent, RunRefusal> {
        if !tool.requires_confirmation {
            // A token that nothing asked for is for another call.
            return request
                .confirmation
                .as_ref()
                .map_or(Ok(Consent::NotNeeded), |_| Err(RunRefusal::ConfirmationMismatch));
        }
        if access.key().confirms
            && let Some(consent) = round.and_then(|round| round.consent.as_ref())
        {
            return Ok(Consent::Given(consent.clone()));
        }
        if !access.key().confirms || !request.can_confirm {
            return match access.catalog().org.confirmation_fallback {
                ConfirmationFallback::Refuse => Err(RunRefusal::CannotConfirm),
                ConfirmationFallback::Approval if request.confirmation.is_none() => Ok(Consent::ByTeammate),
                ConfirmationFallback::Approval => Err(RunRefusal::ConfirmationMismatch),
            };
        }
        let arguments_hash = canonical::sha256_hex(&arguments.value);
        let binding = binding(access, &tool.spec, request.caller.as_deref(), &arguments_hash);
        let now = self.clock().now();
        if let Some(token) = &request.confirmation {
            let used = self.0.seal.check(token, binding, now).ok_or(RunRefusal::ConfirmationMismatch)?;
            return Ok(Consent::Given(used));
        }
        let mut nonce = [0; 16];
        self.clock().fill_random(&mut nonce);
        let ttl = Duration::from_millis(access.catalog().limits.confirmation_ttl_ms);
        let expires_at = now.plus(ttl);
        let token = self.0.seal.issue(binding, nonce, expires_at);
        Ok(Consent::Missing(Confirmation { token, expires_at, summary: summary(tool, &arguments.value) }))
    }

    /// The run that a confirmation token has started.
    async fn run_of_token(&self, access: &AgentAccess, token: &TokenUse) -> Result<Option<Arc<Run>>, RunRefusal> {
        match self.store().token_run(token.nonce_hash).await? {
            Some(id) => Ok(self.store().run(access.key().org_id, id).await?.map(Arc::new)),
            None => Ok(None),
        }
    }

    fn charge(&self, access: &AgentAccess, tool: &CatalogTool, request: &RunRequest) -> Result<(), RunRefusal> {
        let catalog = access.catalog();
        let charged = access.org().rates().charge_run(&tool.spec.name, request.caller.as_deref(), &catalog.limits);
        charged.map_err(|refusal| {
            self.metrics().rate_limited(&catalog.org.slug, refusal.scope.as_str());
            RunRefusal::RateLimited(refusal)
        })
    }

    async fn enter_gate(&self, access: &AgentAccess, tool: &CatalogTool) -> Result<GatePermit, RunRefusal> {
        tool.gate.enter(self.clock().monotonic()).await.map_err(|refusal| {
            let (org, endpoint) = (&access.catalog().org.slug, &tool.endpoint.settings.name);
            self.metrics().provider_request(org, endpoint, refusal.as_str());
            RunRefusal::Unavailable(refusal)
        })
    }

    pub(super) fn new_run(&self, checked: &Checked<'_>, status: RunStatus) -> Run {
        let Checked { access, tool, request, arguments, token, .. } = checked;
        let now = self.clock().now();
        let lifetime = match status {
            RunStatus::AwaitingApproval => Duration::from_millis(access.catalog().limits.approval_ttl_ms),
            _ => lifetime_once_sent(tool),
        };
        let intent = RunIntent {
            id: RunId::from_uuid(self.clock().new_uuid()),
            org_id: access.key().org_id,
            agent_key: access.key().id,
            endpoint_id: tool.endpoint.id,
            endpoint_name: tool.endpoint.settings.name.clone(),
            dialect: tool.endpoint.settings.dialect,
            tool: tool.spec.name.clone(),
            kind: tool.spec.kind,
            llm_format: tool.spec.llm_format,
            tool_hash: tool.spec.hash.clone(),
            request_id: request.request_id.clone(),
            caller: request.caller.clone(),
            keyed: request.idempotency_key.is_some(),
            confirmed: token.is_some(),
            context: request.context.clone(),
            arguments_sent: arguments.sent.clone(),
            arguments_coerced: arguments.coerced.clone(),
            created_at: now,
            expires_at: Some(now.plus(lifetime)),
        };
        let started = status == RunStatus::Pending;
        Run {
            intent,
            outcome: RunOutcome::bare(status, started),
            provider_correlation_id: None,
            withheld_result: None,
            operation_id: None,
            attempts: Vec::new(),
            updated_at: now,
            finished_at: None,
        }
    }

    fn dispatch(&self, checked: Checked<'_>, run: Run, permit: GatePermit) -> Dispatch {
        Dispatch {
            engine: self.clone(),
            org: checked.access.org().clone(),
            catalog: Arc::clone(checked.access.catalog()),
            tool: Arc::clone(checked.tool),
            run: Arc::new(run),
            operation: None,
            approval: ApprovalMark::None,
            permit: Some(permit),
            _guard: checked.guard,
            begun: checked.begun,
            traceparent: checked.request.traceparent.clone(),
            mcp: checked.mcp,
            durable: false,
        }
    }

    /// Holds a run for a person: durable, nothing sent.
    async fn hold(&self, mut checked: Checked<'_>, by_teammate: bool) -> Result<RunReply, RunRefusal> {
        let waiting = checked.guard.clone();
        let patience = patience_with_people(checked.request, checked.begun);
        let run = Arc::new(self.new_run(&checked, RunStatus::AwaitingApproval));
        let approval = self.new_approval(&checked, &run, by_teammate);
        let admission = Admission {
            token: checked.token.take(),
            reservation: self.reservation(&checked),
            operation: None,
            approval: Some(approval.clone()),
        };
        let (admitted, answer) = oneshot::channel();
        let (engine, org, guard) = (self.clone(), checked.access.org().clone(), checked.guard);
        tokio::spawn(async move {
            // Nobody waits any more when the client has gone; the run is held all the same.
            let ended = engine.admit(&org, &run, admission).await;
            let is_new = matches!(ended, Ok(Admitted::New(_)));
            if is_new {
                engine.count_status_of(&org.catalog().org.slug, &run);
            }
            let _ = admitted.send(ended);
            if is_new {
                engine.ask_reviewer(&org, &run, &approval).await;
            }
            drop(guard);
        });
        self.answer_admitted(answer, patience, waiting).await
    }

    /// Intent first, then the send, both in a task of their own: a client that goes away cancels nothing, and no run is
    /// left between its record and its sending.
    async fn run_durably(&self, mut checked: Checked<'_>, permit: GatePermit) -> Result<RunReply, RunRefusal> {
        let waiting = checked.guard.clone();
        let patience = patience(checked.tool, checked.request, checked.begun);
        let reservation = self.reservation(&checked);
        let run = self.new_run(&checked, RunStatus::Pending);
        let token = checked.token.take();
        let mut dispatch = self.dispatch(checked, run, permit);
        dispatch.durable = true;
        dispatch.prepare_operation();
        let operation = dispatch.operation.as_deref().cloned();
        let admission = Admission { token, reservation, operation, approval: None };
        let (admitted, answer) = oneshot::channel();
        let engine = self.clone();
        tokio::spawn(async move {
            // From before its record until after its outcome the run's time is not over on this node.
            let _here = engine.0.in_flight.dispatch(dispatch.run.intent.id);
            let outcome = engine.admit(&dispatch.org, &dispatch.run, admission).await;
            let is_new = matches!(outcome, Ok(Admitted::New(_)));
            let _ = admitted.send(outcome);
            if is_new {
                dispatch.send_and_record().await;
            }
        });
        self.answer_admitted(answer, patience, waiting).await
    }

    /// What the client is answered of an admitted run; a stop waits for the answer too.
    async fn answer_admitted(
        &self,
        admitted: oneshot::Receiver<Result<Admitted, RunRefusal>>,
        patience: Patience,
        waiting: InFlightGuard,
    ) -> Result<RunReply, RunRefusal> {
        // The task sends before it ends, unless it panics.
        let admitted = admitted.await.map_err(|_| RunRefusal::Overloaded)??;
        let reply = match admitted {
            Admitted::New(waiter) => RunReply::Run(self.await_run(waiter, patience).await),
            Admitted::Before(run) => RunReply::Run(self.await_known(run, patience).await?),
            Admitted::Twin(run) => RunReply::Replay(self.await_known(run, patience).await?),
        };
        drop(waiting);
        Ok(reply)
    }
}

/// Time between a call's deadline and the moment at which an open record of it can only be the trace of a crash.
pub(super) const INTERRUPTED_AFTER: Duration = Duration::from_secs(5);

/// The look-up touches what this key may see and nothing else, so every unknown name fails alike.
fn resolve(access: &AgentAccess, name: &str) -> Result<Arc<CatalogTool>, RunRefusal> {
    let visible = access.catalog().visible(&access.key().groups);
    visible.resolve(name).cloned().ok_or(RunRefusal::UnknownTool)
}

/// How long a run that was sent may stay open. One that is answered in its own exchange is open no longer than that
/// exchange can last: whatever is open beyond was cut off by a crash.
pub(super) fn lifetime_once_sent(tool: &CatalogTool) -> Duration {
    if tool.stays_pending() { tool.pending_ttl } else { tool.timeout + INTERRUPTED_AFTER }
}

pub(super) fn patience(tool: &CatalogTool, request: &RunRequest, begun: Instant) -> Patience {
    if tool.risk.is_some_and(|risk| risk.needs_approval()) {
        return patience_with_people(request, begun);
    }
    let whole_exchange = tool.timeout + RECORDING_SLACK;
    let wait = request.wait.map(|wait| wait.min(MAX_WAIT));
    if tool.answers_at_once() {
        return Patience { until: begun + wait.map_or(whole_exchange, |w| w.min(whole_exchange)), for_final: true };
    }
    // A topology acknowledges in the exchange; its payload is waited for only when the agent says so.
    Patience { until: begun + wait.unwrap_or(whole_exchange), for_final: wait.is_some() }
}

/// A person's time to think is not the provider's time to answer.
fn patience_with_people(request: &RunRequest, begun: Instant) -> Patience {
    let wait = request.wait.map_or(WAIT_FOR_PEOPLE, |wait| wait.min(MAX_WAIT));
    Patience { until: begun + wait, for_final: true }
}

/// What a person is asked, of the coerced arguments that would be sent.
fn summary(tool: &CatalogTool, arguments: &Value) -> String {
    const LONGEST: usize = 500;
    let cut = |text: &str| {
        let cut: String = text.chars().take(LONGEST).collect();
        if cut.len() < text.len() { cut + "…" } else { cut }
    };
    let title = tool.spec.title.as_deref().unwrap_or(&tool.spec.name);
    let what = tool.spec.description.as_deref().map_or(String::new(), |text| format!(" {}", cut(text)));
    format!("{title}:{what} Arguments: {}", cut(&arguments.to_string()))
}
