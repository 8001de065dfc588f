//! Thousands of requests that no well-behaved client sends, at every route: each is answered, none with a fault of ours.
//! The seed is fixed: what fails once fails always.

use crate::support::binary::{Binary, OPERATOR_TOKEN};
use crate::support::keep_alive::KeepAlive;
use crate::support::manifests::{median, topology_with};
use crate::support::openapi::{Operation, operations};
use crate::support::provider::Provider;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Requests for every operation of the document.
const ROUNDS: usize = 60;

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below a usize")
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// What the bodies that are nearly right are made of.
fn template(operation: &Operation) -> Value {
    match operation.path.as_str() {
        "/mcp/run" => json!({ "tool": "go", "args": { "n": 1, "s": "x" }, "request_id": "r", "confirmation": "c",
            "context": { "conversation": "c", "turn": "t", "locale": "en", "timezone": "UTC" } }),
        "/callbacks/{endpoint_id}" => json!({ "type": "tool.result", "timestamp": "2026-01-01T00:00:00Z", "data": {
            "request_id": "r", "status": "completed", "payload": { "a": [1, 2.5, null] }, "error": { "code": "c", "message": "m" } } }),
        "/v1/endpoints" | "/v1/endpoints/{id}" => {
            json!({ "name": "inline", "dialect": "topology", "base_url": "http://127.0.0.1:9",
            "auth": { "header": "X-Auth", "value": "v" }, "name_prefix": "p_", "sync": { "policy": "skip", "interval_s": 0 },
            "tool_changes": "review", "enabled": true, "manifest": { "tools": [{ "id": "topology:t", "title": "T",
            "description": "d", "kind": "query", "input_schema": { "type": "object", "properties": { "a": { "type": "string" } } } }] } })
        }
        "/v1/groups" | "/v1/groups/{name}" => {
            json!({ "name": "g", "rules": [{ "effect": "allow", "tools": ["*"], "endpoints": ["e"], "risks": ["low"] }] })
        }
        "/v1/agent-keys" | "/v1/agent-keys/{id}" => {
            json!({ "name": "k", "groups": ["default"], "expires_at": "2030-01-01T00:00:00Z",
            "limits": { "agent_key_per_second": 5 }, "confirms": false })
        }
        "/v1/tools/{name}" => {
            json!({ "risk": "high", "requires_confirmation": true, "timeout_ms": 1000, "pending_ttl_ms": 1000 })
        }
        "/v1/tools/{name}/accept" => json!({ "hash": "00" }),
        "/v1/org" => {
            json!({ "limits": { "tool_per_second": 1_000_000 }, "retention": { "run_retention_h": 100, "result_retention_h": 10 } })
        }
        "/admin/v1/orgs" | "/admin/v1/orgs/{id}" => json!({ "slug": "made", "name": "Made", "state": "active",
            "limits": { "max_tools": 10 }, "egress_allow": ["127.0.0.0/8"] }),
        _ => json!({ "name": "n", "expires_at": "2030-01-01T00:00:00Z" }),
    }
}

/// Values of the wrong type, size or spelling, as JSON text.
const ODD: &[&str] = &[
    "null",
    "true",
    "0",
    "-0",
    "-1",
    "1.5",
    "1e999",
    "-1e-999",
    "18446744073709551616",
    "123456789012345678901234567890",
    "0.1234567890123456789",
    "\"\"",
    "\" \"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\"\u{202e}\u{feff}é\"",
    "[]",
    "{}",
    "[[[]]]",
    "{\"\":{}}",
    "[null,1,\"x\"]",
    "NaN",
    "01",
    "\"../../etc/passwd\"",
    "\"%00\"",
    "\"' OR 1=1 --\"",
    "\"http://[\"",
    "\"9999-99-99T99:99:99Z\"",
    "\"999999999999999999999999/33\"",
    "{\"a\":1,\"a\":2}",
];

/// The template with one member replaced, taken out or added.
fn mutated(dice: &mut Dice, template: &Value) -> Vec<u8> {
    const MARK: &str = "@@here@@";
    let mut body = template.clone();
    let mut place = &mut body;
    while let Some(members) = place.as_object().filter(|members| !members.is_empty()) {
        let names: Vec<String> = members.keys().cloned().collect();
        let name = dice.pick(&names).clone();
        if dice.below(12) == 0 {
            place.as_object_mut().expect("it is one").remove(&name);
            return body.to_string().into_bytes();
        }
        place = &mut place[name];
        if dice.below(3) == 0 {
            break;
        }
    }
    *place = json!(MARK);
    let long = format!("\"{}\"", "x".repeat(70_000));
    let odd = if dice.below(20) == 0 { long.as_str() } else { dice.pick(ODD) };
    body.to_string().replace(&format!("\"{MARK}\""), odd).into_bytes()
}

