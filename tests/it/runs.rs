//! Runs, looked at and given up: by the agent that made them, and by the tenant.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology, topology_with};
use crate::support::node::Node;
use crate::support::provider::{Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

struct World {
    gate: Gate,
    provider: Provider,
    tenant: Tenant,
    node: Node,
}

fn world() -> World {
    let gate = Gate::start();
    let schema = json!({ "type": "object", "properties": { "days": { "type": "integer" } } });
    let provider = Provider::topology(&[topology_with("ask", "query", &schema), topology("act", "command")]);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    World { gate, provider, tenant, node }
}

fn path_of(run: &Value) -> String {
    format!("/mcp/runs/{}", run["correlation_id"].as_str().expect("a correlation id"))
}

fn id_of(run: &Value) -> &str {
    run["correlation_id"].as_str().expect("a correlation id")
}

#[test]
fn a_run_is_visible_to_the_key_that_made_it_only() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let other = world.gate.tenant("other");
    let nobody = second.agent_request("GET", "/mcp/runs/019bb2a5-0000-7000-8000-000000000000").send();
    let expected = nobody.problem(404, "not_found")["detail"].clone();
    for agent in [&second, &other] {
        for method in ["GET", "DELETE"] {
            let problem = agent.agent_request(method, &path_of(&run)).send().problem(404, "not_found");
            assert_eq!(problem["detail"], expected, "like a run that never was");
        }
    }
    other.get(&format!("/v1/runs/{}", id_of(&run))).problem(404, "not_found");
    assert!(other.items("/v1/runs").is_empty());
    for id in ["nobody", "%00", "019bb2a5"] {
        let answer = world.tenant.agent_request("GET", &format!("/mcp/runs/{id}")).send();
        assert!(matches!(answer.status, 400 | 404), "{id}: {}", answer.text());
    }
    assert_eq!(world.tenant.agent_run(&run)["status"], "pending", "and nobody cancelled it");
}

#[test]
fn waiting_ends_when_the_result_comes() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let request = world.tenant.agent_request("GET", &path_of(&run)).header("Prefer", "wait=55");
    let begun = Instant::now();
    let waiting = std::thread::spawn(move || request.send().expect(200).json());
    // Gives the waiter time to wait; the outcome is the same if it has not begun.
    std::thread::sleep(Duration::from_millis(300));
    world.node.complete("m-1", id_of(&run), &json!("there")).expect(202);
    let done = waiting.join().expect("answered");
    assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!("there")));
    assert!(begun.elapsed() < Duration::from_secs(20), "it was woken: {:?}", begun.elapsed());
}

#[test]
fn a_run_can_wait_for_its_callback() {
    let world = world();
    let request = world.tenant.run_request(&json!({ "tool": "ask" })).header("Prefer", "respond-async, wait=55");
    let waiting = std::thread::spawn(move || request.send().expect(200).json());
    let call = eventually("the provider is called", || world.provider.calls().pop());
    let ours = call.json()["request_id"].as_str().expect("our id").to_owned();
    world.node.complete("m-1", &ours, &json!([1])).expect(202);
    let done = waiting.join().expect("answered");
    assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!([1])));
}

#[test]
fn patience_ends() {
    let world = world();
    let begun = Instant::now();
    let request = world.tenant.run_request(&json!({ "tool": "ask" })).header("Prefer", "wait=1");
    let run = request.send().expect(202).json();
    assert_eq!(run["status"], "pending");
    let looked = world.tenant.agent_request("GET", &path_of(&run)).header("Prefer", "wait=1").send().expect(202).json();
    assert_eq!(looked["status"], "pending");
    let took = begun.elapsed();
    assert!((Duration::from_millis(1_900)..Duration::from_secs(10)).contains(&took), "{took:?}");
}

#[test]
fn a_pending_query_can_be_given_up() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let cancelled = world.tenant.agent_request("DELETE", &path_of(&run)).send().expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["correlation_id"]), (&json!("cancelled"), &run["correlation_id"]));
    // A late callback is recorded, not delivered.
    world.node.complete("m-1", id_of(&run), &json!("late-words")).expect(202);
    let still = world.tenant.agent_run(&run);
    assert_eq!(still["status"], "cancelled");
    assert!(!still.to_string().contains("late-words"));
    let again = world.tenant.agent_request("DELETE", &path_of(&run)).send().expect(200).json();
    assert_eq!(again, still, "a final run is returned unchanged");
}

#[test]
fn what_was_dispatched_or_is_final_is_not_given_up() {
    let world = world();
    let command = world.tenant.call("act", &json!({}));
    let query = world.tenant.call("ask", &json!({}));
    world.node.complete("m-1", id_of(&query), &json!(1)).expect(202);
    for (run, status) in [(&command, "started"), (&query, "completed")] {
        let answered = world.tenant.agent_request("DELETE", &path_of(run)).send().expect(200).json();
        assert_eq!(answered["status"], status);
    }
}

