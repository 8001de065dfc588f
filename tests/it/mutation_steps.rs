//! One fault at every step of an operation's life: at its POST, at the look at its receipt, at its resend; and a kill of
//! toolgate at each of them.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::binary::Binary;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tempfile::TempDir;
use toolgate::demo::agent_provider::{Fault, FaultPoint, What};

const TOOL_TIMEOUT: Duration = Duration::from_millis(300);
const STALL: Duration = Duration::from_millis(450);

/// What may happen to a POST.
const CALL_FAULTS: [Fault; 14] = [
    Fault::None,
    Fault::ResetBefore,
    Fault::ResetAfter,
    Fault::StallBefore(STALL),
    Fault::StallAfter(STALL),
    Fault::Late(STALL),
    Fault::StatusBefore(500),
    Fault::StatusAfter(503),
    Fault::StatusBefore(408),
    Fault::StatusBefore(409),
    Fault::GarbageAfter,
    Fault::BrokenEvidenceAfter,
    Fault::PendingAfter,
    Fault::PartialAfter,
];

/// What may happen to a look at a receipt.
const RECEIPT_FAULTS: [Fault; 9] = [
    Fault::None,
    Fault::ResetBefore,
    Fault::StatusBefore(500),
    Fault::StatusBefore(404),
    Fault::StatusBefore(409),
    Fault::StatusBefore(410),
    Fault::GarbageAfter,
    Fault::BrokenEvidenceAfter,
    Fault::PendingAfter,
];

/// First POST, first look, second POST.
type Plan = (Fault, Fault, Fault);

fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for first in CALL_FAULTS {
        for look in RECEIPT_FAULTS {
            for again in CALL_FAULTS {
                // Only an operation that is unknown, or said to be, is sent again.
                let resends = look == Fault::StatusBefore(404) || look == Fault::None;
                if resends || again == Fault::None {
                    plans.push((first, look, again));
                }
            }
        }
    }
    plans
}

fn fault_of((first, look, again): Plan, point: &FaultPoint) -> Fault {
    match (point.what, point.nth) {
        (What::Call, 1) => first,
        (What::Receipt, 1) => look,
        (What::Call, 2) => again,
        _ => Fault::None,
    }
}

#[test]
fn whatever_fails_at_whichever_step_there_is_one_effect_at_most_and_the_truth_is_told() {
    let plans = plans();
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
    let by_operation: Arc<Mutex<HashMap<String, Plan>>> = Arc::default();
    provider.set_fault_plan({
        let (left, by_operation) = (Mutex::new(plans.clone()), Arc::clone(&by_operation));
        move |point: &FaultPoint| {
            let Some(operation) = &point.operation_id else { return Fault::None };
            let mut known = by_operation.lock().expect("no panic");
            let plan = *known.entry(operation.clone()).or_insert_with(|| {
                left.lock().expect("no panic").pop().unwrap_or((Fault::None, Fault::None, Fault::None))
            });
            fault_of(plan, point)
        }
    });
    // A breaker that opens would be right, and would hide the steps.
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    // One endpoint for a few of them each: its breaker never sees enough failures to open.
    let endpoints = plans.len().div_ceil(15);
    for number in 0..endpoints {
        let mut registration = provider.registration(&format!("wishes-{number}"));
        registration["name_prefix"] = json!(format!("e{number}_"));
        tenant.post("/v1/endpoints", &registration).expect(201);
    }
    let ask = |wish: usize| {
        let tool = format!("e{}_wish.grant", wish % endpoints);
        let body = json!({ "tool": tool, "args": { "wish": format!("wish-{wish}") } });
        tenant.run_request(&body).header("Prefer", "wait=0").send()
    };
    std::thread::scope(|scope| {
        for client in 0..8 {
            let ask = &ask;
            let wishes = (0..plans.len()).filter(move |wish| wish % 8 == client);
            scope.spawn(move || wishes.for_each(|wish| assert!(matches!(ask(wish).status, 200 | 202))));
        }
    });
    // Time passes until every operation has its last word.
    let operations = eventually("every operation has its last word", || {
        gate.advance(Duration::from_secs(15));
        let open = ["sent", "prepared"].iter().map(|state| list(&tenant, "operations", state).len()).sum::<usize>();
        let runs = all(&tenant, "/v1/runs");
        let settled = runs.iter().all(|run| run["finished_at"].is_string());
        (open == 0 && settled && runs.len() == plans.len()).then(|| all(&tenant, "/v1/operations"))
    });
    assert_eq!(operations.len(), plans.len());
    let plan_of = by_operation.lock().expect("no panic").clone();
    for operation in &operations {
        check(&tenant, &provider, operation, plan_of[operation["id"].as_str().expect("an id")]);
    }
    assert_eq!(plan_of.len(), plans.len(), "an operation is never made anew");
}