fn body(dice: &mut Dice, operation: &Operation) -> Vec<u8> {
    let template = template(operation);
    match dice.below(10) {
        0 => dice.bytes(300),
        1 => {
            let whole = template.to_string().into_bytes();
            whole[..dice.below(whole.len())].to_vec()
        }
        2 => {
            let depth = *dice.pick(&[64, 65, 200, 20_000]);
            let (open, close) = *dice.pick(&[("[", "]"), ("{\"a\":", "}")]);
            let middle = if close == "}" { "1" } else { "" };
            format!("{}{middle}{}", open.repeat(depth), close.repeat(depth)).into_bytes()
        }
        3 => [b"\xef\xbb\xbf".as_slice(), template.to_string().as_bytes()].concat(),
        4 => {
            let mut whole = template.to_string().into_bytes();
            let at = dice.below(whole.len());
            whole[at] = dice.next().to_le_bytes()[0];
            whole
        }
        5 => dice.pick(ODD).as_bytes().to_vec(),
        6 => [template.to_string().as_bytes(), &dice.bytes(5)].concat(),
        _ => mutated(dice, &template),
    }
}

const METHODS: &[&str] =
    &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "X-ODD", "get"];

const SEGMENTS: &[&str] = &[
    "0",
    "-1",
    "x",
    "%00",
    "%2e%2e",
    "%ff%fe",
    "%F0%9F%98%80",
    "..%2f..",
    "'%20OR%201=1",
    "*",
    "topology:go",
    "TOPOLOGY:GO",
    "01a22d7e-ec9b-7353-a908-a7fc7203f8dc",
    "00000000-0000-0000-0000-000000000000",
    "01A22D7EEC9B7353A908A7FC7203F8DC",
    "{id}",
    "%7Bid%7D",
    ";a=b",
    "a%2Fb",
    "%",
    "%zz",
    "%c3%28",
];

const QUERIES: &[&str] = &[
    "",
    "?",
    "?limit=0",
    "?limit=-1",
    "?limit=201",
    "?limit=99999999999999999999",
    "?limit=x",
    "?limit=1&limit=2",
    "?cursor=",
    "?cursor=x",
    "?cursor=AAAA",
    "?cursor=%00%ff",
    "?cursor=eyJhIjoxfQ",
    "?status=none",
    "?status=pending&status=failed",
    "?from=x&to=y",
    "?from=0000-00-00T00:00:00Z&to=9999-12-31T23:59:60Z",
    "?agent_key=x&tool=go",
    "?tool=%ff",
    "?a[b]=c",
    "?%zz",
    "?&&&==",
    "?unknown=1",
    "?endpoint=%F0%9F%98%80",
];

const HEADERS: &[(&str, &str)] = &[
    ("X-Caller-Identity", "é\u{1}"),
    ("X-Caller-Identity", ""),
    ("X-Caller-Identity", "ann"),
    ("Conversation-Id", "c c"),
    ("Idempotency-Key", "\"k\""),
    ("Idempotency-Key", ""),
    ("Prefer", "wait=-1"),
    ("Prefer", "wait=x, wait=1"),
    ("Prefer", "wait=0; foo=\"bar"),
    ("If-Match", "*"),
    ("If-Match", "\"1\""),
    ("If-Match", "W/\"x\", \"é\""),
    ("If-None-Match", "*"),
    ("If-None-Match", "\"\", W/"),
    ("traceparent", "00-00000000000000000000000000000000-0000000000000000-00"),
    ("traceparent", "ff-x"),
    ("X-Request-Id", "é"),
    ("Authorization", "Basic eDp5"),
    ("Authorization", "Bearer"),
    ("Authorization", "Bearer \u{7f}"),
    ("X-Auth", "other"),
    ("Accept", "q=é"),
    ("Accept-Encoding", "gzip, br;q=x"),
    ("Content-Encoding", "gzip"),
    ("Content-Language", "xx"),
    ("webhook-id", "m é"),
    ("webhook-timestamp", "99999999999999999999"),
    ("webhook-timestamp", "-1"),
    ("webhook-signature", "v1,AAAA v1, v2,x"),
    ("webhook-signature", "v1,é"),
    ("Range", "bytes=5-1"),
    ("Origin", "null"),
    ("Cookie", "a=b"),
    ("X-Forwarded-For", "::1"),
    ("Content-Type", "text/plain"),
];

const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/json",
    "application/json",
    "Application/JSON; charset=utf-8",
    "application/json;;;=",
    "text/plain",
    "",
    "application/x-www-form-urlencoded",
    "application/json, text/html",
    "é",
];

