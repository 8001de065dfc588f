//! Dialect `agent-provider`: discovery, credentials, unknown tools and operations, a read, and a mutation with all that
//! has to happen once.

use super::manifest::{self, Level, ManifestForm, ManifestRule};
use super::report::Rule;
use super::sample::{self, CallFrame};
use super::session::{Answer, Session};
use super::{CheckOptions, SampleCall};
use crate::dialects::agent_provider::{self, ReceiptAnswer};
use crate::dialects::{AnswerContext, CallAnswer, Method, OutboundRequest};
use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::error_code::ErrorCode;
use crate::domain::evidence::EvidenceKinds;
use crate::domain::ids::{EndpointId, OperationId, OrgId, RunId};
use crate::domain::json::JsonText;
use crate::domain::manifest::SyncReason;
use crate::domain::operation::{OperationIntent, OperationMark, OperationVerdict};
use crate::domain::run::{RunError, RunOutcome};
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Dialect, ProviderTerms, ToolSpec};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A name that no provider has.
const NO_SUCH_TOOL: &str = "toolgate_check.no_such_tool";

/// A version that no provider announces.
const NO_SUCH_VERSION: &str = "1970-01-01";

const FORM: ManifestForm = ManifestForm {
    rules: &[
        rule("§5", Level::Whole, "manifest: JSON", "JSON", &[SyncReason::NotJson]),
        rule("§5", Level::Whole, "manifest: version", "protocol_version \"1\"", &[SyncReason::UnsupportedVersion]),
        rule(
            "§5",
            Level::Whole,
            "manifest: form",
            "an object with a contract_version that is a day, capabilities, BCP 47 languages and a list of tools",
            &[SyncReason::BadManifest],
        ),
        rule("§5", Level::Whole, "manifest: number of tools", "at most 64", &[SyncReason::TooManyTools]),
        rule(
            "§5",
            Level::Tool,
            "tools: members",
            "mutating, produces_evidence and timeout_ms; action, its evidence, mutate and a retention with mutations only",
            &[SyncReason::BadManifest],
        ),
        rule(
            "§5",
            Level::Tool,
            "tools: names",
            "words of a letter and then letters, digits and _, joined by dots, all lower case, 64 at most",
            &[SyncReason::BadName],
        ),
        rule("§3", Level::Tool, "tools: one name each", "no name twice", &[SyncReason::DuplicateName]),
        rule("§3", Level::Tool, "tools: reserved names", "no name of the gateway's own", &[SyncReason::ReservedName]),
        rule(
            "§5",
            Level::Tool,
            "tools: schemas",
            "parameters that are closed at every object and not named like the context",
            &[SyncReason::BadSchema],
        ),
    ],
    left_out: None,
    items: manifest::tools_member,
    wrap: |items| {
        let tools: Vec<&str> = items.iter().map(|item| item.get()).collect();
        format!(
            r#"{{"protocol_version":"1","contract_version":"2026-01-01","capabilities":["read","mutate"],
            "languages":["en"],"receipt_retention_seconds":86400,"tools":[{}]}}"#,
            tools.join(",")
        )
    },
    section: "§5",
};

const fn rule(
    section: &'static str,
    level: Level,
    name: &'static str,
    expected: &'static str,
    reasons: &'static [SyncReason],
) -> ManifestRule {
    ManifestRule { rule: Rule::new(section, name, expected), level, reasons }
}

const REFUSED: &str = "HTTP 401 (or 403)";
const CONDITIONAL: Rule = Rule::new("§5", "manifest: unchanged", "HTTP 304 to If-None-Match with its own ETag");
const NO_BEARER: Rule = Rule::new("§5", "credentials: manifest without them", REFUSED);
const WRONG_BEARER: Rule = Rule::new("§5", "credentials: manifest with wrong ones", REFUSED);
const WRONG_CALL: Rule = Rule::new("§5", "credentials: call with wrong ones", REFUSED);
const WRONG_RECEIPT: Rule = Rule::new("§5.1", "credentials: receipt with wrong ones", REFUSED);
const UNKNOWN_TOOL: Rule = Rule::new("§5", "call: unknown tool", "HTTP 404, or another 4xx");
const UNKNOWN_RECEIPT: Rule = Rule::new("§5.1", "receipt: of an operation that never came", "HTTP 404");
const CALL_STATUS: Rule = Rule::new("§5", "call: status", "HTTP 200");
const CALL_FORM: Rule =
    Rule::new("§5", "call: form", "an object with contract_version, status, evidence and perhaps a text");
