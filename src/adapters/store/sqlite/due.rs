//! The due table: columns of what is due, read through one ordered query.

use super::{Db, bytes, uuid_at, writes};
use crate::domain::ids::{DeliveryId, EndpointId, OrgId, RunId};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{Due, StoreResult};
use std::time::Duration;

/// Whether anything may be due: asked of a reader first, so that an idle gateway does not keep its writer busy.
pub(super) fn anything(db: &Db<'_>, now: Timestamp) -> StoreResult<bool> {
    db.exists(
        "SELECT 1 FROM runs WHERE due_at <= ?1
         UNION ALL
         SELECT 1 FROM operations WHERE next_at <= ?1
         UNION ALL
         SELECT 1 FROM deliveries WHERE next_at <= ?1
         UNION ALL
         SELECT 1 FROM endpoints e JOIN orgs o ON o.id = e.org_id
             WHERE e.sync_due_at <= ?1 AND e.enabled AND o.state = 'active'
         LIMIT 1",
        (now.as_millis(),),
    )
}

const SYNC: i64 = 0;
const RUN: i64 = 1;
const OPERATION: i64 = 2;

/// Takes what is due and moves its time on by `lease`. Syncs of organizations that do not work are passed over. The time
/// of an operation moves without being a step of it.
pub(super) fn take(db: &Db<'_>, now: Timestamp, lease: Duration, limit: usize) -> StoreResult<Vec<Due>> {
    let due = db.all(
        "SELECT 1, org_id, id, due_at FROM runs WHERE due_at <= ?1
         UNION ALL
         SELECT 2, org_id, run_id, next_at FROM operations WHERE next_at <= ?1
         UNION ALL
         SELECT 3, org_id, id, next_at FROM deliveries WHERE next_at <= ?1
         UNION ALL
         SELECT 0, e.org_id, e.id, e.sync_due_at FROM endpoints e JOIN orgs o ON o.id = e.org_id
             WHERE e.sync_due_at <= ?1 AND e.enabled AND o.state = 'active'
         ORDER BY 4, 3 LIMIT ?2",
        (now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)),
        |row| {
            let org = OrgId::from_uuid(uuid_at(row, 1)?);
            let id = uuid_at(row, 2)?;
            Ok(match row.get::<_, i64>(0)? {
                SYNC => Due::Sync(org, EndpointId::from_uuid(id)),
                RUN => Due::RunExpiry(org, RunId::from_uuid(id)),
                OPERATION => Due::Operation(org, RunId::from_uuid(id)),
                _ => Due::Delivery(org, DeliveryId::from_uuid(id)),
            })
        },
    )?;
    let again = now.plus(lease).as_millis();
    for entry in &due {
        match entry {
            Due::Sync(_, endpoint) => {
                let sql = "UPDATE endpoints SET sync_due_at = ?2 WHERE id = ?1";
                db.execute(sql, (bytes(endpoint.uuid()), again))?;
            }
            Due::Operation(org, run) => {
                let sql = "UPDATE operations SET next_at = ?3 WHERE run_id = ?2 AND org_id = ?1";
                db.execute(sql, (bytes(org.uuid()), bytes(run.uuid()), again))?;
            }
            Due::Delivery(org, delivery) => {
                let sql = "UPDATE deliveries SET next_at = ?3 WHERE id = ?2 AND org_id = ?1";
                db.execute(sql, (bytes(org.uuid()), bytes(delivery.uuid()), again))?;
            }
            Due::RunExpiry(org, run) => {
                let sql = "UPDATE runs SET due_at = ?3 WHERE org_id = ?1 AND id = ?2";
                db.execute(sql, (bytes(org.uuid()), bytes(run.uuid()), again))?;
            }
        }
    }
    Ok(due)
}

/// Makes due what a crash cut off: operations without their last word, runs that were approved and not sent, runs whose
/// reviewer nobody listens to any more. An operation whose receipt was being looked at had been given a lease, which
/// nobody is left to keep.
pub(super) fn recover(db: &Db<'_>, at: Timestamp) -> StoreResult<()> {
    // Both conditions are those of an index: what has a time is in `operations_due`, what is open in `runs_open`.
    let operations = "UPDATE operations SET next_at = ?1 WHERE next_at IS NOT NULL AND state IN ('sent', 'uncertain')";
    db.execute(operations, (at.as_millis(),))?;
    let runs = "UPDATE runs SET due_at = ?1 WHERE open AND status = 'pending' AND NOT started";
    db.execute(runs, (at.as_millis(),))?;
    let reviewed = "UPDATE runs SET due_at = ?1 WHERE open AND status = 'awaiting_approval' AND id IN
        (SELECT run_id FROM approvals WHERE state = 'open' AND stage = 'reviewer')";
    db.execute(reviewed, (at.as_millis(),))?;
    writes::recover(db)
}
