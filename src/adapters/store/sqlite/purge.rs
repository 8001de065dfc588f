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

/// A finished run that is past a retention.
pub(super) struct Past {
    seq: i64,
    org: Uuid,
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
            Ok(Past { seq: row.get(0)?, org: uuid_at(row, 1)?, created_at: row.get(2)?, before: row.get(3)? })
        };
        match self {
            Retained::Payloads => db.all(
                "SELECT r.seq, r.org_id, r.created_at, ?1 - o.result_retention_h * 3600000
                 FROM runs r CROSS JOIN orgs o ON o.id = r.org_id
                 WHERE r.arguments IS NOT NULL AND r.created_at >= ?2 AND NOT r.open
                     AND r.created_at < ?1 - (SELECT min(result_retention_h) FROM orgs) * 3600000
                     AND coalesce(r.finished_at, r.updated_at) < ?1 - o.result_retention_h * 3600000
                 ORDER BY r.created_at LIMIT ?3",
                (now.as_millis(), from.created_at, PORTION),
                read,
            ),
            Retained::Runs => db.all(
                "SELECT r.seq, r.org_id, r.created_at, ?1 - o.run_retention_h * 3600000
                 FROM orgs o CROSS JOIN runs r ON r.org_id = o.id
                 WHERE o.id >= ?2 AND r.created_at < ?1 - o.run_retention_h * 3600000 AND NOT r.open
                     AND coalesce(r.finished_at, r.updated_at) < ?1 - o.run_retention_h * 3600000
                 ORDER BY o.id LIMIT ?3",
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
            db.execute(sql, (past.seq, bytes(past.org), past.before))?;
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
    /// Records of syncs.
    Syncs,
    /// The audit trail.
    Audit,
    /// The change feed.
    Feed,
}

impl Step {
    pub(super) const ALL: [Step; 6] =
        [Step::DeletedOrgs, Step::Callbacks, Step::Tokens, Step::Syncs, Step::Audit, Step::Feed];

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

/// Deletes a portion of the runs of deleted organizations; true when there may be more.
pub(super) fn delete_orphans(db: &Db<'_>) -> StoreResult<bool> {
    let purged = db.execute(
        "DELETE FROM runs WHERE seq IN (
             SELECT r.seq FROM orgs o CROSS JOIN runs r ON r.org_id = o.id WHERE o.state = 'deleted' LIMIT ?1)",
        (PORTION,),
    )?;
    Ok(purged == PORTION)
}