/// One operation: its state, its run and what the provider did agree.
fn check(tenant: &Tenant, provider: &ReceiptProvider, operation: &Value, plan: Plan) {
    let id = operation["id"].as_str().expect("an id");
    let effects = provider.effects(id);
    let run = tenant.tenant_run(operation);
    let seen = format!("{plan:?}: {effects} effects, {operation}, {run}");
    assert!(effects <= 1, "{seen}");
    match operation["state"].as_str().expect("a state") {
        "applied" => {
            assert_eq!((effects, &run["status"]), (1, &json!("completed")), "{seen}");
        }
        "conflict" => assert_eq!(run["error"]["code"], "operation_conflict", "{seen}"),
        "uncertain" => {
            assert_eq!(run["status"], "uncertain", "{seen}");
            assert!(plan.1 == Fault::StatusBefore(410), "only a forgotten receipt leaves it open: {seen}");
        }
        other => panic!("{other}: {seen}"),
    }
}

fn list(tenant: &Tenant, what: &str, state: &str) -> Vec<Value> {
    tenant.items(&format!("/v1/{what}?state={state}&limit=200"))
}

/// All pages of a list.
fn all(tenant: &Tenant, path: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = tenant.get(&format!("{path}?limit=200{cursor}")).expect(200).json();
        items.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

/// A request at which toolgate dies, and what the provider makes of that request.
const DEATHS: [(What, u32, Fault); 8] = [
    (What::Call, 1, Fault::ResetBefore),
    (What::Call, 1, Fault::ResetAfter),
    (What::Call, 1, Fault::Late(STALL)),
    (What::Receipt, 1, Fault::ResetBefore),
    (What::Receipt, 1, Fault::PendingAfter),
    (What::Call, 2, Fault::ResetBefore),
    (What::Call, 2, Fault::ResetAfter),
    (What::Receipt, 2, Fault::ResetBefore),
];

#[test]
fn killed_at_any_step_it_goes_on_where_it_was() {
    for (what, nth, fault) in DEATHS {
        let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
        let (reached, step) = mpsc::channel();
        provider.set_fault_plan(move |point: &FaultPoint| {
            if (point.what, point.nth) == (what, nth) {
                let _ = reached.send(());
                return fault;
            }
            match (point.what, point.nth) {
                // What leads to a second POST: the first one never arrives.
                (What::Call, 1) if (what, nth) != (What::Receipt, 1) || fault != Fault::PendingAfter => {
                    Fault::ResetBefore
                }
                (What::Call, 1) => Fault::ResetAfter,
                // What leads to a second look: the first one cannot be read.
                (What::Receipt, 1) if (what, nth) == (What::Receipt, 2) => Fault::StatusBefore(503),
                _ => Fault::None,
            }
        });
        let folder = TempDir::new().expect("a temporary folder");
        let toolgate = Binary::serve(&folder);
        let tenant = toolgate.tenant("acme");
        tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
        let body = json!({ "tool": "wish.grant", "args": { "wish": "one" } });
        let request = tenant.run_request(&body).header("Idempotency-Key", "once");
        let client = std::thread::spawn({
            let request = request.clone();
            move || request.try_send().is_ok()
        });
        let reached = step.recv_timeout(Duration::from_secs(30));
        toolgate.kill();
        let _ = client.join();
        reached.unwrap_or_else(|_| panic!("{what:?} {nth} is never reached"));

        let toolgate = Binary::serve(&folder);
        let tenant = Tenant { client: toolgate.client().clone(), ..tenant };
        let last = eventually("the operation has its last word", || {
            let request = tenant.run_request(&body).header("Idempotency-Key", "once").header("Prefer", "wait=2");
            let answer = request.try_send().ok().filter(|answer| answer.status == 200)?.json();
            (answer["status"] == "completed").then_some(answer)
        });
        let seen = format!("{what:?} {nth} {fault:?}: {last}");
        assert_eq!(provider.effects_log().len(), 1, "{seen}");
        assert_eq!(all(&tenant, "/v1/operations").len(), 1, "{seen}");
        assert_eq!(tenant.items("/v1/operations")[0]["state"], "applied", "{seen}");
    }
}
