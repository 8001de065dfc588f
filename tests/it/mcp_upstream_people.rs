//! What an MCP server of the earlier era asks people while a call goes on, and clients that take their calls back.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::mcp::{legacy_headers, result, text};
use crate::support::mcp_server::{Era, McpServer, answer, event, response, said, stream, tool};
use crate::support::provider::{Latch, Reply, Step};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::Arc;

struct World {
    _gate: Gate,
    server: McpServer,
    tenant: Tenant,
    /// Of a client that can be asked.
    session: String,
}

fn world(settings: &[(&str, &str)]) -> World {
    let gate = Gate::with(settings);
    let server = McpServer::legacy(&[tool("act"), tool("other")]);
    let tenant = gate.tenant("acme");
    server.register(&tenant, "shop", &json!({})).assert_connected();
    let session = tenant.initialize(&json!({ "elicitation": {} })).expect("a session");
    World { _gate: gate, server, tenant, session }
}

fn call(name: &str) -> Value {
    json!({ "name": name, "arguments": {} })
}

/// The server's question.
fn asks() -> Step {
    let params = json!({ "message": "Sure?", "requestedSchema": { "type": "object", "properties": {} } });
    event(&json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params }))
}

impl World {
    /// A person's answer; the status it is taken with.
    fn answers(&self, question: &Value) -> u16 {
        let result = json!({ "action": "accept", "content": {} });
        let message = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        self.tenant.mcp(&message).header("Mcp-Session-Id", &self.session).send().status
    }
}

/// A latch, and the step that waits for it.
fn wait() -> (Arc<Latch>, Step) {
    let latch = Arc::new(Latch::default());
    (Arc::clone(&latch), Step::Wait(latch))
}

fn is_taken_back(message: &Value, question: &Value) {
    assert_eq!(message["method"], "notifications/cancelled", "{message}");
    assert_eq!(message["params"]["requestId"], question["id"], "{message}");
}

#[test]
fn a_server_that_goes_on_without_an_answer_is_not_kept_waiting() {
    let world = world(&[]);
    let (gave_up, step) = wait();
    world
        .server
        .next("tools/call", |request| stream(vec![asks(), step, event(&response(request, &said("done without you")))]));
    let mut client = world.tenant.legacy_stream(&json!(1), &call("act"), Some(&world.session));
    let question = client.expect("a question");
    gave_up.open();
    is_taken_back(&client.expect("that nobody waits for the answer"), &question);
    assert_eq!(text(&client.expect("the answer")["result"]), "done without you");
    assert_eq!(world.answers(&question), 400, "it is not open any more");
}

#[test]
fn a_server_may_take_its_question_back() {
    let world = world(&[]);
    let ((changed_its_mind, first), (done, second)) = (wait(), wait());
    world.server.next("tools/call", |request| {
        let of =
            |id: Value| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        let others = event(&of(json!("7")));
        stream(vec![asks(), others, first, event(&of(json!(7))), second, event(&response(request, &said("done")))])
    });
    let mut client = world.tenant.legacy_stream(&json!(1), &call("act"), Some(&world.session));
    let question = client.expect("a question");
    changed_its_mind.open();
    is_taken_back(&client.expect("that nobody waits for the answer"), &question);
    assert_eq!(world.answers(&question), 400);
    done.open();
    assert_eq!(text(&client.expect("the answer")["result"]), "done");
    assert_eq!(world.server.count("response"), 0, "nor is the server told an answer");
}

#[test]
fn a_server_that_dies_while_somebody_is_asked_ends_the_call() {
    let world = world(&[]);
    let (dies, step) = wait();
    world.server.next("tools/call", |_| stream(vec![asks(), step, Step::Break]));
    let mut client = world.tenant.legacy_stream(&json!(1), &call("act"), Some(&world.session));
    let question = client.expect("a question");
    dies.open();
    is_taken_back(&client.expect("that nobody waits for the answer"), &question);
    assert_eq!(client.expect("the answer")["result"]["isError"], true);
    let runs = world.tenant.items("/v1/runs");
    assert_eq!(runs[0]["status"], "uncertain", "{runs:?}");
}