/// One request with an honest length.
fn request(dice: &mut Dice, operation: &Operation, keys: &[String], ids: &[String]) -> (String, Vec<u8>) {
    let method = if dice.below(4) == 0 { *dice.pick(METHODS) } else { operation.method.as_str() };
    // What is deleted would be missed by the rounds after it.
    let segment = if method != "DELETE" && dice.below(3) == 0 { dice.pick(ids) } else { *dice.pick(SEGMENTS) };
    let long = "a".repeat(3_000);
    let segment = if dice.below(30) == 0 { long.as_str() } else { segment };
    let mut path = operation.at(segment);
    if dice.below(3) == 0 {
        path.push_str(dice.pick::<&str>(QUERIES));
    }
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: gateway\r\n").into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    let own = match operation.path.split('/').nth(1) {
        Some("mcp") => &keys[0],
        Some("v1") => &keys[1],
        _ => &keys[2],
    };
    match dice.below(8) {
        0 => {}
        1 => line("X-Auth", dice.pick(keys).as_bytes()),
        2 => line("Authorization", format!("Bearer {}", dice.pick(keys)).as_bytes()),
        _ => line("X-Auth", own.as_bytes()),
    }
    for _ in 0..dice.below(3) {
        let (name, value) = dice.pick(HEADERS);
        line(name, value.as_bytes());
    }
    let bare = matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE") && dice.below(6) != 0;
    let body = if bare { Vec::new() } else { body(dice, operation) };
    if !body.is_empty() {
        line("Content-Type", dice.pick(CONTENT_TYPES).as_bytes());
        line("Content-Length", body.len().to_string().as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(&body);
    (method.to_owned(), head)
}

/// The rest of the table, which the document does not describe.
fn undescribed() -> Vec<Operation> {
    let operation =
        |path: &str| Operation { method: "GET".to_owned(), path: path.to_owned(), description: Value::Null };
    [
        "/openapi.json",
        "/docs",
        "/docs/{file}",
        "/",
        "/mcp",
        "/mcp/{x}",
        "/v1/{x}",
        "/admin/v1/{x}",
        "/callbacks",
        "/{x}",
    ]
    .map(operation)
    .to_vec()
}

#[test]
fn every_route_answers_whatever_is_thrown_at_it() {
    let folder = TempDir::new().expect("a temporary folder");
    let roomy = [("LIMITS__MAX_ENDPOINTS", "10000"), ("OPERATOR__TOKEN", OPERATOR_TOKEN)];
    let toolgate = Binary::of(Binary::command(&folder, &roomy));
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" }, "s": { "type": "string" } } });
    let topologies =
        Provider::topology(&[topology_with("go", "command", &schema), topology_with("ask", "query", &schema)]);
    let medians = Provider::median(&[median("find", "low"), median("erase", "reviewed")]);
    let (target, calm) = (toolgate.tenant("target"), toolgate.tenant("calm"));
    let endpoint = target.endpoint("topologies", &topologies);
    target.endpoint("medians", &medians);
    calm.endpoint("topologies", &topologies);
    let run = target.call("ask", &json!({}));
    let keys = [target.agent.clone(), target.workspace.clone(), OPERATOR_TOKEN.to_owned(), "tg_ag_nonsense".to_owned()];
    let id = |value: &Value| value.as_str().expect("an id").to_owned();
    // Not its own organization's: the operator could suspend it.
    let ids =
        [endpoint.id.clone(), id(&run["correlation_id"]), "go".to_owned(), "find".to_owned(), "default".to_owned()];

    let mut dice = Dice(20_260_101);
    let mut connection = KeepAlive::new(toolgate.client().base());
    let mut by_class = [0_usize; 6];
    let mut hung_up = 0;
    let mut before = "nothing".to_owned();
    let operations: Vec<Operation> = operations(toolgate.client()).into_iter().chain(undescribed()).collect();
    for operation in &operations {
        for _ in 0..ROUNDS {
            let (method, bytes) = request(&mut dice, operation, &keys, &ids);
            let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(1_500)]).into_owned();
            let answer = connection
                .exchange(&method, &bytes)
                .unwrap_or_else(|fault| panic!("{fault}: {}\nafter {before}", shown()));
            assert!(answer.status < 500, "{} {}: {}", answer.status, answer.text(), shown());
            if answer.header("x-request-id").is_none() {
                // The head is no HTTP: the server itself says so and hangs up.
                assert!(answer.status >= 400 && answer.body.is_empty(), "{} {}", answer.status, shown());
                connection.hang_up();
                hung_up += 1;
            } else if answer.status >= 400 && method != "HEAD" {
                let told = answer.json();
                // MCP has words of its own for what is wrong with its messages.
                let is_rpc = told["jsonrpc"] == "2.0" && told["error"]["code"].is_i64();
                assert!(told["status"] == answer.status || is_rpc, "{told}: {}", shown());
            }
            by_class[usize::from(answer.status / 100)] += 1;
            before = format!("{}, answered {} {:?}", shown(), answer.status, answer.headers);
        }
    }
    assert!(by_class[2] > 100 && by_class[4] > 1_000, "too little of either kind to mean anything: {by_class:?}");
    assert_eq!(connection.connections, 1 + hung_up, "every other answer leaves the connection open");

    assert_eq!(calm.call("go", &json!({ "n": "1" }))["status"], "started");
    assert_eq!(calm.listed().len(), 2);
    toolgate.client().get("/readyz").send().expect(200);
    let log = toolgate.log();
    assert!(!log.contains("panicked") && !log.contains("panic"), "{log}");
    assert_eq!(toolgate.terminate().code(), Some(0));
}
