//! A teammate's approval: a run is held, decided about once, and what was approved is sent once.

use crate::support::client::Answer;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::median_with;
use crate::support::provider::{Latch, Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

struct World {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
    endpoint: crate::support::tenant::Registered,
}

/// An organization with two tools that a teammate has to allow, and one that just runs.
fn world() -> World {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let properties = json!({ "id": { "type": "integer" } });
    let tools = [("erase", "high"), ("wipe", "high"), ("find", "low")];
    let provider = Provider::median(&tools.map(|(name, risk)| median_with(name, risk, &properties)));
    let endpoint = tenant.endpoint("medians", &provider);
    World { gate, tenant, provider, endpoint }
}

/// A client that waits for the outcome as long as clients do that say nothing.
fn waiting(tenant: &Tenant, body: &Value) -> JoinHandle<Answer> {
    let request = tenant.run_request(body);
    std::thread::spawn(move || request.send())
}

fn erase(id: u32) -> Value {
    json!({ "tool": "erase", "args": { "id": id } })
}

/// The answer of a client that waited.
#[track_caller]
fn answered(client: JoinHandle<Answer>) -> Value {
    client.join().expect("it is answered").expect(200).json()
}

/// Several of these at once.
fn at_once<T: Send + 'static>(count: usize, act: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let (act, start) = (Arc::new(act), Arc::new(Barrier::new(count)));
    let threads: Vec<_> = (0..count)
        .map(|nth| {
            let (act, start) = (Arc::clone(&act), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                act(nth)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
}

#[test]
fn what_is_approved_is_sent_once_and_told_to_whoever_waits() {
    let World { gate: _gate, tenant, provider, .. } = world();
    let client = waiting(&tenant, &erase(7));
    let approval = tenant.the_approval();
    let looker = {
        let path = format!("/mcp/runs/{}", approval["correlation_id"].as_str().expect("an id"));
        let request = tenant.agent_request("GET", &path).header("Prefer", "wait=60");
        std::thread::spawn(move || request.send().json())
    };
    assert!(provider.calls().is_empty(), "nothing is sent before");
    let decided = tenant.decide(&approval, "approve").expect(200).json();
    let name = tenant.items("/v1/workspace-keys")[0]["name"].clone();
    assert_eq!((&decided["state"], &decided["decided_by"]), (&json!("approved"), &name));

    let run = answered(client);
    assert_eq!((&run["status"], &run["started"]), (&json!("completed"), &json!(true)), "{run}");
    assert_eq!(run["result"], json!({ "ok": true }));
    let sent = provider.last_call().json();
    assert_eq!(sent["context"]["approval"], json!({ "kind": "teammate", "by": name }));
    assert_eq!((&sent["input"], &sent["callId"]), (&json!({ "id": 7 }), &run["correlation_id"]));
    // Whoever looks is told of the next state, and of the last one.
    assert_ne!(looker.join().expect("it is answered")["status"], "awaiting_approval");
    assert_eq!(tenant.becomes(&run, "completed")["result"], run["result"]);
    assert_eq!(tenant.tenant_run(&run)["attempts"].as_array().map(Vec::len), Some(1));
    tenant.decide(&approval, "approve").problem(409, "already_decided");
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn what_is_denied_is_never_sent() {
    let World { gate, tenant, provider, .. } = world();
    let client = waiting(&tenant, &erase(7));
    let approval = tenant.the_approval();
    tenant.decide(&approval, "deny").expect(200);
    let run = answered(client);
    assert_eq!((&run["status"], &run["started"]), (&json!("denied"), &json!(false)));
    assert_eq!(run["reason"], "denied_by_teammate");
    assert!(run["result"].is_null() && run["error"].is_null(), "{run}");
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.agent_run(&run)["status"], "denied");
    assert!(provider.calls().is_empty());
}

// pensarai/apex#638: no time limit, and the agent hangs.
#[test]
fn what_nobody_decides_is_denied_after_its_time() {
    let World { gate, tenant, provider, .. } = world();
    let client = waiting(&tenant, &erase(7));
    let approval = tenant.the_approval();
    assert_eq!(approval["expires_at"], "2026-01-12T14:01:40.000Z", "fifteen minutes");
    gate.advance(Duration::from_secs(899));
    let (later, open) = tenant.hold("wipe", &json!({}));
    gate.advance(Duration::from_secs(1));
    // From this moment on, whether or not it was swept up already.
    tenant.decide(&approval, "approve").problem(409, "already_decided");
    let run = answered(client);
    assert_eq!((&run["status"], &run["reason"]), (&json!("denied"), &json!("approval_expired")));
    let expired = tenant.approval(&approval);
    assert_eq!((&expired["state"], &expired["decided_by"]), (&json!("expired"), &Value::Null));
    // Time alone does it, too, and the one that came later has its own.
    assert_eq!(tenant.agent_run(&later)["status"], "awaiting_approval");
    gate.advance(Duration::from_secs(899));
    assert_eq!(tenant.becomes(&later, "denied")["reason"], "approval_expired");
    assert_eq!(tenant.approval(&open)["state"], "expired");
    assert!(provider.calls().is_empty());
}

// agent-os#1613: a poller's wait of some seconds denies an approval that lives for minutes.
#[test]
fn a_clients_patience_is_not_the_approvals() {
    let World { gate, tenant, provider, .. } = world();
    let run = tenant.run_request(&erase(7)).header("Prefer", "wait=1").send().expect(202).json();
    assert_eq!(run["status"], "awaiting_approval");
    let path = format!("/mcp/runs/{}", run["correlation_id"].as_str().expect("an id"));
    for wait in ["wait=0", "wait=1"] {
        let seen = tenant.agent_request("GET", &path).header("Prefer", wait).send().expect(202).json();
        assert_eq!(seen["status"], "awaiting_approval");
    }
    gate.advance(Duration::from_secs(600));
    let approval = tenant.open_approval(&run).expect("it is open");
    tenant.decide(&approval, "approve").expect(200);
    tenant.becomes(&run, "completed");
    assert_eq!(provider.calls().len(), 1);
}

// ark#2298: approved, nothing done, and a second approval appears.
#[test]
fn of_eight_decisions_one_counts_and_has_one_effect() {
    let World { gate, tenant, provider, .. } = world();
    let mut effects = 0;
    for round in 0..6 {
        let (run, approval) = tenant.hold("erase", &json!({ "id": round }));
        let (deciders, wanted) = (tenant.clone(), approval.clone());
        let mut answers = at_once(8, move |nth| {
            // All want it, or half of them do.
            let decision = if round % 2 == 0 || nth % 2 == 0 { "approve" } else { "deny" };
            deciders.decide(&wanted, decision)
        });
        answers.sort_by_key(|answer| answer.status);
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
        let state = answers[0].json()["state"].clone();
        assert_eq!(tenant.approval(&approval)["state"], state);
        effects += usize::from(state == "approved");
        tenant.becomes(&run, if state == "approved" { "completed" } else { "denied" });
        assert!(tenant.open_approval(&run).is_none());
    }
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(provider.calls().len(), effects);
    assert_eq!(tenant.items("/v1/approvals").len(), 6);
}

#[test]
fn an_identical_call_shares_the_approval_and_the_outcome() {
    let World { gate: _gate, tenant, provider, .. } = world();
    let ask = |tenant: &Tenant, caller: Option<&str>, text: &str| {
        let request = tenant.agent_request("POST", "/mcp/run").text("application/json", text);
        let request = caller.into_iter().fold(request, |request, caller| request.header("X-Caller-Identity", caller));
        request.header("Prefer", "wait=0").send().expect(202).json()["correlation_id"].clone()
    };
    let first = ask(&tenant, Some("ann"), r#"{"tool":"erase","args":{"id":7}}"#);
    // The arguments count as they would be sent, the tool by what it is.
    for spelled in
        [r#"{"tool":"median:erase","args":{"id":"7"}}"#, r#"{"args":{"id":7.0},"tool":"erase","request_id":"another"}"#]
    {
        assert_eq!(ask(&tenant, Some("ann"), spelled), first, "{spelled}");
    }
    let other_key = tenant.as_agent(&tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let same = r#"{"tool":"erase","args":{"id":7}}"#;
    let others = [
        ask(&tenant, Some("ann"), r#"{"tool":"erase","args":{"id":8}}"#),
        ask(&tenant, Some("ann"), r#"{"tool":"erase","args":{}}"#),
        ask(&tenant, Some("ann"), r#"{"tool":"wipe","args":{"id":7}}"#),
        ask(&tenant, Some("bob"), same),
        ask(&tenant, None, same),
        ask(&other_key, Some("ann"), same),
    ];
    let all: BTreeSet<String> = others.iter().chain([&first]).map(Value::to_string).collect();
    assert_eq!(all.len(), 7, "{all:?}");
    assert_eq!(tenant.items("/v1/approvals?state=open").len(), 7);

    let shared = json!({ "tool": "erase", "args": { "id": 7 } });
    let clients: Vec<JoinHandle<Answer>> = (0..4)
        .map(|_| {
            let request = tenant.run_request(&shared).header("X-Caller-Identity", "ann").header("Prefer", "wait=3");
            std::thread::spawn(move || request.send())
        })
        .collect();
    let approval = tenant.open_approval(&json!({ "correlation_id": first })).expect("it is open");
    tenant.decide(&approval, "approve").expect(200);
    let run = tenant.becomes(&json!({ "correlation_id": first }), "completed");
    // Who came before the decision was attached to it; who came after it asks anew.
    let answers = clients.into_iter().map(|client| client.join().expect("it is answered").json());
    for seen in answers.filter(|seen| seen["correlation_id"] == first) {
        assert_eq!((&seen["status"], &seen["result"]), (&run["status"], &run["result"]));
    }
    assert_eq!(provider.calls().len(), 1);
    assert_ne!(ask(&tenant, Some("ann"), same), first, "another yes is another run");
}

#[test]
fn everybody_who_waits_for_one_approval_gets_its_one_outcome() {
    let World { gate: _gate, tenant, provider, .. } = world();
    let (run, approval) = tenant.hold("erase", &json!({ "id": 7 }));
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::text(200, r#"{"result":1}"#))));
    let watcher = |tenant: &Tenant| {
        let path = format!("/mcp/runs/{}", run["correlation_id"].as_str().expect("an id"));
        let request = tenant.agent_request("GET", &path).header("Prefer", "wait=60");
        std::thread::spawn(move || request.send().json())
    };
    let before = watcher(&tenant);
    tenant.decide(&approval, "approve").expect(200);
    tenant.becomes(&run, "pending");
    eventually("it is sent", || provider.calls().pop());
    let watchers: Vec<_> = (0..4).map(|_| watcher(&tenant)).collect();
    latch.open();
    for watcher in watchers {
        let seen = watcher.join().expect("it is answered");
        assert_eq!((&seen["status"], &seen["result"]), (&json!("completed"), &json!(1)));
    }
    assert_ne!(before.join().expect("it is answered")["status"], "awaiting_approval");
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn idempotency_keys_keep_held_calls_apart() {
    let World { gate: _gate, tenant, provider, .. } = world();
    let ask = |key: Option<&str>| {
        let request = tenant.run_request(&erase(7)).header("Prefer", "wait=0");
        let request = key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
        request.send().expect(202)
    };
    let id = |answer: &Answer| answer.json()["correlation_id"].clone();
    let (one, two) = (ask(Some("k-1")), ask(Some("k-2")));
    assert_ne!(id(&one), id(&two), "different keys never attach");
    assert_eq!(one.header("idempotent-replay"), None);
    let again = ask(Some("k-1"));
    assert_eq!((id(&again), again.header("idempotent-replay")), (id(&one), Some("true")));
    assert_eq!(again.body, one.body);
    let keyless = ask(None);
    assert!([id(&one), id(&two)].contains(&id(&keyless)), "no key attaches to what is held");
    assert_eq!(tenant.items("/v1/approvals?state=open").len(), 2);
    for held in [&one, &two] {
        let approval = tenant.open_approval(&held.json()).expect("it is open");
        tenant.decide(&approval, "approve").expect(200);
        tenant.becomes(&held.json(), "completed");
    }
    assert_eq!(provider.calls().len(), 2);
    let replay = tenant.run_request(&erase(7)).header("Idempotency-Key", "k-1").send().expect(200);
    assert_eq!((id(&replay), replay.header("idempotent-replay")), (id(&one), Some("true")));
    assert_eq!(replay.json()["status"], "completed");
    assert_eq!(provider.calls().len(), 2);
}

#[test]
fn a_held_run_can_be_given_up() {
    let World { gate, tenant, provider, .. } = world();
    let client = waiting(&tenant, &erase(7));
    let approval = tenant.the_approval();
    let run = tenant.cancel(&approval).expect(200).json();
    assert_eq!((&run["status"], &run["started"]), (&json!("cancelled"), &json!(false)));
    assert_eq!(answered(client)["status"], "cancelled");
    let closed = tenant.approval(&approval);
    assert_eq!((&closed["state"], &closed["note"]), (&json!("denied"), &json!("cancelled")));
    assert!(closed["decided_by"].is_null());
    tenant.decide(&approval, "approve").problem(409, "already_decided");
    assert_eq!(tenant.cancel(&approval).expect(200).json(), run, "it is over");
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.agent_run(&run)["status"], "cancelled");
    assert!(provider.calls().is_empty());
}

#[test]
fn a_decision_and_a_cancellation_at_once_leave_one_truth() {
    let World { gate, tenant, provider, .. } = world();
    let mut sent = 0;
    for round in 0..20 {
        let (run, approval) = tenant.hold("erase", &json!({ "id": round }));
        let (both, held, open) = (tenant.clone(), run.clone(), approval.clone());
        let answers = at_once(2, move |nth| if nth == 0 { both.decide(&open, "approve") } else { both.cancel(&held) });
        assert!(matches!(answers[0].status, 200 | 409), "{}", answers[0].text());
        assert_eq!(answers[1].status, 200, "{}", answers[1].text());
        let last = eventually("it has its last word", || {
            Some(tenant.agent_run(&run)).filter(|run| run["status"] == "completed" || run["status"] == "cancelled")
        });
        let state = tenant.approval(&approval)["state"].clone();
        assert_eq!(state == "approved", answers[0].status == 200, "{last} {state}");
        if last["status"] == "completed" {
            assert_eq!(state, "approved");
            sent += 1;
        } else {
            assert_eq!(last["started"], false);
        }
    }
    drop(gate.restart());
    assert_eq!(provider.calls().len(), sent, "what is called cancelled was not sent");
}

// openai-agents-js#1335: a person is asked about a call that validation would refuse.
#[test]
fn nobody_is_asked_about_a_call_that_is_not_valid() {
    let World { gate: _gate, tenant, provider, .. } = world();
    for args in [json!({ "id": "many" }), json!({ "id": 1, "approved": true }), json!({ "id": null })] {
        let refused = tenant.run(&json!({ "tool": "erase", "args": args }));
        assert_eq!(refused.status, 422, "{args}: {}", refused.text());
    }
    tenant.run(&json!({ "tool": "erase", "confirmation": "anything" })).problem(409, "confirmation_mismatch");
    assert!(tenant.items("/v1/approvals").is_empty());
    assert!(tenant.items("/v1/runs").is_empty());
    assert!(provider.calls().is_empty());
}

#[test]
fn what_is_deleted_takes_its_approvals_with_it() {
    let World { gate, tenant, provider, endpoint } = world();
    let client = waiting(&tenant, &erase(7));
    let approval = tenant.the_approval();
    tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
    let run = answered(client);
    assert_eq!((&run["status"], &run["reason"]), (&json!("cancelled"), &json!("endpoint_deleted")));
    let closed = tenant.approval(&approval);
    assert_eq!((&closed["state"], &closed["note"]), (&json!("denied"), &json!("endpoint_deleted")));
    tenant.decide(&approval, "approve").problem(409, "already_decided");

    tenant.endpoint("medians", &provider);
    let client = waiting(&tenant, &erase(8));
    let approval = tenant.the_approval();
    gate.operator("DELETE", &format!("/admin/v1/orgs/{}", tenant.org_id), None).expect(204);
    assert_eq!(answered(client)["status"], "cancelled");
    tenant.decide(&approval, "approve").problem(401, "unauthorized");
    drop(gate.restart());
    assert!(provider.calls().is_empty());
}
