//! Sessions with MCP servers of the earlier era: opened once, shared, and opened anew when they are forgotten.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::mcp_server::{
    Answering, Era, McpServer, answer, failure, failure_without_id, method_of, said, tool,
};
use crate::support::provider::{Latch, Reply};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::sync::Arc;

fn world() -> (Gate, McpServer, Tenant, Registered) {
    let gate = Gate::start();
    let server = McpServer::legacy(&[tool("act")]);
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({})).assert_connected();
    (gate, server, tenant, endpoint)
}

/// Calls `act` so often, all at once.
fn at_once(tenant: &Tenant, calls: usize) -> Vec<Value> {
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..calls).map(|_| scope.spawn(|| tenant.call("act", &json!({})))).collect();
        calls.into_iter().map(|call| call.join().expect("no panic")).collect()
    })
}

fn opened(server: &McpServer) -> usize {
    assert_eq!(server.count("notifications/initialized"), server.count("initialize"));
    server.count("initialize")
}

// IBM/mcp-context-forge#1549: sessions are opened without need until the server has none left.
#[test]
fn one_session_serves_listings_and_calls() {
    let (_gate, server, tenant, endpoint) = world();
    for _ in 0..5 {
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
        tenant.sync(&endpoint);
    }
    assert_eq!((opened(&server), server.executed()), (1, 5));
    let sessions: std::collections::BTreeSet<_> = server
        .requests("tools/call")
        .into_iter()
        .chain(server.requests("tools/list").into_iter().skip(1))
        .map(|request| request.header("mcp-session-id").expect("a session").to_owned())
        .collect();
    assert_eq!(sessions.len(), 1);
}

// agentgateway#3622: an expired session of a server killed its tools for ever.
#[test]
fn a_forgotten_session_is_opened_anew_once_and_the_call_made_again_once() {
    let refusals: [(&str, Option<Answering>); 6] = [
        ("as the server does", None),
        ("bare 404", Some(|_| Reply::text(404, ""))),
        ("404 and text", Some(|_| Reply::text(404, "Session not found"))),
        (
            "404 and -32600",
            Some(|_| {
                Reply::text(
                    404,
                    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
                )
            }),
        ),
        ("400 and -32000", Some(|_| failure_without_id(400, -32000, "Bad Request: Server not initialized"))),
        ("bare 400", Some(|_| Reply::text(400, "Missing session ID"))),
    ];
    let (_gate, server, tenant, endpoint) = world();
    for (index, (what, refusal)) in refusals.into_iter().enumerate() {
        let calls = server.calls().len();
        server.forget_sessions();
        if let Some(refusal) = refusal {
            server.next("tools/call", refusal);
        }
        let run = tenant.call("act", &json!({}));
        assert_eq!((&run["status"], &run["started"]), (&json!("completed"), &json!(true)), "{what}: {run}");
        assert_eq!((opened(&server), server.executed()), (index + 2, index + 1), "{what}");
        assert_eq!(server.calls().len(), calls + 2, "{what}");
        let ids: Vec<_> = server.calls()[calls..].iter().map(|call| call.json()["id"].clone()).collect();
        assert_ne!(ids[0], ids[1]);
        let shown = tenant.tenant_run(&run);
        assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(2), "{shown}");
    }
    let opened_before = opened(&server);
    server.forget_sessions();
    assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged");
    assert_eq!(opened(&server), opened_before + 1, "a listing opens it anew too");
}

#[test]
fn a_session_that_is_forgotten_again_fails_the_call() {
    let (_gate, server, tenant, _) = world();
    server.always("tools/call", |_| Reply::text(404, ""));
    let run = tenant.call("act", &json!({}));
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(true)), "{run}");
    assert_eq!(run["error"]["code"], "provider_protocol_error");
    assert_eq!((server.calls().len(), opened(&server), server.executed()), (2, 2, 0));
    server.as_usual("tools/call");
    assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
    assert_eq!((server.calls().len(), opened(&server)), (3, 3), "nor is that session tried again");
}

