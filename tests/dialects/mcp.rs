//! What is sent to MCP servers of both eras, and what their answers say beside the result of a call.

use super::{folder, settings, tool, with_our_version};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use toolgate::dialects::mcp::{self, Dialogue, MAX_PAGES, Opened, Page, Pages, Sign, ToolCall, ToolResult};
use toolgate::dialects::{Method, OutboundRequest};
use toolgate::domain::endpoint::{EndpointAuth, EndpointSettings};
use toolgate::domain::json::JsonText;
use toolgate::domain::manifest::SyncReason;
use toolgate::domain::secret::Secret;
use toolgate::domain::tool::{Dialect, HeaderParam, McpTool, ToolSpec};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFixture {
    why: String,
    request: String,
    #[serde(default)]
    id: u64,
    dialogue: Option<DialogueFixture>,
    auth: Option<Value>,
    capabilities: Option<String>,
    cursor: Option<String>,
    arguments: Option<String>,
    progress_token: Option<u64>,
    input_responses: Option<String>,
    request_state: Option<String>,
    #[serde(default)]
    header_params: Vec<(Vec<String>, String)>,
    response_id: Option<String>,
    result: Option<String>,
    error: Option<String>,
    last_event_id: Option<String>,
    expected: ExpectedRequest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DialogueFixture {
    version: String,
    session_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedRequest {
    method: String,
    url: String,
    headers: Vec<(Cow<'static, str>, String)>,
    body: String,
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("a fixture holds JSON")
}

impl RequestFixture {
    fn dialogue(&self) -> Dialogue {
        match &self.dialogue {
            None => Dialogue::Modern,
            Some(DialogueFixture { version, session_id }) => {
                Dialogue::Legacy { version: version.clone(), session_id: session_id.clone(), announces_changes: false }
            }
        }
    }

    fn settings(&self) -> EndpointSettings {
        let settings = settings(Dialect::Mcp);
        match &self.auth {
            None => settings,
            Some(auth) if auth["none"] == json!(true) => EndpointSettings { auth: EndpointAuth::None, ..settings },
            Some(auth) => {
                let word = |at: usize| auth["header"][at].as_str().expect("a name and a value").to_owned();
                let auth = EndpointAuth::Header { name: word(0), value: Secret::new(word(1)) };
                EndpointSettings { auth, ..settings }
            }
        }
    }

    fn tool(&self) -> ToolSpec {
        let params = self.header_params.iter();
        let declared = McpTool {
            declared: JsonText::of(&json!({})),
            read_only: false,
            header_params: params.map(|(path, name)| HeaderParam { path: path.clone(), name: name.clone() }).collect(),
        };
        ToolSpec { mcp: Some(Arc::new(declared)), ..tool("shop_get_weather", "get_weather", "command", None) }
    }

    fn encode(&self) -> OutboundRequest {
        let (settings, dialogue) = (self.settings(), self.dialogue());
        let capabilities = raw(self.capabilities.as_deref().unwrap_or("{}"));
        match self.request.as_str() {
            "list" => mcp::encode_list(&settings, &dialogue, self.id, self.cursor.as_deref()),
            "initialize" => mcp::encode_initialize(&settings, self.id, &capabilities),
            "initialized" => mcp::encode_initialized(&settings, &dialogue),
            "discover" => mcp::encode_discover(&settings, self.id),
            "cancelled" => mcp::encode_cancelled(&settings, &dialogue, self.id),
            "response" => {
                let (result, error) = (self.result.as_deref().map(raw), self.error.as_deref().map(raw));
                let answer = result.as_deref().ok_or_else(|| error.as_deref().expect("a result or an error"));
                let id = raw(self.response_id.as_deref().expect("the id of a question"));
                mcp::encode_response(&settings, &dialogue, &id, answer)
            }
            "listen" => mcp::encode_listen(&settings, &dialogue, self.id),
            "resume" => mcp::encode_resume(&settings, &dialogue, self.last_event_id.as_deref()),
            "end_session" => mcp::encode_end_session(&settings, &dialogue).expect("there is a session"),
            "call" => {
                let arguments = self.arguments.as_deref().map(|text| JsonText::parse(text).expect("JSON"));
                let input_responses = self.input_responses.as_deref().map(raw);
                let call = ToolCall {
                    tool: &self.tool(),
                    arguments: arguments.as_ref(),
                    capabilities: &capabilities,
                    progress_token: self.progress_token,
                    input_responses: input_responses.as_deref(),
                    request_state: self.request_state.as_deref(),
                };
                mcp::encode_call(&settings, &dialogue, self.id, &call)
            }
            other => panic!("{other} is no request"),
        }
    }
}

#[test]
fn requests_are_these_bytes() {
    for (place, fixture) in super::fixtures::<RequestFixture>(Dialect::Mcp, "requests") {
        let expected = OutboundRequest {
            method: match fixture.expected.method.as_str() {
                "get" => Method::Get,
                "post" => Method::Post,
                "delete" => Method::Delete,
                other => panic!("{other} is no method"),
            },
            url: fixture.expected.url.clone(),
            headers: fixture.expected.headers.clone(),
            body: Bytes::from(with_our_version(&fixture.expected.body)),
            median_signature: false,
        };
        assert_eq!(fixture.encode(), expected, "{place} ({})", fixture.why);
    }
}

#[test]
fn a_dialogue_without_a_session_has_none_to_give_back() {
    let settings = settings(Dialect::Mcp);
    let without = Dialogue::Legacy { version: "2025-06-18".to_owned(), session_id: None, announces_changes: false };
    for dialogue in [Dialogue::Modern, without] {
        assert_eq!(mcp::encode_end_session(&settings, &dialogue), None);
    }
}

fn list<T: for<'de> Deserialize<'de>>(file: &str) -> Vec<T> {
    let path = folder(Dialect::Mcp, file);
    let text = std::fs::read_to_string(&path).expect("a readable fixture");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignFixture {
    why: String,
    status: u16,
    message: String,
    expected: Value,
}

#[test]
fn what_a_server_answers_tells_its_era() {
    for fixture in list::<SignFixture>("signs.json") {
        let sign = match mcp::sign_of(fixture.status, &fixture.message) {
            Sign::Modern => json!("modern"),
            Sign::OtherVersions(versions) => json!(versions),
            Sign::Refused => json!("refused"),
            Sign::Silent => json!("silent"),
            Sign::Legacy => json!("legacy"),
        };
        assert_eq!(sign, fixture.expected, "{}: {} {}", fixture.why, fixture.status, fixture.message);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionFixture {
    why: String,
    result: String,
    expected: Option<String>,
    #[serde(default)]
    announces_changes: bool,
}

#[test]
fn an_earlier_server_chooses_a_revision_that_is_spoken() {
    for fixture in list::<VersionFixture>("versions.json") {
        let expected = fixture.expected.map(|version| Opened { version, announces_changes: fixture.announces_changes });
        assert_eq!(mcp::decode_opened(&raw(&fixture.result)), expected, "{}", fixture.why);
    }
}

#[test]
fn questions_are_kept_as_they_came() {
    let text =
        r#"{ "requestState":"s\n" , "inputRequests":{"q": {"method":"roots/list"}},"resultType":"input_required"}"#;
    let expected = ToolResult::InputRequired {
        result: JsonText::parse(text).expect("JSON"),
        input_requests: Some(JsonText::parse(r#"{"q": {"method":"roots/list"}}"#).expect("JSON")),
        request_state: Some("s\n".to_owned()),
    };
    assert_eq!(mcp::decode_result(&raw(text)), expected);
    for (text, has_questions, has_state) in [
        (r#"{"resultType":"input_required","requestState":""}"#, false, true),
        (r#"{"resultType":"input_required","inputRequests":{}}"#, true, false),
        (r#"{"resultType":"input_required","inputRequests":{},"requestState":null}"#, true, false),
    ] {
        match mcp::decode_result(&raw(text)) {
            ToolResult::InputRequired { input_requests, request_state, .. } => {
                assert_eq!((input_requests.is_some(), request_state.is_some()), (has_questions, has_state), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    for text in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":[],"requestState":"s"}"#,
        r#"{"resultType":"input_required","requestState":7}"#,
    ] {
        assert!(matches!(mcp::decode_result(&raw(text)), ToolResult::Unclear(_)), "{text}");
    }
}

fn page(tools: &str, next_cursor: Option<&str>) -> Page {
    let cursor = next_cursor.map(|cursor| format!(r#","nextCursor":{}"#, json!(cursor))).unwrap_or_default();
    mcp::decode_page(&raw(&format!(r#"{{"tools":[{tools}]{cursor}}}"#))).expect("a page")
}

fn named(name: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)
}

#[test]
fn all_pages_are_one_list() {
    // agentgateway#3476: page 1 only; an empty page and an empty cursor do not end a list.
    let mut pages = Pages::default();
    assert_eq!(pages.add(page(&named("a"), Some(""))), Ok(Some(String::new())));
    assert_eq!(pages.add(page("", Some("3"))), Ok(Some("3".to_owned())));
    assert_eq!(pages.add(page(&named("b"), None)), Ok(None));
    let manifest = mcp::decode_tools(&settings(Dialect::Mcp), pages.as_slice()).expect("good tools");
    let names: Vec<&str> = manifest.tools.iter().map(|tool| tool.spec.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let whole = [page(&[named("a"), named("b")].join(","), None)];
    let whole = mcp::decode_tools(&settings(Dialect::Mcp), &whole).expect("good tools");
    assert_eq!(whole.hash, manifest.hash, "how a list is cut changes nothing");
    let twice = [page(&named("a"), Some("2")), page(&named("a"), None)];
    let fault = mcp::decode_tools(&settings(Dialect::Mcp), &twice).expect_err("one name on two pages");
    assert_eq!(fault.reason, SyncReason::DuplicateName);
}

#[test]
fn a_list_that_never_ends_is_none() {
    // codebase-memory-mcp#1247: page 1 for ever.
    let mut same = Pages::default();
    assert_eq!(same.add(page("", Some("1"))), Ok(Some("1".to_owned())));
    let fault = same.add(page("", Some("1"))).expect_err("a cursor that does not move");
    assert_eq!(fault.reason, SyncReason::BadManifest);
    assert!(fault.message.contains("\"1\" twice"), "{}", fault.message);

    let mut circle = Pages::default();
    for cursor in ["1", "2"] {
        circle.add(page("", Some(cursor))).expect("a new cursor");
    }
    assert!(circle.add(page("", Some("1"))).is_err(), "a circle is no way forward");

    let mut long = Pages::default();
    for number in 1..MAX_PAGES {
        long.add(page("", Some(&number.to_string()))).expect("a new cursor");
    }
    let mut endless = Pages::default();
    for number in 1..MAX_PAGES {
        endless.add(page("", Some(&number.to_string()))).expect("a new cursor");
    }
    assert_eq!(long.add(page("", None)), Ok(None), "the last page that is allowed");
    let fault = endless.add(page("", Some("50"))).expect_err("one page too many");
    assert_eq!(fault.reason, SyncReason::BadManifest);
    assert!(fault.message.contains("50 pages"), "{}", fault.message);
}
