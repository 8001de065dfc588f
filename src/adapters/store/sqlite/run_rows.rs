//! A run as a row: columns for what is queried, one document for what is fixed, and sealed ones for what is private: the
//! arguments and, when it comes, the outcome. A run that is final when it is first recorded has both in one.

use super::rows::{self, present};
use super::{corrupt, maybe_time_at, maybe_uuid_at, place, text_at, time_at, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::{EndpointId, KeyId, OperationId, OrgId, RunId};
use crate::domain::json::JsonText;
use crate::domain::run::{Attempt, CallContext, Run, RunError, RunIntent, RunOutcome, RunStatus};
use crate::domain::time::Timestamp;
use crate::domain::tool::{Dialect, ToolKind};
use crate::engine::store_port::StoreResult;
use rusqlite::Row;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use uuid::Uuid;

const ARGUMENTS: &str = "runs.arguments";
const OUTCOME: &str = "runs.outcome";

/// The columns that [`RunRow::read`] takes, in its order.
pub(super) const COLUMNS: &str = "org_id, id, endpoint_id, endpoint_name, tool, status, started, intent, reason, \
                                  error_code, error_message, provider_correlation_id, attempts, arguments, outcome, \
                                  created_at, updated_at, finished_at, expires_at, open, operation_id";

/// As [`COLUMNS`], without what is sealed.
pub(super) const BARE_COLUMNS: &str = "org_id, id, endpoint_id, endpoint_name, tool, status, started, intent, reason, \
                                       error_code, error_message, provider_correlation_id, attempts, NULL, NULL, \
                                       created_at, updated_at, finished_at, expires_at, open, operation_id";

#[derive(Serialize)]
struct IntentRef<'a> {
    #[serde(serialize_with = "uuid_text")]
    agent_key: Uuid,
    dialect: &'a str,
    kind: &'a str,
    llm_format: bool,
    tool_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    keyed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    confirmed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locale: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<&'a str>,
}

#[derive(Deserialize)]
struct IntentDoc {
    agent_key: String,
    dialect: String,
    kind: String,
    llm_format: bool,
    tool_hash: String,
    #[serde(default)]
    request_id: Option<String>,
    #[serde(default)]
    caller: Option<String>,
    #[serde(default)]
    conversation: Option<String>,
    #[serde(default)]
    keyed: bool,
    #[serde(default)]
    confirmed: bool,
    #[serde(default)]
    turn: Option<String>,
    #[serde(default)]
    locale: Option<String>,
    #[serde(default)]
    timezone: Option<String>,
}

impl IntentDoc {
    fn agent_key(&self) -> StoreResult<KeyId> {
        Uuid::try_parse(&self.agent_key).map(KeyId::from_uuid).map_err(|_| corrupt("run"))
    }
}

fn uuid_text<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()))
}

#[derive(Serialize)]
struct ArgumentsRef<'a> {
    sent: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    coerced: Option<&'a RawValue>,
    /// Of a run that was final when it was first recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeRef<'a>>,
}

#[derive(Deserialize)]
struct ArgumentsDoc {
    sent: Box<RawValue>,
    #[serde(default, deserialize_with = "present")]
    coerced: Option<Box<RawValue>>,
    #[serde(default)]
    outcome: Option<OutcomeDoc>,
}

#[derive(Serialize)]
struct OutcomeRef<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_error: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<&'a RawValue>,
}

impl OutcomeRef<'_> {
    /// `None` when there is nothing to keep.
    fn anything(self) -> Option<Self> {
        let json = self.result.or(self.provider_error).or(self.withheld);
        (json.is_some() || self.message.is_some()).then_some(self)
    }
}

#[derive(Default, Deserialize)]
struct OutcomeDoc {
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    provider_error: Option<Box<RawValue>>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default, deserialize_with = "present")]
    withheld: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct AttemptDoc<'a> {
    at: i64,
    duration_ms: u64,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
}

/// What changes when a run gets an outcome.
pub(super) struct OutcomeRow {
    pub(super) status: RunStatus,
    pub(super) started: bool,
    pub(super) reason: Option<String>,
    pub(super) error_code: Option<&'static str>,
    pub(super) error_message: Option<String>,
    /// Sealed; `None` when there is nothing to keep.
    pub(super) sealed: Option<Vec<u8>>,
}

impl OutcomeRow {
    pub(super) fn new(secrets: &SecretBox, id: RunId, outcome: &RunOutcome, withheld: Option<&JsonText>) -> Self {
        let (mut row, private) = Self::apart(outcome, withheld);
        row.sealed = private
            .anything()
            .map(|private| secrets.seal(rows::to_text(&private).as_bytes(), &place(OUTCOME, id.uuid())));
        row
    }

