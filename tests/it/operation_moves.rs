//! Operations whose surroundings change while nobody knows yet what became of them.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::median;
use crate::support::provider::{Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::time::Duration;
use toolgate::demo::agent_provider::{Fault, FaultPoint, What};

const TOOL_TIMEOUT: Duration = Duration::from_secs(5);

fn register(tenant: &Tenant, provider: &ReceiptProvider) -> String {
    let body = tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201).json();
    format!("/v1/endpoints/{}", body["id"].as_str().expect("an id"))
}

/// Asks for a wish without waiting, and returns once nobody knows what became of it.
fn uncertain(tenant: &Tenant) -> Value {
    let request = tenant.run_request(&json!({ "tool": "wish.grant", "args": { "wish": "one" } }));
    let run = request.header("Prefer", "wait=0").send().json();
    eventually("it is uncertain", || (tenant.items("/v1/operations").pop()?["state"] == "uncertain").then_some(()));
    run
}

#[test]
fn another_address_is_asked_for_no_receipt_and_sent_no_resend() {
    let (here, there) = (
        ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]),
        ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]),
    );
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let endpoint = register(&tenant, &here);
    here.set_fault_plan(|_| Fault::ResetAfter);
    let run = uncertain(&tenant);
    tenant.patch(&endpoint, &json!({ "base_url": there.url() })).expect(200);
    gate.advance(Duration::from_secs(60));
    let over = eventually("it is over", || Some(tenant.tenant_run(&run)).filter(|run| run["finished_at"].is_string()));
    assert_eq!((&over["status"], &over["reason"]), (&json!("uncertain"), &json!("endpoint_moved")), "{over}");
    assert_eq!((here.effects_total(), there.effects_total()), (1, 0));
    let asked = |request: &&toolgate::demo::local_server::RecordedRequest| !request.path.starts_with("/.well-known");
    assert_eq!(there.requests().iter().filter(asked).count(), 0, "it was asked for nothing but its manifest");
}

#[test]
fn a_resend_that_is_turned_down_says_nothing_about_the_post_before_it() {
    for status in [429, 401, 404, 422] {
        let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
        // The first POST is still at work when its receipt is asked for; the second one is turned down because of that.
        provider.set_fault_plan(move |point: &FaultPoint| match (point.what, point.nth) {
            (What::Call, 1) => Fault::ResetAfter,
            (What::Receipt, 1) => Fault::StatusBefore(404),
            (What::Call, _) => Fault::StatusBefore(status),
            _ => Fault::None,
        });
        let gate = Gate::start();
        let tenant = gate.tenant("acme");
        register(&tenant, &provider);
        let run = uncertain(&tenant);
        let over = eventually("the receipt has the last word", || {
            gate.advance(Duration::from_secs(3));
            Some(tenant.tenant_run(&run)).filter(|run| run["finished_at"].is_string())
        });
        assert_eq!(over["status"], "completed", "{status}: {over}");
        assert_eq!(tenant.items("/v1/operations")[0]["state"], "applied", "{status}");
        assert_eq!(provider.effects_total(), 1, "{status}");
    }
}

#[test]
fn a_risk_the_tenant_raised_counts_when_an_answer_is_lost() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("note", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("desk", &provider);
    provider.next(Reply::Hangup);
    assert_eq!(tenant.call("note", &json!({}))["status"], "failed", "one of low risk may be made again");
    tenant.patch("/v1/tools/note", &json!({ "risk": "medium" })).expect(200);
    provider.next(Reply::Hangup);
    assert_eq!(tenant.call("note", &json!({}))["status"], "uncertain", "it may have changed something");
}

#[test]
fn a_yes_given_while_the_endpoint_moves_goes_nowhere() {
    let gate = Gate::start();
    let (here, there) = (Provider::median(&[median("erase", "high")]), Provider::median(&[median("erase", "high")]));
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("desk", &here);
    let (run, approval) = tenant.hold("erase", &json!({}));
    let registration = there.registration("desk");
    let moved = json!({ "base_url": registration["base_url"], "auth": registration["auth"] });
    tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &moved).expect(200);
    let decided = tenant.decide(&approval, "approve").expect(200).json();
    assert_eq!((&decided["state"], &decided["note"]), (&json!("denied"), &json!("changed_since_request")));
    assert_eq!(tenant.agent_run(&run)["reason"], "changed_since_request");
    let said = tenant.items("/v1/audit").into_iter().find(|entry| entry["action"] == "approval.approve");
    assert_eq!(said.expect("the yes is in the trail")["changes"]["outcome"], "changed_since_request");
    assert!(here.calls().is_empty() && there.calls().is_empty());
}
