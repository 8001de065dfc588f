//! Listing the tools of an MCP server: all pages, within all bounds, and never less than the last good set.

use crate::support::gate::Gate;
use crate::support::mcp_server::{
    Answering, Era, McpServer, answer, event, failure, list_changed, response, stream, tool, tool_with,
};
use crate::support::provider::{Latch, Received, Reply, Step};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn world(server: &McpServer, settings: &[(&str, &str)]) -> (Gate, Tenant, Registered) {
    let gate = Gate::with(settings);
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({}));
    (gate, tenant, endpoint)
}

fn both(tools: &[Value]) -> [McpServer; 2] {
    [McpServer::modern(tools), McpServer::legacy(tools)]
}

fn page(tools: &[Value], next_cursor: Option<&str>) -> Value {
    let mut result = json!({ "resultType": "complete", "tools": tools });
    if let Some(cursor) = next_cursor {
        result["nextCursor"] = json!(cursor);
    }
    result
}

fn cursors(server: &McpServer) -> Vec<Value> {
    server.requests("tools/list").iter().map(|request| request.json()["params"]["cursor"].clone()).collect()
}

/// Why the next sync fails; the tools of before stay.
#[track_caller]
fn failing(tenant: &Tenant, endpoint: &Registered) -> String {
    let before = tenant.listed();
    let synced = tenant.sync(endpoint);
    assert_eq!(synced["outcome"], "failed", "{synced}");
    assert_eq!(tenant.listed(), before, "a failed fetch is no empty manifest");
    synced["reason"]["code"].as_str().expect("a code").to_owned()
}

// agentgateway#3476: only the first page of a list was taken.
#[test]
fn every_page_is_followed() {
    let tools: Vec<Value> = (0..7).map(|n| tool(&format!("t{n}"))).collect();
    for server in both(&tools) {
        for size in [1, 2, 7, 100] {
            server.page(size);
            let (_gate, tenant, endpoint) = world(&server, &[]);
            assert_eq!(endpoint.body["tool_count"], 7, "{size} a page: {}", endpoint.body);
            assert_eq!(tenant.listed().len(), 7);
        }
    }
}

#[test]
fn an_empty_text_is_a_cursor_and_null_is_none() {
    let server = McpServer::modern(&[]);
    server.next("tools/list", |request| answer(request, &page(&[tool("a")], Some(""))));
    server.next("tools/list", |request| answer(request, &page(&[tool("b")], Some("é\"\n"))));
    server.next("tools/list", |request| {
        let mut last = page(&[tool("c")], None);
        last["nextCursor"] = Value::Null;
        answer(request, &last)
    });
    let (_gate, tenant, _) = world(&server, &[]);
    assert_eq!(tenant.listed(), ["mcp:a", "mcp:b", "mcp:c"]);
    assert_eq!(cursors(&server), [Value::Null, json!(""), json!("é\"\n")]);
}

// codebase-memory-mcp#1247: the cursor is not taken in, and page 1 comes for ever.
#[test]
fn pages_that_never_end_fail_the_sync() {
    for server in both(&[tool("a")]) {
        let (_gate, tenant, endpoint) = world(&server, &[]);
        server.always("tools/list", |request| answer(request, &page(&[tool("a")], Some("same"))));
        assert_eq!(failing(&tenant, &endpoint), "bad_manifest");
        let turn = AtomicUsize::new(0);
        server.always("tools/list", move |request| {
            let next = ["x", "y", "z"][turn.fetch_add(1, Ordering::SeqCst) % 3];
            answer(request, &page(&[tool("a")], Some(next)))
        });
        assert_eq!(failing(&tenant, &endpoint), "bad_manifest");
        let turn = AtomicUsize::new(0);
        server.always("tools/list", move |request| {
            let next = turn.fetch_add(1, Ordering::SeqCst).to_string();
            answer(request, &page(&[], Some(&next)))
        });
        let asked = server.count("tools/list");
        assert_eq!(failing(&tenant, &endpoint), "bad_manifest");
        assert!(server.count("tools/list") - asked <= 101, "{} requests", server.count("tools/list") - asked);
    }
}