/// Also before the server has begun to answer the call: it asks on the stream beside it.
#[test]
fn the_clock_stands_still_while_somebody_is_asked_beside_the_call() {
    let world = world(&[]);
    for tool in ["act", "other"] {
        world.tenant.patch(&format!("/v1/tools/{tool}"), &json!({ "timeout_ms": 500 })).expect(200);
    }
    let ((answered, held), (_open, beside)) = (wait(), wait());
    let Step::Wait(held) = held else { unreachable!("it waits") };
    world.server.next("GET", |_| stream(vec![asks(), beside]));
    world.server.next("tools/call", |request| Reply::Held(held, Box::new(answer(request, &said("done")))));
    let mut client = world.tenant.legacy_stream(&json!(1), &call("act"), Some(&world.session));
    let question = client.expect("a question");
    // Another call with as much time uses it all up meanwhile.
    let (_never, hangs) = wait();
    world.server.next("tools/call", |_| stream(vec![hangs]));
    assert_eq!(world.tenant.call("other", &json!({}))["status"], "uncertain");
    assert_eq!(world.answers(&question), 202);
    eventually("the server is told", || (world.server.count("response") == 1).then_some(()));
    answered.open();
    assert_eq!(text(&client.expect("the answer")["result"]), "done");
}

/// People's time frees a call's place at its endpoint; what comes after it needs one again.
#[test]
fn a_call_goes_on_after_its_question_when_it_has_a_place_again() {
    let world = world(&[("LIMITS__ENDPOINT_IN_FLIGHT", "1")]);
    let ((answered, step), (other_done, held)) = (wait(), wait());
    let Step::Wait(held) = held else { unreachable!("it waits") };
    world.server.next("tools/call", |request| stream(vec![asks(), step, event(&response(request, &said("done")))]));
    let mut client = world.tenant.legacy_stream(&json!(1), &call("act"), Some(&world.session));
    let question = client.expect("a question");
    world.server.next("tools/call", |request| Reply::Held(held, Box::new(answer(request, &said("done")))));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| world.tenant.call("other", &json!({})));
        eventually("the other call has the place", || (world.server.calls().len() == 2).then_some(()));
        assert_eq!(world.answers(&question), 202);
        // Whoever wants the place as well waits for as long as anybody does.
        let refused = world.tenant.run(&json!({ "tool": "other", "args": {} }));
        refused.problem(503, "endpoint_unavailable");
        assert_eq!(world.server.count("response"), 0, "the place is taken");
        other_done.open();
        assert_eq!(other.join().expect("no panic")["status"], "completed");
    });
    eventually("the server is told", || (world.server.count("response") == 1).then_some(()));
    answered.open();
    assert_eq!(text(&client.expect("the answer")["result"]), "done");
}

/// A call that its client takes back while a session is being opened for it is not sent, and is no attempt.
#[test]
fn a_call_that_is_taken_back_before_it_is_sent_is_not_sent() {
    let world = world(&[]);
    let server = McpServer::start(Era::LegacyWithoutSessions, &[tool("slow")]);
    server.register(&world.tenant, "slow", &json!({})).assert_connected();
    let opened = server.count("initialize");
    let (may_open, held) = wait();
    let Step::Wait(held) = held else { unreachable!("it waits") };
    server.next("initialize", |request| {
        let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {} });
        Reply::Held(held, Box::new(answer(request, &result)))
    });
    let message = json!({ "jsonrpc": "2.0", "id": "c-1", "method": "tools/call", "params": call("slow") });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "c-1" } });
    let in_session = |message: &Value| {
        let headers = legacy_headers(Some(&world.session));
        let request = world.tenant.mcp(message).header("Idempotency-Key", "k-1");
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
    };
    std::thread::scope(|scope| {
        let taken_back = scope.spawn(|| in_session(&message));
        // The client may be asked, so there is a session for it alone.
        eventually("a session is being opened", || (server.count("initialize") == opened + 1).then_some(()));
        in_session(&cancel).expect(202);
        assert_eq!(taken_back.join().expect("no panic").text(), "", "there is no answer");
    });
    may_open.open();
    let run = eventually("the run is over", || {
        let run = world.tenant.items("/v1/runs").remove(0);
        (run["status"] != "pending").then_some(run)
    });
    assert_eq!((&run["status"], &run["started"]), (&json!("cancelled"), &json!(false)), "{run}");
    assert!(server.calls().is_empty() && server.count("notifications/cancelled") == 0);
    // The key stands for nothing that was done.
    assert_eq!(text(&result(&in_session(&message))), "done");
    assert_eq!(server.calls().len(), 1);
}
