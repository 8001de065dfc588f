//! Dialect `topology`: manifest, credentials, the neutral unknown tool, one run, and its late answer.

use super::callback::{CallbackReceiver, Received};
use super::manifest::{self, Level, ManifestForm, ManifestRule};
use super::report::Rule;
use super::sample::{self, CallFrame};
use super::session::{Answer, Session, now};
use super::{CheckFault, CheckOptions, SampleCall};
use crate::dialects::topology::callback::{Callback, CallbackResult, parse_callback};
use crate::dialects::{CallAnswer, Method, OutboundRequest, topology};
use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::ids::RunId;
use crate::domain::manifest::SyncReason;
use crate::domain::schema::CompiledSchema;
use crate::domain::secret::Secret;
use crate::domain::tool::{Dialect, ToolKind, ToolSpec};
use crate::engine::dispatch::signing::{self, WebhookHeaders};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Duration;
use uuid::Uuid;

/// A name that no provider has.
const NO_SUCH_TOOL: &str = "toolgate-check-no-such-tool";

/// Where nobody listens, for a run whose late answer is not waited for.
const NOBODY: &str = "http://127.0.0.1:9/callbacks/check";

const FORM: ManifestForm = ManifestForm {
    rules: &[
        whole("manifest: JSON", "JSON in UTF-8", &[SyncReason::NotJson]),
        whole("manifest: form", "an array of tools", &[SyncReason::BadManifest]),
        tool(
            "§2.1",
            "tools: members",
            "id, title, description and kind as text, an input_schema, and the optional members as they should be",
            &[SyncReason::BadManifest],
        ),
        tool(
            "§4",
            "tools: names",
            "topology: and lower-case letters and digits in words joined by single hyphens, 64 at most",
            &[SyncReason::BadName],
        ),
        tool("§3", "tools: one name each", "no name twice", &[SyncReason::DuplicateName]),
        tool("§3", "tools: reserved names", "no name of the gateway's own", &[SyncReason::ReservedName]),
        tool("§2.1", "tools: risk", "low, medium, reviewed, high, or none", &[SyncReason::BadRisk]),
        tool("§2.4", "tools: schemas", "JSON Schemas that can be compiled, and take objects", &[SyncReason::BadSchema]),
    ],
    left_out: Some(Rule::new("§4", "tools: others", "queries and commands of topologies only; others are left out")),
    items: |body| serde_json::from_slice(body).ok(),
    wrap: |items| format!("[{}]", items.iter().map(|item| item.get()).collect::<Vec<_>>().join(",")),
    section: "§4",
};

const fn whole(name: &'static str, expected: &'static str, reasons: &'static [SyncReason]) -> ManifestRule {
    ManifestRule { rule: Rule::new("§4", name, expected), level: Level::Whole, reasons }
}

const fn tool(
    section: &'static str,
    name: &'static str,
    expected: &'static str,
    reasons: &'static [SyncReason],
) -> ManifestRule {
    ManifestRule { rule: Rule::new(section, name, expected), level: Level::Tool, reasons }
}

const REFUSED: &str = "HTTP 401 (or 403)";
const NO_HEADER: Rule = Rule::new("§4", "credentials: manifest without them", REFUSED);
const WRONG_HEADER: Rule = Rule::new("§4", "credentials: manifest with wrong ones", REFUSED);
const WRONG_RUN: Rule = Rule::new("§4", "credentials: run with wrong ones", REFUSED);
const UNKNOWN_TOOL: Rule = Rule::new("§2.2", "run: unknown tool", "HTTP 404, or another 4xx, or started:false");
const RUN_STATUS: Rule = Rule::new("§2.2", "run: status", "HTTP 202 or 200");
const RUN_FORM: Rule = Rule::new("§2.2", "run: form", "a JSON object");
const RUN_TOOL: Rule = Rule::new("§2.2", "run: tool", "the tool's id, as it was sent");
const RUN_KIND: Rule = Rule::new("§4", "run: kind", "the kind of the manifest");
const RUN_STARTED: Rule = Rule::new("§2.2", "run: started", "started:true");
const RUN_WORD: Rule = Rule::new("§2.2", "run: word", "the status pending of a query, started of a command");
const RUN_CORRELATION: Rule = Rule::new("§4", "run: correlation id", "a correlation_id of a query's own");
const RUN_REQUEST: Rule = Rule::new("§2.2", "run: request id", "the request_id that was sent");
const RUN_READ: Rule = Rule::new("§4", "run: as the gateway reads it", "a run that is under way");
const RUN_RULES: [Rule; 9] =
    [RUN_STATUS, RUN_FORM, RUN_TOOL, RUN_KIND, RUN_STARTED, RUN_WORD, RUN_CORRELATION, RUN_REQUEST, RUN_READ];
