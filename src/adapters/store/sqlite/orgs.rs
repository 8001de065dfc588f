//! Organizations, the change feed, and everything an organization's actor starts from.

use super::rows::{self, LimitsDoc, OrgDoc};
use super::tool_rows::PolicyDoc;
use super::{
    Db, audit, bytes, corrupt, deliveries, endpoints, groups, hooks, keys, name_taken, pages, runs, text_at, time_at,
};
use super::{uuid_at, writes};
use crate::domain::group::Group;
use crate::domain::ids::{KeyId, OrgId, RunId};
use crate::domain::key::{KeyHash, WorkspaceKey};
use crate::domain::org::{ConfirmationFallback, Org, OrgState, Retention};
use crate::domain::time::Timestamp;
use crate::domain::tool::{PolicyChange, ToolPolicy};
use crate::engine::store_port::{AuditEntry, Changes, OrgConfig, Page, PageRequest, StoreError, StoreResult};
use rusqlite::Row;
use std::collections::BTreeMap;

const COLUMNS: &str = "id, slug, name, state, run_retention_h, result_retention_h, settings, version, created_at, \
                       updated_at, revision, (SELECT doc FROM hooks WHERE hooks.org_id = orgs.id)";

pub(super) fn state_of(word: &str) -> StoreResult<OrgState> {
    OrgState::parse(word).ok_or_else(|| corrupt("organization"))
}

fn org_of(db: &Db<'_>, row: &Row<'_>) -> StoreResult<Org> {
    let doc: OrgDoc = rows::from_text("organization", text_at(row, 6, "organization")?)?;
    let id = OrgId::from_uuid(uuid_at(row, 0)?);
    let sealed = row.get_ref(11)?.as_blob_or_null().map_err(|_| corrupt("organization"))?;
    let hooks = hooks::open(db, id, sealed)?;
    let fallback = |word: String| ConfirmationFallback::parse(&word).ok_or_else(|| corrupt("organization"));
    Ok(Org {
        id,
        slug: row.get(1)?,
        name: row.get(2)?,
        state: state_of(text_at(row, 3, "organization")?)?,
        operator_limits: rows::limits_of(&doc.operator_limits),
        tenant_limits: rows::limits_of(&doc.tenant_limits),
        egress_allow: doc.egress_allow,
        retention: Retention { run_retention_h: row.get(4)?, result_retention_h: row.get(5)? },
        reviewer: hooks.reviewer,
        webhook: hooks.webhook,
        confirmation_fallback: doc.confirmation_fallback.map(fallback).transpose()?.unwrap_or_default(),
        version: row.get(7)?,
        created_at: time_at(row, 8)?,
        updated_at: time_at(row, 9)?,
    })
}

fn settings_text(org: &Org) -> String {
    let limits = |overrides| -> LimitsDoc { rows::limits_doc(overrides) };
    rows::to_text(&OrgDoc {
        operator_limits: limits(&org.operator_limits),
        tenant_limits: limits(&org.tenant_limits),
        egress_allow: org.egress_allow.clone(),
        confirmation_fallback: Some(org.confirmation_fallback.as_str().to_owned()),
    })
}

pub(super) fn create(
    db: &Db<'_>,
    org: &Org,
    group: &Group,
    key: &WorkspaceKey,
    hash: KeyHash,
    entry: AuditEntry,
) -> StoreResult<()> {
    let inserted = db.execute(
        "INSERT INTO orgs (id, slug, name, state, run_retention_h, result_retention_h, settings, version, created_at,
             updated_at, revision, announces)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, ?11)",
        (
            bytes(org.id.uuid()),
            &org.slug,
            &org.name,
            org.state.as_str(),
            org.retention.run_retention_h,
            org.retention.result_retention_h,
            settings_text(org),
            org.version,
            org.created_at.as_millis(),
            org.updated_at.as_millis(),
            org.webhook.is_some(),
        ),
    );
    name_taken(inserted, &org.slug)?;
    hooks::put(db, org)?;
    groups::insert(db, org.id, group)?;
    keys::insert_workspace(db, key, hash)?;
    db.announce(org.id, entry.at)?;
    audit::append(db, entry)
}

