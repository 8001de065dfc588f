//! MCP servers that announce changes of their tools: on a call's own stream, or on one that is kept open for it.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::mcp_server::{
    Answering, Era, LEGACY, MODERN, McpServer, event, failure, list_changed, response, said, stream, tool,
};
use crate::support::provider::{Latch, Reply, Step};
use crate::support::tenant::{Registered, Tenant};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn world(server: &McpServer) -> (Gate, Tenant, Registered) {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({})).assert_connected();
    (gate, tenant, endpoint)
}

/// Where a server of this era is listened to.
fn listening(era: Era) -> &'static str {
    match era {
        Era::Modern => "subscriptions/listen",
        Era::Legacy | Era::LegacyWithoutSessions => "GET",
    }
}

fn announced(tenant: &Tenant, endpoint: &Registered) -> usize {
    let syncs = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id));
    syncs.iter().filter(|sync| sync["trigger"] == "list_changed").count()
}

const ERAS: [Era; 3] = [Era::Modern, Era::Legacy, Era::LegacyWithoutSessions];

#[test]
fn what_is_announced_on_the_stream_of_a_call_counts() {
    for era in ERAS {
        let server = McpServer::start(era, &[tool("act")]);
        let (_gate, tenant, endpoint) = world(&server);
        server.offer(&[tool("act"), tool("new")]);
        server
            .next("tools/call", |request| stream(vec![event(&list_changed()), event(&response(request, &said("ok")))]));
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
        eventually("the new tool is there", || (tenant.listed().len() == 2).then_some(()));
        assert_eq!(announced(&tenant, &endpoint), 1, "{era:?}");
    }
}

#[test]
fn a_server_that_announces_is_listened_to() {
    for era in ERAS {
        let server = McpServer::start(era, &[tool("act")]).announcing();
        let (_gate, tenant, endpoint) = world(&server);
        let asked = eventually("it is listened to", || server.requests(listening(era)).pop());
        let accept = asked.header("accept").expect("what is taken");
        assert!(accept.contains("text/event-stream"));
        if era == Era::Modern {
            assert_eq!(asked.json()["params"]["notifications"], json!({ "toolsListChanged": true }));
        } else {
            let session = server.requests("tools/list").pop().expect("a listing");
            assert_eq!(asked.header("mcp-session-id"), session.header("mcp-session-id"));
            assert_eq!(asked.header("last-event-id"), None);
        }
        server.offer(&[tool("new")]);
        server.announce();
        eventually("the new set is there", || (tenant.listed() == ["mcp:new"]).then_some(()));
        assert_eq!(announced(&tenant, &endpoint), 1);
        tenant.call("new", &json!({}));
        tenant.sync(&endpoint);
        assert_eq!(server.count(listening(era)), 1, "{era:?}: one stream is enough");
    }
}

#[test]
fn a_server_that_announces_nothing_gets_no_stream() {
    for era in ERAS {
        let server = McpServer::start(era, &[tool("act")]);
        let (_gate, tenant, endpoint) = world(&server);
        // Only by asking can it be known of a modern one.
        let asks = usize::from(era == Era::Modern);
        eventually("it was found out", || (server.count(listening(era)) == asks).then_some(()));
        for _ in 0..3 {
            tenant.call("act", &json!({}));
            tenant.sync(&endpoint);
            tenant.patch("/v1/tools/act", &json!({ "timeout_ms": 1000 })).expect(200);
        }
        assert_eq!(server.count(listening(era)), asks, "{era:?}");
    }
}