const LATE_ANSWER: Rule = Rule::new("§4.1", "callback: arrival", "the result of the query at X-Callback-Url");
const LATE_SIGNATURE: Rule =
    Rule::new("§4.1", "callback: signature", "Standard Webhooks headers that verify, within five minutes");
const LATE_FORM: Rule = Rule::new("§4.1", "callback: form", "a tool.result with an id and completed or failed");
const LATE_IDS: Rule = Rule::new("§4.1", "callback: ids", "the request_id of the run, or its correlation_id");
const LATE_PAYLOAD: Rule = Rule::new("§4.1", "callback: payload", "a payload that fits the output_schema, if any");
const LATE_RULES: [Rule; 5] = [LATE_ANSWER, LATE_SIGNATURE, LATE_FORM, LATE_IDS, LATE_PAYLOAD];

/// Checks a topology provider.
pub(super) async fn check(session: &mut Session<'_>, options: &CheckOptions) -> Result<(), CheckFault> {
    let offered = manifest::check(session, &FORM).await;
    credentials(session).await;
    unknown_tool(session).await;
    let picked = sample::pick(&mut session.report, options, &offered);
    let Some((tool, call)) = picked else {
        session.report.skip_all(&RUN_RULES, "there is nothing to call");
        session.report.skip_all(&LATE_RULES, "there is nothing to call");
        return Ok(());
    };
    if sample::may_change(Dialect::Topology, tool) && !options.allow_mutations {
        session.report.skip_all(&RUN_RULES, "it is a command: allow it with --allow-mutations");
        session.report.skip_all(&LATE_RULES, "a command has no late answer");
        return Ok(());
    }
    let receiver = options.callback.as_ref().map(CallbackReceiver::start).transpose()?;
    let url = receiver.as_ref().map_or(NOBODY, CallbackReceiver::url).to_owned();
    match (run(session, tool, call, &url).await, receiver) {
        (Some(ids), Some(receiver)) => late_answer(session, receiver, tool, &ids).await,
        (ids, receiver) => {
            let why = match (tool.kind, ids) {
                (ToolKind::Command, _) => "a command has no late answer",
                (ToolKind::Query, Some(_)) => "it is not waited for: give --listen ADDRESS:PORT",
                (ToolKind::Query, None) => "no run is under way",
            };
            session.report.skip_all(&LATE_RULES, why);
            if let Some(receiver) = receiver {
                receiver.stop().await;
            }
        }
    }
    Ok(())
}

async fn credentials(session: &mut Session<'_>) {
    let EndpointAuth::Header { name, .. } = &session.settings.auth else { return };
    let wrong = EndpointAuth::Header { name: name.clone(), value: Secret::new("toolgate-check-wrong-credentials") };
    let wrong = session.settings_with(wrong);
    let with_wrong = topology::encode_manifest_request(&wrong);
    let without = OutboundRequest { headers: Vec::new(), ..with_wrong.clone() };
    // A tool that nobody has: a provider that lets the call in still runs nothing.
    let run = run_request(&wrong, &no_such_tool());
    for (rule, request) in [(NO_HEADER, without), (WRONG_HEADER, with_wrong), (WRONG_RUN, run)] {
        match session.send(&request).await {
            Ok(answer) => {
                let is_refused = matches!(answer.status, 401 | 403);
                session.report.judge(rule, is_refused, answer.account());
            }
            Err(sentence) => session.report.fail(rule, sentence),
        }
    }
}

