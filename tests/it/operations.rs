//! Operations: mutations at a provider that keeps receipts, as their tenant and their provider see them.

use crate::support::agent_provider::{ReceiptProvider, mutation, scripted, scripted_registration};
use crate::support::binary::{Binary, OPERATOR_TOKEN};
use crate::support::client::Answer;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::provider::Reply;
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use toolgate::demo::agent_provider::{Fault, FaultPoint, What};
use toolgate::demo::local_server::RecordedRequest;
use toolgate::engine::ports::Clock as _;

const TOOL_TIMEOUT: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// After so long the first look at a receipt is due.
const FIRST_LOOK: Duration = Duration::from_millis(500);

struct World {
    gate: Gate,
    provider: ReceiptProvider,
    tenant: Tenant,
    endpoint: Registered,
}

/// Calls and looks at receipts fail by these plans: the first by the first of them, and so on, the last for ever.
fn world(calls: &[Fault], receipts: &[Fault]) -> World {
    let (calls, receipts) = (calls.to_vec(), receipts.to_vec());
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
    provider.set_fault_plan(move |point: &FaultPoint| {
        let plan = match point.what {
            What::Call => &calls,
            What::Receipt => &receipts,
            What::Discovery => return Fault::None,
        };
        let nth = (point.nth as usize).min(plan.len());
        nth.checked_sub(1).map_or(Fault::None, |index| plan[index])
    });
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let body = tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201).json();
    let endpoint = Registered { id: body["id"].as_str().expect("an id").to_owned(), body }.assert_connected();
    World { gate, provider, tenant, endpoint }
}

fn wish() -> Value {
    json!({ "tool": "wish.grant", "args": { "wish": "one" } })
}

impl World {
    /// A client that waits for its wish as long as clients do.
    fn ask(&self) -> JoinHandle<Answer> {
        let request = self.tenant.run_request(&wish());
        std::thread::spawn(move || request.send())
    }

    /// A wish that its client does not wait for, when its first answer was not to be relied on.
    #[track_caller]
    fn uncertain_run(&self) -> Value {
        let run = self.tenant.run_request(&wish()).header("Prefer", "wait=0").send().json();
        self.until_state("uncertain");
        run
    }

    /// The one operation there is.
    #[track_caller]
    fn operation(&self) -> Value {
        let mut operations = self.tenant.items("/v1/operations");
        assert_eq!(operations.len(), 1, "{operations:?}");
        operations.remove(0)
    }

    #[track_caller]
    fn until_state(&self, state: &str) -> Value {
        eventually(state, || {
            let operation = self.tenant.items("/v1/operations").pop()?;
            (operation["state"] == state).then_some(operation)
        })
    }

    /// Lets time pass until nothing more is done about the operation.
    #[track_caller]
    fn until_over(&self) -> Value {
        eventually("the operation has its last word", || {
            self.gate.advance(FIRST_LOOK);
            let operation = self.tenant.items("/v1/operations").pop()?;
            operation.get("next_at").is_none().then_some(operation)
        })
    }

    fn posts(&self) -> Vec<RecordedRequest> {
        self.provider.requests().into_iter().filter(|request| request.method == "POST").collect()
    }

    fn looks(&self) -> Vec<RecordedRequest> {
        self.provider.requests().into_iter().filter(|request| request.path.starts_with("/receipts/")).collect()
    }

    /// Long after, and one more call later, nothing more was asked about the operation.
    #[track_caller]
    fn assert_left_alone(&self) {
        let before = (self.posts().len(), self.looks().len());
        self.gate.advance(24 * HOUR);
        self.provider.clear_fault_plan();
        assert_eq!(self.tenant.call("wish.grant", &json!({ "wish": "another" }))["status"], "completed");
        assert_eq!((self.posts().len(), self.looks().len()), (before.0 + 1, before.1));
    }
}

