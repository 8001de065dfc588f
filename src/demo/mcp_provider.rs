//! A provider that speaks MCP: one address, JSON-RPC, stateless requests of the present era and `initialize` of the
//! earlier one.
//!
//! It checks its credentials and the headers of each request, and remembers what it was sent.

use super::local_server::{LocalServer, RecordedRequest, Recorder};
use super::shop::{self, ProviderTool};
use crate::dialects::mcp::{decoded_header, words};
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;

/// The revisions that are spoken.
const SUPPORTED: [&str; 2] = [words::MODERN_VERSION, words::LEGACY_VERSIONS[0]];

/// How an MCP provider behaves.
#[derive(Clone)]
pub struct McpOptions {
    /// The bearer token it wants to be shown.
    pub bearer: String,
    /// What it offers.
    pub tools: Vec<ProviderTool>,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self { bearer: "demo-mcp-token".to_owned(), tools: shop::mcp_tools() }
    }
}

struct State {
    options: McpOptions,
    recorder: Recorder,
}

/// A running MCP provider.
pub struct McpProvider {
    state: Arc<State>,
    server: LocalServer,
}

impl McpProvider {
    /// Starts it on a free port of loopback; needs a running actix `System`.
    pub fn start(options: McpOptions) -> io::Result<Self> {
        let state = Arc::new(State { options, recorder: Recorder::default() });
        let data = Data::from(Arc::clone(&state));
        let server = LocalServer::start(move |routes: &mut ServiceConfig| {
            routes.app_data(data.clone()).route("/mcp", web::post().to(receive));
        })?;
        Ok(Self { state, server })
    }

    /// Its URL, as an MCP client is given it.
    pub fn url(&self) -> String {
        format!("{}/mcp", self.server.url())
    }

    /// The token it wants to be shown.
    pub fn bearer(&self) -> &str {
        &self.state.options.bearer
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.recorder.requests()
    }

    /// Stops at once.
    pub async fn stop(&self) {
        self.server.stop().await;
    }
}

/// A refusal, as JSON-RPC and HTTP have it.
struct Refusal {
    status: StatusCode,
    code: i64,
    message: &'static str,
}

const fn refusal(status: StatusCode, code: i64, message: &'static str) -> Refusal {
    Refusal { status, code, message }
}

async fn receive(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    state.recorder.note(&request, &body);
    let expected = format!("Bearer {}", state.options.bearer);
    if request.headers().get("authorization").is_none_or(|shown| shown.as_bytes() != expected.as_bytes()) {
        return HttpResponse::Unauthorized().finish();
    }
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return HttpResponse::BadRequest().finish();
    };
    if !message.is_object() {
        return HttpResponse::BadRequest().finish();
    }
    if message.get("id").is_none() {
        return HttpResponse::Accepted().finish();
    }
    let answer = if message["params"]["_meta"].get(words::META_VERSION).is_some() {
        check(&request, &message).and_then(|()| state.answer(&message).map(complete))
    } else {
        state.answer_legacy(&message)
    };
    match answer {
        Ok(result) => HttpResponse::Ok().json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })),
        Err(Refusal { status, code, message: sentence }) => {
            let mut error = json!({ "code": code, "message": sentence });
            if code == words::UNSUPPORTED_VERSION {
                let requested = &message["params"]["_meta"][words::META_VERSION];
                error["data"] = json!({ "supported": SUPPORTED, "requested": requested });
            }
            HttpResponse::build(status).json(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }))
        }
    }
}

/// Headers and body have to say the same, in the one revision of this era, and of whom.
fn check(request: &HttpRequest, message: &Value) -> Result<(), Refusal> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = message["params"]["name"].as_str().unwrap_or_default();
    let says_the_same = header("mcp-protocol-version") == message["params"]["_meta"][words::META_VERSION]
        && header("mcp-method") == message["method"]
        && decoded_header(header("mcp-name")).is_some_and(|said| said == name);
    let meta = &message["params"]["_meta"];
    if !says_the_same {
        Err(refusal(StatusCode::BAD_REQUEST, words::HEADER_MISMATCH, "headers and body differ"))
    } else if meta[words::META_VERSION] != words::MODERN_VERSION {
        Err(refusal(StatusCode::BAD_REQUEST, words::UNSUPPORTED_VERSION, "the revision is not spoken"))
    } else if !meta[words::META_CLIENT_CAPABILITIES].is_object() {
        Err(refusal(StatusCode::BAD_REQUEST, words::INVALID_PARAMS, "the client does not say what it can do"))
    } else {
        Ok(())
    }
}

/// Results of the present era say what they are.
fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result
}

impl State {
    fn answer(&self, message: &Value) -> Result<Value, Refusal> {
        match message["method"].as_str().unwrap_or_default() {
            "server/discover" => Ok(json!({
                "supportedVersions": SUPPORTED,
                "capabilities": { "tools": {} },
                "ttlMs": 60_000, "cacheScope": "private",
            })),
            "tools/list" => {
                let tools: Vec<&Value> = self.options.tools.iter().map(|tool| &tool.declaration).collect();
                Ok(json!({ "tools": tools, "ttlMs": 60_000, "cacheScope": "private" }))
            }
            "tools/call" => self.call(&message["params"]),
            _ => Err(refusal(StatusCode::NOT_FOUND, words::METHOD_NOT_FOUND, "there is no such method")),
        }
    }

    fn answer_legacy(&self, message: &Value) -> Result<Value, Refusal> {
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => Ok(json!({
                "protocolVersion": words::LEGACY_VERSIONS[0],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "toolgate demo", "version": env!("CARGO_PKG_VERSION") },
            })),
            "ping" => Ok(json!({})),
            _ => self.answer(message),
        }
    }

    fn call(&self, params: &Value) -> Result<Value, Refusal> {
        let name = params["name"].as_str().unwrap_or_default();
        let tool = self.options.tools.iter().find(|tool| tool.text("name") == name);
        let unknown = refusal(StatusCode::BAD_REQUEST, words::INVALID_PARAMS, "there is no such tool");
        let text = |text: String| json!([{ "type": "text", "text": text }]);
        Ok(match (tool.ok_or(unknown)?.work)(&params["arguments"]) {
            Ok(result) => json!({ "content": text(result.to_string()), "structuredContent": result }),
            Err(fault) => json!({ "content": text(fault.message), "isError": true }),
        })
    }
}
