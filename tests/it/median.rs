//! Dialect median: signed requests, errors inside 200, and what risk means.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{median, median_manifest, median_with};
use crate::support::provider::{Provider, Received, Reply, SIGNING_SECRET};
use crate::support::tenant::Tenant;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use std::io::Write as _;
use std::time::Duration;
use toolgate::engine::ports::Clock as _;

fn world(tools: &[Value]) -> (Gate, Provider, Tenant) {
    let gate = Gate::start();
    let provider = Provider::median(tools);
    let tenant = gate.tenant("acme");
    tenant.endpoint("shop", &provider);
    (gate, provider, tenant)
}

/// Checks `median-signature` over exactly the bytes that came, and answers its time.
#[track_caller]
fn signed_at(received: &Received, secret: &[u8]) -> i64 {
    let header = received.header("median-signature").expect("every request is signed");
    let (time, signature) = header.split_once(',').expect("two parts");
    let time = time.strip_prefix("t=").expect("a time");
    let signature = signature.strip_prefix("v1=").expect("a signature");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length");
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(&received.body);
    assert_eq!(signature, hex::encode(mac.finalize().into_bytes()));
    time.parse().expect("milliseconds")
}

// adcp-client#313: exactly the bytes that are sent are signed.
#[test]
fn every_request_is_signed_over_its_bytes() {
    let order = median_with("orderStatus", "low", &json!({ "n": { "type": "number" }, "name": { "type": "string" } }));
    let (gate, provider, tenant) = world(&[order]);
    gate.advance(Duration::from_millis(1234));
    let body = r#"{"tool":"orderStatus","args":{"name":"ü\u00df\/","n":1.0}}"#;
    let run = tenant.agent_request("POST", "/mcp/run").text("application/json", body);
    let run = run.header("X-Caller-Identity", "web:ann").header("Conversation-Id", "c-1").send().expect(200).json();
    let call = provider.last_call();
    assert_eq!(signed_at(&call, SIGNING_SECRET.as_bytes()), gate.clock().now().as_millis());
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/"));
    assert!(call.text().starts_with(r#"{"op":"call","version":1,"tool":"orderStatus","input":"#), "{}", call.text());
    let sent = call.json();
    assert_eq!(sent["callId"], run["correlation_id"]);
    assert_eq!(
        sent["context"],
        json!({ "conversationId": "c-1", "customer": { "id": "web:ann" }, "approval": { "kind": "none" } })
    );
    assert_eq!(sent["input"], json!({ "name": "üß/", "n": 1.0 }));
    let mut members: Vec<&String> = sent.as_object().expect("an object").keys().collect();
    members.sort();
    assert_eq!(members, ["callId", "context", "input", "op", "tool", "version"]);
    let fetch = provider.fetches().remove(0);
    assert_eq!(fetch.path, "/");
    signed_at(&fetch, SIGNING_SECRET.as_bytes());
    assert!(fetch.body.is_empty());
}

#[test]
fn a_median_key_is_turned_into_the_secret() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    let auth = json!({ "auth": { "median_key": "mk_test_0123456789abcdef0123456789abcdef" } });
    let endpoint = tenant.register("shop", &provider, &auth).assert_connected();
    tenant.call("find", &json!({}));
    let secret = hex::decode("75607401468a87f07d8cb97a47179b14614404f694693af04ca229fa61248564").expect("hex");
    signed_at(&provider.fetches()[0], &secret);
    signed_at(&provider.last_call(), &secret);
    assert!(!tenant.get(&format!("/v1/endpoints/{}", endpoint.id)).text().contains("mk_test"));
    assert_eq!(endpoint.body.get("callback"), None, "this dialect has no callbacks");
}

/// Also of a call whose record is only written once it has ended.
#[test]
fn a_client_that_hangs_up_cancels_nothing() {
    let (gate, provider, tenant) = world(&[median("find", "low")]);
    let mut stream = crate::support::raw::connect(gate.url());
    let body = r#"{"tool":"find"}"#;
    provider.next(Reply::Late(Duration::from_millis(300), Box::new(Reply::text(200, r#"{"result":"found"}"#))));
    let request = format!(
        "POST /mcp/run HTTP/1.1\r\nHost: g\r\nX-Auth: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        tenant.agent,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it can be sent");
    eventually("the provider is called", || provider.calls().pop());
    drop(stream);
    let run = eventually("the run is recorded", || tenant.items("/v1/runs").pop());
    assert_eq!((&run["tool"], &run["status"]), (&json!("median:find"), &json!("completed")), "{run}");
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn a_run_is_answered_in_the_same_exchange() {
    let (_gate, provider, tenant) = world(&[median("find", "low"), median("refund", "medium")]);
    for (index, result) in
        ["{\"n\":725653563933458432123,\"x\":1.50}", "null", "[]", "\"text\"", "false"].iter().enumerate()
    {
        let tool = ["find", "refund"][index % 2];
        provider.next(Reply::text(200, &format!("{{\"result\":{result}}}")));
        let answer = tenant.run(&json!({ "tool": tool })).expect(200);
        let run = answer.json();
        assert_eq!(
            (&run["status"], &run["started"], &run["kind"]),
            (&json!("completed"), &json!(true), &json!("query"))
        );
        assert!(answer.text().contains(&format!("\"result\":{result}")), "{}", answer.text());
        assert_eq!(run["verbatim"], true);
        assert_eq!(run["tool"], format!("median:{tool}"));
        assert_eq!(run.get("topology"), None);
        eventually("the run is recorded", || {
            let id = run["correlation_id"].as_str().expect("an id");
            let seen = tenant.agent_request("GET", &format!("/mcp/runs/{id}")).send();
            (seen.status == 200 && seen.text().contains(&format!("\"result\":{result}"))).then_some(())
        });
    }
}

#[test]
fn the_body_decides_and_never_the_status_alone() {
    let (_gate, provider, tenant) = world(&[median("find", "low")]);
    let run = |status: u16, body: &str| {
        provider.next(Reply::text(status, body));
        tenant.run(&json!({ "tool": "find" })).expect(200).json()
    };
    for status in [200, 400, 500] {
        let told = run(status, r#"{"error":{"code":"execution_failed","message":"No order ORD-1"}}"#);
        assert_eq!(told["status"], "failed");
        assert_eq!(
            told["error"],
            json!({ "code": "execution_failed", "message": "No order ORD-1" }),
            "the agent reads it"
        );
        let hidden = run(status, r#"{"error":{"code":"not_configured","message":"stack trace at db.internal"}}"#);
        assert_eq!((&hidden["status"], &hidden["error"]["code"]), (&json!("failed"), &json!("provider_error")));
        assert!(!hidden.to_string().contains("db.internal"), "{hidden}");
        assert_eq!(run(status, r#"{"result":{"fine":1}}"#)["status"], "completed", "HTTP {status}");
    }
    for (status, body, code) in [
        (200, "{}", "provider_protocol_error"),
        (200, "[]", "provider_protocol_error"),
        (200, "<html>", "provider_protocol_error"),
        (200, r#"{"result":1,"error":{"code":"x","message":"y"}}"#, "provider_protocol_error"),
        (200, r#"{"error":"broken"}"#, "provider_protocol_error"),
        (500, "oops", "provider_error"),
        (503, "", "provider_error"),
        (401, "who", "provider_auth_failed"),
    ] {
        let failed = run(status, body);
        assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!(code)), "{status} {body}");
    }
}

#[test]
fn the_code_of_a_failure_is_there_for_the_tenant() {
    let (_gate, provider, tenant) = world(&[median("find", "low")]);
    provider.next(Reply::text(200, r#"{"error":{"code":"rate_capped","message":"internal"}}"#));
    let run = tenant.run(&json!({ "tool": "find" })).expect(200).json();
    let shown = eventually("the run is recorded", || {
        tenant.items("/v1/runs").into_iter().find(|item| item["correlation_id"] == run["correlation_id"])
    });
    assert!(shown.to_string().contains("rate_capped"), "{shown}");
}

#[test]
fn what_is_not_known_of_a_call_depends_on_its_risk() {
    let (_gate, provider, tenant) = world(&[median("find", "low"), median("refund", "medium")]);
    for reply in [Reply::Hangup, Reply::text(500, "oops"), Reply::text(200, "{")] {
        provider.next(reply.clone());
        assert_eq!(tenant.call("find", &json!({}))["status"], "failed");
        provider.next(reply);
        let run = tenant.call("refund", &json!({}));
        assert_eq!((&run["status"], &run["started"]), (&json!("uncertain"), &json!(true)), "{run}");
    }
    assert_eq!(provider.calls().len(), 6, "none was sent twice");
    provider.go_down();
    for tool in ["find", "refund"] {
        let run = tenant.call(tool, &json!({}));
        assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)));
        assert_eq!(run["error"]["code"], "endpoint_unavailable");
    }
}

#[test]
fn a_slow_call_can_be_asked_for_later() {
    let (_gate, provider, tenant) = world(&[median("find", "low")]);
    provider.next(Reply::Late(Duration::from_millis(600), Box::new(Reply::text(200, r#"{"result":"slow"}"#))));
    let run = tenant.run_request(&json!({ "tool": "find" })).header("Prefer", "wait=0").send().expect(202).json();
    assert_eq!(run["status"], "pending");
    let id = run["correlation_id"].as_str().expect("an id");
    let done = tenant.agent_request("GET", &format!("/mcp/runs/{id}")).header("Prefer", "wait=20").send().expect(200);
    assert_eq!((&done.json()["status"], &done.json()["result"]), (&json!("completed"), &json!("slow")));
}

#[test]
fn high_risk_waits_for_a_person_and_is_denied_by_time() {
    let (gate, provider, tenant) = world(&[median("erase", "high")]);
    let run = tenant.call_held("erase", &json!({}));
    assert_eq!((&run["status"], &run["started"]), (&json!("awaiting_approval"), &json!(false)));
    assert_eq!(tenant.agent_run(&run)["status"], "awaiting_approval");
    gate.advance(Duration::from_secs(14 * 60 + 58));
    assert_eq!(tenant.agent_run(&run)["status"], "awaiting_approval");
    gate.advance(Duration::from_secs(4));
    let denied =
        eventually("the approval expires", || Some(tenant.agent_run(&run)).filter(|run| run["status"] == "denied"));
    assert_eq!((&denied["reason"], &denied["started"]), (&json!("approval_expired"), &json!(false)));
    assert!(provider.calls().is_empty(), "nothing was sent");
}

#[test]
fn reviewed_asks_the_user_first_and_is_then_held() {
    let (_gate, provider, tenant) = world(&[median("closeAccount", "reviewed")]);
    let listed = tenant.manifest().remove(0);
    assert_eq!(listed["risk"], "reviewed");
    let asked = tenant.run(&json!({ "tool": "closeAccount" })).expect(200).json();
    assert_eq!((&asked["status"], &asked["started"]), (&json!("confirmation_required"), &json!(false)));
    let token = asked["confirmation"]["token"].clone();
    let confirmed = json!({ "tool": "closeAccount", "confirmation": token });
    let run = || tenant.run_request(&confirmed).header("Prefer", "wait=0").send().expect(202).json();
    let held = run();
    assert_eq!((&held["status"], &held["started"]), (&json!("awaiting_approval"), &json!(false)));
    let again = run();
    assert_eq!(again["correlation_id"], held["correlation_id"], "one token, one run");
    assert!(provider.calls().is_empty(), "nothing was sent");
}

// openai-agents-js#1335: nobody is asked about a call that validation would refuse.
#[test]
fn arguments_are_checked_before_anyone_is_asked() {
    let tool = |name, risk| median_with(name, risk, &json!({ "n": { "type": "integer" } }));
    let (_gate, provider, tenant) = world(&[tool("erase", "high"), tool("closeAccount", "reviewed")]);
    for name in ["erase", "closeAccount"] {
        tenant.run(&json!({ "tool": name, "args": { "n": "many" } })).problem(422, "invalid_arguments");
        tenant.run(&json!({ "tool": name, "args": { "m": 1 } })).problem(422, "invalid_arguments");
    }
    assert!(provider.calls().is_empty());
    assert!(tenant.items("/v1/runs").is_empty());
}

#[test]
fn a_tenant_can_raise_a_risk_and_never_lower_it() {
    let (_gate, provider, tenant) = world(&[median("find", "low"), median("erase", "high")]);
    tenant.patch("/v1/tools/erase", &json!({ "risk": "low" })).problem(400, "invalid_request");
    tenant.patch("/v1/tools/find", &json!({ "risk": "high" })).expect(200);
    assert_eq!(tenant.call_held("find", &json!({}))["status"], "awaiting_approval");
    let listed = tenant.manifest();
    assert!(listed.iter().all(|tool| tool["risk"] == "high"), "{listed:?}");
    assert!(provider.calls().is_empty());
}

#[test]
fn diagnostics_are_shown_when_the_manifest_offers_them() {
    let gate = Gate::start();
    let provider = Provider::median(&[]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("shop", &provider);
    let path = format!("/v1/endpoints/{}/diagnostics", endpoint.id);
    tenant.get(&path).problem(404, "not_found");
    assert!(provider.calls().is_empty());
    let mut manifest = median_manifest(&[median("find", "low")]);
    manifest["diagnostics"] = json!(true);
    provider.manifest(Reply::json(200, &manifest));
    tenant.sync(&endpoint);
    provider.next(Reply::text(200, r#"{"diagnostics":{"queue":12345678901234567890123,"ok":true}}"#));
    let shown = tenant.get(&path).expect(200);
    assert!(shown.text().contains("12345678901234567890123"), "{}", shown.text());
    let asked = provider.last_call();
    assert_eq!(asked.text(), r#"{"op":"diagnostics","version":1}"#);
    signed_at(&asked, SIGNING_SECRET.as_bytes());
    provider.next(Reply::text(200, "{}"));
    tenant.get(&path).problem(502, "provider_protocol_error");
    provider.next(Reply::Hangup);
    tenant.get(&path).problem(502, "provider_error");
    provider.next(Reply::Raw(b"HTTP/1.1 what?\r\n\r\n".to_vec()));
    tenant.get(&path).problem(502, "provider_protocol_error");
    provider.go_down();
    tenant.get(&path).problem(503, "endpoint_unavailable");
}
