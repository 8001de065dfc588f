//! Groups.

use super::rows::{self, RuleDoc};
use super::{Db, audit, bytes, name_taken, pages, text_at, time_at, uuid_at};
use crate::domain::group::Group;
use crate::domain::ids::{GroupId, OrgId};
use crate::engine::store_port::{AuditEntry, Page, PageRequest, StoreError, StoreResult};
use rusqlite::Row;

const COLUMNS: &str = "id, name, rules, version, created_at, updated_at";

fn group_of(row: &Row<'_>) -> StoreResult<Group> {
    let rules: Vec<RuleDoc> = rows::from_text("group", text_at(row, 2, "group")?)?;
    Ok(Group {
        id: GroupId::from_uuid(uuid_at(row, 0)?),
        name: row.get(1)?,
        rules: rules.into_iter().map(RuleDoc::rule).collect::<StoreResult<_>>()?,
        version: row.get(3)?,
        created_at: time_at(row, 4)?,
        updated_at: time_at(row, 5)?,
    })
}

fn rules_text(group: &Group) -> String {
    rows::to_text(&group.rules.iter().map(RuleDoc::of).collect::<Vec<_>>())
}

pub(super) fn insert(db: &Db<'_>, org: OrgId, group: &Group) -> StoreResult<()> {
    let inserted = db.execute(
        "INSERT INTO groups (id, org_id, name, rules, version, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (
            bytes(group.id.uuid()),
            bytes(org.uuid()),
            &group.name,
            rules_text(group),
            group.version,
            group.created_at.as_millis(),
            group.updated_at.as_millis(),
        ),
    );
    name_taken(inserted, &group.name)?;
    Ok(())
}

pub(super) fn create(db: &Db<'_>, org: OrgId, group: &Group, entry: AuditEntry) -> StoreResult<()> {
    db.raise_revision(org, entry.at)?;
    insert(db, org, group)?;
    audit::append(db, entry)
}

pub(super) fn group(db: &Db<'_>, org: OrgId, name: &str) -> StoreResult<Option<Group>> {
    let sql = format!("SELECT {COLUMNS} FROM groups WHERE org_id = ?1 AND name = ?2");
    db.find(&sql, (bytes(org.uuid()), name), group_of)
}

pub(super) fn all(db: &Db<'_>, org: OrgId) -> StoreResult<Vec<Group>> {
    let sql = format!("SELECT {COLUMNS} FROM groups WHERE org_id = ?1 ORDER BY name");
    db.all(&sql, (bytes(org.uuid()),), group_of)
}

pub(super) fn list(db: &Db<'_>, org: OrgId, page: &PageRequest) -> StoreResult<Page<Group>> {
    // No name is empty, so every name comes after this one.
    let after: String = pages::after(page)?.unwrap_or_default();
    let sql = format!("SELECT {COLUMNS} FROM groups WHERE org_id = ?1 AND name > ?2 ORDER BY name LIMIT ?3");
    let found = db.all(&sql, (bytes(org.uuid()), after, pages::rows(page)), group_of)?;
    Ok(pages::page(found, page, |group| group.name.clone()))
}

pub(super) fn update(db: &Db<'_>, org: OrgId, group: &Group, entry: AuditEntry) -> StoreResult<Group> {
    let versions = "SELECT version FROM groups WHERE id = ?1 AND org_id = ?2";
    db.expect_version(versions, (group.id.uuid(), org), Some(group.version))?;
    let updated = db.execute(
        "UPDATE groups SET name = ?2, rules = ?3, updated_at = ?4, version = version + 1 WHERE id = ?1",
        (bytes(group.id.uuid()), &group.name, rules_text(group), group.updated_at.as_millis()),
    );
    name_taken(updated, &group.name)?;
    db.raise_revision(org, entry.at)?;
    audit::append(db, entry)?;
    self::group(db, org, &group.name)?.ok_or(StoreError::NotFound)
}

pub(super) fn delete(db: &Db<'_>, org: OrgId, name: &str, version: Option<u64>, entry: AuditEntry) -> StoreResult<()> {
    let Some(group) = group(db, org, name)? else { return Err(StoreError::NotFound) };
    if version.is_some_and(|version| version != group.version) {
        return Err(StoreError::Stale);
    }
    let id = (bytes(group.id.uuid()),);
    if db.exists("SELECT 1 FROM key_groups WHERE group_id = ?1", id)? {
        return Err(StoreError::InUse);
    }
    db.execute("DELETE FROM groups WHERE id = ?1", id)?;
    db.raise_revision(org, entry.at)?;
    audit::append(db, entry)
}
