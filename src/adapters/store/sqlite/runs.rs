//! Runs: the hot durable path. What can be prepared (documents, sealing) is prepared before the writer is asked.

use super::run_rows::{self, BARE_COLUMNS, COLUMNS, OutcomeRow, RunRow};
use super::{Db, bytes, callbacks, corrupt, pages, text_at, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::ids::{EndpointId, OrgId, RunId};
use crate::domain::run::{Attempt, Run, RunStatus};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{
    CallbackRecord, InsertedRun, Page, PageRequest, RunChange, RunFilter, StoreError, StoreResult, TokenUse, UsageRow,
};
use rusqlite::{CachedStatement, Row, Statement, params};
use uuid::Uuid;

const INSERTED: &str = "org_id, id, endpoint_id, endpoint_name, tool, status, open, started, intent, reason, \
                        error_code, error_message, provider_correlation_id, attempts, arguments, outcome, \
                        created_at, updated_at, finished_at, expires_at, due_at";
const VALUES: &str = "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21";

/// A change with its private parts sealed.
pub(super) struct ChangeRow {
    org_id: OrgId,
    run_id: RunId,
    outcome: OutcomeRow,
    attempts: Vec<Attempt>,
    at: Timestamp,
}

impl ChangeRow {
    pub(super) fn new(secrets: &SecretBox, change: &RunChange) -> Self {
        Self {
            org_id: change.org_id,
            run_id: change.run_id,
            outcome: OutcomeRow::new(secrets, change.run_id, &change.outcome, change.withheld_result.as_ref()),
            attempts: change.attempts.clone(),
            at: change.at,
        }
    }

    pub(super) fn org_id(&self) -> OrgId {
        self.org_id
    }

    pub(super) fn run_id(&self) -> RunId {
        self.run_id
    }

    pub(super) fn at(&self) -> Timestamp {
        self.at
    }
}

/// Whether a change took place, and the run as it is now.
pub(super) enum Changed {
    Now(Box<RunRow>),
    WasFinal(Box<RunRow>),
}

fn insert_row(statement: &mut Statement<'_>, row: &RunRow) -> StoreResult<usize> {
    let inserted = statement.execute(params![
        bytes(row.org_id.uuid()),
        bytes(row.id.uuid()),
        bytes(row.endpoint_id.uuid()),
        row.endpoint_name,
        row.tool,
        row.outcome.status.as_str(),
        row.outcome.status.is_open(),
        row.outcome.started,
        row.intent,
        row.outcome.reason,
        row.outcome.error_code,
        row.outcome.error_message,
        row.provider_correlation_id,
        row.attempts,
        row.arguments,
        row.outcome.sealed,
        row.created_at.as_millis(),
        row.updated_at.as_millis(),
        row.finished_at.map(Timestamp::as_millis),
        row.expires_at.map(Timestamp::as_millis),
        row.due_at().map(Timestamp::as_millis),
    ])?;
    Ok(inserted)
}

/// Which run a used token started.
pub(super) fn of_token(db: &Db<'_>, nonce_hash: [u8; 32]) -> StoreResult<Option<RunId>> {
    let sql = "SELECT run_id FROM tokens WHERE nonce_hash = ?1";
    db.find(sql, (nonce_hash,), |row| Ok(RunId::from_uuid(uuid_at(row, 0)?)))
}

pub(super) fn insert(db: &Db<'_>, row: &RunRow, token: Option<TokenUse>) -> StoreResult<InsertedRun> {
    if let Some(token) = &token
        && let Some(run) = of_token(db, token.nonce_hash)?
    {
        return Ok(InsertedRun::TokenUsed(run));
    }
    let sql = format!("INSERT INTO runs ({INSERTED}) SELECT {VALUES} FROM endpoints WHERE id = ?3 AND org_id = ?1");
    if insert_row(&mut *db.conn.prepare_cached(&sql)?, row)? == 0 {
        return Err(StoreError::NotFound);
    }
    if let Some(token) = token {
        db.execute(
            "INSERT INTO tokens (nonce_hash, run_id, expires_at) VALUES (?1, ?2, ?3)",
            (token.nonce_hash, bytes(row.id.uuid()), token.expires_at.as_millis()),
        )?;
    }
    Ok(InsertedRun::Inserted)
}

/// Records finished runs, as many as one transaction holds: what they have in common is prepared and asked once.
pub(super) struct Recorder<'a> {
    db: &'a Db<'a>,
    insert: CachedStatement<'a>,
    /// The organization of the last run, and whether it is still there: within the transaction that does not change.
    last_org: Option<(OrgId, bool)>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(db: &'a Db<'a>) -> rusqlite::Result<Self> {
        let insert = db.conn.prepare_cached(&format!("INSERT OR IGNORE INTO runs ({INSERTED}) VALUES ({VALUES})"))?;
        Ok(Self { db, insert, last_org: None })
    }

    /// Records a run; one of an organization that is gone is passed over.
    pub(super) fn record(&mut self, run: &Run) -> StoreResult<()> {
        if self.is_there(run.intent.org_id)? {
            insert_row(&mut self.insert, &RunRow::new(self.db.secrets, run))?;
        }
        Ok(())
    }

    fn is_there(&mut self, org: OrgId) -> StoreResult<bool> {
        if let Some((_, is_there)) = self.last_org.filter(|(last, _)| *last == org) {
            return Ok(is_there);
        }
        let sql = "SELECT 1 FROM orgs WHERE id = ?1 AND state <> 'deleted'";
        let is_there = self.db.exists(sql, (bytes(org.uuid()),))?;
        self.last_org = Some((org, is_there));
        Ok(is_there)
    }
}

