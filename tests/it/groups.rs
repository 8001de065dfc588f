//! Groups: what is listed is exactly what is callable.

use crate::support::gate::Gate;
use crate::support::manifests::{having, median, topology};
use crate::support::provider::Provider;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};

const TOOLS: [&str; 8] = [
    "topology:mail-send",
    "topology:mail-read",
    "topology:pay",
    "topology:pay-back",
    "topology:weather",
    "median:find",
    "median:refund",
    "median:erase",
];

fn providers() -> [Provider; 2] {
    let topologies = Provider::topology(&[
        topology("mail-send", "command"),
        topology("mail-read", "query"),
        having(topology("pay", "command"), "requires_confirmation", json!(true)),
        topology("pay-back", "command"),
        topology("weather", "query"),
    ]);
    let medians = Provider::median(&[median("find", "low"), median("refund", "medium"), median("erase", "high")]);
    [topologies, medians]
}

fn agent_of(tenant: &Tenant, groups: &[(&str, Value)]) -> Tenant {
    for (name, rules) in groups {
        tenant.post("/v1/groups", &json!({ "name": name, "rules": rules })).expect(201);
    }
    let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
    tenant.as_agent(&tenant.agent_key(&json!({ "name": names.join("-"), "groups": names })))
}

/// Groups by name and rules, and the tools that a key of them sees.
type Case = (Vec<(&'static str, Value)>, Vec<&'static str>);

fn cases() -> Vec<Case> {
    let allow = |rule: Value| {
        let mut rule = rule;
        rule["effect"] = json!("allow");
        rule
    };
    let deny = |rule: Value| {
        let mut rule = rule;
        rule["effect"] = json!("deny");
        rule
    };
    vec![
        (vec![("none", json!([]))], vec![]),
        (vec![("all", json!([allow(json!({ "tools": ["*"] }))]))], TOOLS.to_vec()),
        (vec![("open", json!([allow(json!({}))]))], TOOLS.to_vec()),
        (
            vec![("globs", json!([allow(json!({ "tools": ["mail-*", "*ay"] }))]))],
            vec!["topology:mail-send", "topology:mail-read", "topology:pay"],
        ),
        (vec![("case", json!([allow(json!({ "tools": ["Mail-*", "FIND"] }))]))], vec![]),
        (vec![("ids", json!([allow(json!({ "tools": ["topology:pay"] }))]))], vec![]),
        (
            vec![("and", json!([allow(json!({ "endpoints": ["medians"], "risks": ["low", "high"] }))]))],
            vec!["median:find", "median:erase"],
        ),
        (
            // A topology declares no risk and is no plain read: it counts as medium.
            vec![("risks", json!([allow(json!({ "risks": ["medium"] }))]))],
            vec![
                "topology:mail-send",
                "topology:mail-read",
                "topology:pay",
                "topology:pay-back",
                "topology:weather",
                "median:refund",
            ],
        ),
        (
            vec![(
                "denied",
                json!([deny(json!({ "tools": ["pay*"] })), allow(json!({ "endpoints": ["topologies"] }))]),
            )],
            vec!["topology:mail-send", "topology:mail-read", "topology:weather"],
        ),
        (
            // Any of the groups allows, none of them denies.
            vec![
                ("mail", json!([allow(json!({ "tools": ["mail-*", "find"] }))])),
                ("rest", json!([allow(json!({ "tools": ["weather"] })), deny(json!({ "tools": ["mail-send"] }))])),
            ],
            vec!["topology:mail-read", "topology:weather", "median:find"],
        ),
    ]
}

// IBM/mcp-context-forge#1915, #6015: one filter for listing and calling.
#[test]
fn what_is_listed_is_exactly_what_is_callable() {
    let gate = Gate::start();
    let [topologies, medians] = providers();
    let tenant = gate.tenant("acme");
    tenant.endpoint("topologies", &topologies);
    tenant.endpoint("medians", &medians);
    for (groups, visible) in cases() {
        let agent = agent_of(&tenant, &groups);
        let mut expected: Vec<&str> = visible;
        expected.sort_unstable();
        assert_eq!(agent.listed(), expected, "{groups:?}");
        for id in TOOLS {
            let bare = id.split_once(':').expect("an id").1;
            for name in [id, bare] {
                // A tool that a person is asked about is held: that says enough.
                let answer = agent.run_request(&json!({ "tool": name })).header("Prefer", "wait=0").send();
                let known = matches!(answer.status, 200 | 202);
                assert_eq!(known, expected.contains(&id), "{groups:?}: {name}: {}", answer.text());
                if !known {
                    answer.problem(404, "unknown_tool");
                }
            }
        }
    }
}

#[test]
fn a_changed_group_counts_from_the_next_request_on() {
    let gate = Gate::start();
    let [topologies, _] = providers();
    let tenant = gate.tenant("acme");
    tenant.endpoint("topologies", &topologies);
    let agent = agent_of(&tenant, &[("staff", json!([{ "effect": "allow", "tools": ["weather"] }]))]);
    assert_eq!(agent.listed(), ["topology:weather"]);
    let rules = json!([{ "effect": "allow", "tools": ["pay-back"] }]);
    let put = tenant.request("PUT", "/v1/groups/staff").json(&json!({ "name": "staff", "rules": rules })).send();
    put.expect(200);
    assert_eq!(agent.listed(), ["topology:pay-back"]);
    agent.run(&json!({ "tool": "weather" })).problem(404, "unknown_tool");
    agent.run(&json!({ "tool": "pay-back" })).expect(202);
}

#[test]
fn a_group_in_use_is_not_deleted() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    agent_of(&tenant, &[("staff", json!([]))]);
    tenant.delete("/v1/groups/staff").problem(409, "in_use");
    let keys = tenant.items("/v1/agent-keys");
    let key = keys.iter().find(|key| key["groups"] == json!(["staff"])).expect("the key of the group");
    tenant.delete(&format!("/v1/agent-keys/{}", key["id"].as_str().expect("an id"))).expect(204);
    tenant.delete("/v1/groups/staff").expect(204);
    tenant.get("/v1/groups/staff").problem(404, "not_found");
    let unknown = tenant.post("/v1/agent-keys", &json!({ "name": "k", "groups": ["staff"] }));
    assert!(matches!(unknown.status, 400 | 404), "{}", unknown.text());
}

