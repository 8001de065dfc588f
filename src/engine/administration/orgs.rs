//! Organizations: the operator's side, and what a tenant sets of its own.

use super::endpoint_input::hook_url;
use super::{
    AdminFault, AdminResult, By, LimitChanges, MAX_EDITS, apply_limits, check_display_name, check_slug, check_version,
    is_overtaken, limit_changes_json,
};
use crate::domain::change::Change;
use crate::domain::endpoint::Endpoint;
use crate::domain::group::{Effect, Group, Rule};
use crate::domain::ids::{GroupId, OrgId};
use crate::domain::key::{self, WorkspaceKey};
use crate::domain::org::{ConfirmationFallback, Hook, LimitOverrides, Limits, Org, OrgState};
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::engine::Engine;
use crate::engine::access::{OperatorAccess, WorkspaceAccess};
use crate::engine::catalog::limits_in_force;
use crate::engine::dispatch::signing::mint_webhook_secret;
use crate::engine::store_port::{Page, PageRequest, StoreError, StoreStatus, UsageRow};
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A new organization.
#[derive(Clone, Debug)]
pub struct NewOrg {
    /// Its slug, unique for ever.
    pub slug: String,
    /// Its display name.
    pub name: String,
    /// Limits beside the configured ones.
    pub limits: LimitChanges,
}

/// What the operator changes of an organization.
#[derive(Clone, Debug, Default)]
pub struct OrgPatch {
    /// Display name.
    pub name: Option<String>,
    /// The operator's ceiling.
    pub limits: LimitChanges,
    /// What of the operator's `egress.allow` it may reach.
    pub egress_allow: Option<Vec<IpNet>>,
    /// Active or suspended.
    pub state: Option<OrgState>,
}

/// What a tenant changes of its own organization.
#[derive(Clone, Debug, Default)]
pub struct OwnOrgPatch {
    /// Limits below the operator's.
    pub limits: LimitChanges,
    /// Hours a run is kept.
    pub run_retention_h: Change<u64>,
    /// Hours a run's arguments and results are kept.
    pub result_retention_h: Change<u64>,
    /// URL of the reviewer; setting it mints a new secret.
    pub reviewer: Change<String>,
    /// URL of the result webhook; setting it mints a new secret.
    pub webhook: Change<String>,
    /// What stands in for a confirmation nobody can give.
    pub confirmation_fallback: Option<ConfirmationFallback>,
}

/// What this node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Organizations that live here now.
    pub actors: usize,
    /// Turns waiting.
    pub mailbox_depth: usize,
    /// The store.
    pub store: StoreStatus,
}

/// Syncs that a changed interval brings about are spread over this time, in milliseconds.
const SOON_MS: u64 = 5_000;

/// A retention may be this long.
const LONGEST_RETENTION_H: u64 = 24 * 366;

impl Engine {
    /// Makes an organization with a group `default` that allows everything, and its first workspace key.
    pub async fn create_org(&self, by: &OperatorAccess, new: NewOrg) -> AdminResult<(Org, Secret)> {
        check_slug("/slug", &new.slug)?;
        check_display_name(&new.name)?;
        let mut operator_limits = LimitOverrides::default();
        apply_limits(&mut operator_limits, &new.limits)?;
        let now = self.clock().now();
        let org = Org {
            id: OrgId::from_uuid(self.clock().new_uuid()),
            slug: new.slug,
            name: new.name,
            state: OrgState::Active,
            operator_limits,
            tenant_limits: LimitOverrides::default(),
            egress_allow: Vec::new(),
            retention: self.settings().retention.clone(),
            reviewer: None,
            webhook: None,
            confirmation_fallback: ConfirmationFallback::default(),
            version: 1,
            created_at: now,
            updated_at: now,
        };
        let everything =
            Rule { effect: Effect::Allow, tools: Some(vec!["*".to_owned()]), endpoints: None, risks: None };
        let group = Group {
            id: GroupId::from_uuid(self.clock().new_uuid()),
            name: "default".to_owned(),
            rules: vec![everything],
            version: 1,
            created_at: now,
            updated_at: now,
        };
        let (key, secret) = self.new_workspace_key(org.id, "first".to_owned(), None);
        let changes = json!({ "slug": org.slug, "name": org.name, "limits": limit_changes_json(&new.limits) });
        let audit = self.audit(&By::Operator(by), org.id, "org.create", format!("org/{}", org.slug), &changes);
        self.store().create_org(&org, &group, &key, key::hash(secret.reveal()), audit).await?;
        Ok((org, secret))
    }

    /// Organizations that are not deleted.
    pub async fn list_orgs(&self, _: &OperatorAccess, page: &PageRequest) -> AdminResult<Page<Org>> {
        Ok(self.store().list_orgs(page).await?)
    }

