//! At the decision everything is looked at again: what changed since the run was asked for is not carried out.

use crate::support::gate::Gate;
use crate::support::manifests::{having, median_with};
use crate::support::provider::Provider;
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::time::Duration;

struct World<'a> {
    gate: &'a Gate,
    tenant: Tenant,
    provider: Provider,
    endpoint: Registered,
    agent_key: String,
}

fn erase() -> Value {
    median_with("erase", "high", &json!({ "id": { "type": "integer" } }))
}

/// An organization of its own whose agent may erase by the group `erasers`.
fn world<'a>(gate: &'a Gate, slug: &str) -> World<'a> {
    let mut tenant = gate.tenant(slug);
    let provider = Provider::median(&[erase()]);
    let endpoint = tenant.endpoint("medians", &provider);
    for (name, tools) in [("erasers", "*"), ("readers", "find*")] {
        let group = json!({ "name": name, "rules": [{ "effect": "allow", "tools": [tools] }] });
        tenant.post("/v1/groups", &group).expect(201);
    }
    let made = tenant.post("/v1/agent-keys", &json!({ "name": "eraser", "groups": ["erasers"] })).expect(201).json();
    tenant.agent = made["key"].as_str().expect("shown once").to_owned();
    let agent_key = format!("/v1/agent-keys/{}", made["id"].as_str().expect("an id"));
    World { gate, tenant, provider, endpoint, agent_key }
}

impl World<'_> {
    fn rules(&self, rules: &Value) {
        self.tenant.request("PUT", "/v1/groups/erasers").json(&json!({ "name": "erasers", "rules": rules })).send();
    }

    fn endpoint_path(&self) -> String {
        format!("/v1/endpoints/{}", self.endpoint.id)
    }

    fn offer(&self, tools: &[Value]) {
        self.provider.offer(tools);
        assert_eq!(self.tenant.sync(&self.endpoint)["outcome"], "applied");
    }
}

