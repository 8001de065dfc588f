//! What Prometheus is told: every family of the contract, and labels that cannot run away.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology};
use crate::support::provider::{Provider, Reply};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toolgate::demo::agent_provider::{Fault, FaultPoint, What};

/// One series: its labels and value.
type Series = (BTreeMap<String, String>, f64);

/// The series of a family. Label values of these tests hold no comma and no quote.
fn series(text: &str, family: &str) -> Vec<Series> {
    let of_line = |line: &str| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        let labels = pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect();
        Some((labels, value.parse().expect("a number")))
    };
    text.lines().filter_map(of_line).collect()
}

/// The sum of the family's series that have these labels.
fn sum(text: &str, family: &str, labels: &[(&str, &str)]) -> f64 {
    let all = series(text, family).into_iter();
    let matching =
        all.filter(|(found, _)| labels.iter().all(|(name, value)| found.get(*name).is_some_and(|v| v == value)));
    matching.map(|(_, value)| value).sum()
}

#[test]
fn every_family_is_counted_by_what_happens() {
    let gate = Gate::with(&[("LIMITS__CALLER_PER_SECOND", "1"), ("LIMITS__CALLER_PER_SECOND_BURST", "1")]);
    let topologies = Provider::topology(&[topology("go", "command"), topology("ask", "query")]);
    let medians = Provider::median(&[median("find", "low"), median("erase", "high")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("topologies", &topologies);
    let second = tenant.endpoint("medians", &medians);
    let before = gate.metrics();
    for family in [
        "runs_total",
        "run_duration_seconds",
        "provider_requests_total",
        "rate_limited_total",
        "sync_total",
        "endpoint_up",
        "pending_runs",
        "callbacks_total",
        "approvals",
        "operations",
        "org_actors",
        "mailbox_depth",
        "store_seconds",
        "build_info",
        "records_dropped_total",
    ] {
        assert!(before.contains(&format!("# HELP toolgate_{family} ")), "{family}: {before}");
        assert!(before.contains(&format!("# TYPE toolgate_{family} ")), "{family}");
    }
    let find = || tenant.call("find", &json!({}));
    find();
    medians.next(Reply::text(500, "{}"));
    find();
    tenant.call("go", &json!({}));
    tenant.run_request(&json!({ "tool": "erase" })).header("Prefer", "wait=0").send().expect(202);
    let (first, other) = (tenant.call("ask", &json!({})), tenant.call("ask", &json!({})));
    let node = endpoint.node(&gate);
    node.complete("m-1", first["correlation_id"].as_str().expect("an id"), &json!(1)).expect(202);
    node.complete("m-1", first["correlation_id"].as_str().expect("an id"), &json!(1)).expect(202);
    node.complete("m-2", first["correlation_id"].as_str().expect("an id"), &json!(2)).expect(202);
    node.with_secret("whsec_AAAA").complete("m-3", "x", &json!(1)).expect(401);
    node.deliver("m-4", &json!({ "correlation_id": "unknown", "status": "completed" })).expect(202);
    for _ in 0..3 {
        tenant.run_request(&json!({ "tool": "go" })).header("X-Caller-Identity", "ann").send();
    }
    medians.manifest(Reply::text(500, "oops"));
    tenant.sync(&second);

    let text = gate.metrics();
    let of = |family: &str, labels: &[(&str, &str)]| {
        let labels: Vec<_> = labels.iter().copied().chain([("org", "acme")]).collect();
        sum(&text, family, &labels)
    };
    let runs =
        |dialect, kind, status| of("toolgate_runs_total", &[("dialect", dialect), ("kind", kind), ("status", status)]);
    assert_eq!(runs("median", "query", "completed"), 1.0);
    assert_eq!(runs("median", "query", "failed"), 1.0);
    assert_eq!(runs("median", "query", "awaiting_approval"), 1.0);
    assert_eq!(runs("topology", "command", "started"), 2.0);
    assert_eq!(runs("topology", "query", "pending"), 2.0);
    assert_eq!(runs("topology", "query", "completed"), 1.0);
    let requests =
        |endpoint, outcome| of("toolgate_provider_requests_total", &[("endpoint", endpoint), ("outcome", outcome)]);
    assert_eq!((requests("medians", "http_5xx"), requests("topologies", "ok") >= 4.0), (1.0, true));
    assert_eq!(of("toolgate_rate_limited_total", &[("scope", "caller")]), 2.0);
    assert_eq!(of("toolgate_sync_total", &[("outcome", "applied")]), 2.0);
    assert_eq!(of("toolgate_sync_total", &[("outcome", "failed")]), 1.0);
    assert_eq!(of("toolgate_endpoint_up", &[("endpoint", "topologies")]), 1.0);
    assert_eq!(of("toolgate_endpoint_up", &[("endpoint", "medians")]), 0.0);
    assert_eq!(series(&text, "toolgate_endpoint_up").len(), 2);
    assert_eq!(of("toolgate_pending_runs", &[]), 1.0);
    assert_eq!(of("toolgate_approvals", &[("state", "open")]), 1.0);
    for (outcome, count) in
        [("matched", 1.0), ("duplicate", 1.0), ("ignored", 1.0), ("bad_signature", 1.0), ("unmatched", 1.0)]
    {
        assert_eq!(of("toolgate_callbacks_total", &[("outcome", outcome)]), count, "{outcome}: {text}");
    }
    for phase in ["gateway", "provider", "total"] {
        let labels = [("dialect", "median"), ("phase", phase)];
        assert!(sum(&text, "toolgate_run_duration_seconds_count", &labels) >= 2.0, "{phase}: {text}");
    }
    assert!(
        series(&text, "toolgate_store_seconds_count")
            .iter()
            .all(|(labels, count)| labels.contains_key("op") && *count > 0.0)
    );
    assert!(!series(&text, "toolgate_store_seconds_count").is_empty());
    assert_eq!(series(&text, "toolgate_build_info").len(), 1);
    assert!(series(&text, "process_cpu_seconds_total").len() == 1 && series(&text, "process_open_fds").len() == 1);
    eventually("the gauges of the node are set", || {
        (sum(&gate.metrics(), "toolgate_org_actors", &[]) == 1.0).then_some(())
    });
    node.complete("m-5", other["correlation_id"].as_str().expect("an id"), &json!(1)).expect(202);
    eventually("nothing is pending any more", || {
        (sum(&gate.metrics(), "toolgate_pending_runs", &[("org", "acme")]) == 0.0).then_some(())
    });
}

#[test]
fn an_endpoint_is_down_while_its_breaker_is_open_or_its_sync_fails() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let up = |gate: &Gate| {
        let found = series(&gate.metrics(), "toolgate_endpoint_up");
        found.iter().find(|(labels, _)| labels["endpoint"] == "tools").map(|(_, value)| *value)
    };
    assert_eq!(up(&gate), Some(1.0));
    for _ in 0..20 {
        provider.next(Reply::text(500, "{}"));
        tenant.call("go", &json!({}));
    }
    assert_eq!(up(&gate), Some(0.0));
    tenant.run(&json!({ "tool": "go" })).problem(503, "endpoint_unavailable");
    let refused = [("org", "acme"), ("endpoint", "tools"), ("outcome", "breaker_open")];
    assert_eq!(sum(&gate.metrics(), "toolgate_provider_requests_total", &refused), 1.0);
    tenant.sync(&endpoint);
    assert_eq!(up(&gate), Some(0.0), "a good sync does not close the breaker");
    gate.advance(Duration::from_secs(5));
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    assert_eq!(up(&gate), Some(1.0));
    provider.manifest(Reply::text(500, "oops"));
    tenant.sync(&endpoint);
    assert_eq!(up(&gate), Some(0.0));
    // It stands so after a restart, too, as soon as the organization is at work.
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(tenant.listed().len(), 1);
    assert_eq!(up(&gate), Some(0.0));
    tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &json!({ "enabled": false })).expect(200);
    assert_eq!(up(&gate), None, "a disabled endpoint is neither up nor down");
}

