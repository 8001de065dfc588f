//! `POST /mcp`: messages, eras, headers, and what is said of each fault.

use crate::support::client::Answer;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology};
use crate::support::mcp::{MODERN, error, meta, modern_headers, modern_message, result, text, with_tasks};
use crate::support::provider::Provider;
use crate::support::raw;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::time::Duration;

struct World {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
}

fn world() -> World {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::median(&[median("lookup", "low")]);
    tenant.endpoint("shop", &provider);
    World { gate, tenant, provider }
}

type Headers = Vec<(String, String)>;

const BOTH: &str = "application/json, text/event-stream";

#[test]
fn discovery_says_what_is_spoken_and_served() {
    let World { tenant, .. } = &world();
    let found = tenant.modern("server/discover", &json!({}), &json!({}));
    assert_eq!(found["supportedVersions"], json!([MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]));
    assert_eq!(found["capabilities"]["tools"], json!({ "listChanged": true }));
    assert!(found["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    assert!(found["capabilities"].get("tasks").is_none());
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "toolgate");
    assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")));
    // What is advertised is served, if only as an empty list.
    for (method, member) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let list = tenant.modern(method, &json!({}), &json!({}));
        assert_eq!(list[member], json!([]), "{method}");
        assert!(list["ttlMs"].as_u64().is_some() && list["cacheScope"] == "private", "{method}: {list}");
        assert_eq!(tenant.legacy(method, &json!({})), json!({ member: [] }));
    }
    let read = json!({ "uri": "x://y" });
    let missing = error(&tenant.modern_request("resources/read", &read, &json!({})).send(), 400, -32602, &json!(1));
    assert_eq!(missing["data"]["uri"], "x://y");
    error(&tenant.legacy_request("resources/read", &read).send(), 200, -32002, &json!(1));
    let missing = tenant.modern_request("prompts/get", &json!({ "name": "x" }), &json!({})).send();
    error(&missing, 400, -32602, &json!(1));
}

#[test]
fn initialize_opens_a_dialogue_of_any_earlier_revision() {
    let World { tenant, .. } = &world();
    let opened = |version: &str| {
        let params =
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let message = json!({ "jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params });
        tenant.mcp(&message).header("Accept", BOTH).send().expect(200)
    };
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let answer = opened(version);
        assert_eq!(answer.json()["result"]["protocolVersion"], version);
        assert_eq!(answer.header("mcp-session-id"), None, "nobody can be asked, so there is nothing to remember");
    }
    let answer = opened("1999-01-01").json();
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!("i"), &json!("2025-11-25")));
    assert_eq!(answer["result"]["serverInfo"]["name"], "toolgate");
    assert_eq!(answer["result"]["capabilities"], json!({ "tools": {}, "prompts": {}, "resources": {} }));
    let told = tenant.mcp(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).send();
    assert_eq!((told.status, told.body.len()), (202, 0));
    assert_eq!(tenant.legacy("ping", &json!({})), json!({}));
    error(&tenant.legacy_request("nonsense/method", &json!({})).send(), 200, -32601, &json!(1));
    let unknown = tenant.mcp(&json!({ "jsonrpc": "2.0", "id": 5, "method": "ping" }));
    error(&unknown.header("MCP-Protocol-Version", "1999-01-01").send(), 400, -32022, &json!(5));
}

#[test]
fn a_request_opens_a_conversation_like_one_of_the_manifest() {
    let World { gate, tenant, provider } = &world();
    let fetched = |what: &dyn Fn()| {
        gate.advance(Duration::from_secs(5));
        let before = provider.fetches().len();
        what();
        provider.fetches().len() - before
    };
    let list = || {
        tenant.modern_request("tools/list", &json!({}), &json!({})).header("Conversation-Id", "c-1").send().expect(200);
    };
    assert_eq!(fetched(&|| drop(tenant.initialize(&json!({})))), 1, "median is synced when a conversation begins");
    assert_eq!(fetched(&list), 1);
    assert_eq!(fetched(&list), 0, "of one conversation only the first sight counts");
}

