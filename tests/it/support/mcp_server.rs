//! An MCP server of the tests' own making: plain HTTP/1.1, of either era, strict about what it is sent, every byte that
//! comes in kept, and any answer replaced by whatever a test wants.

use super::provider::{Port, Received, Reply, Step, lock};
use super::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

const LEGACY_VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// The token the servers of these tests are registered with.
pub(crate) const MCP_TOKEN: &str = "mcp-token-51c8";

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Stateless: each request stands for itself.
    Modern,
    /// Opened with `initialize`, in sessions.
    Legacy,
    /// Opened with `initialize`, without sessions.
    LegacyWithoutSessions,
}

/// The server's own handle on its announcements, and the one of whoever answers requests; any other is a listener's.
const OWN_HANDLES: usize = 2;

/// How a test has a request answered.
pub(crate) type Answering = fn(&Received) -> Reply;

/// The same, for one request.
pub(crate) type Once = Box<dyn FnOnce(&Received) -> Reply + Send>;
type Always = Arc<dyn Fn(&Received) -> Reply + Send + Sync>;

struct State {
    era: Era,
    /// How a legacy server answers what is asked in the modern era; as it answers anything else, when not set.
    refusal: Option<Always>,
    /// Calls that were run.
    executed: usize,
    /// It says that it announces changes.
    announces: bool,
    tools: Vec<Value>,
    page_size: usize,
    /// Sessions that are alive, and whether each is initialized.
    sessions: HashMap<String, bool>,
    script: HashMap<String, VecDeque<Once>>,
    always: HashMap<String, Always>,
    received: Vec<Received>,
}

/// A server that listens on a port of its own until it is dropped.
pub(crate) struct McpServer {
    state: Arc<Mutex<State>>,
    announcements: Arc<Mutex<VecDeque<Vec<u8>>>>,
    port: Port,
}

impl McpServer {
    /// A server that offers these tools. Unless told otherwise it answers every call with the text `done`.
    pub(crate) fn start(era: Era, tools: &[Value]) -> Self {
        let state = Arc::new(Mutex::new(State {
            era,
            refusal: None,
            executed: 0,
            announces: false,
            tools: tools.to_vec(),
            page_size: usize::MAX,
            sessions: HashMap::new(),
            script: HashMap::new(),
            always: HashMap::new(),
            received: Vec::new(),
        }));
        let announcements = Arc::default();
        let port = Port::open({
            let (state, announcements) = (Arc::clone(&state), Arc::clone(&announcements));
            move |request| handle(&state, &announcements, request)
        });
        Self { state, announcements, port }
    }

    pub(crate) fn modern(tools: &[Value]) -> Self {
        Self::start(Era::Modern, tools)
    }

    pub(crate) fn legacy(tools: &[Value]) -> Self {
        Self::start(Era::Legacy, tools)
    }

    /// The same server, saying that it announces changes.
    pub(crate) fn announcing(self) -> Self {
        lock(&self.state).announces = true;
        self
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.port.address)
    }

    pub(crate) fn registration(&self, name: &str) -> Value {
        json!({ "name": name, "dialect": "mcp", "base_url": self.url(), "auth": { "bearer": MCP_TOKEN } })
    }

    /// Registers this server under this name, with further members of the request.
    #[track_caller]
    pub(crate) fn register(&self, tenant: &Tenant, name: &str, extra: &Value) -> Registered {
        let mut body = self.registration(name);
        for (member, value) in extra.as_object().expect("an object") {
            body[member] = value.clone();
        }
        let body = tenant.post("/v1/endpoints", &body).expect(201).json();
        Registered { id: body["id"].as_str().expect("an id").to_owned(), body }
    }

    /// Speaks this from now on; every session is forgotten.
    pub(crate) fn speak(&self, era: Era) {
        let mut state = lock(&self.state);
        state.era = era;
        state.sessions.clear();
    }

    /// Answers what is asked in the modern era so.
    pub(crate) fn refuse(&self, answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        lock(&self.state).refusal = Some(Arc::new(answer));
    }

    /// Offers these tools from now on.
    pub(crate) fn offer(&self, tools: &[Value]) {
        lock(&self.state).tools = tools.to_vec();
    }

    /// Lists so many tools on a page from now on.
    pub(crate) fn page(&self, size: usize) {
        lock(&self.state).page_size = size;
    }

    /// Knows none of its sessions any more.
    pub(crate) fn forget_sessions(&self) {
        lock(&self.state).sessions.clear();
    }

    /// How many sessions it keeps.
    pub(crate) fn sessions(&self) -> usize {
        lock(&self.state).sessions.len()
    }

    /// Answers the next request of this method so (`GET` for a stream); answers queue up.
    pub(crate) fn next(&self, method: &str, answer: impl FnOnce(&Received) -> Reply + Send + 'static) {
        lock(&self.state).script.entry(method.to_owned()).or_default().push_back(Box::new(answer));
    }

    /// Answers every request of this method so from now on.
    pub(crate) fn always(&self, method: &str, answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        lock(&self.state).always.insert(method.to_owned(), Arc::new(answer));
    }

    /// Answers requests of this method as usual again.
    pub(crate) fn as_usual(&self, method: &str) {
        lock(&self.state).always.remove(method);
    }

    /// Tells whoever listens that the tools have changed.
    pub(crate) fn announce(&self) {
        lock(&self.announcements).push_back(bytes_of(&list_changed()));
    }

    /// How many listen for announcements now.
    pub(crate) fn listeners(&self) -> usize {
        Arc::strong_count(&self.announcements) - OWN_HANDLES
    }

    /// Everything that was sent, in order.
    pub(crate) fn all(&self) -> Vec<Received> {
        lock(&self.state).received.clone()
    }

    /// Requests of this method so far (`GET` for streams).
    pub(crate) fn requests(&self, method: &str) -> Vec<Received> {
        self.all().into_iter().filter(|request| method_of(request) == method).collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.requests(method).len()
    }

    pub(crate) fn calls(&self) -> Vec<Received> {
        self.requests("tools/call")
    }

    /// How many calls were run, of those that were not answered by a script.
    pub(crate) fn executed(&self) -> usize {
        lock(&self.state).executed
    }

    #[track_caller]
    pub(crate) fn last_call(&self) -> Received {
        self.calls().pop().expect("the server was called")
    }

    pub(crate) fn go_down(&self) {
        self.port.go_down();
    }

    pub(crate) fn come_back(&self) {
        self.port.come_back();
    }
}