// BerriAI/litellm#24530: e-mail addresses and key hashes as labels of an open /metrics.
#[test]
fn no_caller_key_or_argument_is_a_label_and_organizations_are_bounded() {
    let gate = Gate::with(&[("METRICS__MAX_ORGS", "2")]);
    let providers: Vec<Provider> = (0..4).map(|_| Provider::median(&[median("lookUpTheWeather", "low")])).collect();
    let mut secret: Vec<String> = Vec::new();
    for (n, provider) in providers.iter().enumerate() {
        let tenant = gate.tenant(&format!("org-{n}"));
        tenant.endpoint(&format!("endpoint-{n}"), provider);
        for caller in ["ann@example.com", "bob@example.com"] {
            let body = json!({ "tool": "lookUpTheWeather", "args": {}, "request_id": "planted-request" });
            let request = tenant.run_request(&body).header("X-Caller-Identity", caller);
            request.header("Conversation-Id", "planted-conversation").send().expect(200);
        }
        tenant.run(&json!({ "tool": "planted-tool" })).expect(404);
        secret.extend([tenant.agent.clone(), tenant.workspace.clone(), tenant.org_id.clone()]);
    }
    let text = gate.metrics();
    for forbidden in secret.iter().map(String::as_str).chain(["example.com", "planted", "tg_", "Weather"]) {
        assert!(!text.contains(forbidden), "{forbidden} is told: {text}");
    }
    let values = |label: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| line.starts_with("toolgate_"));
        let family = |line: &str| line.split(['{', ' ']).next().map(str::to_owned);
        let families: BTreeSet<String> = lines.filter_map(family).collect();
        let all = families.iter().flat_map(|family| series(&text, family));
        all.filter_map(|(labels, _)| labels.get(label).cloned()).collect()
    };
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(values("org"), set(&["org-0", "org-1", "other"]));
    assert_eq!(values("endpoint"), set(&["endpoint-0", "endpoint-1", "other"]));
    let completed = |org: &str| sum(&text, "toolgate_runs_total", &[("org", org), ("status", "completed")]);
    assert_eq!((completed("org-0"), completed("org-1"), completed("other")), (2.0, 2.0, 4.0));
    assert!(values("op").len() < 60 && values("outcome").len() < 30, "{:?} {:?}", values("op"), values("outcome"));
    // What is deleted leaves no series behind.
    let orgs = gate.operator("GET", "/admin/v1/orgs", None).json();
    let first = orgs["items"].as_array().expect("items").iter().find(|org| org["slug"] == "org-0").cloned();
    let id = first.as_ref().and_then(|org| org["id"].as_str()).map(str::to_owned).expect("it is listed");
    gate.operator("DELETE", &format!("/admin/v1/orgs/{id}"), None::<&Value>).expect(204);
    assert!(!gate.metrics().contains("org-0"), "{}", gate.metrics());
}