#[test]
fn fifty_pages_are_followed_and_no_more() {
    for (pages, outcome) in [(50, "applied"), (51, "failed")] {
        let server = McpServer::modern(&[]);
        let (_gate, tenant, endpoint) = world(&server, &[]);
        server.always("tools/list", move |request| {
            let at: usize = request.json()["params"]["cursor"].as_str().map_or(0, |at| at.parse().expect("ours"));
            let next = (at + 1 < pages).then(|| (at + 1).to_string());
            answer(request, &page(&[tool(&format!("t{at}"))], next.as_deref()))
        });
        assert_eq!(tenant.sync(&endpoint)["outcome"], outcome, "{pages} pages");
    }
}

fn sized(name: &str, bytes: usize) -> Value {
    let mut item = tool(name);
    item["description"] = json!("x".repeat(bytes));
    item
}

/// Counted over all pages, and as JSON or as a stream alike.
#[test]
fn all_pages_together_are_bounded() {
    for server in both(&[tool("a")]) {
        let (_gate, tenant, endpoint) = world(&server, &[]);
        for as_stream in [false, true] {
            let reply = move |request: &Received, result: &Value| match as_stream {
                false => answer(request, result),
                true => stream(vec![event(&response(request, result))]),
            };
            server.always("tools/list", move |request| reply(request, &page(&[sized("a", 512_000)], None)));
            assert_eq!(failing(&tenant, &endpoint), "too_large", "one page, as a stream: {as_stream}");
            server.always("tools/list", move |request| {
                let at = request.json()["params"]["cursor"].as_str().map_or(0, |at| at.parse::<usize>().expect("ours"));
                let next = (at < 2).then(|| (at + 1).to_string());
                reply(request, &page(&[sized(&format!("t{at}"), 180_000)], next.as_deref()))
            });
            assert_eq!(failing(&tenant, &endpoint), "too_large", "three pages, as a stream: {as_stream}");
            server.always("tools/list", move |request| reply(request, &page(&[sized("a", 500_000)], None)));
            assert_ne!(tenant.sync(&endpoint)["outcome"], "failed");
        }
    }
}

#[test]
fn a_list_may_come_as_a_stream() {
    for server in both(&[]) {
        server.always("tools/list", |request| {
            let result = page(&[tool("a")], None);
            let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } });
            stream(vec![Step::Say(b": hello\n\n".to_vec()), event(&note), event(&response(request, &result))])
        });
        let (_gate, tenant, endpoint) = world(&server, &[]);
        assert_eq!(endpoint.body["state"], "connected", "{}", endpoint.body);
        assert_eq!(tenant.listed(), ["mcp:a"]);
    }
}

/// What a server says in answer to a listing is about that listing.
#[test]
fn listing_never_leads_to_listing() {
    for server in both(&[]) {
        server.always("tools/list", |request| {
            let result = page(&[tool("a")], None);
            stream(vec![event(&list_changed()), event(&response(request, &result))])
        });
        let (_gate, tenant, endpoint) = world(&server, &[]);
        tenant.sync(&endpoint);
        tenant.sync(&endpoint);
        let syncs = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id));
        let triggers: Vec<_> = syncs.iter().map(|sync| sync["trigger"].clone()).collect();
        assert_eq!(triggers, ["api", "api", "registration"]);
    }
}

/// One deadline for the whole listing, however many pages and openings it takes.
#[test]
fn a_listing_has_one_deadline() {
    let never = Arc::new(Latch::default());
    for held in ["tools/list", "initialize", "notifications/initialized"] {
        let server = McpServer::legacy(&[tool("a"), tool("b")]);
        server.page(1);
        let latch = Arc::clone(&never);
        server.always(held, move |_| Reply::Held(Arc::clone(&latch), Box::new(Reply::Hangup)));
        let begun = Instant::now();
        let (_gate, _tenant, endpoint) = world(&server, &[("LIMITS__MANIFEST_FETCH_TIMEOUT_MS", "400")]);
        assert_eq!(endpoint.body["reason"]["code"], "timeout", "{held}: {}", endpoint.body);
        assert!(begun.elapsed().as_secs() < 8, "{held}: {:?}", begun.elapsed());
    }
    let server = McpServer::modern(&[tool("a"), tool("b")]);
    server.page(1);
    server.next("tools/list", |request| answer(request, &page(&[tool("a")], Some("1"))));
    let latch = Arc::clone(&never);
    server.next("tools/list", move |request| {
        let result = page(&[tool("b")], None);
        stream(vec![Step::Say(b": wait\n\n".to_vec()), Step::Wait(latch), event(&response(request, &result))])
    });
    let (_gate, tenant, endpoint) = world(&server, &[("LIMITS__MANIFEST_FETCH_TIMEOUT_MS", "400")]);
    assert_eq!(endpoint.body["reason"]["code"], "timeout", "{}", endpoint.body);
    assert!(tenant.listed().is_empty(), "half a list is none");
    never.open();
}

