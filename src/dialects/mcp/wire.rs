//! What is sent to an MCP server, in the era it speaks.

use super::super::checks::object;
use super::super::{Method, OutboundRequest};
use super::header_params;
use super::words::{LEGACY_VERSIONS, META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_VERSION, MODERN_VERSION};
use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::json::JsonText;
use crate::domain::tool::ToolSpec;
use bytes::Bytes;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Either way of answering a POST has to be taken.
const ACCEPT: &str = "application/json, text/event-stream";

/// How toolgate and a server talk with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialogue {
    /// Each request stands for itself.
    Modern,
    /// Opened with `initialize`.
    Legacy {
        /// The revision the server chose.
        version: String,
        /// The session it assigned, if it did.
        session_id: Option<String>,
        /// It announces changes of its tools.
        announces_changes: bool,
    },
}

impl Dialogue {
    /// The revision spoken.
    pub fn version(&self) -> &str {
        match self {
            Dialogue::Modern => MODERN_VERSION,
            Dialogue::Legacy { version, .. } => version,
        }
    }

    /// The session to name.
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Dialogue::Modern => None,
            Dialogue::Legacy { session_id, .. } => session_id.as_deref(),
        }
    }
}

/// A `tools/call`.
#[derive(Clone, Copy, Debug)]
pub struct ToolCall<'a> {
    /// The tool, under its server's own name.
    pub tool: &'a ToolSpec,
    /// Valid arguments, a JSON object; `None` where the agent gave none and none are needed.
    pub arguments: Option<&'a JsonText>,
    /// What the agent's client can do, a JSON object; told to modern servers with each request.
    pub capabilities: &'a RawValue,
    /// Asks for progress under this token.
    pub progress_token: Option<u64>,
    /// The answers to what the server asked in the round before, a JSON object.
    pub input_responses: Option<&'a RawValue>,
    /// The state the server gave with those questions.
    pub request_state: Option<&'a str>,
}

#[derive(Serialize)]
struct Request<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct Notification<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

/// `_meta` of a request: in the modern era, what the request says of its client.
struct Meta<'a> {
    capabilities: Option<&'a RawValue>,
    progress_token: Option<u64>,
}

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        if let Some(capabilities) = self.capabilities {
            members.serialize_entry(META_VERSION, MODERN_VERSION)?;
            members.serialize_entry(META_CLIENT_INFO, &CLIENT_INFO)?;
            members.serialize_entry(META_CLIENT_CAPABILITIES, capabilities)?;
        }
        if let Some(token) = self.progress_token {
            members.serialize_entry("progressToken", &token)?;
        }
        members.end()
    }
}

#[derive(Serialize)]
struct ClientInfo {
    name: &'static str,
    version: &'static str,
}

const CLIENT_INFO: ClientInfo = ClientInfo { name: "toolgate", version: env!("CARGO_PKG_VERSION") };

fn meta<'a>(dialogue: &Dialogue, capabilities: &'a RawValue, progress_token: Option<u64>) -> Option<Meta<'a>> {
    let capabilities = (*dialogue == Dialogue::Modern).then_some(capabilities);
    (capabilities.is_some() || progress_token.is_some()).then_some(Meta { capabilities, progress_token })
}

fn nothing() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an object without members is JSON")
}

/// Opens a legacy dialogue, declaring what the agent's client can do: a JSON object.
pub fn encode_initialize(settings: &EndpointSettings, id: u64, capabilities: &RawValue) -> OutboundRequest {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        protocol_version: &'static str,
        capabilities: &'a RawValue,
        client_info: ClientInfo,
    }
    let params = Params { protocol_version: LEGACY_VERSIONS[0], capabilities, client_info: CLIENT_INFO };
    let body = Request { jsonrpc: "2.0", id, method: "initialize", params };
    post(settings, auth_headers(settings), &body)
}

/// What a server answers to `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The revision it chose.
    pub version: String,
    /// It announces changes of its tools.
    pub announces_changes: bool,
}

