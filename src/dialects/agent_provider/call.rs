//! The call, its resend, and the question after a receipt.

use super::super::{Call, Method, OutboundRequest};
use super::{auth_header, terms};
use crate::domain::endpoint::EndpointSettings;
use crate::domain::operation::{OperationIntent, OperationMark};
use crate::domain::time::Timestamp;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Room for everything of the body but the arguments.
const BODY_FRAME: usize = 384;

/// The subject of a call that no caller is named for.
const ANONYMOUS: &str = "anonymous";

/// The channel of a subject that does not say where it comes from.
const OWN_CHANNEL: &str = "agent";

/// The body of a call, its members in the order of the contract. The arguments go in as the text they are.
#[derive(Serialize)]
struct CallBody<'a> {
    arguments: &'a RawValue,
    context: Context<'a>,
}

#[derive(Serialize)]
struct Context<'a> {
    workspace: &'a str,
    conversation: Option<&'a str>,
    turn: Option<&'a str>,
    subject: Subject<'a>,
    locale: &'a str,
    timezone: &'a str,
    #[serde(serialize_with = "time_text")]
    now: &'a Timestamp,
}

#[derive(Serialize)]
struct Subject<'a> {
    id: &'a str,
    channel: &'a str,
    assurance: &'static str,
}

fn time_text<S: Serializer>(time: &&Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// The id of `context.subject`, which a fingerprint is made over: the caller, or `anonymous`.
pub fn subject_id(caller: Option<&str>) -> &str {
    caller.unwrap_or(ANONYMOUS)
}

/// What stands before the first `:` of a subject.
fn channel(subject: &str) -> &str {
    subject.split_once(':').map(|(channel, _)| channel).filter(|channel| !channel.is_empty()).unwrap_or(OWN_CHANNEL)
}

/// The request that runs a tool, under the provider's own name for it. The operation's mark goes out on a mutation and
/// never on a read.
pub fn encode_call(settings: &EndpointSettings, call: &Call<'_>) -> OutboundRequest {
    let terms = terms(call.tool);
    let subject = subject_id(call.caller);
    let content = CallBody {
        arguments: call.arguments.raw(),
        context: Context {
            workspace: call.workspace,
            conversation: call.conversation,
            turn: call.turn,
            subject: Subject { id: subject, channel: channel(subject), assurance: "channel_asserted" },
            locale: call.locale.or(terms.languages.first().map(String::as_str)).unwrap_or("en"),
            timezone: call.timezone.unwrap_or("UTC"),
            now: &call.now,
        },
    };
    let mut body = Vec::with_capacity(BODY_FRAME + call.arguments.as_str().len());
    serde_json::to_writer(&mut body, &content).expect("a vector takes every byte, and every member is text or JSON");
    let mark = call.operation.filter(|_| call.tool.mutating);
    let headers = headers(settings, &terms.contract_version, call.trace_id, mark);
    post(settings, &call.tool.provider_name, headers, Bytes::from(body))
}

/// The POST of a recorded operation, the first time and every time: the same body under the same contract version and the
/// same mark.
pub fn encode_operation(settings: &EndpointSettings, intent: &OperationIntent) -> OutboundRequest {
    let headers = headers(settings, &intent.terms.contract_version, &intent.trace_id, Some(&intent.mark));
    post(settings, &intent.provider_tool, headers, Bytes::copy_from_slice(intent.body.as_str().as_bytes()))
}

/// The question what became of a recorded operation.
pub fn encode_receipt_request(settings: &EndpointSettings, intent: &OperationIntent) -> OutboundRequest {
    let mut headers = headers(settings, &intent.terms.contract_version, &intent.trace_id, None);
    headers.push(fingerprint_header(&intent.mark));
    OutboundRequest {
        method: Method::Get,
        url: format!("{}/receipts/{}", settings.base_url, intent.mark.id),
        headers,
        body: Bytes::new(),
        median_signature: false,
    }
}

fn post(
    settings: &EndpointSettings,
    tool: &str,
    headers: Vec<(Cow<'static, str>, String)>,
    body: Bytes,
) -> OutboundRequest {
    OutboundRequest {
        method: Method::Post,
        url: format!("{}/tools/{tool}", settings.base_url),
        headers,
        body,
        median_signature: false,
    }
}

fn headers(
    settings: &EndpointSettings,
    contract_version: &str,
    trace_id: &str,
    mark: Option<&OperationMark>,
) -> Vec<(Cow<'static, str>, String)> {
    let mut headers = Vec::with_capacity(6);
    headers.extend(auth_header(settings));
    headers.push((Cow::Borrowed("contract-version"), contract_version.to_owned()));
    headers.push((Cow::Borrowed("trace-id"), trace_id.to_owned()));
    if let Some(mark) = mark {
        headers.push((Cow::Borrowed("operation-id"), mark.id.to_string()));
        headers.push(fingerprint_header(mark));
    }
    headers
}

fn fingerprint_header(mark: &OperationMark) -> (Cow<'static, str>, String) {
    (Cow::Borrowed("request-fingerprint"), mark.fingerprint.clone())
}