/// What refuses the stream, or acknowledges it without what was asked for, is not asked again.
#[test]
fn a_server_that_offers_less_than_it_says_is_left_alone() {
    let refusals: [Answering; 4] = [
        |_| Reply::text(405, ""),
        |request| failure(request, 200, -32601, "Method not found"),
        |request| failure(request, 404, -32601, "Method not found"),
        |_| {
            let params = json!({ "notifications": {} });
            let told =
                json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params });
            stream(vec![event(&told), Step::Relay(std::sync::Arc::default())])
        },
    ];
    for refusal in refusals {
        let server = McpServer::modern(&[tool("act")]);
        server.always("subscriptions/listen", refusal);
        let (_gate, tenant, endpoint) = world(&server);
        eventually("it was asked", || (server.count("subscriptions/listen") == 1).then_some(()));
        tenant.sync(&endpoint);
        tenant.call("act", &json!({}));
        assert_eq!(server.count("subscriptions/listen"), 1);
    }
}

#[test]
fn a_stream_that_breaks_is_opened_again() {
    for era in ERAS {
        let server = McpServer::start(era, &[tool("act")]).announcing();
        server.next(listening(era), |_| stream(vec![Step::Say(b": hi\n\n".to_vec()), Step::Break]));
        let (_gate, tenant, _) = world(&server);
        eventually("it is listened to again", || (server.count(listening(era)) == 2).then_some(()));
        server.offer(&[tool("new")]);
        server.announce();
        eventually("the new set is there", || (tenant.listed() == ["mcp:new"]).then_some(()));
    }
}

/// A session that is gone is opened anew for the stream too.
#[test]
fn a_stream_outlives_the_session() {
    let server = McpServer::legacy(&[tool("act")]).announcing();
    server.next("GET", |_| stream(vec![Step::Break]));
    let (_gate, tenant, _) = world(&server);
    eventually("the first stream", || (server.count("GET") == 1).then_some(()));
    server.forget_sessions();
    eventually("a stream in a new session", || {
        let gets = server.requests("GET");
        let new = gets.last().is_some_and(|last| last.header("mcp-session-id") != gets[0].header("mcp-session-id"));
        new.then_some(())
    });
    server.offer(&[tool("new")]);
    server.announce();
    eventually("the new set is there", || (tenant.listed() == ["mcp:new"]).then_some(()));
}

/// However often it is announced: a few times at once, and then now and then, the last of them not forgotten.
#[test]
fn a_storm_of_announcements_is_a_few_syncs() {
    let server = McpServer::modern(&[tool("act")]).announcing();
    let (_gate, tenant, endpoint) = world(&server);
    eventually("it is listened to", || (server.count("subscriptions/listen") == 1).then_some(()));
    (0..500).for_each(|_| server.announce());
    server.next("tools/call", |request| {
        let mut steps: Vec<Step> = (0..500).map(|_| event(&list_changed())).collect();
        steps.push(event(&response(request, &said("ok"))));
        stream(steps)
    });
    tenant.call("act", &json!({}));
    server.offer(&[tool("new")]);
    server.announce();
    eventually("the last of them counts too", || (tenant.listed() == ["mcp:new"]).then_some(()));
    let syncs = announced(&tenant, &endpoint);
    assert!((1..=10).contains(&syncs), "{syncs} syncs");
}

#[test]
fn a_server_that_is_not_wanted_any_more_is_left_at_once() {
    for era in ERAS {
        let server = McpServer::start(era, &[tool("act")]).announcing();
        let (gate, tenant, endpoint) = world(&server);
        let path = format!("/v1/endpoints/{}", endpoint.id);
        let streams = || server.count(listening(era));
        eventually("it is listened to", || (streams() == 1 && server.listeners() == 1).then_some(()));
        tenant.patch(&path, &json!({ "enabled": false })).expect(200);
        eventually("switched off", || (server.listeners() == 0).then_some(()));
        tenant.patch(&path, &json!({ "enabled": true })).expect(200);
        eventually("switched on", || (streams() == 2 && server.listeners() == 1).then_some(()));
        tenant.patch(&path, &json!({ "auth": { "bearer": "another" } })).expect(200);
        eventually("other credentials, another stream", || (streams() == 3 && server.listeners() == 1).then_some(()));
        let newest = server.requests(listening(era)).pop().expect("a stream");
        assert_eq!(newest.header("authorization"), Some("Bearer another"));
        let org = format!("/admin/v1/orgs/{}", tenant.org_id);
        gate.operator("PATCH", &org, Some(&json!({ "state": "suspended" }))).expect(200);
        eventually("suspended", || (server.listeners() == 0).then_some(()));
        gate.operator("PATCH", &org, Some(&json!({ "state": "active" }))).expect(200);
        eventually("active again", || (server.listeners() == 1).then_some(()));
        tenant.delete(&path).expect(204);
        eventually("deleted", || (server.listeners() == 0).then_some(()));
    }
}

