//! Bodies of requests: one reading only, no number changed, no member overlooked.

use crate::support::client::Answer;
use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::provider::Provider;
use crate::support::tenant::Tenant;
use serde_json::json;

fn world() -> (Gate, Provider, Tenant) {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ok", "command"), topology("secret", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    (gate, provider, tenant)
}

fn run_text(tenant: &Tenant, body: impl Into<Vec<u8>>) -> Answer {
    tenant.agent_request("POST", "/mcp/run").text("application/json", body).send()
}

#[test]
fn a_body_with_two_readings_is_refused() {
    let (_gate, provider, tenant) = world();
    let cases: [(&str, &[u8]); 12] = [
        ("nothing", b""),
        ("half", br#"{"tool":"ok""#),
        ("a BOM", b"\xef\xbb\xbf{\"tool\":\"ok\"}"),
        ("trailing bytes", br#"{"tool":"ok"} x"#),
        ("two values", br#"{"tool":"ok"}{"tool":"ok"}"#),
        ("not UTF-8", b"{\"tool\":\"ok\xff\"}"),
        ("UTF-16", b"{\0\"\0t\0"),
        ("a member twice", br#"{"tool":"ok","tool":"secret"}"#),
        ("a member twice in args", br#"{"tool":"ok","args":{"a":1,"a":2}}"#),
        ("a member twice deep inside", br#"{"tool":"ok","args":{"a":[{"b":{"c":1,"c":1}}]}}"#),
        // docker/mcp-gateway#414
        ("a member twice, once escaped", br#"{"tool":"ok","\u0074ool":"secret"}"#),
        ("a member twice, escaped in args", br#"{"tool":"ok","args":{"name":1,"\u006eame":2}}"#),
    ];
    for (what, body) in cases {
        let answer = run_text(&tenant, body);
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        answer.problem(400, "invalid_json");
    }
    assert!(provider.calls().is_empty());
}

#[test]
fn members_are_case_sensitive_and_unknown_ones_are_named() {
    let (_gate, provider, tenant) = world();
    // docker/mcp-gateway#414
    let problem = run_text(&tenant, r#"{"tool":"ok","Tool":"secret"}"#).problem(400, "invalid_request");
    assert!(problem.to_string().contains("Tool"), "{problem}");
    let problem = run_text(&tenant, r#"{"tool":"ok","argz":{}}"#).problem(400, "invalid_request");
    assert!(problem.to_string().contains("argz"), "{problem}");
    for (path, body) in [
        ("/v1/groups", json!({ "name": "g", "rules": [], "colour": 1 })),
        ("/v1/groups", json!({ "name": "g", "rules": [{ "effect": "allow", "colour": [] }] })),
        ("/v1/agent-keys", json!({ "name": "k", "groups": ["default"], "colour": 1 })),
        (
            "/v1/endpoints",
            json!({ "name": "e", "dialect": "topology", "base_url": provider.url(),
            "auth": { "header": "X-Auth", "value": "v", "colour": 1 } }),
        ),
    ] {
        let problem = tenant.post(path, &body).problem(400, "invalid_request");
        assert!(problem.to_string().contains("colour"), "{path}: {problem}");
    }
    assert!(provider.calls().is_empty());
    // The context of a run is the agent's own.
    tenant.run(&json!({ "tool": "ok", "context": { "locale": "de", "mood": { "good": true } } })).expect(202);
}

#[test]
fn nesting_ends_at_64() {
    let (_gate, _provider, tenant) = world();
    // The outermost object and args are two levels.
    let nested = |levels: usize| {
        let inner = levels - 2;
        format!(r#"{{"tool":"ok","args":{{"a":{}{}}}}}"#, "[".repeat(inner), "]".repeat(inner))
    };
    run_text(&tenant, nested(64)).expect(202);
    run_text(&tenant, nested(65)).problem(400, "invalid_json");
    run_text(&tenant, nested(100_000)).problem(400, "invalid_json");
}

#[test]
fn numbers_are_exact_or_refused() {
    let (_gate, provider, tenant) = world();
    let kept = [
        "0",
        "-1",
        "9007199254740993",
        "725653563933458432",
        "18446744073709551615",
        "-9223372036854775808",
        "0.1",
        "123456789.012345",
        "-1.5",
        "1e300",
        "1.5e-300",
    ];
    for number in kept {
        run_text(&tenant, format!(r#"{{"tool":"ok","args":{{"n":{number}}}}}"#)).expect(202);
        let sent = provider.last_call();
        let sent = sent.json()["args"]["n"].clone();
        let value: serde_json::Value = serde_json::from_str(number).expect("a number");
        assert_eq!(sent.as_f64(), value.as_f64(), "{number}");
        if value.is_i64() || value.is_u64() {
            assert_eq!(sent.to_string(), number);
        }
    }
    let calls = provider.calls().len();
    let refused = [
        "18446744073709551616",
        "-9223372036854775809",
        "1.2345678901234567",
        "1e301",
        "1e-301",
        "1e400",
        "100000000000000000000000000000",
        "0.1234567890123456",
    ];
    for number in refused {
        let answer = run_text(&tenant, format!(r#"{{"tool":"ok","args":{{"deep":[{{"n":{number}}}]}}}}"#));
        let problem = answer.problem(400, "invalid_json").to_string();
        assert!(problem.contains("/args/deep/0/n"), "{number}: the place is named: {problem}");
        assert!(problem.contains("string"), "{number}: a way out is named: {problem}");
    }
    assert_eq!(provider.calls().len(), calls);
}

#[test]
fn what_is_no_json_number_is_no_json() {
    let (_gate, _provider, tenant) = world();
    for number in ["01", "1.", ".5", "+1", "NaN", "Infinity", "0x10", "1e", "--1"] {
        run_text(&tenant, format!(r#"{{"tool":"ok","args":{{"n":{number}}}}}"#)).problem(400, "invalid_json");
    }
}

#[test]
fn a_run_request_of_the_wrong_shape_is_refused() {
    let (_gate, provider, tenant) = world();
    let long = "x".repeat(129);
    for body in [
        json!([]),
        json!("ok"),
        json!({}),
        json!({ "tool": 1 }),
        json!({ "tool": "ok", "args": [] }),
        json!({ "tool": "ok", "args": "{}" }),
        json!({ "tool": "ok", "args": null }),
        json!({ "tool": "ok", "request_id": long }),
        json!({ "tool": "ok", "request_id": 7 }),
        json!({ "tool": "ok", "context": [] }),
        json!({ "tool": "ok", "confirmation": 1 }),
    ] {
        let answer = tenant.run(&body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        answer.problem(400, "invalid_request");
    }
    let run = || tenant.run_request(&json!({ "tool": "ok" }));
    run().header("X-Caller-Identity", "c".repeat(257)).send().problem(400, "invalid_request");
    run().header("X-Caller-Identity", "two words").send().problem(400, "invalid_request");
    run().header("Conversation-Id", &long).send().problem(400, "invalid_request");
    assert!(provider.calls().is_empty());
    run().header("X-Caller-Identity", "c".repeat(256)).header("Conversation-Id", &long[1..]).send().expect(202);
    let longest = tenant.run(&json!({ "tool": "ok", "request_id": &long[1..] })).expect(202).json();
    assert_eq!(longest["request_id"], long[1..], "the longest request id passes and comes back");
    assert_eq!(provider.last_call().json()["args"], json!({}), "absent args are an empty object");
}
