//! The due table: columns of what is due, read through one ordered query.

use super::{Db, bytes, uuid_at};
use crate::domain::ids::{EndpointId, OrgId, RunId};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{Due, StoreResult};
use std::time::Duration;

/// Whether anything may be due: asked of a reader first, so that an idle gateway does not keep its writer busy.
pub(super) fn anything(db: &Db<'_>, now: Timestamp) -> StoreResult<bool> {
    db.exists(
        "SELECT 1 FROM runs WHERE due_at <= ?1
         UNION ALL
         SELECT 1 FROM endpoints e JOIN orgs o ON o.id = e.org_id
             WHERE e.sync_due_at <= ?1 AND e.enabled AND o.state = 'active'
         LIMIT 1",
        (now.as_millis(),),
    )
}

/// Takes what is due and moves its time on by `lease`. Syncs of organizations that do not work are passed over.
pub(super) fn take(db: &Db<'_>, now: Timestamp, lease: Duration, limit: usize) -> StoreResult<Vec<Due>> {
    let due = db.all(
        "SELECT 1, org_id, id, due_at FROM runs WHERE due_at <= ?1
         UNION ALL
         SELECT 0, e.org_id, e.id, e.sync_due_at FROM endpoints e JOIN orgs o ON o.id = e.org_id
             WHERE e.sync_due_at <= ?1 AND e.enabled AND o.state = 'active'
         ORDER BY 4, 3 LIMIT ?2",
        (now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)),
        |row| {
            let org = OrgId::from_uuid(uuid_at(row, 1)?);
            let id = uuid_at(row, 2)?;
            let is_run: bool = row.get(0)?;
            Ok(if is_run {
                Due::RunExpiry(org, RunId::from_uuid(id))
            } else {
                Due::Sync(org, EndpointId::from_uuid(id))
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
            Due::RunExpiry(org, run) => {
                let sql = "UPDATE runs SET due_at = ?3 WHERE org_id = ?1 AND id = ?2";
                db.execute(sql, (bytes(org.uuid()), bytes(run.uuid()), again))?;
            }
        }
    }
    Ok(due)
}
