//! What is counted of MCP servers: breaker, metrics, usage, records.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::mcp_server::{Era, McpServer, answer, read, said, tool};
use crate::support::provider::Reply;
use crate::support::tenant::Tenant;
use serde_json::json;
use std::time::Duration;

const ERAS: [Era; 3] = [Era::Modern, Era::Legacy, Era::LegacyWithoutSessions];

fn world(era: Era) -> (Gate, McpServer, Tenant) {
    let gate = Gate::start();
    let server = McpServer::start(era, &[tool("act"), read("look")]);
    let tenant = gate.tenant("acme");
    server.register(&tenant, "shop", &json!({ "trusted": true })).assert_connected();
    (gate, server, tenant)
}

#[test]
fn a_server_that_keeps_failing_is_left_alone_for_a_while() {
    for era in ERAS {
        let (gate, server, tenant) = world(era);
        server.always("tools/call", |_| Reply::text(500, ""));
        for _ in 0..20 {
            assert_eq!(tenant.call("act", &json!({}))["status"], "uncertain");
        }
        let refused = tenant.run(&json!({ "tool": "act" }));
        refused.problem(503, "endpoint_unavailable");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(server.calls().len(), 20, "{era:?}");
        server.as_usual("tools/call");
        gate.advance(Duration::from_secs(5));
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
    }
}

/// A refusal of the call itself says that the server is well.
#[test]
fn errors_of_tools_and_refused_calls_open_no_breaker() {
    for era in ERAS {
        let (_gate, server, tenant) = world(era);
        let error = json!({ "content": [], "isError": true });
        server.always("tools/call", move |request| answer(request, &error));
        for _ in 0..25 {
            assert_eq!(tenant.call("act", &json!({}))["status"], "failed");
        }
        server.always("tools/call", |_| Reply::text(422, ""));
        for _ in 0..25 {
            assert_eq!(tenant.call("act", &json!({}))["status"], "failed");
        }
        assert_eq!(server.calls().len(), 50, "{era:?}");
    }
}

/// Also one that fails before anything of a call is sent.
#[test]
fn a_server_that_cannot_be_opened_is_left_alone_too() {
    for refusal in ["down", "500"] {
        let (gate, server, tenant) = world(Era::Legacy);
        let gate = gate.restart();
        let tenant = tenant.at(&gate);
        server.forget_sessions();
        match refusal {
            "down" => server.go_down(),
            _ => server.always("initialize", |_| Reply::text(500, "")),
        }
        for _ in 0..20 {
            let run = tenant.call("act", &json!({}));
            assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)), "{refusal}: {run}");
        }
        tenant.run(&json!({ "tool": "act" })).problem(503, "endpoint_unavailable");
    }
}

fn sum(text: &str, family: &str, labels: &[(&str, &str)]) -> f64 {
    let matches = |line: &&str| labels.iter().all(|(name, value)| line.contains(&format!("{name}=\"{value}\"")));
    let lines = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
    lines.filter(matches).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn calls_are_counted_under_their_dialect() {
    let (gate, server, tenant) = world(Era::Legacy);
    for _ in 0..3 {
        tenant.call("act", &json!({}));
        tenant.call("look", &json!({}));
    }
    let error = json!({ "content": [], "isError": true });
    server.next("tools/call", move |request| answer(request, &error));
    tenant.call("act", &json!({}));
    server.next("tools/call", |_| Reply::Hangup);
    tenant.call("act", &json!({}));
    server.next("tools/call", |_| Reply::text(404, ""));
    server.next("tools/call", |request| answer(request, &said("again")));
    tenant.call("act", &json!({}));
    let runs = |kind: &str, status: &str| {
        let labels = [("org", "acme"), ("dialect", "mcp"), ("kind", kind), ("status", status)];
        sum(&gate.metrics(), "toolgate_runs_total", &labels)
    };
    assert_eq!((runs("command", "completed"), runs("query", "completed")), (4.0, 3.0));
    assert_eq!((runs("command", "failed"), runs("command", "uncertain")), (1.0, 1.0));
    let requests = |outcome: &str| {
        let labels = [("org", "acme"), ("endpoint", "shop"), ("outcome", outcome)];
        sum(&gate.metrics(), "toolgate_provider_requests_total", &labels)
    };
    assert_eq!((requests("reset"), requests("http_4xx")), (1.0, 1.0));
    assert!(requests("ok") >= 8.0);
    for phase in ["gateway", "provider", "total"] {
        let labels = [("dialect", "mcp"), ("phase", phase)];
        assert!(sum(&gate.metrics(), "toolgate_run_duration_seconds_count", &labels) >= 9.0, "{phase}");
    }
    let usage = format!("/admin/v1/orgs/{}/usage", tenant.org_id);
    eventually("every run is recorded", || {
        let items = gate.operator("GET", &usage, None).expect(200).json()["items"].clone();
        let runs = |tool: &str, status: &str| {
            let mut items = items.as_array().expect("items").iter();
            items.find(|item| item["tool"] == tool && item["status"] == status).map(|item| item["runs"].clone())
        };
        let all =
            [runs("act", "completed"), runs("act", "failed"), runs("act", "uncertain"), runs("look", "completed")];
        (all == [4, 1, 1, 3].map(|count| Some(json!(count)))).then_some(())
    });
}

#[test]
fn a_run_shows_its_attempts_and_arguments_to_the_tenant() {
    let (_gate, server, tenant) = world(Era::Legacy);
    server.next("tools/call", |_| Reply::text(404, ""));
    let run = tenant.call("act", &json!({ "a": 1 }));
    let shown = tenant.tenant_run(&run);
    let attempts = shown["attempts"].as_array().expect("attempts");
    let told: Vec<_> = attempts.iter().map(|one| (one["outcome"].clone(), one["http_status"].clone())).collect();
    assert_eq!(told, [(json!("http_4xx"), json!(404)), (json!("ok"), json!(200))]);
    assert!(attempts.iter().all(|attempt| attempt["at"].is_string() && attempt["duration_ms"].is_u64()));
    assert_eq!(shown["arguments"]["sent"], json!({ "a": 1 }));
}
