//! Topology providers, good and broken.

use super::*;
use crate::demo::topology_provider::{ManifestMode, TopologyOptions, TopologyProvider};
use crate::engine::dispatch::signing::mint_webhook_secret;
use serde_json::{Value, json};

fn provider() -> TopologyProvider {
    let options = TopologyOptions { callback_delay: Duration::from_millis(20), ..TopologyOptions::default() };
    TopologyProvider::start(options).expect("a port of loopback is free")
}

fn topology(url: &str) -> CheckOptions {
    let value = Secret::new(TopologyOptions::default().auth_value);
    options(Dialect::Topology, url, EndpointAuth::Header { name: "X-Auth".to_owned(), value })
}

/// A query whose late answer is waited for.
fn query(url: &str, secret: &Secret) -> CheckOptions {
    let callback = CallbackOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        public_url: None,
        secret: Some(secret.clone()),
        wait: Duration::from_secs(5),
    };
    let call = sample("sales-report", r#"{"days":7}"#);
    CheckOptions { call, callback: Some(callback), ..topology(url) }
}

fn command(url: &str) -> CheckOptions {
    let call = sample("send-newsletter", r#"{"audience":"everyone"}"#);
    CheckOptions { call, allow_mutations: true, ..topology(url) }
}

#[test]
fn the_demos_provider_passes() {
    in_a_system(async {
        let provider = provider();
        let secret = mint_webhook_secret([7; 24]);
        provider.set_callback_secret(secret.clone());
        let lines = lines_of(&query(provider.url(), &secret)).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), Vec::<&str>::new(), "{lines:#?}");

        let lines = lines_of(&command(provider.url())).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert!(
            rules(&lines, Mark::Skip).iter().all(|rule| rule.starts_with("callback") || *rule == "run: correlation id")
        );
        assert!(lines.iter().all(|line| line.section.starts_with('§')));
    });
}

#[test]
fn a_command_is_not_run_unasked() {
    in_a_system(async {
        let provider = provider();
        let lines = lines_of(&CheckOptions { allow_mutations: false, ..command(provider.url()) }).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new());
        assert!(rules(&lines, Mark::Skip).contains(&"run: status"));
        let ran = provider.requests().iter().any(|request| request.json()["tool"] == "topology:send-newsletter");
        assert!(!ran, "nothing was sent");
    });
}

#[test]
fn every_fault_of_a_manifest_stands_at_its_rule() {
    let tool = |id: &str, change: Value| {
        let mut tool = json!({ "id": id, "title": "t", "description": "d", "kind": "query", "input_schema": {} });
        let (members, changes) = (tool.as_object_mut().expect("members"), change.as_object().expect("members").clone());
        members.extend(changes);
        tool
    };
    let good = || tool("topology:good", json!({}));
    let cases = [
        (200, "[".to_owned(), vec!["manifest: JSON"]),
        (200, "{}".to_owned(), vec!["manifest: form"]),
        (500, "[]".to_owned(), vec!["manifest: status"]),
        (200, format!("[{}]", " ".repeat(512_000)), vec!["manifest: size"]),
        (200, json!([good(), tool("topology:b", json!({ "title": 1 }))]).to_string(), vec!["tools: members"]),
        (200, json!([tool("topology:Bad", json!({})), good()]).to_string(), vec!["tools: names"]),
        (200, json!([good(), good()]).to_string(), vec!["tools: one name each"]),
        (200, json!([tool("topology:a", json!({ "risk": "huge" }))]).to_string(), vec!["tools: risk"]),
        (
            200,
            json!([tool("topology:a", json!({ "input_schema": { "type": "int" } })), tool("topology:B", json!({}))])
                .to_string(),
            vec!["tools: names", "tools: schemas"],
        ),
    ];
    in_a_system(async {
        let provider = provider();
        for (status, body, expected) in cases {
            provider.set_manifest(ManifestMode::Exactly { status, body: body.clone() });
            let lines = lines_of(&topology(provider.url())).await;
            let body: String = body.chars().take(200).collect();
            assert_eq!(rules(&lines, Mark::Fail), expected, "{body}: {lines:#?}");
        }
        let others = json!([good(), tool("other:x", json!({})), tool("topology:page", json!({ "kind": "page" }))]);
        provider.set_manifest(ManifestMode::Exactly { status: 200, body: others.to_string() });
        let lines = lines_of(&topology(provider.url())).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "others harm nobody");
        assert!(rules(&lines, Mark::Skip).contains(&"tools: others"));
    });
}

/// Changes one member of a run's acknowledgement.
fn acknowledging(member: &'static str, value: Value) -> Twist {
    Twist::answer(move |request, status, text| {
        let is_of_the_sample = request.json()["tool"] == "topology:sales-report";
        if is_of_the_sample && *status < 300 {
            let mut body: Value = serde_json::from_str(text).expect("JSON");
            body[member] = value.clone();
            *text = body.to_string();
        }
    })
}

