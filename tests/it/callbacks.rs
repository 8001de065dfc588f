//! Callbacks: late, early, doubled, failed, foreign, and after a restart.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, topology};
use crate::support::node::Node;
use crate::support::provider::{Latch, Provider, Reply, acknowledge};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

struct World {
    gate: Gate,
    provider: Provider,
    tenant: Tenant,
    endpoint: Registered,
    node: Node,
}

fn world() -> World {
    let gate = Gate::start();
    let checked = having(
        topology("checked", "query"),
        "output_schema",
        json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] }),
    );
    let provider = Provider::topology(&[topology("ask", "query"), checked]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let node = endpoint.node(&gate);
    World { gate, provider, tenant, endpoint, node }
}

fn id_of(run: &Value) -> &str {
    run["correlation_id"].as_str().expect("a correlation id")
}

#[test]
fn our_id_is_matched_first_and_the_providers_own_after_it() {
    let world = world();
    let (first, second) = (world.tenant.call("ask", &json!({})), world.tenant.call("ask", &json!({})));
    let status = |run: &Value| world.tenant.agent_run(run)["status"].clone();
    // The provider's id of the first run, our id of the second: ours counts.
    let both = json!({ "request_id": id_of(&second), "correlation_id": "prov-0", "status": "completed", "payload": 2 });
    world.node.deliver("m-1", &both).expect(202);
    assert_eq!((status(&first), status(&second)), (json!("pending"), json!("completed")));
    let theirs = json!({ "correlation_id": "prov-0", "status": "completed", "payload": 1 });
    world.node.deliver("m-2", &theirs).expect(202);
    assert_eq!(world.tenant.agent_run(&first)["result"], 1);
    assert_eq!(world.tenant.tenant_run(&first)["provider_correlation_id"], "prov-0");
}

// A callback can outrun the acknowledgement: pybotx#482, rpyc#136
#[test]
fn a_callback_that_outruns_the_answer_is_not_lost() {
    let world = world();
    for (what, by_ours) in [("ours", true), ("theirs", false)] {
        let reply = acknowledge("query", &format!("early-{what}"));
        let held = Arc::new(Latch::default());
        world.provider.next(Reply::Held(Arc::clone(&held), Box::new(reply)));
        let calls = world.provider.calls().len();
        let agent = world.tenant.clone();
        let running = std::thread::spawn(move || agent.call("ask", &json!({})));
        let call = eventually("the provider is called", || world.provider.calls().get(calls).cloned());
        let ours = call.json()["request_id"].as_str().expect("our id").to_owned();
        let mut data = json!({ "status": "completed", "payload": what });
        let (member, id) = if by_ours { ("request_id", ours) } else { ("correlation_id", format!("early-{what}")) };
        data[member] = json!(id);
        world.node.deliver(&format!("m-{what}"), &data).expect(202);
        held.open();
        let run = running.join().expect("the run is answered");
        let done = eventually("the early result finds its run", || {
            Some(world.tenant.agent_run(&run)).filter(|run| run["status"] == "completed")
        });
        assert_eq!(done["result"], what);
    }
}

#[test]
fn an_unmatched_callback_is_kept_for_120_seconds() {
    let world = world();
    let data = |id: &str| json!({ "correlation_id": id, "status": "completed", "payload": id });
    world.node.deliver("m-kept", &data("kept")).expect(202);
    world.gate.advance(Duration::from_secs(119));
    world.provider.next(acknowledge("query", "kept"));
    let run = world.tenant.call("ask", &json!({}));
    eventually("the kept result is delivered", || (world.tenant.agent_run(&run)["result"] == "kept").then_some(()));
    world.node.deliver("m-lost", &data("lost")).expect(202);
    world.gate.advance(Duration::from_secs(121));
    world.provider.next(acknowledge("query", "lost"));
    let run = world.tenant.call("ask", &json!({}));
    assert_eq!(run["status"], "pending");
    assert_eq!(world.tenant.agent_run(&run)["status"], "pending");
}

#[test]
fn the_first_result_wins_and_a_message_counts_once() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    for (message, payload) in [("m-1", 1), ("m-1", 1), ("m-1", 2), ("m-2", 3)] {
        let answer = world.node.complete(message, id_of(&run), &json!(payload)).expect(202);
        assert_eq!(answer.json(), json!({ "accepted": true }), "the sender learns nothing of it");
        assert_eq!(world.tenant.agent_run(&run)["result"], 1);
    }
    let failed = json!({ "request_id": id_of(&run), "status": "failed", "error": { "code": "x", "message": "y" } });
    world.node.deliver("m-3", &failed).expect(202);
    assert_eq!(world.tenant.agent_run(&run)["status"], "completed");
}