    /// The columns, with nothing sealed yet, and what is to be sealed.
    fn apart<'a>(outcome: &'a RunOutcome, withheld: Option<&'a JsonText>) -> (Self, OutcomeRef<'a>) {
        let mut private = OutcomeRef {
            result: outcome.result.as_ref().map(JsonText::raw),
            provider_error: None,
            message: None,
            withheld: withheld.map(JsonText::raw),
        };
        let mut error_code = None;
        match &outcome.error {
            None => {}
            Some(RunError::Provider(error)) => private.provider_error = Some(error.raw()),
            Some(RunError::Gateway { code, message }) => {
                error_code = Some(code.as_str());
                // It may repeat what the provider said, and that may be anything, as a result may.
                private.message = Some(message);
            }
        }
        let (status, started, reason) = (outcome.status, outcome.started, outcome.reason.clone());
        (Self { status, started, reason, error_code, error_message: None, sealed: None }, private)
    }
}

/// A run with its private parts sealed.
pub(super) struct RunRow {
    pub(super) org_id: OrgId,
    pub(super) id: RunId,
    pub(super) endpoint_id: EndpointId,
    pub(super) endpoint_name: String,
    pub(super) tool: String,
    pub(super) intent: String,
    pub(super) outcome: OutcomeRow,
    pub(super) provider_correlation_id: Option<String>,
    pub(super) operation_id: Option<OperationId>,
    pub(super) attempts: String,
    pub(super) arguments: Option<Vec<u8>>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
}

impl RunRow {
    pub(super) fn new(secrets: &SecretBox, run: &Run) -> Self {
        let intent = &run.intent;
        let withheld = run.withheld_result.as_ref();
        // What is still open gets another outcome, which is sealed by itself.
        let (outcome, together) = if run.outcome.status.is_open() {
            (OutcomeRow::new(secrets, intent.id, &run.outcome, withheld), None)
        } else {
            let (outcome, private) = OutcomeRow::apart(&run.outcome, withheld);
            (outcome, private.anything())
        };
        let arguments = ArgumentsRef {
            sent: intent.arguments_sent.raw(),
            coerced: intent.arguments_coerced.as_ref().map(JsonText::raw),
            outcome: together,
        };
        let fixed = IntentRef {
            agent_key: intent.agent_key.uuid(),
            dialect: intent.dialect.as_str(),
            kind: intent.kind.as_str(),
            llm_format: intent.llm_format,
            tool_hash: &intent.tool_hash,
            request_id: intent.request_id.as_deref(),
            caller: intent.caller.as_deref(),
            keyed: intent.keyed,
            confirmed: intent.confirmed,
            conversation: intent.context.conversation.as_deref(),
            turn: intent.context.turn.as_deref(),
            locale: intent.context.locale.as_deref(),
            timezone: intent.context.timezone.as_deref(),
        };
        Self {
            org_id: intent.org_id,
            id: intent.id,
            endpoint_id: intent.endpoint_id,
            endpoint_name: intent.endpoint_name.clone(),
            tool: intent.tool.clone(),
            intent: rows::to_text(&fixed),
            outcome,
            provider_correlation_id: run.provider_correlation_id.clone(),
            operation_id: run.operation_id,
            attempts: attempts_text(&run.attempts),
            arguments: Some(secrets.seal(rows::to_text(&arguments).as_bytes(), &place(ARGUMENTS, intent.id.uuid()))),
            created_at: intent.created_at,
            updated_at: run.updated_at,
            finished_at: run.finished_at,
            expires_at: intent.expires_at,
        }
    }

    /// How much is sealed: nearly all of a large run.
    pub(super) fn sealed_bytes(&self) -> usize {
        self.arguments.as_ref().map_or(0, Vec::len) + self.outcome.sealed.as_ref().map_or(0, Vec::len)
    }