fn attempts(run: &Value) -> Vec<(Option<u64>, String)> {
    let attempts = run["attempts"].as_array().expect("attempts").iter();
    attempts.map(|a| (a["http_status"].as_u64(), a["outcome"].as_str().expect("a word").to_owned())).collect()
}

// composio#3654, agentmail-mcp#49: the answer is lost, the retry sends the mail twice.
#[test]
fn an_answer_that_was_lost_is_healed_by_the_receipt_while_the_client_waits() {
    let world = world(&[Fault::ResetAfter, Fault::None], &[]);
    let client = world.ask();
    let open = world.until_state("uncertain");
    assert_eq!((&open["attempts"], open.get("receipt")), (&json!(1), None));
    assert_eq!(world.tenant.tenant_run(&open)["status"], "uncertain");
    world.gate.advance(FIRST_LOOK);
    let run = client.join().expect("answered").expect(200).json();
    assert_eq!((&run["status"], &run["result"]["status"]), (&json!("completed"), &json!("ok")), "{run}");
    assert_eq!(run["result"]["evidence"][0]["outcome"], "applied");
    let operation = world.operation();
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("applied"), &json!(1)), "{operation}");
    assert_eq!((&operation["tool"], &operation["endpoint"]), (&json!("wish.grant"), &json!("wishes")));
    assert_eq!((operation.get("next_at"), &operation["correlation_id"]), (None, &run["correlation_id"]));
    let receipt = &operation["receipt"];
    assert_eq!((&receipt["operation_id"], &receipt["state"]), (&operation["id"], &json!("applied")), "{operation}");
    assert_eq!(receipt["request_fingerprint"], operation["fingerprint"]);
    let shown = world.tenant.tenant_run(&run);
    assert_eq!(shown["operation_id"], operation["id"]);
    assert_eq!(attempts(&shown), [(None, "reset".to_owned()), (Some(200), "ok".to_owned())]);
    assert_eq!((world.posts().len(), world.provider.effects_total()), (1, 1));
    world.assert_left_alone();
}

// litellm#33374: a timeout of 5 s that returns after 60.
#[test]
fn a_call_is_given_up_at_the_time_its_tool_declares() {
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", Duration::from_millis(400))]);
    provider.set_fault_plan(|point: &FaultPoint| match point {
        FaultPoint { what: What::Call, nth: 1, .. } => Fault::StallBefore(Duration::from_secs(60)),
        _ => Fault::None,
    });
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    assert_eq!(tenant.manifest()[0]["timeout_ms"], 400);
    let run = tenant.call("wish.grant", &json!({ "wish": "one" }));
    let shown = eventually("it is given up", || {
        Some(tenant.tenant_run(&run)).filter(|run| run["reason"] == "provider_timeout" && run["status"] == "uncertain")
    });
    let took = shown["attempts"][0]["duration_ms"].as_u64().expect("a duration");
    assert!((390..10_000).contains(&took), "{shown}");
    assert_eq!(shown["attempts"][0]["outcome"], "timeout");
    gate.advance(FIRST_LOOK);
    eventually("it was never carried out, so it is sent again", || {
        (tenant.agent_run(&run)["status"] == "completed").then_some(())
    });
    assert_eq!(provider.effects_total(), 1);
}

#[test]
fn a_provider_that_is_down_gets_nothing_and_the_operation_stays_prepared() {
    let gate = Gate::start();
    let provider = scripted(&[mutation("wish.grant", TOOL_TIMEOUT).declaration]);
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &scripted_registration(&provider)).expect(201);
    provider.go_down();
    let run = tenant.run(&wish()).expect(200).json();
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)), "{run}");
    assert_eq!(run["error"]["code"], "endpoint_unavailable", "{run}");
    let operation = tenant.items("/v1/operations").remove(0);
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("prepared"), &json!(0)), "{operation}");
    assert_eq!(operation.get("next_at"), None);
    assert_eq!(tenant.tenant_run(&run)["attempts"].as_array().map(Vec::len), Some(3), "tried again while it could be");
    provider.come_back();
    gate.advance(24 * HOUR);
    provider.next(Reply::text(403, "{}"));
    tenant.call("wish.grant", &json!({ "wish": "another" }));
    assert_eq!(provider.calls().len(), 1, "what was given up is not sent later");
}