pub(super) fn org(db: &Db<'_>, id: OrgId) -> StoreResult<Option<Org>> {
    let sql = format!("SELECT {COLUMNS} FROM orgs WHERE id = ?1 AND state <> 'deleted'");
    db.find(&sql, (bytes(id.uuid()),), |row| org_of(db, row))
}

pub(super) fn list(db: &Db<'_>, page: &PageRequest) -> StoreResult<Page<Org>> {
    let after = pages::after(page)?.unwrap_or_default();
    let sql = format!("SELECT {COLUMNS} FROM orgs WHERE state <> 'deleted' AND id > ?1 ORDER BY id LIMIT ?2");
    let found = db.all(&sql, (bytes(after), pages::rows(page)), |row| org_of(db, row))?;
    Ok(pages::page(found, page, |org| org.id.uuid()))
}

pub(super) fn count(db: &Db<'_>) -> StoreResult<u64> {
    let found = db.find("SELECT count(*) FROM orgs WHERE state <> 'deleted'", (), |row| Ok(row.get(0)?))?;
    Ok(found.unwrap_or(0))
}

pub(super) fn update(db: &Db<'_>, org: &Org, entry: AuditEntry) -> StoreResult<Org> {
    let Some(before) = self::org(db, org.id)? else { return Err(StoreError::NotFound) };
    if before.version != org.version {
        return Err(StoreError::Stale);
    }
    db.execute(
        "UPDATE orgs SET name = ?2, state = ?3, run_retention_h = ?4, result_retention_h = ?5, settings = ?6,
             updated_at = ?7, announces = ?8, version = version + 1
         WHERE id = ?1",
        (
            bytes(org.id.uuid()),
            &org.name,
            org.state.as_str(),
            org.retention.run_retention_h,
            org.retention.result_retention_h,
            settings_text(org),
            org.updated_at.as_millis(),
            org.webhook.is_some(),
        ),
    )?;
    hooks::put(db, org)?;
    if before.webhook.is_some() && org.webhook.is_none() {
        deliveries::let_go(db, org.id, entry.at)?;
    }
    db.raise_revision(org.id, entry.at)?;
    audit::append(db, entry)?;
    self::org(db, org.id)?.ok_or(StoreError::NotFound)
}

/// Takes an organization out of service at once; its runs and messages, which may be many, go in portions after it.
pub(super) fn delete(db: &Db<'_>, id: OrgId, at: Timestamp, entry: AuditEntry) -> StoreResult<Vec<RunId>> {
    db.raise_revision(id, at)?;
    let cancelled = runs::cancel_open(db, id, None, "organization_deleted", at)?;
    let key = (bytes(id.uuid()),);
    let workspace_keys = "SELECT id FROM keys WHERE org_id = ?1 AND kind = 'workspace'";
    for workspace_key in db.all(workspace_keys, key, |row| Ok(KeyId::from_uuid(uuid_at(row, 0)?)))? {
        writes::forget(db, &workspace_key.to_string())?;
    }
    for sql in [
        "DELETE FROM keys WHERE org_id = ?1",
        "DELETE FROM groups WHERE org_id = ?1",
        "DELETE FROM endpoints WHERE org_id = ?1",
        "DELETE FROM policies WHERE org_id = ?1",
        "DELETE FROM audit WHERE org_id = ?1",
        "DELETE FROM hooks WHERE org_id = ?1",
    ] {
        db.execute(sql, key)?;
    }
    let nothing = OrgDoc {
        operator_limits: LimitsDoc::new(),
        tenant_limits: LimitsDoc::new(),
        egress_allow: vec![],
        confirmation_fallback: None,
    };
    db.execute(
        "UPDATE orgs SET state = 'deleted', name = '', settings = ?2, announces = 0, version = version + 1,
             updated_at = ?3
         WHERE id = ?1",
        (key.0, rows::to_text(&nothing), at.as_millis()),
    )?;
    audit::append(db, entry)?;
    Ok(cancelled)
}

