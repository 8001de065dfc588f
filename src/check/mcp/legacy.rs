//! The earlier era: initialize, the session, and what such a server refuses.

use super::super::report::Rule;
use super::super::session::Session;
use super::ERA;
use super::exchange::{Reply, ask, judge, with_body};
use crate::dialects::mcp::words::METHOD_NOT_FOUND;
use crate::dialects::mcp::{self, Dialogue, Opened};
use serde_json::json;
use serde_json::value::RawValue;

/// Longest session id that is sent back.
const MAX_SESSION_ID: usize = 1024;

const VERSION: Rule = Rule::new("§11.2", "initialize: version", "2025-11-25, 2025-06-18, 2025-03-26 or 2024-11-05");
const FORM: Rule =
    Rule::new("§11.2", "initialize: form", "capabilities, an object, and serverInfo with a name and a version");
const TOOLS: Rule = Rule::new("§11.2", "initialize: tools", "the capability tools, an object");
const SESSION: Rule = Rule::new("§11.2", "session: id", "1 to 1024 visible ASCII characters, or no session");
const INITIALIZED: Rule = Rule::new("§11.2", "initialized: answer", "HTTP 202 without a body");
const NO_SUCH_SESSION: Rule = Rule::new("§11.2", "session: one that is over", "HTTP 404, so that a new one is opened");
const NO_SUCH_VERSION: Rule = Rule::new("§11.2", "version: unknown", "HTTP 400");
const NO_SUCH_METHOD: Rule = Rule::new("§11.2", "method: unknown", "the JSON-RPC error -32601");
const ENDED: Rule = Rule::new("§11.2", "session: given back", "HTTP 2xx, or 405 when sessions are not given back");

/// Opens a dialogue. `before` is what a request of the present era was answered.
pub(super) async fn open(session: &mut Session<'_>, before: &Reply) -> Option<Dialogue> {
    let no_capabilities = RawValue::from_string("{}".to_owned()).expect("an object without members is JSON");
    let request = mcp::encode_initialize(&session.settings, 2, &no_capabilities);
    let reply = match ask(session, &request, 2).await {
        Ok(reply) => reply,
        Err(sentence) => {
            session.report.fail(ERA, sentence);
            return None;
        }
    };
    let Some(result) = reply.result() else {
        let account = format!("neither: {} to tools/list, and {} to initialize", before.account(), reply.account());
        session.report.fail(ERA, account);
        return None;
    };
    let said = reply.result_value();
    let Some(Opened { version, announces_changes }) = mcp::decode_opened(result) else {
        session.report.fail(ERA, "an answer to initialize with an unknown revision");
        session.report.fail(VERSION, format!("protocolVersion: {}", said["protocolVersion"]));
        return None;
    };
    session.report.ok(ERA, format!("an earlier one, {version}"));
    session.report.ok(VERSION, version.clone());
    let server = &said["serverInfo"];
    let has_form = said["capabilities"].is_object() && server["name"].is_string() && server["version"].is_string();
    session.report.judge(FORM, has_form, reply.account());
    session.report.judge(TOOLS, said["capabilities"]["tools"].is_object(), format!("{}", said["capabilities"]));
    let session_id = session_id(session, &reply);
    let dialogue = Dialogue::Legacy { version, session_id, announces_changes };
    initialized(session, &dialogue).await;
    Some(dialogue)
}

fn session_id(session: &mut Session<'_>, reply: &Reply) -> Option<String> {
    let Some(id) = reply.answer.header("mcp-session-id") else {
        session.report.ok(SESSION, "no session");
        return None;
    };
    let is_good = (1..=MAX_SESSION_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    // Whoever has the id speaks in the session, so it is not shown.
    session.report.judge(SESSION, is_good, format!("one of {} bytes", id.len()));
    is_good.then(|| id.to_owned())
}

async fn initialized(session: &mut Session<'_>, dialogue: &Dialogue) {
    let request = mcp::encode_initialized(&session.settings, dialogue);
    match session.send(&request).await {
        Ok(answer) => {
            let holds = answer.status == 202 && answer.body.is_empty();
            session.report.judge(INITIALIZED, holds, answer.account());
        }
        Err(sentence) => session.report.fail(INITIALIZED, sentence),
    }
}

/// Sends what a careful server refuses.
pub(super) async fn refusals(session: &mut Session<'_>, dialogue: &Dialogue, version: &str, session_id: Option<&str>) {
    let list = |version: &str, session_id: Option<&str>| {
        let other = Dialogue::Legacy {
            version: version.to_owned(),
            session_id: session_id.map(str::to_owned),
            announces_changes: false,
        };
        mcp::encode_list(&session.settings, &other, 10, None)
    };
    let no_such_session = list(version, Some("toolgate-check-no-such-session"));
    let no_such_version = list("1900-01-01", session_id);
    let no_such_method = with_body(mcp::encode_list(&session.settings, dialogue, 11, None), |body| {
        body["method"] = json!("toolgate/no_such_method");
    });
    match session_id {
        Some(_) => {
            judge(session, NO_SUCH_SESSION, &no_such_session, 10, |reply| reply.answer.status == 404).await;
        }
        None => session.report.skip(NO_SUCH_SESSION, "the server keeps no sessions"),
    }
    if version < "2025-06-18" {
        session.report.skip(NO_SUCH_VERSION, "the revision knows no header for it");
    } else {
        judge(session, NO_SUCH_VERSION, &no_such_version, 10, |reply| reply.answer.status == 400).await;
    }
    judge(session, NO_SUCH_METHOD, &no_such_method, 11, |reply| reply.error_code() == Some(METHOD_NOT_FOUND)).await;
}

/// Gives the session back.
pub(super) async fn end(session: &mut Session<'_>, dialogue: &Dialogue) {
    let Some(request) = mcp::encode_end_session(&session.settings, dialogue) else { return };
    match session.send(&request).await {
        Ok(answer) => {
            session.report.judge(ENDED, matches!(answer.status, 200..=299 | 405), answer.account());
        }
        Err(sentence) => session.report.fail(ENDED, sentence),
    }
}
