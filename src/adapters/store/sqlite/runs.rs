//! Runs: the hot durable path. What can be prepared (documents, sealing) is prepared before the writer is asked.

use super::operations::{self, ProgressRow};
use super::pages::Filling;
use super::run_rows::{self, BARE_COLUMNS, COLUMNS, OutcomeRow, RunRow};
use super::{Db, admission, approvals, bytes, callbacks, corrupt, deliveries, pages, text_at, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::announcement::Announcement;
use crate::domain::approval::ApprovalEnd;
use crate::domain::ids::{EndpointId, OperationId, OrgId, RunId};
use crate::domain::run::{Attempt, Run, RunStatus};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{
    CallbackRecord, Page, PageRequest, RunChange, RunFilter, StoreError, StoreResult, UsageRow,
};
use rusqlite::{CachedStatement, Row, Statement, params};
use std::time::Duration;
use uuid::Uuid;

const INSERTED: &str = "org_id, id, endpoint_id, endpoint_name, tool, status, open, started, intent, reason, \
                        error_code, error_message, provider_correlation_id, attempts, arguments, outcome, \
                        created_at, updated_at, finished_at, expires_at, due_at, operation_id";
const VALUES: &str = "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
                      ?22";

/// A change with its private parts sealed.
pub(super) struct ChangeRow {
    org_id: OrgId,
    run_id: RunId,
    outcome: OutcomeRow,
    attempts: Vec<Attempt>,
    operation: Option<ProgressRow>,
    approval: Option<ApprovalEnd>,
    by_sender: bool,
    at: Timestamp,
}

impl ChangeRow {
    pub(super) fn new(secrets: &SecretBox, change: &RunChange) -> Self {
        Self {
            org_id: change.org_id,
            run_id: change.run_id,
            outcome: OutcomeRow::new(secrets, change.run_id, &change.outcome, change.withheld_result.as_ref()),
            attempts: change.attempts.clone(),
            operation: change.operation.as_ref().map(|step| ProgressRow::new(secrets, change.run_id, step)),
            approval: change.approval.clone(),
            by_sender: change.by_sender,
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

fn insert_row(statement: &mut Statement<'_>, row: &RunRow, due_at: Option<Timestamp>) -> StoreResult<usize> {
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
        due_at.map(Timestamp::as_millis),
        row.operation_id.map(|id| bytes(id.uuid())),
    ])?;
    Ok(inserted)
}

/// Stores a new run; false when its endpoint is gone.
pub(super) fn insert(db: &Db<'_>, row: &RunRow, due_at: Option<Timestamp>) -> StoreResult<bool> {
    let sql = format!("INSERT INTO runs ({INSERTED}) SELECT {VALUES} FROM endpoints WHERE id = ?3 AND org_id = ?1");
    let inserted = insert_row(&mut *db.conn.prepare_cached(&sql)?, row, due_at)? > 0;
    if inserted && !row.outcome.status.is_open() {
        announce_end(db, row, row.updated_at)?;
    }
    Ok(inserted)
}

/// Tells the organization's application that a run is final.
fn announce_end(db: &Db<'_>, row: &RunRow, at: Timestamp) -> StoreResult<()> {
    deliveries::announce(db, row.org_id, at, || {
        Ok(Announcement::RunFinished {
            run: row.id,
            tool: row.tool.clone(),
            endpoint: row.endpoint_name.clone(),
            status: row.outcome.status,
        })
    })
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
    pub(super) fn record(&mut self, run: &Run, announced: bool) -> StoreResult<()> {
        if !self.is_there(run.intent.org_id)? {
            return Ok(());
        }
        let row = RunRow::new(self.db.secrets, run);
        let recorded = insert_row(&mut self.insert, &row, row.due_at())?;
        if announced && recorded > 0 { announce_end(self.db, &row, row.updated_at) } else { Ok(()) }
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
    Ok((RunId::from_uuid(uuid_at(row, 0)?), run_rows::status_at(row, 1, 2)?))
}

/// How a run stands, without the rest of it.
pub(super) fn status(db: &Db<'_>, org: OrgId, id: RunId) -> StoreResult<Option<RunStatus>> {
    let sql = "SELECT id, status, open FROM runs WHERE org_id = ?1 AND id = ?2";
    Ok(db.find(sql, (bytes(org.uuid()), bytes(id.uuid())), id_and_status)?.map(|(_, status)| status))
}

/// How the run of an endpoint stands that has our id.
pub(super) fn status_by_id(
    db: &Db<'_>,
    (org, endpoint): (OrgId, EndpointId),
    id: RunId,
) -> StoreResult<Option<(RunId, RunStatus)>> {
    let sql = "SELECT id, status, open FROM runs WHERE org_id = ?1 AND id = ?2 AND endpoint_id = ?3";
    db.find(sql, (bytes(org.uuid()), bytes(id.uuid()), bytes(endpoint.uuid())), id_and_status)
}

/// How the run of an endpoint stands that bears the provider's own id: an open one before one that is final, then the
/// newest.
pub(super) fn status_by_correlation(
    db: &Db<'_>,
    (org, endpoint): (OrgId, EndpointId),
    correlation_id: &str,
) -> StoreResult<Option<(RunId, RunStatus)>> {
    let sql =
        "SELECT id, status, open FROM runs WHERE endpoint_id = ?1 AND provider_correlation_id = ?2 AND org_id = ?3
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

/// An agent's key is kept for at least this long after the last word of its run.
const KEY_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Gives an open run its next outcome, along with what hangs on it.
pub(super) fn apply(db: &Db<'_>, mut row: RunRow, change: ChangeRow) -> StoreResult<RunRow> {
    let was_held = row.outcome.status == RunStatus::AwaitingApproval;
    if !change.by_sender && is_outrun(&row, &change.outcome) {
        return Err(StoreError::Stale);
    }
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
             due_at = CASE WHEN ?4 AND ?3 <> 'uncertain' THEN due_at END
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
    let run = (row.org_id, row.id);
    if let Some(step) = &change.operation {
        operations::update(db, run, step)?;
    }
    match &change.approval {
        Some(end) if !approvals::end(db, run, end, change.at)? && approvals::of_run(db, run.0, run.1)?.is_some() => {
            // It ended before, and this run goes on by that.
            return Err(StoreError::Stale);
        }
        None if !open && was_held => {
            approvals::close(db, run, row.outcome.reason.as_deref(), change.at)?;
        }
        Some(_) | None => {}
    }
    if !open {
        let never_sent = row.outcome.status == RunStatus::Failed || change.by_sender;
        if never_sent && !row.outcome.started {
            admission::free(db, row.id)?;
        } else {
            admission::keep(db, row.id, change.at.plus(KEY_KEPT_FOR))?;
        }
        announce_end(db, &row, change.at)?;
    }
    Ok(row)
}

/// Whether a run was started since somebody decided to end it as one that was not.
fn is_outrun(row: &RunRow, outcome: &OutcomeRow) -> bool {
    let unsent = match outcome.status {
        RunStatus::Denied | RunStatus::Cancelled | RunStatus::Expired => !outcome.started,
        // A provider may say that nothing was started after all.
        RunStatus::Failed
        | RunStatus::Started
        | RunStatus::Pending
        | RunStatus::Completed
        | RunStatus::AwaitingApproval
        | RunStatus::Inspecting
        | RunStatus::Uncertain => false,
    };
    unsent && row.outcome.started
}

/// Takes the right to send a run that was approved.
pub(super) fn start(
    db: &Db<'_>,
    (org, id): (OrgId, RunId),
    operation: Option<&ProgressRow>,
    expires_at: Timestamp,
    at: Timestamp,
) -> StoreResult<bool> {
    // An operation has a time of its own.
    let due_at = if operation.is_some_and(|step| step.next_at.is_some()) { None } else { Some(expires_at) };
    let started = db.execute(
        "UPDATE runs SET started = 1, expires_at = ?3, due_at = ?4, updated_at = ?5
         WHERE org_id = ?1 AND id = ?2 AND status = 'pending' AND started = 0",
        (bytes(org.uuid()), bytes(id.uuid()), expires_at.as_millis(), due_at.map(Timestamp::as_millis), at.as_millis()),
    )?;
    if started == 0 {
        return Ok(false);
    }
    if let Some(step) = operation {
        operations::update(db, (org, id), step)?;
    }
    Ok(true)
}

/// Sets when an open run is to be looked at.
pub(super) fn set_due(db: &Db<'_>, (org, id): (OrgId, RunId), at: Option<Timestamp>) -> StoreResult<()> {
    let sql = "UPDATE runs SET due_at = ?3 WHERE org_id = ?1 AND id = ?2 AND open";
    db.execute(sql, (bytes(org.uuid()), bytes(id.uuid()), at.map(Timestamp::as_millis)))?;
    Ok(())
}

/// Notes which operation a run sends.
pub(super) fn set_operation(db: &Db<'_>, (org, id): (OrgId, RunId), operation: OperationId) -> StoreResult<()> {
    let sql = "UPDATE runs SET operation_id = ?3 WHERE org_id = ?1 AND id = ?2";
    db.execute(sql, (bytes(org.uuid()), bytes(id.uuid()), bytes(operation.uuid())))?;
    Ok(())
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
    let mut filling = Filling::default();
    let found = db.until(&sql, params, |row| {
        let row = RunRow::read(row)?;
        if filling.takes(row.sealed_bytes()) { row.run(db.secrets).map(Some) } else { Ok(None) }
    })?;
    Ok(pages::filled_page(found, page, &filling, |run| (run.intent.created_at, run.intent.id.uuid())))
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

/// Ends the open runs of an organization that goes, or of one endpoint of an organization that stays. A mutation that may
/// have been applied ends as uncertain, anything else as cancelled.
pub(super) fn cancel_open(
    db: &Db<'_>,
    org: OrgId,
    endpoint: Option<EndpointId>,
    reason: &str,
    at: Timestamp,
) -> StoreResult<Vec<RunId>> {
    let ended = db.all(
        "UPDATE runs SET open = 0, reason = ?3, updated_at = ?4, finished_at = ?4, due_at = NULL,
             status = CASE
                 WHEN status = 'uncertain' THEN status
                 WHEN operation_id IS NOT NULL AND (SELECT o.state FROM operations o WHERE o.run_id = runs.id)
                     IN ('sent', 'uncertain') THEN 'uncertain'
                 WHEN status = 'pending' AND started AND NOT (
                     json_extract(intent, '$.dialect') = 'topology' AND json_extract(intent, '$.kind') = 'query')
                     THEN 'uncertain'
                 ELSE 'cancelled'
             END
         WHERE org_id = ?1 AND open AND (?2 IS NULL OR endpoint_id = ?2)
         RETURNING id, tool, endpoint_name, status, operation_id IS NOT NULL",
        (bytes(org.uuid()), endpoint.map(|id| bytes(id.uuid())), reason, at.as_millis()),
        |row| {
            let end = Announcement::RunFinished {
                run: RunId::from_uuid(uuid_at(row, 0)?),
                tool: row.get(1)?,
                endpoint: row.get(2)?,
                status: RunStatus::parse(text_at(row, 3, "run")?).ok_or_else(|| corrupt("run"))?,
            };
            Ok((RunId::from_uuid(uuid_at(row, 0)?), end, row.get::<_, bool>(4)?))
        },
    )?;
    let mut runs = Vec::with_capacity(ended.len());
    for (run, end, has_operation) in ended {
        if has_operation {
            operations::abandon(db, run, at)?;
        }
        approvals::close(db, (org, run), Some(reason), at)?;
        if endpoint.is_some() {
            deliveries::announce(db, org, at, || Ok(end))?;
        }
        runs.push(run);
    }
    Ok(runs)
}