/// What makes a POST the same operation: its target, its marks and its bytes.
fn sameness(request: &RecordedRequest) -> (String, Vec<Option<String>>, Vec<u8>) {
    let names =
        ["authorization", "contract-version", "trace-id", "operation-id", "request-fingerprint", "content-type"];
    let headers = names.iter().map(|name| request.header(name).map(str::to_owned)).collect();
    (request.path.clone(), headers, request.body.clone())
}

#[test]
fn an_operation_the_provider_does_not_know_is_sent_again_the_same_three_times() {
    let world = world(&[Fault::ResetBefore], &[]);
    let run = world.uncertain_run();
    world.provider.set_contract_version("2027-02-03");
    world.tenant.sync(&world.endpoint);
    let operation = world.until_over();
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("uncertain"), &json!(4)), "{operation}");
    let posts = world.posts();
    assert_eq!((posts.len(), world.looks().len()), (4, 4));
    for post in &posts[1..] {
        assert_eq!(sameness(post), sameness(&posts[0]), "byte for byte");
    }
    assert_eq!(posts[0].header("operation-id"), operation["id"].as_str());
    assert_eq!(posts[0].header("request-fingerprint"), operation["fingerprint"].as_str());
    assert_eq!(posts[0].header("contract-version"), Some("2026-09-01"));
    for look in world.looks() {
        assert_eq!(look.path, format!("/receipts/{}", operation["id"].as_str().expect("an id")));
        for name in ["authorization", "contract-version", "trace-id", "request-fingerprint"] {
            assert_eq!(look.header(name), posts[0].header(name), "{name}");
        }
    }
    let run = world.tenant.agent_run(&run);
    assert_eq!((&run["status"], &run["reason"]), (&json!("uncertain"), &json!("receipt_missing")), "{run}");
    assert_eq!(world.provider.effects_total(), 0);
    world.assert_left_alone();
}

#[test]
fn a_provider_that_knows_other_content_makes_a_conflict_of_it() {
    for (calls, receipts) in [
        (&[Fault::StatusBefore(409), Fault::None][..], &[][..]),
        (&[Fault::ResetAfter, Fault::None], &[Fault::StatusBefore(409)]),
    ] {
        let world = world(calls, receipts);
        let client = world.ask();
        let operation = world.until_over();
        assert_eq!((&operation["state"], &operation["attempts"]), (&json!("conflict"), &json!(1)), "{operation}");
        let run = client.join().expect("answered").expect(200).json();
        assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(true)), "{run}");
        assert_eq!(run["error"]["code"], "operation_conflict", "{run}");
        world.assert_left_alone();
    }
}

#[test]
fn a_receipt_that_is_gone_leaves_the_operation_uncertain_for_good() {
    let world = world(&[Fault::ResetAfter], &[Fault::StatusBefore(410)]);
    let client = world.ask();
    let operation = world.until_over();
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("uncertain"), &json!(1)), "{operation}");
    let run = client.join().expect("answered").expect(200).json();
    assert_eq!((&run["status"], &run["reason"]), (&json!("uncertain"), &json!("receipt_gone")), "{run}");
    assert!(world.tenant.tenant_run(&run)["finished_at"].is_string());
    assert_eq!(world.tenant.items("/v1/operations?state=uncertain").len(), 1, "people see it");
    world.assert_left_alone();
}

