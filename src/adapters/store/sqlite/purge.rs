//! What is past its retention goes, in portions small enough that nobody waits long for the writer.

use super::{Db, bytes, uuid_at};
use crate::domain::time::Timestamp;
use crate::engine::store_port::StoreResult;
use rusqlite::Row;
use uuid::Uuid;

/// Most rows of one portion.
pub(super) const PORTION: usize = 500;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const AUDIT_MS: i64 = 90 * DAY_MS;
const SYNCS_MS: i64 = 30 * DAY_MS;
const DELIVERIES_MS: i64 = 7 * DAY_MS;
/// A node that was away longer takes every organization for changed.
const FEED_MS: i64 = HOUR_MS;

/// What is purged by each organization's own retention. Looking for it goes through many rows, so a reader does that
/// and the writer gets only what it found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Retained {
    /// Arguments and results of finished runs.
    Payloads,
    /// Finished runs.
    Runs,
}

/// Past their retention or not, runs stay whole as long as a live key may ask for them, or something is still to be done
/// about their operation.
const UNNEEDED: &str = "NOT EXISTS (SELECT 1 FROM reservations v WHERE v.run_id = r.id AND v.expires_at > ?1)
                     AND (r.operation_id IS NULL OR NOT EXISTS (
                         SELECT 1 FROM operations p WHERE p.run_id = r.id AND p.next_at IS NOT NULL))";

/// A finished run that is past a retention.
pub(super) struct Past {
    seq: i64,
    org: Uuid,
    run: Uuid,
    has_operation: bool,
    created_at: i64,
    before: i64,
}

/// Where the next portion begins.
#[derive(Clone, Copy)]
pub(super) struct From {
    org: Uuid,
    created_at: i64,
}

impl From {
    pub(super) const BEGINNING: Self = Self { org: Uuid::nil(), created_at: i64::MIN };

    pub(super) fn after(last: &Past) -> Self {
        Self { org: last.org, created_at: last.created_at }
    }
}

impl Retained {
    pub(super) const ALL: [Retained; 2] = [Retained::Payloads, Retained::Runs];

    /// Finds a portion. A run is made before it ends: the indexes on its making serve to find those that ended long
    /// enough ago. Payloads are found through all organizations by time, runs organization by organization.
    pub(super) fn find(self, db: &Db<'_>, now: Timestamp, from: From) -> StoreResult<Vec<Past>> {
        let read = |row: &Row<'_>| {
            Ok(Past {
                seq: row.get(0)?,
                org: uuid_at(row, 1)?,
                created_at: row.get(2)?,
                before: row.get(3)?,
                run: uuid_at(row, 4)?,
                has_operation: row.get(5)?,
            })
        };
        match self {
            Retained::Payloads => db.all(
                &format!(
                    "SELECT r.seq, r.org_id, r.created_at, ?1 - o.result_retention_h * 3600000, r.id,
                     r.operation_id IS NOT NULL
                 FROM runs r CROSS JOIN orgs o ON o.id = r.org_id
                 WHERE r.arguments IS NOT NULL AND r.created_at >= ?2 AND NOT r.open
                     AND r.created_at < ?1 - (SELECT min(result_retention_h) FROM orgs) * 3600000
                     AND coalesce(r.finished_at, r.updated_at) < ?1 - o.result_retention_h * 3600000
                     AND {UNNEEDED}
                 ORDER BY r.created_at LIMIT ?3"
                ),
                (now.as_millis(), from.created_at, PORTION),
                read,
            ),
            Retained::Runs => db.all(
                &format!(
                    "SELECT r.seq, r.org_id, r.created_at, ?1 - o.run_retention_h * 3600000, r.id,
                     r.operation_id IS NOT NULL
                 FROM orgs o CROSS JOIN runs r ON r.org_id = o.id
                 WHERE o.id >= ?2 AND r.created_at < ?1 - o.run_retention_h * 3600000 AND NOT r.open
                     AND coalesce(r.finished_at, r.updated_at) < ?1 - o.run_retention_h * 3600000
                     AND {UNNEEDED}
                 ORDER BY o.id LIMIT ?3"
                ),
                (now.as_millis(), bytes(from.org), PORTION),
                read,
            ),
        }
    }

    /// Purges what was found, looking again: the row may have gone and its number been given anew.
    pub(super) fn purge(self, db: &Db<'_>, found: &[Past]) -> StoreResult<()> {
        let sql = match self {
            Retained::Payloads => {
                "UPDATE runs SET arguments = NULL, outcome = NULL
                 WHERE seq = ?1 AND org_id = ?2 AND NOT open AND coalesce(finished_at, updated_at) < ?3"
            }
            Retained::Runs => {
                "DELETE FROM runs
                 WHERE seq = ?1 AND org_id = ?2 AND NOT open AND coalesce(finished_at, updated_at) < ?3"
            }
        };
        for past in found {
            let purged = db.execute(sql, (past.seq, bytes(past.org), past.before))? > 0;
            // The rest of an operation goes with its run.
            if purged && past.has_operation && matches!(self, Retained::Payloads) {
                let sql = "UPDATE operations SET body = NULL, receipt = NULL WHERE run_id = ?1 AND org_id = ?2";
                db.execute(sql, (bytes(past.run), bytes(past.org)))?;
            }
        }
        Ok(())
    }
}

