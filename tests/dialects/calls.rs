//! The bytes of a call.

use super::{
    CALLBACK_URL, RUN_ID, TRACE_ID, endpoint, fixtures, mark, provider_tool, settings, tool, with_our_version,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use toolgate::dialects::{self, ApprovalMark, Call, Method, OutboundRequest};
use toolgate::domain::ids::RunId;
use toolgate::domain::json::JsonText;
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::Dialect;
use toolgate::engine::dispatch::signing::{median_secret, median_signature};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallFixture {
    why: String,
    tool: ToolFixture,
    arguments: String,
    caller: Option<String>,
    conversation: Option<String>,
    turn: Option<String>,
    locale: Option<String>,
    timezone: Option<String>,
    approval: Option<ApprovalFixture>,
    expected: ExpectedRequest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolFixture {
    name: String,
    provider_name: String,
    kind: String,
    risk: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalFixture {
    kind: String,
    by: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedRequest {
    url: String,
    headers: Vec<(Cow<'static, str>, String)>,
    body: String,
    #[serde(default)]
    median_signature: bool,
}

fn encode(dialect: Dialect, fixture: &CallFixture) -> OutboundRequest {
    let by = |approval: &ApprovalFixture| approval.by.clone();
    let approval = match &fixture.approval {
        None => ApprovalMark::None,
        Some(approval) if approval.kind == "reviewer" => ApprovalMark::Reviewer { by: by(approval) },
        Some(approval) => {
            assert_eq!(approval.kind, "teammate");
            ApprovalMark::Teammate { by: by(approval) }
        }
    };
    let declared = &fixture.tool;
    let tool = if dialect == Dialect::AgentProvider {
        provider_tool(declared.kind == "command")
    } else {
        tool(&declared.name, &declared.provider_name, &declared.kind, declared.risk.as_deref())
    };
    let mark = mark();
    let call = Call {
        run_id: RUN_ID.parse::<RunId>().expect("an id"),
        tool: &tool,
        arguments: &JsonText::parse(&fixture.arguments).expect("arguments are JSON"),
        caller: fixture.caller.as_deref(),
        conversation: fixture.conversation.as_deref(),
        callback_url: CALLBACK_URL,
        approval: &approval,
        workspace: "acme",
        turn: fixture.turn.as_deref(),
        locale: fixture.locale.as_deref(),
        timezone: fixture.timezone.as_deref(),
        now: Timestamp::from_millis(1_767_225_600_001),
        trace_id: TRACE_ID,
        operation: Some(&mark),
    };
    dialects::encode_call(&endpoint(dialect), &call)
}

#[test]
fn calls_are_these_bytes() {
    for dialect in Dialect::ALL {
        for (place, fixture) in fixtures::<CallFixture>(dialect, "calls") {
            let request = encode(dialect, &fixture);
            let expected = OutboundRequest {
                method: Method::Post,
                url: fixture.expected.url.clone(),
                headers: fixture.expected.headers.clone(),
                body: Bytes::from(with_our_version(&fixture.expected.body)),
                median_signature: fixture.expected.median_signature,
            };
            assert_eq!(request, expected, "{place} ({})", fixture.why);
        }
    }
}

#[test]
fn exactly_the_bytes_sent_are_signed() {
    // adcp-client#313: 1.0 must not be signed as 1.
    let (_, fixture) = fixtures::<CallFixture>(Dialect::Median, "calls")
        .into_iter()
        .find(|(place, _)| place.ends_with("arguments_verbatim.json"))
        .expect("the fixture with a number of more than one spelling");
    let request = encode(Dialect::Median, &fixture);
    let secret = median_secret(&settings(Dialect::Median).auth).expect("a median secret");
    let at = Timestamp::from_millis(1_767_225_600_000);
    let again: Value = serde_json::from_slice(&request.body).expect("the body is JSON");
    assert_ne!(again.to_string().as_bytes(), &request.body[..], "the fixture would not show a re-serialisation");
    assert_eq!(
        median_signature(&secret, at, &request.body),
        median_signature(&secret, at, fixture.expected.body.as_bytes())
    );
}