#[test]
fn a_held_run_can_be_given_up() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("erase", "high")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("shop", &provider);
    let run = tenant.call_held("erase", &json!({}));
    let cancelled = tenant.agent_request("DELETE", &path_of(&run)).send().expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["started"]), (&json!("cancelled"), &json!(false)));
    gate.advance(Duration::from_secs(3600));
    assert_eq!(tenant.agent_run(&run)["status"], "cancelled", "it does not expire any more");
    assert!(provider.calls().is_empty());
}

#[test]
fn an_endpoint_that_is_deleted_takes_its_open_runs_with_it() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let request = world.tenant.agent_request("GET", &path_of(&run)).header("Prefer", "wait=55");
    let begun = Instant::now();
    let waiting = std::thread::spawn(move || request.send().expect(200).json());
    let endpoint = world.tenant.items("/v1/endpoints").remove(0);
    let path = format!("/v1/endpoints/{}", endpoint["id"].as_str().expect("an id"));
    world.tenant.delete(&path).expect(204);
    assert_eq!(waiting.join().expect("answered")["status"], "cancelled");
    assert!(begun.elapsed() < Duration::from_secs(20), "whoever waited was woken: {:?}", begun.elapsed());
    assert_eq!(world.tenant.tenant_run(&run)["status"], "cancelled");
    world.node.complete("m-1", id_of(&run), &json!(1)).problem(401, "invalid_signature");
    world.tenant.get(&path).problem(404, "not_found");
    assert!(world.tenant.listed().is_empty());
}

#[test]
fn the_tenant_sees_more() {
    let world = world();
    let request = world.tenant.run_request(&json!({ "tool": "ask", "args": { "days": "3" }, "request_id": "mine" }));
    let run = request.header("X-Caller-Identity", "web:ann").send().expect(202).json();
    let shown = world.tenant.tenant_run(&run);
    for (member, value) in run.as_object().expect("an object") {
        assert_eq!(shown[member], *value, "the agent's view is part of it: {member}");
    }
    let keys = world.tenant.items("/v1/agent-keys");
    assert!(shown["agent_key"] == keys[0]["id"] || shown["agent_key"]["id"] == keys[0]["id"], "{shown}");
    assert_eq!(shown["caller"], "web:ann");
    assert_eq!(shown["arguments"], json!({ "sent": { "days": "3" }, "coerced": { "days": 3 } }));
    assert_eq!(shown["provider_correlation_id"], "prov-0");
    let attempts = shown["attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["http_status"], 202);
    assert_eq!(attempts[0]["at"], "2026-01-12T13:46:40.000Z");
    assert!(attempts[0]["duration_ms"].is_u64() && attempts[0]["outcome"].is_string());
    assert!(shown.get("finished_at").is_none_or(Value::is_null));
    world.gate.advance(Duration::from_secs(5));
    world.node.complete("m-1", id_of(&run), &json!(1)).expect(202);
    assert_eq!(world.tenant.tenant_run(&run)["finished_at"], "2026-01-12T13:46:45.000Z");
    let mine = world.tenant.agent_run(&run);
    for member in ["arguments", "attempts", "agent_key", "provider_correlation_id"] {
        assert_eq!(mine.get(member), None, "the agent does not see {member}");
    }
}

#[test]
fn runs_are_listed_newest_first() {
    let world = world();
    let mut made = Vec::new();
    for _ in 0..5 {
        world.gate.advance(Duration::from_secs(1));
        made.push(world.tenant.call("act", &json!({}))["correlation_id"].clone());
    }
    made.reverse();
    let ids = |items: Vec<Value>| -> Vec<Value> { items.iter().map(|run| run["correlation_id"].clone()).collect() };
    assert_eq!(ids(world.tenant.items("/v1/runs")), made);
    let page = world.tenant.get("/v1/runs?limit=3").expect(200).json();
    let cursor = page["next_cursor"].as_str().expect("there is more");
    let rest = world.tenant.items(&format!("/v1/runs?limit=3&cursor={cursor}"));
    assert_eq!(ids(rest), made[3..]);
}

#[test]
fn refused_requests_leave_no_run() {
    let world = world();
    world.tenant.run(&json!({ "tool": "nobody" })).expect(404);
    world.tenant.run(&json!({ "tool": "ask", "args": { "days": "many" } })).expect(422);
    world.tenant.run(&json!({ "tool": "ask", "args": [] })).expect(400);
    assert!(world.tenant.items("/v1/runs").is_empty());
    assert!(world.provider.calls().is_empty());
}

#[test]
fn a_wait_is_clamped_and_a_bad_one_is_no_wait() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    for prefer in ["wait", "wait=", "wait=soon", "wait=-1", "handling=lenient"] {
        let begun = Instant::now();
        world.tenant.agent_request("GET", &path_of(&run)).header("Prefer", prefer).send().expect(202);
        assert!(begun.elapsed() < Duration::from_secs(5), "{prefer}");
    }
    world.provider.next(Reply::Hangup);
    let lost = world.tenant.run_request(&json!({ "tool": "ask" })).header("Prefer", "wait=0").send().expect(202).json();
    assert_eq!(lost["status"], "pending");
}