async fn unknown_tool(session: &mut Session<'_>) {
    match session.send(&run_request(&session.settings, &no_such_tool())).await {
        Ok(answer) => {
            let is_refused = match answer.status {
                // These speak of the credentials, not of the tool.
                401 | 403 => false,
                400..=499 => true,
                _ => answer.json()["started"] == json!(false),
            };
            session.report.judge(UNKNOWN_TOOL, is_refused, answer.account());
        }
        Err(sentence) => session.report.fail(UNKNOWN_TOOL, sentence),
    }
}

fn no_such_tool() -> Value {
    json!({ "tool": format!("topology:{NO_SUCH_TOOL}"), "args": {}, "request_id": Uuid::now_v7().to_string() })
}

/// A run as the gateway sends it, with any body.
fn run_request(settings: &EndpointSettings, body: &Value) -> OutboundRequest {
    let mut headers = topology::encode_manifest_request(settings).headers;
    headers.push((Cow::Borrowed("x-callback-url"), NOBODY.to_owned()));
    OutboundRequest {
        method: Method::Post,
        url: format!("{}/mcp/run", settings.base_url),
        headers,
        body: body.to_string().into(),
        median_signature: false,
    }
}

/// The ids of a run that is under way.
struct RunIds {
    request_id: RunId,
    correlation_id: String,
}

/// Makes the call and judges its acknowledgement.
async fn run(session: &mut Session<'_>, tool: &ToolSpec, call: &SampleCall, callback_url: &str) -> Option<RunIds> {
    let frame = CallFrame { callback_url: callback_url.to_owned(), ..CallFrame::new() };
    let (request_id, call) = (frame.run_id, frame.call(tool, call));
    let answer = match session.send(&topology::encode_call(&session.settings, &call)).await {
        Ok(answer) => answer,
        Err(sentence) => {
            session.report.fail(RUN_STATUS, sentence);
            session.report.skip_all(&RUN_RULES[1..], "there is no answer");
            return None;
        }
    };
    judge_acknowledgement(session, tool, request_id, &answer);
    let read = topology::decode_answer(tool, &answer.inbound());
    match (tool.kind, read) {
        (ToolKind::Query, CallAnswer::Accepted { correlation_id }) => {
            session.report.ok(RUN_READ, "a query that is pending");
            Some(RunIds { request_id, correlation_id })
        }
        (ToolKind::Command, CallAnswer::Settled(outcome)) if outcome.error.is_none() && outcome.reason.is_none() => {
            session.report.ok(RUN_READ, "a command that was started");
            None
        }
        (_, CallAnswer::Accepted { .. } | CallAnswer::Settled(_) | CallAnswer::Operation(_)) => {
            session.report.fail(RUN_READ, answer.account());
            None
        }
    }
}

fn judge_acknowledgement(session: &mut Session<'_>, tool: &ToolSpec, request_id: RunId, answer: &Answer) {
    let report = &mut session.report;
    report.judge(RUN_STATUS, matches!(answer.status, 200 | 202), answer.account());
    let said = answer.json();
    if !report.judge(RUN_FORM, said.is_object(), answer.account()) {
        report.skip_all(&RUN_RULES[2..8], "there is no object to read");
        return;
    }
    let shown = |member: &str| match &said[member] {
        Value::Null => format!("no {member}"),
        value => format!("{member}: {value}"),
    };
    report.judge(RUN_TOOL, said["tool"] == format!("topology:{}", tool.provider_name), shown("tool"));
    report.judge(RUN_KIND, said["kind"] == tool.kind.as_str(), shown("kind"));
    report.judge(RUN_STARTED, said["started"] == json!(true), shown("started"));
    let word = match tool.kind {
        ToolKind::Query => "pending",
        ToolKind::Command => "started",
    };
    report.judge(RUN_WORD, said["status"] == word, shown("status"));
    let correlation_id = said["correlation_id"].as_str().unwrap_or_default();
    match tool.kind {
        ToolKind::Query => {
            let is_own = !correlation_id.is_empty() && correlation_id != request_id.to_string();
            report.judge(RUN_CORRELATION, is_own, shown("correlation_id"));
        }
        ToolKind::Command => report.skip(RUN_CORRELATION, "a command needs none"),
    }
    report.judge(RUN_REQUEST, said["request_id"] == request_id.to_string(), shown("request_id"));
}