#[test]
fn explain_says_why() {
    let gate = Gate::start();
    let [topologies, medians] = providers();
    let tenant = gate.tenant("acme");
    tenant.endpoint("topologies", &topologies);
    let off = tenant.endpoint("medians", &medians);
    tenant.patch(&format!("/v1/endpoints/{}", off.id), &json!({ "enabled": false })).expect(200);
    let rules = json!([{ "effect": "allow", "tools": ["mail-*"] }, { "effect": "deny", "tools": ["mail-send"] },
        { "effect": "allow", "endpoints": ["medians"] }]);
    agent_of(&tenant, &[("staff", rules)]);
    let keys = tenant.items("/v1/agent-keys");
    let key = keys.iter().find(|key| key["groups"] == json!(["staff"])).expect("the key of the group");
    let id = key["id"].as_str().expect("an id").to_owned();
    let explain = |tool: &str| tenant.get(&format!("/v1/explain?agent_key={id}&tool={tool}")).expect(200).json();
    for (tool, visible, reason) in [
        ("mail-read", true, "allowed"),
        ("mail-send", false, "denied_by_rule"),
        ("weather", false, "no_rule"),
        ("never-was", false, "not_found"),
        ("find", false, "endpoint_disabled"),
    ] {
        let said = explain(tool);
        assert_eq!((&said["visible"], &said["callable"]), (&json!(visible), &json!(visible)), "{tool}: {said}");
        assert_eq!(said["reason"], reason, "{tool}: {said}");
    }
    assert_eq!(explain("mail-read")["group"], "staff");
    tenant.delete(&format!("/v1/agent-keys/{id}")).expect(204);
    assert_eq!(explain("mail-read")["reason"], "key_revoked");
}
