//! MCP clients of both eras, and streams of events that are read as they come.

use super::client::{Answer, Request};
use super::raw;
use super::tenant::Tenant;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub(crate) const MODERN: &str = "2026-07-28";
const BOTH: &str = "application/json, text/event-stream";
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What a client that can follow tasks declares.
pub(crate) fn with_tasks() -> Value {
    json!({ "extensions": { TASKS: {} } })
}

/// `_meta` of a modern client.
pub(crate) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A request message of a modern client.
pub(crate) fn modern_message(method: &str, params: &Value, capabilities: &Value) -> Value {
    let mut params = params.clone();
    let mut all = meta(capabilities);
    if let Some(own) = params.get("_meta").and_then(Value::as_object) {
        own.iter().for_each(|(name, value)| all[name] = value.clone());
    }
    params["_meta"] = all;
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// Header lines that repeat what a modern message says.
pub(crate) fn modern_headers(message: &Value) -> Vec<(String, String)> {
    let method = message["method"].as_str().expect("a method");
    let params = &message["params"];
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    let mut headers = vec![
        ("Accept".to_owned(), BOTH.to_owned()),
        ("MCP-Protocol-Version".to_owned(), MODERN.to_owned()),
        ("Mcp-Method".to_owned(), method.to_owned()),
    ];
    headers.extend(name.map(|name| ("Mcp-Name".to_owned(), name.to_owned())));
    headers
}

impl Tenant {
    /// A message to `/mcp` with nothing but the key.
    pub(crate) fn mcp(&self, message: &Value) -> Request {
        self.agent_request("POST", "/mcp").json(message)
    }

    /// A modern request.
    pub(crate) fn modern_request(&self, method: &str, params: &Value, capabilities: &Value) -> Request {
        let message = modern_message(method, params, capabilities);
        let headers = modern_headers(&message);
        headers.iter().fold(self.mcp(&message), |request, (name, value)| request.header(name, value))
    }

    /// The result of a modern request.
    #[track_caller]
    pub(crate) fn modern(&self, method: &str, params: &Value, capabilities: &Value) -> Value {
        result(&self.modern_request(method, params, capabilities).send())
    }

    /// The result of a modern `tools/call` of a client that can do nothing.
    #[track_caller]
    pub(crate) fn modern_call(&self, tool: &str, arguments: &Value) -> Value {
        self.modern("tools/call", &json!({ "name": tool, "arguments": arguments }), &json!({}))
    }

    /// A legacy request.
    pub(crate) fn legacy_request(&self, method: &str, params: &Value) -> Request {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.mcp(&message).header("Accept", BOTH).header("MCP-Protocol-Version", "2025-11-25")
    }

    /// The result of a legacy request.
    #[track_caller]
    pub(crate) fn legacy(&self, method: &str, params: &Value) -> Value {
        result(&self.legacy_request(method, params).send())
    }

    /// The result of a legacy `tools/call`.
    #[track_caller]
    pub(crate) fn legacy_call(&self, tool: &str, arguments: &Value) -> Value {
        self.legacy("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Opens a legacy dialogue; the session, if there is one.
    #[track_caller]
    pub(crate) fn initialize(&self, capabilities: &Value) -> Option<String> {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let answer = self.mcp(&message).header("Accept", BOTH).send().expect(200);
        assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25", "{}", answer.text());
        answer.header("mcp-session-id").map(str::to_owned)
    }

    /// Sends a message and reads its answer as it comes.
    #[track_caller]
    pub(crate) fn stream(&self, message: &Value, headers: &[(String, String)]) -> EventStream {
        let mut lines = vec![("X-Auth".to_owned(), self.agent.clone())];
        lines.extend_from_slice(headers);
        EventStream::open(self.client.base(), message, &lines)
    }

    /// A modern request whose answer is read as it comes.
    #[track_caller]
    pub(crate) fn modern_stream(&self, method: &str, params: &Value, capabilities: &Value) -> EventStream {
        let message = modern_message(method, params, capabilities);
        self.stream(&message, &modern_headers(&message))
    }

    /// A legacy call in a session, read as it comes.
    #[track_caller]
    pub(crate) fn legacy_stream(&self, id: &Value, params: &Value, session: Option<&str>) -> EventStream {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.stream(&message, &legacy_headers(session))
    }
}

/// Header lines of a legacy client.
pub(crate) fn legacy_headers(session: Option<&str>) -> Vec<(String, String)> {
    let mut headers =
        vec![("Accept".to_owned(), BOTH.to_owned()), ("MCP-Protocol-Version".to_owned(), "2025-11-25".to_owned())];
    headers.extend(session.map(|session| ("Mcp-Session-Id".to_owned(), session.to_owned())));
    headers
}

/// The result of an answer, which has to be one; read from a stream's last event if it is a stream.
#[track_caller]
pub(crate) fn result(answer: &Answer) -> Value {
    let message = message(answer);
    assert!(message.get("error").is_none(), "{message}");
    assert_eq!((answer.status, &message["jsonrpc"]), (200, &json!("2.0")), "{message}");
    message["result"].clone()
}

/// The response in an answer.
#[track_caller]
pub(crate) fn message(answer: &Answer) -> Value {
    if answer.header("content-type") == Some("text/event-stream") {
        let last = answer.text().lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        return serde_json::from_str(last.expect("an event")).expect("JSON");
    }
    answer.json()
}

/// Asserts a JSON-RPC error of this HTTP status, code and id, and answers it.
#[track_caller]
pub(crate) fn error(answer: &Answer, status: u16, code: i64, id: &Value) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    let message = answer.json();
    assert_eq!((&message["error"]["code"], &message["id"]), (&json!(code), id), "{message}");
    assert!(message["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{message}");
    message["error"].clone()
}

/// The text of a result that has one block.
#[track_caller]
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text: {result}"))
}

/// An answer that is read as it comes.
pub(crate) struct EventStream {
    stream: TcpStream,
    pub(crate) status: u16,
    pub(crate) head: String,
    body: Vec<u8>,
    events: String,
    ended: bool,
}

impl EventStream {
    #[track_caller]
    fn open(base: &str, message: &Value, headers: &[(String, String)]) -> Self {
        let body = message.to_string();
        let mut request = "POST /mcp HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n".to_owned();
        headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let mut stream = raw::connect(base);
        stream.write_all(request.as_bytes()).expect("the gateway reads");
        let mut opened =
            Self { stream, status: 0, head: String::new(), body: Vec::new(), events: String::new(), ended: false };
        let end = loop {
            if let Some(end) = opened.body.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(opened.read(), "the answer has a head");
        };
        opened.head = String::from_utf8_lossy(&opened.body[..end]).to_ascii_lowercase();
        opened.body.drain(..end + 4);
        opened.status = opened.head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        opened
    }

    pub(crate) fn is_events(&self) -> bool {
        self.head.contains("content-type: text/event-stream")
    }

    /// Sets how long the next event is waited for.
    pub(crate) fn patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("a timeout can be set");
    }

    fn read(&mut self) -> bool {
        let mut chunk = [0; 8192];
        match self.stream.read(&mut chunk) {
            Ok(read) if read > 0 => {
                self.body.extend_from_slice(&chunk[..read]);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The next message; `None` at the end, or when none comes in time.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.events.find("\n\n") {
                let event: String = self.events.drain(..end + 2).collect();
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(data) = data {
                    return Some(serde_json::from_str(data).expect("events hold JSON"));
                }
                continue;
            }
            if self.ended {
                return None;
            }
            if !self.take_chunk() && !self.read() {
                return None;
            }
        }
    }

    /// Moves one whole chunk over.
    fn take_chunk(&mut self) -> bool {
        let Some(line) = self.body.windows(2).position(|window| window == b"\r\n") else { return false };
        let size = std::str::from_utf8(&self.body[..line]).expect("a chunk's size is text");
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16).expect("a chunk's size");
        if self.body.len() < line + 2 + size + 2 {
            return false;
        }
        self.events.push_str(std::str::from_utf8(&self.body[line + 2..line + 2 + size]).expect("events are UTF-8"));
        self.body.drain(..line + 2 + size + 2);
        self.ended |= size == 0;
        true
    }

    /// The next message, which has to come.
    #[track_caller]
    pub(crate) fn expect(&mut self, what: &str) -> Value {
        self.next().unwrap_or_else(|| panic!("{what}, and not the end: {}", self.head))
    }

    /// Goes away in the middle.
    pub(crate) fn hang_up(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