#[test]
fn a_callback_to_nowhere_is_counted_without_an_organization() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let node = gate.tenant("acme").endpoint("tools", &provider).node(&gate);
    let body = json!({ "type": "tool.result", "timestamp": "2026-01-01T00:00:00Z", "data": {} }).to_string();
    let nowhere = format!("/callbacks/{}", "01a22d7e-ec9b-7353-a908-a7fc7203f8dc");
    let request = gate.client().request("POST", &nowhere).text("application/json", body.as_bytes());
    let request = request.header("webhook-id", "m").header("webhook-timestamp", node.seconds().to_string());
    request.header("webhook-signature", "v1,AAAA").send().problem(401, "invalid_signature");
    assert_eq!(sum(&gate.metrics(), "toolgate_callbacks_total", &[("org", ""), ("outcome", "bad_signature")]), 1.0);
}

#[test]
fn a_run_whose_receipt_is_found_counts_once_by_how_it_ended() {
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", Duration::from_secs(5))]);
    provider.set_fault_plan(|point: &FaultPoint| match (point.what, point.nth) {
        (What::Call, _) => Fault::ResetAfter,
        (What::Receipt, 1) => Fault::PendingAfter,
        _ => Fault::None,
    });
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    let wish = json!({ "tool": "wish.grant", "args": { "wish": "one" } });
    let run = tenant.run_request(&wish).header("Prefer", "wait=0").send().expect(202).json();
    let operations = |state| sum(&gate.metrics(), "toolgate_operations", &[("org", "acme"), ("state", state)]);
    eventually("its outcome is uncertain", || (operations("uncertain") > 0.0).then_some(()));
    eventually("its receipt is found", || {
        gate.advance(Duration::from_secs(1));
        (tenant.agent_run(&run)["status"] == "completed").then_some(())
    });
    let text = gate.metrics();
    let runs = |status| sum(&text, "toolgate_runs_total", &[("org", "acme"), ("status", status)]);
    assert_eq!((runs("completed"), runs("uncertain")), (1.0, 0.0));
    eventually("nothing is uncertain any more", || (operations("uncertain") == 0.0).then_some(()));
}
