//! Callbacks: the response node's late answer finds its run.
//!
//! **Invariant:** the endpoint that a callback came to is the only one whose runs it can settle; the organization comes
//! from the endpoint, never from the message. **Invariant:** what is answered 202 is durable.

use super::Engine;
use super::actors::org_handle::{OrgHandle, TurnFault};
use super::actors::registry::RegistryFault;
use super::dispatch::signing::{self, WebhookHeaders};
use super::ports::StoreError;
use super::schemas::Side;
use super::settings::{EARLY_CALLBACK_TTL, MAX_EARLY_CALLBACKS};
use super::store_port::{CallbackRecord, KeptCallback, RunChange, SettledCallback};
use crate::dialects::topology::callback::{Callback, CallbackResult, parse_callback};
use crate::domain::endpoint::Endpoint;
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::{EndpointId, OrgId};
use crate::domain::json::JsonText;
use crate::domain::json_scan;
use crate::domain::run::{Run, RunError, RunOutcome, RunStatus};
use std::sync::Arc;

/// Why a callback was not taken.
#[derive(Debug, thiserror::Error)]
pub enum CallbackRefusal {
    /// The signature does not verify, or there is no such endpoint: never said which.
    #[error("the signature does not verify")]
    InvalidSignature,
    /// The message is not JSON as the contract wants it.
    #[error("{0}")]
    NotJson(String),
    /// The message is not a callback.
    #[error("the message is not a callback: {0}")]
    Malformed(String),
    /// Too many unmatched callbacks of this endpoint are kept.
    #[error("too many unmatched callbacks are kept for this endpoint")]
    TooMany,
    /// The organization's mailbox is full.
    #[error("the gateway is overloaded")]
    Overloaded,
    /// The store does not answer.
    #[error("the store does not answer")]
    Store(#[source] StoreError),
}

impl From<StoreError> for CallbackRefusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Overloaded => CallbackRefusal::Overloaded,
            other => CallbackRefusal::Store(other),
        }
    }
}

impl Engine {
    /// The address that response nodes of an endpoint call.
    pub fn callback_url(&self, endpoint: EndpointId) -> String {
        format!("{}/callbacks/{endpoint}", self.settings().public_url)
    }

    /// Takes a callback: signature, shape, then the run it belongs to. `Ok` is durable, matched or not.
    pub async fn take_callback(
        &self,
        endpoint_id: EndpointId,
        headers: &WebhookHeaders<'_>,
        body: &[u8],
    ) -> Result<(), CallbackRefusal> {
        let found = self.callback_endpoint(endpoint_id).await;
        let (org, endpoint) = found.inspect_err(|refusal| {
            if let CallbackRefusal::InvalidSignature = refusal {
                self.metrics().callback("", "bad_signature");
            }
        })?;
        let slug = org.catalog().org.slug.clone();
        let now = self.clock().now();
        let secrets = endpoint.callback_secrets.iter().filter(|s| s.valid_until.is_none_or(|until| now < until));
        let webhook_id = signing::verify(secrets.map(|s| &s.secret), headers, body, now).map_err(|_| {
            self.metrics().callback(&slug, "bad_signature");
            CallbackRefusal::InvalidSignature
        })?;
        let message = read_callback(body).inspect_err(|_| self.metrics().callback(&slug, "refused"))?;
        let outcome = self.place(&org, &endpoint, &message, webhook_id, body).await?;
        self.metrics().callback(&slug, outcome);
        if outcome == "refused" { Err(CallbackRefusal::TooMany) } else { Ok(()) }
    }

    async fn callback_endpoint(&self, id: EndpointId) -> Result<(OrgHandle, Arc<Endpoint>), CallbackRefusal> {
        let org_id = match self.0.endpoint_orgs.get(&id) {
            Some(org_id) => org_id,
            None => {
                let found = self.store().endpoint_org(id).await?.ok_or(CallbackRefusal::InvalidSignature)?;
                self.0.endpoint_orgs.insert(id, found);
                found
            }
        };
        let org = self.0.registry.get(org_id).await.map_err(|fault| match fault {
            RegistryFault::NotFound => CallbackRefusal::InvalidSignature,
            RegistryFault::Store(error) => error.into(),
        })?;
        let endpoint = org.catalog().endpoint(id).cloned().ok_or(CallbackRefusal::InvalidSignature)?;
        Ok((org, endpoint))
    }

