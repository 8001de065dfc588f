//! Workspace and agent keys: one table, told apart by `kind`. A revoked key's row is gone at once.

use super::rows::{self, LimitsDoc};
use super::{Db, audit, bytes, maybe_time_at, orgs, pages, text_at, time_at, uuid_at};
use crate::domain::ids::{GroupId, KeyId, OrgId};
use crate::domain::key::{AgentKey, KeyHash, WorkspaceKey};
use crate::domain::org::{LimitOverrides, OrgState};
use crate::domain::time::Timestamp;
use crate::engine::store_port::{AuditEntry, Page, PageRequest, StoreError, StoreResult};
use rusqlite::Row;
use uuid::Uuid;

/// Which table half a key is of.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Workspace,
    Agent,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Kind::Workspace => "workspace",
            Kind::Agent => "agent",
        }
    }

    const fn versions(self) -> &'static str {
        match self {
            Kind::Workspace => "SELECT version FROM keys WHERE id = ?1 AND org_id = ?2 AND kind = 'workspace'",
            Kind::Agent => "SELECT version FROM keys WHERE id = ?1 AND org_id = ?2 AND kind = 'agent'",
        }
    }
}

/// A key of either kind that can be read from the table.
pub(super) trait Key: Sized {
    const KIND: Kind;
    fn read(db: &Db<'_>, row: &Row<'_>) -> StoreResult<Self>;
    fn id(&self) -> Uuid;
}

impl Key for WorkspaceKey {
    const KIND: Kind = Kind::Workspace;

    fn read(_: &Db<'_>, row: &Row<'_>) -> StoreResult<Self> {
        Ok(Self {
            id: KeyId::from_uuid(uuid_at(row, 0)?),
            org_id: OrgId::from_uuid(uuid_at(row, 1)?),
            name: row.get(2)?,
            expires_at: maybe_time_at(row, 3)?,
            last_used_at: maybe_time_at(row, 4)?,
            version: row.get(5)?,
            created_at: time_at(row, 6)?,
            updated_at: time_at(row, 7)?,
        })
    }

    fn id(&self) -> Uuid {
        self.id.uuid()
    }
}

impl Key for AgentKey {
    const KIND: Kind = Kind::Agent;

    fn read(db: &Db<'_>, row: &Row<'_>) -> StoreResult<Self> {
        let id = uuid_at(row, 0)?;
        let limits: LimitsDoc = rows::from_text("key", text_at(row, 8, "key")?)?;
        let groups = "SELECT group_id FROM key_groups WHERE key_id = ?1 ORDER BY group_id";
        Ok(Self {
            id: KeyId::from_uuid(id),
            org_id: OrgId::from_uuid(uuid_at(row, 1)?),
            name: row.get(2)?,
            groups: db.all(groups, (bytes(id),), |row| Ok(GroupId::from_uuid(uuid_at(row, 0)?)))?,
            limits: rows::limits_of(&limits),
            confirms: row.get(9)?,
            expires_at: maybe_time_at(row, 3)?,
            last_used_at: maybe_time_at(row, 4)?,
            version: row.get(5)?,
            created_at: time_at(row, 6)?,
            updated_at: time_at(row, 7)?,
        })
    }

    fn id(&self) -> Uuid {
        self.id.uuid()
    }
}

const COLUMNS: &str = "k.id, k.org_id, k.name, k.expires_at, k.last_used_at, k.version, k.created_at, k.updated_at, \
                       k.limits, k.confirms";

pub(super) fn by_hash<K: Key>(db: &Db<'_>, hash: KeyHash) -> StoreResult<Option<(K, OrgState)>> {
    let sql = format!(
        "SELECT {COLUMNS}, o.state FROM keys k JOIN orgs o ON o.id = k.org_id WHERE k.hash = ?1 AND k.kind = ?2"
    );
    db.find(&sql, (hash.0, K::KIND.as_str()), |row| {
        Ok((K::read(db, row)?, orgs::state_of(text_at(row, 10, "organization")?)?))
    })
}

pub(super) fn by_id<K: Key>(db: &Db<'_>, org: OrgId, id: KeyId) -> StoreResult<Option<K>> {
    let sql = format!("SELECT {COLUMNS} FROM keys k WHERE k.id = ?1 AND k.org_id = ?2 AND k.kind = ?3");
    db.find(&sql, (bytes(id.uuid()), bytes(org.uuid()), K::KIND.as_str()), |row| K::read(db, row))
}

pub(super) fn list<K: Key>(db: &Db<'_>, org: OrgId, page: &PageRequest) -> StoreResult<Page<K>> {
    let after: Uuid = pages::after(page)?.unwrap_or_default();
    let sql = format!(
        "SELECT {COLUMNS} FROM keys k WHERE k.org_id = ?1 AND k.kind = ?2 AND k.id > ?3 ORDER BY k.id LIMIT ?4"
    );
    let params = (bytes(org.uuid()), K::KIND.as_str(), bytes(after), pages::rows(page));
    let found = db.all(&sql, params, |row| K::read(db, row))?;
    Ok(pages::page(found, page, K::id))
}

pub(super) fn insert_workspace(db: &Db<'_>, key: &WorkspaceKey, hash: KeyHash) -> StoreResult<()> {
    let nothing = LimitOverrides::default();
    let times = (key.expires_at, key.last_used_at, key.created_at, key.updated_at);
    let ids = (key.id, key.org_id);
    insert(db, Kind::Workspace, ids, hash, &key.name, &nothing, false, key.version, times)
}

