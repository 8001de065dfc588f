//! Operations: what is fixed, one row a run, and how far each has come. What can be sealed is sealed before the writer is
//! asked.
//!
//! **Invariant:** a step is taken only upon the one before it, whoever takes it.

use super::pages::Filling;
use super::rows::{self, millis};
use super::tool_rows::ProviderTermsDoc;
use super::{Db, bytes, corrupt, maybe_time_at, pages, place, text_at, time_at, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::ids::{EndpointId, OperationId, OrgId, RunId};
use crate::domain::json::JsonText;
use crate::domain::operation::{Operation, OperationIntent, OperationMark, OperationProgress, OperationState};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{OperationView, Page, PageRequest, StoreError, StoreResult};
use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const BODY: &str = "operations.body";
const RECEIPT: &str = "operations.receipt";

/// The columns that [`read`] takes, in its order.
const COLUMNS: &str = "o.org_id, o.run_id, o.id, o.endpoint_id, o.fingerprint, o.intent, o.body, o.created_at, o.state, \
                       o.step, o.attempts, o.looks, o.sent_at, o.next_at, o.receipt, o.updated_at";

/// An intent but for its ids, its fingerprint, its body and its time, which are columns.
#[derive(Serialize, Deserialize)]
struct IntentDoc {
    origin: String,
    provider_tool: String,
    terms: ProviderTermsDoc,
    trace_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locale: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    timeout_ms: u64,
}

impl IntentDoc {
    fn of(intent: &OperationIntent) -> Self {
        Self {
            origin: intent.origin.clone(),
            provider_tool: intent.provider_tool.clone(),
            terms: ProviderTermsDoc::of(&intent.terms),
            trace_id: intent.trace_id.clone(),
            locale: intent.locale.clone(),
            timezone: intent.timezone.clone(),
            timeout_ms: millis(intent.timeout),
        }
    }
}

/// How far an operation has come, with its receipt sealed.
pub(super) struct ProgressRow {
    state: OperationState,
    step: u32,
    attempts: u32,
    looks: u32,
    sent_at: Option<Timestamp>,
    pub(super) next_at: Option<Timestamp>,
    receipt: Option<Vec<u8>>,
    updated_at: Timestamp,
}

impl ProgressRow {
    pub(super) fn new(secrets: &SecretBox, run: RunId, progress: &OperationProgress) -> Self {
        let receipt = progress.receipt.as_ref();
        Self {
            state: progress.state,
            step: progress.step,
            attempts: progress.attempts,
            looks: progress.looks,
            sent_at: progress.sent_at,
            next_at: progress.next_at,
            receipt: receipt.map(|text| secrets.seal(text.as_str().as_bytes(), &place(RECEIPT, run.uuid()))),
            updated_at: progress.updated_at,
        }
    }
}

/// An operation with its private parts sealed.
pub(super) struct OperationRow {
    pub(super) id: OperationId,
    org_id: OrgId,
    run_id: RunId,
    endpoint_id: EndpointId,
    fingerprint: String,
    intent: String,
    body: Vec<u8>,
    created_at: Timestamp,
    pub(super) progress: ProgressRow,
}

impl OperationRow {
    pub(super) fn new(secrets: &SecretBox, operation: &Operation) -> Self {
        let intent = &operation.intent;
        let place = place(BODY, intent.run_id.uuid());
        Self {
            id: intent.mark.id,
            org_id: intent.org_id,
            run_id: intent.run_id,
            endpoint_id: intent.endpoint_id,
            fingerprint: intent.mark.fingerprint.clone(),
            intent: rows::to_text(&IntentDoc::of(intent)),
            body: secrets.seal(intent.body.as_str().as_bytes(), &place),
            created_at: intent.created_at,
            progress: ProgressRow::new(secrets, intent.run_id, &operation.progress),
        }
    }
}

pub(super) fn insert(db: &Db<'_>, row: &OperationRow) -> StoreResult<()> {
    let progress = &row.progress;
    db.execute(
        "INSERT INTO operations (org_id, run_id, id, endpoint_id, fingerprint, intent, body, created_at, state, step,
             attempts, looks, sent_at, next_at, receipt, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        params![
            bytes(row.org_id.uuid()),
            bytes(row.run_id.uuid()),
            bytes(row.id.uuid()),
            bytes(row.endpoint_id.uuid()),
            row.fingerprint,
            row.intent,
            row.body,
            row.created_at.as_millis(),
            progress.state.as_str(),
            progress.step,
            progress.attempts,
            progress.looks,
            progress.sent_at.map(Timestamp::as_millis),
            progress.next_at.map(Timestamp::as_millis),
            progress.receipt,
            progress.updated_at.as_millis(),
        ],
    )?;
    Ok(())
}

/// Takes a step upon the one before it.
pub(super) fn update(db: &Db<'_>, (org, run): (OrgId, RunId), progress: &ProgressRow) -> StoreResult<()> {
    let (org, run) = (bytes(org.uuid()), bytes(run.uuid()));
    let updated = db.execute(
        "UPDATE operations SET state = ?3, step = ?4, attempts = ?5, looks = ?6, sent_at = ?7, next_at = ?8,
             receipt = ?9, updated_at = ?10
         WHERE run_id = ?1 AND org_id = ?2 AND step = ?4 - 1",
        (
            run,
            org,
            progress.state.as_str(),
            progress.step,
            progress.attempts,
            progress.looks,
            progress.sent_at.map(Timestamp::as_millis),
            progress.next_at.map(Timestamp::as_millis),
            &progress.receipt,
            progress.updated_at.as_millis(),
        ),
    )?;
    match updated {
        0 if db.exists("SELECT 1 FROM operations WHERE run_id = ?1 AND org_id = ?2", (run, org))? => {
            Err(StoreError::Stale)
        }
        0 => Err(StoreError::NotFound),
        _ => Ok(()),
    }
}

/// Ends what is under way about the operation of a run that ends without the provider's last word: one that may have been
/// applied is uncertain. It counts as a step, so that whoever is at it still comes too late.
pub(super) fn abandon(db: &Db<'_>, run: RunId, at: Timestamp) -> StoreResult<()> {
    db.execute(
        "UPDATE operations SET state = CASE state WHEN 'prepared' THEN state ELSE 'uncertain' END, step = step + 1,
             next_at = NULL, updated_at = ?2
         WHERE run_id = ?1 AND state IN ('prepared', 'sent', 'uncertain')",
        (bytes(run.uuid()), at.as_millis()),
    )?;
    Ok(())
}

/// What a purge leaves is `null`, as a run's arguments are then.
fn read(db: &Db<'_>, row: &Row<'_>) -> StoreResult<Operation> {
    let run_id = RunId::from_uuid(uuid_at(row, 1)?);
    let sealed = |column: usize, name: &str| -> StoreResult<Option<JsonText>> {
        let Some(sealed) = row.get_ref(column)?.as_blob_or_null().map_err(|_| corrupt("operation"))? else {
            return Ok(None);
        };
        let text = db.open_sealed(sealed, name, run_id.uuid())?;
        JsonText::parse(&text).map(Some).map_err(|_| corrupt("operation"))
    };
    let doc: IntentDoc = rows::from_text("operation", text_at(row, 5, "operation")?)?;
    let id = OperationId::from_uuid(uuid_at(row, 2)?);
    Ok(Operation {
        intent: OperationIntent {
            mark: OperationMark { id, fingerprint: row.get(4)? },
            org_id: OrgId::from_uuid(uuid_at(row, 0)?),
            run_id,
            endpoint_id: EndpointId::from_uuid(uuid_at(row, 3)?),
            origin: doc.origin,
            provider_tool: doc.provider_tool,
            terms: Arc::new(doc.terms.terms()?),
            body: sealed(6, BODY)?.unwrap_or_else(|| JsonText::of(&serde_json::Value::Null)),
            trace_id: doc.trace_id,
            locale: doc.locale,
            timezone: doc.timezone,
            timeout: Duration::from_millis(doc.timeout_ms),
            created_at: time_at(row, 7)?,
        },
        progress: OperationProgress {
            state: OperationState::parse(text_at(row, 8, "operation")?).ok_or_else(|| corrupt("operation"))?,
            step: row.get(9)?,
            attempts: row.get(10)?,
            looks: row.get(11)?,
            sent_at: maybe_time_at(row, 12)?,
            next_at: maybe_time_at(row, 13)?,
            receipt: sealed(14, RECEIPT)?,
            updated_at: time_at(row, 15)?,
        },
    })
}

pub(super) fn of_run(db: &Db<'_>, org: OrgId, run: RunId) -> StoreResult<Option<Operation>> {
    let sql = format!("SELECT {COLUMNS} FROM operations o WHERE o.run_id = ?1 AND o.org_id = ?2");
    db.find(&sql, (bytes(run.uuid()), bytes(org.uuid())), |row| read(db, row))
}

/// What a list reads of an operation; [`listed`] takes it.
fn listed_from(conditions: &str) -> String {
    format!(
        "SELECT {COLUMNS}, r.tool, r.endpoint_name
         FROM operations o CROSS JOIN runs r ON r.org_id = o.org_id AND r.id = o.run_id {conditions}"
    )
}

fn listed(db: &Db<'_>, row: &Row<'_>) -> StoreResult<OperationView> {
    Ok(OperationView { operation: read(db, row)?, tool: row.get(16)?, endpoint: row.get(17)? })
}

pub(super) fn view(db: &Db<'_>, org: OrgId, id: OperationId) -> StoreResult<Option<OperationView>> {
    let sql = listed_from("WHERE o.id = ?1 AND o.org_id = ?2");
    db.find(&sql, (bytes(id.uuid()), bytes(org.uuid())), |row| listed(db, row))
}

pub(super) fn list(
    db: &Db<'_>,
    org: OrgId,
    state: Option<OperationState>,
    page: &PageRequest,
) -> StoreResult<Page<OperationView>> {
    let (at, id) = pages::before(page)?;
    let sql = listed_from(
        "WHERE o.org_id = ?1 AND (o.created_at, o.id) < (?2, ?3) AND (?4 IS NULL OR o.state = ?4)
         ORDER BY o.created_at DESC, o.id DESC LIMIT ?5",
    );
    let params = (bytes(org.uuid()), at.as_millis(), bytes(id), state.map(OperationState::as_str), pages::rows(page));
    let mut filling = Filling::default();
    let found = db.until(&sql, params, |row| {
        let view = listed(db, row)?;
        let receipt = view.operation.progress.receipt.as_ref().map_or(0, |receipt| receipt.as_str().len());
        let bytes = receipt + view.operation.intent.body.as_str().len();
        Ok(filling.takes(bytes).then_some(view))
    })?;
    Ok(pages::filled_page(found, page, &filling, |view| {
        let intent = &view.operation.intent;
        (intent.created_at, intent.mark.id.uuid())
    }))
}