/// The JSON-RPC method of a request; of one without a body, the HTTP method; `response` of an answer to the server.
pub(crate) fn method_of(request: &Received) -> String {
    if request.body.is_empty() {
        return request.method.clone();
    }
    request.json()["method"].as_str().unwrap_or("response").to_owned()
}

/// A tool without arguments.
pub(crate) fn tool(name: &str) -> Value {
    tool_with(name, &json!({ "type": "object" }))
}

pub(crate) fn tool_with(name: &str, input_schema: &Value) -> Value {
    json!({ "name": name, "description": format!("Does what {name} says"), "inputSchema": input_schema })
}

/// A tool that says that it only reads.
pub(crate) fn read(name: &str) -> Value {
    let mut item = tool(name);
    item["annotations"] = json!({ "readOnlyHint": true });
    item
}

/// The response to this request.
pub(crate) fn response(request: &Received, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result })
}

/// Answers with this result.
pub(crate) fn answer(request: &Received, result: &Value) -> Reply {
    Reply::json(200, &response(request, result))
}

/// Answers with this result, exactly as it is written.
pub(crate) fn answer_text(request: &Received, result: &str) -> Reply {
    Reply::text(200, &format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", request.json()["id"]))
}

/// A JSON-RPC error in answer to this request.
pub(crate) fn failure(request: &Received, status: u16, code: i64, message: &str) -> Reply {
    let error = json!({ "code": code, "message": message });
    Reply::json(status, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
}

/// A JSON-RPC error that names no request.
pub(crate) fn failure_without_id(status: u16, code: i64, message: &str) -> Reply {
    Reply::json(status, &json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } }))
}

/// The refusal of a version, naming those that are spoken.
pub(crate) fn other_versions(request: &Received, supported: &[&str]) -> Reply {
    let data = json!({ "supported": supported, "requested": request.header("mcp-protocol-version") });
    let error = json!({ "code": -32022, "message": "Unsupported protocol version", "data": data });
    Reply::json(400, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
}

/// The result of a call that says this.
pub(crate) fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "resultType": "complete" })
}

/// An event stream of these steps.
pub(crate) fn stream(steps: Vec<Step>) -> Reply {
    Reply::Stream(Vec::new(), steps)
}

/// A message on a stream.
pub(crate) fn event(message: &Value) -> Step {
    Step::Say(bytes_of(message))
}

/// A message on a stream that can be taken up after it.
pub(crate) fn event_with_id(id: &str, message: &Value) -> Step {
    Step::Say(format!("id: {id}\ndata: {message}\n\n").into_bytes())
}

fn bytes_of(message: &Value) -> Vec<u8> {
    format!("event: message\ndata: {message}\n\n").into_bytes()
}

pub(crate) fn list_changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

fn handle(state: &Mutex<State>, announcements: &Arc<Mutex<VecDeque<Vec<u8>>>>, request: Received) -> Reply {
    let method = method_of(&request);
    let (scripted, always) = {
        let mut state = lock(state);
        state.received.push(request.clone());
        let scripted = state.script.get_mut(&method).and_then(VecDeque::pop_front);
        (scripted, state.always.get(&method).cloned())
    };
    match (scripted, always) {
        (Some(scripted), _) => scripted(&request),
        (None, Some(always)) => always(&request),
        (None, None) => usual(&mut lock(state), announcements, &request, &method),
    }
}

