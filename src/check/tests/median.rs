//! Median providers, good and broken.

use super::*;
use crate::check::session::{now, signature};
use crate::demo::median_provider::{MedianOptions, MedianProvider};
use crate::domain::time::Timestamp;
use serde_json::{Value, json};

fn provider() -> MedianProvider {
    MedianProvider::start(MedianOptions::default()).expect("a port of loopback is free")
}

fn auth() -> EndpointAuth {
    EndpointAuth::SigningSecret(Secret::new(MedianOptions::default().signing_secret))
}

fn median(url: &str) -> CheckOptions {
    CheckOptions {
        call: sample("orderStatus", r#"{"orderNumber":"ORD-1042"}"#),
        ..options(Dialect::Median, url, auth())
    }
}

#[test]
fn the_demos_provider_passes() {
    in_a_system(async {
        let provider = provider();
        let lines = lines_of(&median(provider.url())).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), Vec::<&str>::new(), "{lines:#?}");
        assert!(lines.iter().all(|line| line.section.starts_with('§')));
    });
}

#[test]
fn what_needs_a_persons_yes_is_not_called_unasked() {
    in_a_system(async {
        let provider = provider();
        let call = sample("refundOrder", r#"{"orderNumber":"ORD-1042"}"#);
        let asked = CheckOptions { call, allow_mutations: true, ..median(provider.url()) };
        let unasked = CheckOptions { allow_mutations: false, ..asked.clone() };
        let refunds = || provider.requests().iter().filter(|request| request.json()["tool"] == "refundOrder").count();
        assert!(rules(&lines_of(&unasked).await, Mark::Skip).contains(&"call: answer"));
        assert_eq!(refunds(), 0);
        assert_eq!(rules(&lines_of(&asked).await, Mark::Fail), Vec::<&str>::new(), "the approval is told");
        assert_eq!(refunds(), 1);
    });
}

#[test]
fn every_fault_of_a_manifest_stands_at_its_rule() {
    let tool = |name: &str, change: Value| {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let mut tool = json!({ "name": name, "description": "d", "risk": "low", "inputSchema": schema });
        let (members, changes) = (tool.as_object_mut().expect("members"), change.as_object().expect("members").clone());
        members.extend(changes);
        tool
    };
    let manifest = |tools: Vec<Value>| json!({ "version": 1, "tools": tools }).to_string();
    let good = || tool("good", json!({}));
    let cases = [
        ("[".to_owned(), vec!["manifest: JSON"]),
        ("[]".to_owned(), vec!["manifest: form"]),
        (json!({ "version": 1 }).to_string(), vec!["manifest: form"]),
        (json!({ "version": 2, "tools": [good()] }).to_string(), vec!["manifest: version"]),
        (manifest((0..21).map(|n| tool(&format!("t{n}"), json!({}))).collect()), vec!["manifest: number of tools"]),
        (manifest(vec![good(), tool("a", json!({ "more": 1 }))]), vec!["tools: members"]),
        (manifest(vec![good(), tool("1a", json!({}))]), vec!["tools: names"]),
        (manifest(vec![good(), json!({})]), vec!["tools: names"]),
        (manifest(vec![good(), good()]), vec!["tools: one name each"]),
        (manifest(vec![tool("reportBug", json!({}))]), vec!["tools: reserved names"]),
        (manifest(vec![tool("a", json!({ "description": "" }))]), vec!["tools: descriptions"]),
        (manifest(vec![tool("a", json!({ "risk": "none" }))]), vec!["tools: risk"]),
        (manifest(vec![tool("a", json!({ "inputSchema": {} }))]), vec!["tools: schemas"]),
        // A sync would tell the first only.
        (
            manifest(vec![tool("a", json!({ "risk": "none" })), tool("1", json!({})), good(), good()]),
            vec!["tools: names", "tools: one name each", "tools: risk"],
        ),
    ];
    in_a_system(async {
        let provider = provider();
        for (body, expected) in cases {
            provider.set_manifest(Some(body.clone()));
            let lines = lines_of(&CheckOptions { call: None, ..median(provider.url()) }).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{body}: {lines:#?}");
        }
    });
}

/// A provider that takes a signature it should not: what comes is signed again, and well, where `forgives` says so.
fn forgiving(forgives: impl Fn(&RecordedRequest, Option<Timestamp>) -> bool + Send + Sync + 'static) -> Twist {
    Twist::request(move |request| {
        let shown = request.header("median-signature").unwrap_or_default().to_owned();
        let time = shown.strip_prefix("t=").and_then(|rest| rest.split_once(',')?.0.parse().ok());
        if forgives(request, time.map(Timestamp::from_millis)) {
            let good = signature(&auth(), now(), &request.body).expect("a signature");
            request.headers.retain(|(name, _)| name != "median-signature");
            request.headers.push(("median-signature".to_owned(), good));
        }
    })
}

#[test]
fn every_breach_stands_at_its_rule() {
    let hour = Duration::from_secs(30 * 60);
    let answers = |when: fn(&RecordedRequest) -> bool, status: u16, body: Value| {
        Twist::answer(move |request, answered, text| {
            if when(request) {
                (*answered, *text) = (status, body.to_string());
            }
        })
    };
    let is_sample = |request: &RecordedRequest| request.json()["tool"] == "orderStatus";
    let cases = vec![
        (forgiving(|request, time| time.is_none() && request.method == "GET"), vec!["signature: none"]),
        (forgiving(|request, time| time.is_none() && request.method == "POST"), vec!["signature: a call without one"]),
        (
            forgiving(|request, time| time.is_some() && request.method == "GET"),
            vec!["signature: of another secret", "signature: an hour old", "signature: an hour ahead"],
        ),
        (forgiving(|request, time| time.is_some() && request.method == "POST"), vec!["signature: of another body"]),
        (forgiving(move |_, time| time.is_some_and(|time| now().since(time) > hour)), vec!["signature: an hour old"]),
        (forgiving(move |_, time| time.is_some_and(|time| time.since(now()) > hour)), vec!["signature: an hour ahead"]),
        (
            Twist::answer(|request, status, text| {
                if *status == 200 && request.json()["tool"] == "toolgateCheckNoSuchTool" {
                    *text = json!({ "result": null }).to_string();
                }
            }),
            vec!["call: unknown tool"],
        ),
        (
            answers(|request| request.json()["op"] == "diagnostics", 200, json!({ "diagnostics": 1 })),
            vec!["diagnostics"],
        ),
        (answers(is_sample, 200, json!({})), vec!["call: form"]),
        (answers(is_sample, 200, json!({ "result": 1, "error": {} })), vec!["call: form"]),
        (answers(is_sample, 200, json!([])), vec!["call: form"]),
        (answers(is_sample, 500, json!({ "error": { "code": "broken", "message": "m" } })), vec!["call: error"]),
        (answers(is_sample, 200, json!({ "error": { "code": "execution_failed" } })), vec!["call: error"]),
    ];
    in_a_system(async {
        let provider = provider();
        for (twist, expected) in cases {
            let broken = twisted(provider.url(), twist);
            let lines = lines_of(&median(broken.url())).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{lines:#?}");
        }
    });
}

#[test]
fn a_status_does_not_make_a_result_an_error() {
    in_a_system(async {
        let provider = provider();
        let odd = Twist::answer(|request, status, _| {
            if request.json()["tool"] == "orderStatus" {
                *status = 500;
            }
        });
        let broken = twisted(provider.url(), odd);
        assert_eq!(rules(&lines_of(&median(broken.url())).await, Mark::Fail), Vec::<&str>::new());
    });
}