const CALL_EVIDENCE: Rule = Rule::new(
    "§5",
    "call: evidence",
    "every declared kind and no other, ids once, pointers that lead somewhere; of a mutation one action, its own",
);
const CALL_VERSION: Rule = Rule::new("§5", "call: unknown contract version", "a refusal: HTTP 4xx");
const CALL_RULES: [Rule; 4] = [CALL_STATUS, CALL_FORM, CALL_EVIDENCE, CALL_VERSION];
const RECEIPT: Rule = Rule::new("§5.1", "receipt: of the operation", "its ids, tool, action and state");
const RECEIPT_RESPONSE: Rule = Rule::new("§5.1", "receipt: response", "the answer that was given, or null");
const RECEIPT_EXPIRY: Rule =
    Rule::new("§5.1", "receipt: expiry", "expires_at not before the manifest's retention is over, or none");
const RECEIPT_CONFLICT: Rule = Rule::new("§5.1", "receipt: under another fingerprint", "HTTP 409");
const REPEATED: Rule = Rule::new("§5.1", "operation: repeated", "the answer of the first time, and no second effect");
const CHANGED: Rule = Rule::new("§5.1", "operation: with another content", "HTTP 409");
const MUTATION_RULES: [Rule; 6] = [RECEIPT, RECEIPT_RESPONSE, RECEIPT_EXPIRY, RECEIPT_CONFLICT, REPEATED, CHANGED];

/// Checks an agent-provider.
pub(super) async fn check(session: &mut Session<'_>, options: &CheckOptions) {
    let offered = manifest::check(session, &FORM).await;
    unchanged(session, offered.etag.as_deref()).await;
    let versions = offered.tools.iter().filter_map(|tool| tool.provider.as_deref());
    let version = versions.map(|terms| terms.contract_version.as_str()).next().filter(|_| offered.is_taken);
    credentials(session, version.unwrap_or(NO_SUCH_VERSION)).await;
    match version {
        Some(version) => unknown(session, version).await,
        None => session.report.skip_all(&[UNKNOWN_TOOL, UNKNOWN_RECEIPT], "the contract version is not known"),
    }
    let Some((tool, sample)) = sample::pick(&mut session.report, options, &offered) else {
        session.report.skip_all(&CALL_RULES, "there is nothing to call");
        session.report.skip_all(&MUTATION_RULES, "there is nothing to call");
        return;
    };
    // The manifest of this dialect gives every tool its terms; without them there would be nothing to call by.
    let Some(terms) = tool.provider.as_deref() else { return };
    if sample::may_change(Dialect::AgentProvider, tool) && !options.allow_mutations {
        session.report.skip_all(&CALL_RULES, "it is a mutation: allow it with --allow-mutations");
        session.report.skip_all(&MUTATION_RULES, "it is a mutation: allow it with --allow-mutations");
        return;
    }
    let frame = framed(tool, terms, sample, &terms.contract_version);
    let answer = call(session, tool, sample, &frame).await;
    unknown_version(session, tool, terms, sample).await;
    match (&frame.operation, answer) {
        (Some(mark), Some(answer)) => {
            operation(session, &Operation { tool, terms, sample, frame: &frame, mark }, &answer).await
        }
        (Some(_), None) => session.report.skip_all(&MUTATION_RULES, "there is no answer"),
        (None, _) => session.report.skip_all(&MUTATION_RULES, "the tool reads"),
    }
}

async fn unchanged(session: &mut Session<'_>, etag: Option<&str>) {
    let Some(etag) = etag else {
        session.report.skip(CONDITIONAL, "the manifest came without an ETag");
        return;
    };
    let request = agent_provider::encode_manifest_request(&session.settings, Some(etag));
    judge_status(session, CONDITIONAL, &request, |status| status == 304).await;
}

