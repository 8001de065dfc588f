//! What an approved run becomes, by what kind of tool it is, and what cuts its sending off.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::binary::Binary;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology};
use crate::support::provider::{Latch, Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// From now on a teammate has to allow this tool.
#[track_caller]
fn make_high(tenant: &Tenant, tool: &str) {
    tenant.patch(&format!("/v1/tools/{tool}"), &json!({ "risk": "high" })).expect(200);
}

#[test]
fn a_mutation_becomes_an_operation_at_the_decision() {
    let gate = Gate::start();
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", Duration::from_secs(5))]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201).json();
    make_high(&tenant, "wish.grant");
    let (run, approval) = tenant.hold("wish.grant", &json!({ "wish": "one" }));
    let (denied, other) = tenant.hold("wish.grant", &json!({ "wish": "two" }));
    assert!(tenant.items("/v1/operations").is_empty(), "there is none before");
    assert!(tenant.tenant_run(&run)["operation_id"].is_null());
    // The contract moves on while people think: the operation is made under the one in force at the decision.
    provider.set_contract_version("2026-10-01");
    let path = format!("/v1/endpoints/{}/sync", endpoint["id"].as_str().expect("an id"));
    assert_eq!(tenant.request("POST", &path).send().expect(200).json()["outcome"], "applied");
    tenant.decide(&approval, "approve").expect(200);
    tenant.decide(&other, "deny").expect(200);
    tenant.becomes(&run, "completed");
    let operations = tenant.items("/v1/operations");
    assert_eq!(operations.len(), 1, "{operations:?}");
    let operation = &operations[0];
    let seen = (&operation["state"], &operation["correlation_id"]);
    assert_eq!(seen, (&json!("applied"), &run["correlation_id"]));
    assert_eq!(tenant.tenant_run(&run)["operation_id"], operation["id"]);
    assert_eq!(tenant.agent_run(&denied)["status"], "denied");
    assert_eq!(provider.effects(operation["id"].as_str().expect("an id")), 1);
    assert_eq!(provider.effects_total(), 1);
    let sent: Vec<_> = provider.requests().into_iter().filter(|request| request.method == "POST").collect();
    assert_eq!((sent.len(), sent[0].header("contract-version")), (1, Some("2026-10-01")));
    assert_eq!(sent[0].header("operation-id"), operation["id"].as_str());
}

#[test]
fn a_query_of_a_topology_is_pending_until_its_callback() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query"), topology("act", "command")]);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    make_high(&tenant, "ask");
    make_high(&tenant, "act");
    let client = {
        let request = tenant.run_request(&json!({ "tool": "ask" }));
        std::thread::spawn(move || request.send().expect(200).json())
    };
    let approval = tenant.the_approval();
    tenant.decide(&approval, "approve").expect(200);
    let sent = eventually("it is sent", || provider.calls().pop()).json();
    assert_eq!(sent["request_id"], approval["correlation_id"]);
    assert_eq!(tenant.becomes(&approval, "pending")["started"], true);
    node.complete("m-1", sent["request_id"].as_str().expect("our id"), &json!("late")).expect(202);
    let run = client.join().expect("it is answered");
    assert_eq!((&run["status"], &run["result"]), (&json!("completed"), &json!("late")));

    // Nobody waits for the acknowledgement of one that nobody wants any more.
    let (run, approval) = tenant.hold("ask", &json!({}));
    tenant.decide(&approval, "approve").expect(200);
    eventually("the provider has accepted it", || {
        tenant.tenant_run(&run)["provider_correlation_id"].is_string().then_some(())
    });
    let given_up = tenant.cancel(&run).expect(200).json();
    assert_eq!((&given_up["status"], &given_up["started"]), (&json!("cancelled"), &json!(true)));
    assert_eq!(tenant.approval(&approval)["state"], "approved", "a decision is not undone");

    let (run, approval) = tenant.hold("act", &json!({}));
    tenant.decide(&approval, "approve").expect(200);
    assert_eq!(tenant.becomes(&run, "started")["started"], true);
    assert_eq!(tenant.cancel(&run).expect(200).json()["status"], "started", "what was dispatched stays");
    assert_eq!(provider.calls().len(), 3);
}

