//! The reviewer: an organization's own service that decides about runs of risk `reviewed`; what it does not decide, a
//! teammate does.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::binary::Binary;
use crate::support::client::{Answer, Request};
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::hook::{Hook, data, said};
use crate::support::manifests::median_with;
use crate::support::provider::{Latch, Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

struct World {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
    reviewer: Hook,
}

fn medians() -> Provider {
    let properties = json!({ "id": { "type": "integer" } });
    Provider::median(&[median_with("refund", "reviewed", &properties), median_with("erase", "high", &properties)])
}

/// An organization with a reviewer and a tool that it is asked about.
fn world() -> World {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = medians();
    tenant.endpoint("medians", &provider);
    let reviewer = Hook::reviewer(&tenant);
    World { gate, tenant, provider, reviewer }
}

/// The request to run this with the end user's yes.
fn confirmed(tenant: &Tenant, tool: &str, args: &Value) -> Request {
    let caller = |request: Request| request.header("X-Caller-Identity", "web:ann");
    let mut body = json!({ "tool": tool, "args": args });
    let asked = caller(tenant.run_request(&body)).send().expect(200).json();
    assert_eq!(asked["status"], "confirmation_required", "{asked}");
    body["confirmation"] = asked["confirmation"]["token"].clone();
    caller(tenant.run_request(&body))
}

fn refund(tenant: &Tenant, id: u32) -> Request {
    confirmed(tenant, "refund", &json!({ "id": id.to_string() }))
}

/// A client that waits for its outcome.
fn waiting(request: Request) -> JoinHandle<Answer> {
    std::thread::spawn(move || request.send())
}

/// The approval that the reviewer was asked about: nobody else is told of it yet.
fn asked_about(tenant: &Tenant, reviewer: &Hook) -> Value {
    let message = eventually("the reviewer is asked", || reviewer.messages().pop());
    let id = message.header("webhook-id").and_then(|id| id.strip_prefix("review_")).expect("the approval's id");
    tenant.get(&format!("/v1/approvals/{id}")).expect(200).json()
}

/// The reviewer answers so when the latch opens.
fn held(reviewer: &Hook, decision: &str) -> Arc<Latch> {
    let latch = Arc::new(Latch::default());
    reviewer.next(Reply::Held(Arc::clone(&latch), Box::new(said(decision))));
    latch
}

#[test]
fn the_reviewer_is_asked_after_the_confirmation_and_its_yes_runs_the_call() {
    let World { gate, tenant, provider, reviewer } = world();
    reviewer.says("approve");
    let request = refund(&tenant, 7);
    assert!(reviewer.messages().is_empty(), "first the end user");
    let run = request.send().expect(200).json();
    assert_eq!((&run["status"], &run["started"]), (&json!("completed"), &json!(true)), "{run}");

    let message = reviewer.await_messages(1).remove(0);
    reviewer.assert_signed(&gate, &message);
    let asked = message.json();
    assert_eq!((&asked["type"], &asked["timestamp"]), (&json!("tool.review"), &json!("2026-01-12T13:46:40.000Z")));
    let expected = json!({
        "run": run["correlation_id"], "tool": "refund", "arguments": { "id": 7 }, "caller": "web:ann",
        "endpoint": "medians",
    });
    assert_eq!((data(&message), asked.as_object().map(serde_json::Map::len)), (expected, Some(3)));
    let sent = provider.last_call().json();
    assert_eq!(sent["context"]["approval"], json!({ "kind": "reviewer" }));
    assert_eq!(provider.calls().len(), 1);
    let approval = tenant.items("/v1/approvals?state=approved").remove(0);
    assert_eq!((&approval["decided_by"], &approval["risk"]), (&json!("reviewer"), &json!("reviewed")));
    tenant.decide(&approval, "deny").problem(409, "already_decided");
}

#[test]
fn the_reviewers_no_denies() {
    let World { gate: _gate, tenant, provider, reviewer } = world();
    reviewer.next(Reply::json(200, &json!({ "decision": "deny", "reason": "too much", "more": 1 })));
    let run = refund(&tenant, 7).send().expect(200).json();
    assert_eq!((&run["status"], &run["reason"]), (&json!("denied"), &json!("denied_by_reviewer")), "{run}");
    let approval = tenant.items("/v1/approvals?state=denied").remove(0);
    assert_eq!((&approval["note"], &approval["decided_by"]), (&json!("too much"), &json!("reviewer")));
    assert!(provider.calls().is_empty());
}

#[test]
fn what_the_reviewer_does_not_decide_a_teammate_does() {
    let World { gate: _gate, tenant, provider, reviewer } = world();
    tenant.patch("/v1/org", &json!({ "limits": { "reviewer_timeout_ms": 400 } })).expect(200);
    let never = Arc::new(Latch::default());
    let location = vec![("Location".to_owned(), provider.url())];
    let answers = [
        ("escalate", said("escalate")),
        ("silence", Reply::Held(Arc::clone(&never), Box::new(said("approve")))),
        ("HTTP 500", Reply::json(500, &json!({ "decision": "approve" }))),
        ("HTTP 202", Reply::json(202, &json!({ "decision": "approve" }))),
        ("a redirect", Reply::Http { status: 302, headers: location, body: Vec::new() }),
        ("garbage", Reply::text(200, "approve")),
        ("another word", said("Approve")),
        ("no word", Reply::json(200, &json!({ "reason": "approve" }))),
        ("two words", Reply::text(200, r#"{"decision":"deny","decision":"approve"}"#)),
        ("an endless answer", Reply::json(200, &json!({ "decision": "approve", "reason": "x".repeat(70_000) }))),
        ("no answer", Reply::Hangup),
    ];
    let count = answers.len();
    for (number, (what, answer)) in answers.into_iter().enumerate() {
        reviewer.next(answer);
        let run = refund(&tenant, u32::try_from(number).expect("few")).header("Prefer", "wait=0").send();
        let run = run.expect(202).json();
        let approval = eventually(what, || tenant.open_approval(&run));
        assert_eq!(tenant.agent_run(&run)["status"], "awaiting_approval", "{what}");
        tenant.decide(&approval, "approve").expect(200);
        tenant.becomes(&run, "completed");
        let mark = json!({ "kind": "teammate", "by": "first" });
        assert_eq!(provider.last_call().json()["context"]["approval"], mark, "{what}");
    }
    never.open();
    assert_eq!((reviewer.messages().len(), provider.calls().len()), (count, count));
}

#[test]
fn a_reviewer_at_a_blocked_address_is_not_asked() {
    let World { gate, tenant, provider, reviewer: _reviewer } = world();
    for url in ["http://10.0.0.1/review", "http://169.254.169.254/latest", gate.url()] {
        tenant.patch("/v1/org", &json!({ "reviewer": { "url": url } })).expect(200);
        let client = waiting(refund(&tenant, 7));
        let approval = tenant.the_approval();
        tenant.decide(&approval, "deny").expect(200);
        assert_eq!(client.join().expect("it is answered").json()["reason"], "denied_by_teammate", "{url}");
    }
    assert!(provider.calls().is_empty());
}

#[test]
fn a_teammate_is_told_only_when_asked() {
    let World { gate, tenant, provider, reviewer } = world();
    let application = Hook::webhook(&tenant);
    let latch = held(&reviewer, "escalate");
    let client = waiting(refund(&tenant, 7));
    let approval = asked_about(&tenant, &reviewer);
    assert_eq!(approval["state"], "open");
    assert!(tenant.items("/v1/approvals").is_empty());
    assert!(tenant.items("/v1/deliveries").is_empty());
    latch.open();
    assert_eq!(tenant.the_approval()["id"], approval["id"]);
    gate.advance(Duration::from_millis(250));
    let opened = application.await_messages(1).remove(0);
    assert_eq!(opened.json()["type"], "approval.opened");
    assert_eq!(data(&opened)["approval_id"], approval["id"]);
    tenant.decide(&approval, "approve").expect(200);
    assert_eq!(client.join().expect("it is answered").expect(200).json()["status"], "completed");
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn only_what_is_to_be_reviewed_comes_to_the_reviewer() {
    let World { gate, tenant, provider, reviewer } = world();
    let (_, high) = tenant.hold("erase", &json!({ "id": 7 }));
    // Who cannot confirm has a teammate, where the organization says so, and no reviewer besides.
    tenant.patch("/v1/org", &json!({ "confirmation_fallback": "approval" })).expect(200);
    let key = tenant.agent_key(&json!({ "name": "bot", "groups": ["default"], "confirms": false }));
    let (_, unconfirmed) = tenant.as_agent(&key).hold("refund", &json!({ "id": 7 }));
    for approval in [high, unconfirmed] {
        tenant.decide(&approval, "deny").expect(200);
    }
    // Without a reviewer a teammate is asked at once.
    tenant.patch("/v1/org", &json!({ "reviewer": null })).expect(200);
    let run = refund(&tenant, 8).header("Prefer", "wait=0").send().expect(202).json();
    let approval = tenant.open_approval(&run).expect("at once");
    tenant.decide(&approval, "deny").expect(200);
    drop(gate.restart());
    assert!(reviewer.messages().is_empty() && provider.calls().is_empty());
}

#[test]
fn a_teammate_may_be_quicker_and_the_late_word_changes_nothing() {
    let World { gate, tenant, provider, reviewer } = world();
    let mut runs = Vec::new();
    for (id, teammate, late) in [(1, "approve", "deny"), (2, "deny", "approve"), (3, "cancel", "approve")] {
        let latch = held(&reviewer, late);
        let before = reviewer.messages().len();
        let client = waiting(refund(&tenant, id));
        reviewer.await_messages(before + 1);
        let approval = asked_about(&tenant, &reviewer);
        if teammate == "cancel" {
            tenant.cancel(&approval).expect(200);
        } else {
            tenant.decide(&approval, teammate).expect(200);
        }
        let run = client.join().expect("it is answered").expect(200).json();
        latch.open();
        runs.push((run, approval));
    }
    // A stop waits for the reviewer's word to be dealt with.
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let words = [("completed", "approved"), ("denied", "denied"), ("cancelled", "denied")];
    for ((run, approval), (status, state)) in runs.iter().zip(words) {
        assert_eq!((&run["status"], &tenant.agent_run(run)["status"]), (&json!(status), &json!(status)));
        assert_eq!(tenant.approval(approval)["state"], state);
        assert_ne!(tenant.approval(approval)["decided_by"], "reviewer");
    }
    assert_eq!(provider.calls().len(), 1);
    let mark = json!({ "kind": "teammate", "by": "first" });
    assert_eq!(provider.last_call().json()["context"]["approval"], mark, "it was the teammate's yes");
}

#[test]
fn once_a_teammate_is_asked_the_reviewer_is_not_heard() {
    let World { gate, tenant, provider, reviewer } = world();
    let latch = held(&reviewer, "approve");
    let run = refund(&tenant, 7).header("Prefer", "wait=0").send().expect(202).json();
    let approval = asked_about(&tenant, &reviewer);
    gate.advance(Duration::from_secs(25));
    eventually("its time is over", || tenant.open_approval(&run));
    latch.open();
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.agent_run(&run)["status"], "awaiting_approval");
    assert_eq!(tenant.approval(&approval)["state"], "open");
    assert!(provider.calls().is_empty());
}

#[test]
fn what_a_crash_cut_the_reviewer_off_from_a_teammate_gets() {
    let folder = TempDir::new().expect("a temporary folder");
    let toolgate = Binary::serve(&folder);
    let tenant = toolgate.tenant("acme");
    let provider = medians();
    tenant.endpoint("medians", &provider);
    let reviewer = Hook::reviewer(&tenant);
    let latch = held(&reviewer, "approve");
    let run = refund(&tenant, 7).header("Prefer", "wait=0").send().expect(202).json();
    reviewer.await_messages(1);
    toolgate.kill();
    latch.open();

    let toolgate = Binary::serve(&folder);
    let tenant = Tenant { client: toolgate.client().clone(), ..tenant };
    let approval = eventually("a teammate is asked", || tenant.open_approval(&run));
    assert_eq!(tenant.agent_run(&run)["status"], "awaiting_approval");
    tenant.decide(&approval, "approve").expect(200);
    tenant.becomes(&run, "completed");
    assert_eq!((provider.calls().len(), reviewer.messages().len()), (1, 1));
}

#[test]
fn a_yes_that_falls_into_a_stop_is_carried_out_by_the_next_start() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", Duration::from_secs(5))]);
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    tenant.patch("/v1/tools/wish.grant", &json!({ "risk": "reviewed" })).expect(200);
    let reviewer = Hook::reviewer(&tenant);
    let latch = held(&reviewer, "approve");
    let request = confirmed(&tenant, "wish.grant", &json!({ "wish": "one" }));
    let run = request.header("Prefer", "wait=0").send().expect(202).json();
    reviewer.await_messages(1);
    let client = gate.client().clone();
    let stopping = std::thread::spawn(move || {
        eventually("a stop begins", || match client.get("/readyz").try_send() {
            Ok(answer) => (answer.status != 200).then_some(()),
            Err(_) => Some(()),
        });
        latch.open();
    });
    let gate = gate.restart();
    stopping.join().expect("it ends");
    let tenant = tenant.at(&gate);
    tenant.becomes(&run, "completed");
    let operation = tenant.items("/v1/operations").pop().expect("it was made at the decision");
    assert_eq!(operation["state"], "applied");
    assert_eq!((provider.effects_total(), provider.effects(operation["id"].as_str().expect("an id"))), (1, 1));
}

#[test]
fn a_yes_for_a_suspended_organization_is_not_carried_out() {
    let World { gate, tenant, provider, reviewer } = world();
    let latch = held(&reviewer, "approve");
    let run = refund(&tenant, 7).header("Prefer", "wait=0").send().expect(202).json();
    reviewer.await_messages(1);
    let org = format!("/admin/v1/orgs/{}", tenant.org_id);
    gate.operator("PATCH", &org, Some(&json!({ "state": "suspended" }))).expect(200);
    latch.open();
    let gate = gate.restart();
    gate.operator("PATCH", &org, Some(&json!({ "state": "active" }))).expect(200);
    let run = tenant.at(&gate).agent_run(&run);
    assert_eq!((&run["status"], &run["reason"]), (&json!("denied"), &json!("changed_since_request")));
    assert!(provider.calls().is_empty());
}
