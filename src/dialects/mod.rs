//! Pure wire translation, one module a dialect: encode a request, decode an answer, parse a callback.
//!
//! Nothing here does I/O or knows the time; signatures are added by the engine when a request is about to leave.

pub mod agent_provider;
mod checks;
pub mod mcp;
pub mod median;
pub mod topology;

use crate::domain::endpoint::{Endpoint, EndpointSettings};
use crate::domain::ids::RunId;
use crate::domain::json::JsonText;
use crate::domain::manifest::{Manifest, SyncFault};
use crate::domain::operation::{OperationMark, OperationVerdict};
use crate::domain::run::RunOutcome;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Dialect, ToolSpec};
use bytes::Bytes;
use std::borrow::Cow;

/// The HTTP methods toolgate uses towards providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// No body.
    Get,
    /// A JSON body.
    Post,
    /// No body.
    Delete,
}

/// A request to a provider, complete but for a signature that depends on the time it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRequest {
    /// The method.
    pub method: Method,
    /// Absolute URL.
    pub url: String,
    /// Headers beside `Host`, `Content-Length`, `Content-Type` and `Accept`, lower-case names.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// Exactly the bytes to send; empty for GET and DELETE.
    pub body: Bytes,
    /// Whether each attempt is signed by Median's scheme.
    pub median_signature: bool,
}

/// An HTTP answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundAnswer {
    /// HTTP status.
    pub status: u16,
    /// The `ETag` header, when it is one that can be sent back.
    pub etag: Option<String>,
    /// Decoded body, within its limit.
    pub body: Bytes,
}

/// A yes that was given before the call, as Median's `context.approval`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMark {
    /// None was needed.
    #[default]
    None,
    /// A reviewer approved.
    Reviewer {
        /// Who.
        by: Option<String>,
    },
    /// A teammate approved.
    Teammate {
        /// Who.
        by: Option<String>,
    },
}

/// What a call says about itself to the provider.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Our correlation id.
    pub run_id: RunId,
    /// The tool.
    pub tool: &'a ToolSpec,
    /// Valid, coerced arguments: a JSON object.
    pub arguments: &'a JsonText,
    /// `X-Caller-Identity`.
    pub caller: Option<&'a str>,
    /// The conversation, when the agent names one.
    pub conversation: Option<&'a str>,
    /// Where the provider's response node delivers late answers.
    pub callback_url: &'a str,
    /// A yes given before.
    pub approval: &'a ApprovalMark,
    /// The organization's slug.
    pub workspace: &'a str,
    /// The turn of the conversation, when the agent names one.
    pub turn: Option<&'a str>,
    /// The locale of the caller, when the agent names one.
    pub locale: Option<&'a str>,
    /// The timezone of the caller, when the agent names one.
    pub timezone: Option<&'a str>,
    /// The time of the call.
    pub now: Timestamp,
    /// The trace the call belongs to: 32 lower-case hex digits.
    pub trace_id: &'a str,
    /// What marks a mutation of a provider with receipts.
    pub operation: Option<&'a OperationMark>,
}

/// What has to be known of a call to read its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerContext<'a> {
    /// The mark the call was sent under.
    pub operation: Option<&'a OperationMark>,
    /// Nobody is harmed when the call is made again: only then may it be called failed although that is not known.
    pub repeatable: bool,
    /// The locale of the caller.
    pub locale: Option<&'a str>,
    /// The timezone of the caller.
    pub timezone: Option<&'a str>,
}

/// What a provider's answer to a call means.
#[derive(Clone, Debug, PartialEq)]
pub enum CallAnswer {
    /// The run has this outcome now.
    Settled(RunOutcome),
    /// A query was accepted under the provider's own correlation id; the payload arrives by callback.
    Accepted {
        /// The provider's `correlation_id`.
        correlation_id: String,
    },
    /// What became of a mutation that was sent under an operation's mark.
    Operation(OperationVerdict),
}

/// The request that fetches the endpoint's manifest; with an entity tag, one that was answered under it may be answered
/// with 304. Dialects that know no such thing leave it out.
pub fn encode_manifest_request(settings: &EndpointSettings, etag: Option<&str>) -> OutboundRequest {
    match settings.dialect {
        Dialect::Topology => topology::encode_manifest_request(settings),
        Dialect::AgentProvider => agent_provider::encode_manifest_request(settings, etag),
        Dialect::Median => median::encode_manifest_request(settings),
        Dialect::Mcp => mcp::encode_manifest_request(settings),
    }
}

/// Checks a manifest body by every rule of the dialect, prefixing names as the settings say. With
/// [`SyncPolicy::Reject`](crate::domain::endpoint::SyncPolicy) the first bad tool is the error.
pub fn decode_manifest(settings: &EndpointSettings, body: &[u8]) -> Result<Manifest, SyncFault> {
    match settings.dialect {
        Dialect::Topology => topology::decode_manifest(settings, body),
        Dialect::AgentProvider => agent_provider::decode_manifest(settings, body),
        Dialect::Median => median::decode_manifest(settings, body),
        Dialect::Mcp => mcp::decode_manifest(settings, body),
    }
}

/// The request that runs a tool.
pub fn encode_call(endpoint: &Endpoint, call: &Call<'_>) -> OutboundRequest {
    match endpoint.settings.dialect {
        Dialect::Topology => topology::encode_call(&endpoint.settings, call),
        Dialect::AgentProvider => agent_provider::encode_call(&endpoint.settings, call),
        Dialect::Median => median::encode_call(&endpoint.settings, call),
        Dialect::Mcp => mcp::encode_lone_call(&endpoint.settings, call),
    }
}

/// Reads the answer to a call.
pub fn decode_answer(
    dialect: Dialect,
    tool: &ToolSpec,
    context: &AnswerContext<'_>,
    answer: &InboundAnswer,
) -> CallAnswer {
    match dialect {
        Dialect::Topology => topology::decode_answer(tool, answer),
        Dialect::AgentProvider => agent_provider::decode_answer(tool, context, answer),
        Dialect::Median => median::decode_answer(context, answer),
        Dialect::Mcp => mcp::decode_answer(context, answer),
    }
}
