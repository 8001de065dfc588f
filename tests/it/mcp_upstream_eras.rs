//! MCP servers of both eras: how it is found out which one a server speaks, and that it may change.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::mcp_server::{
    Answering, Era, LEGACY, MODERN, McpServer, answer, failure, failure_without_id, method_of, other_versions, read,
    tool,
};
use crate::support::provider::{Received, Reply};
use crate::support::tenant::{Registered, Tenant};
use serde_json::json;

fn world(server: &McpServer) -> (Gate, Tenant, Registered) {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({}));
    (gate, tenant, endpoint)
}

fn methods(server: &McpServer) -> Vec<String> {
    server.all().iter().map(method_of).collect()
}

fn is_modern(request: &Received) -> bool {
    request.header("mcp-protocol-version") == Some(MODERN)
}

#[test]
fn a_modern_server_is_asked_without_any_opening() {
    let server = McpServer::modern(&[tool("act")]);
    let (_gate, tenant, endpoint) = world(&server);
    assert_eq!(endpoint.body["protocol_version"], MODERN);
    assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
    tenant.sync(&endpoint);
    let methods = methods(&server);
    assert!(methods.iter().all(|method| method != "initialize"), "{methods:?}");
    assert_eq!((server.count("tools/list"), server.executed()), (2, 1));
    let call = server.last_call().json();
    let meta = &call["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}), "nobody can be asked");
    assert_eq!(meta.get("progressToken"), None);
}

/// Some answer a bare 400, others that the method is unknown, others with an error that names no request.
#[test]
fn whoever_does_not_know_the_present_era_is_taken_for_a_legacy_server() {
    let refusals: [(&str, Answering); 11] = [
        ("bare 400", |_| Reply::text(400, "")),
        ("bare 404", |_| Reply::text(404, "not found")),
        ("bare 405", |_| Reply::text(405, "")),
        ("bare 406", |_| Reply::text(406, "")),
        ("bare 415", |_| Reply::text(415, "<html>")),
        ("200 method not found", |request| failure(request, 200, -32601, "Method not found")),
        ("404 method not found", |request| failure(request, 404, -32601, "Method not found")),
        ("error without id", |_| failure_without_id(400, -32000, "Bad Request: Server not initialized")),
        ("error with a foreign id", |_| {
            Reply::text(400, r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}"#)
        }),
        ("invalid params", |request| failure(request, 400, -32602, "Invalid request parameters")),
        ("a result of the earlier era", |request| answer(request, &json!({ "tools": [] }))),
    ];
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    for (what, refusal) in refusals {
        for era in [Era::Legacy, Era::LegacyWithoutSessions] {
            let server = McpServer::start(era, &[tool("act")]);
            server.refuse(refusal);
            let endpoint = server.register(&tenant, "shop", &json!({}));
            assert_eq!(endpoint.body["state"], "connected", "{what}: {}", endpoint.body);
            assert_eq!(endpoint.body["protocol_version"], LEGACY, "{what}");
            assert_eq!(methods(&server), ["tools/list", "initialize", "notifications/initialized", "tools/list"]);
            assert_eq!(tenant.call("act", &json!({}))["status"], "completed", "{what}");
            assert_eq!(server.calls().len(), 1, "{what}");
            let call = server.last_call();
            assert_eq!(call.header("mcp-protocol-version"), Some(LEGACY));
            assert_eq!(call.header("mcp-session-id").is_some(), era == Era::Legacy);
            assert_eq!((call.header("mcp-method"), call.header("mcp-name")), (None, None));
            assert_eq!(call.json()["params"], json!({ "name": "act", "arguments": {} }));
            let opening = server.requests("initialize").remove(0);
            assert_eq!(opening.header("mcp-protocol-version"), None, "nothing is agreed on yet");
            assert_eq!(opening.json()["params"]["capabilities"], json!({}));
            tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
        }
    }
}

#[test]
fn a_server_of_other_versions_is_spoken_with_in_one_of_them_or_refused() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let server = McpServer::legacy(&[tool("act")]);
    server.refuse(|request| other_versions(request, &["1999-01-01", "2025-06-18"]));
    let endpoint = server.register(&tenant, "spoken", &json!({})).assert_connected();
    assert_eq!(endpoint.body["protocol_version"], LEGACY);

    for supported in [&["1999-01-01", "2031-01-01"][..], &[]] {
        let server = McpServer::modern(&[tool("act")]);
        server.always("tools/list", |request| other_versions(request, supported));
        let endpoint = server.register(&tenant, "unspoken", &json!({}));
        let reason = &endpoint.body["reason"];
        assert_eq!(reason["code"], "unsupported_version", "{}", endpoint.body);
        let message = reason["message"].as_str().expect("a sentence");
        assert!(supported.iter().all(|version| message.contains(version)) && message.contains(MODERN), "{message}");
        assert_eq!(server.count("initialize"), 0);
        assert_eq!(endpoint.body.get("protocol_version"), None);
        tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
    }

    let server = McpServer::legacy(&[tool("act")]);
    server.always("initialize", |request| {
        let result = json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {} });
        answer(request, &result)
    });
    let endpoint = server.register(&tenant, "ancient", &json!({}));
    assert_eq!(endpoint.body["reason"]["code"], "unsupported_version", "{}", endpoint.body);
    assert_eq!(server.count("notifications/initialized"), 0);
}