type Change = fn(&World<'_>);

/// What takes the run's ground away, and what does not.
const CHANGES: [(&str, Change, bool); 15] = [
    ("key-revoked", |world| drop(world.tenant.delete(&world.agent_key).expect(204)), false),
    (
        "key-over",
        |world| {
            let end = json!({ "expires_at": "2026-01-12T13:50:00Z" });
            world.tenant.patch(&world.agent_key, &end).expect(200);
            world.gate.advance(Duration::from_secs(300));
        },
        false,
    ),
    ("other-groups", |world| drop(world.tenant.patch(&world.agent_key, &json!({ "groups": ["readers"] }))), false),
    ("allowed-no-more", |world| world.rules(&json!([{ "effect": "allow", "tools": ["find"] }])), false),
    (
        "denied",
        |world| world.rules(&json!([{ "effect": "allow", "tools": ["*"] }, { "effect": "deny", "risks": ["high"] }])),
        false,
    ),
    ("disabled", |world| drop(world.tenant.patch(&world.endpoint_path(), &json!({ "enabled": false }))), false),
    ("new-schema", |world| world.offer(&[median_with("erase", "high", &json!({ "id": { "type": "number" } }))]), false),
    ("new-words", |world| world.offer(&[having(erase(), "description", json!("Erases more"))]), false),
    ("gone", |world| world.offer(&[median_with("find", "low", &json!({}))]), false),
    (
        "elsewhere",
        |world| {
            // The same tool of another endpoint is another tool.
            world.offer(&[]);
            world.tenant.endpoint("others", &world.provider).body.to_string();
            world.provider.offer(&[erase()]);
            let others = world.tenant.items("/v1/endpoints").into_iter().find(|item| item["name"] == "others");
            let id = others.expect("it is registered")["id"].as_str().expect("an id").to_owned();
            let synced = world.tenant.request("POST", &format!("/v1/endpoints/{id}/sync")).send().expect(200).json();
            assert_eq!(synced["outcome"], "applied");
        },
        false,
    ),
    ("nothing", |_| {}, true),
    ("key-renamed", |world| drop(world.tenant.patch(&world.agent_key, &json!({ "name": "other" })).expect(200)), true),
    (
        "there-and-back",
        |world| {
            world.offer(&[having(erase(), "description", json!("Erases more"))]);
            world.offer(&[erase()]);
            world.tenant.patch(&world.agent_key, &json!({ "groups": ["readers"] })).expect(200);
            world.tenant.patch(&world.agent_key, &json!({ "groups": ["erasers"] })).expect(200);
        },
        true,
    ),
    ("one-more-tool", |world| world.offer(&[erase(), median_with("find", "low", &json!({}))]), true),
    (
        "no-manifest",
        |world| {
            // BerriAI/litellm#18134: a failed sync leaves the last good set.
            world.provider.manifest(crate::support::provider::Reply::text(500, ""));
            assert_eq!(world.tenant.sync(&world.endpoint)["outcome"], "failed");
        },
        true,
    ),
];

#[test]
fn what_changed_since_the_request_is_not_carried_out() {
    let gate = Gate::start();
    let mut worlds = Vec::new();
    for (what, change, goes_on) in CHANGES {
        let world = world(&gate, what);
        let (run, approval) = world.tenant.hold("erase", &json!({ "id": 7 }));
        change(&world);
        let decided = world.tenant.decide(&approval, "approve").expect(200).json();
        let shown = world.tenant.tenant_run(&run);
        if goes_on {
            assert_eq!(decided["state"], "approved", "{what}: {decided}");
            world.tenant.becomes(&run, "completed");
        } else {
            let seen = (&decided["state"], &decided["note"]);
            assert_eq!(seen, (&json!("denied"), &json!("changed_since_request")), "{what}: {decided}");
            assert_eq!(decided["decided_by"], "first", "{what}: who decided is told all the same");
            let seen = (&shown["status"], &shown["reason"], &shown["started"]);
            assert_eq!(seen, (&json!("denied"), &json!("changed_since_request"), &json!(false)), "{what}");
        }
        world.tenant.decide(&approval, "approve").problem(409, "already_decided");
        assert_eq!(world.provider.calls().len(), usize::from(goes_on), "{what}");
        worlds.push((what, world.provider, goes_on));
    }
    drop(gate.restart());
    for (what, provider, goes_on) in worlds {
        assert_eq!(provider.calls().len(), usize::from(goes_on), "{what}: nothing comes after");
    }
}

#[test]
fn a_no_needs_nothing_to_be_as_it_was() {
    let gate = Gate::start();
    let world = world(&gate, "acme");
    let (run, approval) = world.tenant.hold("erase", &json!({ "id": 7 }));
    world.tenant.delete(&world.agent_key).expect(204);
    world.offer(&[]);
    let denied = world.tenant.decide(&approval, "deny").expect(200).json();
    assert_eq!((&denied["state"], &denied["note"]), (&json!("denied"), &Value::Null));
    assert_eq!(world.tenant.tenant_run(&run)["reason"], "denied_by_teammate");
}

#[test]
fn nobody_decides_for_a_suspended_organization() {
    let gate = Gate::start();
    let world = world(&gate, "acme");
    let (run, approval) = world.tenant.hold("erase", &json!({ "id": 7 }));
    let org = format!("/admin/v1/orgs/{}", world.tenant.org_id);
    gate.operator("PATCH", &org, Some(&json!({ "state": "suspended" }))).expect(200);
    world.tenant.decide(&approval, "approve").problem(403, "forbidden");
    gate.operator("PATCH", &org, Some(&json!({ "state": "active" }))).expect(200);
    world.tenant.decide(&approval, "approve").expect(200);
    world.tenant.becomes(&run, "completed");
    assert_eq!(world.provider.calls().len(), 1);
}