    /// Settles the run that the callback means, or keeps it; answers the metrics' word for what happened.
    async fn place(
        &self,
        org: &OrgHandle,
        endpoint: &Endpoint,
        message: &Callback,
        webhook_id: &str,
        body: &[u8],
    ) -> Result<&'static str, CallbackRefusal> {
        let record = CallbackRecord {
            endpoint_id: endpoint.id,
            webhook_id: webhook_id.to_owned(),
            request_id: message.request_id,
            correlation_id: message.correlation_id.clone(),
            body: body_text(body)?,
            at: self.clock().now(),
        };
        let live = match org.matching(endpoint.id, message.request_id, message.correlation_id.clone()).await {
            Ok(live) => live,
            Err(TurnFault::Overloaded) => return Err(CallbackRefusal::Overloaded),
            // The actor has just left: the store knows the run too.
            Err(TurnFault::Gone) => None,
        };
        if let Some(run) = live {
            return Ok(self.settle(org, &record, &message.result, &run).await?);
        }
        match self.store().keep_callback(&record, EARLY_CALLBACK_TTL, MAX_EARLY_CALLBACKS).await? {
            KeptCallback::Duplicate => Ok("duplicate"),
            KeptCallback::Late(_) => Ok("late"),
            KeptCallback::Ignored(_) => Ok("ignored"),
            KeptCallback::Early => Ok("unmatched"),
            KeptCallback::TooMany => Ok("refused"),
            KeptCallback::Matches(run) => Ok(self.settle(org, &record, &message.result, &run).await?),
        }
    }

    async fn settle(
        &self,
        org: &OrgHandle,
        record: &CallbackRecord,
        result: &CallbackResult,
        run: &Run,
    ) -> Result<&'static str, StoreError> {
        let (outcome, withheld_result) = self.outcome_of(org, run, result);
        let change = RunChange {
            org_id: run.intent.org_id,
            run_id: run.intent.id,
            outcome,
            withheld_result,
            attempts: Vec::new(),
            operation: None,
            approval: None,
            by_sender: false,
            at: record.at,
        };
        match self.store().settle_by_callback(record, &change).await? {
            SettledCallback::Settled(run) => {
                let run = Arc::from(run);
                self.count_status_of(&org.catalog().org.slug, &run);
                self.tell_settled(run).await;
                Ok("matched")
            }
            SettledCallback::Duplicate => Ok("duplicate"),
            SettledCallback::Late(_) => Ok("late"),
            SettledCallback::Ignored(_) => Ok("ignored"),
        }
    }

    /// Delivers callbacks that came before the acknowledgement of their runs and were kept while a crash came between.
    pub(super) async fn deliver_kept(self, org: OrgId) {
        let kept = match self.store().early_callbacks(org, self.clock().now()).await {
            Ok(kept) => kept,
            Err(error) => {
                tracing::error!(%org, %error, "kept callbacks could not be read");
                return;
            }
        };
        for (run_id, callback) in kept {
            if let Ok(Some(run)) = self.store().run(org, run_id).await {
                self.settle_kept(callback, &run).await;
            }
        }
    }

    /// Settles a run with a callback that was kept until the run was known by the provider's id. Its sender has had its
    /// 202, so this goes on until it works.
    pub(super) async fn settle_kept(&self, record: CallbackRecord, run: &Run) {
        let message = match parse_callback(record.body.as_str().as_bytes()) {
            Ok(message) => message,
            Err(fault) => {
                tracing::error!(run = %run.intent.id, %fault, "a kept callback is none any more");
                return;
            }
        };
        let settle = || async {
            match self.0.registry.get(run.intent.org_id).await {
                Ok(org) => self.settle(&org, &record, &message.result, run).await.map(drop),
                Err(RegistryFault::NotFound) => Ok(()),
                Err(RegistryFault::Store(error)) => Err(error),
            }
        };
        // When even that fails, the end of the run's time delivers it.
        let _ = self.until_recorded(run.intent.id, settle).await;
    }

    /// The outcome a callback gives its run; a payload that breaks the output schema is withheld from the agent.
    fn outcome_of(&self, org: &OrgHandle, run: &Run, result: &CallbackResult) -> (RunOutcome, Option<JsonText>) {
        match result {
            CallbackResult::Failed { error, payload } => {
                let error = error.clone().map_or_else(
                    || RunError::Gateway {
                        code: ErrorCode::ProviderError,
                        message: "the provider reports a failure without saying which".to_owned(),
                    },
                    RunError::Provider,
                );
                // An error result is not held against the output schema: that would hide the real error.
                let failed = RunOutcome {
                    error: Some(error),
                    result: payload.clone(),
                    ..RunOutcome::bare(RunStatus::Failed, true)
                };
                (failed, None)
            }
            CallbackResult::Completed { payload } => {
                let payload = payload.clone().unwrap_or_else(|| JsonText::of(&serde_json::Value::Null));
                match self.output_fault(org, run, &payload) {
                    None => (RunOutcome::completed(payload), None),
                    Some(message) => (RunOutcome::failed(true, ErrorCode::OutputInvalid, message), Some(payload)),
                }
            }
        }
    }

    fn output_fault(&self, org: &OrgHandle, run: &Run, payload: &JsonText) -> Option<String> {
        let catalog = org.catalog();
        // A schema that came after the run does not bind its result.
        let tool = catalog.tool(&run.intent.tool).filter(|tool| tool.spec.hash == run.intent.tool_hash)?;
        let schema = tool.spec.output_schema.as_ref()?;
        let draft = tool.endpoint.settings.dialect.default_draft();
        let validator = self.0.schemas.get(&tool.spec.hash, Side::Output, schema, draft).ok()?;
        let Ok(value) = serde_json::from_str(payload.as_str()) else {
            return Some("the result holds a number that cannot be checked against the output schema".to_owned());
        };
        let errors = validator.validate(&value).err()?;
        let first = errors.first()?;
        Some(format!("the result does not satisfy the output schema at \"{}\" ({})", first.pointer, first.keyword))
    }
}

/// The structure is looked at as of any request; the numbers are the provider's.
fn read_callback(body: &[u8]) -> Result<Callback, CallbackRefusal> {
    json_scan::scan_structure(body).map_err(|fault| CallbackRefusal::NotJson(fault.message))?;
    parse_callback(body).map_err(|fault| CallbackRefusal::Malformed(fault.to_string()))
}

fn body_text(body: &[u8]) -> Result<JsonText, CallbackRefusal> {
    let text = std::str::from_utf8(body).map_err(|_| CallbackRefusal::Malformed("not UTF-8".to_owned()))?;
    JsonText::parse(text).map_err(|error| CallbackRefusal::Malformed(error.to_string()))
}