#[test]
fn every_breach_of_a_run_stands_at_its_rule() {
    let read = "run: as the gateway reads it";
    let good_value = TopologyOptions::default().auth_value;
    let lets_all_in = move |only: &'static str| {
        let value = good_value.clone();
        Twist::request(move |request| {
            if request.method == only {
                request.headers.retain(|(name, _)| name != "x-auth");
                request.headers.push(("x-auth".to_owned(), value.clone()));
            }
        })
    };
    let starts_anything = Twist::answer(|_, status, text| {
        if *status == 404 {
            (*status, *text) = (202, json!({ "kind": "query", "started": true, "status": "pending" }).to_string());
        }
    });
    let breaks = Twist::answer(|request, status, text| {
        if request.json()["tool"] == "topology:sales-report" {
            (*status, *text) = (500, "oh".to_owned());
        }
    });
    let cases = vec![
        (lets_all_in("GET"), vec!["credentials: manifest without them", "credentials: manifest with wrong ones"]),
        (lets_all_in("POST"), vec!["credentials: run with wrong ones"]),
        (starts_anything, vec!["run: unknown tool"]),
        (acknowledging("tool", json!("sales-report")), vec!["run: tool"]),
        (acknowledging("kind", json!("command")), vec!["run: kind", read]),
        (acknowledging("started", json!(false)), vec!["run: started", read]),
        (acknowledging("status", json!("completed")), vec!["run: word", read]),
        (acknowledging("correlation_id", json!("")), vec!["run: correlation id", read]),
        (acknowledging("request_id", json!("")), vec!["run: request id"]),
        (breaks, vec!["run: status", "run: form", read]),
    ];
    in_a_system(async {
        let provider = provider();
        for (twist, expected) in cases {
            let broken = twisted(provider.url(), twist);
            let call = sample("sales-report", r#"{"days":7}"#);
            let lines = lines_of(&CheckOptions { call, ..topology(broken.url()) }).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{lines:#?}");
        }
    });
}

#[test]
fn a_tool_that_is_not_there_and_arguments_that_do_not_fit_are_told() {
    in_a_system(async {
        let provider = provider();
        let call = |tool, arguments| CheckOptions { call: sample(tool, arguments), ..topology(provider.url()) };
        for (options, expected) in [
            (call("nothing", "{}"), "call: the tool"),
            (call("sales-report", r#"{"days":"7"}"#), "call: the arguments"),
            (call("sales-report", "[]"), "call: the arguments"),
        ] {
            assert_eq!(rules(&lines_of(&options).await, Mark::Fail), vec![expected]);
        }
    });
}

#[test]
fn a_late_answer_that_fails_stands_at_its_rule() {
    in_a_system(async {
        let provider = provider();
        let (secret, other) = (mint_webhook_secret([7; 24]), mint_webhook_secret([8; 24]));
        provider.set_callback_secret(other);
        let lines = lines_of(&query(provider.url(), &secret)).await;
        assert_eq!(rules(&lines, Mark::Fail), vec!["callback: signature"], "{lines:#?}");

        // What arrives is what the provider was asked for, here under another request id and in another form.
        provider.set_callback_secret(secret.clone());
        let renames = Twist::request(|request| {
            if request.json()["tool"] == "topology:sales-report" {
                let mut body = request.json();
                body["request_id"] = json!("0198a000-0000-7000-8000-000000000001");
                request.body = body.to_string().into_bytes();
            }
        });
        let broken = twisted(provider.url(), renames);
        let lines = lines_of(&query(broken.url(), &secret)).await;
        assert_eq!(rules(&lines, Mark::Fail), vec!["run: request id", "callback: ids"], "{lines:#?}");

        let strict = Twist::answer(|request, _, text| {
            if request.method == "GET" {
                *text = text.replace(r#""required":["orders","revenue"]"#, r#""required":["profit"]"#);
            }
        });
        let broken = twisted(provider.url(), strict);
        let lines = lines_of(&query(broken.url(), &secret)).await;
        assert_eq!(rules(&lines, Mark::Fail), vec!["callback: payload"], "{lines:#?}");
    });
}

#[test]
fn silence_and_a_shapeless_callback_are_told() {
    in_a_system(async {
        let provider = provider();
        let secret = mint_webhook_secret([7; 24]);
        // Without a secret the demo's response node delivers nothing.
        let mut silent = query(provider.url(), &secret);
        silent.callback.as_mut().expect("options").wait = Duration::from_millis(200);
        let lines = lines_of(&silent).await;
        assert_eq!(rules(&lines, Mark::Fail), vec!["callback: arrival"]);

        let shapeless = Twist::answer(|request, _, _| {
            let url = request.header("x-callback-url").unwrap_or_default().to_owned();
            if url.contains("/callbacks/") && request.json()["tool"] == "topology:sales-report" {
                actix_web::rt::spawn(async move {
                    let client = SimpleClient::new(None, Duration::from_secs(5)).expect("a client");
                    let body = Some(Bytes::from_static(b"{}"));
                    let answer = client.call(SimpleMethod::Post, &url, &[], body).await.expect("the receiver answers");
                    assert_eq!(answer.status, 202);
                });
            }
        });
        let broken = twisted(provider.url(), shapeless);
        let lines = lines_of(&query(broken.url(), &secret)).await;
        assert_eq!(rules(&lines, Mark::Fail), vec!["callback: signature", "callback: form"], "{lines:#?}");
    });
}
