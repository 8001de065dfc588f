//! Dialect topology: what becomes of a run when its provider does not do what it should.

use crate::support::client::Answer;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, topology};
use crate::support::node::Node;
use crate::support::provider::{Provider, Reply, acknowledge};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

struct World {
    gate: Gate,
    provider: Provider,
    tenant: Tenant,
    node: Node,
}

/// A command `act` and a query `ask`, each with half a second.
fn world() -> World {
    let gate = Gate::start();
    let timed = |name, kind| having(topology(name, kind), "timeout_ms", json!(500));
    let provider = Provider::topology(&[timed("act", "command"), timed("ask", "query")]);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    World { gate, provider, tenant, node }
}

impl World {
    /// Runs the tool against this reply; the provider must have been called exactly once.
    #[track_caller]
    fn run(&self, tool: &str, reply: Reply) -> (Answer, Value) {
        let before = self.provider.calls().len();
        self.provider.next(reply);
        let answer = self.tenant.run(&json!({ "tool": tool }));
        let run = answer.json();
        assert_eq!(self.provider.calls().len(), before + 1, "sent once: {run}");
        (answer, run)
    }

    #[track_caller]
    fn expect(&self, what: &str, tool: &str, reply: Reply, status: &str, started: bool, code: Option<&str>) -> Value {
        let (answer, run) = self.run(tool, reply);
        let http = if status == "pending" || status == "started" { 202 } else { 200 };
        assert_eq!(answer.status, http, "{what}: {run}");
        assert_eq!(run["status"], status, "{what}: {run}");
        assert_eq!(run["started"], started, "{what}: {run}");
        assert_eq!(run["error"]["code"].as_str(), code, "{what}: {run}");
        run
    }
}

#[test]
fn an_answer_that_breaks_the_protocol_fails_a_query_and_leaves_a_command_uncertain() {
    let world = world();
    let body =
        |kind: &str, status: &str| json!({ "kind": kind, "status": status, "correlation_id": "p-1", "started": true });
    for (what, query, command) in [
        ("another kind", body("command", "started"), body("query", "pending")),
        ("no kind", json!({ "status": "pending", "correlation_id": "p-1" }), json!({ "status": "started" })),
        ("another status", body("query", "started"), body("command", "pending")),
        ("no status", json!({ "kind": "query", "correlation_id": "p-1" }), json!({ "kind": "command" })),
        ("a status of its own", body("query", "done"), body("command", "done")),
        ("no object", json!([1]), json!("started")),
        ("an id that is no text", json!({ "kind": "query", "status": "pending", "correlation_id": 7 }), json!({})),
    ] {
        let code = Some("provider_protocol_error");
        world.expect(what, "ask", Reply::json(200, &query), "failed", true, code);
        world.expect(what, "act", Reply::json(200, &command), "uncertain", true, None);
    }
    let without = json!({ "kind": "query", "status": "pending" });
    world.expect("no id", "ask", Reply::json(202, &without), "failed", true, Some("provider_protocol_error"));
    for (what, body) in [("text", "OK"), ("nothing", ""), ("half", "{\"kind\":"), ("HTML", "<html></html>")] {
        world.expect(what, "ask", Reply::text(200, body), "failed", true, Some("provider_protocol_error"));
        world.expect(what, "act", Reply::text(200, body), "uncertain", true, None);
    }
}

#[test]
fn a_start_that_the_provider_refuses_is_failed_and_not_started() {
    let world = world();
    for kind in ["command", "query"] {
        let tool = if kind == "command" { "act" } else { "ask" };
        let bare = json!({ "kind": kind, "started": false, "status": "failed" });
        world.expect("bare", tool, Reply::json(200, &bare), "failed", false, Some("provider_error"));
        let error = json!({ "code": "no_credit", "message": "The account is empty" });
        let told = json!({ "kind": kind, "started": false, "status": "failed", "error": error });
        let run = world.expect("told", tool, Reply::json(200, &told), "failed", false, Some("no_credit"));
        assert_eq!(run["error"], error, "the provider's own words");
    }
}

#[test]
fn http_errors_are_told_apart() {
    let world = world();
    for status in [500, 502, 503, 504] {
        world.expect("5xx", "ask", Reply::text(status, "oops"), "failed", true, Some("provider_error"));
        world.expect("5xx", "act", Reply::text(status, "oops"), "uncertain", true, None);
    }
    for status in [401, 403] {
        for tool in ["ask", "act"] {
            let (_, run) = world.run(tool, Reply::text(status, "who are you"));
            assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_auth_failed")));
        }
    }
    let (_, run) = world.run("act", Reply::text(404, "secret-internal-hostname"));
    assert_eq!(run["status"], "failed");
    assert!(!run.to_string().contains("secret-internal-hostname"), "the provider's page is not the agent's: {run}");
}

