//! Dialect agent-provider: discovery with bearer and on condition, and reads.

use crate::support::agent_provider::{BEARER, found, read, scripted, scripted_registration};
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::provider::{Provider, Received, Reply};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TOKEN: &str = "provider-token-52c1";

fn manifest(contract_version: &str) -> Value {
    json!({
        "protocol_version": "1", "contract_version": contract_version, "capabilities": ["read"],
        "languages": ["en", "de"],
        "tools": [{
            "name": "order.get", "mutating": false, "produces_evidence": ["entity"], "timeout_ms": 3000,
            "parameters": {
                "type": "object", "properties": { "order": { "type": "string" } }, "additionalProperties": false,
            },
        }],
    })
}

fn tagged(manifest: &Value, etag: &str) -> Reply {
    let headers = vec![("ETag".to_owned(), etag.to_owned())];
    Reply::Http { status: 200, headers, body: manifest.to_string().into_bytes() }
}

fn not_modified() -> Reply {
    Reply::Http { status: 304, headers: Vec::new(), body: Vec::new() }
}

fn register(tenant: &Tenant, provider: &Provider, extra: &Value) -> Registered {
    let mut body = json!({
        "name": "shop", "dialect": "agent-provider", "base_url": format!("{}/some/page", provider.url()),
        "auth": { "bearer": TOKEN },
    });
    for (member, value) in extra.as_object().expect("an object") {
        body[member] = value.clone();
    }
    let body = tenant.post("/v1/endpoints", &body).expect(201).json();
    Registered { id: body["id"].as_str().expect("an id").to_owned(), body }
}

fn world() -> (Gate, Provider, Tenant, Registered) {
    let gate = Gate::start();
    let provider = Provider::median(&[]);
    provider.manifest(tagged(&manifest("2026-09-01"), "\"v1\""));
    let tenant = gate.tenant("acme");
    let endpoint = register(&tenant, &provider, &json!({})).assert_connected();
    (gate, provider, tenant, endpoint)
}

fn asked_with(provider: &Provider) -> Option<String> {
    provider.fetches().last().expect("a fetch").header("if-none-match").map(str::to_owned)
}

#[test]
fn an_endpoint_is_found_at_its_origin_with_its_bearer() {
    let (_gate, provider, tenant, endpoint) = world();
    assert_eq!(endpoint.body["base_url"], provider.url(), "the origin of the URL is used");
    assert_eq!(endpoint.body.get("callback"), None, "this dialect has no callbacks");
    let fetch = provider.fetches().remove(0);
    assert_eq!(fetch.path, "/.well-known/agent-provider");
    assert_eq!(fetch.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert!(!tenant.get(&format!("/v1/endpoints/{}", endpoint.id)).text().contains(TOKEN));
    let tool = tenant.manifest().remove(0);
    assert_eq!(tool["id"], "provider:order.get");
    assert_eq!((&tool["kind"], &tool["timeout_ms"]), (&json!("query"), &json!(3000)));
    assert_eq!(tool["produces_evidence"], json!(["entity"]));
    assert_eq!(tool.get("mutating"), None);
    let item = tenant.items("/v1/tools").remove(0);
    assert_eq!(item["risk"], "low", "a plain read counts as low");
    assert_eq!(item["produces_evidence"], json!(["entity"]));
    let changed = tenant
        .patch(&format!("/v1/endpoints/{}", endpoint.id), &json!({ "base_url": format!("{}/other", provider.url()) }));
    assert_eq!(changed.expect(200).json()["base_url"], provider.url());
}

#[test]
fn credentials_of_another_dialect_are_refused() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let answer = |dialect: &str, auth: &Value| {
        let body = json!({ "name": "x", "dialect": dialect, "base_url": "https://x.example", "auth": auth });
        tenant.post("/v1/endpoints", &body)
    };
    for auth in [
        json!({}),
        json!({ "bearer": "" }),
        json!({ "bearer": "Bearer x" }),
        json!({ "bearer": "a\nb" }),
        json!({ "value": "x" }),
        json!({ "bearer": "x", "value": "y" }),
        json!({ "bearer": "x", "signing_secret": "y" }),
    ] {
        answer("agent-provider", &auth).problem(400, "invalid_request");
    }
    answer("topology", &json!({ "value": "x", "bearer": "y" })).problem(400, "invalid_request");
    answer("median", &json!({ "signing_secret": "x", "bearer": "y" })).problem(400, "invalid_request");
    let inline = json!({
        "name": "x", "dialect": "agent-provider", "base_url": "https://x.example", "auth": { "bearer": "x" },
        "manifest": { "tools": [] },
    });
    tenant.post("/v1/endpoints", &inline).problem(400, "invalid_request");
}