fn usual(state: &mut State, announcements: &Arc<Mutex<VecDeque<Vec<u8>>>>, request: &Received, method: &str) -> Reply {
    let refused = match state.era {
        Era::Modern => modern_refusal(request, method),
        Era::Legacy | Era::LegacyWithoutSessions => legacy_refusal(state, request, method),
    };
    if let Some(refused) = refused {
        return refused;
    }
    match method {
        "initialize" => initialize(state, request),
        "notifications/initialized" => {
            let session = request.header("mcp-session-id").unwrap_or_default();
            state.sessions.insert(session.to_owned(), true);
            accepted()
        }
        "tools/list" => answer(request, &page(state, request)),
        "tools/call" => {
            state.executed += 1;
            answer(request, &said("done"))
        }
        "DELETE" => {
            state.sessions.remove(request.header("mcp-session-id").unwrap_or_default());
            Reply::text(200, "")
        }
        "GET" if state.announces => stream(vec![Step::Relay(Arc::clone(announcements))]),
        "GET" => Reply::text(405, ""),
        "subscriptions/listen" if state.announces => {
            let params = json!({ "notifications": { "toolsListChanged": true } });
            let told =
                json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params });
            stream(vec![event(&told), Step::Relay(Arc::clone(announcements))])
        }
        other if other.starts_with("notifications/") || other == "response" => accepted(),
        _ => failure(request, 404, -32601, "Method not found"),
    }
}

fn accepted() -> Reply {
    Reply::Http { status: 202, headers: Vec::new(), body: Vec::new() }
}

/// What a modern server refuses: other versions, and requests whose headers do not say what their bodies say.
fn modern_refusal(request: &Received, method: &str) -> Option<Reply> {
    if request.header("mcp-protocol-version") != Some(MODERN) {
        return Some(if request.body.is_empty() { Reply::text(405, "") } else { other_versions(request, &[MODERN]) });
    }
    let body = request.json();
    let meta = &body["params"]["_meta"];
    let named = match method {
        "tools/call" => body["params"]["name"].as_str(),
        _ => None,
    };
    let is_well = meta["io.modelcontextprotocol/protocolVersion"] == MODERN
        && meta["io.modelcontextprotocol/clientInfo"]["name"] == "toolgate"
        && meta["io.modelcontextprotocol/clientCapabilities"].is_object()
        && request.header("mcp-method") == Some(method)
        && request.header("mcp-name") == named
        && request.header("mcp-session-id").is_none()
        && takes_both(request);
    (!is_well).then(|| failure(request, 400, -32020, "Header mismatch"))
}

/// What a legacy server refuses: requests outside of a session, before its opening, or of an unknown version.
fn legacy_refusal(state: &State, request: &Received, method: &str) -> Option<Reply> {
    if let Some(refusal) = state.refusal.as_ref().filter(|_| request.header("mcp-protocol-version") == Some(MODERN)) {
        return Some(refusal(request));
    }
    if method == "initialize" {
        let offered = request.json()["params"]["protocolVersion"] == LEGACY;
        return (!offered || !takes_both(request)).then(|| failure(request, 400, -32602, "Invalid initialize"));
    }
    if state.era == Era::Legacy {
        let Some(session) = request.header("mcp-session-id") else {
            return Some(failure_without_id(400, -32000, "Bad Request: Mcp-Session-Id header is required"));
        };
        match state.sessions.get(session) {
            None => return Some(failure_without_id(404, -32001, "Session not found")),
            Some(false) if method != "notifications/initialized" => {
                return Some(failure_without_id(400, -32000, "Bad Request: Server not initialized"));
            }
            Some(_) => {}
        }
    }
    let spoken = request.header("mcp-protocol-version").is_some_and(|version| LEGACY_VERSIONS.contains(&version));
    (!spoken).then(|| failure_without_id(400, -32000, "Bad Request: Unsupported protocol version"))
}

fn takes_both(request: &Received) -> bool {
    let accept = request.header("accept").unwrap_or_default();
    request.header("content-type") == Some("application/json")
        && accept.contains("application/json")
        && accept.contains("text/event-stream")
}

fn initialize(state: &mut State, request: &Received) -> Reply {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let tools = if state.announces { json!({ "listChanged": true }) } else { json!({}) };
    let result = json!({
        "protocolVersion": LEGACY,
        "capabilities": { "tools": tools },
        "serverInfo": { "name": "test", "version": "1" },
    });
    let Reply::Http { status, mut headers, body } = answer(request, &result) else { unreachable!("an answer is HTTP") };
    if state.era == Era::Legacy {
        let id = format!("session-{}", NEXT.fetch_add(1, Ordering::SeqCst));
        state.sessions.insert(id.clone(), false);
        headers.push(("Mcp-Session-Id".to_owned(), id));
    }
    Reply::Http { status, headers, body }
}

/// One page; its cursor is where the next one begins.
fn page(state: &State, request: &Received) -> Value {
    let cursor = &request.json()["params"]["cursor"];
    let from = cursor.as_str().map_or(0, |cursor| cursor.parse().expect("a cursor of this server"));
    let to = state.tools.len().min(from + state.page_size.min(state.tools.len()));
    let mut result = json!({ "tools": state.tools[from..to] });
    if to < state.tools.len() {
        result["nextCursor"] = json!(to.to_string());
    }
    if state.era == Era::Modern {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
    }
    result
}