async fn credentials(session: &mut Session<'_>, version: &str) {
    let wrong = session.settings_with(EndpointAuth::Bearer(Secret::new("toolgate-check-wrong-credentials")));
    let with_wrong = agent_provider::encode_manifest_request(&wrong, None);
    let without = OutboundRequest { headers: Vec::new(), ..with_wrong.clone() };
    // A tool that nobody has: a provider that lets the call in still does nothing.
    let call = no_such_call(&wrong, version);
    let receipt = no_such_receipt(&wrong, version);
    let tries = [(NO_BEARER, without), (WRONG_BEARER, with_wrong), (WRONG_CALL, call), (WRONG_RECEIPT, receipt)];
    for (rule, request) in tries {
        judge_status(session, rule, &request, |status| matches!(status, 401 | 403)).await;
    }
}

async fn unknown(session: &mut Session<'_>, version: &str) {
    let (call, receipt) = (no_such_call(&session.settings, version), no_such_receipt(&session.settings, version));
    // These speak of the credentials, not of the tool.
    let is_refused = |status| matches!(status, 400..=499) && !matches!(status, 401 | 403);
    judge_status(session, UNKNOWN_TOOL, &call, is_refused).await;
    judge_status(session, UNKNOWN_RECEIPT, &receipt, |status| status == 404).await;
}

async fn judge_status(session: &mut Session<'_>, rule: Rule, request: &OutboundRequest, good: impl Fn(u16) -> bool) {
    match session.send(request).await {
        Ok(answer) => {
            session.report.judge(rule, good(answer.status), answer.account());
        }
        Err(sentence) => session.report.fail(rule, sentence),
    }
}

/// A call of a tool that is not there, good in everything else.
fn no_such_call(settings: &EndpointSettings, version: &str) -> OutboundRequest {
    let receipt = no_such_receipt(settings, version);
    let headers = receipt.headers.into_iter().filter(|(name, _)| name != "request-fingerprint").collect();
    let body = serde_json::json!({
        "arguments": {},
        "context": {
            "workspace": sample::WORKSPACE,
            "conversation": null,
            "turn": null,
            "subject": { "id": "anonymous", "channel": "agent", "assurance": "channel_asserted" },
            "locale": "en",
            "timezone": "UTC",
            "now": super::session::now().to_string(),
        },
    });
    OutboundRequest {
        method: Method::Post,
        url: format!("{}/tools/{NO_SUCH_TOOL}", settings.base_url),
        headers,
        body: body.to_string().into(),
        median_signature: false,
    }
}

fn no_such_receipt(settings: &EndpointSettings, version: &str) -> OutboundRequest {
    let mark = OperationMark { id: new_operation(), fingerprint: format!("sha256:{}", "0".repeat(64)) };
    let terms = ProviderTerms {
        contract_version: version.to_owned(),
        languages: Vec::new(),
        produces_evidence: EvidenceKinds::default(),
        action: None,
        receipt_retention: None,
    };
    agent_provider::encode_receipt_request(settings, &recorded(&mark, NO_SUCH_TOOL, &terms, JsonText::of(&json!({}))))
}

/// An operation as the gateway would have recorded it.
fn recorded(mark: &OperationMark, tool: &str, terms: &ProviderTerms, body: JsonText) -> OperationIntent {
    OperationIntent {
        mark: mark.clone(),
        org_id: OrgId::from_uuid(Uuid::nil()),
        run_id: RunId::from_uuid(Uuid::nil()),
        endpoint_id: EndpointId::from_uuid(Uuid::nil()),
        origin: String::new(),
        provider_tool: tool.to_owned(),
        terms: Arc::new(terms.clone()),
        body,
        trace_id: Uuid::now_v7().simple().to_string(),
        locale: None,
        timezone: None,
        timeout: Duration::ZERO,
        created_at: super::session::now(),
    }
}

fn new_operation() -> OperationId {
    OperationId::from_uuid(Uuid::now_v7())
}

/// The frame of a call under a contract version; a mutation gets a new operation.
fn framed(tool: &ToolSpec, terms: &ProviderTerms, sample: &SampleCall, contract_version: &str) -> CallFrame {
    let mut frame = CallFrame::new();
    if terms.action.is_some() {
        let fingerprint = sample::fingerprint(tool, sample, contract_version);
        frame.operation = Some(OperationMark { id: new_operation(), fingerprint });
    }
    frame
}

