//! The order of checks, and every limit on the way in.

use crate::support::client::Answer;
use crate::support::gate::Gate;
use crate::support::manifests::topology_with;
use crate::support::provider::Provider;
use crate::support::raw;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};

const LIMIT: usize = 2000;

fn world() -> (Gate, Provider, Tenant) {
    let gate = Gate::with(&[("LIMITS__RUN_BODY_BYTES", "2000")]);
    let strict = json!({ "type": "object", "properties": { "n": { "type": "integer" }, "text": { "type": "string" } },
        "additionalProperties": false });
    let provider = Provider::topology(&[topology_with("strict", "command", &strict)]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    (gate, provider, tenant)
}

#[test]
fn checks_come_in_the_order_of_the_contract() {
    let (gate, _provider, tenant) = world();
    let limits = json!({ "agent_key_per_second": 1, "agent_key_per_second_burst": 1 });
    let key = tenant.agent_key(&json!({ "name": "slow", "groups": ["default"], "limits": limits }));
    let good = format!("X-Auth: {key}");
    let bad = "X-Auth: tg_ag_nobody";
    let heavy = format!("X-Padding: {}", "p".repeat(20 * 1024));
    let (json_type, text_type) = ("Content-Type: application/json", "Content-Type: text/plain");
    let too_large = vec![b'['; LIMIT + 1];
    let send =
        |method: &str, headers: &[&str], body: &[u8]| raw::request(gate.url(), method, "/mcp/run", headers, body);
    let expect = |answer: Answer, status: u16, code: &str| {
        answer.problem(status, code);
    };
    // Every request has every later fault as well.
    expect(send("PUT", &[bad, &heavy, text_type], &too_large), 401, "unauthorized");
    expect(send("PUT", &[&good, &heavy, text_type], &too_large), 431, "headers_too_large");
    expect(send("PUT", &[&good, text_type], &too_large), 405, "method_not_allowed");
    expect(send("POST", &[&good, text_type], &too_large), 415, "unsupported_media_type");
    expect(send("POST", &[&good, json_type], &too_large), 413, "too_large");
    // None of these was charged: the one request of the burst is still there.
    expect(send("POST", &[&good, json_type], b"{\"tool\":\"nobody\",\"args\":[}"), 400, "invalid_json");
    expect(send("POST", &[&good, json_type], b"{\"tool\":\"nobody\",\"args\":[}"), 429, "rate_limited");
    expect(send("POST", &[&good, json_type], &too_large), 413, "too_large");

    let roomy = format!("X-Auth: {}", tenant.agent);
    expect(send("POST", &[&roomy, json_type], b"{\"tool\":\"nobody\",\"args\":[]}"), 400, "invalid_request");
    expect(send("POST", &[&roomy, json_type], b"{\"tool\":\"nobody\",\"args\":{\"n\":[]}}"), 404, "unknown_tool");
    expect(send("POST", &[&roomy, json_type], b"{\"tool\":\"strict\",\"args\":{\"n\":[]}}"), 422, "invalid_arguments");
}

#[test]
fn a_wrong_method_names_the_right_ones() {
    let (_gate, _provider, tenant) = world();
    let answer = tenant.agent_request("GET", "/mcp/run").send();
    answer.problem(405, "method_not_allowed");
    assert!(answer.header("allow").is_some_and(|allow| allow.contains("POST")), "{:?}", answer.headers);
}

#[test]
fn media_types_are_compared_without_case() {
    let (_gate, provider, tenant) = world();
    let body = json!({ "tool": "strict" }).to_string();
    // tyk#8539
    for good in ["application/json", "Application/JSON", "application/json; charset=utf-8", "APPLICATION/json ;x=y"] {
        let answer = tenant.agent_request("POST", "/mcp/run").text(good, body.as_str()).send();
        assert_eq!(answer.status, 202, "{good}: {}", answer.text());
    }
    let calls = provider.calls().len();
    for bad in
        ["text/plain", "application/jsonx", "application/json-patch+json", "application/x-www-form-urlencoded", "json"]
    {
        let answer = tenant.agent_request("POST", "/mcp/run").text(bad, body.as_str()).send();
        assert_eq!(answer.status, 415, "{bad}: {}", answer.text());
        answer.problem(415, "unsupported_media_type");
    }
    let without = tenant.agent_request("POST", "/mcp/run").body(body.as_str()).send();
    without.problem(415, "unsupported_media_type");
    // The rules behind the media type hold whatever its case.
    let refused =
        tenant.agent_request("POST", "/mcp/run").text("APPLICATION/JSON", r#"{"tool":"strict","args":{"n":{}}}"#);
    refused.send().problem(422, "invalid_arguments");
    assert_eq!(provider.calls().len(), calls);
}

#[test]
fn no_body_needs_no_media_type() {
    let (gate, _provider, tenant) = world();
    let endpoint = tenant.items("/v1/endpoints").remove(0);
    let path = format!("/v1/endpoints/{}/sync", endpoint["id"].as_str().expect("an id"));
    let key = format!("X-Auth: {}", tenant.workspace);
    raw::request(gate.url(), "POST", &path, &[&key], b"").expect(200);
    for framing in ["", "Transfer-Encoding: chunked\r\n"] {
        let end = if framing.is_empty() { "" } else { "0\r\n\r\n" };
        let request = format!("POST {path} HTTP/1.1\r\nHost: gateway\r\n{key}\r\n{framing}\r\n{end}");
        raw::exchange(gate.url(), request.as_bytes()).expect(200);
    }
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: gateway\r\n{key}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
    );
    raw::exchange(gate.url(), text.as_bytes()).problem(415, "unsupported_media_type");
}

// supergateway#163: over the limit is 413 and names the limit; the limit itself passes.
#[test]
fn a_body_over_its_limit_is_413_and_the_limit_passes() {
    let (gate, provider, tenant) = world();
    let frame = json!({ "tool": "strict", "args": { "text": "" } }).to_string().len();
    let body = |length: usize| json!({ "tool": "strict", "args": { "text": "x".repeat(length - frame) } }).to_string();
    let run = |length: usize| {
        assert_eq!(body(length).len(), length);
        tenant.agent_request("POST", "/mcp/run").text("application/json", body(length)).send()
    };
    run(LIMIT).expect(202);
    let problem = run(LIMIT + 1).problem(413, "too_large");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("2000")), "{problem}");
    assert_eq!(provider.calls().len(), 1);

    // Without an announced length the bytes are counted as they come.
    let chunked = |body: &str| {
        let head = format!(
            "POST /mcp/run HTTP/1.1\r\nHost: gateway\r\nX-Auth: {}\r\nContent-Type: application/json\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            tenant.agent,
            body.len()
        );
        raw::exchange(gate.url(), head.as_bytes())
    };
    chunked(&body(LIMIT)).expect(202);
    chunked(&body(LIMIT + 1)).problem(413, "too_large");
    assert_eq!(provider.calls().len(), 2);
}

