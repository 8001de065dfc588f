//! Streams towards MCP clients: changes that are told, calls that are taken back, and clients that go away.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, topology};
use crate::support::mcp::{EventStream, error, legacy_headers, modern_headers, modern_message, with_tasks};
use crate::support::provider::{Latch, Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[track_caller]
fn listen(tenant: &Tenant, wanted: &Value, capabilities: &Value) -> EventStream {
    let mut stream = tenant.modern_stream("subscriptions/listen", &json!({ "notifications": wanted }), capabilities);
    assert!(stream.is_events(), "{}", stream.head);
    let first = stream.expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    stream
}

#[track_caller]
fn expect_change(stream: &mut EventStream, what: &str) {
    let event = stream.expect(what);
    assert_eq!(event["method"], "notifications/tools/list_changed", "{what}: {event}");
    assert_eq!(event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
}

/// Nothing comes for a moment.
#[track_caller]
fn expect_silence(stream: &mut EventStream, what: &str) {
    stream.patience(Duration::from_millis(400));
    assert_eq!(stream.next(), None, "{what}");
    stream.patience(Duration::from_secs(20));
}

#[test]
fn a_key_is_told_when_the_tools_it_sees_have_changed() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::median(&[median("lookup", "low"), median("refund", "low")]);
    let endpoint = tenant.endpoint("shop", &provider);
    let rules = json!([{ "effect": "allow", "tools": ["lookup"] }]);
    tenant.post("/v1/groups", &json!({ "name": "some", "rules": rules })).expect(201);
    let narrow = tenant.as_agent(&tenant.agent_key(&json!({ "name": "narrow", "groups": ["some"] })));
    let wanted = json!({ "toolsListChanged": true });
    let (mut all, mut some) = (listen(&tenant, &wanted, &json!({})), listen(&narrow, &wanted, &json!({})));
    let mut prompts = listen(&tenant, &json!({ "promptsListChanged": true }), &json!({}));
    provider.offer(&[median("lookup", "low"), median("refund", "low"), median("renew", "low")]);
    tenant.sync(&endpoint);
    expect_change(&mut all, "a tool more");
    expect_silence(&mut some, "not for this key");
    tenant.sync(&endpoint);
    expect_silence(&mut all, "nothing has changed");
    let rules = json!([{ "effect": "allow", "tools": ["lookup", "renew"] }]);
    tenant.request("PUT", "/v1/groups/some").json(&json!({ "rules": rules })).send().expect(200);
    expect_change(&mut some, "its group has changed");
    expect_silence(&mut all, "not for this key");
    tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &json!({ "enabled": false })).expect(200);
    expect_change(&mut all, "all tools are gone");
    expect_change(&mut some, "all tools are gone");
    expect_silence(&mut prompts, "nobody asked it for tools");
}

#[test]
fn a_stream_ends_with_its_key_or_with_the_gateway() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    tenant.endpoint("shop", &Provider::median(&[median("lookup", "low")]));
    let made = tenant.post("/v1/agent-keys", &json!({ "name": "short", "groups": ["default"] })).expect(201).json();
    let short = tenant.as_agent(made["key"].as_str().expect("a key"));
    let wanted = json!({ "toolsListChanged": true });
    let (mut doomed, mut lasting) = (listen(&short, &wanted, &json!({})), listen(&tenant, &wanted, &json!({})));
    tenant.delete(&format!("/v1/agent-keys/{}", made["id"].as_str().expect("an id"))).expect(204);
    let last = doomed.expect("the last word");
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(1), &json!("complete")), "{last}");
    assert_eq!(last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    assert!(doomed.next().is_none());
    expect_silence(&mut lasting, "another key's stream");
    let restarted = std::thread::spawn(move || gate.restart());
    assert_eq!(lasting.expect("the last word")["result"]["resultType"], "complete");
    restarted.join().expect("it stops cleanly");
}

