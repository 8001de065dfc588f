//! Workspace keys and agent keys. The key itself is answered once, when it is made; only its hash is stored.

use super::{
    AdminFault, AdminResult, By, LimitChanges, MAX_EDITS, apply_limits, check_display_name, check_version,
    is_overtaken, limit_changes_json,
};
use crate::domain::change::Change;
use crate::domain::ids::{GroupId, KeyId, OrgId};
use crate::domain::key::{self, AgentKey, KeyKind, WorkspaceKey};
use crate::domain::org::LimitOverrides;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::ports::StoreError;
use crate::engine::store_port::{Page, PageRequest};
use serde_json::{Map, Value, json};

/// A new agent key.
#[derive(Clone, Debug)]
pub struct NewAgentKey {
    /// Its display name.
    pub name: String,
    /// Names of its groups.
    pub groups: Vec<String>,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// Limits below the organization's.
    pub limits: LimitChanges,
    /// Its holder shows a confirmation to a person.
    pub confirms: bool,
}

/// What is changed of an agent key.
#[derive(Clone, Debug, Default)]
pub struct AgentKeyPatch {
    /// Display name.
    pub name: Option<String>,
    /// Names of its groups.
    pub groups: Option<Vec<String>>,
    /// When it stops working.
    pub expires_at: Change<Timestamp>,
    /// Limits below the organization's.
    pub limits: LimitChanges,
    /// Its holder shows a confirmation to a person.
    pub confirms: Option<bool>,
}

/// What is changed of a workspace key.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceKeyPatch {
    /// Display name.
    pub name: Option<String>,
    /// When it stops working.
    pub expires_at: Change<Timestamp>,
}

/// An agent key with the names of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKeyView {
    /// The key.
    pub key: AgentKey,
    /// Names of its groups, in order.
    pub groups: Vec<String>,
}

impl Engine {
    pub(super) fn new_workspace_key(
        &self,
        org_id: OrgId,
        name: String,
        expires_at: Option<Timestamp>,
    ) -> (WorkspaceKey, Secret) {
        let now = self.clock().now();
        let key = WorkspaceKey {
            id: KeyId::from_uuid(self.clock().new_uuid()),
            org_id,
            name,
            expires_at,
            last_used_at: None,
            version: 1,
            created_at: now,
            updated_at: now,
        };
        (key, key::mint(KeyKind::Workspace, self.random_bytes()))
    }

    pub(super) async fn store_workspace_key(
        &self,
        by: &By<'_>,
        org: OrgId,
        name: String,
        expires_at: Option<Timestamp>,
    ) -> AdminResult<(WorkspaceKey, Secret)> {
        self.check_expiry(expires_at)?;
        let (key, secret) = self.new_workspace_key(org, name, expires_at);
        let changes = json!({ "name": key.name, "expires_at": time_json(key.expires_at) });
        let audit = self.audit(by, org, "workspace_key.create", format!("workspace-key/{}", key.id), &changes);
        self.store().create_workspace_key(&key, key::hash(secret.reveal()), audit).await?;
        Ok((key, secret))
    }

    /// Makes a workspace key.
    pub async fn create_workspace_key(
        &self,
        by: &WorkspaceAccess,
        name: String,
        expires_at: Option<Timestamp>,
    ) -> AdminResult<(WorkspaceKey, Secret)> {
        check_display_name(&name)?;
        self.store_workspace_key(&By::Workspace(by), by.org_id(), name, expires_at).await
    }

    /// Workspace keys.
    pub async fn list_workspace_keys(
        &self,
        by: &WorkspaceAccess,
        page: &PageRequest,
    ) -> AdminResult<Page<WorkspaceKey>> {
        Ok(self.store().list_workspace_keys(by.org_id(), page).await?)
    }

    /// One workspace key.
    pub async fn workspace_key(&self, by: &WorkspaceAccess, id: KeyId) -> AdminResult<WorkspaceKey> {
        self.store().workspace_key(by.org_id(), id).await?.ok_or(AdminFault::NotFound)
    }