/// Waits for the late answer and judges it.
async fn late_answer(session: &mut Session<'_>, mut receiver: CallbackReceiver, tool: &ToolSpec, ids: &RunIds) {
    let options = receiver.options().clone();
    let received = tokio::time::timeout(options.wait, next_of(&mut receiver, ids)).await.ok().flatten();
    receiver.stop().await;
    let report = &mut session.report;
    let Some(received) = received else {
        report.fail(LATE_ANSWER, format!("nothing within {} s", options.wait.as_secs()));
        report.skip_all(&LATE_RULES[1..], "there is no callback");
        return;
    };
    report.ok(LATE_ANSWER, "one");
    let headers = WebhookHeaders {
        id: received.header("webhook-id"),
        timestamp: received.header("webhook-timestamp"),
        signature: received.header("webhook-signature"),
    };
    match &options.secret {
        Some(secret) => match signing::verify([secret], &headers, &received.body, now()) {
            Ok(_) => report.ok(LATE_SIGNATURE, "a signature that fits"),
            Err(fault) => report.fail(LATE_SIGNATURE, fault.to_string()),
        },
        None => report.skip(LATE_SIGNATURE, "the secret is not known: give --callback-secret whsec_…"),
    }
    let callback = match parse_callback(&received.body) {
        Ok(callback) => callback,
        Err(fault) => {
            report.fail(LATE_FORM, fault.to_string());
            report.skip_all(&[LATE_IDS, LATE_PAYLOAD], "the callback cannot be read");
            return;
        }
    };
    report.ok(LATE_FORM, "such");
    let said: Value = serde_json::from_slice(&received.body).unwrap_or_default();
    let account =
        format!("request_id {}, correlation_id {}", said["data"]["request_id"], said["data"]["correlation_id"]);
    report.judge(LATE_IDS, is_of(&callback, ids), account);
    match judge_payload(tool, &callback.result) {
        Ok(account) => report.ok(LATE_PAYLOAD, account),
        Err(account) => report.fail(LATE_PAYLOAD, account),
    }
}

/// The first callback of the run; when there is none in time, the first of all.
async fn next_of(receiver: &mut CallbackReceiver, ids: &RunIds) -> Option<Received> {
    /// How long a callback of the run itself is waited for after another one came.
    const PATIENCE: Duration = Duration::from_millis(500);
    let first = receiver.next().await?;
    let is_ours = |received: &Received| parse_callback(&received.body).is_ok_and(|callback| is_of(&callback, ids));
    if is_ours(&first) {
        return Some(first);
    }
    let ours = async {
        loop {
            match receiver.next().await {
                Some(received) if is_ours(&received) => break Some(received),
                Some(_) => {}
                None => break None,
            }
        }
    };
    tokio::time::timeout(PATIENCE, ours).await.ok().flatten().or(Some(first))
}

/// The gateway's id counts first.
fn is_of(callback: &Callback, ids: &RunIds) -> bool {
    match callback.request_id {
        Some(request_id) => request_id == ids.request_id,
        None => callback.correlation_id.as_deref() == Some(&ids.correlation_id),
    }
}

fn judge_payload(tool: &ToolSpec, result: &CallbackResult) -> Result<String, String> {
    let payload = match result {
        CallbackResult::Completed { payload } => payload,
        CallbackResult::Failed { .. } => return Ok("a failure, which needs none".to_owned()),
    };
    let Some(schema) = &tool.output_schema else { return Ok("any: the tool declares no output_schema".to_owned()) };
    let schema =
        CompiledSchema::compile_text(schema, Dialect::Topology.default_draft()).map_err(|fault| fault.to_string())?;
    let payload = payload.as_ref().map(|payload| serde_json::from_str(payload.as_str()).unwrap_or_default());
    schema.validate(&payload.unwrap_or(Value::Null)).map_err(|errors| {
        errors.iter().map(|error| format!("{}: {}", error.pointer, error.message)).collect::<Vec<_>>().join(" | ")
    })?;
    Ok("one that fits".to_owned())
}
