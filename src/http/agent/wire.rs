//! What agents send and are answered. The order of the members is the contract's.

use crate::domain::json::JsonText;
use crate::domain::run::{Run, RunError, RunOutcome, RunStatus};
use crate::domain::tool::Dialect;
use crate::engine::catalog::CatalogTool;
use crate::engine::confirmation::Confirmation;
use crate::engine::run::RunReply;
use crate::http::conditional::to_json;
use crate::http::idempotency::IDEMPOTENT_REPLAY;
use crate::http::json::{Object, present};
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use utoipa::ToSchema;

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// One tool of a manifest.
#[derive(Serialize, ToSchema)]
#[schema(as = ManifestItem)]
pub(in crate::http) struct ManifestItem<'a> {
    /// Canonical id, such as `topology:weather-report`.
    id: &'a str,
    /// A short human title.
    title: &'a str,
    /// What the tool does, for a model.
    description: &'a str,
    /// `query` or `command`.
    kind: &'static str,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    input_schema: &'a RawValue,
    /// JSON Schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output_schema: Option<&'a RawValue>,
    /// The end user has to confirm each call.
    #[serde(skip_serializing_if = "is_false")]
    requires_confirmation: bool,
    /// The agent may reword the result.
    #[serde(skip_serializing_if = "is_false")]
    llm_format: bool,
    /// `low`, `medium`, `reviewed` or `high`; `medium` is the sign to ask the user first.
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<&'static str>,
    /// Changes something.
    #[serde(skip_serializing_if = "is_false")]
    mutating: bool,
    /// The kinds of evidence that a good answer holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    produces_evidence: Option<Vec<&'static str>>,
    /// The run deadline, where one is declared or set.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl<'a> ManifestItem<'a> {
    /// The item of a tool.
    pub(super) fn of(tool: &'a CatalogTool) -> Self {
        let spec = &tool.spec;
        let has_timeout = spec.timeout.is_some() || tool.policy.as_ref().is_some_and(|policy| policy.timeout.is_some());
        Self {
            id: &tool.id,
            title: spec.title.as_deref().unwrap_or(&spec.name),
            description: spec.description.as_deref().unwrap_or_default(),
            kind: spec.kind.as_str(),
            input_schema: spec.input_schema.raw(),
            output_schema: spec.output_schema.as_ref().map(JsonText::raw),
            requires_confirmation: tool.requires_confirmation,
            llm_format: spec.llm_format,
            risk: tool.risk.map(|risk| risk.as_str()),
            mutating: spec.mutating,
            produces_evidence: spec.provider.as_ref().map(|terms| terms.produces_evidence.words().collect()),
            timeout_ms: has_timeout.then(|| u64::try_from(tool.timeout.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// A run as an agent asks for it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RunBody)]
pub(in crate::http) struct RunBody<'a> {
    /// Canonical id or bare name.
    #[serde(borrow)]
    pub(super) tool: Cow<'a, str>,
    /// The arguments; absent is `{}`.
    #[serde(borrow, default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    pub(super) args: Option<&'a RawValue>,
    /// The agent's own id of the request, echoed; at most 128 characters.
    #[serde(borrow)]
    pub(super) request_id: Option<Cow<'a, str>>,
    /// The token of a `confirmation_required`, once the end user has said yes.
    #[serde(borrow)]
    pub(super) confirmation: Option<Cow<'a, str>>,
    /// Where the run comes from.
    #[serde(borrow)]
    #[schema(value_type = Option<RunContext>)]
    pub(super) context: Option<Object<RunContext<'a>>>,
}

/// Where a run comes from; members beside these are allowed and not looked at.
#[derive(Deserialize, ToSchema)]
#[schema(as = RunContext)]
pub(in crate::http) struct RunContext<'a> {
    /// The conversation; at most 128 characters.
    #[serde(borrow)]
    pub(super) conversation: Option<Cow<'a, str>>,
    /// The turn of the conversation: a text of at most 128 characters, or an integer.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub(super) turn: Option<Turn<'a>>,
    /// The end user's language (BCP 47), such as `de-AT`; at most 35 characters.
    #[serde(borrow)]
    pub(super) locale: Option<Cow<'a, str>>,
    /// The end user's time zone (IANA), such as `Africa/Cairo`; at most 64 characters.
    #[serde(borrow)]
    pub(super) timezone: Option<Cow<'a, str>>,
}

/// A turn as its conversation counts or names it; an integer stands for its digits.
pub(in crate::http) struct Turn<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Turn<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TurnVisitor(PhantomData))
    }
}

