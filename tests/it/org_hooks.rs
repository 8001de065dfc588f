//! Reviewer, result webhook and confirmation fallback of an organization, and the messages that wait for its webhook.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::provider::Provider;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};

const URL: &str = "https://hooks.example.com/toolgate?team=a";

fn own(tenant: &Tenant) -> Value {
    tenant.get("/v1/org").expect(200).json()
}

#[test]
fn a_hook_shows_its_secret_once() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let fresh = own(&tenant);
    assert_eq!((&fresh["reviewer"], &fresh["webhook"]), (&Value::Null, &Value::Null));
    let mut secrets = Vec::new();
    for member in ["reviewer", "webhook"] {
        for _ in 0..2 {
            let set = tenant.patch("/v1/org", &json!({ member: { "url": URL } })).expect(200);
            assert_eq!(set.header("cache-control"), Some("no-store"), "a secret is not kept under a tag");
            let set = set.json();
            assert_eq!(set[member]["url"], URL);
            let secret = set[member]["secret"].as_str().expect("a secret").to_owned();
            assert!(secret.starts_with("whsec_") && secret.len() == 38, "{secret}");
            secrets.push(secret);
            assert_eq!(own(&tenant)[member], json!({ "url": URL }));
        }
    }
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 4, "each time it is set there is another");
    let touched = tenant.patch("/v1/org", &json!({ "limits": { "tool_per_second": 5 } })).expect(200);
    assert!(touched.header("etag").is_some());
    assert_eq!(touched.json()["webhook"], json!({ "url": URL }), "what is not set shows none");

    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    assert_eq!(own(&tenant)["reviewer"], json!({ "url": URL }));
    let cleared = tenant.patch("/v1/org", &json!({ "reviewer": null })).expect(200).json();
    assert_eq!((&cleared["reviewer"], &cleared["webhook"]), (&Value::Null, &json!({ "url": URL })));
    let audit = tenant.get("/v1/audit").expect(200);
    assert!(audit.text().contains("hooks.example.com"), "that it was set is told");
    assert!(!audit.text().contains("whsec_"), "its secret is not");
    assert_eq!(own(&gate.tenant("globex"))["webhook"], Value::Null);
}

#[test]
fn a_hook_is_an_absolute_url_without_credentials() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let long = format!("https://h.example/{}", "a".repeat(2048));
    for bad in [
        "",
        "hooks.example.com",
        "/relative",
        "ftp://h.example/x",
        "javascript:alert(1)",
        "https://",
        "https://user:secret@h.example/",
        "https://h.example/#part",
        "https://h.example/a b",
        " https://h.example/",
        "https:\\\\h.example",
        long.as_str(),
    ] {
        for member in ["reviewer", "webhook"] {
            let refused = tenant.patch("/v1/org", &json!({ member: { "url": bad } }));
            let problem = refused.problem(400, "invalid_request");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(member)), "{bad}: {problem}");
        }
    }
    for shape in [json!("https://h.example"), json!({}), json!({ "url": 5 }), json!({ "url": URL, "secret": "mine" })] {
        tenant.patch("/v1/org", &json!({ "webhook": shape })).problem(400, "invalid_request");
    }
    assert_eq!(own(&tenant)["webhook"], Value::Null);
    for good in ["http://127.0.0.1:9", "https://h.example", "https://h.example/x/?a=b"] {
        assert_eq!(tenant.patch("/v1/org", &json!({ "webhook": { "url": good } })).json()["webhook"]["url"], good);
    }
}

#[test]
fn the_fallback_is_one_of_two_words() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    assert_eq!(own(&tenant)["confirmation_fallback"], "refuse");
    let set = |word: &Value| tenant.patch("/v1/org", &json!({ "confirmation_fallback": word }));
    assert_eq!(set(&json!("approval")).expect(200).json()["confirmation_fallback"], "approval");
    for bad in [json!("ask"), json!(""), Value::Null, json!(true)] {
        set(&bad).problem(400, "invalid_request");
    }
    assert_eq!(own(&tenant)["confirmation_fallback"], "approval");
    set(&json!("refuse")).expect(200);
    assert_eq!(own(&tenant)["confirmation_fallback"], "refuse");
}

#[test]
fn what_waits_for_the_webhook_is_listed() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("go", "command")]);
    tenant.endpoint("tools", &provider);
    tenant.call("go", &json!({}));
    assert!(tenant.items("/v1/deliveries").is_empty(), "nobody wants to be told");
    tenant.patch("/v1/org", &json!({ "webhook": { "url": "http://127.0.0.1:9/hook" } })).expect(200);
    let run = tenant.call("go", &json!({ "password": "hunter2" }));
    let listed = eventually("the end of the run is announced", || tenant.items("/v1/deliveries").pop());
    assert_eq!(listed["event"], "run.finished");
    assert!(matches!(listed["state"].as_str(), Some("pending")), "{listed}");
    assert_eq!(listed["data"]["type"], "run.finished");
    assert_eq!(listed["data"]["data"]["correlation_id"], run["correlation_id"]);
    assert_eq!(listed["data"]["data"]["status"], "started");
    assert!(!listed.to_string().contains("hunter2"), "arguments are not told");
    for member in ["attempts", "created_at", "updated_at"] {
        assert!(!listed[member].is_null(), "{member}: {listed}");
    }
    let path = format!("/v1/deliveries/{}", listed["id"].as_str().expect("an id"));
    let shown = tenant.get(&path).expect(200);
    assert!(shown.header("etag").is_some());
    assert_eq!(shown.json()["data"], listed["data"]);
    assert_eq!(tenant.items("/v1/deliveries?state=pending").len(), 1);
    assert!(tenant.items("/v1/deliveries?state=given_up").is_empty());
    tenant.get("/v1/deliveries?state=open").problem(400, "invalid_request");
    gate.tenant("globex").get(&path).problem(404, "not_found");
}