/// Reads the answer to `initialize`; `None` when the revision it chose is none that is spoken. 2024-11-05 is: its messages
/// are the same, and some servers name it over this transport.
pub fn decode_opened(result: &RawValue) -> Option<Opened> {
    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(rename = "protocolVersion")]
        version: String,
        #[serde(borrow)]
        capabilities: Option<&'a RawValue>,
    }
    let Members { version, capabilities } = object(result.get().as_bytes())?;
    let is_spoken = LEGACY_VERSIONS.contains(&version.as_str()) || version == "2024-11-05";
    // Capabilities of another form than expected are none, and no reason to refuse the server.
    let said: Option<Value> = capabilities.and_then(|text| serde_json::from_str(text.get()).ok());
    let announces_changes = said.is_some_and(|said| said["tools"]["listChanged"] == true);
    is_spoken.then_some(Opened { version, announces_changes })
}

/// Whether a server grants what was asked for when it acknowledges a stream of changes.
pub fn acknowledges_tools(params: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Members {
        notifications: Granted,
    }
    #[derive(Deserialize)]
    struct Granted {
        #[serde(default, rename = "toolsListChanged")]
        tools_list_changed: bool,
    }
    let said = params.and_then(|params| object::<Members>(params.get().as_bytes()));
    said.is_some_and(|said| said.notifications.tools_list_changed)
}

/// Ends the opening of a legacy dialogue.
pub fn encode_initialized(settings: &EndpointSettings, dialogue: &Dialogue) -> OutboundRequest {
    notification(settings, dialogue, "notifications/initialized", None::<()>)
}

/// Asks for a page of the tools.
pub fn encode_list(settings: &EndpointSettings, dialogue: &Dialogue, id: u64, cursor: Option<&str>) -> OutboundRequest {
    #[derive(Serialize)]
    struct Params<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        cursor: Option<&'a str>,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Meta<'a>>,
    }
    let no_capabilities = nothing();
    let params = Params { cursor, meta: meta(dialogue, &no_capabilities, None) };
    request(settings, dialogue, Request { jsonrpc: "2.0", id, method: "tools/list", params }, Vec::new())
}

/// Asks a modern server for its versions and capabilities.
pub fn encode_discover(settings: &EndpointSettings, id: u64) -> OutboundRequest {
    #[derive(Serialize)]
    struct Params<'a> {
        #[serde(rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    let no_capabilities = nothing();
    let params = Params { meta: meta(&Dialogue::Modern, &no_capabilities, None) };
    request(settings, &Dialogue::Modern, Request { jsonrpc: "2.0", id, method: "server/discover", params }, Vec::new())
}

/// Runs a tool.
pub fn encode_call(settings: &EndpointSettings, dialogue: &Dialogue, id: u64, call: &ToolCall<'_>) -> OutboundRequest {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        input_responses: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_state: Option<&'a str>,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Meta<'a>>,
    }
    let name = call.tool.provider_name.as_str();
    let params = Params {
        name,
        arguments: call.arguments.map(JsonText::raw),
        input_responses: call.input_responses,
        request_state: call.request_state,
        meta: meta(dialogue, call.capabilities, call.progress_token),
    };
    let mut headers = Vec::new();
    if *dialogue == Dialogue::Modern {
        headers.push((Cow::Borrowed("mcp-name"), header_params::encoded(name)));
        let params = call.tool.mcp.as_deref().map_or(&[][..], |mcp| &mcp.header_params);
        headers.extend(header_params::headers(params, call.arguments));
    }
    request(settings, dialogue, Request { jsonrpc: "2.0", id, method: "tools/call", params }, headers)
}

/// Tells a legacy server that a request is not wanted any more. A modern one is told by the end of its stream.
pub fn encode_cancelled(settings: &EndpointSettings, dialogue: &Dialogue, request_id: u64) -> OutboundRequest {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: u64,
        reason: &'static str,
    }
    let params = Params { request_id, reason: "not wanted any more" };
    notification(settings, dialogue, "notifications/cancelled", Some(params))
}

/// Answers what a legacy server asked on a stream: a result, or an error.
pub fn encode_response(
    settings: &EndpointSettings,
    dialogue: &Dialogue,
    id: &RawValue,
    answer: Result<&RawValue, &RawValue>,
) -> OutboundRequest {
    #[derive(Serialize)]
    struct Response<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a RawValue>,
    }
    let body = Response { jsonrpc: "2.0", id, result: answer.ok(), error: answer.err() };
    post(settings, headers_of(settings, dialogue), &body)
}