// opencode#35275: a person's time to think eats the tool's own time.
#[test]
fn the_providers_time_begins_when_the_call_is_sent() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("erase", "high")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("medians", &provider);
    let timeout = Duration::from_millis(400);
    tenant.patch("/v1/tools/erase", &json!({ "timeout_ms": 400 })).expect(200);
    let begun = Instant::now();
    let client = {
        let request = tenant.run_request(&json!({ "tool": "erase" }));
        std::thread::spawn(move || request.send())
    };
    let approval = tenant.the_approval();
    // By the clock of deadlines as well as by that of the calendar.
    eventually("more time than the tool has", || (begun.elapsed() > timeout).then_some(()));
    gate.advance(Duration::from_secs(890));
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::text(200, r#"{"result":"done"}"#))));
    tenant.decide(&approval, "approve").expect(200);
    eventually("it is sent", || provider.calls().pop());
    // The approval's end is not that of its run.
    gate.advance(Duration::from_secs(20));
    latch.open();
    let run = client.join().expect("it is answered").expect(200).json();
    assert_eq!((&run["status"], &run["result"]), (&json!("completed"), &json!("done")), "{run}");
    // Its own time it has all the same.
    let (run, approval) = tenant.hold("erase", &json!({}));
    let never = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&never), Box::new(Reply::text(200, "{}"))));
    tenant.decide(&approval, "approve").expect(200);
    assert_eq!(tenant.becomes(&run, "uncertain")["reason"], "provider_timeout");
    never.open();
}

/// A provider of two tools, one at a time: while `find` is held, what is approved waits for its place.
struct Narrow {
    provider: Provider,
    latch: Arc<Latch>,
}

impl Narrow {
    fn new(tenant: &Tenant) -> Self {
        let provider = Provider::median(&[median("erase", "high"), median("find", "low")]);
        tenant.endpoint("medians", &provider);
        tenant.patch("/v1/org", &json!({ "limits": { "endpoint_in_flight": 1 } })).expect(200);
        Self { provider, latch: Arc::default() }
    }

    /// Takes the only place, in a thread of its own.
    fn take_place(&self, tenant: &Tenant) -> std::thread::JoinHandle<bool> {
        self.provider.next(Reply::Held(Arc::clone(&self.latch), Box::new(Reply::text(200, r#"{"result":1}"#))));
        let request = tenant.run_request(&json!({ "tool": "find" }));
        let client = std::thread::spawn(move || request.try_send().is_ok_and(|answer| answer.status == 200));
        eventually("the place is taken", || self.provider.calls().pop());
        client
    }

    fn erased(&self) -> usize {
        self.provider.calls().iter().filter(|call| call.json()["tool"] == "erase").count()
    }
}

/// A run that was approved and waits for its place.
fn approved(tenant: &Tenant) -> (Value, Value) {
    let (run, approval) = tenant.hold("erase", &json!({}));
    assert_eq!(tenant.decide(&approval, "approve").expect(200).json()["state"], "approved");
    assert_eq!(tenant.becomes(&run, "pending")["started"], false, "nothing was sent yet");
    (run, approval)
}

#[test]
fn what_was_approved_and_not_sent_can_be_given_up() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let narrow = Narrow::new(&tenant);
    let client = narrow.take_place(&tenant);
    let (run, approval) = approved(&tenant);
    let cancelled = tenant.cancel(&run).expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["started"]), (&json!("cancelled"), &json!(false)));
    assert_eq!(tenant.approval(&approval)["state"], "approved", "a decision is not undone");
    narrow.latch.open();
    assert!(client.join().expect("it ends"));
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.agent_run(&run)["status"], "cancelled");
    assert_eq!(narrow.erased(), 0);
}