#[test]
fn a_modern_request_says_who_sends_it() {
    let World { tenant, .. } = &world();
    let send = |meta: Option<Value>, version: Option<&str>| {
        let mut message = json!({ "jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": {} });
        if let Some(meta) = meta {
            message["params"]["_meta"] = meta;
        }
        let request = tenant.mcp(&message).header("Accept", BOTH).header("Mcp-Method", "server/discover");
        version.into_iter().fold(request, |request, version| request.header("MCP-Protocol-Version", version)).send()
    };
    let without = |name: &str| {
        let mut meta = meta(&json!({}));
        meta.as_object_mut().expect("an object").remove(&format!("io.modelcontextprotocol/{name}"));
        Some(meta)
    };
    let with = |name: &str, value: Value| {
        let mut meta = meta(&json!({}));
        meta[&format!("io.modelcontextprotocol/{name}")] = value;
        Some(meta)
    };
    let id = json!(7);
    error(&send(None, Some(MODERN)), 400, -32602, &id);
    error(&send(None, None), 400, -32602, &id);
    error(&send(without("protocolVersion"), Some(MODERN)), 400, -32602, &id);
    error(&send(without("clientCapabilities"), Some(MODERN)), 400, -32602, &id);
    error(&send(with("clientCapabilities", json!([])), Some(MODERN)), 400, -32602, &id);
    assert_eq!(send(without("clientInfo"), Some(MODERN)).status, 200, "who it is is its own business");
    error(&send(with("protocolVersion", json!("v999.0.0")), Some(MODERN)), 400, -32020, &id);
    error(&send(with("protocolVersion", json!(MODERN)), None), 400, -32020, &id);
    let unknown = error(&send(with("protocolVersion", json!("v999.0.0")), Some("v999.0.0")), 400, -32022, &id);
    assert_eq!(unknown["data"]["requested"], "v999.0.0");
    assert_eq!(unknown["data"]["supported"][0], MODERN);
}

#[test]
fn headers_say_what_the_body_says() {
    let World { tenant, provider, .. } = &world();
    let params = json!({ "name": "lookup", "arguments": {} });
    let message = modern_message("tools/call", &params, &json!({}));
    let send = |change: &dyn Fn(&mut Headers)| {
        let mut headers = modern_headers(&message);
        change(&mut headers);
        headers.iter().fold(tenant.mcp(&message), |request, (name, value)| request.header(name, value)).send()
    };
    let set = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        send(&move |headers| headers.iter_mut().filter(|(found, _)| *found == name).for_each(|h| h.1 = value.clone()))
    };
    let drop = |name: &str| send(&|headers| headers.retain(|(found, _)| found != name));
    for answer in [
        set("Mcp-Method", "tools/list"),
        set("Mcp-Method", "TOOLS/CALL"),
        drop("Mcp-Method"),
        set("Mcp-Name", "other"),
        set("Mcp-Name", "LOOKUP"),
        set("Mcp-Name", "=?base64?bG9va3Vw!?="),
        drop("Mcp-Name"),
        drop("MCP-Protocol-Version"),
        send(&|headers| headers.push(("Mcp-Name".to_owned(), "other".to_owned()))),
    ] {
        error(&answer, 400, -32020, &json!(1));
    }
    assert!(provider.calls().is_empty(), "nothing was called");
    assert_eq!(set("Mcp-Name", "=?base64?bG9va3Vw?=").status, 200);
    assert_eq!(set("Mcp-Name", "  lookup  ").status, 200);
    assert_eq!(send(&|headers| headers.iter_mut().for_each(|h| h.0 = h.0.to_uppercase())).status, 200);
    assert_eq!(provider.calls().len(), 3);
}

#[test]
fn methods_of_the_earlier_era_are_gone_in_the_present_one() {
    let World { tenant, .. } = &world();
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/result",
        "tasks/list",
        "unknown/method",
    ] {
        error(&tenant.modern_request(method, &json!({}), &with_tasks()).send(), 404, -32601, &json!(1));
    }
}