// orbit#407: an expired lease repeated a committed write.
#[test]
fn a_receipt_that_is_pending_is_asked_for_again_ever_more_rarely() {
    let world = world(&[Fault::ResetAfter], &[Fault::PendingAfter]);
    let run = world.uncertain_run();
    for (done, pause_ms) in [500, 2_000, 8_000, 30_000, 120_000, 600_000, 600_000].into_iter().enumerate() {
        let pause = Duration::from_millis(pause_ms);
        let due = world.gate.clock().now().plus(pause).to_string();
        eventually("the next look has its time", || {
            (world.operation()["next_at"] == *due && world.looks().len() == done).then_some(())
        });
        world.gate.advance(pause);
    }
    world.provider.clear_fault_plan();
    eventually("the last look", || (world.looks().len() == 7).then_some(()));
    let operation = world.until_over();
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("applied"), &json!(1)), "{operation}");
    assert_eq!(world.tenant.agent_run(&run)["status"], "completed");
    assert_eq!(world.provider.effects_total(), 1);
}

#[test]
fn an_answer_that_proves_nothing_is_no_outcome_until_the_receipt_has_one() {
    for (fault, reason) in [
        (&[Fault::PendingAfter], "provider_error"),
        (&[Fault::BrokenEvidenceAfter], "evidence_contract_violation"),
        (&[Fault::GarbageAfter], "provider_protocol_error"),
        (&[Fault::StatusAfter(503)], "provider_error"),
    ] {
        let world = world(fault, &[]);
        let run = world.uncertain_run();
        let shown = world.tenant.agent_run(&run);
        assert_eq!((&shown["status"], &shown["reason"]), (&json!("uncertain"), &json!(reason)), "{fault:?} {shown}");
        assert_eq!(shown.get("result"), None, "{fault:?} {shown}");
        let operation = world.until_over();
        assert_eq!(operation["state"], "applied", "{fault:?} {operation}");
        assert_eq!(operation["receipt"]["state"], "applied", "{fault:?} {operation}");
        assert_eq!(world.tenant.agent_run(&run)["status"], "completed", "{fault:?}");
        assert_eq!((world.posts().len(), world.provider.effects_total()), (1, 1), "{fault:?}");
    }
}