struct TurnVisitor<'a>(PhantomData<&'a str>);

impl<'de: 'a, 'a> Visitor<'de> for TurnVisitor<'a> {
    type Value = Turn<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an integer")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Turn(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Turn(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Turn(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Turn(Cow::Owned(number.to_string())))
    }
}

/// A run as an agent is answered.
#[derive(Serialize, ToSchema)]
#[schema(as = RunAnswer)]
pub(in crate::http) struct RunAnswer<'a> {
    /// Canonical id of the tool.
    tool: Cow<'a, str>,
    /// Bare name, of topology tools only.
    #[serde(skip_serializing_if = "Option::is_none")]
    topology: Option<&'a str>,
    /// `query` or `command`.
    kind: &'static str,
    /// The run's id; empty when no run was made.
    correlation_id: String,
    /// The agent's own id, empty when it gave none.
    request_id: &'a str,
    /// Something was sent, and the provider did not say that nothing was started.
    started: bool,
    /// `started`, `pending`, `completed`, `failed`, `confirmation_required`, `awaiting_approval`, `denied`, `expired`,
    /// `cancelled` or `uncertain`: something was sent and its outcome is not known; a receipt may still tell.
    status: &'static str,
    /// The result, as the provider wrote it; of an agent-provider's tool `{status, evidence, facts, text?}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    result: Option<&'a RawValue>,
    /// The result is to be shown as it is.
    #[serde(skip_serializing_if = "is_false")]
    verbatim: bool,
    /// `{code, message}`; a provider's own error is handed on as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    error: Option<ErrorAnswer<'a>>,
    /// Why the run ended without a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// What the end user has to say yes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmation: Option<ConfirmationAnswer<'a>>,
}

/// Why a run failed.
#[derive(Serialize)]
#[serde(untagged)]
enum ErrorAnswer<'a> {
    Gateway { code: &'static str, message: &'a str },
    Provider(&'a RawValue),
}

/// A confirmation to be given.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ConfirmationAnswer<'a> {
    /// Comes back as `confirmation` of the same run.
    token: &'a str,
    /// When it stops counting.
    expires_at: String,
    /// What the end user is asked.
    summary: &'a str,
}

impl<'a> RunAnswer<'a> {
    /// A run as it stands.
    pub(in crate::http) fn of(run: &'a Run) -> Self {
        let (intent, outcome) = (&run.intent, &run.outcome);
        let topology = match intent.dialect {
            Dialect::Topology => Some(intent.tool.as_str()),
            Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => None,
        };
        Self {
            tool: Cow::Owned([intent.dialect.id_prefix(), ":", &intent.tool].concat()),
            topology,
            kind: intent.kind.as_str(),
            correlation_id: intent.id.to_string(),
            request_id: intent.request_id.as_deref().unwrap_or_default(),
            started: outcome.started,
            status: outcome.status.as_str(),
            result: outcome.result.as_ref().map(|result| result.raw()),
            verbatim: outcome.status == RunStatus::Completed && outcome.result.is_some() && !intent.llm_format,
            error: outcome.error.as_ref().map(ErrorAnswer::of),
            reason: reason(outcome),
            confirmation: None,
        }
    }

