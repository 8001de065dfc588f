//! A provider that speaks dialect `agent-provider`: it tells its tools apart into reads and mutations, answers with
//! evidence, and keeps a receipt of every operation, which it does at most once.
//!
//! It reads the protocol for itself and shares no code with the gateway's dialect, so that each checks the other. It can
//! be told to fail as networks and servers do ([`Fault`]). Tests use it as well as the demo.

mod checks;
mod faults;
mod receipts;
#[cfg(test)]
mod tests;
mod wire;

use super::local_server::{RecordedRequest, Recorder};
use super::shop::{self, ProviderTool};
use crate::domain::canonical;
use crate::domain::time::Timestamp;
use checks::Refusal;
use faults::Strike;
pub use faults::{Fault, FaultPoint, What};
pub use receipts::{Effect, Receipt, ReceiptState};
use receipts::{Known, Mutation, ReceiptStore};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::{Answer, Delivery, RawServer, Site};

/// Where the manifest stands.
const DISCOVERY_PATH: &str = "/.well-known/agent-provider";

/// A POST here makes it lose its next answer to a mutation: a reader of the demo does that with curl.
const LOSE_ANSWER_PATH: &str = "/demo/lose-next-answer";

/// How an agent-provider behaves.
#[derive(Clone)]
pub struct AgentProviderOptions {
    /// What `Authorization: Bearer` must say.
    pub bearer: String,
    /// The version of its contract that it begins with.
    pub contract_version: String,
    /// The languages it declares, the first of them its own.
    pub languages: Vec<String>,
    /// How long it keeps receipts.
    pub receipt_retention: Duration,
    /// What it offers.
    pub tools: Vec<ProviderTool>,
}

impl Default for AgentProviderOptions {
    fn default() -> Self {
        Self {
            bearer: "demo-agent-provider-token".to_owned(),
            contract_version: "2026-09-01".to_owned(),
            languages: vec!["en".to_owned(), "de".to_owned()],
            receipt_retention: Duration::from_secs(7 * 24 * 60 * 60),
            tools: shop::agent_tools(),
        }
    }
}

/// Decides what goes wrong.
type FaultPlan = Arc<dyn Fn(&FaultPoint) -> Fault + Send + Sync>;

struct State {
    options: AgentProviderOptions,
    recorder: Recorder,
    manifest: Mutex<Option<String>>,
    /// Every version it ever announced, the one in force last. Calls that began under a former one are still served.
    contract_versions: Mutex<Vec<String>>,
    plan: Mutex<Option<FaultPlan>>,
    /// The next answer to a mutation is lost.
    loses_answer: AtomicBool,
    requests_seen: Mutex<HashMap<(What, Option<String>), u32>>,
    store: Mutex<ReceiptStore>,
    /// How far its clock is ahead.
    ahead: Mutex<Duration>,
}

/// A running agent-provider.
pub struct AgentProvider {
    state: Arc<State>,
    address: SocketAddr,
    url: String,
    server: Mutex<Option<RawServer>>,
}

impl AgentProvider {
    /// Starts it on a free port of loopback; needs a running tokio runtime, such as an actix `System`.
    pub fn start(options: AgentProviderOptions) -> io::Result<Self> {
        let state = Arc::new(State {
            contract_versions: Mutex::new(vec![options.contract_version.clone()]),
            options,
            recorder: Recorder::default(),
            manifest: Mutex::default(),
            plan: Mutex::default(),
            loses_answer: AtomicBool::default(),
            requests_seen: Mutex::default(),
            store: Mutex::default(),
            ahead: Mutex::default(),
        });
        let server = RawServer::start((Ipv4Addr::LOCALHOST, 0).into(), Arc::clone(&state))?;
        let address = server.address();
        Ok(Self { state, address, url: format!("http://{address}"), server: Mutex::new(Some(server)) })
    }

    /// Its origin.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What `Authorization: Bearer` must say.
    pub fn bearer(&self) -> &str {
        &self.state.options.bearer
    }

    /// Announces another version of its contract. Calls under a former one are still served: they may be on their way.
    pub fn set_contract_version(&self, version: impl Into<String>) {
        let version = version.into();
        let mut versions = lock(&self.state.contract_versions);
        versions.retain(|known| *known != version);
        versions.push(version);
    }

    /// Answers discovery with this body from now on; `None` answers with the tools again.
    pub fn set_manifest(&self, body: Option<String>) {
        *lock(&self.state.manifest) = body;
    }

    /// Lets this decide what goes wrong from now on.
    pub fn set_fault_plan(&self, plan: impl Fn(&FaultPoint) -> Fault + Send + Sync + 'static) {
        *lock(&self.state.plan) = Some(Arc::new(plan));
    }

    /// Nothing goes wrong any more.
    pub fn clear_fault_plan(&self) {
        *lock(&self.state.plan) = None;
    }

    /// Sets its clock forward, so that receipts expire.
    pub fn advance(&self, by: Duration) {
        *lock(&self.state.ahead) += by;
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.recorder.requests()
    }