pub(super) fn find(db: &Db<'_>, org: OrgId, id: RunId) -> StoreResult<Option<RunRow>> {
    let sql = format!("SELECT {COLUMNS} FROM runs WHERE org_id = ?1 AND id = ?2");
    db.find(&sql, (bytes(org.uuid()), bytes(id.uuid())), RunRow::read)
}

fn id_and_status(row: &Row<'_>) -> StoreResult<(RunId, RunStatus)> {
    let status = RunStatus::parse(text_at(row, 1, "run")?).ok_or_else(|| corrupt("run"))?;
    Ok((RunId::from_uuid(uuid_at(row, 0)?), status))
}

/// How a run stands, without the rest of it.
pub(super) fn status(db: &Db<'_>, org: OrgId, id: RunId) -> StoreResult<Option<RunStatus>> {
    let sql = "SELECT id, status FROM runs WHERE org_id = ?1 AND id = ?2";
    Ok(db.find(sql, (bytes(org.uuid()), bytes(id.uuid())), id_and_status)?.map(|(_, status)| status))
}

/// How the run of an endpoint stands that has our id.
pub(super) fn status_by_id(
    db: &Db<'_>,
    (org, endpoint): (OrgId, EndpointId),
    id: RunId,
) -> StoreResult<Option<(RunId, RunStatus)>> {
    let sql = "SELECT id, status FROM runs WHERE org_id = ?1 AND id = ?2 AND endpoint_id = ?3";
    db.find(sql, (bytes(org.uuid()), bytes(id.uuid()), bytes(endpoint.uuid())), id_and_status)
}

/// How the run of an endpoint stands that bears the provider's own id: an open one before one that is final, then the
/// newest.
pub(super) fn status_by_correlation(
    db: &Db<'_>,
    (org, endpoint): (OrgId, EndpointId),
    correlation_id: &str,
) -> StoreResult<Option<(RunId, RunStatus)>> {
    let sql = "SELECT id, status FROM runs WHERE endpoint_id = ?1 AND provider_correlation_id = ?2 AND org_id = ?3
         ORDER BY open DESC, created_at DESC, id DESC LIMIT 1";
    db.find(sql, (bytes(endpoint.uuid()), correlation_id, bytes(org.uuid())), id_and_status)
}

pub(super) fn change(db: &Db<'_>, change: ChangeRow) -> StoreResult<Changed> {
    let Some(mut row) = find(db, change.org_id, change.run_id)? else { return Err(StoreError::NotFound) };
    if row.outcome.status.is_open() {
        return Ok(Changed::Now(Box::new(apply(db, row, change)?)));
    }
    if !change.attempts.is_empty() {
        row.attempts = run_rows::appended(&row.attempts, &change.attempts)?;
        db.execute(
            "UPDATE runs SET attempts = ?3 WHERE org_id = ?1 AND id = ?2",
            (bytes(row.org_id.uuid()), bytes(row.id.uuid()), &row.attempts),
        )?;
    }
    Ok(Changed::WasFinal(Box::new(row)))
}

