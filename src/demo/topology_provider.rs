//! A provider that speaks dialect `topology`: automations behind `/mcp/manifest.json` and `/mcp/run`, and a response
//! node that delivers the result of a query to the callback address, signed.
//!
//! It checks what it is sent as a careful provider would, and remembers it. Tests use it as well as the demo.

use super::local_server::{LocalServer, RecordedRequest, Recorder};
use super::shop::{self, ProviderTool};
use crate::adapters::transport::{SimpleClient, SimpleMethod};
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::engine::dispatch::signing;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// How often a callback is tried that the gateway did not take.
const DELIVERY_ATTEMPTS: u32 = 5;

/// Pause before the second attempt; it doubles.
const DELIVERY_PAUSE: Duration = Duration::from_millis(200);

/// How a topology provider behaves.
#[derive(Clone)]
pub struct TopologyOptions {
    /// What `X-Auth` must say.
    pub auth_value: String,
    /// What it offers.
    pub tools: Vec<ProviderTool>,
    /// Before it answers a manifest request.
    pub manifest_delay: Duration,
    /// Before it acknowledges a run.
    pub answer_delay: Duration,
    /// Between the acknowledgement of a query and its callback.
    pub callback_delay: Duration,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self {
            auth_value: "demo-topology-secret".to_owned(),
            tools: shop::topology_tools(),
            manifest_delay: Duration::ZERO,
            answer_delay: Duration::ZERO,
            callback_delay: Duration::from_millis(300),
        }
    }
}

/// What a manifest request is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ManifestMode {
    /// The tools.
    #[default]
    Good,
    /// The tools, but the last one declares a type that JSON Schema does not know.
    Broken,
    /// Exactly this.
    Exactly {
        /// HTTP status.
        status: u16,
        /// Body.
        body: String,
    },
}

/// One attempt to deliver a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The body that was sent.
    pub body: String,
    /// The gateway's HTTP status; `None` when there was no answer.
    pub status: Option<u16>,
}

struct State {
    options: TopologyOptions,
    recorder: Recorder,
    client: SimpleClient,
    manifest: Mutex<ManifestMode>,
    callback_secret: Mutex<Option<Secret>>,
    deliveries: Mutex<Vec<Delivery>>,
}

/// A running topology provider.
pub struct TopologyProvider {
    state: Arc<State>,
    server: LocalServer,
}