/// Asks to be told of changes: a modern server by a request, a legacy one by its GET stream.
pub fn encode_listen(settings: &EndpointSettings, dialogue: &Dialogue, id: u64) -> OutboundRequest {
    #[derive(Serialize)]
    struct Params<'a> {
        notifications: Wanted,
        #[serde(rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Wanted {
        tools_list_changed: bool,
    }
    if *dialogue != Dialogue::Modern {
        return encode_resume(settings, dialogue, None);
    }
    let no_capabilities = nothing();
    let params =
        Params { notifications: Wanted { tools_list_changed: true }, meta: meta(dialogue, &no_capabilities, None) };
    request(settings, dialogue, Request { jsonrpc: "2.0", id, method: "subscriptions/listen", params }, Vec::new())
}

/// Takes up a legacy server's stream again after the event with this id, or opens its stream of changes.
pub fn encode_resume(settings: &EndpointSettings, dialogue: &Dialogue, last_event_id: Option<&str>) -> OutboundRequest {
    let mut headers = headers_of(settings, dialogue);
    headers.retain(|(name, _)| name != "accept");
    headers.push((Cow::Borrowed("accept"), "text/event-stream".to_owned()));
    headers.extend(last_event_id.map(|id| (Cow::Borrowed("last-event-id"), id.to_owned())));
    OutboundRequest {
        method: Method::Get,
        url: settings.base_url.clone(),
        headers,
        body: Bytes::new(),
        median_signature: false,
    }
}

/// Gives a session back, where there is one: a server keeps it for as long as it is not told that nobody wants it.
pub fn encode_end_session(settings: &EndpointSettings, dialogue: &Dialogue) -> Option<OutboundRequest> {
    dialogue.session_id()?;
    Some(OutboundRequest {
        method: Method::Delete,
        url: settings.base_url.clone(),
        headers: headers_of(settings, dialogue),
        body: Bytes::new(),
        median_signature: false,
    })
}

fn request<P: Serialize>(
    settings: &EndpointSettings,
    dialogue: &Dialogue,
    body: Request<'_, P>,
    more: Vec<(Cow<'static, str>, String)>,
) -> OutboundRequest {
    let mut headers = headers_of(settings, dialogue);
    if *dialogue == Dialogue::Modern {
        headers.push((Cow::Borrowed("mcp-method"), body.method.to_owned()));
    }
    headers.extend(more);
    post(settings, headers, &body)
}

fn notification<P: Serialize>(
    settings: &EndpointSettings,
    dialogue: &Dialogue,
    method: &'static str,
    params: Option<P>,
) -> OutboundRequest {
    post(settings, headers_of(settings, dialogue), &Notification { jsonrpc: "2.0", method, params })
}

fn post(
    settings: &EndpointSettings,
    headers: Vec<(Cow<'static, str>, String)>,
    body: &impl Serialize,
) -> OutboundRequest {
    let body = serde_json::to_vec(body).expect("every member is text or JSON");
    OutboundRequest {
        method: Method::Post,
        url: settings.base_url.clone(),
        headers,
        body: Bytes::from(body),
        median_signature: false,
    }
}

fn headers_of(settings: &EndpointSettings, dialogue: &Dialogue) -> Vec<(Cow<'static, str>, String)> {
    let mut headers = auth_headers(settings);
    headers.push((Cow::Borrowed("mcp-protocol-version"), dialogue.version().to_owned()));
    headers.extend(dialogue.session_id().map(|id| (Cow::Borrowed("mcp-session-id"), id.to_owned())));
    headers
}

fn auth_headers(settings: &EndpointSettings) -> Vec<(Cow<'static, str>, String)> {
    let mut headers = Vec::with_capacity(6);
    headers.push((Cow::Borrowed("accept"), ACCEPT.to_owned()));
    match &settings.auth {
        EndpointAuth::Bearer(token) => {
            headers.push((Cow::Borrowed("authorization"), format!("Bearer {}", token.reveal())));
        }
        EndpointAuth::Header { name, value } => {
            headers.push((Cow::Owned(name.to_ascii_lowercase()), value.reveal().to_owned()));
        }
        // Credentials of other dialects are never set for this one.
        EndpointAuth::None | EndpointAuth::SigningSecret(_) | EndpointAuth::MedianKey(_) => {}
    }
    headers
}