#[test]
fn a_success_without_an_action_is_not_a_receipt() {
    let gate = Gate::start();
    let provider = scripted(&[mutation("wish.grant", TOOL_TIMEOUT).declaration]);
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &scripted_registration(&provider)).expect(201);
    provider.manifest(Reply::text(410, "{}"));
    let answer = |evidence: Value| {
        let body =
            json!({ "contract_version": "2026-09-01", "status": "ok", "evidence": evidence, "text": "Granted!" });
        Reply::json(200, &body)
    };
    let entity = json!({ "kind": "entity", "id": "e", "type": "wish", "key": "one" });
    let foreign = json!({
        "kind": "action", "id": "a", "action": "wish.grant", "outcome": "applied", "recorded_at": "2026-01-12T13:46:40Z",
        "operation_id": "0197f0a0-0000-7000-8000-000000000000",
        "request_fingerprint": format!("sha256:{}", "0".repeat(64)),
    });
    for reply in [
        answer(json!([])),
        answer(json!([entity])),
        answer(json!([foreign])),
        Reply::text(200, r#""Granted!""#),
        Reply::text(200, r#"{"ok":true}"#),
        Reply::text(204, ""),
    ] {
        provider.next(reply);
        let request = tenant.run_request(&wish()).header("Prefer", "wait=0");
        let run = request.send().json();
        let last = eventually("nobody knows", || {
            gate.advance(FIRST_LOOK);
            Some(tenant.tenant_run(&run)).filter(|run| run["finished_at"].is_string())
        });
        assert_eq!((&last["status"], &last["reason"]), (&json!("uncertain"), &json!("receipt_gone")), "{last}");
        assert!(!last.to_string().contains("Granted!"), "{last}");
    }
}

#[test]
fn a_new_contract_version_breaks_no_call_in_flight() {
    // Slow, lost before it was done, and lost after: each under the version it began with.
    for fault in [Fault::Late(Duration::from_secs(1)), Fault::ResetBefore, Fault::ResetAfter] {
        let world = world(&[fault], &[]);
        let client = world.ask();
        eventually("the call is sent", || world.posts().pop());
        world.provider.set_contract_version("2027-02-03");
        assert_eq!(world.tenant.sync(&world.endpoint)["outcome"], "applied");
        if fault == Fault::ResetBefore {
            world.until_state("uncertain");
            world.provider.clear_fault_plan();
        }
        let operation = world.until_over();
        assert_eq!(operation["state"], "applied", "{fault:?} {operation}");
        assert_eq!(client.join().expect("answered").json()["status"], "completed", "{fault:?}");
        let old = |request: &RecordedRequest| request.header("contract-version") == Some("2026-09-01");
        assert!(world.posts().iter().all(old) && world.looks().iter().all(old), "{fault:?}");
        world.provider.clear_fault_plan();
        assert_eq!(world.tenant.call("wish.grant", &json!({ "wish": "two" }))["status"], "completed");
        let last = world.posts().pop().expect("it was sent");
        assert_eq!(last.header("contract-version"), Some("2027-02-03"), "{fault:?}");
        assert_eq!(world.provider.effects_total(), 2, "{fault:?}");
    }
}

/// What switches off, what switches on again, and whether the tenant can look meanwhile.
fn switched_off(off: impl Fn(&World), on: impl Fn(&World)) {
    // What was done is still learned of: looking changes nothing.
    let done = world(&[Fault::ResetAfter], &[]);
    done.uncertain_run();
    off(&done);
    done.gate.advance(FIRST_LOOK);
    eventually("the receipt is looked at", || (done.looks().len() == 1).then_some(()));
    on(&done);
    assert_eq!(done.until_state("applied")["attempts"], 1);

    // What was not done is not sent meanwhile.
    let lost = world(&[Fault::ResetBefore, Fault::None], &[]);
    lost.uncertain_run();
    off(&lost);
    eventually("the receipt is looked at twice", || {
        lost.gate.advance(FIRST_LOOK);
        (lost.looks().len() == 2).then_some(())
    });
    on(&lost);
    assert_eq!((lost.posts().len(), &lost.operation()["state"]), (1, &json!("uncertain")));
    let operation = lost.until_over();
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("applied"), &json!(2)), "{operation}");
    assert_eq!(lost.provider.effects_total(), 1);
}

#[test]
fn an_endpoint_that_is_disabled_gets_questions_and_no_resends() {
    let set = |world: &World, enabled: bool| {
        let path = format!("/v1/endpoints/{}", world.endpoint.id);
        world.tenant.patch(&path, &json!({ "enabled": enabled })).expect(200);
    };
    switched_off(|world| set(world, false), |world| set(world, true));
}

#[test]
fn an_organization_that_is_suspended_has_no_resends() {
    let set = |world: &World, state: &str| {
        let path = format!("/admin/v1/orgs/{}", world.tenant.org_id);
        world.gate.operator("PATCH", &path, Some(&json!({ "state": state }))).expect(200);
    };
    switched_off(|world| set(world, "suspended"), |world| set(world, "active"));
}

/// A client that waits for a mutation which has no answer yet, or none that could be relied on.
fn without_last_word(fault: Fault) -> (World, JoinHandle<Answer>) {
    let world = world(&[fault], &[]);
    let client = world.ask();
    eventually("the call is sent", || world.posts().pop());
    if fault == Fault::ResetAfter {
        world.until_state("uncertain");
    }
    (world, client)
}

#[test]
fn a_deleted_endpoint_leaves_its_mutations_uncertain_not_cancelled() {
    for fault in [Fault::ResetAfter, Fault::Late(TOOL_TIMEOUT)] {
        let (world, client) = without_last_word(fault);
        world.tenant.delete(&format!("/v1/endpoints/{}", world.endpoint.id)).expect(204);
        let run = client.join().expect("answered").expect(200).json();
        assert_eq!((&run["status"], &run["reason"]), (&json!("uncertain"), &json!("endpoint_deleted")), "{run}");
        let operation = world.operation();
        assert_eq!((&operation["state"], operation.get("next_at")), (&json!("uncertain"), None), "{operation}");
        assert_eq!(world.tenant.tenant_run(&run)["status"], "uncertain");
        world.gate.advance(HOUR);
        assert_eq!(world.tenant.tenant_run(&run)["status"], "uncertain", "the last word");
        assert!(world.looks().is_empty());
    }
}

