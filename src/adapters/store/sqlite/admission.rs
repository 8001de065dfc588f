//! Admission: a new run with the token it uses, the key it takes, the operation it sends and the approval it waits for.

use super::approvals;
use super::operations::{self, OperationRow};
use super::run_rows::RunRow;
use super::runs;
use super::{Db, bytes, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::approval::Approval;
use crate::domain::ids::{KeyId, OrgId, RunId};
use crate::domain::run::{Run, RunStatus};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{Admission, InsertedRun, Reservation, Reserved, StoreError, StoreResult, TokenUse};

/// A new run and what comes along, with their private parts sealed.
pub(super) struct AdmissionRow {
    run: RunRow,
    agent_key: KeyId,
    token: Option<TokenUse>,
    reservation: Option<Reservation>,
    operation: Option<OperationRow>,
    approval: Option<Approval>,
}

impl AdmissionRow {
    pub(super) fn new(secrets: &SecretBox, run: &Run, admission: Admission) -> Self {
        let operation = admission.operation.map(|operation| OperationRow::new(secrets, &operation));
        let mut row = RunRow::new(secrets, run);
        row.operation_id = operation.as_ref().map(|operation| operation.id).or(row.operation_id);
        Self {
            run: row,
            agent_key: run.intent.agent_key,
            token: admission.token,
            reservation: admission.reservation,
            operation,
            approval: admission.approval,
        }
    }

    /// When the run is to be looked at: what it waits for says so, its operation by a time of its own.
    fn due_at(&self) -> Option<Timestamp> {
        match self.run.outcome.status {
            RunStatus::AwaitingApproval => self.approval.as_ref().map(approvals::due_at).or(self.run.expires_at),
            _ if self.operation.as_ref().is_some_and(|operation| operation.progress.next_at.is_some()) => None,
            _ => self.run.due_at(),
        }
    }
}

/// Which run a used token started.
pub(super) fn of_token(db: &Db<'_>, nonce_hash: [u8; 32]) -> StoreResult<Option<RunId>> {
    let sql = "SELECT run_id FROM tokens WHERE nonce_hash = ?1";
    db.find(sql, (nonce_hash,), |row| Ok(RunId::from_uuid(uuid_at(row, 0)?)))
}

fn use_token(db: &Db<'_>, token: &TokenUse, run: RunId) -> StoreResult<()> {
    db.execute(
        "INSERT INTO tokens (nonce_hash, run_id, expires_at) VALUES (?1, ?2, ?3)",
        (token.nonce_hash, bytes(run.uuid()), token.expires_at.as_millis()),
    )?;
    Ok(())
}

/// What a key is reserved for, unless its time is over: never before that of its run.
pub(super) fn reserved(
    db: &Db<'_>,
    (org, agent_key): (OrgId, KeyId),
    key: &str,
    at: Timestamp,
) -> StoreResult<Option<Reserved>> {
    db.find(
        "SELECT run_id, content_hash FROM reservations
         WHERE org_id = ?1 AND agent_key = ?2 AND key = ?3
             AND (expires_at > ?4 OR EXISTS (SELECT 1 FROM runs r WHERE r.id = run_id AND r.open))",
        (bytes(org.uuid()), bytes(agent_key.uuid()), key, at.as_millis()),
        |row| Ok(Reserved { run_id: RunId::from_uuid(uuid_at(row, 0)?), content_hash: row.get(1)? }),
    )
}

/// Takes a key that is free, or whose former reservation is over.
fn reserve(db: &Db<'_>, row: &AdmissionRow, reservation: &Reservation) -> StoreResult<()> {
    db.execute(
        "INSERT OR REPLACE INTO reservations (org_id, agent_key, key, run_id, content_hash, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (
            bytes(row.run.org_id.uuid()),
            bytes(row.agent_key.uuid()),
            &reservation.key,
            bytes(row.run.id.uuid()),
            reservation.content_hash,
            reservation.expires_at.as_millis(),
        ),
    )?;
    Ok(())
}

/// A run has its last word: its key is kept until then, or longer.
pub(super) fn keep(db: &Db<'_>, run: RunId, until: Timestamp) -> StoreResult<()> {
    let sql = "UPDATE reservations SET expires_at = max(expires_at, ?2) WHERE run_id = ?1";
    db.execute(sql, (bytes(run.uuid()), until.as_millis()))?;
    Ok(())
}

/// Frees the key that a run took.
pub(super) fn free(db: &Db<'_>, run: RunId) -> StoreResult<()> {
    db.execute("DELETE FROM reservations WHERE run_id = ?1", (bytes(run.uuid()),))?;
    Ok(())
}

pub(super) fn insert(db: &Db<'_>, row: &AdmissionRow) -> StoreResult<InsertedRun> {
    let run = &row.run;
    if let Some(reservation) = &row.reservation
        && let Some(taken) = reserved(db, (run.org_id, row.agent_key), &reservation.key, run.created_at)?
    {
        return Ok(InsertedRun::KeyTaken(taken));
    }
    if let Some(token) = &row.token
        && let Some(run) = of_token(db, token.nonce_hash)?
    {
        return Ok(InsertedRun::TokenUsed(run));
    }
    if let Some(approval) = &row.approval
        && let Some(holder) = approvals::holder(db, approval)?
    {
        if let Some(token) = &row.token {
            use_token(db, token, holder)?;
        }
        return Ok(InsertedRun::Attached(holder));
    }
    if !runs::insert(db, run, row.due_at())? {
        return Err(StoreError::NotFound);
    }
    if let Some(token) = &row.token {
        use_token(db, token, run.id)?;
    }
    if let Some(reservation) = &row.reservation {
        reserve(db, row, reservation)?;
    }
    if let Some(operation) = &row.operation {
        operations::insert(db, operation)?;
    }
    if let Some(approval) = &row.approval {
        approvals::insert(db, approval, run)?;
    }
    Ok(InsertedRun::Inserted)
}