#[test]
fn a_failure_is_handed_on_as_it_is() {
    let world = world();
    let run = world.tenant.call("checked", &json!({}));
    let error = json!({ "code": "no_such_city", "message": "Atlantis sank", "hint": { "try": ["Athens"] } });
    // IBM/mcp-context-forge#4135: the output schema does not hide a real error.
    let data = json!({ "request_id": id_of(&run), "status": "failed", "error": error, "payload": "partial" });
    world.node.deliver("m-1", &data).expect(202);
    let done = world.tenant.agent_run(&run);
    assert_eq!((&done["status"], &done["error"], &done["result"]), (&json!("failed"), &error, &json!("partial")));
    let bare = world.tenant.call("ask", &json!({}));
    world.node.deliver("m-2", &json!({ "request_id": id_of(&bare), "status": "failed" })).expect(202);
    assert_eq!(world.tenant.agent_run(&bare)["error"]["code"], "provider_error");
}

#[test]
fn a_result_that_breaks_its_schema_is_for_the_tenants_eyes_only() {
    let world = world();
    let run = world.tenant.call("checked", &json!({}));
    world.node.complete("m-1", id_of(&run), &json!({ "n": "private-words" })).expect(202);
    let seen = world.tenant.agent_run(&run);
    assert_eq!((&seen["status"], &seen["error"]["code"]), (&json!("failed"), &json!("output_invalid")));
    assert!(!seen.to_string().contains("private-words"), "{seen}");
    let shown = world.tenant.tenant_run(&run);
    assert!(shown.to_string().contains("private-words"), "{shown}");
    let good = world.tenant.call("checked", &json!({}));
    world.node.complete("m-2", id_of(&good), &json!({ "n": 1 })).expect(202);
    assert_eq!(world.tenant.agent_run(&good)["result"], json!({ "n": 1 }));
}

#[test]
fn a_payload_keeps_every_digit_and_space() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let payload = r#"{"big":725653563933458432123456789,"exact":1.50,"tiny":1e-400,"ß":"ü","b":1,"a":2}"#;
    let body = format!(
        r#"{{"type":"tool.result","timestamp":"2026-01-12T13:46:40Z","data":{{"request_id":"{}","status":"completed","payload":{payload}}}}}"#,
        id_of(&run)
    );
    world.node.deliver_bytes("m-1", body.as_bytes()).expect(202);
    for answer in [
        world.tenant.agent_request("GET", &format!("/mcp/runs/{}", id_of(&run))).send(),
        world.tenant.get(&format!("/v1/runs/{}", id_of(&run))),
    ] {
        assert!(answer.text().contains(payload), "{}", answer.text());
    }
}

#[test]
fn a_message_of_the_wrong_shape_is_refused() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let good = json!({ "type": "tool.result", "timestamp": "2026-01-12T13:46:40Z",
        "data": { "request_id": id_of(&run), "status": "completed", "payload": 1 } });
    let changed = |pointer: &str, value: Value| {
        let mut body = good.clone();
        *body.pointer_mut(pointer).expect("it is there") = value;
        body.to_string()
    };
    let bodies = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        changed("/type", json!("tool.review")),
        changed("/data", json!([])),
        changed("/data/status", json!("done")),
        changed("/data/request_id", json!(7)),
        changed("/data/request_id", json!("")),
        good.to_string().replace("\"payload\"", "\"status\":\"failed\",\"payload\""),
        json!({ "type": "tool.result", "data": { "status": "completed", "payload": 1 } }).to_string(),
    ];
    for (index, body) in bodies.iter().enumerate() {
        let answer = world.node.deliver_bytes(&format!("m-{index}"), body.as_bytes());
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    assert_eq!(world.tenant.agent_run(&run)["status"], "pending");
    let strange = changed("/data/payload", json!({ "deep": [] })).replacen('{', "{\"later\":[1],", 1);
    world.node.deliver_bytes("m-good", strange.as_bytes()).expect(202);
    assert_eq!(world.tenant.agent_run(&run)["status"], "completed", "unknown members are ignored");
}