/// The call was sent, and the server said that it did not take it.
#[test]
fn a_session_that_cannot_be_opened_anew_fails_the_call() {
    let (_gate, server, tenant, _) = world();
    server.forget_sessions();
    server.always("initialize", |_| Reply::text(500, ""));
    let run = tenant.call("act", &json!({}));
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(true)), "{run}");
    assert_eq!((server.calls().len(), server.executed()), (1, 0));
    let run = tenant.call("act", &json!({}));
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)), "nothing of it was sent: {run}");
    server.as_usual("initialize");
    assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
}

#[test]
fn calls_at_once_share_one_opening() {
    let (gate, server, tenant, _) = world();
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let runs = at_once(&tenant, 10);
    assert!(runs.iter().all(|run| run["status"] == "completed"), "{runs:?}");
    assert_eq!((opened(&server), server.executed()), (2, 10));
}

#[test]
fn calls_at_once_on_a_forgotten_session_open_one() {
    let (_gate, server, tenant, _) = world();
    for round in 1..=5 {
        server.forget_sessions();
        let runs = at_once(&tenant, 10);
        assert!(runs.iter().all(|run| run["status"] == "completed"), "{runs:?}");
        assert_eq!((opened(&server), server.executed()), (1 + round, 10 * round));
    }
}

/// Whoever waits for another's opening that fails tries for itself.
#[test]
fn an_opening_that_fails_fails_nobody_else() {
    let (gate, server, tenant, _) = world();
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let latch = Arc::new(Latch::default());
    let held = Arc::clone(&latch);
    server.next("initialize", move |_| Reply::Held(held, Box::new(Reply::text(500, ""))));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| tenant.call("act", &json!({})))).collect();
        eventually("the opening is asked for", || (server.count("initialize") == 2).then_some(()));
        latch.open();
        let runs: Vec<_> = calls.into_iter().map(|call| call.join().expect("no panic")).collect();
        let completed = runs.iter().filter(|run| run["status"] == "completed").count();
        // The one whose opening it was may have been whoever listens for changes.
        assert!(completed >= 3, "{runs:?}");
    });
    assert_eq!(server.count("initialize"), 3);
}

#[test]
fn other_settings_are_another_session() {
    let (_gate, server, tenant, endpoint) = world();
    let path = format!("/v1/endpoints/{}", endpoint.id);
    tenant.patch(&path, &json!({ "auth": { "bearer": "another" } })).expect(200);
    assert_eq!(opened(&server), 2);
    tenant.call("act", &json!({}));
    assert_eq!(opened(&server), 2);
    let call = server.last_call();
    assert_eq!(call.header("authorization"), Some("Bearer another"));
    let opening = server.requests("initialize").pop().expect("an opening");
    assert_eq!(opening.header("authorization"), Some("Bearer another"));
}

/// A server keeps a session until it is told that nobody wants it.
#[test]
fn a_session_that_nobody_wants_is_given_back() {
    let (gate, server, tenant, endpoint) = world();
    let path = format!("/v1/endpoints/{}", endpoint.id);
    let given_back = |so_often: usize| {
        eventually("the session is given back", || (server.count("DELETE") == so_often).then_some(()));
        server.requests("DELETE").pop().expect("a request")
    };
    tenant.call("act", &json!({}));
    let session = server.last_call().header("mcp-session-id").expect("a session").to_owned();
    tenant.patch(&path, &json!({ "auth": { "bearer": "another" } })).expect(200);
    let ended = given_back(1);
    assert_eq!(ended.header("mcp-session-id"), Some(&*session), "the one of the settings before");
    assert_eq!(ended.header("authorization"), server.requests("initialize")[0].header("authorization"));
    assert_eq!(ended.header("mcp-protocol-version"), Some("2025-11-25"));
    tenant.call("act", &json!({}));

    let gate = gate.restart();
    assert_eq!(given_back(2).header("authorization"), Some("Bearer another"), "a stop gives all back");
    let tenant = tenant.at(&gate);
    tenant.call("act", &json!({}));
    tenant.delete(&path).expect(204);
    given_back(3);
    assert_eq!((server.sessions(), server.executed()), (0, 3));
}

