//! Approvals at the tenant's API: listed, shown, decided once. And the operations beside them.

use crate::support::gate::Gate;
use crate::support::manifests::median_with;
use crate::support::provider::Provider;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::{Arc, Barrier};

struct World {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
}

/// An organization with a tool that a teammate has to allow.
fn world() -> World {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let properties = json!({ "id": { "type": "integer" } });
    let provider = Provider::median(&[median_with("erase", "high", &properties)]);
    tenant.endpoint("medians", &provider);
    World { gate, tenant, provider }
}

/// A call that is held, and its approval.
fn held(tenant: &Tenant, id: u32) -> (Value, Value) {
    let request = tenant.run_request(&json!({ "tool": "erase", "args": { "id": id.to_string() } }));
    let run = request.header("X-Caller-Identity", "web:ann").header("Prefer", "wait=0").send().expect(202).json();
    assert_eq!(run["status"], "awaiting_approval");
    let approvals = tenant.items("/v1/approvals?state=open");
    let found = approvals.into_iter().find(|approval| approval["correlation_id"] == run["correlation_id"]);
    (run, found.expect("it is listed"))
}

fn path(approval: &Value) -> String {
    format!("/v1/approvals/{}", approval["id"].as_str().expect("an id"))
}

#[test]
fn an_approval_shows_what_is_asked() {
    let World { gate, tenant, provider: _provider } = world();
    assert!(tenant.items("/v1/approvals").is_empty());
    let (run, approval) = held(&tenant, 7);
    for (member, value) in [
        ("correlation_id", run["correlation_id"].clone()),
        ("tool", json!("erase")),
        ("endpoint", json!("medians")),
        ("arguments", json!({ "id": 7 })),
        ("caller", json!("web:ann")),
        ("risk", json!("high")),
        ("state", json!("open")),
    ] {
        assert_eq!(approval[member], value, "{member}: {approval}");
    }
    for member in ["expires_at", "created_at", "updated_at"] {
        assert!(approval[member].as_str().is_some_and(|time| time.ends_with('Z')), "{member}: {approval}");
    }
    assert!(approval["decided_by"].is_null() && approval["note"].is_null());
    let shown = tenant.get(&path(&approval)).expect(200);
    assert_eq!(shown.json(), approval);
    let etag = shown.header("etag").expect("an ETag").to_owned();
    tenant.request("GET", &path(&approval)).header("If-None-Match", &etag).send().expect(304);
    assert!(tenant.items("/v1/approvals?state=denied").is_empty());
    tenant.get("/v1/approvals?state=maybe").problem(400, "invalid_request");
    tenant.get("/v1/approvals/nobody").problem(404, "not_found");
    let stranger = gate.tenant("globex");
    stranger.get(&path(&approval)).problem(404, "not_found");
    stranger.post(&path(&approval), &json!({ "decision": "deny" })).problem(404, "not_found");
    assert!(stranger.items("/v1/approvals").is_empty());
    gate.get(&path(&approval)).key(&tenant.agent).send().problem(401, "unauthorized");
}

#[test]
fn a_denied_run_is_over_and_decided_once() {
    let World { gate: _gate, tenant, provider } = world();
    let (run, approval) = held(&tenant, 1);
    let path = path(&approval);
    for bad in [
        json!({}),
        json!({ "decision": "yes" }),
        json!({ "decision": "deny", "why": "x" }),
        json!({ "decision": "deny", "note": "x".repeat(1001) }),
    ] {
        tenant.post(&path, &bad).problem(400, "invalid_request");
    }
    let stale = tenant.request("POST", &path).json(&json!({ "decision": "deny" })).header("If-Match", "\"x\"");
    stale.send().problem(412, "precondition_failed");
    let denied = tenant.post(&path, &json!({ "decision": "deny", "note": "not today" })).expect(200);
    assert!(denied.header("etag").is_some());
    let denied = denied.json();
    assert_eq!((&denied["state"], &denied["note"]), (&json!("denied"), &json!("not today")));
    assert!(denied["decided_by"].is_string(), "{denied}");
    assert_eq!(tenant.get(&path).json(), denied);
    for decision in ["deny", "approve"] {
        tenant.post(&path, &json!({ "decision": decision })).problem(409, "already_decided");
    }
    let run = tenant.agent_run(&run);
    assert_eq!((&run["status"], &run["started"]), (&json!("denied"), &json!(false)));
    assert!(provider.calls().is_empty());
    assert!(tenant.items("/v1/approvals?state=open").is_empty());
    assert_eq!(tenant.items("/v1/approvals?state=denied").len(), 1);
}

#[test]
fn a_decision_under_a_key_is_made_once_and_answered_alike() {
    let World { gate: _gate, tenant, provider: _provider } = world();
    let (_, approval) = held(&tenant, 1);
    let decide = |decision: &str| {
        let request = tenant.request("POST", &path(&approval)).json(&json!({ "decision": decision }));
        request.header("Idempotency-Key", "d-1").send()
    };
    let first = decide("deny").expect(200);
    let again = decide("deny").expect(200);
    assert_eq!(again.header("idempotent-replay"), Some("true"));
    assert_eq!(again.body, first.body);
    decide("approve").problem(409, "operation_conflict");
}

#[test]
fn of_many_decisions_at_once_one_counts() {
    let World { gate: _gate, tenant, provider: _provider } = world();
    let (run, approval) = held(&tenant, 1);
    let start = Arc::new(Barrier::new(8));
    let deciders: Vec<_> = (0..8)
        .map(|_| {
            let (tenant, path, start) = (tenant.clone(), path(&approval), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                tenant.post(&path, &json!({ "decision": "deny" })).status
            })
        })
        .collect();
    let mut statuses: Vec<u16> = deciders.into_iter().map(|decider| decider.join().expect("answered")).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(tenant.agent_run(&run)["status"], "denied");
}

#[test]
fn operations_are_listed_and_found_by_id() {
    let World { gate: _gate, tenant, provider: _provider } = world();
    assert!(tenant.items("/v1/operations").is_empty());
    assert!(tenant.items("/v1/operations?state=uncertain").is_empty());
    tenant.get("/v1/operations?state=none").problem(400, "invalid_request");
    tenant.get("/v1/operations/nobody").problem(404, "not_found");
    tenant.get("/v1/operations/0198c2f0-0000-7000-8000-000000000000").problem(404, "not_found");
}