/// Gives an open run its next outcome.
pub(super) fn apply(db: &Db<'_>, mut row: RunRow, change: ChangeRow) -> StoreResult<RunRow> {
    let open = change.outcome.status.is_open();
    row.outcome = change.outcome;
    row.updated_at = change.at;
    row.finished_at = (!open).then_some(change.at);
    if !change.attempts.is_empty() {
        row.attempts = run_rows::appended(&row.attempts, &change.attempts)?;
    }
    db.execute(
        "UPDATE runs SET status = ?3, open = ?4, started = ?5, reason = ?6, error_code = ?7, error_message = ?8,
             outcome = ?9, attempts = ?10, updated_at = ?11, finished_at = ?12,
             due_at = CASE WHEN ?4 THEN due_at END
         WHERE org_id = ?1 AND id = ?2",
        (
            bytes(row.org_id.uuid()),
            bytes(row.id.uuid()),
            row.outcome.status.as_str(),
            open,
            row.outcome.started,
            &row.outcome.reason,
            row.outcome.error_code,
            &row.outcome.error_message,
            &row.outcome.sealed,
            &row.attempts,
            row.updated_at.as_millis(),
            row.finished_at.map(Timestamp::as_millis),
        ),
    )?;
    Ok(row)
}

pub(super) fn accept(
    db: &Db<'_>,
    (org, id): (OrgId, RunId),
    correlation_id: &str,
    attempt: &Attempt,
    at: Timestamp,
) -> StoreResult<Option<CallbackRecord>> {
    let Some(row) = find(db, org, id)? else { return Err(StoreError::NotFound) };
    let attempts = run_rows::appended(&row.attempts, std::slice::from_ref(attempt))?;
    db.execute(
        "UPDATE runs SET provider_correlation_id = ?3, attempts = ?4, updated_at = ?5 WHERE org_id = ?1 AND id = ?2",
        (bytes(org.uuid()), bytes(id.uuid()), correlation_id, attempts, at.as_millis()),
    )?;
    callbacks::claim(db, row.endpoint_id, id, correlation_id, at)
}

pub(super) fn list(db: &Db<'_>, org: OrgId, filter: &RunFilter, page: &PageRequest) -> StoreResult<Page<Run>> {
    let (at, id): (Timestamp, Uuid) = pages::before(page)?;
    let sql = format!(
        "SELECT {COLUMNS} FROM runs
         WHERE org_id = ?1 AND (created_at, id) < (?2, ?3) AND (?4 IS NULL OR status = ?4)
             AND (?5 IS NULL OR tool = ?5) AND (?6 IS NULL OR endpoint_name = ?6)
         ORDER BY created_at DESC, id DESC LIMIT ?7"
    );
    let params = (
        bytes(org.uuid()),
        at.as_millis(),
        bytes(id),
        filter.status.map(RunStatus::as_str),
        filter.tool.as_deref(),
        filter.endpoint.as_deref(),
        pages::rows(page),
    );
    let found = db.all(&sql, params, |row| RunRow::read(row)?.run(db.secrets))?;
    Ok(pages::page(found, page, |run| (run.intent.created_at, run.intent.id.uuid())))
}

pub(super) fn open(db: &Db<'_>, org: OrgId) -> StoreResult<Vec<Run>> {
    let sql = format!("SELECT {BARE_COLUMNS} FROM runs WHERE org_id = ?1 AND open ORDER BY created_at, id");
    db.all(&sql, (bytes(org.uuid()),), |row| RunRow::read(row)?.run(db.secrets))
}

pub(super) fn usage(db: &Db<'_>, org: OrgId, from: Timestamp, to: Timestamp) -> StoreResult<Vec<UsageRow>> {
    db.all(
        "SELECT tool, status, count(*) FROM runs WHERE org_id = ?1 AND created_at >= ?2 AND created_at < ?3
         GROUP BY tool, status ORDER BY tool, status",
        (bytes(org.uuid()), from.as_millis(), to.as_millis()),
        |row| {
            let status = RunStatus::parse(text_at(row, 1, "run")?).ok_or_else(|| corrupt("run"))?;
            Ok(UsageRow { tool: row.get(0)?, status, runs: row.get(2)? })
        },
    )
}

/// Ends the open runs of an organization, or of one endpoint of it, as cancelled.
pub(super) fn cancel_open(
    db: &Db<'_>,
    org: OrgId,
    endpoint: Option<EndpointId>,
    reason: &str,
    at: Timestamp,
) -> StoreResult<Vec<RunId>> {
    db.all(
        "UPDATE runs SET status = 'cancelled', open = 0, reason = ?3, updated_at = ?4, finished_at = ?4, due_at = NULL
         WHERE org_id = ?1 AND open AND (?2 IS NULL OR endpoint_id = ?2) RETURNING id",
        (bytes(org.uuid()), endpoint.map(|id| bytes(id.uuid())), reason, at.as_millis()),
        |row| Ok(RunId::from_uuid(uuid_at(row, 0)?)),
    )
}
