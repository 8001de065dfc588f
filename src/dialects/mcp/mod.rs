//! Dialect `mcp`: MCP servers over Streamable HTTP, of the present era and of the earlier ones. The facts are those of
//! the protocol's specification, revision 2026-07-28, and of the revisions back to 2025-03-26.
//!
//! Two eras differ in how a dialogue is held. A *modern* server is stateless: each request carries its version and the
//! client's capabilities. A *legacy* server is opened with `initialize` and may assign a session.

mod header_params;
mod manifest;
mod members;
mod pages;
mod response;
mod result;
pub mod rpc;
pub mod sse;
mod wire;
pub mod words;

pub use header_params::{decoded as decoded_header, encoded as encoded_header};
pub use manifest::decode_tools;
pub use pages::{MAX_PAGES, Page, Pages, decode_page};
pub use response::{CallResponse, cannot_ask, decode_response, rpc_failure};
pub use result::{ToolResult, decode_result, structured_content};
pub use wire::{
    Dialogue, Opened, ToolCall, acknowledges_tools, decode_opened, encode_call, encode_cancelled, encode_discover,
    encode_end_session, encode_initialize, encode_initialized, encode_list, encode_listen, encode_response,
    encode_resume,
};

use super::{AnswerContext, Call, CallAnswer, InboundAnswer, OutboundRequest};
use crate::domain::endpoint::EndpointSettings;
use crate::domain::json::JsonText;
use crate::domain::manifest::{Manifest, SyncFault, SyncReason};

/// Checks the tools of a server that answers them on one page, as JSON.
pub fn decode_manifest(settings: &EndpointSettings, body: &[u8]) -> Result<Manifest, SyncFault> {
    let not_json = || SyncFault::new(SyncReason::NotJson, "the answer to tools/list is no JSON-RPC message");
    let text = std::str::from_utf8(body).map_err(|_| not_json())?;
    match rpc::parse(text).ok_or_else(not_json)? {
        rpc::Message::Response { answer: Ok(result), .. } => decode_tools(settings, &[decode_page(result)?]),
        rpc::Message::Response { answer: Err(error), .. } => Err(rpc::sync_fault("tools/list", error)),
        rpc::Message::Request { .. } | rpc::Message::Notification { .. } => Err(not_json()),
    }
}

/// The first request of a sync: the first page of tools, asked for in the modern era.
pub fn encode_manifest_request(settings: &EndpointSettings) -> OutboundRequest {
    encode_list(settings, &Dialogue::Modern, 1, None)
}

/// A call that nobody can be asked about, in the modern era.
pub fn encode_lone_call(settings: &EndpointSettings, call: &Call<'_>) -> OutboundRequest {
    let capabilities = JsonText::empty_object();
    let call = ToolCall {
        tool: call.tool,
        arguments: Some(call.arguments),
        capabilities: capabilities.raw(),
        progress_token: None,
        input_responses: None,
        request_state: None,
    };
    encode_call(settings, &Dialogue::Modern, 1, &call)
}

/// Reads an answer that came whole, as JSON, to a call that nobody can be asked about.
pub fn decode_answer(context: &AnswerContext<'_>, answer: &InboundAnswer) -> CallAnswer {
    let text = std::str::from_utf8(&answer.body).unwrap_or_default();
    CallAnswer::Settled(match decode_response(context.repeatable, answer.status, text) {
        CallResponse::Over(outcome) => outcome,
        CallResponse::InputRequired { .. } => cannot_ask(),
    })
}

/// What the answer to a modern request says about its server's era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A modern server that took the request.
    Modern,
    /// A modern server that speaks other versions: those of its list.
    OtherVersions(Vec<String>),
    /// A modern server that refused the request for another reason.
    Refused,
    /// Who knows: the answer is about credentials or load, or comes from a proxy without its server, and says nothing of
    /// the protocol.
    Silent,
    /// No modern server.
    Legacy,
}

/// Reads that sign. Anything but a modern result and the three errors that only modern servers know means legacy: some
/// legacy servers answer 200 with "method not found", others a bare 400.
pub fn sign_of(status: u16, message: &str) -> Sign {
    if matches!(status, 401 | 403 | 429) {
        return Sign::Silent;
    }
    match rpc::parse(message) {
        Some(rpc::Message::Response { answer: Ok(result), .. }) if rpc::result_type(result).is_some() => Sign::Modern,
        Some(rpc::Message::Response { answer: Err(error), .. }) => match rpc::Error::read(error) {
            Some(error) if error.code == words::UNSUPPORTED_VERSION => {
                Sign::OtherVersions(error.supported_versions().unwrap_or_default())
            }
            Some(error) if matches!(error.code, words::HEADER_MISMATCH | words::MISSING_CAPABILITY) => Sign::Refused,
            Some(_) | None => Sign::Legacy,
        },
        None if matches!(status, 502..=504) => Sign::Silent,
        Some(_) | None => Sign::Legacy,
    }
}
