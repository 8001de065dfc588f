//! Syncs that fail: every kind keeps the last good tools, and says what to mend.

use crate::support::gate::Gate;
use crate::support::manifests::{having, median, median_manifest, median_with, topology, topology_with};
use crate::support::provider::{Provider, Reply, dead_url};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};

/// Syncs, and checks that it failed for this reason while the tools are still there and callable.
#[track_caller]
fn assert_keeps(tenant: &Tenant, endpoint: &Registered, reason: &str, what: &str) -> Value {
    let listed = tenant.listed();
    assert!(!listed.is_empty(), "there is a last good set");
    let sync = tenant.sync(endpoint);
    assert_eq!((&sync["outcome"], &sync["reason"]["code"]), (&json!("failed"), &json!(reason)), "{what}: {sync}");
    let message = sync["reason"]["message"].as_str().expect("a sentence");
    assert!(message.len() > 10, "{what}: {message}");
    // BerriAI/litellm#18134: a failed fetch is not an empty manifest.
    assert_eq!(tenant.listed(), listed, "{what}");
    let shown = tenant.show(endpoint);
    assert_eq!((&shown["state"], &shown["reason"]["code"]), (&json!("sync_failed"), &json!(reason)), "{what}");
    assert_eq!(shown["tool_count"], listed.len(), "{what}");
    let newest = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).remove(0);
    assert_eq!((&newest["trigger"], &newest["outcome"]), (&json!("api"), &json!("failed")), "{what}");
    assert_eq!(newest["reason"]["code"], reason, "{what}");
    sync
}

#[test]
fn a_topology_that_fails_keeps_its_last_good_tools() {
    let gate = Gate::with(&[("LIMITS__MANIFEST_FETCH_TIMEOUT_MS", "1500")]);
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let go = || topology("go", "command");
    let list = |items: &[Value]| Reply::json(200, &Value::from(items.to_vec()));
    let redirect = vec![("Location".to_owned(), provider.url())];
    let padded = having(go(), "description", json!("x".repeat(512_000)));
    let faults = [
        ("hangs up", Reply::Hangup, "unreachable"),
        ("404", Reply::text(404, "[]"), "bad_status"),
        ("500", Reply::text(500, "[]"), "bad_status"),
        ("503", Reply::text(503, "[]"), "bad_status"),
        ("204", Reply::text(204, ""), "bad_status"),
        ("a redirect", Reply::Http { status: 302, headers: redirect, body: Vec::new() }, "bad_status"),
        ("401", Reply::text(401, "[]"), "unauthorized"),
        ("403", Reply::text(403, "[]"), "unauthorized"),
        ("nothing", Reply::text(200, ""), "not_json"),
        ("HTML", Reply::text(200, "<html>"), "not_json"),
        ("half", Reply::text(200, "[{"), "not_json"),
        ("no HTTP", Reply::Raw(b"hello\r\n\r\n".to_vec()), "not_json"),
        ("an object", Reply::text(200, "{}"), "bad_manifest"),
        ("too much", list(&[padded]), "too_large"),
        ("a name twice", list(&[go(), go()]), "duplicate_name"),
        ("a bad name", list(&[go(), topology("Go", "command")]), "bad_name"),
        ("a name too long", list(&[topology(&"a".repeat(65), "command")]), "bad_name"),
        ("no schema", list(&[having(go(), "input_schema", Value::Null)]), "bad_schema"),
        // Kuadrant/mcp-gateway#662
        ("a type that is none", list(&[topology_with("go", "command", &json!({ "type": "int" }))]), "bad_schema"),
        (
            "a foreign reference",
            list(&[topology_with("go", "command", &json!({ "$ref": "http://127.0.0.1/x" }))]),
            "bad_schema",
        ),
        // Stranger6667/jsonschema#1130, #487
        (
            "a pattern no engine takes",
            list(&[topology_with("go", "command", &json!({ "properties": { "a": { "pattern": "[" } } }))]),
            "bad_schema",
        ),
        (
            "a pattern that looks back",
            list(&[topology_with("go", "command", &json!({ "properties": { "a": { "pattern": "(a)\\1" } } }))]),
            "bad_schema",
        ),
        (
            "a huge repetition",
            list(&[topology_with(
                "go",
                "command",
                &json!({ "properties": { "a": { "pattern": "^(a{0,60000}){0,60000}$" } } }),
            )]),
            "bad_schema",
        ),
        ("a reserved name", list(&[topology("toolgate-x", "command")]), "reserved_name"),
    ];
    for (what, reply, reason) in faults {
        provider.manifest(reply);
        assert_keeps(&tenant, &endpoint, reason, what);
    }
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    provider.manifest(Reply::Late(std::time::Duration::from_secs(4), Box::new(list(&[]))));
    assert_keeps(&tenant, &endpoint, "timeout", "too slow");
    provider.go_down();
    assert_keeps(&tenant, &endpoint, "unreachable", "refuses connections");
    // apache/maka#2663: the next good manifest heals.
    provider.come_back();
    provider.offer(&[go(), topology("stop", "command")]);
    let healed = tenant.sync(&endpoint);
    assert_eq!((&healed["outcome"], &healed["diff"]["added"]), (&json!("applied"), &json!(["stop"])));
    let shown = tenant.show(&endpoint);
    assert_eq!((&shown["state"], shown.get("reason").filter(|r| !r.is_null())), (&json!("connected"), None));
}

