//! The run: what is sent, and what the acknowledgement means.

use super::super::checks::object;
use super::super::{Call, CallAnswer, InboundAnswer, Method, OutboundRequest};
use super::{ID_PREFIX, auth_header};
use crate::domain::endpoint::EndpointSettings;
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::RunId;
use crate::domain::json::JsonText;
use crate::domain::run::{RunError, RunOutcome, RunStatus};
use crate::domain::tool::{ToolKind, ToolSpec};
use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Longest `correlation_id` of a provider, in bytes: it is kept as a key while its run is pending.
const MAX_CORRELATION_ID: usize = 1024;

/// Room for everything of the body but the arguments.
const BODY_FRAME: usize = 160;

/// The body of `POST /mcp/run`. The arguments go in as the text they are.
#[derive(Serialize)]
struct RunBody<'a> {
    #[serde(serialize_with = "topology_id")]
    tool: &'a str,
    args: &'a RawValue,
    #[serde(serialize_with = "id_text")]
    request_id: &'a RunId,
}

fn topology_id<S: Serializer>(own_name: &&str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{ID_PREFIX}{own_name}"))
}

fn id_text<S: Serializer>(id: &&RunId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The request that runs a tool, under the provider's own name for it.
pub fn encode_call(settings: &EndpointSettings, call: &Call<'_>) -> OutboundRequest {
    let mut body = Vec::with_capacity(BODY_FRAME + call.arguments.as_str().len());
    let content = RunBody { tool: &call.tool.provider_name, args: call.arguments.raw(), request_id: &call.run_id };
    serde_json::to_writer(&mut body, &content).expect("a vector takes every byte, and every member is text or JSON");
    let mut headers = Vec::with_capacity(3);
    headers.extend(auth_header(settings));
    headers.push((Cow::Borrowed("x-callback-url"), call.callback_url.to_owned()));
    headers.extend(call.caller.map(|caller| (Cow::Borrowed("x-caller-identity"), caller.to_owned())));
    OutboundRequest {
        method: Method::Post,
        url: format!("{}/mcp/run", settings.base_url),
        headers,
        body: Bytes::from(body),
        median_signature: false,
    }
}

/// The members of an acknowledgement that mean something here; others are ignored.
#[derive(Deserialize)]
struct Acknowledgement<'a> {
    kind: Option<String>,
    correlation_id: Option<String>,
    started: Option<bool>,
    status: Option<String>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads the answer to a run.
pub fn decode_answer(tool: &ToolSpec, answer: &InboundAnswer) -> CallAnswer {
    let said = object::<Acknowledgement<'_>>(&answer.body);
    let refused_start = said.as_ref().filter(|said| said.started == Some(false));
    let outcome = match answer.status {
        // The provider turned the credentials down, whatever else it says: nothing ran, for a command too.
        401 | 403 => RunOutcome::failed(
            refused_start.is_none(),
            ErrorCode::ProviderAuthFailed,
            format!("the provider refused the gateway's credentials (HTTP {})", answer.status),
        ),
        // `started:false` is the provider's word that nothing began; it holds under any other status.
        _ if refused_start.is_some_and(|said| said.kind.as_deref().is_none_or(|kind| kind == tool.kind.as_str())) => {
            failed_start(refused_start.and_then(|said| said.error))
        }
        200 | 202 => return acknowledged(tool.kind, said.as_ref()),
        // The request was turned down before the topology ran.
        status @ 400..=499 => {
            RunOutcome::failed(true, ErrorCode::ProviderError, format!("the provider answered HTTP {status}"))
        }
        // Whether it ran first, nobody knows. A query that was answered so has failed all the same: it only asks.
        status @ 500..=599 => {
            unclear(tool.kind, ErrorCode::ProviderError, format!("the provider answered HTTP {status}"))
        }
        status => unclear(
            tool.kind,
            ErrorCode::ProviderProtocolError,
            format!("the provider answered HTTP {status}, which says nothing about a run"),
        ),
    };
    CallAnswer::Settled(outcome)
}

/// The meaning of HTTP 200 or 202 when the provider does not say that nothing was started.
fn acknowledged(kind: ToolKind, said: Option<&Acknowledgement<'_>>) -> CallAnswer {
    let breach = |message: &str| {
        let message = format!("the provider's answer breaks its protocol: {message}");
        CallAnswer::Settled(unclear(kind, ErrorCode::ProviderProtocolError, message))
    };
    let Some(said) = said else {
        return breach("it is not the JSON object of a run");
    };
    if said.kind.as_deref() != Some(kind.as_str()) {
        return breach("its kind is not the one of the manifest");
    }
    match (kind, said.status.as_deref()) {
        (ToolKind::Command, Some("started")) => CallAnswer::Settled(RunOutcome::bare(RunStatus::Started, true)),
        (ToolKind::Query, Some("pending")) => match &said.correlation_id {
            Some(id) if !id.is_empty() && id.len() <= MAX_CORRELATION_ID => {
                CallAnswer::Accepted { correlation_id: id.clone() }
            }
            Some(_) | None => breach("a pending query needs a correlation_id"),
        },
        // Also `completed`: the source hands a payload over by callback only, so this is another protocol.
        (ToolKind::Command, _) => breach("the status of a command must be started"),
        (ToolKind::Query, _) => breach("the status of a query must be pending"),
    }
}

/// The provider could not start the run: its own error is handed on when it is one.
fn failed_start(error: Option<&RawValue>) -> RunOutcome {
    /// What makes an object an error an agent can read.
    #[derive(Deserialize)]
    struct ProviderError {
        #[serde(rename = "code")]
        _code: String,
        #[serde(rename = "message")]
        _message: String,
    }

    match error.filter(|raw| object::<ProviderError>(raw.get().as_bytes()).is_some()) {
        Some(raw) => RunOutcome {
            error: Some(RunError::Provider(JsonText::from(raw.to_owned()))),
            ..RunOutcome::bare(RunStatus::Failed, false)
        },
        None => RunOutcome::failed(false, ErrorCode::ProviderError, "the provider could not start the run"),
    }
}

/// An answer that does not say what happened: a query has failed, a command may have run.
fn unclear(kind: ToolKind, code: ErrorCode, message: String) -> RunOutcome {
    match kind {
        ToolKind::Query => RunOutcome::failed(true, code, message),
        ToolKind::Command => RunOutcome::ended(RunStatus::Uncertain, true, code.as_str()),
    }
}
