//! A good server of either era, and what is wrong with it.

use crate::demo::local_server::{LocalServer, RecordedRequest, Recorder};
use crate::dialects::mcp::decoded_header;
use crate::dialects::mcp::words::{META_CLIENT_CAPABILITIES, META_VERSION, MODERN_VERSION};
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const TOKEN: &str = "t0ken";
pub(super) const SESSION: &str = "s-0198a000";

const VERSION: &str = "2025-11-25";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    Legacy,
}

/// An answer before it is sent.
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

impl Said {
    fn new(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type", "application/json; charset=utf-8".to_owned())];
        Self { status, headers, body: body.to_string() }
    }

    fn nothing(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new() }
    }

    /// The same as a stream: with an empty event first, a comment, a notification, and other messages around.
    fn streamed(self) -> Self {
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } });
        let body = format!("id: 1\ndata:\n\n: hello\ndata: {note}\n\nid: 2\nevent: message\ndata: {}\n\n", self.body);
        Self { headers: vec![("content-type", "text/event-stream".to_owned())], body, ..self }
    }

    /// The JSON that is said, in a stream too.
    pub(super) fn json(&self) -> Value {
        let text = self.body.rsplit("\ndata: ").next().unwrap_or_default();
        serde_json::from_str(text.trim()).unwrap_or_default()
    }

    /// Says something else, in the same way.
    pub(super) fn set_json(&mut self, body: &Value) {
        self.body = match self.body.rsplit_once("\ndata: ") {
            Some((before, _)) => format!("{before}\ndata: {body}\n\n"),
            None => body.to_string(),
        };
    }

    pub(super) fn set_header(&mut self, name: &'static str, value: &str) {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
    }
}

impl RecordedRequest {
    pub(super) fn set_header(&mut self, name: &str, value: Option<&str>) {
        self.headers.retain(|(known, _)| known != name);
        self.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
}

type ChangeRequest = Box<dyn Fn(&mut RecordedRequest) + Send + Sync>;
type ChangeAnswer = Box<dyn Fn(&RecordedRequest, &mut Said) + Send + Sync>;

/// What is wrong: the good server is asked another question, answers something else, or has other tools.
pub(super) struct Breach {
    request: ChangeRequest,
    answer: ChangeAnswer,
    tools: Option<Vec<Value>>,
}

impl Breach {
    pub(super) fn none() -> Self {
        Self { request: Box::new(|_| {}), answer: Box::new(|_, _| {}), tools: None }
    }

    pub(super) fn request(change: impl Fn(&mut RecordedRequest) + Send + Sync + 'static) -> Self {
        Self { request: Box::new(change), ..Self::none() }
    }

    pub(super) fn and_request(self, change: impl Fn(&mut RecordedRequest) + Send + Sync + 'static) -> Self {
        Self { request: Box::new(change), ..self }
    }

    pub(super) fn answer(change: impl Fn(&RecordedRequest, &mut Said) + Send + Sync + 'static) -> Self {
        Self { answer: Box::new(change), ..Self::none() }
    }

    pub(super) fn tools(tools: Vec<Value>) -> Self {
        Self { tools: Some(tools), ..Self::none() }
    }
}

struct State {
    era: Era,
    breach: Breach,
    recorder: Recorder,
}

pub(super) struct McpServer {
    server: LocalServer,
    state: Data<State>,
}

impl McpServer {
    pub(super) fn start(era: Era, breach: Breach) -> Self {
        let state = Data::from(Arc::new(State { era, breach, recorder: Recorder::default() }));
        let data = state.clone();
        let server = LocalServer::start(move |routes: &mut ServiceConfig| {
            routes.app_data(data.clone()).default_service(web::to(serve));
        });
        Self { server: server.expect("a port of loopback is free"), state }
    }

    /// A path that somebody may be tempted to mend.
    pub(super) fn url(&self) -> String {
        format!("{}/v1/mcp/", self.server.url())
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.state.recorder.requests()
    }
}

async fn serve(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    let one = Recorder::default();
    one.note(&request, &body);
    state.recorder.note(&request, &body);
    let mut request = one.requests().remove(0);
    (state.breach.request)(&mut request);
    let mut said = if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        Said::new(401, &json!({ "error": "invalid_token" }))
    } else {
        match state.era {
            Era::Modern => modern(&request, state.breach.tools.as_deref()),
            Era::Legacy => legacy(&request),
        }
    };
    (state.breach.answer)(&request, &mut said);
    let mut response = HttpResponse::build(StatusCode::from_u16(said.status).expect("a status"));
    for header in said.headers {
        response.insert_header(header);
    }
    response.body(said.body)
}

