//! Agent-providers, good and broken.

use super::*;
use crate::demo::agent_provider::{AgentProvider, AgentProviderOptions, Fault, What};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use uuid::Uuid;

fn provider() -> AgentProvider {
    AgentProvider::start(AgentProviderOptions::default()).expect("a port of loopback is free")
}

fn read(url: &str) -> CheckOptions {
    let auth = EndpointAuth::Bearer(Secret::new(AgentProviderOptions::default().bearer));
    CheckOptions { call: sample("order.get", r#"{"order":"ORD-1043"}"#), ..options(Dialect::AgentProvider, url, auth) }
}

fn refund(url: &str) -> CheckOptions {
    let call = sample("refund.issue", r#"{"order":"ORD-1043","amount":"1.00"}"#);
    CheckOptions { call, allow_mutations: true, ..read(url) }
}

#[test]
fn the_demos_provider_passes() {
    in_a_system(async {
        let provider = provider();
        let lines = lines_of(&read(provider.url())).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        let once = |rule: &&str| rule.starts_with("operation") || rule.starts_with("receipt");
        assert!(rules(&lines, Mark::Skip).iter().all(once), "{lines:#?}");
        // The origin is what counts.
        let lines = lines_of(&refund(&format!("{}/anything", provider.url()))).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(provider.effects_total(), 1, "a check of one mutation has one effect");
        assert!(lines.iter().all(|line| line.section.starts_with('§')));
    });
}

#[test]
fn a_mutation_is_not_made_unasked() {
    in_a_system(async {
        let provider = provider();
        let lines = lines_of(&CheckOptions { allow_mutations: false, ..refund(provider.url()) }).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new());
        assert!(rules(&lines, Mark::Skip).contains(&"call: status"));
        assert!(!provider.requests().iter().any(|request| request.path == "/tools/refund.issue"), "nothing was sent");
    });
}

#[test]
fn an_action_that_is_decided_later_or_not_at_all_is_no_breach() {
    in_a_system(async {
        let provider = provider();
        let is_first = |point: &crate::demo::agent_provider::FaultPoint| point.what == What::Call && point.nth == 1;
        provider.set_fault_plan(move |point| if is_first(point) { Fault::PendingAfter } else { Fault::None });
        let lines = lines_of(&refund(provider.url())).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        provider.clear_fault_plan();
        // A shipped order is not cancelled: the action is rejected, which is an answer.
        let call = sample("order.cancel", r#"{"order":"ORD-1042"}"#);
        let lines = lines_of(&CheckOptions { call, ..refund(provider.url()) }).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
    });
}

#[test]
fn every_fault_of_a_manifest_stands_at_its_rule() {
    let parameters = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let tool = |name: &str, change: Value| {
        let mut tool = json!({
            "name": name, "mutating": false, "produces_evidence": ["entity"], "timeout_ms": 10, "parameters": parameters,
        });
        let (members, changes) = (tool.as_object_mut().expect("members"), change.as_object().expect("members").clone());
        members.extend(changes);
        tool
    };
    let manifest = |change: Value, tools: Vec<Value>| {
        let mut manifest = json!({
            "protocol_version": "1", "contract_version": "2026-09-01", "capabilities": ["read"], "languages": ["en"],
            "tools": tools,
        });
        let members = manifest.as_object_mut().expect("members");
        members.extend(change.as_object().expect("members").clone());
        manifest.to_string()
    };
    let good = || tool("a.good", json!({}));
    let none = || json!({});
    let many = (0..65).map(|n| tool(&format!("t{n}"), json!({}))).collect();
    let open = json!({ "parameters": { "type": "object" } });
    let cases = [
        ("[".to_owned(), vec!["manifest: JSON"]),
        (manifest(json!({ "protocol_version": 1 }), vec![good()]), vec!["manifest: version"]),
        (manifest(json!({ "contract_version": "2026-02-30" }), vec![good()]), vec!["manifest: form"]),
        (manifest(json!({ "languages": [] }), vec![good()]), vec!["manifest: form"]),
        (manifest(none(), many), vec!["manifest: number of tools"]),
        (manifest(none(), vec![good(), tool("b", json!({ "timeout_ms": 0 }))]), vec!["tools: members"]),
        (manifest(none(), vec![tool("b", json!({ "mutating": true, "action": "x" }))]), vec!["tools: members"]),
        (manifest(none(), vec![tool("B", none()), good()]), vec!["tools: names"]),
        (manifest(none(), vec![good(), good()]), vec!["tools: one name each"]),
        (manifest(none(), vec![tool("toolgate_a", none())]), vec!["tools: reserved names"]),
        (manifest(none(), vec![tool("b", open)]), vec!["tools: schemas"]),
        (manifest(json!({ "languages": 1 }), vec![tool("B", none())]), vec!["manifest: form", "tools: names"]),
    ];
    in_a_system(async {
        let provider = provider();
        for (body, expected) in cases {
            provider.set_manifest(Some(body.clone()));
            let lines = lines_of(&CheckOptions { call: None, ..read(provider.url()) }).await;
            let failed = rules(&lines, Mark::Fail);
            assert_eq!(failed, expected, "{body}: {lines:#?}");
        }
    });
}

fn set_header(request: &mut RecordedRequest, name: &str, value: &str) {
    request.headers.retain(|(known, _)| known != name);
    request.headers.push((name.to_owned(), value.to_owned()));
}

/// A provider that takes any token at these paths.
fn lets_all_in(path: &'static str) -> Twist {
    let bearer = format!("Bearer {}", AgentProviderOptions::default().bearer);
    Twist::request(move |request| {
        if request.path.starts_with(path) {
            set_header(request, "authorization", &bearer);
        }
    })
}

#[test]
fn every_breach_outside_of_a_mutation_stands_at_its_rule() {
    let ignores_tags = Twist::request(|request| request.headers.retain(|(name, _)| name != "if-none-match"));
    let knows_all_tools = Twist::answer(|request, status, _| {
        if request.path.ends_with("no_such_tool") && *status == 404 {
            *status = 200;
        }
    });
    let knows_all_receipts = Twist::answer(|request, status, _| {
        if request.path.starts_with("/receipts/") && *status == 404 {
            *status = 500;
        }
    });
    let takes_all_versions = Twist::request(|request| set_header(request, "contract-version", "2026-09-01"));
    let changes = |change: fn(&mut Value)| {
        Twist::answer(move |request, status, text| {
            if request.path == "/tools/order.get" && *status == 200 {
                let mut body = serde_json::from_str(text).expect("JSON");
                change(&mut body);
                *text = body.to_string();
            }
        })
    };
    let breaks = Twist::answer(|request, status, _| {
        if request.path == "/tools/order.get" && *status == 200 {
            *status = 500;
        }
    });
    let cases = vec![
        (
            lets_all_in("/.well-known"),
            vec!["credentials: manifest without them", "credentials: manifest with wrong ones"],
        ),
        (lets_all_in("/tools/"), vec!["credentials: call with wrong ones"]),
        (lets_all_in("/receipts/"), vec!["credentials: receipt with wrong ones"]),
        (ignores_tags, vec!["manifest: unchanged"]),
        (knows_all_tools, vec!["call: unknown tool"]),
        (knows_all_receipts, vec!["receipt: of an operation that never came"]),
        (takes_all_versions, vec!["call: unknown contract version"]),
        (breaks, vec!["call: status"]),
        (changes(|body| body["status"] = json!("done")), vec!["call: form"]),
        (changes(|body| body["evidence"] = json!([])), vec!["call: evidence"]),
        (changes(|body| body["evidence"][1]["of"] = json!("nothing")), vec!["call: evidence"]),
        (changes(|body| body["evidence"][1]["id"] = body["evidence"][0]["id"].clone()), vec!["call: evidence"]),
    ];
    in_a_system(async {
        let provider = provider();
        for (twist, expected) in cases {
            let broken = twisted(provider.url(), twist);
            let lines = lines_of(&read(broken.url())).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{lines:#?}");
        }
    });
}

/// Changes the receipts of operations that are known.
fn receipts(change: fn(&mut u16, &mut Value)) -> Twist {
    Twist::answer(move |request, status, text| {
        if request.path.starts_with("/receipts/") && *status == 200 {
            let mut body = serde_json::from_str(text).expect("JSON");
            change(status, &mut body);
            *text = body.to_string();
        }
    })
}

#[test]
fn every_breach_of_a_mutation_stands_at_its_rule() {
    let calls = AtomicU32::new(0);
    // The second request of the operation is done as if it were another one.
    let forgets = Twist::request(move |request| {
        let is_sample =
            request.path == "/tools/refund.issue" && request.header("contract-version") == Some("2026-09-01");
        if is_sample && calls.fetch_add(1, Ordering::SeqCst) == 1 {
            set_header(request, "operation-id", &Uuid::now_v7().to_string());
        }
    });
    let settles = |path: &'static str| {
        Twist::answer(move |request, status, _| {
            if request.path.starts_with(path) && *status == 409 {
                *status = 200;
            }
        })
    };
    let other_action = Twist::answer(|request, status, text| {
        if request.path == "/tools/refund.issue" && *status == 200 {
            *text = text.replace(r#""action":"refund_issued""#, r#""action":"something""#);
        }
    });
    let cases = vec![
        (forgets, vec!["operation: repeated"]),
        (settles("/tools/"), vec!["operation: with another content"]),
        (settles("/receipts/"), vec!["receipt: under another fingerprint"]),
        (other_action, vec!["call: evidence", "receipt: response"]),
        (receipts(|status, _| *status = 404), vec!["receipt: of the operation"]),
        (receipts(|_, body| body["tool"] = json!("order.get")), vec!["receipt: of the operation"]),
        (receipts(|_, body| body["state"] = json!("done")), vec!["receipt: of the operation"]),
        (receipts(|_, body| body["response"]["status"] = json!("rejected")), vec!["receipt: response"]),
        (receipts(|_, body| body["expires_at"] = body["recorded_at"].clone()), vec!["receipt: expiry"]),
        (receipts(|_, body| body["expires_at"] = json!("tomorrow")), vec!["receipt: expiry"]),
    ];
    in_a_system(async {
        let provider = provider();
        for (twist, expected) in cases {
            let broken = twisted(provider.url(), twist);
            let lines = lines_of(&refund(broken.url())).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{lines:#?}");
        }
    });
}

#[test]
fn an_answer_that_gets_lost_is_told() {
    in_a_system(async {
        let provider = provider();
        for fault in [Fault::ResetAfter, Fault::PartialAfter, Fault::GarbageAfter, Fault::StatusAfter(503)] {
            let is_sample = |what: What, id: &Option<String>| what == What::Call && id.is_some();
            provider.set_fault_plan(move |point| {
                if is_sample(point.what, &point.operation_id) && point.nth == 1 { fault } else { Fault::None }
            });
            let failed = rules(&lines_of(&refund(provider.url())).await, Mark::Fail);
            let expected = if fault == Fault::GarbageAfter { "call: form" } else { "call: status" };
            assert!(failed.contains(&expected), "{fault:?}: {failed:?}");
        }
    });
}