    /// Changes a workspace key.
    pub async fn update_workspace_key(
        &self,
        by: &WorkspaceAccess,
        id: KeyId,
        patch: WorkspaceKeyPatch,
        if_match: Option<u64>,
    ) -> AdminResult<WorkspaceKey> {
        let mut changes = Map::new();
        self.check_key_patch(patch.name.as_deref(), &patch.expires_at, &mut changes)?;
        for _ in 0..MAX_EDITS {
            let turn = self.0.turns.take(by.org_id()).await;
            let mut key = self.workspace_key(by, id).await?;
            check_version(key.version, if_match)?;
            if let Some(name) = &patch.name {
                key.name.clone_from(name);
            }
            patch.expires_at.apply(&mut key.expires_at);
            key.updated_at = self.clock().now();
            let object = format!("workspace-key/{id}");
            let changes = Value::Object(changes.clone());
            let audit = self.audit(&By::Workspace(by), by.org_id(), "workspace_key.update", object, &changes);
            let stored = self.store().update_workspace_key(&key, audit).await;
            drop(turn);
            match stored {
                Err(error) if is_overtaken(&error, if_match) => {}
                stored => return self.after_change(by.org_id(), stored).await,
            }
        }
        Err(AdminFault::Overloaded)
    }

    /// Revokes a workspace key, at once.
    pub async fn revoke_workspace_key(
        &self,
        by: &WorkspaceAccess,
        id: KeyId,
        if_match: Option<u64>,
    ) -> AdminResult<()> {
        let object = format!("workspace-key/{id}");
        let audit = self.audit(&By::Workspace(by), by.org_id(), "workspace_key.revoke", object, &json!({}));
        let deleted = self.store().delete_workspace_key(by.org_id(), id, if_match, audit).await;
        self.after_change(by.org_id(), deleted).await
    }

    /// Makes an agent key.
    pub async fn create_agent_key(
        &self,
        by: &WorkspaceAccess,
        new: NewAgentKey,
    ) -> AdminResult<(AgentKeyView, Secret)> {
        check_display_name(&new.name)?;
        self.check_expiry(new.expires_at)?;
        let groups = self.group_ids(by.org_id(), &new.groups).await?;
        let mut limits = LimitOverrides::default();
        apply_key_limits(&mut limits, &new.limits)?;
        let now = self.clock().now();
        let key = AgentKey {
            id: KeyId::from_uuid(self.clock().new_uuid()),
            org_id: by.org_id(),
            name: new.name,
            groups,
            limits,
            confirms: new.confirms,
            expires_at: new.expires_at,
            last_used_at: None,
            version: 1,
            created_at: now,
            updated_at: now,
        };
        let secret = key::mint(KeyKind::Agent, self.random_bytes());
        let changes = json!({
            "name": key.name, "groups": new.groups, "confirms": key.confirms,
            "expires_at": time_json(key.expires_at), "limits": limit_changes_json(&new.limits),
        });
        let object = format!("agent-key/{}", key.id);
        let audit = self.audit(&By::Workspace(by), by.org_id(), "agent_key.create", object, &changes);
        self.store().create_agent_key(&key, key::hash(secret.reveal()), audit).await?;
        Ok((self.agent_key_view(key).await?, secret))
    }

    /// Agent keys.
    pub async fn list_agent_keys(&self, by: &WorkspaceAccess, page: &PageRequest) -> AdminResult<Page<AgentKeyView>> {
        let found = self.store().list_agent_keys(by.org_id(), page).await?;
        let mut items = Vec::with_capacity(found.items.len());
        for key in found.items {
            items.push(self.agent_key_view(key).await?);
        }
        Ok(Page { items, next_cursor: found.next_cursor })
    }

    /// One agent key.
    pub async fn agent_key(&self, by: &WorkspaceAccess, id: KeyId) -> AdminResult<AgentKeyView> {
        let key = self.store().agent_key(by.org_id(), id).await?.ok_or(AdminFault::NotFound)?;
        self.agent_key_view(key).await
    }