#[test]
fn a_manifest_is_fetched_again_only_when_it_has_changed() {
    let (_gate, provider, tenant, endpoint) = world();
    assert_eq!(asked_with(&provider), None, "nothing is known at first");
    provider.manifest(not_modified());
    let unchanged = tenant.sync(&endpoint);
    assert_eq!((&unchanged["outcome"], unchanged["hash"].as_str().map(str::len)), (&json!("unchanged"), Some(64)));
    assert_eq!(asked_with(&provider).as_deref(), Some("\"v1\""));
    assert_eq!(tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id))[0]["http_status"], 304);
    // The same body under a new tag is unchanged too, and the new tag is the one asked with from then on.
    provider.manifest(tagged(&manifest("2026-09-01"), "W/\"v2\""));
    assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged");
    provider.manifest(not_modified());
    tenant.sync(&endpoint);
    assert_eq!(asked_with(&provider).as_deref(), Some("W/\"v2\""));
    // A failed fetch leaves the last good set and its tag.
    provider.manifest(tagged(&json!({}), "\"broken\""));
    assert_eq!(tenant.sync(&endpoint)["reason"]["code"], "unsupported_version");
    provider.manifest(not_modified());
    assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged");
    assert_eq!(asked_with(&provider).as_deref(), Some("W/\"v2\""));
    assert_eq!(tenant.show(&endpoint)["state"], "connected");
}

#[test]
fn a_new_contract_version_alone_is_a_new_set() {
    let (_gate, provider, tenant, endpoint) = world();
    provider.manifest(tagged(&manifest("2026-10-01"), "\"v2\""));
    let applied = tenant.sync(&endpoint);
    assert_eq!(applied["outcome"], "applied");
    assert_eq!(applied["diff"], json!({ "added": [], "removed": [], "changed": [] }));
    tenant.call("order.get", &json!({}));
    assert_eq!(provider.last_call().header("contract-version"), Some("2026-10-01"));
}

#[test]
fn what_was_read_under_other_settings_is_fetched_whole() {
    let (_gate, provider, tenant, endpoint) = world();
    let path = format!("/v1/endpoints/{}", endpoint.id);
    tenant.patch(&path, &json!({ "name_prefix": "Shop-" })).expect(200);
    assert_eq!(asked_with(&provider), None);
    assert_eq!(tenant.listed(), ["provider:Shop-order.get"]);
    // 304 to a request without a condition is no answer.
    provider.manifest(not_modified());
    tenant.patch(&path, &json!({ "name_prefix": "Other-" })).expect(200);
    assert_eq!(asked_with(&provider), None);
    assert_eq!(tenant.show(&endpoint)["reason"]["code"], "bad_status");
    assert_eq!(tenant.listed(), ["provider:Shop-order.get"]);
}

#[test]
fn what_was_left_out_is_looked_at_again() {
    let gate = Gate::start();
    let provider = Provider::median(&[]);
    let mut with_a_bad_one = manifest("2026-09-01");
    let bad = json!({ "name": "Bad" });
    with_a_bad_one["tools"].as_array_mut().expect("tools").push(bad);
    provider.manifest(tagged(&with_a_bad_one, "\"v1\""));
    let tenant = gate.tenant("acme");
    let endpoint = register(&tenant, &provider, &json!({ "sync": { "policy": "skip" } })).assert_connected();
    assert_eq!(endpoint.body["skipped"][0]["tool"], "Bad");
    assert_eq!(tenant.sync(&endpoint)["outcome"], "unchanged");
    assert_eq!(asked_with(&provider), None);
}