    /// When the run is to be looked at, as long as it is open. While its receipt is looked for, its operation has a time
    /// of its own.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        let status = self.outcome.status;
        self.expires_at.filter(|_| status.is_open() && status != RunStatus::Inspecting)
    }

    /// The agent key that made it.
    pub(super) fn agent_key(&self) -> StoreResult<KeyId> {
        rows::from_text::<IntentDoc>("run", &self.intent)?.agent_key()
    }

    /// Reads a row without opening what is sealed.
    pub(super) fn read(row: &Row<'_>) -> StoreResult<Self> {
        let code = row.get::<_, Option<String>>(9)?;
        let code = code.map(|word| ErrorCode::parse(&word).ok_or_else(|| corrupt("run"))).transpose()?;
        Ok(Self {
            org_id: OrgId::from_uuid(uuid_at(row, 0)?),
            id: RunId::from_uuid(uuid_at(row, 1)?),
            endpoint_id: EndpointId::from_uuid(uuid_at(row, 2)?),
            endpoint_name: row.get(3)?,
            tool: row.get(4)?,
            intent: row.get(7)?,
            outcome: OutcomeRow {
                status: status_at(row, 5, 19)?,
                started: row.get(6)?,
                reason: row.get(8)?,
                error_code: code.map(ErrorCode::as_str),
                error_message: row.get(10)?,
                sealed: row.get(14)?,
            },
            provider_correlation_id: row.get(11)?,
            operation_id: maybe_uuid_at(row, 20)?.map(OperationId::from_uuid),
            attempts: row.get(12)?,
            arguments: row.get(13)?,
            created_at: time_at(row, 15)?,
            updated_at: time_at(row, 16)?,
            finished_at: maybe_time_at(row, 17)?,
            expires_at: maybe_time_at(row, 18)?,
        })
    }

    /// Opens what is sealed.
    pub(super) fn run(self, secrets: &SecretBox) -> StoreResult<Run> {
        let id = self.id.uuid();
        let fixed: IntentDoc = rows::from_text("run", &self.intent)?;
        let arguments: Option<ArgumentsDoc> =
            self.arguments.map(|sealed| opened(secrets, &sealed, &place(ARGUMENTS, id))).transpose()?;
        let (sent, coerced, together) = match arguments {
            Some(doc) => (JsonText::from(doc.sent), doc.coerced.map(JsonText::from), doc.outcome),
            None => (JsonText::of(&serde_json::Value::Null), None, None),
        };
        let private: OutcomeDoc = match &self.outcome.sealed {
            Some(sealed) => opened(secrets, sealed, &place(OUTCOME, id))?,
            None => together.unwrap_or_default(),
        };
        let message = private.message.or(self.outcome.error_message).unwrap_or_default();
        let code = self.outcome.error_code.and_then(ErrorCode::parse);
        let gateway = code.map(|code| RunError::Gateway { code, message });
        Ok(Run {
            intent: RunIntent {
                id: self.id,
                org_id: self.org_id,
                agent_key: fixed.agent_key()?,
                endpoint_id: self.endpoint_id,
                endpoint_name: self.endpoint_name,
                dialect: Dialect::parse(&fixed.dialect).ok_or_else(|| corrupt("run"))?,
                tool: self.tool,
                kind: ToolKind::parse(&fixed.kind).ok_or_else(|| corrupt("run"))?,
                llm_format: fixed.llm_format,
                tool_hash: fixed.tool_hash,
                request_id: fixed.request_id,
                caller: fixed.caller,
                keyed: fixed.keyed,
                confirmed: fixed.confirmed,
                context: CallContext {
                    conversation: fixed.conversation,
                    turn: fixed.turn,
                    locale: fixed.locale,
                    timezone: fixed.timezone,
                },
                arguments_sent: sent,
                arguments_coerced: coerced,
                created_at: self.created_at,
                expires_at: self.expires_at,
            },
            outcome: RunOutcome {
                status: self.outcome.status,
                started: self.outcome.started,
                result: private.result.map(JsonText::from),
                error: private.provider_error.map(|error| RunError::Provider(error.into())).or(gateway),
                reason: self.outcome.reason,
            },
            provider_correlation_id: self.provider_correlation_id,
            withheld_result: private.withheld.map(JsonText::from),
            operation_id: self.operation_id,
            attempts: attempts_of(&self.attempts)?,
            updated_at: self.updated_at,
            finished_at: self.finished_at,
        })
    }
}

/// The status of a run: of the two with one word the open one is still being looked into.
pub(super) fn status_at(row: &Row<'_>, word: usize, open: usize) -> StoreResult<RunStatus> {
    let status = RunStatus::parse(text_at(row, word, "run")?).ok_or_else(|| corrupt("run"))?;
    let open: bool = row.get(open)?;
    Ok(if open && status == RunStatus::Uncertain { RunStatus::Inspecting } else { status })
}

fn opened<T: serde::de::DeserializeOwned>(secrets: &SecretBox, sealed: &[u8], place: &str) -> StoreResult<T> {
    let plain = secrets.open(sealed, place).map_err(|_| corrupt("run"))?;
    serde_json::from_slice(&plain).map_err(|_| corrupt("run"))
}

fn attempt_doc(attempt: &Attempt) -> AttemptDoc<'_> {
    AttemptDoc {
        at: attempt.at.as_millis(),
        duration_ms: attempt.duration_ms,
        outcome: Cow::Borrowed(&attempt.outcome),
        http_status: attempt.http_status,
    }
}

pub(super) fn attempts_text(attempts: &[Attempt]) -> String {
    rows::to_text(&attempts.iter().map(attempt_doc).collect::<Vec<_>>())
}

fn attempts_of(text: &str) -> StoreResult<Vec<Attempt>> {
    let docs: Vec<AttemptDoc<'_>> = rows::from_text("run", text)?;
    Ok(docs
        .into_iter()
        .map(|doc| Attempt {
            at: Timestamp::from_millis(doc.at),
            duration_ms: doc.duration_ms,
            outcome: doc.outcome.into_owned(),
            http_status: doc.http_status,
        })
        .collect())
}

/// The attempts of `text` with `more` behind them.
pub(super) fn appended(text: &str, more: &[Attempt]) -> StoreResult<String> {
    let mut docs: Vec<AttemptDoc<'_>> = rows::from_text("run", text)?;
    docs.extend(more.iter().map(attempt_doc));
    Ok(rows::to_text(&docs))
}