#[test]
fn an_organization_has_so_many_streams_open() {
    let gate = Gate::with(&[("LIMITS__LISTEN_STREAMS", "2")]);
    let (tenant, other) = (gate.tenant("acme"), gate.tenant("other"));
    let wanted = json!({ "toolsListChanged": true });
    let params = json!({ "notifications": wanted });
    let made = tenant.post("/v1/agent-keys", &json!({ "name": "short", "groups": ["default"] })).expect(201).json();
    let short = tenant.as_agent(made["key"].as_str().expect("a key"));
    let (mut first, _second) = (listen(&short, &wanted, &json!({})), listen(&tenant, &wanted, &json!({})));
    let refused = tenant.modern_request("subscriptions/listen", &params, &json!({})).send();
    let message = error(&refused, 429, -32000, &json!(1))["message"].to_string();
    assert!(message.contains("2 streams"), "{message}");
    let _theirs = listen(&other, &wanted, &json!({}));
    tenant.delete(&format!("/v1/agent-keys/{}", made["id"].as_str().expect("an id"))).expect(204);
    first.expect("the last word");
    eventually("there is room again", || {
        let stream = tenant.modern_stream("subscriptions/listen", &params, &json!({}));
        stream.is_events().then_some(())
    });
}

#[test]
fn tasks_are_told_of_to_their_own_key() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("quote", "query")]);
    let node = tenant.endpoint("bank", &provider).node(&gate);
    let call = json!({ "name": "quote", "arguments": {} });
    let start = || tenant.modern("tools/call", &call, &with_tasks())["taskId"].as_str().expect("a task").to_owned();
    let (first, second) = (start(), start());
    let wanted = json!({ "taskIds": [first, "nonsense", second] });
    let params = json!({ "notifications": wanted });
    error(&tenant.modern_request("subscriptions/listen", &params, &json!({})).send(), 400, -32021, &json!(1));
    let mut stream = tenant.modern_stream("subscriptions/listen", &params, &with_tasks());
    let acknowledged = stream.expect("an acknowledgement");
    assert_eq!(acknowledged["params"]["notifications"], json!({ "taskIds": [first, second] }));
    for id in [&first, &second] {
        let told = stream.expect("how it stands");
        assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks"), &json!(id)));
        assert_eq!(told["params"]["status"], "working");
    }
    assert_eq!(node.complete("w-1", &second, &json!({ "price": 7 })).status, 202);
    let told = stream.expect("its end");
    assert_eq!((&told["params"]["taskId"], &told["params"]["status"]), (&json!(second), &json!("completed")), "{told}");
    assert_eq!(told["params"]["result"]["structuredContent"], json!({ "price": 7 }));
    let other = gate.tenant("other");
    let mut foreign = other.modern_stream("subscriptions/listen", &params, &with_tasks());
    assert_eq!(foreign.expect("an acknowledgement")["params"]["notifications"], json!({}), "none of its own");
    let nothing = tenant.modern_request("subscriptions/listen", &json!({}), &json!({})).send();
    error(&nothing, 400, -32602, &json!(1));
}

struct Bank {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
}

fn bank() -> Bank {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider =
        Provider::topology(&[having(topology("wire", "command"), "risk", json!("high")), topology("order", "command")]);
    tenant.endpoint("bank", &provider);
    Bank { gate, tenant, provider }
}

fn wire() -> Value {
    json!({ "name": "wire", "arguments": {}, "_meta": { "progressToken": 1 } })
}

impl Bank {
    #[track_caller]
    fn state(&self, approval: &Value) -> Value {
        self.tenant.approval(approval)["state"].clone()
    }

    /// Returns when it is known of whoever has gone before. A stream's end is noticed at its next sign of life, so that of
    /// a stream begun later, in an organization of its own, is noticed later.
    fn departures_are_noticed(&self, org: &str) {
        let other = self.gate.tenant(org);
        other.endpoint("bank", &self.provider);
        let stream = other.modern_stream("tools/call", &wire(), &json!({}));
        let approval = other.the_approval();
        stream.hang_up();
        eventually("a call is given up", || (other.approval(&approval)["state"] == "denied").then_some(()));
    }
}

#[test]
fn a_modern_client_takes_back_what_was_not_sent_by_going_away() {
    let bank = bank();
    let stream = bank.tenant.modern_stream("tools/call", &wire(), &json!({}));
    let approval = bank.tenant.the_approval();
    stream.hang_up();
    eventually("the call is given up", || (bank.state(&approval) == "denied").then_some(()));
    assert!(bank.provider.calls().is_empty());
    assert_eq!(bank.tenant.approval(&approval)["note"], "cancelled");
}