#[test]
fn a_deleted_endpoint_is_not_sent_what_was_approved() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let narrow = Narrow::new(&tenant);
    let client = narrow.take_place(&tenant);
    let (run, _) = approved(&tenant);
    let endpoint = tenant.items("/v1/endpoints")[0]["id"].as_str().expect("an id").to_owned();
    tenant.delete(&format!("/v1/endpoints/{endpoint}")).expect(204);
    assert_eq!(tenant.agent_run(&run)["status"], "cancelled");
    narrow.latch.open();
    assert!(client.join().expect("it ends"));
    drop(gate.restart());
    assert_eq!(narrow.erased(), 0);
}

#[test]
fn killed_between_the_decision_and_the_send_it_sends_once_after_the_restart() {
    let folder = TempDir::new().expect("a temporary folder");
    let toolgate = Binary::serve(&folder);
    let tenant = toolgate.tenant("acme");
    let narrow = Narrow::new(&tenant);
    let client = narrow.take_place(&tenant);
    let (run, approval) = approved(&tenant);
    toolgate.kill();
    assert!(!client.join().expect("it ends"), "no answer from a dead process");
    narrow.latch.open();
    assert_eq!(narrow.erased(), 0);

    let toolgate = Binary::serve(&folder);
    let tenant = Tenant { client: toolgate.client().clone(), ..tenant };
    let done = tenant.becomes(&run, "completed");
    assert_eq!(done["started"], true);
    assert_eq!(tenant.approval(&approval)["state"], "approved");
    tenant.decide(&approval, "approve").problem(409, "already_decided");
    let sent = narrow.provider.last_call().json();
    assert_eq!(sent["context"]["approval"], json!({ "kind": "teammate", "by": "first" }), "by whom is not forgotten");
    assert!(toolgate.terminate().success());
    assert_eq!(narrow.erased(), 1);
}

#[test]
fn killed_between_the_decision_and_the_send_an_operation_keeps_its_id() {
    let folder = TempDir::new().expect("a temporary folder");
    let toolgate = Binary::serve(&folder);
    let tenant = toolgate.tenant("acme");
    let provider = ReceiptProvider::of(vec![
        mutation("wish.grant", Duration::from_secs(5)),
        mutation("wish.wait", Duration::from_secs(9)),
    ]);
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    tenant.patch("/v1/org", &json!({ "limits": { "endpoint_in_flight": 1 } })).expect(200);
    make_high(&tenant, "wish.grant");
    provider.set_fault_plan(|_| toolgate::demo::agent_provider::Fault::StallBefore(Duration::from_secs(9)));
    let wait = tenant.run_request(&json!({ "tool": "wish.wait", "args": { "wish": "place" } }));
    wait.header("Prefer", "wait=0").send().expect(202);
    eventually("the place is taken", || provider.requests().iter().find(|one| one.method == "POST").map(drop));
    let (run, approval) = tenant.hold("wish.grant", &json!({ "wish": "one" }));
    tenant.decide(&approval, "approve").expect(200);
    tenant.becomes(&run, "pending");
    let prepared = tenant.items("/v1/operations?state=prepared").pop().expect("it is made at the decision");
    toolgate.kill();
    provider.clear_fault_plan();

    let toolgate = Binary::serve(&folder);
    let tenant = Tenant { client: toolgate.client().clone(), ..tenant };
    tenant.becomes(&run, "completed");
    let path = format!("/v1/operations/{}", prepared["id"].as_str().expect("an id"));
    assert_eq!(tenant.get(&path).expect(200).json()["state"], "applied");
    let granted = |effect: &toolgate::demo::agent_provider::Effect| effect.arguments["wish"] == "one";
    let effects: Vec<_> = provider.effects_log().into_iter().filter(granted).collect();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].operation_id, prepared["id"].as_str().expect("an id"));
}