/// What is purged by one time for all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// What deleted organizations left.
    DeletedOrgs,
    /// `webhook-id`s and kept callbacks.
    Callbacks,
    /// Used confirmation tokens.
    Tokens,
    /// Reserved keys of agents.
    Reservations,
    /// Writes and the answers to them.
    Writes,
    /// Messages that were delivered or given up.
    Deliveries,
    /// Records of syncs.
    Syncs,
    /// The audit trail.
    Audit,
    /// The change feed.
    Feed,
}

impl Step {
    pub(super) const ALL: [Step; 9] = [
        Step::DeletedOrgs,
        Step::Callbacks,
        Step::Tokens,
        Step::Reservations,
        Step::Writes,
        Step::Deliveries,
        Step::Syncs,
        Step::Audit,
        Step::Feed,
    ];

    /// Purges one portion; true when there may be more.
    pub(super) fn portion(self, db: &Db<'_>, now: Timestamp) -> StoreResult<bool> {
        let now = now.as_millis();
        let before = |sql: &str, before: i64| db.execute(sql, (before, PORTION));
        let purged = match self {
            Step::DeletedOrgs => return delete_orphans(db),
            Step::Callbacks => before(
                "DELETE FROM callbacks WHERE rowid IN (SELECT rowid FROM callbacks WHERE expires_at <= ?1 LIMIT ?2)",
                now,
            ),
            Step::Tokens => before(
                "DELETE FROM tokens WHERE nonce_hash IN (
                     SELECT nonce_hash FROM tokens WHERE expires_at <= ?1 LIMIT ?2)",
                now,
            ),
            Step::Reservations => before(
                "DELETE FROM reservations WHERE (org_id, agent_key, key) IN (
                     SELECT v.org_id, v.agent_key, v.key FROM reservations v
                     WHERE v.expires_at <= ?1 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = v.run_id AND r.open)
                     LIMIT ?2)",
                now,
            ),
            Step::Writes => before(
                "DELETE FROM writes WHERE rowid IN (SELECT rowid FROM writes WHERE expires_at <= ?1 LIMIT ?2)",
                now,
            ),
            Step::Deliveries => before(
                "DELETE FROM deliveries WHERE rowid IN (
                     SELECT rowid FROM deliveries WHERE state <> 'pending' AND updated_at < ?1 LIMIT ?2)",
                now.saturating_sub(DELIVERIES_MS),
            ),
            Step::Syncs => before(
                "DELETE FROM syncs WHERE rowid IN (SELECT rowid FROM syncs WHERE at < ?1 LIMIT ?2)",
                now.saturating_sub(SYNCS_MS),
            ),
            Step::Audit => before(
                "DELETE FROM audit WHERE rowid IN (SELECT rowid FROM audit WHERE at < ?1 LIMIT ?2)",
                now.saturating_sub(AUDIT_MS),
            ),
            // Only from its beginning: a hole would hide a change from whoever reads on from before it.
            Step::Feed => before(
                "DELETE FROM feed WHERE position IN (
                     SELECT position FROM feed
                     WHERE position < coalesce(
                         (SELECT position FROM feed WHERE at >= ?1 ORDER BY position LIMIT 1), 9223372036854775807)
                     ORDER BY position LIMIT ?2)",
                now.saturating_sub(FEED_MS),
            ),
        }?;
        Ok(purged == PORTION)
    }
}

/// Deletes a portion of the runs, with what hangs on them, and messages of deleted organizations; true when there may be
/// more.
pub(super) fn delete_orphans(db: &Db<'_>) -> StoreResult<bool> {
    let runs = db.execute(
        "DELETE FROM runs WHERE seq IN (
             SELECT r.seq FROM orgs o CROSS JOIN runs r ON r.org_id = o.id WHERE o.state = 'deleted' LIMIT ?1)",
        (PORTION,),
    )?;
    let deliveries = db.execute(
        "DELETE FROM deliveries WHERE rowid IN (
             SELECT d.rowid FROM orgs o CROSS JOIN deliveries d ON d.org_id = o.id WHERE o.state = 'deleted'
             LIMIT ?1)",
        (PORTION,),
    )?;
    Ok(runs == PORTION || deliveries == PORTION)
}