/// Also of a server that is known to be a legacy one: the present era is tried once more before a listing has failed.
#[test]
fn a_listing_is_tried_again_where_that_helps() {
    for server in both(&[tool("a")]) {
        let (_gate, tenant, endpoint) = world(&server, &[]);
        for status in [502, 503, 504] {
            (0..2).for_each(|_| server.next("tools/list", move |_| Reply::text(status, "busy")));
            assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged", "HTTP {status}");
        }
        let listings = server.count("tools/list");
        server.always("tools/list", |_| Reply::text(503, ""));
        assert_eq!(failing(&tenant, &endpoint), "bad_status");
        assert!((3..=6).contains(&(server.count("tools/list") - listings)), "three times in all");
        server.always("tools/list", |_| Reply::text(500, ""));
        assert_eq!(failing(&tenant, &endpoint), "bad_status");
        server.always("tools/list", |request| failure(request, 500, -32603, "boom"));
        assert_eq!(failing(&tenant, &endpoint), "bad_manifest");
        let synced = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).remove(0);
        assert!(synced["reason"]["message"].as_str().is_some_and(|message| message.contains("boom")), "{synced}");
        server.go_down();
        assert_eq!(failing(&tenant, &endpoint), "unreachable");
        server.come_back();
        server.as_usual("tools/list");
        assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged");
    }
}

#[test]
fn what_is_no_list_is_told_as_what_it_is() {
    let not_lists: [(&str, Answering); 9] = [
        ("bad_manifest", |request| answer(request, &json!({ "resultType": "complete" }))),
        ("bad_manifest", |request| answer(request, &json!({ "resultType": "complete", "tools": {} }))),
        ("bad_manifest", |request| answer(request, &json!({ "resultType": "complete", "tools": [], "nextCursor": 1 }))),
        ("bad_manifest", |request| answer(request, &json!([]))),
        ("bad_manifest", |request| failure(request, 200, -32603, "boom")),
        ("not_json", |_| Reply::text(200, "<html>")),
        ("not_json", |_| Reply::text(200, "")),
        ("not_json", |_| Reply::text(200, "[]")),
        ("not_json", |_| Reply::Http {
            status: 200,
            headers: vec![("Content-Encoding".to_owned(), "gzip".to_owned())],
            body: b"\x1f\x8b".to_vec(),
        }),
    ];
    for (code, not_list) in not_lists {
        let server = McpServer::start(Era::LegacyWithoutSessions, &[tool("a")]);
        let (_gate, tenant, endpoint) = world(&server, &[]);
        server.always("tools/list", not_list);
        assert_eq!(failing(&tenant, &endpoint), code);
    }
}

#[test]
fn a_record_of_a_sync_tells_the_status_and_the_reason() {
    for server in both(&[tool("a"), tool_with("bad", &json!({ "type": "int" }))]) {
        let (_gate, tenant, endpoint) = world(&server, &[]);
        let newest = || tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).remove(0);
        let first = newest();
        assert_eq!((&first["http_status"], &first["trigger"]), (&json!(200), &json!("registration")));
        assert_eq!(first["diff"], json!({ "added": ["a"], "removed": [], "changed": [] }));
        assert_eq!((&first["skipped"][0]["tool"], first["skipped"].as_array().map(Vec::len)), (&json!("bad"), Some(1)));
        server.always("tools/list", |request| answer(request, &json!({ "resultType": "complete", "tools": 1 })));
        tenant.sync(&endpoint);
        let failed = newest();
        assert_eq!((&failed["reason"]["code"], &failed["http_status"]), (&json!("bad_manifest"), &json!(200)));
        server.always("tools/list", |_| Reply::text(500, ""));
        tenant.sync(&endpoint);
        let failed = newest();
        assert_eq!((&failed["reason"]["code"], &failed["http_status"]), (&json!("bad_status"), &json!(500)));
    }
}
