//! An MCP server of the present era that answers calls as a test says.

use super::provider::{Received, read_request};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

type Script = dyn Fn(&Value) -> Value + Send + Sync;

struct Shared {
    tools: Vec<Value>,
    script: Box<Script>,
    calls: Mutex<Vec<Received>>,
}

pub(crate) struct McpUpstream {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl McpUpstream {
    /// Offers these tools; `script` makes of a call's parameters the members `result` or `error` of its answer.
    pub(crate) fn start(tools: &[Value], script: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared { tools: tools.to_vec(), script: Box::new(script), calls: Mutex::default() });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&for_thread);
                std::thread::spawn(move || serve(&shared, &stream));
            }
        });
        Self { shared, address }
    }

    pub(crate) fn registration(&self, name: &str) -> Value {
        json!({
            "name": name, "dialect": "mcp", "base_url": format!("http://{}/mcp", self.address),
            "auth": { "bearer": "upstream-key" },
        })
    }

    /// Tool calls so far.
    pub(crate) fn calls(&self) -> Vec<Received> {
        self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(shared: &Shared, mut stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        let message = request.json();
        let method = message["method"].as_str().unwrap_or_default();
        let mut answer = match method {
            "tools/list" => {
                let tools = &shared.tools;
                json!({ "result": { "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private" } })
            }
            "tools/call" => {
                shared.calls.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                (shared.script)(&message["params"])
            }
            _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
        };
        let is_unknown = method != "tools/list" && method != "tools/call";
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = message["id"].clone();
        let body = answer.to_string();
        let status = if is_unknown { "404 Not Found" } else { "200 OK" };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).is_err() {
            return;
        }
    }
}