// agents must not reach further than their tenant's endpoint: servers#4838
#[test]
fn a_redirect_is_not_followed() {
    let world = world();
    let elsewhere = Provider::topology(&[topology("ask", "query")]);
    let location = vec![("Location".to_owned(), format!("{}/mcp/run", elsewhere.url()))];
    for status in [301, 302, 307, 308] {
        let reply = Reply::Http { status, headers: location.clone(), body: Vec::new() };
        world.expect("3xx", "ask", reply.clone(), "failed", true, Some("provider_protocol_error"));
        world.expect("3xx", "act", reply, "uncertain", true, None);
    }
    assert!(elsewhere.calls().is_empty() && elsewhere.fetches().is_empty());
}

#[test]
fn a_query_whose_acknowledgement_is_lost_still_gets_its_result() {
    let world = world();
    for (what, reply) in [
        ("cut", Reply::Hangup),
        ("cut-in-the-head", Reply::Raw(b"HTTP/1.1 202 Acc".to_vec())),
        ("late", Reply::Late(Duration::from_secs(2), Box::new(acknowledge("query", "p-late")))),
    ] {
        let run = world.expect(what, "ask", reply, "pending", true, None);
        let id = run["correlation_id"].as_str().expect("an id");
        world.node.complete(&format!("msg-{what}"), id, &json!(what)).expect(202);
        let done = world.tenant.agent_run(&run);
        assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!(what)));
    }
}

// composio#3654, agentmail-mcp#49: the answer is lost, and the mail is not sent twice.
#[test]
fn a_command_whose_answer_is_lost_is_uncertain_and_never_sent_again() {
    let world = world();
    let slow = Reply::Late(Duration::from_secs(2), Box::new(acknowledge("command", "p")));
    for reply in [Reply::Hangup, Reply::Raw(b"HTTP/1.1 202 Acc".to_vec()), slow] {
        let begun = Instant::now();
        let run = world.expect("lost", "act", reply, "uncertain", true, None);
        assert!(begun.elapsed() < Duration::from_millis(1_900), "a deadline is a deadline: BerriAI/litellm#33374");
        assert!(run["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{run}");
        world.gate.advance(Duration::from_secs(3600));
        let later = world.tenant.agent_run(&run);
        assert_eq!(later["status"], "uncertain");
    }
    assert_eq!(world.provider.calls().len(), 3);
}

#[test]
fn a_refused_connection_sends_nothing() {
    let world = world();
    world.provider.go_down();
    for tool in ["act", "ask"] {
        let run = world.tenant.run(&json!({ "tool": tool })).expect(200).json();
        assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)), "{run}");
        assert_eq!(run["error"]["code"], "endpoint_unavailable");
        let port = world.provider.url().rsplit_once(':').expect("a port").1.to_owned();
        assert!(!run.to_string().contains(&port), "no host in a message: {run}");
    }
    world.provider.come_back();
    assert_eq!(world.tenant.call("act", &json!({}))["status"], "started");
    assert_eq!(world.provider.calls().len(), 1);
}

// truefoundry#769: an answer of tens of megabytes is cut while it streams.
#[test]
fn an_oversized_answer_is_cut_and_the_gateway_lives_on() {
    let world = world();
    let huge = Reply::text(200, &format!("\"{}\"", "x".repeat(5 << 20)));
    let (_, run) = world.run("ask", huge.clone());
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(true)));
    assert!(run.to_string().len() < 2_000, "nothing of it is handed on");
    let (_, run) = world.run("act", huge);
    assert_eq!(run["status"], "uncertain");
    assert_eq!(world.tenant.call("act", &json!({}))["status"], "started");
}

#[test]
fn a_client_that_hangs_up_cancels_nothing() {
    use std::io::Write as _;
    let world = world();
    let mut stream = crate::support::raw::connect(world.gate.url());
    let body = r#"{"tool":"act"}"#;
    world.provider.next(Reply::Late(Duration::from_millis(300), Box::new(acknowledge("command", "p"))));
    let request = format!(
        "POST /mcp/run HTTP/1.1\r\nHost: g\r\nX-Auth: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        world.tenant.agent,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it can be sent");
    eventually("the provider is called", || world.provider.calls().pop());
    drop(stream);
    let run = eventually("the run is started", || {
        world.tenant.items("/v1/runs").into_iter().find(|run| run["status"] == "started")
    });
    assert_eq!(run["tool"], "topology:act");
    assert_eq!(world.provider.calls().len(), 1);
}