#[test]
fn a_read_is_answered_with_evidence_and_facts() {
    let (_gate, provider, tenant, _endpoint) = world();
    let evidence = r#"[ {"kind":"entity", "id":"e","type":"order","key":"ORD-1"} ]"#;
    provider.next(Reply::text(
        200,
        &format!(
            r#"{{"contract_version":"2026-09-01","status":"ok","evidence":{evidence},"text":"ORD-1, not ORD-2"}}"#
        ),
    ));
    let request = json!({ "tool": "provider:order.get", "args": { "order": "ORD-1" } });
    let answer = tenant.run_request(&request).header("X-Caller-Identity", "web:ann").send().expect(200);
    assert!(answer.text().contains(evidence), "{}", answer.text());
    let run = answer.json();
    assert_eq!((&run["status"], &run["verbatim"]), (&json!("completed"), &json!(true)));
    assert_eq!(run["result"]["facts"], json!(["Found: order ORD-1."]));
    assert_eq!(
        run["result"]["text"],
        json!({ "value": "ORD-1, not ORD-2", "verified": false, "unsupported": ["ORD-2"] })
    );
    let call = provider.last_call();
    assert_eq!((call.path.as_str(), call.header("contract-version")), ("/tools/order.get", Some("2026-09-01")));
    let trace = call.header("trace-id").expect("every call names its trace");
    assert!(trace.len() == 32 && trace.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{trace}");
    assert!(call.header("traceparent").is_some_and(|parent| parent.contains(trace)), "the same trace");
    assert_eq!((call.header("operation-id"), call.header("request-fingerprint")), (None, None));
    let sent = call.json();
    assert_eq!(sent["arguments"], json!({ "order": "ORD-1" }));
    assert_eq!(sent["context"]["workspace"], "acme");
    assert_eq!(
        sent["context"]["subject"],
        json!({ "id": "web:ann", "channel": "web", "assurance": "channel_asserted" })
    );

    provider.next(Reply::text(200, r#"{"contract_version":"2026-09-01","status":"ok","evidence":[]}"#));
    assert_eq!(tenant.run(&request).expect(200).json()["error"]["code"], "evidence_contract_violation");
    provider.next(Reply::Hangup);
    let failed = tenant.run(&request).expect(200).json();
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("provider_error")));
}

fn a_reader() -> (Gate, Provider, Tenant) {
    let gate = Gate::start();
    let provider = scripted(&[read("order.get")]);
    let tenant = gate.tenant("acme");
    tenant.post("/v1/endpoints", &scripted_registration(&provider)).expect(201);
    (gate, provider, tenant)
}

#[test]
fn a_read_is_made_again_where_the_provider_was_not_ready_and_is_never_an_operation() {
    let (_gate, provider, tenant) = a_reader();
    let read = |replies: Vec<Reply>| {
        let before = provider.calls().len();
        replies.into_iter().for_each(|reply| provider.next(reply));
        let run = tenant.call("order.get", &json!({ "order": "ORD-1" }));
        (run["status"].as_str().map(str::to_owned), provider.calls().len() - before, run)
    };
    let not_ready = |status| Reply::text(status, "{}");
    let (status, calls, run) = read(vec![not_ready(503), not_ready(502), found("ORD-1")]);
    assert_eq!((status.as_deref(), calls), (Some("completed"), 3), "{run}");
    let (status, calls, run) = read(vec![not_ready(503), not_ready(504), not_ready(503)]);
    assert_eq!((status.as_deref(), calls, &run["error"]["code"]), (Some("failed"), 3, &json!("provider_error")));
    // A request that got anywhere is not made again.
    for reply in [not_ready(500), not_ready(404), Reply::Hangup, Reply::text(200, "nonsense")] {
        let (status, calls, run) = read(vec![reply]);
        assert_eq!((status.as_deref(), calls), (Some("failed"), 1), "{run}");
    }
    for call in provider.calls() {
        for name in ["operation-id", "request-fingerprint"] {
            assert_eq!(call.header(name), None, "{call:?}");
        }
    }
    provider.go_down();
    let (status, calls, run) = read(vec![]);
    assert_eq!((status.as_deref(), calls), (Some("failed"), 0));
    assert_eq!((&run["started"], &run["error"]["code"]), (&json!(false), &json!("endpoint_unavailable")), "{run}");
    let recorded = eventually("it is recorded", || {
        let answer = tenant.get(&format!("/v1/runs/{}", run["correlation_id"].as_str().expect("an id")));
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(recorded["attempts"].as_array().map(Vec::len), Some(3), "{recorded}");
    assert!(tenant.items("/v1/operations").is_empty());
}

/// The call that a run with these headers and this context makes.
#[track_caller]
fn called(tenant: &Tenant, provider: &Provider, headers: &[(&str, &str)], context: &Value) -> Received {
    let body = json!({ "tool": "order.get", "args": { "order": "ORD-1" }, "context": context });
    provider.next(found("ORD-1"));
    let request = headers.iter().fold(tenant.run_request(&body), |request, (name, value)| request.header(name, value));
    assert_eq!(request.send().expect(200).json()["status"], "completed");
    provider.last_call()
}

#[test]
fn a_call_says_who_asks_where_and_when_and_nothing_else() {
    let (_gate, provider, tenant) = a_reader();
    let plain = called(&tenant, &provider, &[], &json!({}));
    let expected = concat!(
        r#"{"arguments":{"order":"ORD-1"},"context":{"workspace":"acme","conversation":null,"turn":null,"#,
        r#""subject":{"id":"anonymous","channel":"agent","assurance":"channel_asserted"},"#,
        r#""locale":"de","timezone":"UTC","now":"2026-01-12T13:46:40.000Z"}}"#,
    );
    assert_eq!(plain.text(), expected);
    assert_eq!(plain.header("authorization"), Some(&*format!("Bearer {BEARER}")));
    assert_eq!(plain.header("content-type"), Some("application/json"));
    let caller = ("X-Caller-Identity", "whatsapp:+201000000000");
    let full = json!({ "conversation": "c-1", "turn": 7, "locale": "en-GB", "timezone": "Africa/Cairo" });
    let call = called(&tenant, &provider, &[caller, ("Conversation-Id", "c-2"), ("Cookie", "a=b")], &full);
    let context = &call.json()["context"];
    let subject = json!({ "id": caller.1, "channel": "whatsapp", "assurance": "channel_asserted" });
    assert_eq!(context["subject"], subject);
    assert_eq!((&context["conversation"], &context["turn"]), (&json!("c-1"), &json!("7")));
    assert_eq!((&context["locale"], &context["timezone"]), (&json!("en-GB"), &json!("Africa/Cairo")));
    let call = called(&tenant, &provider, &[("Conversation-Id", "c-2")], &json!({}));
    assert_eq!(call.json()["context"]["conversation"], "c-2");
    for (caller, channel) in [("ann", "agent"), (":ann", "agent"), ("web:", "web"), ("a:b:c", "a")] {
        let call = called(&tenant, &provider, &[("X-Caller-Identity", caller)], &json!({}));
        let subject = &call.json()["context"]["subject"];
        assert_eq!((&subject["id"], &subject["channel"]), (&json!(caller), &json!(channel)));
    }
    let names = |call: &Received| call.headers.iter().map(|(name, _)| name.to_lowercase()).collect::<BTreeSet<_>>();
    let of_read = [
        "accept",
        "accept-encoding",
        "authorization",
        "content-length",
        "content-type",
        "contract-version",
        "host",
        "trace-id",
        "traceparent",
        "user-agent",
    ];
    for call in provider.calls() {
        assert!(names(&call).iter().all(|name| of_read.contains(&name.as_str())), "{:?}", call.headers);
    }
}