#[test]
fn an_announced_length_over_the_limit_is_refused_unread() {
    let (gate, _provider, tenant) = world();
    let head = format!(
        "POST /mcp/run HTTP/1.1\r\nHost: gateway\r\nX-Auth: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 99999999\r\n\r\n{{",
        tenant.agent
    );
    raw::exchange(gate.url(), head.as_bytes()).problem(413, "too_large");
}

#[test]
fn a_header_block_over_its_limit_is_431() {
    let (gate, _provider, tenant) = world();
    let get = |padding: usize| {
        let padding = format!("X-Padding: {}", "p".repeat(padding));
        raw::request(gate.url(), "GET", "/mcp/manifest.json", &[&format!("X-Auth: {}", tenant.agent), &padding], b"")
    };
    get(15 * 1024).expect(200);
    let problem = get(17 * 1024).problem(431, "headers_too_large");
    assert!(problem.to_string().contains("16384"), "{problem}");
}

#[test]
fn a_head_that_is_no_http_gets_a_bare_400() {
    let (gate, _provider, tenant) = world();
    for head in [
        "GARBAGE\r\n\r\n",
        "GET /mcp/manifest.json HTTP/9.9\r\nHost: g\r\n\r\n",
        "POST /mcp/run HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ] {
        let answer = raw::exchange(gate.url(), head.as_bytes());
        assert_eq!(answer.status / 100, 4, "{head:?}: {}", answer.text());
    }
    tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200);
}

#[test]
fn a_turn_is_a_text_or_an_integer() {
    let (_gate, provider, tenant) = world();
    let run = |turn: &Value| tenant.run(&json!({ "tool": "strict", "context": { "turn": turn } }));
    for bad in [json!(1.5), json!(true), json!([1]), json!({}), json!("t".repeat(129))] {
        let problem = run(&bad).problem(400, "invalid_request");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("context.turn")), "{problem}");
    }
    assert!(provider.calls().is_empty());
    for good in [json!("t-1"), json!(7), json!(-7), json!(u64::MAX), Value::Null] {
        let answer = run(&good);
        assert!(answer.status != 400, "{good}: {}", answer.text());
    }
}