#[test]
fn what_is_no_message_is_refused_in_the_protocols_words() {
    let World { tenant, provider, .. } = &world();
    let send =
        |body: &str| tenant.agent_request("POST", "/mcp").text("application/json", body).header("Accept", BOTH).send();
    let call = r#""method":"tools/call","params":{"name":"lookup"}"#;
    for (body, code, id) in [
        (String::new(), -32700, json!(null)),
        ("{".to_owned(), -32700, json!(null)),
        (format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":1,{call}}}"), -32700, json!(null)),
        (format!(r#"{{"jsonrpc":"2.0","id":1,{call},"method":"ping"}}"#), -32700, json!(null)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","n\u0061me":"lookup"}}"#.to_owned(),
            -32700,
            json!(null),
        ),
        (
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"x\":{}1{},{call}}}", "[".repeat(64), "]".repeat(64)),
            -32700,
            json!(null),
        ),
        (format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{call}}} x"), -32700, json!(null)),
        // IBM/toolhive#5745: a batch skips the policy.
        (format!(r#"[{{"jsonrpc":"2.0","id":1,{call}}}]"#), -32600, json!(null)),
        ("[]".to_owned(), -32600, json!(null)),
        ("\"x\"".to_owned(), -32600, json!(null)),
        (format!(r#"{{"jsonrpc":"1.0","id":"a",{call}}}"#), -32600, json!("a")),
        (format!(r#"{{"id":"a",{call}}}"#), -32600, json!("a")),
        (format!(r#"{{"jsonrpc":"2.0","id":null,{call}}}"#), -32600, json!(null)),
        (format!(r#"{{"jsonrpc":"2.0","id":{{}},{call}}}"#), -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[]}"#.to_owned(), -32602, json!(3)),
    ] {
        error(&send(&body), 400, code, &id);
    }
    assert!(provider.calls().is_empty(), "nothing was called");
}

#[test]
fn refusals_before_the_message_are_problems_and_tell_nothing_of_it() {
    let World { gate, tenant, .. } = &world();
    let message = modern_message("tools/list", &json!({}), &json!({}));
    let stranger = gate.post("/mcp", &message).header("Accept", BOTH).send();
    let problem = stranger.problem(401, "unauthorized");
    assert!(problem.get("jsonrpc").is_none() && problem.get("id").is_none(), "{problem}");
    assert_eq!(gate.post("/mcp", &message).key(&tenant.workspace).send().status, 401, "another kind of key");
    for method in ["GET", "DELETE"] {
        tenant.agent_request(method, "/mcp").send().problem(405, "method_not_allowed");
    }
    tenant
        .agent_request("POST", "/mcp")
        .text("text/plain", message.to_string())
        .send()
        .problem(415, "unsupported_media_type");
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(1 << 20));
    tenant.agent_request("POST", "/mcp").text("application/json", large).send().problem(413, "too_large");
}

#[test]
fn the_agent_keys_limit_is_that_of_every_request() {
    let gate = Gate::with(&[("LIMITS__AGENT_KEY_PER_SECOND", "1"), ("LIMITS__AGENT_KEY_PER_SECOND_BURST", "2")]);
    let tenant = gate.tenant("acme");
    let list = || tenant.legacy_request("tools/list", &json!({})).send();
    assert_eq!((list().status, list().status), (200, 200));
    list().problem(429, "rate_limited");
}

#[test]
fn pages_of_other_sites_are_turned_away() {
    let World { gate, tenant, provider, .. } = &world();
    let call = |origin: &str| {
        let params = json!({ "name": "lookup", "arguments": {} });
        tenant.modern_request("tools/call", &params, &json!({})).header("Origin", origin).send()
    };
    for foreign in
        ["http://evil.example", "null", "http://localhost.evil.example", "file://", "http://127.0.0.1.evil.example:80"]
    {
        error(&call(foreign), 403, -32600, &json!(null));
    }
    assert!(provider.calls().is_empty());
    for own in [gate.url(), "http://localhost:6274", "http://[::1]:3000"] {
        assert_eq!(call(own).status, 200, "{own}");
    }
}

#[test]
fn an_answer_comes_in_a_form_that_is_accepted() {
    let World { tenant, .. } = &world();
    let modern = |accept: &str| {
        let message = modern_message("tools/list", &json!({}), &json!({}));
        let headers = modern_headers(&message).into_iter().filter(|(name, _)| name != "Accept");
        let request = headers.fold(tenant.mcp(&message), |request, (name, value)| request.header(&name, value));
        request.header("Accept", accept).send()
    };
    for good in [BOTH, "*/*", "text/event-stream;q=0.1, application/json; charset=utf-8", "application/*, text/*"] {
        assert_eq!(modern(good).status, 200, "{good}");
    }
    for bad in ["application/json", "text/event-stream", "text/html", "application/json;q=0, text/event-stream"] {
        error(&modern(bad), 406, -32600, &json!(1));
    }
    let legacy = |accept: &str| {
        let call = json!({ "name": "lookup", "arguments": {} });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call });
        tenant.mcp(&message).header("Accept", accept).send()
    };
    assert_eq!((legacy(BOTH).status, legacy("application/json").status), (200, 200));
    error(&legacy("text/event-stream"), 406, -32600, &json!(1));
    // Without the header anything is accepted.
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let headers = [format!("X-Auth: {}", tenant.agent), "Content-Type: application/json".to_owned()];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    assert_eq!(raw::request(tenant.client.base(), "POST", "/mcp", &headers, body.as_bytes()).status, 200);
}

#[test]
fn headers_of_a_run_count_for_a_call_too() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("order", "command")]);
    tenant.endpoint("bank", &provider);
    let call = |key: &str| {
        let params = json!({ "name": "order", "arguments": {} });
        let request = tenant.modern_request("tools/call", &params, &json!({}));
        request.header("Idempotency-Key", key).header("X-Caller-Identity", "ann").send()
    };
    let (first, again, other) = (call("k-1"), call("k-1"), call("k-2"));
    let is_replay = |answer: &Answer| answer.header("idempotent-replay").map(str::to_owned);
    assert_eq!([is_replay(&first), is_replay(&again), is_replay(&other)], [None, Some("true".to_owned()), None]);
    let (first, again, other) = (result(&first), result(&again), result(&other));
    assert_eq!(first["structuredContent"]["status"], "started");
    assert_eq!(first["structuredContent"], again["structuredContent"], "one run");
    assert_ne!(first["structuredContent"], other["structuredContent"]);
    assert_eq!(provider.calls().len(), 2);
    assert_eq!(provider.last_call().header("x-caller-identity"), Some("ann"));
    let params = json!({ "name": "order", "arguments": { "x": 1 } });
    let conflict = tenant.modern_request("tools/call", &params, &json!({})).header("Idempotency-Key", "k-1");
    let conflict = result(&conflict.header("X-Caller-Identity", "ann").send());
    assert!(conflict["isError"] == true && text(&conflict).contains("Idempotency-Key"), "{conflict}");
    let long = tenant.modern_request("tools/list", &json!({}), &json!({})).header("Conversation-Id", "x".repeat(129));
    error(&long.send(), 400, -32600, &json!(1));
}

#[test]
fn a_progress_token_is_short_since_every_message_repeats_it() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::median(&[median("echo", "low")]);
    tenant.endpoint("desk", &provider);
    let call = |token: String| {
        let params = json!({ "name": "echo", "arguments": {}, "_meta": { "progressToken": token } });
        tenant.modern_request("tools/call", &params, &json!({})).send()
    };
    result(&call("t".repeat(510)));
    let message = error(&call("t".repeat(511)), 400, -32602, &json!(1));
    assert!(message["message"].as_str().is_some_and(|text| text.contains("512")), "{message}");
}
