//! What an agent-provider's answers and receipts mean.

use super::{OPERATION_ID, TRACE_ID, fixtures, intent, mark, provider_tool, settings};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use toolgate::dialects::agent_provider::{
    ReceiptAnswer, decode_answer, decode_receipt, encode_manifest_request, encode_operation, encode_receipt_request,
};
use toolgate::dialects::{AnswerContext, CallAnswer, InboundAnswer, Method, OutboundRequest};
use toolgate::domain::json::JsonText;
use toolgate::domain::operation::{OperationIntent, OperationVerdict};
use toolgate::domain::run::{RunError, RunOutcome};
use toolgate::domain::tool::Dialect;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerFixture {
    why: String,
    #[serde(default = "ok")]
    status: u16,
    body: Option<Box<RawValue>>,
    body_text: Option<String>,
    locale: Option<String>,
    timezone: Option<String>,
    expected: Map<String, Value>,
}

const fn ok() -> u16 {
    200
}

impl AnswerFixture {
    fn answer(&self) -> InboundAnswer {
        let body = self.body.as_deref().map(RawValue::get).or(self.body_text.as_deref()).unwrap_or_default();
        InboundAnswer { status: self.status, etag: None, body: Bytes::copy_from_slice(body.as_bytes()) }
    }
}

/// An outcome in the words of a fixture; the result's evidence has to stand in it as it stood in the answer.
fn told(outcome: RunOutcome, answer: &InboundAnswer, said: &mut Map<String, Value>) -> String {
    assert!(outcome.started, "an answer came, so something was sent");
    said.insert("run".to_owned(), json!(outcome.status.as_str()));
    if let Some(result) = outcome.result {
        // A result may hold numbers that no parser keeps, so it is taken apart as text.
        let mut members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(result.as_str()).expect("a result is an object");
        let evidence = members.remove("evidence").expect("a result has evidence");
        let body = std::str::from_utf8(&answer.body).expect("a body is text");
        assert!(evidence.get() == "[]" || body.contains(evidence.get()), "the evidence was written anew");
        let result = serde_json::to_value(members).expect("what is ours is JSON for everybody");
        said.insert("result".to_owned(), blanks_made_plain(result));
    }
    match outcome.error {
        Some(RunError::Gateway { code, message }) => {
            said.insert("code".to_owned(), json!(code.as_str()));
            message
        }
        Some(RunError::Provider(_)) => panic!("nothing of the provider's words is an error of this dialect"),
        None => String::new(),
    }
}

/// The locale library sets some numbers apart with blanks that do not break a line.
fn blanks_made_plain(value: Value) -> Value {
    serde_json::from_str(&value.to_string().replace(['\u{a0}', '\u{202f}'], " ")).expect("it was JSON")
}

fn verdict(verdict: OperationVerdict, answer: &InboundAnswer, said: &mut Map<String, Value>) -> String {
    let (word, outcome) = match verdict {
        OperationVerdict::Applied(outcome) => ("applied", outcome),
        OperationVerdict::Rejected(outcome) => ("rejected", outcome),
        OperationVerdict::Conflict(outcome) => ("conflict", outcome),
        OperationVerdict::Unclear { code, message } => {
            said.insert("verdict".to_owned(), json!("unclear"));
            said.insert("code".to_owned(), json!(code.as_str()));
            return message;
        }
    };
    said.insert("verdict".to_owned(), json!(word));
    told(outcome, answer, said)
}

