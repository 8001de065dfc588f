//! What the answer to a call means.

use super::{fixtures, folder, settings, tool};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::dialects::{self, AnswerContext, CallAnswer, InboundAnswer, Method, median};
use toolgate::domain::run::RunError;
use toolgate::domain::tool::Dialect;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerFixture {
    why: String,
    kind: Option<String>,
    risk: Option<String>,
    status: u16,
    body: String,
    expected: Value,
}

impl AnswerFixture {
    fn answer(&self) -> InboundAnswer {
        InboundAnswer { status: self.status, etag: None, body: Bytes::from(self.body.clone()) }
    }
}

/// An outcome as JSON, members without a value left out, and the message of an error of our own.
fn outcome(answer: CallAnswer) -> (Value, String) {
    let outcome = match answer {
        CallAnswer::Accepted { correlation_id } => return (json!({"accepted": correlation_id}), String::new()),
        CallAnswer::Settled(outcome) => outcome,
        CallAnswer::Operation(verdict) => panic!("no operation was sent: {verdict:?}"),
    };
    let mut said = json!({"status": outcome.status.as_str(), "started": outcome.started});
    let mut message = String::new();
    if let Some(result) = outcome.result {
        said["result"] = json!(result.as_str());
    }
    if let Some(reason) = outcome.reason {
        said["reason"] = json!(reason);
    }
    match outcome.error {
        Some(RunError::Gateway { code, message: text }) => {
            said["error"] = json!({"code": code.as_str()});
            message = text;
        }
        Some(RunError::Provider(raw)) => said["provider_error"] = json!(raw.as_str()),
        None => {}
    }
    (said, message)
}

/// Takes the words an error's message must hold out of what is expected.
fn take_message_parts(expected: &mut Value) -> Vec<String> {
    let parts = expected.as_object_mut().and_then(|members| members.remove("message_contains"));
    serde_json::from_value(parts.unwrap_or_else(|| json!([]))).expect("a list of words")
}

fn check_message(place: &str, message: &str, parts: &[String]) {
    for part in parts {
        assert!(message.contains(part.as_str()), "{place}: {part:?} is not in {message:?}");
    }
    assert!(!message.contains("db-7"), "{place}: what the provider says of its inside is not handed on");
}

#[test]
fn answers_mean_what_the_contract_says() {
    for dialect in [Dialect::Topology, Dialect::Median, Dialect::Mcp] {
        for (file, list) in fixtures::<Vec<AnswerFixture>>(dialect, "answers") {
            for mut fixture in list {
                let place = format!("{file}: {}", fixture.why);
                let kind = fixture.kind.as_deref().unwrap_or("query");
                let tool = tool("weather-report", "weather-report", kind, fixture.risk.as_deref());
                let repeatable = fixture.risk.as_deref() == Some("low");
                let context = AnswerContext { repeatable, ..AnswerContext::default() };
                let (found, message) = outcome(dialects::decode_answer(dialect, &tool, &context, &fixture.answer()));
                let parts = fixture.expected.get_mut("error").map(take_message_parts).unwrap_or_default();
                assert_eq!(found, fixture.expected, "{place}: {message}");
                check_message(&place, &message, &parts);
            }
        }
    }
}

#[test]
fn median_diagnostics_are_handed_on_as_their_text() {
    let request = median::encode_diagnostics(&settings(Dialect::Median));
    assert_eq!(request.method, Method::Post);
    assert_eq!(request.url, "https://median.example/base/");
    assert_eq!(&request.body[..], br#"{"op":"diagnostics","version":1}"#);
    assert!(request.median_signature);

    let (file, text) = {
        let path = folder(Dialect::Median, "diagnostics.json");
        (path.display().to_string(), std::fs::read_to_string(&path).expect("a readable fixture"))
    };
    let list: Vec<AnswerFixture> = serde_json::from_str(&text).expect("a list of answers");
    for mut fixture in list {
        let place = format!("{file}: {}", fixture.why);
        let parts = take_message_parts(&mut fixture.expected);
        let (found, message) = match median::decode_diagnostics(&fixture.answer()) {
            Ok(raw) => (json!({"diagnostics": raw.as_str()}), String::new()),
            Err((code, message)) => (json!({"code": code.as_str()}), message),
        };
        assert_eq!(found, fixture.expected, "{place}");
        check_message(&place, &message, &parts);
    }
}