    /// Changes an agent key; what it may see changes at once.
    pub async fn update_agent_key(
        &self,
        by: &WorkspaceAccess,
        id: KeyId,
        patch: AgentKeyPatch,
        if_match: Option<u64>,
    ) -> AdminResult<AgentKeyView> {
        let mut changes = Map::new();
        self.check_key_patch(patch.name.as_deref(), &patch.expires_at, &mut changes)?;
        let groups = match &patch.groups {
            Some(names) => {
                changes.insert("groups".to_owned(), json!(names));
                Some(self.group_ids(by.org_id(), names).await?)
            }
            None => None,
        };
        if !patch.limits.is_empty() {
            changes.insert("limits".to_owned(), limit_changes_json(&patch.limits));
        }
        if let Some(confirms) = patch.confirms {
            changes.insert("confirms".to_owned(), json!(confirms));
        }
        for _ in 0..MAX_EDITS {
            let turn = self.0.turns.take(by.org_id()).await;
            let mut key = self.store().agent_key(by.org_id(), id).await?.ok_or(AdminFault::NotFound)?;
            check_version(key.version, if_match)?;
            if let Some(name) = &patch.name {
                key.name.clone_from(name);
            }
            if let Some(groups) = &groups {
                key.groups.clone_from(groups);
            }
            patch.expires_at.apply(&mut key.expires_at);
            key.confirms = patch.confirms.unwrap_or(key.confirms);
            apply_key_limits(&mut key.limits, &patch.limits)?;
            key.updated_at = self.clock().now();
            let (object, changes) = (format!("agent-key/{id}"), Value::Object(changes.clone()));
            let audit = self.audit(&By::Workspace(by), by.org_id(), "agent_key.update", object, &changes);
            let stored = self.store().update_agent_key(&key, audit).await;
            drop(turn);
            match stored {
                Err(error) if is_overtaken(&error, if_match) => {}
                stored => {
                    let key = self.after_change(by.org_id(), stored).await?;
                    return self.agent_key_view(key).await;
                }
            }
        }
        Err(AdminFault::Overloaded)
    }

    /// Revokes an agent key, at once.
    pub async fn revoke_agent_key(&self, by: &WorkspaceAccess, id: KeyId, if_match: Option<u64>) -> AdminResult<()> {
        let object = format!("agent-key/{id}");
        let audit = self.audit(&By::Workspace(by), by.org_id(), "agent_key.revoke", object, &json!({}));
        let deleted = self.store().delete_agent_key(by.org_id(), id, if_match, audit).await;
        self.after_change(by.org_id(), deleted).await
    }

    /// Takes up a stored change before it is answered. What is stored is answered as stored (it may hold a secret that is
    /// shown once): should it not be taken up here and now, it will be when the change feed is read.
    pub(super) async fn after_change<T>(&self, org: OrgId, stored: Result<T, StoreError>) -> AdminResult<T> {
        let stored = stored?;
        if let Err(error) = self.changed(org).await {
            tracing::warn!(%org, %error, "a change is stored and not taken up yet");
        }
        Ok(stored)
    }

    async fn agent_key_view(&self, key: AgentKey) -> AdminResult<AgentKeyView> {
        let catalog = self.0.registry.get(key.org_id).await?.catalog();
        let mut groups: Vec<String> =
            key.groups.iter().filter_map(|id| catalog.group_name(*id)).map(str::to_owned).collect();
        groups.sort();
        Ok(AgentKeyView { key, groups })
    }

    async fn group_ids(&self, org: OrgId, names: &[String]) -> AdminResult<Vec<GroupId>> {
        if names.is_empty() {
            return Err(AdminFault::invalid("/groups", "name at least one group"));
        }
        let catalog = self.0.registry.get(org).await?.catalog();
        let mut ids = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let id = catalog.group_id(name);
            ids.push(id.ok_or_else(|| {
                AdminFault::invalid(format!("/groups/{at}"), format!("there is no group \"{name}\""))
            })?);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn check_key_patch(
        &self,
        name: Option<&str>,
        expires_at: &Change<Timestamp>,
        changes: &mut Map<String, Value>,
    ) -> AdminResult<()> {
        if let Some(name) = name {
            check_display_name(name)?;
            changes.insert("name".to_owned(), json!(name));
        }
        match expires_at {
            Change::Keep => {}
            Change::Clear => {
                changes.insert("expires_at".to_owned(), Value::Null);
            }
            Change::Set(at) => {
                self.check_expiry(Some(*at))?;
                changes.insert("expires_at".to_owned(), json!(at.to_string()));
            }
        }
        Ok(())
    }

    fn check_expiry(&self, expires_at: Option<Timestamp>) -> AdminResult<()> {
        if expires_at.is_some_and(|at| at <= self.clock().now()) {
            return Err(AdminFault::invalid("/expires_at", "give a time in the future"));
        }
        Ok(())
    }
}

/// An agent key has one limit of its own.
fn apply_key_limits(limits: &mut LimitOverrides, changes: &LimitChanges) -> AdminResult<()> {
    const OWN: [&str; 2] = ["agent_key_per_second", "agent_key_per_second_burst"];
    if let Some((name, _)) = changes.iter().find(|(name, _)| !OWN.contains(&name.as_str())) {
        let message = format!("an agent key has only {} and {}", OWN[0], OWN[1]);
        return Err(AdminFault::invalid(format!("/limits/{name}"), message));
    }
    apply_limits(limits, changes)
}

fn time_json(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| json!(time.to_string()))
}
