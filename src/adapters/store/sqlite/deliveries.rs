//! Messages to an organization's application. Each is stored in the transaction of what it tells about, so that neither
//! is there without the other.

use super::{Db, audit, bytes, corrupt, maybe_time_at, pages, text_at, time_at, uuid_at};
use crate::domain::announcement::{Announcement, Delivery, DeliveryState};
use crate::domain::ids::{DeliveryId, OrgId};
use crate::domain::json::JsonText;
use crate::domain::time::Timestamp;
use crate::engine::store_port::{DeliveryAttempt, Page, PageRequest, StoreError, StoreResult};
use rusqlite::Row;
use uuid::{Builder, Uuid};

const COLUMNS: &str = "id, org_id, event, body, state, attempts, next_at, last_error, created_at, updated_at";

/// An id of its time: the store is what makes messages, and the time is given to it.
fn new_id(at: Timestamp) -> Uuid {
    let millis = u64::try_from(at.as_millis()).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid()
}

/// Stores a message, due at once, when the organization has an application that listens. `what` is made only then.
pub(super) fn announce(
    db: &Db<'_>,
    org: OrgId,
    at: Timestamp,
    what: impl FnOnce() -> StoreResult<Announcement>,
) -> StoreResult<()> {
    let org = bytes(org.uuid());
    if !db.exists("SELECT 1 FROM orgs WHERE id = ?1 AND announces", (org,))? {
        return Ok(());
    }
    let what = what()?;
    db.execute(
        "INSERT INTO deliveries (id, org_id, event, body, state, attempts, next_at, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, 'pending', 0, ?5, ?5, ?5)",
        (bytes(new_id(at)), org, what.event(), what.body(at).as_str(), at.as_millis()),
    )?;
    Ok(())
}

fn delivery_of(row: &Row<'_>) -> StoreResult<Delivery> {
    Ok(Delivery {
        id: DeliveryId::from_uuid(uuid_at(row, 0)?),
        org_id: OrgId::from_uuid(uuid_at(row, 1)?),
        event: row.get(2)?,
        body: JsonText::parse(text_at(row, 3, "delivery")?).map_err(|_| corrupt("delivery"))?,
        state: DeliveryState::parse(text_at(row, 4, "delivery")?).ok_or_else(|| corrupt("delivery"))?,
        attempts: row.get(5)?,
        next_at: maybe_time_at(row, 6)?,
        last_error: row.get(7)?,
        created_at: time_at(row, 8)?,
        updated_at: time_at(row, 9)?,
    })
}

pub(super) fn delivery(db: &Db<'_>, org: OrgId, id: DeliveryId) -> StoreResult<Option<Delivery>> {
    let sql = format!("SELECT {COLUMNS} FROM deliveries WHERE id = ?1 AND org_id = ?2");
    db.find(&sql, (bytes(id.uuid()), bytes(org.uuid())), delivery_of)
}

/// Nobody listens any more: what waits for its next attempt is due, to be given up.
pub(super) fn let_go(db: &Db<'_>, org: OrgId, at: Timestamp) -> StoreResult<()> {
    let sql = "UPDATE deliveries SET next_at = ?2 WHERE org_id = ?1 AND state = 'pending' AND next_at > ?2";
    db.execute(sql, (bytes(org.uuid()), at.as_millis()))?;
    Ok(())
}

/// Notes an attempt. What is settled stays settled: a second attempt may have been under way when a lease ran out.
pub(super) fn note(db: &Db<'_>, attempt: DeliveryAttempt) -> StoreResult<()> {
    let (id, org) = (bytes(attempt.id.uuid()), bytes(attempt.org_id.uuid()));
    let noted = db.execute(
        "UPDATE deliveries SET state = ?3, attempts = attempts + 1, next_at = ?4, last_error = ?5, updated_at = ?6
         WHERE id = ?1 AND org_id = ?2 AND state = 'pending'",
        (
            id,
            org,
            attempt.state.as_str(),
            attempt.next_at.map(Timestamp::as_millis),
            &attempt.error,
            attempt.at.as_millis(),
        ),
    )?;
    if noted == 0 {
        let known = db.exists("SELECT 1 FROM deliveries WHERE id = ?1 AND org_id = ?2", (id, org))?;
        return if known { Ok(()) } else { Err(StoreError::NotFound) };
    }
    attempt.audit.map_or(Ok(()), |entry| audit::append(db, entry))
}

pub(super) fn list(
    db: &Db<'_>,
    org: OrgId,
    state: Option<DeliveryState>,
    page: &PageRequest,
) -> StoreResult<Page<Delivery>> {
    let (at, id) = pages::before(page)?;
    let sql = format!(
        "SELECT {COLUMNS} FROM deliveries
         WHERE org_id = ?1 AND (created_at, id) < (?2, ?3) AND (?4 IS NULL OR state = ?4)
         ORDER BY created_at DESC, id DESC LIMIT ?5"
    );
    let params = (bytes(org.uuid()), at.as_millis(), bytes(id), state.map(DeliveryState::as_str), pages::rows(page));
    let found = db.all(&sql, params, delivery_of)?;
    Ok(pages::page(found, page, |delivery| (delivery.created_at, delivery.id.uuid())))
}
