//! The audit trail.

use super::{Db, bytes, corrupt, pages, rows, text_at, time_at, uuid_at, writes};
use crate::domain::ids::{AuditId, OrgId};
use crate::domain::json::JsonText;
use crate::engine::store_port::{AuditEntry, Page, PageRequest, StoreResult};
use rusqlite::Row;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An entry but for its ids and its time, which are columns.
#[derive(Serialize, Deserialize)]
struct EntryDoc {
    actor_kind: String,
    actor_id: String,
    actor_name: String,
    action: String,
    object: String,
    changes: Box<RawValue>,
    from: String,
}

/// Appends an entry. The write that it is part of counts as made from then on.
pub(super) fn append(db: &Db<'_>, entry: AuditEntry) -> StoreResult<()> {
    let (id, org, at, write) = (entry.id, entry.org_id, entry.at, entry.write);
    let doc = EntryDoc {
        actor_kind: entry.actor_kind,
        actor_id: entry.actor_id,
        actor_name: entry.actor_name,
        action: entry.action,
        object: entry.object,
        changes: entry.changes.raw().to_owned(),
        from: entry.from,
    };
    db.execute(
        "INSERT INTO audit (id, org_id, at, entry) VALUES (?1, ?2, ?3, ?4)",
        (bytes(id.uuid()), bytes(org.uuid()), at.as_millis(), rows::to_text(&doc)),
    )?;
    write.map_or(Ok(()), |write| writes::made(db, &write))
}

/// Entries of an organization, newest first.
pub(super) fn list(db: &Db<'_>, org: OrgId, page: &PageRequest) -> StoreResult<Page<AuditEntry>> {
    let (at, id) = pages::before(page)?;
    let found = db.all(
        "SELECT id, org_id, at, entry FROM audit WHERE org_id = ?1 AND (at, id) < (?2, ?3)
         ORDER BY at DESC, id DESC LIMIT ?4",
        (bytes(org.uuid()), at.as_millis(), bytes(id), pages::rows(page)),
        entry_of,
    )?;
    Ok(pages::page(found, page, |entry| (entry.at, entry.id.uuid())))
}

fn entry_of(row: &Row<'_>) -> StoreResult<AuditEntry> {
    let doc: EntryDoc = serde_json::from_str(text_at(row, 3, "audit entry")?).map_err(|_| corrupt("audit entry"))?;
    Ok(AuditEntry {
        id: AuditId::from_uuid(uuid_at(row, 0)?),
        org_id: OrgId::from_uuid(uuid_at(row, 1)?),
        at: time_at(row, 2)?,
        actor_kind: doc.actor_kind,
        actor_id: doc.actor_id,
        actor_name: doc.actor_name,
        action: doc.action,
        object: doc.object,
        changes: JsonText::from(doc.changes),
        from: doc.from,
        write: None,
    })
}