fn error(status: u16, id: &Value, code: i64, data: Value) -> Said {
    let error = json!({ "code": code, "message": "refused", "data": data });
    Said::new(status, &json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

fn result(id: &Value, result: Value) -> Said {
    Said::new(200, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// Two pages; the cursor of the second one is an empty text.
fn page(cursor: &Value) -> Value {
    let number =
        json!({ "type": "object", "properties": { "celsius": { "type": "number" } }, "required": ["celsius"] });
    let weather = json!({
        "name": "weather.now",
        "inputSchema": {
            "type": "object",
            "properties": { "city": { "type": "string", "x-mcp-header": "City" }, "any": true },
        },
        "outputSchema": number,
        "annotations": { "readOnlyHint": true },
    });
    let other = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    match cursor.as_str() {
        None => json!({ "tools": [weather, other("mail_send")], "nextCursor": "" }),
        Some(_) => json!({ "tools": [other("third")] }),
    }
}

fn called(params: &Value) -> Option<Value> {
    match params["name"].as_str()? {
        "weather.now" => Some(json!({
            "content": [{ "type": "text", "text": "{\"celsius\":15}" }],
            "structuredContent": { "celsius": 15 },
        })),
        "mail_send" => Some(json!({ "content": [{ "type": "text", "text": "sent" }], "isError": false })),
        _ => None,
    }
}

fn modern(request: &RecordedRequest, tools: Option<&[Value]>) -> Said {
    let body = request.json();
    let (id, method, params) = (&body["id"], body["method"].as_str().unwrap_or_default(), &body["params"]);
    let header =
        |name: &str| request.header(name).and_then(|value| decoded_header(value).map(|text| text.into_owned()));
    let meta = &params["_meta"];
    let version = meta[META_VERSION].as_str();
    if !body.is_object() || request.method != "POST" {
        return error(400, &Value::Null, -32600, Value::Null);
    }
    if !meta[META_CLIENT_CAPABILITIES].is_object() || version.is_none() {
        return error(400, id, -32602, Value::Null);
    }
    if header("mcp-protocol-version").as_deref() != version || header("mcp-method").as_deref() != Some(method) {
        return error(400, id, -32020, Value::Null);
    }
    if version != Some(MODERN_VERSION) {
        return error(400, id, -32022, json!({ "supported": [MODERN_VERSION], "requested": version }));
    }
    let complete = |mut value: Value| {
        value["resultType"] = json!("complete");
        result(id, value)
    };
    match method {
        "server/discover" => {
            complete(json!({ "supportedVersions": [MODERN_VERSION], "capabilities": { "tools": {} } }))
        }
        "tools/list" => complete(match tools {
            Some(tools) => json!({ "tools": tools }),
            None => page(&params["cursor"]),
        }),
        "tools/call" if header("mcp-name").as_deref() != params["name"].as_str() => error(400, id, -32020, Value::Null),
        "tools/call" if header("mcp-param-city").as_deref() != params["arguments"]["city"].as_str() => {
            error(400, id, -32020, Value::Null)
        }
        "tools/call" => match called(params) {
            Some(said) => complete(said),
            None => error(400, id, -32602, Value::Null),
        },
        _ => error(404, id, -32601, Value::Null),
    }
}

fn legacy(request: &RecordedRequest) -> Said {
    let body = request.json();
    let (id, method, params) = (&body["id"], body["method"].as_str().unwrap_or_default(), &body["params"]);
    if method == "initialize" {
        let said = json!({
            "protocolVersion": VERSION,
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "test", "version": "1" },
        });
        let mut said = result(id, said).streamed();
        said.headers.push(("mcp-session-id", SESSION.to_owned()));
        return said;
    }
    match request.header("mcp-session-id") {
        None => return error(400, &Value::Null, -32000, Value::Null),
        Some(SESSION) => {}
        Some(_) => return error(404, &Value::Null, -32001, Value::Null),
    }
    if request.header("mcp-protocol-version") != Some(VERSION) {
        return error(400, &Value::Null, -32000, Value::Null);
    }
    match (request.method.as_str(), method) {
        ("DELETE", _) => Said::nothing(200),
        (_, "notifications/initialized") => Said::nothing(202),
        (_, "tools/list") => result(id, page(&params["cursor"])).streamed(),
        (_, "tools/call") => match called(params) {
            Some(said) => result(id, said).streamed(),
            None => error(200, id, -32602, Value::Null),
        },
        (_, "") => error(400, &Value::Null, -32600, Value::Null),
        _ => error(200, id, -32601, Value::Null),
    }
}
