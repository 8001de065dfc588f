//! Approvals: who is asked about a run that is held, and the one decision that lets it go.
//!
//! **Invariant:** an approval is open only while its run is held; both end in one transaction.

use super::operations::{self, OperationRow};
use super::pages::Filling;
use super::run_rows::RunRow;
use super::runs::{self, ChangeRow};
use super::{Db, audit, bytes, corrupt, deliveries, keys, maybe_time_at, pages, text_at, time_at, uuid_at};
use crate::domain::announcement::Announcement;
use crate::domain::approval::{Approval, ApprovalEnd, ApprovalStage, ApprovalState};
use crate::domain::ids::{ApprovalId, OrgId, RunId};
use crate::domain::key::AgentKey;
use crate::domain::risk::Risk;
use crate::domain::run::RunStatus;
use crate::domain::time::Timestamp;
use crate::engine::store_port::{ApprovalView, Decision, Page, PageRequest, RunChange, StoreError, StoreResult};
use rusqlite::{Row, params};

const COLUMNS: &str = "id, org_id, run_id, risk, state, stage, call_hash, idempotency_key, reviewer_until, expires_at, \
                       decided_by, note, created_at, updated_at, setting_hash";

fn approval_of(row: &Row<'_>) -> StoreResult<Approval> {
    let risk: Option<String> = row.get(3)?;
    Ok(Approval {
        id: ApprovalId::from_uuid(uuid_at(row, 0)?),
        org_id: OrgId::from_uuid(uuid_at(row, 1)?),
        run_id: RunId::from_uuid(uuid_at(row, 2)?),
        risk: risk.map(|word| Risk::parse(&word).ok_or_else(|| corrupt("approval"))).transpose()?,
        state: ApprovalState::parse(text_at(row, 4, "approval")?).ok_or_else(|| corrupt("approval"))?,
        stage: ApprovalStage::parse(text_at(row, 5, "approval")?).ok_or_else(|| corrupt("approval"))?,
        call_hash: row.get(6)?,
        idempotency_key: row.get(7)?,
        reviewer_until: maybe_time_at(row, 8)?,
        expires_at: time_at(row, 9)?,
        decided_by: row.get(10)?,
        note: row.get(11)?,
        created_at: time_at(row, 12)?,
        updated_at: time_at(row, 13)?,
        setting_hash: row.get(14)?,
    })
}

/// When a held run is to be looked at.
pub(super) fn due_at(approval: &Approval) -> Timestamp {
    match approval.stage {
        ApprovalStage::Reviewer => approval.reviewer_until.unwrap_or(approval.expires_at).min(approval.expires_at),
        ApprovalStage::Teammate => approval.expires_at,
    }
}

/// Stores an approval; a teammate who is asked is announced.
pub(super) fn insert(db: &Db<'_>, approval: &Approval, run: &RunRow) -> StoreResult<()> {
    db.execute(
        "INSERT INTO approvals (id, org_id, run_id, risk, state, stage, call_hash, idempotency_key, reviewer_until,
             expires_at, decided_by, note, created_at, updated_at, setting_hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            bytes(approval.id.uuid()),
            bytes(approval.org_id.uuid()),
            bytes(approval.run_id.uuid()),
            approval.risk.map(Risk::as_str),
            approval.state.as_str(),
            approval.stage.as_str(),
            approval.call_hash,
            approval.idempotency_key,
            approval.reviewer_until.map(Timestamp::as_millis),
            approval.expires_at.as_millis(),
            approval.decided_by,
            approval.note,
            approval.created_at.as_millis(),
            approval.updated_at.as_millis(),
            approval.setting_hash,
        ],
    )?;
    match (approval.state, approval.stage) {
        (ApprovalState::Open, ApprovalStage::Teammate) => announce(db, approval, run, approval.created_at),
        (ApprovalState::Open, ApprovalStage::Reviewer)
        | (ApprovalState::Approved | ApprovalState::Denied | ApprovalState::Expired, _) => Ok(()),
    }
}

