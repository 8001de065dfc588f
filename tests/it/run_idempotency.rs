//! `Idempotency-Key` on runs: one key of an agent, one run, one effect, whatever the dialect and whatever happens between
//! the first call and its retries.

use crate::support::agent_provider::{ReceiptProvider, found, mutation, read, scripted, scripted_registration};
use crate::support::client::{Answer, Request};
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, median_with, topology, topology_with};
use crate::support::provider::{Latch, Provider, Reply, acknowledge};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use toolgate::demo::agent_provider::{AgentProviderOptions, Fault, FaultPoint, What};

const HOUR: Duration = Duration::from_secs(3600);
const TOOL_TIMEOUT: Duration = Duration::from_secs(10);
/// Long enough for everybody to have come before the first is answered.
const LATE: Duration = Duration::from_millis(300);

fn keyed(tenant: &Tenant, key: &str, body: &Value) -> Request {
    tenant.run_request(body).header("Idempotency-Key", key)
}

fn id_of(answer: &Answer) -> String {
    answer.json()["correlation_id"].as_str().expect("a correlation id").to_owned()
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("idempotent-replay").inspect(|value| assert_eq!(*value, "true")).is_some()
}

/// A run of its own; answers it.
#[track_caller]
fn made(request: Request) -> Answer {
    let answer = request.send();
    assert!(matches!(answer.status, 200 | 202) && !is_replay(&answer), "{} {}", answer.status, answer.text());
    answer
}

/// The same run again, to the byte.
#[track_caller]
fn replayed(request: Request, first: &Answer) {
    let again = request.send();
    assert!(is_replay(&again), "{} {}", again.status, again.text());
    assert_eq!((again.status, again.text()), (first.status, first.text()));
}

/// Fifty identical calls at the same moment: all but one are replays of the one.
#[track_caller]
fn race(tenant: &Tenant, tool: &str, args: &Value, status: u16) -> Value {
    const CLIENTS: usize = 50;
    let start = Barrier::new(CLIENTS);
    let request = keyed(tenant, "race", &json!({ "tool": tool, "args": args }));
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let client = || {
            let request = request.clone();
            start.wait();
            request.send()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
    });
    let bodies: HashSet<(u16, &str)> = answers.iter().map(|answer| (answer.status, answer.text())).collect();
    assert_eq!(bodies.len(), 1, "one status, one correlation id, one outcome: {bodies:?}");
    assert_eq!(answers[0].status, status, "{}", answers[0].text());
    assert_eq!(answers.iter().filter(|answer| is_replay(answer)).count(), CLIENTS - 1, "all but the first");
    assert_eq!(tenant.items("/v1/runs").len(), 1);
    answers[0].json()
}

// laravel-idempotency#1, grape-idempotency#10: check, then set, and both ran.
#[test]
fn fifty_identical_mutations_at_once_have_one_effect() {
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
    provider.set_fault_plan(|point: &FaultPoint| match point.what {
        What::Call => Fault::Late(LATE),
        What::Discovery | What::Receipt => Fault::None,
    });
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    let run = race(&tenant, "wish.grant", &json!({ "wish": "one" }), 200);
    assert_eq!(run["status"], "completed", "{run}");
    assert_eq!(provider.effects_total(), 1);
    let operations = tenant.items("/v1/operations");
    assert_eq!((operations.len(), &operations[0]["attempts"]), (1, &json!(1)), "{operations:?}");
}