#[test]
fn refused_credentials_are_told_in_either_era() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    for status in [401, 403] {
        let modern = McpServer::modern(&[tool("act")]);
        modern.always("tools/list", move |_| Reply::text(status, ""));
        let legacy = McpServer::legacy(&[tool("act")]);
        legacy.always("initialize", move |_| Reply::text(status, ""));
        for (name, server) in [("modern", &modern), ("legacy", &legacy)] {
            let endpoint = server.register(&tenant, name, &json!({}));
            assert_eq!(endpoint.body["reason"]["code"], "unauthorized", "{name} {status}: {}", endpoint.body);
            let sync = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).remove(0);
            assert_eq!(sync["http_status"], status);
            tenant.delete(&format!("/v1/endpoints/{}", endpoint.id)).expect(204);
        }
        assert_eq!(methods(&modern), ["tools/list"], "credentials say nothing of the era");
    }
    let server = McpServer::modern(&[tool("act")]);
    server.always("tools/list", |_| Reply::text(429, ""));
    let endpoint = server.register(&tenant, "busy", &json!({}));
    assert_eq!(endpoint.body["reason"]["code"], "bad_status");
    assert_eq!(methods(&server), ["tools/list"]);
}

#[test]
fn refused_credentials_of_a_call_are_told() {
    for server in [McpServer::modern(&[tool("act")]), McpServer::legacy(&[tool("act")])] {
        let (_gate, tenant, _) = world(&server);
        for status in [401, 403] {
            server.next("tools/call", move |_| Reply::text(status, ""));
            let run = tenant.call("act", &json!({}));
            assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_auth_failed")));
        }
        server.forget_sessions();
        server.always("initialize", |_| Reply::text(401, ""));
        server.next("tools/call", |_| Reply::text(404, ""));
        let run = tenant.call("act", &json!({}));
        assert_eq!(run["status"], "failed", "{run}");
        assert_eq!(server.executed(), 0);
    }
}

#[test]
fn the_era_is_remembered_over_a_restart() {
    let server = McpServer::legacy(&[tool("act")]);
    let (gate, tenant, endpoint) = world(&server);
    let before = server.all().len();
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
    assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged");
    let since: Vec<_> = server.all().drain(before..).collect();
    assert!(!since.iter().any(is_modern), "{since:?}");
    let methods: Vec<_> = since.iter().map(method_of).filter(|method| method != "GET").collect();
    // The stop gives the session back.
    assert_eq!(methods, ["DELETE", "initialize", "notifications/initialized", "tools/call", "tools/list"]);
    assert_eq!(tenant.show(&endpoint)["protocol_version"], LEGACY);
}

/// Calls go on through the change and are run once each; the next listing remembers it.
#[test]
fn a_server_may_move_from_one_era_to_the_other_and_back() {
    for modern_refusals in [true, false] {
        let server = McpServer::legacy(&[tool("act"), read("look")]);
        let (_gate, tenant, endpoint) = world(&server);
        let mut executed = 0;
        for era in [Era::Modern, Era::Legacy, Era::Modern, Era::LegacyWithoutSessions] {
            server.speak(era);
            if !modern_refusals && era == Era::Modern {
                // Whoever has no `initialize` may also say just that.
                server.next("initialize", |request| failure(request, 404, -32601, "Method not found"));
            }
            for tool in ["act", "look"] {
                let run = tenant.call(tool, &json!({}));
                assert_eq!(run["status"], "completed", "{era:?}: {run}");
                executed += 1;
                assert_eq!(server.executed(), executed, "{era:?}");
            }
            let spoken = if era == Era::Modern { MODERN } else { LEGACY };
            tenant.sync(&endpoint);
            eventually("the new era is remembered", || {
                (tenant.show(&endpoint)["protocol_version"] == spoken).then_some(())
            });
            let sent = server.all().len();
            tenant.call("act", &json!({}));
            executed += 1;
            let sent: Vec<_> = server.all().drain(sent..).map(|request| method_of(&request)).collect();
            let calls: Vec<&str> = sent
                .iter()
                .map(String::as_str)
                .filter(|method| matches!(*method, "tools/call" | "initialize"))
                .collect();
            assert_eq!((calls, server.executed()), (vec!["tools/call"], executed), "{era:?}: it is known");
        }
    }
}

#[test]
fn a_sync_finds_the_new_era_of_a_server_by_itself() {
    let server = McpServer::legacy(&[tool("act")]);
    let (_gate, tenant, endpoint) = world(&server);
    for (era, spoken) in [(Era::Modern, MODERN), (Era::Legacy, LEGACY), (Era::Modern, MODERN)] {
        server.speak(era);
        assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged", "{era:?}");
        assert_eq!(tenant.show(&endpoint)["protocol_version"], spoken);
    }
}