    /// How often this operation had its effect: 0 or 1.
    pub fn effects(&self, operation_id: &str) -> u32 {
        let store = lock(&self.state.store);
        let of_it = store.effects().iter().filter(|effect| effect.operation_id == operation_id);
        u32::try_from(of_it.count()).unwrap_or(u32::MAX)
    }

    /// How many effects there were in all.
    pub fn effects_total(&self) -> usize {
        lock(&self.state.store).effects().len()
    }

    /// Everything that was done, oldest first, with its arguments: one wish under two operation ids shows here.
    pub fn effects_log(&self) -> Vec<Effect> {
        lock(&self.state.store).effects().to_vec()
    }

    /// Every receipt, oldest first.
    pub fn receipts(&self) -> Vec<Receipt> {
        lock(&self.state.store).receipts()
    }

    /// Stops at once: connections end without an answer, and new ones are refused.
    pub async fn stop(&self) {
        let server = lock(&self.server).take();
        if let Some(server) = server {
            server.stop().await;
        }
    }

    /// Serves again after a [`AgentProvider::stop`], at the same address and with everything it knew.
    pub fn restart(&self) -> io::Result<()> {
        let mut server = lock(&self.server);
        if server.is_none() {
            *server = Some(RawServer::start(self.address, Arc::clone(&self.state))?);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The envelope of an answer; what the work left out has its usual value.
fn envelope(contract_version: &str, status: &str, of_work: &Value) -> Value {
    let mut envelope = json!({
        "contract_version": contract_version,
        "status": of_work["status"].as_str().unwrap_or(status),
        "evidence": of_work["evidence"].as_array().cloned().unwrap_or_default(),
    });
    if let Some(text) = of_work["text"].as_str() {
        envelope["text"] = json!(text);
    }
    envelope
}

/// What a request asks for.
#[derive(Clone, Copy)]
enum Route<'a> {
    Discovery,
    Call { tool: &'a str },
    Receipt { operation_id: &'a str },
}

impl<'a> Route<'a> {
    fn of(request: &'a RecordedRequest) -> Option<Self> {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", DISCOVERY_PATH) => Some(Route::Discovery),
            ("POST", path) => path.strip_prefix("/tools/").map(|tool| Route::Call { tool }),
            ("GET", path) => path.strip_prefix("/receipts/").map(|operation_id| Route::Receipt { operation_id }),
            _ => None,
        }
    }
}

impl Site for State {
    async fn answer(&self, request: RecordedRequest) -> Delivery {
        self.recorder.remember(request.clone());
        if (request.method.as_str(), request.path.as_str()) == ("POST", LOSE_ANSWER_PATH) {
            self.loses_answer.store(true, Ordering::Relaxed);
            return Delivery::Whole(Answer::json(200, json!({ "loses": "the next answer to a mutation" }).to_string()));
        }
        let Some(route) = Route::of(&request) else {
            return Delivery::Whole(refused(&Refusal::new(404, "not_found", "there is nothing here")));
        };
        let fault = self.fault(&self.fault_point(route, &request));
        match fault.strike() {
            Strike::Instead { pause, delivery } => {
                tokio::time::sleep(pause).await;
                return delivery;
            }
            Strike::Afterwards { pause } if !pause.is_zero() => tokio::time::sleep(pause).await,
            Strike::Afterwards { .. } => {}
        }
        let answer = match route {
            Route::Discovery => self.discovery(&request),
            Route::Call { tool } => self.call(tool, &request),
            Route::Receipt { operation_id } => self.receipt(operation_id, &request),
        };
        let (pause, delivery) = fault.deliver(answer.unwrap_or_else(|refusal| refused(&refusal)));
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        delivery
    }
}

fn refused(refusal: &Refusal) -> Answer {
    let error = json!({ "error": { "code": refusal.code, "message": refusal.message } });
    Answer::json(refusal.status, error.to_string())
}

impl State {
    fn fault_point(&self, route: Route<'_>, request: &RecordedRequest) -> FaultPoint {
        let (what, operation_id) = match route {
            Route::Discovery => (What::Discovery, None),
            Route::Call { .. } => (What::Call, request.header("operation-id")),
            Route::Receipt { operation_id } => (What::Receipt, Some(operation_id)),
        };
        let operation_id = operation_id.map(str::to_owned);
        let mut seen = lock(&self.requests_seen);
        let nth = seen.entry((what, operation_id.clone())).or_default();
        *nth += 1;
        FaultPoint { what, operation_id, nth: *nth }
    }

    fn fault(&self, point: &FaultPoint) -> Fault {
        let is_mutation = point.what == What::Call && point.operation_id.is_some();
        if is_mutation && self.loses_answer.swap(false, Ordering::Relaxed) {
            return Fault::ResetAfter;
        }
        let plan = lock(&self.plan).clone();
        plan.map(|plan| plan(point)).unwrap_or_default()
    }

    fn now(&self) -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + *lock(&self.ahead);
        Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
    }

    fn discovery(&self, request: &RecordedRequest) -> Result<Answer, Refusal> {
        checks::bearer(request, &self.options.bearer)?;
        let replaced = lock(&self.manifest).clone();
        let body = replaced.unwrap_or_else(|| self.manifest().to_string());
        let etag = format!("\"{}\"", canonical::sha256_hex(&Value::String(body.clone())));
        let known = request.header("if-none-match").unwrap_or_default();
        let is_known = known.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag);
        let (status, body) = if is_known { (304, String::new()) } else { (200, body) };
        Ok(Answer { headers: vec![("etag", etag)], ..Answer::json(status, body) })
    }

    fn manifest(&self) -> Value {
        let tools: Vec<&Value> = self.options.tools.iter().map(|tool| &tool.declaration).collect();
        json!({
            "protocol_version": "1",
            "contract_version": lock(&self.contract_versions).last(),
            "capabilities": ["read", "mutate"],
            "languages": self.options.languages,
            "receipt_retention_seconds": self.options.receipt_retention.as_secs(),
            "tools": tools,
        })
    }

    /// What every request but discovery shows: the token, a version that was announced, and the trace.
    fn common<'a>(&self, request: &'a RecordedRequest) -> Result<&'a str, Refusal> {
        checks::bearer(request, &self.options.bearer)?;
        checks::trace_id(request)?;
        let version = checks::required(request, "contract-version")?;
        if lock(&self.contract_versions).iter().any(|known| known == version) {
            Ok(version)
        } else {
            Err(Refusal::new(400, "unknown_contract_version", "this version of the contract was never announced"))
        }
    }

    fn call(&self, name: &str, request: &RecordedRequest) -> Result<Answer, Refusal> {
        let contract_version = self.common(request)?;
        let tool = self.options.tools.iter().find(|tool| tool.text("name") == name);
        let tool = tool.ok_or_else(|| Refusal::new(404, "unknown_tool", "there is no such tool"))?;
        let body = checks::call_body(request)?;
        if tool.declaration["mutating"] != json!(true) {
            if let Some(header) = ["operation-id", "request-fingerprint"].iter().find(|h| request.header(h).is_some()) {
                return Err(Refusal::bad(format!("{header} does not belong to a read")));
            }
            let envelope = match (tool.work)(&body.arguments) {
                Ok(result) => envelope(contract_version, "ok", &result),
                Err(fault) => envelope(contract_version, "rejected", &json!({ "text": fault.message })),
            };
            return Ok(Answer::json(200, envelope.to_string()));
        }
        let operation_id = checks::required(request, "operation-id")?;
        checks::operation_id(operation_id)?;
        let fingerprint = checks::required(request, "request-fingerprint")?;
        checks::fingerprint_form(fingerprint)?;
        if fingerprint != body.fingerprint(name, contract_version) {
            return Err(Refusal::new(400, "wrong_fingerprint", "request-fingerprint does not belong to this call"));
        }
        let mutation = Mutation {
            operation_id,
            fingerprint,
            contract_version,
            tool: name,
            action: tool.text("action"),
            arguments: &body.arguments,
        };
        self.operate(&mutation, tool)
    }

    /// Looks up and performs under one lock: two requests of one operation have one effect.
    fn operate(&self, mutation: &Mutation<'_>, tool: &ProviderTool) -> Result<Answer, Refusal> {
        let now = self.now();
        let mut store = lock(&self.store);
        let known = match store.look_up(mutation.operation_id, mutation.fingerprint, now) {
            Known::Nothing => None,
            Known::Receipt(receipt) => Some(receipt.response.clone()),
            Known::Conflict => return Err(conflict()),
            Known::Gone => return Err(gone()),
        };
        let retention = self.options.receipt_retention;
        let envelope = match known {
            Some(envelope) => envelope,
            None => store.perform(mutation, |arguments| (tool.work)(arguments), now, retention),
        };
        Ok(Answer::json(200, envelope.to_string()))
    }

    fn receipt(&self, operation_id: &str, request: &RecordedRequest) -> Result<Answer, Refusal> {
        self.common(request)?;
        checks::operation_id(operation_id)?;
        let fingerprint = checks::required(request, "request-fingerprint")?;
        checks::fingerprint_form(fingerprint)?;
        match lock(&self.store).look_up(operation_id, fingerprint, self.now()) {
            Known::Nothing => Err(Refusal::new(404, "unknown_operation", "this operation never arrived")),
            Known::Receipt(receipt) => Ok(Answer::json(200, receipt.to_json().to_string())),
            Known::Conflict => Err(conflict()),
            Known::Gone => Err(gone()),
        }
    }
}

fn conflict() -> Refusal {
    Refusal::new(409, "operation_conflict", "this operation id belongs to another request")
}

fn gone() -> Refusal {
    Refusal::new(410, "receipt_expired", "the receipt of this operation has expired")
}
