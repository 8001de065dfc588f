//! A provider that speaks dialect `median`: one address, a signed GET for the manifest, a signed POST for everything
//! else, answered in the same exchange.
//!
//! It checks every signature and approval, and remembers what it was sent. Tests use it as well as the demo.

use super::local_server::{LocalServer, RecordedRequest, Recorder};
use super::shop::{self, ProviderTool, WorkFault};
use crate::domain::endpoint::EndpointAuth;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::engine::dispatch::signing::{MedianSecret, median_secret, median_signature};
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// How old a signature may be, or how far ahead.
const TOLERANCE_MS: u64 = 5 * 60 * 1000;

/// How a median provider behaves.
#[derive(Clone)]
pub struct MedianOptions {
    /// The secret that requests are signed with.
    pub signing_secret: String,
    /// What it offers.
    pub tools: Vec<ProviderTool>,
    /// Before it answers anything.
    pub answer_delay: Duration,
}

impl Default for MedianOptions {
    fn default() -> Self {
        Self {
            signing_secret: "demo-median-secret".to_owned(),
            tools: shop::median_tools(),
            answer_delay: Duration::ZERO,
        }
    }
}

struct State {
    options: MedianOptions,
    secret: MedianSecret,
    recorder: Recorder,
    manifest: Mutex<Option<String>>,
}

/// A running median provider.
pub struct MedianProvider {
    state: Arc<State>,
    server: LocalServer,
}

impl MedianProvider {
    /// Starts it on a free port of loopback; needs a running actix `System`.
    pub fn start(options: MedianOptions) -> io::Result<Self> {
        let auth = EndpointAuth::SigningSecret(Secret::new(options.signing_secret.clone()));
        let secret = median_secret(&auth).expect("a signing secret is Median's own kind of credential");
        let state = Arc::new(State { options, secret, recorder: Recorder::default(), manifest: Mutex::default() });
        let data = Data::from(Arc::clone(&state));
        let server = LocalServer::start(move |routes: &mut ServiceConfig| {
            routes.app_data(data.clone()).route("/", web::get().to(manifest)).route("/", web::post().to(operate));
        })?;
        Ok(Self { state, server })
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// The secret that requests must be signed with.
    pub fn signing_secret(&self) -> &str {
        &self.state.options.signing_secret
    }

    /// Answers manifest requests with this body from now on; `None` answers with the tools again.
    pub fn set_manifest(&self, body: Option<String>) {
        *self.state.manifest.lock().unwrap_or_else(PoisonError::into_inner) = body;
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

async fn manifest(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    state.recorder.note(&request, &body);
    tokio::time::sleep(state.options.answer_delay).await;
    if !state.verifies(&request, &body) {
        return bad_signature();
    }
    let replaced = state.manifest.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(body) = replaced {
        return HttpResponse::Ok().content_type("application/json").body(body);
    }
    let tools: Vec<&Value> = state.options.tools.iter().map(|tool| &tool.declaration).collect();
    HttpResponse::Ok().json(json!({ "version": 1, "tools": tools, "diagnostics": true }))
}

async fn operate(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    state.recorder.note(&request, &body);
    tokio::time::sleep(state.options.answer_delay).await;
    if !state.verifies(&request, &body) {
        return bad_signature();
    }
    let operation: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = match (operation["version"].as_u64(), operation["op"].as_str()) {
        (Some(1), Some("call")) => match state.call(&operation) {
            Ok(result) => json!({ "result": result }),
            Err(fault) => json!({ "error": fault.to_json() }),
        },
        (Some(1), Some("diagnostics")) => {
            let calls = state.recorder.requests().iter().filter(|request| request.json()["op"] == "call").count();
            json!({ "diagnostics": { "provider": "toolgate demo", "calls": calls } })
        }
        _ => json!({ "error": { "code": "unsupported", "message": "op or version is not known here" } }),
    };
    HttpResponse::Ok().json(answer)
}

impl State {
    fn call(&self, operation: &Value) -> Result<Value, WorkFault> {
        let name = operation["tool"].as_str().unwrap_or_default();
        let tool = self.options.tools.iter().find(|tool| tool.text("name") == name);
        let tool = tool.ok_or_else(|| WorkFault::new("unknown_tool", "there is no such tool"))?;
        let approval = operation["context"]["approval"]["kind"].as_str().unwrap_or_default();
        let approved = matches!(approval, "reviewer" | "teammate");
        if matches!(tool.text("risk"), "reviewed" | "high") && !approved {
            return Err(WorkFault::new("approval_required", "this tool runs with a person's approval only"));
        }
        (tool.work)(&operation["input"])
    }

    /// Whether `median-signature` is over exactly this body, and recent.
    fn verifies(&self, request: &HttpRequest, body: &Bytes) -> bool {
        let shown = request.headers().get("median-signature").and_then(|value| value.to_str().ok());
        let Some(shown) = shown else { return false };
        let time = shown.strip_prefix("t=").and_then(|rest| rest.split_once(',')).map(|(time, _)| time.parse::<i64>());
        let Some(Ok(signed_at)) = time else { return false };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let expected = median_signature(&self.secret, Timestamp::from_millis(signed_at), body);
        let is_recent = i64::try_from(now).is_ok_and(|now| now.abs_diff(signed_at) <= TOLERANCE_MS);
        is_recent && expected.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

fn bad_signature() -> HttpResponse {
    let error = json!({ "error": { "code": "bad_signature", "message": "median-signature does not verify" } });
    HttpResponse::Unauthorized().json(error)
}