    /// One organization.
    pub async fn org(&self, _: &OperatorAccess, id: OrgId) -> AdminResult<Org> {
        self.store().org(id).await?.ok_or(AdminFault::NotFound)
    }

    /// Changes an organization.
    pub async fn update_org(
        &self,
        by: &OperatorAccess,
        id: OrgId,
        patch: OrgPatch,
        if_match: Option<u64>,
    ) -> AdminResult<Org> {
        let mut changes = Map::new();
        if let Some(name) = &patch.name {
            check_display_name(name)?;
            changes.insert("name".to_owned(), json!(name));
        }
        if let Some(networks) = &patch.egress_allow {
            let text: Vec<String> = networks.iter().map(ToString::to_string).collect();
            changes.insert("egress_allow".to_owned(), json!(text));
        }
        if let Some(state) = patch.state {
            if state == OrgState::Deleted {
                return Err(AdminFault::invalid("/state", "give active or suspended; DELETE deletes"));
            }
            changes.insert("state".to_owned(), json!(state.as_str()));
        }
        if !patch.limits.is_empty() {
            changes.insert("limits".to_owned(), limit_changes_json(&patch.limits));
        }
        let by = By::Operator(by);
        let edited = self.edit_org(&by, id, if_match, Value::Object(changes), |org| {
            if let Some(name) = &patch.name {
                org.name.clone_from(name);
            }
            if let Some(networks) = &patch.egress_allow {
                org.egress_allow.clone_from(networks);
            }
            if let Some(state) = patch.state {
                org.state = state;
            }
            apply_limits(&mut org.operator_limits, &patch.limits)
        });
        let org = edited.await?;
        if org.state == OrgState::Suspended {
            self.let_go_of_servers(id);
        }
        Ok(org)
    }

    /// Holds no dialogue with an organization's servers any more.
    fn let_go_of_servers(&self, id: OrgId) {
        if let Some(org) = self.0.registry.live(id) {
            org.catalog().endpoints().for_each(|endpoint| self.0.dialogues.let_go(endpoint.id));
        }
    }

    /// Deletes an organization with everything it owns; its slug is never given again.
    pub async fn delete_org(&self, by: &OperatorAccess, id: OrgId, if_match: Option<u64>) -> AdminResult<()> {
        let org = self.org(by, id).await?;
        check_version(org.version, if_match)?;
        let object = format!("org/{}", org.slug);
        let audit = self.audit(&By::Operator(by), id, "org.delete", object, &json!({}));
        self.store().delete_org(id, self.clock().now(), audit).await?;
        self.let_go_of_servers(id);
        self.changed(id).await?;
        self.metrics().forget_org(&org.slug);
        Ok(())
    }

    /// A workspace key for a tenant that has lost its last one.
    pub async fn create_workspace_key_for(
        &self,
        by: &OperatorAccess,
        id: OrgId,
        name: String,
        expires_at: Option<Timestamp>,
    ) -> AdminResult<(WorkspaceKey, Secret)> {
        self.org(by, id).await?;
        check_display_name(&name)?;
        self.store_workspace_key(&By::Operator(by), id, name, expires_at).await
    }

    /// Runs by tool and status.
    pub async fn usage(
        &self,
        by: &OperatorAccess,
        id: OrgId,
        from: Timestamp,
        to: Timestamp,
    ) -> AdminResult<Vec<UsageRow>> {
        self.org(by, id).await?;
        Ok(self.store().usage(id, from, to).await?)
    }

    /// What this node says about itself.
    pub async fn node_status(&self, _: &OperatorAccess) -> AdminResult<NodeStatus> {
        Ok(NodeStatus {
            actors: self.0.registry.count(),
            mailbox_depth: self.0.registry.mailbox_depth(),
            store: self.store().status().await?,
        })
    }

    /// A tenant's own organization with the limits in force.
    pub async fn own_org(&self, by: &WorkspaceAccess) -> AdminResult<(Org, Limits)> {
        let org = self.store().org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
        let limits = limits_in_force(&org, self.settings());
        Ok((org, limits))
    }