fn announce(db: &Db<'_>, approval: &Approval, run: &RunRow, at: Timestamp) -> StoreResult<()> {
    deliveries::announce(db, approval.org_id, at, || {
        Ok(Announcement::ApprovalOpened {
            approval: approval.id,
            run: run.id,
            tool: run.tool.clone(),
            endpoint: run.endpoint_name.clone(),
            expires_at: approval.expires_at,
        })
    })
}

pub(super) fn find(db: &Db<'_>, org: OrgId, id: ApprovalId) -> StoreResult<Option<Approval>> {
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE id = ?1 AND org_id = ?2");
    db.find(&sql, (bytes(id.uuid()), bytes(org.uuid())), approval_of)
}

pub(super) fn of_run(db: &Db<'_>, org: OrgId, run: RunId) -> StoreResult<Option<Approval>> {
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE run_id = ?1 AND org_id = ?2");
    db.find(&sql, (bytes(run.uuid()), bytes(org.uuid())), approval_of)
}

/// The run that holds an identical call: the one of the same key before any other, then the oldest.
pub(super) fn holder(db: &Db<'_>, approval: &Approval) -> StoreResult<Option<RunId>> {
    db.find(
        "SELECT run_id FROM approvals
         WHERE org_id = ?1 AND call_hash = ?2 AND state = 'open' AND (?3 IS NULL OR idempotency_key = ?3)
         ORDER BY idempotency_key IS ?3 DESC, created_at, id LIMIT 1",
        (bytes(approval.org_id.uuid()), approval.call_hash, &approval.idempotency_key),
        |row| Ok(RunId::from_uuid(uuid_at(row, 0)?)),
    )
}

fn with_run(db: &Db<'_>, approval: Approval) -> StoreResult<ApprovalView> {
    let run = runs::find(db, approval.org_id, approval.run_id)?.ok_or_else(|| corrupt("approval"))?;
    Ok(ApprovalView { approval, run: run.run(db.secrets)? })
}

pub(super) fn view(db: &Db<'_>, org: OrgId, id: ApprovalId) -> StoreResult<Option<ApprovalView>> {
    find(db, org, id)?.map(|approval| with_run(db, approval)).transpose()
}

pub(super) fn list(
    db: &Db<'_>,
    org: OrgId,
    state: Option<ApprovalState>,
    page: &PageRequest,
) -> StoreResult<Page<ApprovalView>> {
    let (at, id) = pages::before(page)?;
    let sql = format!(
        "SELECT {COLUMNS} FROM approvals
         WHERE org_id = ?1 AND (created_at, id) < (?2, ?3) AND (?4 IS NULL OR state = ?4)
             AND (state <> 'open' OR stage = 'teammate')
         ORDER BY created_at DESC, id DESC LIMIT ?5"
    );
    let params = (bytes(org.uuid()), at.as_millis(), bytes(id), state.map(ApprovalState::as_str), pages::rows(page));
    let mut filling = Filling::default();
    let found = db.until(&sql, params, |row| {
        let view = with_run(db, approval_of(row)?)?;
        Ok(filling.takes(view.run.intent.arguments().as_str().len()).then_some(view))
    })?;
    Ok(pages::filled_page(found, page, &filling, |view| (view.approval.created_at, view.approval.id.uuid())))
}

/// Ends the approval of a run; false when it has none that is open.
pub(super) fn end(db: &Db<'_>, (org, run): (OrgId, RunId), end: &ApprovalEnd, at: Timestamp) -> StoreResult<bool> {
    let ended = db.execute(
        "UPDATE approvals SET state = ?3, decided_by = ?4, note = ?5, updated_at = ?6
         WHERE run_id = ?1 AND org_id = ?2 AND state = 'open'",
        (bytes(run.uuid()), bytes(org.uuid()), end.state.as_str(), &end.decided_by, &end.note, at.as_millis()),
    )?;
    Ok(ended > 0)
}

/// Closes the approval, if it is still open, of a run that ended without one being given.
pub(super) fn close(db: &Db<'_>, run: (OrgId, RunId), reason: Option<&str>, at: Timestamp) -> StoreResult<()> {
    let denied = ApprovalEnd { state: ApprovalState::Denied, decided_by: None, note: reason.map(str::to_owned) };
    end(db, run, &denied, at).map(drop)
}