pub(super) fn load(db: &Db<'_>, id: OrgId) -> StoreResult<Option<OrgConfig>> {
    let sql = format!("SELECT {COLUMNS} FROM orgs WHERE id = ?1 AND state <> 'deleted'");
    let found = db.find(&sql, (bytes(id.uuid()),), |row| Ok((org_of(db, row)?, row.get(10)?)))?;
    let Some((org, revision)) = found else { return Ok(None) };
    Ok(Some(OrgConfig {
        org,
        revision,
        groups: groups::all(db, id)?,
        endpoints: endpoints::all_with_tools(db, id)?,
        policies: policies(db, id)?,
    }))
}

fn policies(db: &Db<'_>, org: OrgId) -> StoreResult<BTreeMap<String, ToolPolicy>> {
    let found = db.all("SELECT tool, policy FROM policies WHERE org_id = ?1", (bytes(org.uuid()),), |row| {
        let doc: PolicyDoc = rows::from_text("policy", text_at(row, 1, "policy")?)?;
        Ok((row.get(0)?, doc.policy()?))
    })?;
    Ok(found.into_iter().collect())
}

/// The policy of a tool, as it stands.
pub(super) fn policy(db: &Db<'_>, org: OrgId, tool: &str) -> StoreResult<Option<ToolPolicy>> {
    db.find("SELECT policy FROM policies WHERE org_id = ?1 AND tool = ?2", (bytes(org.uuid()), tool), |row| {
        rows::from_text::<PolicyDoc>("policy", text_at(row, 0, "policy")?)?.policy()
    })
}

pub(super) fn set_policy(db: &Db<'_>, org: OrgId, tool: &str, policy: &ToolPolicy) -> StoreResult<()> {
    db.execute(
        "INSERT INTO policies (org_id, tool, policy) VALUES (?1, ?2, ?3)
         ON CONFLICT (org_id, tool) DO UPDATE SET policy = excluded.policy",
        (bytes(org.uuid()), tool, rows::to_text(&PolicyDoc::of(policy))),
    )?;
    Ok(())
}

pub(super) fn put_policy(
    db: &Db<'_>,
    org: OrgId,
    tool: &str,
    change: &PolicyChange,
    entry: AuditEntry,
) -> StoreResult<()> {
    db.raise_revision(org, entry.at)?;
    let mut policy = policy(db, org, tool)?.unwrap_or_default();
    change.apply(&mut policy);
    set_policy(db, org, tool, &policy)?;
    audit::append(db, entry)
}

/// Organizations in the feed after `position`. Whoever was away for so long that the feed was purged meanwhile is told
/// of every organization: too many rather than one too few.
pub(super) fn changes_since(db: &Db<'_>, position: u64) -> StoreResult<Changes> {
    let newest = db.find("SELECT seq FROM sqlite_sequence WHERE name = 'feed'", (), |row| Ok(row.get(0)?))?;
    let newest: u64 = newest.unwrap_or(0);
    let oldest: Option<u64> = db.find("SELECT min(position) FROM feed", (), |row| Ok(row.get(0)?))?.flatten();
    let read = |row: &Row<'_>| Ok(OrgId::from_uuid(uuid_at(row, 0)?));
    let orgs = if position >= newest {
        Vec::new()
    } else if position.saturating_add(1) < oldest.unwrap_or(u64::MAX) {
        db.all("SELECT id FROM orgs", (), read)?
    } else {
        db.all("SELECT DISTINCT org_id FROM feed WHERE position > ?1", (position,), read)?
    };
    Ok(Changes { position: newest, orgs })
}