#[test]
fn fifty_identical_median_calls_at_once_are_one() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("erase", "medium")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("desk", &provider);
    provider.next(Reply::Late(LATE, Box::new(Reply::text(200, r#"{"result":{"erased":1}}"#))));
    let run = race(&tenant, "erase", &json!({}), 200);
    assert_eq!((&run["status"], &run["result"]), (&json!("completed"), &json!({ "erased": 1 })));
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn fifty_identical_topology_commands_at_once_start_one() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("act", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    provider.next(Reply::Late(LATE, Box::new(acknowledge("command", "p-1"))));
    assert_eq!(race(&tenant, "act", &json!({}), 202)["status"], "started");
    assert_eq!(provider.calls().len(), 1);
}

// svix: its lock lives five seconds, and what takes longer runs twice.
#[test]
fn a_second_call_while_the_first_runs_shares_its_outcome() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("erase", "medium")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("desk", &provider);
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::text(200, r#"{"result":"done"}"#))));
    let request = keyed(&tenant, "k", &json!({ "tool": "erase" }));
    let ask = || {
        let request = request.clone();
        std::thread::spawn(move || request.send())
    };
    let first = ask();
    eventually("the call is sent", || provider.calls().pop());
    gate.advance(HOUR);
    let second = ask();
    let impatient = request.clone().header("Prefer", "wait=0").send().expect(202);
    assert!(is_replay(&impatient), "{}", impatient.text());
    assert_eq!(impatient.json()["status"], "pending");
    latch.open();
    let (first, second) = (first.join().expect("answered"), second.join().expect("answered"));
    assert_eq!((first.status, first.json()["result"].as_str()), (200, Some("done")));
    assert_eq!(second.text(), first.text());
    assert!(!is_replay(&first) && is_replay(&second));
    assert_eq!(id_of(&impatient), id_of(&first));
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn a_retry_finds_its_run_after_a_restart_and_after_the_manifest_has_moved_on() {
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let endpoint = tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201).json();
    let body = json!({ "tool": "wish.grant", "args": { "wish": "one" } });
    let first = made(keyed(&tenant, "k", &body)).expect(200);
    replayed(keyed(&tenant, "k", &body), &first);

    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    replayed(keyed(&tenant, "k", &body), &first);

    let mut tool = mutation("wish.grant", TOOL_TIMEOUT).declaration;
    tool["parameters"]["properties"] = json!({ "count": { "type": "integer" } });
    tool["parameters"]["required"] = json!(["count"]);
    let manifest = json!({
        "protocol_version": "1", "contract_version": "2027-01-01", "capabilities": ["mutate"], "languages": ["en"],
        "receipt_retention_seconds": 3600, "tools": [tool],
    });
    provider.set_manifest(Some(manifest.to_string()));
    let path = format!("/v1/endpoints/{}/sync", endpoint["id"].as_str().expect("an id"));
    assert_eq!(tenant.post(&path, &json!({})).expect(200).json()["outcome"], "applied");
    tenant.run(&body).problem(422, "invalid_arguments");
    keyed(&tenant, "other", &body).send().problem(422, "invalid_arguments");
    replayed(keyed(&tenant, "k", &body), &first);
    assert_eq!(provider.effects_total(), 1);
}

#[test]
fn what_a_key_stands_for_outlives_every_retention_until_its_own_end() {
    let options = AgentProviderOptions {
        receipt_retention: 72 * HOUR,
        tools: vec![mutation("wish.grant", TOOL_TIMEOUT)],
        ..AgentProviderOptions::default()
    };
    let provider = ReceiptProvider::start(options);
    let desk = Provider::median(&[median("erase", "medium")]);
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    tenant.endpoint("desk", &desk);
    tenant.patch("/v1/org", &json!({ "retention": { "run_retention_h": 2, "result_retention_h": 1 } })).expect(200);
    let (grant, erase) = (json!({ "tool": "wish.grant", "args": { "wish": "one" } }), json!({ "tool": "erase" }));
    let granted = made(keyed(&tenant, "grant", &grant));
    let erased = made(keyed(&tenant, "erase", &erase));
    let gone = |id: String| {
        let path = format!("/v1/runs/{id}");
        eventually("the run is purged", || (tenant.get(&path).status == 404).then_some(()));
    };

    let unkeyed = made(tenant.run_request(&grant));
    gate.advance(24 * HOUR - Duration::from_secs(1));
    gone(id_of(&unkeyed));
    replayed(keyed(&tenant, "grant", &grant), &granted);
    replayed(keyed(&tenant, "erase", &erase), &erased);

    // Without receipts a day; with them as long as they are kept.
    gate.advance(Duration::from_secs(1));
    assert_ne!(id_of(&made(keyed(&tenant, "erase", &erase))), id_of(&erased), "the key is free again");
    gate.advance(HOUR);
    gone(id_of(&erased));
    replayed(keyed(&tenant, "grant", &grant), &granted);
    gate.advance(47 * HOUR - Duration::from_secs(1));
    replayed(keyed(&tenant, "grant", &grant), &granted);
    gate.advance(Duration::from_secs(1));
    // The key's end is the end of what it forbade, too.
    let other = json!({ "tool": "wish.grant", "args": { "wish": "two" } });
    assert_ne!(id_of(&made(keyed(&tenant, "grant", &other))), id_of(&granted));
    gate.advance(HOUR);
    gone(id_of(&granted));
    assert_eq!((provider.effects_total(), desk.calls().len()), (3, 2));
}

/// Topology commands whose `amount` may be any number, or a text that is one; `pay` asks the end user first.
fn bank() -> (Gate, Provider, Tenant) {
    let gate = Gate::with(&[("LIMITS__CALLER_PER_SECOND", "1"), ("LIMITS__CALLER_PER_SECOND_BURST", "1")]);
    let schema = json!({
        "type": "object", "properties": { "amount": { "type": "number" }, "to": { "type": "string" } },
        "additionalProperties": false,
    });
    let tool = |name| topology_with(name, "command", &schema);
    let provider =
        Provider::topology(&[tool("book"), tool("note"), having(tool("pay"), "requires_confirmation", json!(true))]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("bank", &provider);
    (gate, provider, tenant)
}

/// The call as this text.
fn said(tenant: &Tenant, key: &str, body: &str) -> Request {
    tenant.agent_request("POST", "/mcp/run").text("application/json", body).header("Idempotency-Key", key)
}

// svix: the key ignored the body.
#[test]
fn a_call_is_the_same_by_its_tool_arguments_and_caller_however_they_are_spelled() {
    let (_gate, provider, tenant) = bank();
    let first = made(said(&tenant, "k", r#"{"tool":"topology:book","args":{"amount":1,"to":"ann"}}"#));
    for same in [
        r#"{"tool":"book","args":{"amount":1,"to":"ann"}}"#,
        r#"{ "args": {"to":"\u0061nn", "amount":1.0 }, "tool":"book" }"#,
        r#"{"tool":"book","args":{"amount":10e-1,"to":"ann"},"confirmation":"any"}"#,
        r#"{"tool":"book","args":{"amount":1,"to":"ann"},"request_id":"r-2","context":{"turn":2,"locale":"de"}}"#,
    ] {
        replayed(said(&tenant, "k", same), &first);
    }
    replayed(said(&tenant, "\"k\"", r#"{"tool":"book","args":{"amount":1,"to":"ann"}}"#), &first);
    for other in [
        r#"{"tool":"book","args":{"amount":2,"to":"ann"}}"#,
        // As sent: coercion would make them one.
        r#"{"tool":"book","args":{"amount":"1","to":"ann"}}"#,
        r#"{"tool":"book","args":{"amount":1,"to":"Ann"}}"#,
        r#"{"tool":"book","args":{"amount":1}}"#,
        r#"{"tool":"book","args":{"amount":1,"to":"ann","more":null}}"#,
        r#"{"tool":"book"}"#,
        r#"{"tool":"note","args":{"amount":1,"to":"ann"}}"#,
    ] {
        said(&tenant, "k", other).send().problem(409, "operation_conflict");
    }
    let with_caller = said(&tenant, "k", r#"{"tool":"book","args":{"amount":1,"to":"ann"}}"#);
    with_caller.header("X-Caller-Identity", "web:ann").send().problem(409, "operation_conflict");
    // Two integers that are one double are two calls all the same.
    made(said(&tenant, "big", r#"{"tool":"book","args":{"amount":9007199254740992}}"#));
    let neighbour = said(&tenant, "big", r#"{"tool":"book","args":{"amount":9007199254740993}}"#);
    neighbour.send().problem(409, "operation_conflict");
    let of_ann = |key| said(&tenant, key, r#"{"tool":"book"}"#).header("X-Caller-Identity", "web:ann");
    let first = made(of_ann("ann"));
    replayed(of_ann("ann"), &first);
    let of_bob = said(&tenant, "ann", r#"{"tool":"book"}"#).header("X-Caller-Identity", "web:bob");
    of_bob.send().problem(409, "operation_conflict");
    assert_eq!(provider.calls().len(), 3);
}

#[test]
fn a_conflict_comes_after_404_and_before_validation_tokens_and_limits() {
    let (gate, provider, tenant) = bank();
    let ann = |key: &str, body: &Value| keyed(&tenant, key, body).header("X-Caller-Identity", "web:ann");
    let book = json!({ "tool": "book", "args": { "amount": 1 } });
    let first = made(ann("k", &book));
    for tool in ["missing", "topology:missing", "median:book"] {
        ann("k", &json!({ "tool": tool })).send().problem(404, "unknown_tool");
    }
    ann("k", &json!({ "tool": "book", "args": [] })).send().problem(400, "invalid_request");
    ann("k", &json!({ "tool": "book", "args": { "amount": "x" } })).send().problem(409, "operation_conflict");
    ann("k", &json!({ "tool": "pay" })).send().problem(409, "operation_conflict");
    ann("k", &json!({ "tool": "pay", "confirmation": "no token" })).send().problem(409, "operation_conflict");
    ann("k", &json!({ "tool": "book" })).send().problem(409, "operation_conflict");
    // Ann's rate is used up, and a retry costs nothing.
    ann("free", &book).send().problem(429, "rate_limited");
    replayed(ann("k", &book), &first);
    assert_eq!(provider.calls().len(), 1);
    // A tool that is not there any more is unknown to its own retries, too, and found again when it is back.
    let endpoint = format!("/v1/endpoints/{}", tenant.items("/v1/endpoints")[0]["id"].as_str().expect("an id"));
    tenant.patch(&endpoint, &json!({ "enabled": false })).expect(200);
    ann("k", &book).send().problem(404, "unknown_tool");
    tenant.patch(&endpoint, &json!({ "enabled": true })).expect(200);
    replayed(ann("k", &book), &first);
    drop(gate);
}

#[test]
fn a_key_belongs_to_one_agent_key_of_one_organization() {
    let (gate, provider, tenant) = bank();
    let second = tenant.as_agent(&tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let other = gate.tenant("other");
    other.endpoint("bank", &provider);
    let body = |amount: u32| json!({ "tool": "book", "args": { "amount": amount } });
    let ids: HashSet<String> = [(&tenant, 1), (&second, 1), (&other, 2)]
        .into_iter()
        .map(|(agent, amount)| id_of(&made(keyed(agent, "k", &body(amount)))))
        .collect();
    assert_eq!((ids.len(), provider.calls().len()), (3, 3));
    keyed(&second, "k", &body(2)).send().problem(409, "operation_conflict");
}

#[test]
fn what_was_refused_reserves_nothing() {
    let (gate, provider, tenant) = bank();
    let book = |amount: u32| json!({ "tool": "book", "args": { "amount": amount } });
    let free = |key: &str| assert_eq!(made(keyed(&tenant, key, &book(7))).json()["status"], "started", "{key}");
    keyed(&tenant, "400", &json!({ "tool": "book", "args": 1 })).send().problem(400, "invalid_request");
    keyed(&tenant, "404", &json!({ "tool": "missing" })).send().problem(404, "unknown_tool");
    keyed(&tenant, "422", &json!({ "tool": "book", "args": { "x": 1 } })).send().problem(422, "invalid_arguments");
    let token = json!({ "tool": "book", "confirmation": "no token" });
    keyed(&tenant, "mismatch", &token).send().problem(409, "confirmation_mismatch");
    let asked = made(keyed(&tenant, "confirm", &json!({ "tool": "pay" }))).json();
    assert_eq!(asked["status"], "confirmation_required");
    made(tenant.run_request(&book(1)).header("X-Caller-Identity", "web:ann"));
    let limited = keyed(&tenant, "429", &book(1)).header("X-Caller-Identity", "web:ann");
    limited.send().problem(429, "rate_limited");
    // One call at a time, and that one hangs.
    tenant.patch("/v1/org", &json!({ "limits": { "endpoint_in_flight": 1 } })).expect(200);
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(acknowledge("command", "p"))));
    let (sent, agent) = (provider.calls().len(), tenant.clone());
    let hanging = std::thread::spawn(move || agent.call("book", &json!({})));
    eventually("the slot is taken", || (provider.calls().len() > sent).then_some(()));
    keyed(&tenant, "503", &book(1)).send().problem(503, "endpoint_unavailable");
    latch.open();
    assert_eq!(hanging.join().expect("answered")["status"], "started");
    ["400", "404", "422", "mismatch", "confirm", "429", "503"].into_iter().for_each(free);
    drop(gate);
}

/// A first call that reaches nobody, then a retry that does; answers the retry.
#[track_caller]
fn down_and_up(tenant: &Tenant, provider: &Provider, tool: &str) -> Answer {
    let body = json!({ "tool": tool });
    provider.go_down();
    let failed = made(keyed(tenant, "k", &body)).expect(200).json();
    assert_eq!((&failed["status"], &failed["started"]), (&json!("failed"), &json!(false)), "{failed}");
    assert_eq!(failed["error"]["code"], "endpoint_unavailable", "{failed}");
    provider.come_back();
    let second = made(keyed(tenant, "k", &body));
    assert_ne!(id_of(&second), failed["correlation_id"].as_str().expect("an id"), "a run of its own");
    assert_eq!(second.json()["started"], true, "{}", second.text());
    replayed(keyed(tenant, "k", &body), &second);
    second
}

#[test]
fn a_run_that_never_left_gives_its_key_back() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let topologies = Provider::topology(&[topology("act", "command")]);
    tenant.endpoint("topologies", &topologies);
    assert_eq!(down_and_up(&tenant, &topologies, "act").json()["status"], "started");
    let medians = Provider::median(&[median("erase", "medium")]);
    tenant.endpoint("medians", &medians);
    let erased = Tenant { agent: tenant.agent_key(&json!({ "name": "2", "groups": ["default"] })), ..tenant.clone() };
    assert_eq!(down_and_up(&erased, &medians, "erase").json()["status"], "completed");
    let wishes = scripted(&[having(
        mutation("wish.grant", TOOL_TIMEOUT).declaration,
        "parameters",
        read("x")["parameters"].clone(),
    )]);
    tenant.post("/v1/endpoints", &scripted_registration(&wishes)).expect(201);
    let wisher = Tenant { agent: tenant.agent_key(&json!({ "name": "3", "groups": ["default"] })), ..tenant.clone() };
    wishes.next(Reply::text(403, "{}"));
    assert_eq!(down_and_up(&wisher, &wishes, "wish.grant").json()["error"]["code"], "provider_auth_failed");
    // And a topology that says that it has started nothing.
    let body = json!({ "tool": "act" });
    topologies.next(Reply::json(200, &json!({ "kind": "command", "status": "failed", "started": false })));
    let failed = made(keyed(&tenant, "unstarted", &body)).json();
    assert_eq!((&failed["status"], &failed["started"]), (&json!("failed"), &json!(false)), "{failed}");
    assert_eq!(made(keyed(&tenant, "unstarted", &body)).json()["status"], "started");
}

#[test]
fn an_outcome_that_is_not_known_is_uncertain_with_a_key_and_not_sent_again() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("look", "low"), median_with("erase", "medium", &json!({}))]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("desk", &provider);
    let look = json!({ "tool": "look" });
    provider.next(Reply::Hangup);
    assert_eq!(tenant.run(&look).expect(200).json()["status"], "failed", "it may be made again");
    provider.next(Reply::Hangup);
    let first = made(keyed(&tenant, "k", &look)).expect(200);
    assert_eq!(first.json()["status"], "uncertain", "{}", first.text());
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    replayed(keyed(&tenant, "k", &look), &first);
    assert_eq!(tenant.tenant_run(&first.json())["status"], "uncertain");
    provider.next(Reply::Hangup);
    assert_eq!(tenant.run(&json!({ "tool": "erase" })).json()["status"], "uncertain");
    assert_eq!(provider.calls().len(), 3);
}

#[test]
fn a_plain_read_with_a_key_is_recorded_before_it_is_sent() {
    let gate = Gate::start();
    let provider = scripted(&[read("order.get")]);
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &scripted_registration(&provider)).expect(201);
    let body = json!({ "tool": "order.get", "args": { "order": "ORD-1" } });
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(found("ORD-1"))));
    let request = keyed(&tenant, "k", &body);
    let client = std::thread::spawn({
        let request = request.clone();
        move || request.send()
    });
    eventually("the read is sent", || provider.calls().pop());
    assert_eq!(tenant.items("/v1/runs")[0]["status"], "pending");
    latch.open();
    let first = client.join().expect("answered").expect(200);
    assert_eq!(first.json()["status"], "completed");
    replayed(request, &first);
    // Nothing is lost by a read that failed; its key stands for that failure.
    provider.next(Reply::Hangup);
    let failed = made(keyed(&tenant, "lost", &body)).expect(200);
    assert_eq!((&failed.json()["status"], &failed.json()["started"]), (&json!("failed"), &json!(true)));
    let gate = gate.restart();
    replayed(keyed(&tenant.at(&gate), "lost", &body), &failed);
    assert_eq!(provider.calls().len(), 2);
}

#[test]
fn a_key_goes_with_a_confirmation() {
    let (gate, provider, tenant) = bank();
    let plain = json!({ "tool": "pay", "args": { "amount": 5 } });
    let asked = made(keyed(&tenant, "k", &plain)).expect(200).json();
    let confirmed = having(plain.clone(), "confirmation", asked["confirmation"]["token"].clone());
    let first = made(keyed(&tenant, "k", &confirmed)).expect(202);
    assert_eq!(first.json()["status"], "started");
    replayed(keyed(&tenant, "k", &confirmed), &first);
    // The key answers for the call, with whatever token, after the token's time, and nobody is asked again.
    gate.advance(HOUR);
    replayed(keyed(&tenant, "k", &plain), &first);
    replayed(keyed(&tenant, "k", &having(plain.clone(), "confirmation", json!("no token"))), &first);
    // A new key with a token that was used answers the run the token started, and takes no key.
    let asked = made(keyed(&tenant, "k-2", &plain)).json();
    let confirmed = having(plain.clone(), "confirmation", asked["confirmation"]["token"].clone());
    let second = made(keyed(&tenant, "k-2", &confirmed)).expect(202);
    assert_eq!(id_of(&keyed(&tenant, "k-3", &confirmed).send().expect(202)), id_of(&second));
    assert_eq!(made(keyed(&tenant, "k-3", &plain)).json()["status"], "confirmation_required");
    assert_eq!(provider.calls().len(), 2);
}