/// What others were told of, or still wait for, is not theirs to give up.
#[test]
fn a_client_that_goes_away_takes_nothing_from_those_who_joined_its_call() {
    let bank = bank();
    let wait = |capabilities: &Value| bank.tenant.modern_stream("tools/call", &wire(), capabilities);
    let stays = |approval: &Value, who: &str| {
        wait(&json!({})).hang_up();
        bank.departures_are_noticed(who);
        assert_eq!(bank.state(approval), "open", "{who}");
    };
    let first = wait(&json!({}));
    let approval = bank.tenant.the_approval();
    stays(&approval, "beside-a-client");
    first.hang_up();
    eventually("the last one gives it up", || (bank.state(&approval) == "denied").then_some(()));

    let task = bank.tenant.modern("tools/call", &wire(), &with_tasks());
    assert_eq!(task["resultType"], "task", "{task}");
    let approval = bank.tenant.the_approval();
    stays(&approval, "beside-a-task");
    bank.tenant.decide(&approval, "deny").expect(200);

    bank.tenant.call_held("wire", &json!({}));
    let approval = bank.tenant.the_approval();
    stays(&approval, "beside-rest");
}

/// A retry finds the call that was made before; that it goes away takes nothing from whoever still waits.
#[test]
fn a_replay_that_goes_away_leaves_the_call() {
    let bank = bank();
    let message = modern_message("tools/call", &wire(), &json!({}));
    let mut headers = modern_headers(&message);
    headers.push(("Idempotency-Key".to_owned(), "k-1".to_owned()));
    let mut first = bank.tenant.stream(&message, &headers);
    let approval = bank.tenant.the_approval();
    bank.tenant.stream(&message, &headers).hang_up();
    bank.departures_are_noticed("other");
    assert_eq!(bank.state(&approval), "open", "it goes on");
    bank.tenant.decide(&approval, "approve").expect(200);
    let done = std::iter::from_fn(|| first.next()).find(|event| event.get("result").is_some()).expect("the answer");
    assert_eq!(done["result"]["structuredContent"]["status"], "started", "{done}");
}

#[test]
fn a_legacy_client_that_goes_away_leaves_its_call_and_takes_it_back_by_saying_so() {
    let bank = bank();
    let stream = bank.tenant.legacy_stream(&json!("c-1"), &wire(), None);
    let approval = bank.tenant.the_approval();
    stream.hang_up();
    bank.departures_are_noticed("other");
    assert_eq!(bank.state(&approval), "open", "it goes on");
    bank.tenant.decide(&approval, "deny").expect(200);
    let mut stream = bank.tenant.legacy_stream(&json!("c-2"), &wire(), None);
    let approval = bank.tenant.the_approval();
    let cancel = |id: &str, caller: Option<&str>, tenant: &Tenant| {
        let params = json!({ "requestId": id, "reason": "changed my mind" });
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        let request = legacy_headers(None)
            .iter()
            .fold(tenant.mcp(&message), |request, (name, value)| request.header(name, value));
        let request = caller.into_iter().fold(request, |request, caller| request.header("X-Caller-Identity", caller));
        let answer = request.send();
        assert_eq!((answer.status, answer.body.len()), (202, 0));
    };
    let second = bank.tenant.as_agent(&bank.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    cancel("c-1", None, &bank.tenant);
    cancel("c-2", Some("ann"), &bank.tenant);
    cancel("c-2", None, &second);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bank.state(&approval), "open", "nobody else's word counts");
    cancel("c-2", None, &bank.tenant);
    eventually("the call is given up", || (bank.state(&approval) == "denied").then_some(()));
    while let Some(event) = stream.next() {
        assert!(event.get("result").is_none() && event.get("error").is_none(), "no answer: {event}");
    }
}

#[test]
fn what_was_sent_is_never_cut_off() {
    let bank = bank();
    let latch = Arc::new(Latch::default());
    let good = json!({ "kind": "command", "status": "started", "started": true, "correlation_id": "p" });
    bank.provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::json(202, &good))));
    let tenant = bank.tenant.clone();
    let caller = std::thread::spawn(move || {
        let params = json!({ "name": "order", "arguments": {} });
        tenant.modern_stream("tools/call", &params, &json!({})).hang_up();
    });
    eventually("the call was sent", || (bank.provider.calls().len() == 1).then_some(()));
    caller.join().expect("it hangs up after two seconds");
    latch.open();
    eventually("the outcome is recorded", || {
        let runs = bank.tenant.items("/v1/runs");
        runs.iter().any(|run| run["status"] == "started").then_some(())
    });
}