/// Runs every fixture of a folder and answers the values its `member` was seen to have.
fn check(
    folder: &str,
    member: &str,
    decode: impl Fn(&AnswerContext<'_>, &InboundAnswer, &mut Map<String, Value>) -> String,
) -> BTreeSet<String> {
    let mark = mark();
    let mut seen = BTreeSet::new();
    for (file, list) in fixtures::<Vec<AnswerFixture>>(Dialect::AgentProvider, folder) {
        for mut fixture in list {
            let place = format!("{file}: {}", fixture.why);
            let context = AnswerContext {
                operation: Some(&mark),
                locale: fixture.locale.as_deref(),
                timezone: fixture.timezone.as_deref(),
                repeatable: false,
            };
            let parts = fixture.expected.remove("message_contains").unwrap_or_else(|| json!([]));
            let answer = fixture.answer();
            let mut said = Map::new();
            let message = decode(&context, &answer, &mut said);
            assert_eq!(Value::Object(said.clone()), Value::Object(fixture.expected), "{place}: {message}");
            for part in serde_json::from_value::<Vec<String>>(parts).expect("a list of words") {
                assert!(message.contains(&part), "{place}: {part:?} is not in {message:?}");
            }
            assert!(!message.contains("db-7"), "{place}: what the provider says of its inside is not handed on");
            seen.extend(said.get(member).and_then(Value::as_str).map(str::to_owned));
        }
    }
    seen
}

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn answers_to_reads_mean_what_the_contract_says() {
    let tool = provider_tool(false);
    let seen = check("answers", "code", |context, answer, said| match decode_answer(&tool, context, answer) {
        CallAnswer::Settled(outcome) => told(outcome, answer, said),
        other => panic!("a read is settled by its answer: {other:?}"),
    });
    assert_eq!(
        seen,
        words(&["evidence_contract_violation", "provider_auth_failed", "provider_error", "provider_protocol_error"])
    );
}

#[test]
fn answers_to_mutations_mean_what_the_contract_says() {
    let tool = provider_tool(true);
    let seen = check("mutations", "verdict", |context, answer, said| match decode_answer(&tool, context, answer) {
        CallAnswer::Operation(found) => verdict(found, answer, said),
        other => panic!("a mutation is an operation: {other:?}"),
    });
    assert_eq!(seen, words(&["applied", "conflict", "rejected", "unclear"]));
}

#[test]
fn receipts_mean_what_the_contract_says() {
    let tool = provider_tool(true);
    let seen = check("receipts", "receipt", |context, answer, said| {
        let (word, message) = match decode_receipt(&intent(&tool, context), answer) {
            ReceiptAnswer::Adopted(found, receipt) => {
                assert_eq!(receipt.as_str().as_bytes(), answer.body.trim_ascii(), "the receipt was written anew");
                ("adopted", verdict(found, answer, said))
            }
            ReceiptAnswer::Pending => ("pending", String::new()),
            ReceiptAnswer::Missing => ("missing", String::new()),
            ReceiptAnswer::Conflict(outcome) => ("conflict", told(outcome, answer, said)),
            ReceiptAnswer::Gone => ("gone", String::new()),
            ReceiptAnswer::Unclear { code, message } => {
                said.insert("code".to_owned(), json!(code.as_str()));
                ("unclear", message)
            }
        };
        said.insert("receipt".to_owned(), json!(word));
        message
    });
    assert_eq!(seen, words(&["adopted", "conflict", "gone", "missing", "pending", "unclear"]));
}

#[test]
fn a_mutation_without_a_mark_is_never_taken_for_done() {
    let tool = provider_tool(true);
    for (_, list) in fixtures::<Vec<AnswerFixture>>(Dialect::AgentProvider, "mutations") {
        for fixture in list.iter().filter(|fixture| fixture.status == 200) {
            let found = decode_answer(&tool, &AnswerContext::default(), &fixture.answer());
            assert!(
                matches!(found, CallAnswer::Operation(OperationVerdict::Unclear { .. })),
                "{}: {found:?}",
                fixture.why
            );
        }
    }
}

fn headers(more: &[(&'static str, &str)]) -> Vec<(Cow<'static, str>, String)> {
    let mut headers = vec![(Cow::Borrowed("authorization"), "Bearer t0ken".to_owned())];
    headers.extend(more.iter().map(|(name, value)| (Cow::Borrowed(*name), (*value).to_owned())));
    headers
}

#[test]
fn manifests_are_asked_for_on_condition() {
    let settings = settings(Dialect::AgentProvider);
    let plain = OutboundRequest {
        method: Method::Get,
        url: "https://provider.example/.well-known/agent-provider".to_owned(),
        headers: headers(&[]),
        body: Bytes::new(),
        median_signature: false,
    };
    assert_eq!(encode_manifest_request(&settings, None), plain);
    let conditional = OutboundRequest { headers: headers(&[("if-none-match", "W/\"a1\"")]), ..plain };
    assert_eq!(encode_manifest_request(&settings, Some("W/\"a1\"")), conditional);
}

#[test]
fn a_resend_is_the_same_operation_in_the_same_bytes() {
    let (settings, mark) = (settings(Dialect::AgentProvider), mark());
    let body = Bytes::from_static(b"{\"arguments\":{\"n\": 1.0},\"context\":{}}");
    let text = std::str::from_utf8(&body).expect("it is text");
    let tool = provider_tool(true);
    let recorded = OperationIntent {
        body: JsonText::parse(text).expect("it is JSON"),
        ..intent(&tool, &AnswerContext { operation: Some(&mark), ..AnswerContext::default() })
    };
    let resend = encode_operation(&settings, &recorded);
    let expected = OutboundRequest {
        method: Method::Post,
        url: "https://provider.example/tools/order.cancel".to_owned(),
        headers: headers(&[
            ("contract-version", "2026-09-01"),
            ("trace-id", TRACE_ID),
            ("operation-id", OPERATION_ID),
            ("request-fingerprint", &mark.fingerprint),
        ]),
        body,
        median_signature: false,
    };
    assert_eq!(resend, expected);
}

#[test]
fn a_receipt_is_asked_for_by_both_ids() {
    let (settings, mark) = (settings(Dialect::AgentProvider), mark());
    let expected = OutboundRequest {
        method: Method::Get,
        url: format!("https://provider.example/receipts/{OPERATION_ID}"),
        headers: headers(&[
            ("contract-version", "2026-09-01"),
            ("trace-id", TRACE_ID),
            ("request-fingerprint", &mark.fingerprint),
        ]),
        body: Bytes::new(),
        median_signature: false,
    };
    let recorded = intent(&provider_tool(true), &AnswerContext { operation: Some(&mark), ..AnswerContext::default() });
    assert_eq!(encode_receipt_request(&settings, &recorded), expected);
}