// Dekaf#655: what comes late is recorded as late.
#[test]
fn a_run_expires_by_the_clock_and_a_later_callback_changes_nothing() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    world.gate.advance(Duration::from_secs(14 * 60 + 59));
    assert_eq!(world.tenant.agent_run(&run)["status"], "pending");
    world.gate.advance(Duration::from_secs(3));
    let expired =
        eventually("the run expires", || Some(world.tenant.agent_run(&run)).filter(|run| run["status"] == "expired"));
    assert!(expired["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{expired}");
    world.node.complete("m-late", id_of(&run), &json!("late")).expect(202);
    let still = world.tenant.agent_run(&run);
    assert_eq!((&still["status"], still.get("result")), (&json!("expired"), None));
}

#[test]
fn a_tool_can_stay_pending_longer_or_shorter() {
    let world = world();
    world.tenant.patch("/v1/tools/ask", &json!({ "pending_ttl_ms": 60_000 })).expect(200);
    world.tenant.patch("/v1/tools/checked", &json!({ "pending_ttl_ms": 3_600_000 })).expect(200);
    world.tenant.patch("/v1/tools/ask", &json!({ "pending_ttl_ms": 86_400_001 })).problem(400, "invalid_request");
    let (short, long) = (world.tenant.call("ask", &json!({})), world.tenant.call("checked", &json!({})));
    world.gate.advance(Duration::from_secs(62));
    eventually("the short one expires", || (world.tenant.agent_run(&short)["status"] == "expired").then_some(()));
    world.gate.advance(Duration::from_secs(3400));
    assert_eq!(world.tenant.agent_run(&long)["status"], "pending");
}

#[test]
fn a_callback_never_reaches_another_endpoint_or_organization() {
    let world = world();
    let second = Provider::topology(&[topology("other", "query")]);
    let foreign = Provider::topology(&[topology("ask", "query")]);
    let other = world.gate.tenant("other");
    let second = world.tenant.endpoint("second", &second).node(&world.gate);
    let foreign = other.endpoint("tools", &foreign).node(&world.gate);
    let run = world.tenant.call("ask", &json!({}));
    for (index, node) in [&second, &foreign].into_iter().enumerate() {
        node.complete(&format!("m-{index}"), id_of(&run), &json!("stolen")).expect(202);
        let theirs = json!({ "correlation_id": "prov-0", "status": "completed", "payload": "stolen" });
        node.deliver(&format!("n-{index}"), &theirs).expect(202);
    }
    assert_eq!(world.tenant.agent_run(&run)["status"], "pending");
    world.node.complete("m-own", id_of(&run), &json!("own")).expect(202);
    assert_eq!(world.tenant.agent_run(&run)["result"], "own");
}

#[test]
fn a_disabled_endpoint_still_takes_the_results_of_its_pending_runs() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let path = format!("/v1/endpoints/{}", world.endpoint.id);
    world.tenant.patch(&path, &json!({ "enabled": false })).expect(200);
    world.node.complete("m-1", id_of(&run), &json!("still")).expect(202);
    assert_eq!(world.tenant.agent_run(&run)["result"], "still");
}

#[test]
fn a_suspended_organizations_results_are_recorded() {
    let world = world();
    let run = world.tenant.call("ask", &json!({}));
    let path = format!("/admin/v1/orgs/{}", world.tenant.org_id);
    world.gate.operator("PATCH", &path, Some(&json!({ "state": "suspended" }))).expect(200);
    world.node.complete("m-1", id_of(&run), &json!("kept")).expect(202);
    world.gate.operator("PATCH", &path, Some(&json!({ "state": "active" }))).expect(200);
    assert_eq!(world.tenant.agent_run(&run)["result"], "kept");
}

#[test]
fn unmatched_callbacks_of_one_endpoint_are_bounded() {
    let world = world();
    let early = |index: usize| {
        let data = json!({ "correlation_id": format!("e-{index}"), "status": "completed" });
        world.node.deliver(&format!("m-{index}"), &data)
    };
    for index in 0..1000 {
        early(index).expect(202);
    }
    let answer = early(1000);
    answer.problem(429, "rate_limited");
    // A run that is known is served all the same.
    let run = world.tenant.call("ask", &json!({}));
    world.node.complete("m-own", id_of(&run), &json!("own")).expect(202);
    assert_eq!(world.tenant.agent_run(&run)["result"], "own");
}