/// Makes the call and judges its answer; answers it when it is one.
async fn call(session: &mut Session<'_>, tool: &ToolSpec, sample: &SampleCall, frame: &CallFrame) -> Option<Answer> {
    let request = agent_provider::encode_call(&session.settings, &frame.call(tool, sample));
    let answer = match session.send(&request).await {
        Ok(answer) => answer,
        Err(sentence) => {
            session.report.fail(CALL_STATUS, sentence);
            session.report.skip_all(&[CALL_FORM, CALL_EVIDENCE], "there is no answer");
            return None;
        }
    };
    if !session.report.judge(CALL_STATUS, answer.status == 200, answer.account()) {
        session.report.skip_all(&[CALL_FORM, CALL_EVIDENCE], "there is no answer");
        return None;
    }
    let context = AnswerContext { operation: frame.operation.as_ref(), ..AnswerContext::default() };
    match breach(agent_provider::decode_answer(tool, &context, &answer.inbound())) {
        None => {
            session.report.ok(CALL_FORM, "such");
            session.report.ok(CALL_EVIDENCE, "such");
            Some(answer)
        }
        Some((ErrorCode::EvidenceContractViolation, message)) => {
            session.report.ok(CALL_FORM, "such, as far as it could be read");
            session.report.fail(CALL_EVIDENCE, message);
            Some(answer)
        }
        Some((_, message)) => {
            session.report.fail(CALL_FORM, message);
            session.report.skip(CALL_EVIDENCE, "the answer cannot be read");
            None
        }
    }
}

/// What an answer under HTTP 200 breaks.
fn breach(answer: CallAnswer) -> Option<(ErrorCode, String)> {
    match answer {
        CallAnswer::Settled(outcome)
        | CallAnswer::Operation(
            OperationVerdict::Applied(outcome)
            | OperationVerdict::Rejected(outcome)
            | OperationVerdict::Conflict(outcome),
        ) => failure(outcome),
        // An action that is pending breaks nothing: its receipt will tell.
        CallAnswer::Operation(OperationVerdict::Unclear { code: ErrorCode::ProviderError, .. }) => None,
        CallAnswer::Operation(OperationVerdict::Unclear { code, message }) => Some((code, message)),
        CallAnswer::Accepted { .. } => None,
    }
}

fn failure(outcome: RunOutcome) -> Option<(ErrorCode, String)> {
    match outcome.error? {
        RunError::Gateway { code, message } => Some((code, message)),
        RunError::Provider(_) => None,
    }
}

async fn unknown_version(session: &mut Session<'_>, tool: &ToolSpec, terms: &ProviderTerms, sample: &SampleCall) {
    let frame = framed(tool, terms, sample, NO_SUCH_VERSION);
    let mut request = agent_provider::encode_call(&session.settings, &frame.call(tool, sample));
    request.headers.retain(|(name, _)| name != "contract-version");
    request.headers.push((Cow::Borrowed("contract-version"), NO_SUCH_VERSION.to_owned()));
    judge_status(session, CALL_VERSION, &request, |status| matches!(status, 400..=499)).await;
}

/// A mutation that was made.
struct Operation<'a> {
    tool: &'a ToolSpec,
    terms: &'a ProviderTerms,
    sample: &'a SampleCall,
    frame: &'a CallFrame,
    mark: &'a OperationMark,
}

impl Operation<'_> {
    fn receipt_request(&self, session: &Session<'_>, mark: &OperationMark) -> OutboundRequest {
        agent_provider::encode_receipt_request(&session.settings, &self.recorded(mark, JsonText::of(&json!({}))))
    }

    fn recorded(&self, mark: &OperationMark, body: JsonText) -> OperationIntent {
        recorded(mark, &self.tool.provider_name, self.terms, body)
    }

    /// The same operation once more.
    fn resend(&self, session: &Session<'_>, mark: &OperationMark, sample: &SampleCall) -> OutboundRequest {
        let body = agent_provider::encode_call(&session.settings, &self.frame.call(self.tool, sample)).body;
        let body = std::str::from_utf8(&body).ok().and_then(|text| JsonText::parse(text).ok());
        let recorded = self.recorded(mark, body.expect("the body of a call is JSON"));
        agent_provider::encode_operation(&session.settings, &recorded)
    }
}