#[test]
fn a_server_that_moves_is_listened_to_where_it_is() {
    let server = McpServer::start(Era::LegacyWithoutSessions, &[tool("act")]).announcing();
    let (_gate, tenant, endpoint) = world(&server);
    eventually("it is listened to", || (server.count("GET") == 1).then_some(()));
    for (era, spoken) in [(Era::Modern, MODERN), (Era::LegacyWithoutSessions, LEGACY)] {
        let streams = server.count(listening(era));
        server.speak(era);
        tenant.sync(&endpoint);
        assert_eq!(tenant.show(&endpoint)["protocol_version"], spoken);
        eventually(&format!("it is listened to in its new era, {era:?}"), || {
            (server.count(listening(era)) == streams + 1 && server.listeners() == 1).then_some(())
        });
    }
}

#[test]
fn a_gateway_listens_again_after_a_restart_and_stops_at_once() {
    let server = McpServer::modern(&[tool("act")]).announcing();
    let (gate, tenant, _) = world(&server);
    eventually("it is listened to", || (server.listeners() == 1).then_some(()));
    let begun = std::time::Instant::now();
    let gate = gate.restart();
    assert!(begun.elapsed() < Duration::from_secs(10), "a stream holds no stop up");
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.listed(), ["mcp:act"]);
    eventually("and again", || (server.count("subscriptions/listen") == 2).then_some(()));
    server.offer(&[tool("new")]);
    server.announce();
    eventually("the new set is there", || (tenant.listed() == ["mcp:new"]).then_some(()));
}

/// Who does not answer is taken for dead, and its session is dropped.
#[test]
fn a_server_that_asks_whether_anybody_listens_is_answered() {
    let server = McpServer::legacy(&[tool("act")]).announcing();
    let latch = Arc::new(Latch::default());
    let held = Arc::clone(&latch);
    server.next("GET", move |_| {
        let ping = json!({ "jsonrpc": "2.0", "id": "p-1", "method": "ping" });
        stream(vec![event(&ping), Step::Wait(held)])
    });
    let (_gate, _tenant, _) = world(&server);
    let answer = eventually("it is answered", || server.requests("response").pop());
    assert_eq!(answer.json(), json!({ "jsonrpc": "2.0", "id": "p-1", "result": {} }));
    assert_eq!(answer.header("mcp-session-id"), server.requests("GET")[0].header("mcp-session-id"));
    latch.open();
}

/// A server that announces changes by its own account, and has nothing to GET.
#[test]
fn a_server_without_a_stream_is_asked_for_it_twice_and_loses_no_session() {
    let server = McpServer::legacy(&[tool("act")]).announcing();
    server.always("GET", |_| Reply::text(404, "Cannot GET /mcp"));
    let (_gate, tenant, _endpoint) = world(&server);
    eventually("another session is tried", || (server.count("GET") == 2).then_some(()));
    eventually("the first one is given back", || (server.sessions() == 1).then_some(()));
    assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
    assert_eq!(server.count("initialize"), 2, "calls go on in the second");
}

/// A server may take the stream before for open still, or a token for expired.
#[test]
fn a_refusal_that_passes_is_no_end_of_listening() {
    for status in [401, 409, 503] {
        let server = McpServer::legacy(&[tool("act")]).announcing();
        server.next("GET", move |_| Reply::text(status, ""));
        let _world = world(&server);
        eventually("it is listened to in the end", || (server.listeners() == 1).then_some(()));
        assert_eq!(server.count("GET"), 2);
    }
}
