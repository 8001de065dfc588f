//! What a restart, a kill and a stop leave behind.

use crate::support::binary::{Binary, OPERATOR_TOKEN};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, topology};
use crate::support::node::sign;
use crate::support::provider::{Latch, Provider, Reply, acknowledge};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

fn id_of(run: &Value) -> &str {
    run["correlation_id"].as_str().expect("a correlation id")
}

#[test]
fn a_pending_run_gets_its_result_after_a_restart() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    let (first, second) = (tenant.call("ask", &json!({})), tenant.call("ask", &json!({})));
    let early = json!({ "correlation_id": "kept", "status": "completed", "payload": "early" });
    node.deliver("m-early", &early).expect(202);
    node.complete("m-0", id_of(&second), &json!("before")).expect(202);

    let gate = gate.restart();
    let (tenant, node) = (tenant.at(&gate), node.at(gate.client()));
    assert_eq!(tenant.agent_run(&first)["status"], "pending");
    assert_eq!(tenant.agent_run(&second)["result"], "before");
    let theirs = json!({ "correlation_id": "prov-0", "status": "completed", "payload": "after" });
    node.deliver("m-1", &theirs).expect(202);
    assert_eq!(tenant.agent_run(&first)["result"], "after");
    node.complete("m-0", id_of(&second), &json!("again")).expect(202);
    assert_eq!(tenant.agent_run(&second)["result"], "before", "the message is known after the restart, too");
    provider.next(acknowledge("query", "kept"));
    let run = tenant.call("ask", &json!({}));
    eventually("what was kept before the restart is delivered", || {
        (tenant.agent_run(&run)["result"] == "early").then_some(())
    });
}

// maximhq/bifrost#4998: no tools after a restart while the endpoint is called connected.
#[test]
fn everything_that_was_set_up_survives_a_restart() {
    let gate = Gate::start();
    let topologies = Provider::topology(&[topology("go", "command"), topology("ask", "query")]);
    let medians = Provider::median(&[median("find", "low"), median("erase", "high")]);
    let off = Provider::topology(&[topology("off", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("topologies", &topologies);
    tenant.endpoint("medians", &medians);
    let disabled = tenant.endpoint("off", &off);
    tenant.patch(&format!("/v1/endpoints/{}", disabled.id), &json!({ "enabled": false })).expect(200);
    tenant.patch("/v1/tools/ask", &json!({ "requires_confirmation": true })).expect(200);
    let before = (tenant.manifest(), tenant.get("/v1/endpoints").json(), tenant.get("/v1/groups").json());
    topologies.go_down();
    medians.go_down();

    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let port_free = |mut page: Value| {
        for item in page["items"].as_array_mut().expect("items") {
            item["callback"] = Value::Null;
        }
        page
    };
    assert_eq!(tenant.manifest(), before.0);
    assert_eq!(port_free(tenant.get("/v1/endpoints").json()), port_free(before.1));
    assert_eq!(tenant.get("/v1/groups").json(), before.2);
    assert_eq!(tenant.show(&endpoint)["state"], "connected");
    tenant.run(&json!({ "tool": "off" })).problem(404, "unknown_tool");
    topologies.come_back();
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
}

#[test]
fn a_command_that_was_started_is_not_sent_again_after_a_restart() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("act", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    tenant.call("act", &json!({}));
    let gate = gate.restart();
    gate.advance(Duration::from_secs(3600));
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.items("/v1/runs")[0]["status"], "started");
    assert_eq!(provider.calls().len(), 1);
}

/// An organization behind the real program.
fn tenant_of(client: &Client) -> Tenant {
    let body = json!({ "slug": "acme", "name": "Acme" });
    let made = client.post("/admin/v1/orgs", &body).key(OPERATOR_TOKEN).send().expect(201).json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut tenant = Tenant {
        client: client.clone(),
        org_id: text(&made["org"]["id"]),
        workspace: text(&made["workspace_key"]),
        agent: String::new(),
    };
    tenant.agent = tenant.agent_key(&json!({ "name": "agent", "groups": ["default"] }));
    tenant
}

#[test]
fn a_pending_run_gets_its_result_after_kill_9() {
    let folder = TempDir::new().expect("a temporary folder");
    let act = having(topology("act", "command"), "timeout_ms", json!(3000));
    let provider = Provider::topology(&[topology("ask", "query"), act]);
    let toolgate = Binary::serve(&folder);
    let tenant = tenant_of(toolgate.client());
    let endpoint = tenant.endpoint("tools", &provider);
    let secret = endpoint.body["callback"]["secret"].as_str().expect("a secret").to_owned();
    let run = tenant.call("ask", &json!({}));
    assert_eq!(run["status"], "pending");
    // A command is under way while the lights go out.
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(acknowledge("command", "p"))));
    let agent = tenant.clone();
    let cut =
        std::thread::spawn(move || agent.run_request(&json!({ "tool": "act" })).try_send().map(|answer| answer.status));
    let sent = eventually("the command is sent", || {
        provider.calls().into_iter().find(|call| call.text().contains("topology:act"))
    });
    toolgate.kill();
    assert!(cut.join().expect("the client ends").is_err(), "no answer from a dead process");
    latch.open();

    let toolgate = Binary::serve(&folder);
    let tenant = Tenant { client: toolgate.client().clone(), ..tenant };
    assert_eq!(tenant.agent_run(&run)["status"], "pending");
    let body = json!({ "type": "tool.result", "timestamp": "2026-01-12T13:46:40Z",
        "data": { "request_id": run["correlation_id"], "status": "completed", "payload": "survived" } });
    let body = body.to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let now = i64::try_from(now).expect("a time");
    let request = toolgate.client().request("POST", &format!("/callbacks/{}", endpoint.id));
    let request = request.text("application/json", body.as_str()).header("webhook-id", "m-1");
    let signature = sign(&secret, "m-1", now, body.as_bytes());
    request.header("webhook-timestamp", now.to_string()).header("webhook-signature", signature).send().expect(202);
    let done = tenant.agent_run(&run);
    assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!("survived")));
    // Recorded before the first byte left, and not sent again: when its time is over, nobody knows what became of it.
    let id = sent.json()["request_id"].as_str().expect("our id").to_owned();
    let cut_off = eventually("the command that was cut off is uncertain", || {
        let shown = tenant.get(&format!("/v1/runs/{id}")).expect(200).json();
        assert!(matches!(shown["status"].as_str(), Some("pending" | "uncertain")), "{shown}");
        (shown["status"] == "uncertain").then_some(shown)
    });
    assert_eq!(cut_off["started"], true);
    assert_eq!(provider.calls().len(), 2);
    let log = toolgate.log();
    assert!(!log.contains("survived") && !log.contains("tg_ag_") && !log.contains(&secret), "{log}");
}