#[test]
fn a_deleted_organization_tells_who_waits_that_a_mutation_is_uncertain() {
    for fault in [Fault::ResetAfter, Fault::Late(TOOL_TIMEOUT)] {
        let (world, client) = without_last_word(fault);
        world.gate.operator("DELETE", &format!("/admin/v1/orgs/{}", world.tenant.org_id), None).expect(204);
        let run = client.join().expect("answered").expect(200).json();
        assert_eq!((&run["status"], &run["reason"]), (&json!("uncertain"), &json!("organization_deleted")), "{run}");
    }
}

#[test]
fn open_operations_are_counted_by_state() {
    let world = world(&[Fault::Late(Duration::from_secs(2)), Fault::None], &[]);
    let count = |state: &str| {
        let series = format!("toolgate_operations{{org=\"acme\",state=\"{state}\"}} ");
        let metrics = world.gate.metrics();
        metrics.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.parse::<u32>().expect("a count"))
    };
    let client = world.ask();
    eventually("one is sent", || (count("sent") == Some(1)).then_some(()));
    assert_eq!(client.join().expect("answered").json()["status"], "completed");
    eventually("none is", || (count("sent") == Some(0)).then_some(()));
    world.provider.set_fault_plan(|_| Fault::ResetAfter);
    world.tenant.run_request(&wish()).header("Prefer", "wait=0").send();
    eventually("one is uncertain", || (count("uncertain") == Some(1)).then_some(()));
    world.provider.clear_fault_plan();
    eventually("none is", || {
        world.gate.advance(FIRST_LOOK);
        (count("uncertain") == Some(0) && count("sent") == Some(0)).then_some(())
    });
}

// litellm#31393: arguments in the logs though logging is off.
#[test]
fn no_argument_no_result_and_no_key_is_ever_logged() {
    const WISH: &str = "words-of-ann";
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", Duration::from_secs(2))]);
    provider.set_fault_plan(|point: &FaultPoint| match (point.what, point.nth) {
        (What::Call, 1) => Fault::ResetBefore,
        (What::Call, 2) => Fault::BrokenEvidenceAfter,
        (What::Receipt, 2) => Fault::GarbageAfter,
        _ => Fault::None,
    });
    let folder = TempDir::new().expect("a temporary folder");
    let settings = [("OPERATOR__TOKEN", OPERATOR_TOKEN), ("LOG__LEVEL", "trace")];
    let toolgate = Binary::of(Binary::command(&folder, &settings));
    let tenant = toolgate.tenant("acme");
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    let body = json!({ "tool": "wish.grant", "args": { "wish": WISH } });
    let request = tenant.run_request(&body).header("Idempotency-Key", "once").header("X-Caller-Identity", "web:ann");
    let done = eventually("it is done", || {
        let answer = request.clone().header("Prefer", "wait=5").send();
        (answer.json()["status"] == "completed").then(|| answer.json())
    });
    tenant
        .run(&json!({ "tool": "wish.grant", "args": { "wish": WISH, "more": WISH } }))
        .problem(422, "invalid_arguments");
    let operation = tenant.items("/v1/operations").remove(0);
    assert_eq!((&operation["state"], &operation["attempts"]), (&json!("applied"), &json!(2)), "{operation}");
    let fact = done["result"]["facts"][0].as_str().expect("a fact").to_owned();
    let log = toolgate.log();
    assert!(log.lines().count() > 5, "it does log: {log}");
    for secret in [WISH, &fact, provider.bearer(), &tenant.agent, &tenant.workspace, OPERATOR_TOKEN, "web:ann"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}