#[test]
fn a_median_manifest_is_taken_whole_or_refused() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("shop", &provider);
    let find = || median("find", "low");
    let list = |items: &[Value]| Reply::json(200, &median_manifest(items));
    let many: Vec<Value> = (0..21).map(|index| median(&format!("tool{index}"), "low")).collect();
    let schema = |schema: Value| list(&[having(find(), "inputSchema", schema)]);
    let faults = [
        ("no object", Reply::text(200, "[]"), "bad_manifest"),
        ("no tools", Reply::text(200, r#"{"version":1}"#), "bad_manifest"),
        ("no version", Reply::text(200, r#"{"tools":[]}"#), "unsupported_version"),
        ("version 2", Reply::text(200, r#"{"version":2,"tools":[]}"#), "unsupported_version"),
        ("version 1.0", Reply::text(200, r#"{"version":1.0,"tools":[]}"#), "unsupported_version"),
        ("version as text", Reply::text(200, r#"{"version":"1","tools":[]}"#), "unsupported_version"),
        ("21 tools", list(&many), "too_many_tools"),
        ("a name twice", list(&[find(), find()]), "duplicate_name"),
        ("a bad name", list(&[median("1find", "low")]), "bad_name"),
        ("a hyphen", list(&[median("find-it", "low")]), "bad_name"),
        ("a reserved name", list(&[median("requestHandoff", "low")]), "reserved_name"),
        ("no risk", list(&[having(find(), "risk", Value::Null)]), "bad_risk"),
        ("another risk", list(&[median("find", "extreme")]), "bad_risk"),
        ("no description", list(&[having(find(), "description", json!(""))]), "bad_description"),
        ("a long description", list(&[having(find(), "description", json!("😀".repeat(251)))]), "bad_description"),
        ("an open schema", schema(json!({ "type": "object", "properties": {} })), "bad_schema"),
        ("a nested schema", list(&[median_with("find", "low", &json!({ "a": { "type": "object" } }))]), "bad_schema"),
        (
            "an unknown requirement",
            schema(json!({ "type": "object", "properties": {}, "required": ["x"], "additionalProperties": false })),
            "bad_schema",
        ),
    ];
    for (what, reply, reason) in faults {
        provider.manifest(reply);
        assert_keeps(&tenant, &endpoint, reason, what);
    }
    let longest = having(find(), "description", json!("😀".repeat(250)));
    provider.offer(&[longest, median("RequestHandoff", "low")]);
    assert_eq!(tenant.sync(&endpoint)["outcome"], "applied", "UTF-16 units count, and reserved names are exact");
}

#[test]
fn a_reason_names_the_tool_and_what_is_wrong() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    // anthropics/claude-code#19882, sparfenyuk/mcp-proxy#45: refused at sync, with the name and the number.
    let long = format!("sixty-five-{}", "a".repeat(54));
    provider.offer(&[topology("go", "command"), topology(&long, "command")]);
    let sync = assert_keeps(&tenant, &endpoint, "bad_name", "too long");
    let message = sync["reason"]["message"].as_str().expect("a sentence");
    assert!(message.contains("sixty-five-") && message.contains("65") && message.contains("64"), "{message}");
    provider.offer(&[topology_with("broken", "command", &json!({ "type": "int" }))]);
    let sync = assert_keeps(&tenant, &endpoint, "bad_schema", "a type that is none");
    assert!(sync["reason"]["message"].as_str().is_some_and(|text| text.contains("broken")), "{sync}");
}

// chrishayuk/mcpjungle#278, agentgateway#1266: one dead endpoint spoils nothing but itself.
#[test]
fn a_dead_endpoint_is_isolated() {
    let gate = Gate::start();
    let (alive, dying) =
        (Provider::topology(&[topology("go", "command")]), Provider::topology(&[topology("die", "command")]));
    let tenant = gate.tenant("acme");
    tenant.endpoint("alive", &alive);
    let endpoint = tenant.endpoint("dying", &dying);
    let dead = json!({ "name": "dead", "dialect": "topology", "base_url": dead_url(), "auth": { "header": "X-Auth", "value": "v" } });
    let registered = tenant.post("/v1/endpoints", &dead).expect(201).json();
    assert_eq!((&registered["state"], &registered["reason"]["code"]), (&json!("sync_failed"), &json!("unreachable")));
    assert_eq!(registered["tool_count"], 0);
    dying.go_down();
    assert_eq!(tenant.sync(&endpoint)["outcome"], "failed");
    assert_eq!(tenant.listed(), ["topology:die", "topology:go"]);
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    assert_eq!(tenant.call("die", &json!({}))["error"]["code"], "endpoint_unavailable");
    assert_eq!(tenant.items("/v1/endpoints").len(), 3);
}

// apache/maka#2663
#[test]
fn one_broken_tool_does_not_freeze_later_syncs() {
    let gate = Gate::start();
    let broken = topology_with("broken", "command", &json!({ "properties": { "a": { "pattern": "[" } } }));
    let provider = Provider::topology(&[topology("go", "command"), broken.clone()]);
    let tenant = gate.tenant("acme");
    let strict = tenant.register("strict", &provider, &json!({}));
    assert_eq!((&strict.body["state"], &strict.body["reason"]["code"]), (&json!("sync_failed"), &json!("bad_schema")));
    let loose = Provider::topology(&[topology("run", "command"), broken]);
    let loose_endpoint = tenant.register("loose", &loose, &json!({ "sync": { "policy": "skip" } })).assert_connected();
    assert_eq!(tenant.listed(), ["topology:run"]);
    assert_eq!(loose_endpoint.body["skipped"][0]["tool"], "broken");
    let mended = topology("broken", "command");
    provider.offer(&[topology("go", "command")]);
    loose.offer(&[topology("run", "command"), mended]);
    assert_eq!(tenant.sync(&strict)["outcome"], "applied");
    assert_eq!(tenant.sync(&loose_endpoint)["diff"]["added"], json!(["broken"]));
    assert_eq!(tenant.listed(), ["topology:broken", "topology:go", "topology:run"]);
}

#[test]
fn an_address_that_is_not_allowed_is_never_called() {
    let gate = Gate::with(&[("EGRESS__DEFAULT_ALLOW", "false")]);
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.register("tools", &provider, &json!({}));
    assert_eq!(
        (&endpoint.body["state"], &endpoint.body["reason"]["code"]),
        (&json!("sync_failed"), &json!("blocked_address"))
    );
    assert!(provider.fetches().is_empty());
    let path = format!("/admin/v1/orgs/{}", tenant.org_id);
    gate.operator("PATCH", &path, Some(&json!({ "egress_allow": ["127.0.0.0/8"] }))).expect(200);
    assert_eq!(tenant.sync(&endpoint)["outcome"], "applied");
    // Its own listeners are out of bounds whatever is allowed.
    let own = json!({ "name": "own", "dialect": "topology", "base_url": gate.url(), "auth": { "header": "X-Auth", "value": "v" } });
    let own = tenant.post("/v1/endpoints", &own).expect(201).json();
    assert_eq!(own["reason"]["code"], "blocked_address");
}