#[allow(clippy::too_many_arguments, reason = "the columns of both kinds of key")]
fn insert(
    db: &Db<'_>,
    kind: Kind,
    (id, org): (KeyId, OrgId),
    hash: KeyHash,
    name: &str,
    limits: &LimitOverrides,
    confirms: bool,
    version: u64,
    (expires_at, last_used_at, created_at, updated_at): (Option<Timestamp>, Option<Timestamp>, Timestamp, Timestamp),
) -> StoreResult<()> {
    let inserted = db.execute(
        "INSERT INTO keys (id, org_id, kind, hash, name, limits, confirms, expires_at, last_used_at, version,
             created_at, updated_at)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM orgs WHERE id = ?2 AND state <> 'deleted'",
        (
            bytes(id.uuid()),
            bytes(org.uuid()),
            kind.as_str(),
            hash.0,
            name,
            rows::to_text(&rows::limits_doc(limits)),
            confirms,
            expires_at.map(Timestamp::as_millis),
            last_used_at.map(Timestamp::as_millis),
            version,
            created_at.as_millis(),
            updated_at.as_millis(),
        ),
    )?;
    if inserted == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

pub(super) fn create_workspace(db: &Db<'_>, key: &WorkspaceKey, hash: KeyHash, entry: AuditEntry) -> StoreResult<()> {
    insert_workspace(db, key, hash)?;
    db.announce(key.org_id, entry.at)?;
    audit::append(db, entry)
}

pub(super) fn create_agent(db: &Db<'_>, key: &AgentKey, hash: KeyHash, entry: AuditEntry) -> StoreResult<()> {
    let times = (key.expires_at, key.last_used_at, key.created_at, key.updated_at);
    let ids = (key.id, key.org_id);
    insert(db, Kind::Agent, ids, hash, &key.name, &key.limits, key.confirms, key.version, times)?;
    join_groups(db, key)?;
    db.announce(key.org_id, entry.at)?;
    audit::append(db, entry)
}

/// `NotFound` when one of the groups is not, or no longer, one of the organization.
fn join_groups(db: &Db<'_>, key: &AgentKey) -> StoreResult<()> {
    for group in &key.groups {
        let id = bytes(group.uuid());
        if !db.exists("SELECT 1 FROM groups WHERE id = ?1 AND org_id = ?2", (id, bytes(key.org_id.uuid())))? {
            return Err(StoreError::NotFound);
        }
        let sql = "INSERT OR IGNORE INTO key_groups (key_id, group_id) VALUES (?1, ?2)";
        db.execute(sql, (bytes(key.id.uuid()), id))?;
    }
    Ok(())
}

pub(super) fn update_workspace(db: &Db<'_>, key: &WorkspaceKey, entry: AuditEntry) -> StoreResult<WorkspaceKey> {
    db.expect_version(Kind::Workspace.versions(), (key.id.uuid(), key.org_id), Some(key.version))?;
    db.execute(
        "UPDATE keys SET name = ?2, expires_at = ?3, updated_at = ?4, version = version + 1 WHERE id = ?1",
        (bytes(key.id.uuid()), &key.name, key.expires_at.map(Timestamp::as_millis), key.updated_at.as_millis()),
    )?;
    db.announce(key.org_id, entry.at)?;
    audit::append(db, entry)?;
    by_id(db, key.org_id, key.id)?.ok_or(StoreError::NotFound)
}

pub(super) fn update_agent(db: &Db<'_>, key: &AgentKey, entry: AuditEntry) -> StoreResult<AgentKey> {
    db.expect_version(Kind::Agent.versions(), (key.id.uuid(), key.org_id), Some(key.version))?;
    let id = bytes(key.id.uuid());
    db.execute(
        "UPDATE keys SET name = ?2, expires_at = ?3, updated_at = ?4, limits = ?5, confirms = ?6,
             version = version + 1
         WHERE id = ?1",
        (
            id,
            &key.name,
            key.expires_at.map(Timestamp::as_millis),
            key.updated_at.as_millis(),
            rows::to_text(&rows::limits_doc(&key.limits)),
            key.confirms,
        ),
    )?;
    db.execute("DELETE FROM key_groups WHERE key_id = ?1", (id,))?;
    join_groups(db, key)?;
    db.announce(key.org_id, entry.at)?;
    audit::append(db, entry)?;
    by_id(db, key.org_id, key.id)?.ok_or(StoreError::NotFound)
}

pub(super) fn delete(
    db: &Db<'_>,
    kind: Kind,
    org: OrgId,
    id: KeyId,
    version: Option<u64>,
    entry: AuditEntry,
) -> StoreResult<()> {
    db.expect_version(kind.versions(), (id.uuid(), org), version)?;
    db.execute("DELETE FROM keys WHERE id = ?1", (bytes(id.uuid()),))?;
    db.announce(org, entry.at)?;
    audit::append(db, entry)
}

/// Notes the last use of keys, to the minute; a key that was revoked meanwhile is passed over.
pub(super) fn touch(db: &Db<'_>, used: &[(KeyId, Timestamp)]) -> StoreResult<()> {
    for (id, at) in used {
        db.execute(
            "UPDATE keys SET last_used_at = ?2 WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)",
            (bytes(id.uuid()), at.to_minute().as_millis()),
        )?;
    }
    Ok(())
}
