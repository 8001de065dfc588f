//! A tool that cannot be seen: one answer, whatever the reason.

use crate::support::client::Answer;
use crate::support::gate::Gate;
use crate::support::manifests::{having, topology};
use crate::support::provider::Provider;
use serde_json::{Value, json};

/// An answer byte by byte, less what belongs to the one request.
fn bare(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let own = ["date", "x-request-id", "ratelimit"];
    let mut headers: Vec<(String, String)> = answer.headers.clone();
    headers.retain(|(name, _)| !own.contains(&name.to_ascii_lowercase().as_str()));
    headers.sort();
    let trace = answer.json()["trace_id"].as_str().expect("a trace id").to_owned();
    (answer.status, headers, answer.text().replace(&trace, ""))
}

// IBM/mcp-context-forge#1915, #6015
#[test]
fn one_answer_for_every_tool_that_is_not_there() {
    let gate = Gate::start();
    let (tenant, other) = (gate.tenant("acme"), gate.tenant("other"));
    let open = Provider::topology(&[topology("open", "command"), topology("secret", "command")]);
    let foreign = Provider::topology(&[topology("foreign", "command")]);
    let disabled = Provider::topology(&[topology("disabled", "command")]);
    let reviewed = Provider::topology(&[topology("first", "command")]);
    tenant.endpoint("open", &open);
    other.endpoint("foreign", &foreign);
    let off = tenant.endpoint("off", &disabled);
    tenant.patch(&format!("/v1/endpoints/{}", off.id), &json!({ "enabled": false })).expect(200);
    let held = tenant.register("held", &reviewed, &json!({ "tool_changes": "review" })).assert_connected();
    reviewed.offer(&[topology("first", "command"), topology("quarantined", "command")]);
    tenant.sync(&held);
    let rules = json!([{ "effect": "allow", "tools": ["*"] }, { "effect": "deny", "tools": ["secret"] }]);
    tenant.post("/v1/groups", &json!({ "name": "narrow", "rules": rules })).expect(201);
    let narrow = tenant.as_agent(&tenant.agent_key(&json!({ "name": "n", "groups": ["narrow"] })));

    let states: Vec<(Value, Value)> =
        tenant.items("/v1/tools").iter().map(|tool| (tool["name"].clone(), tool["state"].clone())).collect();
    assert!(states.contains(&(json!("quarantined"), json!("quarantined"))), "{states:?}");
    assert!(states.contains(&(json!("disabled"), json!("disabled"))), "{states:?}");

    let expected = bare(&narrow.run(&json!({ "tool": "never-was" })));
    assert_eq!(expected.0, 404);
    for name in
        ["secret", "foreign", "disabled", "quarantined", "toolgate_get_run", "", "median:first", "OPEN", "open "]
    {
        for tool in [name.to_owned(), format!("topology:{name}")] {
            let answer = narrow.run(&json!({ "tool": tool, "args": { "x": 1 }, "request_id": "r" }));
            assert_eq!(bare(&answer), expected, "{tool}");
        }
    }
    assert!(!expected.2.contains("never-was"), "the name is not repeated");
    narrow.run(&json!({ "tool": "open" })).expect(202);
    narrow.run(&json!({ "tool": "first" })).expect(202);
    for provider in [&foreign, &disabled] {
        assert!(provider.calls().is_empty());
    }
}

// BerriAI/litellm#16908: a name is looked up, never split.
#[test]
fn a_name_is_never_split_at_a_separator() {
    let gate = Gate::start();
    let get = Provider::topology(&[topology("catalog-entity", "command")]);
    let catalog = Provider::topology(&[topology("get-catalog-entity", "command")]);
    let prefixed = Provider::topology(&[topology("entity", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("get", &get);
    tenant.endpoint("catalog", &catalog);
    tenant.register("third", &prefixed, &json!({ "name_prefix": "list_" })).assert_connected();
    for (name, provider, own) in [
        ("get-catalog-entity", &catalog, "topology:get-catalog-entity"),
        ("catalog-entity", &get, "topology:catalog-entity"),
        ("topology:get-catalog-entity", &catalog, "topology:get-catalog-entity"),
    ] {
        tenant.call(name, &json!({}));
        assert_eq!(provider.last_call().json()["tool"], own, "{name}");
    }
    for name in
        ["get:catalog-entity", "get/catalog-entity", "get.catalog-entity", "catalog:entity", "list:entity", "entity"]
    {
        tenant.run(&json!({ "tool": name })).problem(404, "unknown_tool");
    }
}

#[test]
fn a_tool_that_is_back_is_known_again() {
    let gate = Gate::start();
    let provider = Provider::topology(&[having(topology("go", "command"), "llm_format", json!(true))]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let enabled = |on: bool| {
        tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &json!({ "enabled": on })).expect(200).json()
    };
    // maximhq/bifrost#4998: disabled tools are gone at once, on every surface.
    assert_eq!(enabled(false)["state"], "disabled");
    assert!(tenant.listed().is_empty());
    tenant.run(&json!({ "tool": "go" })).problem(404, "unknown_tool");
    assert_eq!(enabled(true)["state"], "connected");
    assert_eq!(tenant.listed(), ["topology:go"]);
    tenant.run(&json!({ "tool": "go" })).expect(202);
}