    /// Changes a tenant's own organization.
    pub async fn update_own_org(
        &self,
        by: &WorkspaceAccess,
        patch: OwnOrgPatch,
        if_match: Option<u64>,
    ) -> AdminResult<(Org, Limits)> {
        let mut changes = Map::new();
        if !patch.limits.is_empty() {
            changes.insert("limits".to_owned(), limit_changes_json(&patch.limits));
        }
        let defaults = self.settings().retention.clone();
        let run_h = retention("run_retention_h", &patch.run_retention_h, defaults.run_retention_h, &mut changes)?;
        let result_h =
            retention("result_retention_h", &patch.result_retention_h, defaults.result_retention_h, &mut changes)?;
        let reviewer = self.hook("reviewer", &patch.reviewer, &mut changes)?;
        let webhook = self.hook("webhook", &patch.webhook, &mut changes)?;
        if let Some(fallback) = patch.confirmation_fallback {
            changes.insert("confirmation_fallback".to_owned(), json!(fallback.as_str()));
        }
        let edited = self
            .edit_org(&By::Workspace(by), by.org_id(), if_match, Value::Object(changes), |org| {
                org.retention.run_retention_h = run_h.unwrap_or(org.retention.run_retention_h);
                org.retention.result_retention_h = result_h.unwrap_or(org.retention.result_retention_h);
                if org.retention.result_retention_h > org.retention.run_retention_h {
                    let message = "results cannot be kept longer than their runs (run_retention_h)";
                    return Err(AdminFault::invalid("/result_retention_h", message));
                }
                reviewer.clone().apply(&mut org.reviewer);
                webhook.clone().apply(&mut org.webhook);
                org.confirmation_fallback = patch.confirmation_fallback.unwrap_or(org.confirmation_fallback);
                apply_limits(&mut org.tenant_limits, &patch.limits)
            })
            .await?;
        let limits = limits_in_force(&edited, self.settings());
        Ok((edited, limits))
    }

    /// A hook with a secret of its own, whoever had the address before.
    fn hook(&self, name: &str, url: &Change<String>, changes: &mut Map<String, Value>) -> AdminResult<Change<Hook>> {
        let (change, shown) = match url {
            Change::Keep => return Ok(Change::Keep),
            Change::Clear => (Change::Clear, Value::Null),
            Change::Set(url) => {
                let url = hook_url(&format!("/{name}/url"), url)?;
                let shown = json!({ "url": url });
                (Change::Set(Hook { url, secret: mint_webhook_secret(self.random_bytes()) }), shown)
            }
        };
        changes.insert(name.to_owned(), shown);
        Ok(change)
    }

    async fn edit_org(
        &self,
        by: &By<'_>,
        id: OrgId,
        if_match: Option<u64>,
        changes: Value,
        edit: impl Fn(&mut Org) -> AdminResult<()>,
    ) -> AdminResult<Org> {
        for _ in 0..MAX_EDITS {
            let turn = self.0.turns.take(id).await;
            let mut org = self.store().org(id).await?.ok_or(AdminFault::NotFound)?;
            check_version(org.version, if_match)?;
            let interval_before_s = limits_in_force(&org, self.settings()).sync_interval_s;
            edit(&mut org)?;
            org.updated_at = self.clock().now();
            let audit = self.audit(by, id, "org.update", format!("org/{}", org.slug), &changes);
            let stored = self.store().update_org(&org, audit).await;
            drop(turn);
            match stored {
                Err(error) if is_overtaken(&error, if_match) => {}
                stored => {
                    let stored = self.after_change(id, stored).await?;
                    if limits_in_force(&stored, self.settings()).sync_interval_s != interval_before_s
                        && let Err(error) = self.apply_interval(&stored).await
                    {
                        // Each endpoint takes it up after its next sync all the same.
                        tracing::warn!(org = %id, %error, "the changed sync interval does not hold at once");
                    }
                    return Ok(stored);
                }
            }
        }
        Err(AdminFault::Overloaded)
    }

    /// A changed interval holds from now on: each endpoint that follows it is synced soon, which sets its next time.
    async fn apply_interval(&self, org: &Org) -> Result<(), StoreError> {
        let Some(config) = self.store().load_org(org.id).await? else { return Ok(()) };
        let follows = |endpoint: &Endpoint| endpoint.settings.sync_interval_s.is_none();
        for (endpoint, _) in config.endpoints.iter().filter(|(endpoint, _)| follows(endpoint)) {
            // `None` is an endpoint that is never synced by an interval; one that fails goes on backing off.
            let failures = endpoint.sync.failures_in_a_row;
            let Some(due) = self.next_due(org, endpoint, failures) else { continue };
            let soon = self.clock().now().plus(Duration::from_millis(self.random_below(SOON_MS)));
            let due = if failures > 0 { due } else { due.min(soon) };
            match self.store().set_sync_due(org.id, endpoint.id, due).await {
                // It has just been deleted.
                Ok(()) | Err(StoreError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The new value of a retention, `None` when it stays; clearing goes back to the configured one.
fn retention(
    name: &str,
    change: &Change<u64>,
    default: u64,
    changes: &mut Map<String, Value>,
) -> AdminResult<Option<u64>> {
    let hours = match change {
        Change::Keep => return Ok(None),
        Change::Clear => default,
        Change::Set(hours) => *hours,
    };
    if !(1..=LONGEST_RETENTION_H).contains(&hours) {
        let message = format!("give hours from 1 to {LONGEST_RETENTION_H}");
        return Err(AdminFault::invalid(format!("/{name}"), message));
    }
    changes.insert(name.to_owned(), json!(hours));
    Ok(Some(hours))
}
