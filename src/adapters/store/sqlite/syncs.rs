//! Ends of syncs: the record, the endpoint's state, and, when one was applied, the whole new set of tools, in one step.

use super::rows::{self, SyncRecordDoc, SyncStateDoc};
use super::tool_rows::SpecDoc;
use super::{Db, bytes, deliveries, name_taken, orgs, pages, text_at, time_at, uuid_at};
use crate::domain::announcement::Announcement;
use crate::domain::ids::{EndpointId, OrgId, SyncId};
use crate::domain::naming;
use crate::domain::time::Timestamp;
use crate::engine::store_port::{NewToolSet, Page, PageRequest, StoreError, StoreResult, SyncEnd, SyncRecord};

/// How many syncs of an endpoint are kept.
const KEPT: u32 = 100;

pub(super) fn finish(db: &Db<'_>, end: &SyncEnd) -> StoreResult<()> {
    let endpoint = end.record.endpoint_id;
    announce_failure(db, end)?;
    let speaks_otherwise = end.tools.is_none() && protocol_version(db, end)? != end.state.protocol_version;
    let updated = db.execute(
        "UPDATE endpoints SET sync = ?3, sync_due_at = ?4 WHERE id = ?1 AND org_id = ?2",
        (
            bytes(endpoint.uuid()),
            bytes(end.org_id.uuid()),
            rows::to_text(&SyncStateDoc::of(&end.state)),
            end.next_due.map(Timestamp::as_millis),
        ),
    )?;
    if updated == 0 {
        return Err(StoreError::NotFound);
    }
    if let Some(set) = &end.tools {
        expect_revision(db, end.org_id, set.expected_revision)?;
        swap_tools(db, end.org_id, endpoint, set)?;
        accept(db, end.org_id, set)?;
    }
    // How its server is called is part of the configuration, like its tools.
    if end.tools.is_some() || speaks_otherwise {
        db.raise_revision(end.org_id, end.record.at)?;
    }
    db.execute(
        "INSERT INTO syncs (id, endpoint_id, at, record) VALUES (?1, ?2, ?3, ?4)",
        (
            bytes(end.record.id.uuid()),
            bytes(endpoint.uuid()),
            end.record.at.as_millis(),
            rows::to_text(&SyncRecordDoc::of(&end.record)),
        ),
    )?;
    drop_oldest(db, endpoint)
}

/// Tells the organization's application of a sync that failed, unless the one before failed for the same reason.
fn announce_failure(db: &Db<'_>, end: &SyncEnd) -> StoreResult<()> {
    let Some(fault) = &end.state.fault else { return Ok(()) };
    let reason = fault.reason;
    let sql = "SELECT name, sync FROM endpoints WHERE id = ?1 AND org_id = ?2";
    let key = (bytes(end.record.endpoint_id.uuid()), bytes(end.org_id.uuid()));
    let before = db.find(sql, key, |row| {
        let state: SyncStateDoc = rows::from_text("endpoint", text_at(row, 1, "endpoint")?)?;
        Ok((row.get(0)?, state.state()?.fault))
    })?;
    match before {
        Some((endpoint, fault)) if fault.as_ref().is_none_or(|before| before.reason != reason) => {
            deliveries::announce(db, end.org_id, end.record.at, || Ok(Announcement::SyncFailed { endpoint, reason }))
        }
        Some(_) | None => Ok(()),
    }
}

/// The revision of its protocol that the endpoint's server answered in before.
fn protocol_version(db: &Db<'_>, end: &SyncEnd) -> StoreResult<Option<String>> {
    let sql = "SELECT sync FROM endpoints WHERE id = ?1 AND org_id = ?2";
    let before = db.find(sql, (bytes(end.record.endpoint_id.uuid()), bytes(end.org_id.uuid())), |row| {
        rows::from_text::<SyncStateDoc>("endpoint", text_at(row, 0, "endpoint")?)?.state()
    })?;
    Ok(before.and_then(|state| state.protocol_version))
}

/// Keeps the last [`KEPT`] syncs of an endpoint.
fn drop_oldest(db: &Db<'_>, endpoint: EndpointId) -> StoreResult<()> {
    db.execute(
        "DELETE FROM syncs WHERE endpoint_id = ?1 AND (at, id) <= (
             SELECT at, id FROM syncs WHERE endpoint_id = ?1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?2)",
        (bytes(endpoint.uuid()), KEPT),
    )?;
    Ok(())
}

fn expect_revision(db: &Db<'_>, org: OrgId, expected: u64) -> StoreResult<()> {
    let sql = "SELECT revision FROM orgs WHERE id = ?1 AND state <> 'deleted'";
    match db.find(sql, (bytes(org.uuid()),), |row| Ok(row.get::<_, u64>(0)?))? {
        None => Err(StoreError::NotFound),
        Some(revision) if revision != expected => Err(StoreError::Stale),
        Some(_) => Ok(()),
    }
}

fn swap_tools(db: &Db<'_>, org: OrgId, endpoint: EndpointId, set: &NewToolSet) -> StoreResult<()> {
    db.execute("DELETE FROM tools WHERE endpoint_id = ?1", (bytes(endpoint.uuid()),))?;
    for (position, tool) in set.tools.iter().enumerate() {
        let inserted = db.execute(
            "INSERT INTO tools (endpoint_id, position, org_id, name, folded_name, spec, declared)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (
                bytes(endpoint.uuid()),
                position,
                bytes(org.uuid()),
                &tool.spec.name,
                naming::fold(&tool.spec.name),
                rows::to_text(&SpecDoc::of(&tool.spec)),
                rows::to_text(&tool.declared),
            ),
        );
        name_taken(inserted, &tool.spec.name)?;
    }
    Ok(())
}

fn accept(db: &Db<'_>, org: OrgId, set: &NewToolSet) -> StoreResult<()> {
    for (tool, hash) in &set.accepted {
        let mut policy = orgs::policy(db, org, tool)?.unwrap_or_default();
        policy.accepted_hash = Some(hash.clone());
        orgs::set_policy(db, org, tool, &policy)?;
    }
    Ok(())
}

pub(super) fn list(db: &Db<'_>, org: OrgId, id: EndpointId, page: &PageRequest) -> StoreResult<Page<SyncRecord>> {
    let (at, last) = pages::before(page)?;
    let found = db.all(
        "SELECT s.id, s.at, s.record FROM syncs s
         WHERE s.endpoint_id = ?1 AND (s.at, s.id) < (?3, ?4)
             AND EXISTS (SELECT 1 FROM endpoints e WHERE e.id = ?1 AND e.org_id = ?2)
         ORDER BY s.at DESC, s.id DESC LIMIT ?5",
        (bytes(id.uuid()), bytes(org.uuid()), at.as_millis(), bytes(last), pages::rows(page)),
        |row| {
            let doc: SyncRecordDoc = rows::from_text("sync", text_at(row, 2, "sync")?)?;
            doc.record(SyncId::from_uuid(uuid_at(row, 0)?), id, time_at(row, 1)?)
        },
    )?;
    Ok(pages::page(found, page, |record| (record.at, record.id.uuid())))
}
