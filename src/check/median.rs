//! Dialect `median`: manifest, signatures, the unknown tool, diagnostics, and one call.

use super::manifest::{self, Level, ManifestForm, ManifestRule};
use super::report::Rule;
use super::sample::{self, CallFrame};
use super::session::{Answer, Session, now, signature};
use super::{CheckOptions, SampleCall};
use crate::dialects::{ApprovalMark, OutboundRequest, median};
use crate::domain::endpoint::EndpointAuth;
use crate::domain::manifest::SyncReason;
use crate::domain::risk::Risk;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Dialect, ToolSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// A name that no provider has.
const NO_SUCH_TOOL: &str = "toolgateCheckNoSuchTool";

/// How far a time is off that nobody may take.
const FAR_OFF: Duration = Duration::from_secs(60 * 60);

const FORM: ManifestForm = ManifestForm {
    rules: &[
        rule(Level::Whole, "manifest: JSON", "JSON", &[SyncReason::NotJson]),
        rule(
            Level::Whole,
            "manifest: form",
            "an object with a list of tools, in which no member stands twice",
            &[SyncReason::BadManifest],
        ),
        rule(Level::Whole, "manifest: version", "exactly the integer 1", &[SyncReason::UnsupportedVersion]),
        rule(Level::Whole, "manifest: number of tools", "at most 20", &[SyncReason::TooManyTools]),
        rule(
            Level::Tool,
            "tools: members",
            "objects of name, description, risk and inputSchema, and nothing else",
            &[SyncReason::BadManifest],
        ),
        rule(Level::Tool, "tools: names", "a letter, then letters, digits and _, 64 at most", &[SyncReason::BadName]),
        rule(Level::Tool, "tools: one name each", "no name twice", &[SyncReason::DuplicateName]),
        rule(
            Level::Tool,
            "tools: reserved names",
            "no name of Median's or the gateway's own",
            &[SyncReason::ReservedName],
        ),
        rule(Level::Tool, "tools: descriptions", "1 to 500 UTF-16 units", &[SyncReason::BadDescription]),
        rule(Level::Tool, "tools: risk", "low, medium, reviewed or high", &[SyncReason::BadRisk]),
        rule(
            Level::Tool,
            "tools: schemas",
            "a closed object of at most 20 scalar properties, 8,000 UTF-16 units in all",
            &[SyncReason::BadSchema],
        ),
    ],
    left_out: None,
    items: manifest::tools_member,
    wrap: |items| {
        let tools: Vec<&str> = items.iter().map(|item| item.get()).collect();
        format!(r#"{{"version":1,"tools":[{}]}}"#, tools.join(","))
    },
    section: "§6",
};

const fn rule(
    level: Level,
    name: &'static str,
    expected: &'static str,
    reasons: &'static [SyncReason],
) -> ManifestRule {
    ManifestRule { rule: Rule::new("§6", name, expected), level, reasons }
}

const REFUSED: &str = "a refusal: HTTP 4xx, or an error, and no manifest or result";
const UNSIGNED: Rule = Rule::new("§6", "signature: none", REFUSED);
const WRONG_SECRET: Rule = Rule::new("§6", "signature: of another secret", REFUSED);
const OTHER_BODY: Rule = Rule::new("§6", "signature: of another body", REFUSED);
const STALE: Rule = Rule::new("§6", "signature: an hour old", REFUSED);
const AHEAD: Rule = Rule::new("§6", "signature: an hour ahead", REFUSED);
const UNSIGNED_CALL: Rule = Rule::new("§6", "signature: a call without one", REFUSED);
const UNKNOWN_TOOL: Rule = Rule::new("§6", "call: unknown tool", "an error with a code and a message");
const DIAGNOSTICS: Rule = Rule::new("§6", "diagnostics", "an object under diagnostics");
const CALL_ANSWER: Rule = Rule::new("§6", "call: answer", "an answer in the same exchange");
const CALL_FORM: Rule = Rule::new("§6", "call: form", "an object with either a result or an error");
const CALL_ERROR: Rule = Rule::new("§6", "call: error", "a result, or an error execution_failed with a message");
const CALL_RULES: [Rule; 3] = [CALL_ANSWER, CALL_FORM, CALL_ERROR];

/// Checks a median provider.
pub(super) async fn check(session: &mut Session<'_>, options: &CheckOptions) {
    let offered = manifest::check(session, &FORM).await;
    let unknown = unknown_tool(session).await;
    signatures(session, unknown.as_ref()).await;
    diagnostics(session, offered.diagnostics).await;
    let Some((tool, call)) = sample::pick(&mut session.report, options, &offered) else {
        session.report.skip_all(&CALL_RULES, "there is nothing to call");
        return;
    };
    if sample::may_change(Dialect::Median, tool) && !options.allow_mutations {
        session.report.skip_all(&CALL_RULES, "its risk is not low: allow it with --allow-mutations");
        return;
    }
    run(session, tool, call).await;
}

/// Sends what a careful provider refuses. `known` is what an unknown tool is answered under a good signature.
async fn signatures(session: &mut Session<'_>, known: Option<&Answer>) {
    let manifest = median::encode_manifest_request(&session.settings);
    let call = unknown_call(session);
    let other = EndpointAuth::SigningSecret(Secret::new("toolgate-check-wrong-secret"));
    let earlier = Timestamp::from_millis(now().as_millis() - i64::try_from(FAR_OFF.as_millis()).unwrap_or(0));
    let later = now().plus(FAR_OFF);
    let tries = [
        (UNSIGNED, &manifest, None),
        (WRONG_SECRET, &manifest, signature(&other, now(), &manifest.body)),
        (STALE, &manifest, session.signature(earlier, &manifest.body)),
        (AHEAD, &manifest, session.signature(later, &manifest.body)),
        (UNSIGNED_CALL, &call, None),
        (OTHER_BODY, &call, session.signature(now(), br#"{"op":"diagnostics","version":1}"#)),
    ];
    for (rule, request, signature) in tries {
        match session.send_signed(request, signature).await {
            Ok(answer) => {
                // An unknown tool is an error whoever asks: the refusal of a signature is another one.
                let is_call = request.body == call.body;
                let is_about_the_tool = is_call && known.is_some_and(|known| same_refusal(known, &answer));
                session.report.judge(rule, is_refusal(&answer) && !is_about_the_tool, answer.account());
            }
            Err(sentence) => session.report.fail(rule, sentence),
        }
    }
}

fn is_refusal(answer: &Answer) -> bool {
    let body = answer.json();
    let is_error = body["error"].is_object() && body.get("tools").is_none() && body.get("result").is_none();
    is_error || matches!(answer.status, 400..=499)
}

fn same_refusal(one: &Answer, other: &Answer) -> bool {
    one.status == other.status && one.json()["error"]["code"] == other.json()["error"]["code"]
}

fn unknown_call(session: &Session<'_>) -> OutboundRequest {
    let body = json!({
        "op": "call",
        "version": 1,
        "tool": NO_SUCH_TOOL,
        "input": {},
        "callId": Uuid::now_v7().to_string(),
        "context": { "approval": { "kind": "none" } },
    });
    OutboundRequest { body: body.to_string().into(), ..median::encode_diagnostics(&session.settings) }
}

async fn unknown_tool(session: &mut Session<'_>) -> Option<Answer> {
    match session.send(&unknown_call(session)).await {
        Ok(answer) => {
            let error = &answer.json()["error"];
            let is_error = error["code"].is_string() && error["message"].is_string();
            // The refusal of a signature says nothing of the tool.
            let holds = is_error && !matches!(answer.status, 401 | 403);
            session.report.judge(UNKNOWN_TOOL, holds, answer.account());
            Some(answer)
        }
        Err(sentence) => {
            session.report.fail(UNKNOWN_TOOL, sentence);
            None
        }
    }
}

async fn diagnostics(session: &mut Session<'_>, offered: bool) {
    if !offered {
        session.report.skip(DIAGNOSTICS, "the manifest offers none");
        return;
    }
    match session.send(&median::encode_diagnostics(&session.settings)).await {
        Ok(answer) => {
            let holds = median::decode_diagnostics(&answer.inbound()).is_ok();
            session.report.judge(DIAGNOSTICS, holds, answer.account());
        }
        Err(sentence) => session.report.fail(DIAGNOSTICS, sentence),
    }
}

/// Makes the call and judges its answer.
async fn run(session: &mut Session<'_>, tool: &ToolSpec, call: &SampleCall) {
    let by = Some("toolgate check".to_owned());
    let approval = match tool.risk {
        Some(Risk::Reviewed) => ApprovalMark::Reviewer { by },
        Some(Risk::High) => ApprovalMark::Teammate { by },
        Some(Risk::Low | Risk::Medium) | None => ApprovalMark::None,
    };
    let frame = CallFrame { approval, ..CallFrame::new() };
    let call = frame.call(tool, call);
    let answer = match session.send(&median::encode_call(&session.settings, &call)).await {
        Ok(answer) => answer,
        Err(sentence) => {
            session.report.fail(CALL_ANSWER, sentence);
            session.report.skip_all(&CALL_RULES[1..], "there is no answer");
            return;
        }
    };
    session.report.ok(CALL_ANSWER, format!("one after {} ms", answer.took.as_millis()));
    let members: BTreeMap<String, Value> = serde_json::from_slice(&answer.body).unwrap_or_default();
    let has = |name: &str| members.contains_key(name);
    if !session.report.judge(CALL_FORM, has("result") != has("error"), answer.account()) {
        session.report.skip(CALL_ERROR, "the answer cannot be read");
        return;
    }
    let holds = match members.get("error") {
        None => true,
        Some(error) => error["code"] == "execution_failed" && error["message"].is_string(),
    };
    session.report.judge(CALL_ERROR, holds, answer.account());
}