    fn confirm(tool: &'a CatalogTool, request_id: Option<&'a str>, confirmation: &'a Confirmation) -> Self {
        let topology = match tool.endpoint.settings.dialect {
            Dialect::Topology => Some(tool.spec.name.as_str()),
            Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => None,
        };
        Self {
            tool: Cow::Borrowed(&tool.id),
            topology,
            kind: tool.spec.kind.as_str(),
            correlation_id: String::new(),
            request_id: request_id.unwrap_or_default(),
            started: false,
            status: "confirmation_required",
            result: None,
            verbatim: false,
            error: None,
            reason: None,
            confirmation: Some(ConfirmationAnswer {
                token: &confirmation.token,
                expires_at: confirmation.expires_at.to_string(),
                summary: &confirmation.summary,
            }),
        }
    }
}

impl<'a> ErrorAnswer<'a> {
    fn of(error: &'a RunError) -> Self {
        match error {
            RunError::Gateway { code, message } => ErrorAnswer::Gateway { code: code.as_str(), message },
            RunError::Provider(text) => ErrorAnswer::Provider(text.raw()),
        }
    }
}

/// A run that ended without its provider's word says why.
fn reason(outcome: &RunOutcome) -> Option<&str> {
    match outcome.status {
        RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Inspecting
        | RunStatus::Uncertain => Some(outcome.reason.as_deref().unwrap_or(outcome.status.as_str())),
        RunStatus::Started
        | RunStatus::Pending
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::AwaitingApproval => None,
    }
}

/// The HTTP status of a run's status.
pub(super) const fn http_status(status: RunStatus) -> u16 {
    match status {
        RunStatus::Started | RunStatus::Pending | RunStatus::AwaitingApproval => 202,
        RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Inspecting
        | RunStatus::Uncertain => 200,
    }
}

/// Room for everything of a usual answer but its result.
const ANSWER_FRAME: usize = 256;

/// The JSON of a run.
pub(super) fn run_json(run: &Run) -> Vec<u8> {
    let result = run.outcome.result.as_ref().map_or(0, |result| result.as_str().len());
    let mut json = Vec::with_capacity(ANSWER_FRAME + result);
    serde_json::to_writer(&mut json, &RunAnswer::of(run)).expect("a vector takes every byte, and every member is JSON");
    json
}

/// The answer to a run that was asked for.
pub(super) fn render_reply(reply: &RunReply, request_id: Option<&str>, wait: Option<Duration>) -> HttpResponse {
    match reply {
        RunReply::Run(run) => answer(http_status(run.outcome.status), run_json(run), wait),
        RunReply::Replay(run) => {
            let mut replayed = answer(http_status(run.outcome.status), run_json(run), wait);
            replayed.headers_mut().insert(IDEMPOTENT_REPLAY, HeaderValue::from_static("true"));
            replayed
        }
        RunReply::ConfirmationRequired { tool, confirmation } => {
            answer(200, to_json(&RunAnswer::confirm(tool, request_id, confirmation)), wait)
        }
    }
}

/// An answer that says which wait was applied.
pub(super) fn answer(status: u16, body: Vec<u8>, wait: Option<Duration>) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut answer = HttpResponse::build(status);
    answer.insert_header((CONTENT_TYPE, "application/json"));
    if let Some(wait) = wait {
        answer.insert_header((PREFERENCE_APPLIED, format!("wait={}", wait.as_secs())));
    }
    answer.body(body)
}

/// A header value of our own making.
pub(super) fn visible(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("our own header values are visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_text_or_an_integer() {
        let turn = |json: &str| serde_json::from_str::<Turn<'_>>(json).map(|turn| turn.0.into_owned()).ok();
        for (json, expected) in [
            (r#""t-1""#, "t-1"),
            (r#""\u0074-1""#, "t-1"),
            ("7", "7"),
            ("-7", "-7"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(turn(json).as_deref(), Some(expected), "{json}");
        }
        for bad in ["1.5", "1e3", "true", "[1]", "{}"] {
            assert_eq!(turn(bad), None, "{bad}");
        }
        let context = |json: &str| serde_json::from_str::<RunContext<'_>>(json).expect("a context").turn.is_none();
        assert!(context("{}") && context(r#"{"turn":null}"#));
    }
}