/// What has to hold of an operation after it was made.
async fn operation(session: &mut Session<'_>, operation: &Operation<'_>, first: &Answer) {
    receipt(session, operation, first).await;
    let subject = agent_provider::subject_id(operation.sample.caller.as_deref());
    let other = SampleCall { caller: Some(format!("{subject}-other")), ..operation.sample.clone() };
    let fingerprint = sample::fingerprint(operation.tool, &other, &operation.terms.contract_version);
    let changed = OperationMark { id: operation.mark.id, fingerprint };
    let request = operation.receipt_request(session, &changed);
    judge_status(session, RECEIPT_CONFLICT, &request, |status| status == 409).await;
    match session.send(&operation.resend(session, operation.mark, operation.sample)).await {
        Ok(again) => {
            let same = again.status == first.status && same_answer(&again.json(), &first.json());
            session.report.judge(REPEATED, same, again.account());
        }
        Err(sentence) => session.report.fail(REPEATED, sentence),
    }
    let request = operation.resend(session, &changed, &other);
    judge_status(session, CHANGED, &request, |status| status == 409).await;
}

/// Whether two answers say the same. One that was pending may have been decided since.
fn same_answer(one: &Value, other: &Value) -> bool {
    let action = |answer: &Value| {
        let mut action = answer["evidence"].as_array()?.iter().find(|item| item["kind"] == "action")?.clone();
        let members = action.as_object_mut()?;
        let outcome = members.remove("outcome")?;
        members.remove("recorded_at");
        Some((action, outcome))
    };
    let was_pending = |first: &Value, second: &Value| match (action(first), action(second)) {
        (Some((a, outcome)), Some((b, _))) => a == b && outcome == "pending",
        _ => false,
    };
    (one["status"] == other["status"] && one["evidence"] == other["evidence"]) || was_pending(other, one)
}

async fn receipt(session: &mut Session<'_>, operation: &Operation<'_>, first: &Answer) {
    let answer = match session.send(&operation.receipt_request(session, operation.mark)).await {
        Ok(answer) => answer,
        Err(sentence) => {
            session.report.fail(RECEIPT, sentence);
            session.report.skip_all(&[RECEIPT_RESPONSE, RECEIPT_EXPIRY], "there is no receipt");
            return;
        }
    };
    let recorded = operation.recorded(operation.mark, JsonText::of(&json!({})));
    let found = match agent_provider::decode_receipt(&recorded, &answer.inbound()) {
        ReceiptAnswer::Adopted(..) => Ok("that".to_owned()),
        ReceiptAnswer::Pending => Ok("one that is pending".to_owned()),
        ReceiptAnswer::Missing | ReceiptAnswer::Conflict(_) | ReceiptAnswer::Gone => Err(answer.account()),
        ReceiptAnswer::Unclear { message, .. } => Err(message),
    };
    match found {
        Ok(account) => session.report.ok(RECEIPT, account),
        Err(account) => {
            session.report.fail(RECEIPT, account);
            session.report.skip_all(&[RECEIPT_RESPONSE, RECEIPT_EXPIRY], "there is no receipt");
            return;
        }
    }
    let said = answer.json();
    let response = &said["response"];
    let account = if response.is_null() { "null" } else { "one" };
    session.report.judge(RECEIPT_RESPONSE, response.is_null() || same_answer(response, &first.json()), account);
    judge_expiry(session, operation.terms, &said);
}

fn judge_expiry(session: &mut Session<'_>, terms: &ProviderTerms, receipt: &Value) {
    /// Clocks and roundings differ by so much.
    const SLACK: Duration = Duration::from_secs(1);
    let time = |member: &str| receipt[member].as_str().and_then(Timestamp::parse);
    let account = format!("recorded_at {}, expires_at {}", receipt["recorded_at"], receipt["expires_at"]);
    let holds = match (time("recorded_at"), time("expires_at"), terms.receipt_retention) {
        (_, None, _) => receipt["expires_at"].is_null(),
        (Some(recorded_at), Some(expires_at), Some(retention)) => expires_at.plus(SLACK) >= recorded_at.plus(retention),
        (_, Some(_), _) => true,
    };
    session.report.judge(RECEIPT_EXPIRY, holds, account);
}