impl TopologyProvider {
    /// Starts it on a free port of loopback; needs a running actix `System`.
    pub fn start(options: TopologyOptions) -> io::Result<Self> {
        let client = SimpleClient::new(None, Duration::from_secs(10)).map_err(io::Error::other)?;
        let state = Arc::new(State {
            options,
            recorder: Recorder::default(),
            client,
            manifest: Mutex::default(),
            callback_secret: Mutex::default(),
            deliveries: Mutex::default(),
        });
        let data = Data::from(Arc::clone(&state));
        let server = LocalServer::start(move |routes: &mut ServiceConfig| {
            routes
                .app_data(data.clone())
                .route("/mcp/manifest.json", web::get().to(manifest))
                .route("/mcp/run", web::post().to(run))
                .route("/demo/manifest", web::post().to(switch_manifest));
        })?;
        Ok(Self { state, server })
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// What `X-Auth` must say.
    pub fn auth_value(&self) -> &str {
        &self.state.options.auth_value
    }

    /// Gives the response node the secret it signs callbacks with. Without one it delivers nothing.
    pub fn set_callback_secret(&self, secret: Secret) {
        *lock(&self.state.callback_secret) = Some(secret);
    }

    /// Changes what manifest requests are answered from now on.
    pub fn set_manifest(&self, mode: ManifestMode) {
        *lock(&self.state.manifest) = mode;
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.recorder.requests()
    }

    /// The callbacks its response node has sent so far.
    pub fn deliveries(&self) -> Vec<Delivery> {
        lock(&self.state.deliveries).clone()
    }

    /// Stops at once.
    pub async fn stop(&self) {
        self.server.stop().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn manifest(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    state.recorder.note(&request, &body);
    if !state.admits(&request) {
        return refusal(StatusCode::UNAUTHORIZED, "X-Auth does not hold this provider's secret");
    }
    tokio::time::sleep(state.options.manifest_delay).await;
    let mut items: Vec<Value> = state.options.tools.iter().map(|tool| tool.declaration.clone()).collect();
    let mode = lock(&state.manifest).clone();
    match mode {
        ManifestMode::Good => {}
        ManifestMode::Broken => {
            if let Some(item) = items.last_mut() {
                item["input_schema"] = json!({ "type": "object", "properties": { "days": { "type": "int" } } });
            }
        }
        ManifestMode::Exactly { status, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return HttpResponse::build(status).content_type("application/json").body(body);
        }
    }
    HttpResponse::Ok().json(items)
}

/// Lets a reader of the demo break and mend the manifest with curl.
async fn switch_manifest(state: Data<State>, body: web::Json<Value>) -> HttpResponse {
    let mode = match body["manifest"].as_str() {
        Some("good") => ManifestMode::Good,
        Some("broken") => ManifestMode::Broken,
        _ => return refusal(StatusCode::BAD_REQUEST, "send {\"manifest\":\"good\"} or {\"manifest\":\"broken\"}"),
    };
    *lock(&state.manifest) = mode;
    HttpResponse::Ok().json(&*body)
}

#[derive(Deserialize)]
struct RunBody {
    tool: String,
    args: Value,
    request_id: String,
}

async fn run(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    state.recorder.note(&request, &body);
    if !state.admits(&request) {
        return refusal(StatusCode::UNAUTHORIZED, "X-Auth does not hold this provider's secret");
    }
    let Ok(call) = serde_json::from_slice::<RunBody>(&body) else {
        return refusal(StatusCode::BAD_REQUEST, "the body must have tool, args and request_id");
    };
    let Some(tool) = state.options.tools.iter().find(|tool| tool.text("id") == call.tool).cloned() else {
        return refusal(StatusCode::NOT_FOUND, "there is no such topology");
    };
    tokio::time::sleep(state.options.answer_delay).await;
    let correlation_id = Uuid::now_v7().to_string();
    let mut acknowledgement = json!({
        "tool": call.tool,
        "topology": call.tool.trim_start_matches("topology:"),
        "kind": tool.text("kind"),
        "correlation_id": correlation_id,
        "request_id": call.request_id,
        "started": true,
        "status": "started",
    });
    if tool.text("kind") == "command" {
        if let Err(fault) = (tool.work)(&call.args) {
            acknowledgement["started"] = json!(false);
            acknowledgement["status"] = json!("failed");
            acknowledgement["error"] = fault.to_json();
        }
        return HttpResponse::Ok().json(acknowledgement);
    }
    let Some(callback_url) = header(&request, "x-callback-url").map(str::to_owned) else {
        return refusal(StatusCode::BAD_REQUEST, "a query needs X-Callback-Url: its result is delivered there");
    };
    acknowledgement["status"] = json!("pending");
    actix_web::rt::spawn(respond(state, tool, call, correlation_id, callback_url));
    HttpResponse::Accepted().json(acknowledgement)
}

/// The response node: does the work, then delivers its result until the gateway takes it.
async fn respond(state: Data<State>, tool: ProviderTool, call: RunBody, correlation_id: String, callback_url: String) {
    tokio::time::sleep(state.options.callback_delay).await;
    let mut data = json!({ "correlation_id": correlation_id, "request_id": call.request_id });
    match (tool.work)(&call.args) {
        Ok(payload) => {
            data["status"] = json!("completed");
            data["payload"] = payload;
        }
        Err(fault) => {
            data["status"] = json!("failed");
            data["error"] = fault.to_json();
        }
    }
    let body = json!({ "type": "tool.result", "timestamp": now().to_string(), "data": data }).to_string();
    let webhook_id = format!("msg_{}", Uuid::now_v7().simple());
    let mut pause = DELIVERY_PAUSE;
    for _ in 0..DELIVERY_ATTEMPTS {
        let Some(secret) = lock(&state.callback_secret).clone() else { return };
        let status = deliver(&state.client, &callback_url, &secret, &webhook_id, &body).await;
        lock(&state.deliveries).push(Delivery { body: body.clone(), status });
        match status {
            Some(429 | 500..) | None => tokio::time::sleep(pause).await,
            Some(_) => return,
        }
        pause *= 2;
    }
}

async fn deliver(client: &SimpleClient, url: &str, secret: &Secret, webhook_id: &str, body: &str) -> Option<u16> {
    let timestamp = now().as_seconds();
    let signature = signing::sign(secret, webhook_id, timestamp, body.as_bytes()).ok()?;
    let headers = [
        ("webhook-id".to_owned(), webhook_id.to_owned()),
        ("webhook-timestamp".to_owned(), timestamp.to_string()),
        ("webhook-signature".to_owned(), signature),
    ];
    let body = Some(Bytes::copy_from_slice(body.as_bytes()));
    client.call(SimpleMethod::Post, url, &headers, body).await.ok().map(|answer| answer.status)
}

impl State {
    fn admits(&self, request: &HttpRequest) -> bool {
        let shown = header(request, "x-auth").unwrap_or_default();
        shown.as_bytes().ct_eq(self.options.auth_value.as_bytes()).into()
    }
}

fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name).and_then(|value| value.to_str().ok())
}

fn refusal(status: StatusCode, message: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({ "message": message }))
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