#[test]
fn a_session_that_is_forgotten_is_not_given_back() {
    let (gate, server, tenant, _) = world();
    server.forget_sessions();
    tenant.call("act", &json!({}));
    let session = server.last_call().header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(opened(&server), 2);
    let _gate = gate.restart();
    let given_back = server.requests("DELETE");
    let given_back: Vec<_> = given_back.iter().map(|request| request.header("mcp-session-id")).collect();
    assert_eq!(given_back, [Some(&*session)]);
}

/// A call under way ends in the session it was made in, which is given back after it.
#[test]
fn a_session_in_use_is_given_back_after_the_call() {
    let (_gate, server, tenant, endpoint) = world();
    let latch = Arc::new(Latch::default());
    let held = Arc::clone(&latch);
    server.next("tools/call", move |request| Reply::Held(held, Box::new(answer(request, &said("done")))));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| tenant.call("act", &json!({})));
        eventually("the call is made", || (server.calls().len() == 1).then_some(()));
        let path = format!("/v1/endpoints/{}", endpoint.id);
        tenant.patch(&path, &json!({ "auth": { "bearer": "another" } })).expect(200);
        assert_eq!((opened(&server), server.count("DELETE")), (2, 0));
        latch.open();
        assert_eq!(call.join().expect("no panic")["status"], "completed");
    });
    eventually("the session is given back", || (server.count("DELETE") == 1).then_some(()));
}

/// A server that does not take sessions back holds up nobody else's.
#[test]
fn a_server_that_hangs_keeps_no_other_from_getting_its_sessions_back() {
    let (_gate, server, tenant, endpoint) = world();
    let hanging = McpServer::legacy(&[tool("other")]);
    let slow = hanging.register(&tenant, "slow", &json!({})).assert_connected();
    let never = Arc::new(Latch::default());
    let held = Arc::clone(&never);
    hanging.always("DELETE", move |_| Reply::Held(Arc::clone(&held), Box::new(Reply::Hangup)));
    for id in 0..70 {
        let session = tenant.initialize(&json!({ "elicitation": {} })).expect("a session");
        let params = json!({ "name": "other", "arguments": {} });
        assert_eq!(tenant.legacy_stream(&json!(id), &params, Some(&session)).status, 200);
    }
    assert!(opened(&hanging) >= 70, "each client has its own");
    tenant.patch(&format!("/v1/endpoints/{}", slow.id), &json!({ "enabled": false })).expect(200);
    eventually("they are given back", || (hanging.count("DELETE") > 0).then_some(()));
    tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
    eventually("the other's is too", || (server.count("DELETE") == 1).then_some(()));
    assert!(hanging.count("DELETE") <= 16, "it waits for none of those");
    never.open();
}

#[test]
fn every_session_that_was_opened_is_given_back() {
    let (gate, server, tenant, endpoint) = world();
    let kept = |sessions: usize, why: &str| {
        eventually(why, || (server.sessions() == sessions).then_some(()));
    };
    server.always("tools/list", |request| failure(request, 400, -32603, "not now"));
    assert_eq!(tenant.sync(&endpoint)["outcome"], "failed");
    kept(0, "those that were doubted, and those opened in their place");
    server.as_usual("tools/list");
    tenant.call("act", &json!({}));
    kept(1, "one for the call");
    server.next("tools/call", |_| Reply::text(400, "no such customer"));
    tenant.call("act", &json!({}));
    kept(0, "one in which a call was refused, nobody knows why");
    tenant.sync(&endpoint);
    kept(1, "one for the sync");

    let unspoken = McpServer::start(Era::Legacy, &[tool("other")]);
    unspoken.always("initialize", |request| {
        let result = json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {} });
        let Reply::Http { status, mut headers, body } = answer(request, &result) else {
            unreachable!("an answer is HTTP")
        };
        headers.push(("Mcp-Session-Id".to_owned(), "s-1".to_owned()));
        Reply::Http { status, headers, body }
    });
    unspoken.register(&tenant, "old", &json!({}));
    eventually("one of a revision that nobody speaks", || (unspoken.count("DELETE") == 1).then_some(()));

    let org = format!("/admin/v1/orgs/{}", tenant.org_id);
    gate.operator("PATCH", &org, Some(&json!({ "state": "suspended" }))).expect(200);
    kept(0, "those of an organization that is suspended");
}