pub(super) fn pass_to_teammate(db: &Db<'_>, org: OrgId, run: RunId, at: Timestamp) -> StoreResult<bool> {
    let passed = db.execute(
        "UPDATE approvals SET stage = 'teammate', updated_at = ?3
         WHERE run_id = ?1 AND org_id = ?2 AND state = 'open' AND stage = 'reviewer'",
        (bytes(run.uuid()), bytes(org.uuid()), at.as_millis()),
    )?;
    if passed == 0 {
        return Ok(false);
    }
    let approval = of_run(db, org, run)?.ok_or_else(|| corrupt("approval"))?;
    let held = runs::find(db, org, run)?.ok_or_else(|| corrupt("approval"))?;
    runs::set_due(db, (org, run), Some(due_at(&approval)))?;
    announce(db, &approval, &held, at)?;
    Ok(true)
}

/// What deciding found, with the run as a row.
pub(super) enum Decided {
    Now(Box<Approval>, Box<RunRow>),
    Before(Box<Approval>),
    Changed,
}

pub(super) fn decide(db: &Db<'_>, decision: Decision, operation: Option<OperationRow>) -> StoreResult<Decided> {
    let org = decision.org_id;
    let Some(approval) = find(db, org, decision.approval_id)? else { return Err(StoreError::NotFound) };
    let passed_on = decision.stage == ApprovalStage::Reviewer && approval.stage == ApprovalStage::Teammate;
    if approval.state != ApprovalState::Open || passed_on {
        return Ok(Decided::Before(Box::new(approval)));
    }
    let held = runs::find(db, org, approval.run_id)?.filter(|run| run.outcome.status == RunStatus::AwaitingApproval);
    let held = held.ok_or_else(|| corrupt("approval"))?;
    if !is_as_checked(db, &decision, &held)? {
        return Ok(Decided::Changed);
    }
    let run = (org, approval.run_id);
    let change = RunChange {
        org_id: org,
        run_id: approval.run_id,
        outcome: decision.outcome,
        withheld_result: None,
        attempts: Vec::new(),
        operation: None,
        approval: Some(decision.end),
        by_sender: false,
        at: decision.at,
    };
    let mut now = runs::apply(db, held, ChangeRow::new(db.secrets, &change))?;
    let sql = "UPDATE approvals SET stage = ?3 WHERE id = ?1 AND org_id = ?2";
    db.execute(sql, (bytes(decision.approval_id.uuid()), bytes(org.uuid()), decision.stage.as_str()))?;
    if now.outcome.status.is_open() {
        runs::set_due(db, run, decision.due_at)?;
        if let Some(operation) = operation {
            operations::insert(db, &operation)?;
            runs::set_operation(db, run, operation.id)?;
            now.operation_id = Some(operation.id);
        }
    }
    if let Some(entry) = decision.audit {
        audit::append(db, entry)?;
    }
    let approval = find(db, org, decision.approval_id)?.ok_or_else(|| corrupt("approval"))?;
    Ok(Decided::Now(Box::new(approval), Box::new(now)))
}

/// Whether what a yes was checked on still holds: the organization, which works, and a key that is still good and was not
/// changed, since no change of a key is one of the revision. A no needs no
/// more than it says.
fn is_as_checked(db: &Db<'_>, decision: &Decision, run: &RunRow) -> StoreResult<bool> {
    let sql = "SELECT revision, state = 'active' FROM orgs WHERE id = ?1 AND state <> 'deleted'";
    let found =
        db.find(sql, (bytes(decision.org_id.uuid()),), |row| Ok((row.get::<_, u64>(0)?, row.get::<_, bool>(1)?)))?;
    let Some((revision, is_active)) = found else { return Ok(false) };
    if decision.expected_revision.is_some_and(|expected| expected != revision) {
        return Ok(false);
    }
    if decision.end.state != ApprovalState::Approved {
        return Ok(true);
    }
    let key: Option<AgentKey> = keys::by_id(db, decision.org_id, run.agent_key()?)?;
    let key_is_good = key.is_some_and(|key| {
        decision.agent_key_version == Some(key.version) && key.expires_at.is_none_or(|end| decision.at < end)
    });
    Ok(is_active && key_is_good)
}
