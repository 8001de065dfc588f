//! Endpoints and the tools of their last good sets.

use super::rows::{self, AuthDoc, CallbackSecretDoc, SettingsDoc, SyncStateDoc};
use super::tool_rows::SpecDoc;
use super::{Db, audit, bytes, corrupt, name_taken, place, runs, text_at, time_at, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::endpoint::Endpoint;
use crate::domain::ids::{EndpointId, OrgId, RunId};
use crate::domain::time::Timestamp;
use crate::domain::tool::{DeclaredTool, ToolSpec};
use crate::engine::store_port::{AuditEntry, StoreError, StoreResult};
use rusqlite::Row;
use serde_json::Value;

const COLUMNS: &str =
    "id, org_id, name, enabled, settings, auth, callback_secrets, sync, version, created_at, updated_at";
const AUTH: &str = "endpoints.auth";
const CALLBACK_SECRETS: &str = "endpoints.callback_secrets";

/// An endpoint with its secrets sealed, made before the writer is asked.
pub(super) struct SealedEndpoint {
    endpoint: Endpoint,
    auth: Vec<u8>,
    callback_secrets: Vec<u8>,
}

impl SealedEndpoint {
    pub(super) fn new(secrets: &SecretBox, endpoint: &Endpoint) -> Self {
        let seal = |text: String, column| secrets.seal(text.as_bytes(), &place(column, endpoint.id.uuid()));
        let callback_secrets: Vec<_> = endpoint.callback_secrets.iter().map(CallbackSecretDoc::of).collect();
        Self {
            auth: seal(rows::to_text(&AuthDoc::of(&endpoint.settings.auth)), AUTH),
            callback_secrets: seal(rows::to_text(&callback_secrets), CALLBACK_SECRETS),
            endpoint: endpoint.clone(),
        }
    }
}

fn endpoint_of(db: &Db<'_>, row: &Row<'_>) -> StoreResult<Endpoint> {
    let id = uuid_at(row, 0)?;
    let sealed = |column: usize| row.get_ref(column)?.as_blob().map_err(|_| corrupt("endpoint"));
    let settings: SettingsDoc = rows::from_text("endpoint", text_at(row, 4, "endpoint")?)?;
    let auth: AuthDoc = rows::from_text("endpoint", &db.open_sealed(sealed(5)?, AUTH, id)?)?;
    let callback_secrets: Vec<CallbackSecretDoc> =
        rows::from_text("endpoint", &db.open_sealed(sealed(6)?, CALLBACK_SECRETS, id)?)?;
    let sync: SyncStateDoc = rows::from_text("endpoint", text_at(row, 7, "endpoint")?)?;
    Ok(Endpoint {
        id: EndpointId::from_uuid(id),
        org_id: OrgId::from_uuid(uuid_at(row, 1)?),
        settings: settings.settings(row.get(2)?, row.get(3)?, auth.auth())?,
        callback_secrets: callback_secrets.into_iter().map(CallbackSecretDoc::secret).collect(),
        sync: sync.state()?,
        version: row.get(8)?,
        created_at: time_at(row, 9)?,
        updated_at: time_at(row, 10)?,
    })
}

pub(super) fn create(
    db: &Db<'_>,
    sealed: &SealedEndpoint,
    max_endpoints: u64,
    next_due: Option<Timestamp>,
    entry: AuditEntry,
) -> StoreResult<()> {
    let endpoint = &sealed.endpoint;
    db.raise_revision(endpoint.org_id, entry.at)?;
    let count = "SELECT count(*) FROM endpoints WHERE org_id = ?1";
    let count: Option<u64> = db.find(count, (bytes(endpoint.org_id.uuid()),), |row| Ok(row.get(0)?))?;
    if count.unwrap_or(0) >= max_endpoints {
        return Err(StoreError::LimitReached { limit: max_endpoints });
    }
    let inserted = db.execute(
        "INSERT INTO endpoints (id, org_id, name, enabled, settings, auth, callback_secrets, sync, sync_due_at, version,
             created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        (
            bytes(endpoint.id.uuid()),
            bytes(endpoint.org_id.uuid()),
            &endpoint.settings.name,
            endpoint.settings.enabled,
            rows::to_text(&SettingsDoc::of(&endpoint.settings)),
            &sealed.auth,
            &sealed.callback_secrets,
            rows::to_text(&SyncStateDoc::of(&endpoint.sync)),
            next_due.map(Timestamp::as_millis),
            endpoint.version,
            endpoint.created_at.as_millis(),
            endpoint.updated_at.as_millis(),
        ),
    );
    name_taken(inserted, &endpoint.settings.name)?;
    audit::append(db, entry)
}

pub(super) fn endpoint(db: &Db<'_>, org: OrgId, id: EndpointId) -> StoreResult<Option<Endpoint>> {
    let sql = format!("SELECT {COLUMNS} FROM endpoints WHERE id = ?1 AND org_id = ?2");
    db.find(&sql, (bytes(id.uuid()), bytes(org.uuid())), |row| endpoint_of(db, row))
}

pub(super) fn org_of(db: &Db<'_>, id: EndpointId) -> StoreResult<Option<OrgId>> {
    db.find("SELECT org_id FROM endpoints WHERE id = ?1", (bytes(id.uuid()),), |row| {
        Ok(OrgId::from_uuid(uuid_at(row, 0)?))
    })
}

/// Every endpoint of an organization by name, each with its tools in the provider's order.
pub(super) fn all_with_tools(db: &Db<'_>, org: OrgId) -> StoreResult<Vec<(Endpoint, Vec<ToolSpec>)>> {
    let sql = format!("SELECT {COLUMNS} FROM endpoints WHERE org_id = ?1 ORDER BY name");
    db.all(&sql, (bytes(org.uuid()),), |row| {
        let endpoint = endpoint_of(db, row)?;
        let tools = "SELECT spec FROM tools WHERE endpoint_id = ?1 ORDER BY position";
        let tools = db.all(tools, (bytes(endpoint.id.uuid()),), |row| {
            rows::from_text::<SpecDoc>("tool", text_at(row, 0, "tool")?)?.spec()
        })?;
        Ok((endpoint, tools))
    })
}

pub(super) fn update(
    db: &Db<'_>,
    sealed: &SealedEndpoint,
    next_due: Option<Timestamp>,
    entry: AuditEntry,
) -> StoreResult<Endpoint> {
    let endpoint = &sealed.endpoint;
    let versions = "SELECT version FROM endpoints WHERE id = ?1 AND org_id = ?2";
    db.expect_version(versions, (endpoint.id.uuid(), endpoint.org_id), Some(endpoint.version))?;
    let updated = db.execute(
        "UPDATE endpoints SET name = ?2, enabled = ?3, settings = ?4, auth = ?5, callback_secrets = ?6,
             sync_due_at = ?7, updated_at = ?8, version = version + 1
         WHERE id = ?1",
        (
            bytes(endpoint.id.uuid()),
            &endpoint.settings.name,
            endpoint.settings.enabled,
            rows::to_text(&SettingsDoc::of(&endpoint.settings)),
            &sealed.auth,
            &sealed.callback_secrets,
            next_due.map(Timestamp::as_millis),
            endpoint.updated_at.as_millis(),
        ),
    );
    name_taken(updated, &endpoint.settings.name)?;
    db.raise_revision(endpoint.org_id, entry.at)?;
    audit::append(db, entry)?;
    self::endpoint(db, endpoint.org_id, endpoint.id)?.ok_or(StoreError::NotFound)
}

/// Its tools, syncs and callbacks go with it; its runs stay, the open ones ended.
pub(super) fn delete(
    db: &Db<'_>,
    (org, id): (OrgId, EndpointId),
    version: Option<u64>,
    at: Timestamp,
    entry: AuditEntry,
) -> StoreResult<Vec<RunId>> {
    let versions = "SELECT version FROM endpoints WHERE id = ?1 AND org_id = ?2";
    db.expect_version(versions, (id.uuid(), org), version)?;
    let cancelled = runs::cancel_open(db, org, Some(id), "endpoint_deleted", at)?;
    db.execute("DELETE FROM endpoints WHERE id = ?1", (bytes(id.uuid()),))?;
    db.raise_revision(org, entry.at)?;
    audit::append(db, entry)?;
    Ok(cancelled)
}

pub(super) fn declared_tools(db: &Db<'_>, org: OrgId, id: EndpointId) -> StoreResult<Vec<DeclaredTool>> {
    let sql = "SELECT spec, declared FROM tools WHERE endpoint_id = ?1 AND org_id = ?2 ORDER BY position";
    db.all(sql, (bytes(id.uuid()), bytes(org.uuid())), |row| {
        let spec: SpecDoc = rows::from_text("tool", text_at(row, 0, "tool")?)?;
        let declared: Value = rows::from_text("tool", text_at(row, 1, "tool")?)?;
        Ok(DeclaredTool { spec: spec.spec()?, declared })
    })
}

pub(super) fn set_sync_due(db: &Db<'_>, org: OrgId, id: EndpointId, at: Timestamp) -> StoreResult<()> {
    let sql = "UPDATE endpoints SET sync_due_at = ?3 WHERE id = ?1 AND org_id = ?2";
    match db.execute(sql, (bytes(id.uuid()), bytes(org.uuid()), at.as_millis()))? {
        0 => Err(StoreError::NotFound),
        _ => Ok(()),
    }
}