/// What was changed or taken away while a call was under way is not called again.
#[test]
fn a_call_is_made_again_only_to_an_endpoint_that_still_stands() {
    type Change = fn(&Tenant, &str);
    let changes: [(&str, Change); 3] = [
        ("deleted", |tenant, path| drop(tenant.delete(path).expect(204))),
        ("disabled", |tenant, path| drop(tenant.patch(path, &json!({ "enabled": false })).expect(200))),
        ("changed", |tenant, path| drop(tenant.patch(path, &json!({ "auth": { "bearer": "other" } })).expect(200))),
    ];
    for (what, change) in changes {
        let (gate, server, tenant, endpoint) = world();
        let latch = Arc::new(Latch::default());
        let held = Arc::clone(&latch);
        server.next("tools/call", move |_| Reply::Held(held, Box::new(Reply::text(404, ""))));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| tenant.run(&json!({ "tool": "act", "args": {} })));
            eventually("the call is made", || (server.calls().len() == 1).then_some(()));
            change(&tenant, &format!("/v1/endpoints/{}", endpoint.id));
            latch.open();
            call.join().expect("no panic");
        });
        // A stop waits for what is under way.
        let _gate = gate.restart();
        assert_eq!((server.calls().len(), server.executed()), (1, 0), "{what}");
    }
}

#[test]
fn another_organization_has_another_session() {
    let (gate, server, tenant, _) = world();
    let other = gate.tenant("other");
    server.register(&other, "shop", &json!({})).assert_connected();
    let session = |tenant: &Tenant| {
        tenant.call("act", &json!({}));
        server.last_call().header("mcp-session-id").expect("a session").to_owned()
    };
    assert_ne!(session(&tenant), session(&other));
}

/// A server may do without sessions, and its `initialized` may be answered in any good way.
#[test]
fn an_opening_may_be_answered_in_any_good_way() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let good: [Answering; 4] = [
        |_| Reply::text(200, ""),
        |_| Reply::text(202, "null"),
        |_| Reply::Http { status: 204, headers: Vec::new(), body: Vec::new() },
        |_| crate::support::mcp_server::stream(Vec::new()),
    ];
    for acknowledgement in good {
        let server = McpServer::start(Era::LegacyWithoutSessions, &[tool("act")]);
        server.always("notifications/initialized", acknowledgement);
        let endpoint = server.register(&tenant, "shop", &json!({})).assert_connected();
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
        assert_eq!(server.count("initialize"), 1);
        tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
    }
}

/// The answer names the session; an id that no header can hold is none.
#[test]
fn a_session_id_that_cannot_be_sent_back_is_not() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    for id in ["", "a b", "é", &"x".repeat(2000)] {
        let server = McpServer::start(Era::LegacyWithoutSessions, &[tool("act")]);
        let header = id.to_owned();
        server.always("initialize", move |request| {
            let result = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {} });
            let Reply::Http { status, mut headers, body } = answer(request, &result) else {
                unreachable!("an answer is HTTP")
            };
            headers.push(("Mcp-Session-Id".to_owned(), header.clone()));
            Reply::Http { status, headers, body }
        });
        let endpoint = server.register(&tenant, "shop", &json!({})).assert_connected();
        assert_eq!(endpoint.body["protocol_version"], "2025-06-18");
        tenant.call("act", &json!({}));
        assert_eq!(server.last_call().header("mcp-session-id"), None);
        assert_eq!(server.last_call().header("mcp-protocol-version"), Some("2025-06-18"));
        assert!(server.all().iter().map(method_of).all(|method| method != "response"));
        tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
    }
}