#[test]
fn sigterm_lets_running_calls_finish() {
    let folder = TempDir::new().expect("a temporary folder");
    let provider = Provider::topology(&[topology("act", "command")]);
    let toolgate = Binary::serve(&folder);
    let tenant = tenant_of(toolgate.client());
    tenant.endpoint("tools", &provider);
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(acknowledge("command", "p"))));
    let agent = tenant.clone();
    let running = std::thread::spawn(move || agent.call("act", &json!({})));
    eventually("the command is sent", || provider.calls().pop());
    let client = toolgate.client().clone();
    let ending = std::thread::spawn(move || toolgate.terminate());
    eventually("readiness goes away", || {
        client.get("/readyz").try_send().map_or(Some(503), |answer| (answer.status != 200).then_some(answer.status))
    });
    if let Ok(answer) = tenant.run_request(&json!({ "tool": "act" })).try_send() {
        answer.problem(503, "overloaded");
    }
    latch.open();
    assert_eq!(running.join().expect("it is answered")["status"], "started");
    assert_eq!(ending.join().expect("it ends").code(), Some(0));
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn a_second_process_on_one_folder_says_why_it_ends() {
    let folder = TempDir::new().expect("a temporary folder");
    let toolgate = Binary::serve(&folder);
    let begun = Instant::now();
    let mut second = Binary::spawn(&folder);
    let status = second.wait().expect("it ends");
    assert_eq!(status.code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let mut said = String::new();
    second.stderr.take().expect("stderr is piped").read_to_string(&mut said).expect("text");
    assert!(said.to_lowercase().contains("another") || said.contains("in use"), "{said}");
    toolgate.client().get("/readyz").send().expect(200);
}
