//! Endpoints: registration, changes, explicit syncs, diagnostics, callback secrets.

pub use super::endpoint_input::AuthInput;
use super::endpoint_input::{base_url, check_settings, check_trust, endpoint_auth};
use super::{AdminFault, AdminResult, By, MAX_EDITS, check_version, is_overtaken};
use crate::dialects::median;
use crate::domain::change::Change;
use crate::domain::endpoint::{
    CallbackSecret, DEFAULT_RISK, Endpoint, EndpointSettings, SyncPolicy, SyncState, ToolChanges,
};
use crate::domain::ids::EndpointId;
use crate::domain::json::JsonText;
use crate::domain::manifest::SyncTrigger;
use crate::domain::risk::Risk;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Dialect, PolicyChange};
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::catalog::{egress_policy, limits_in_force};
use crate::engine::dispatch::way::fault_code;
use crate::engine::dispatch::{self, signing};
use crate::engine::store_port::{Page, PageRequest, SyncRecord};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A new endpoint.
#[derive(Clone, Debug)]
pub struct NewEndpoint {
    /// Its name (a slug).
    pub name: String,
    /// The protocol it speaks.
    pub dialect: Dialect,
    /// Absolute http(s) URL.
    pub base_url: String,
    /// Credentials.
    pub auth: AuthInput,
    /// Goes before every tool name.
    pub name_prefix: Option<String>,
    /// What one bad tool does; `None` takes the dialect's default.
    pub sync_policy: Option<SyncPolicy>,
    /// Seconds between syncs.
    pub sync_interval_s: Option<u64>,
    /// What a changed tool does.
    pub tool_changes: Option<ToolChanges>,
    /// The manifest itself, instead of fetching it.
    pub manifest: Option<JsonText>,
    /// Whether what the server says of its tools is believed (mcp only).
    pub trusted: Option<bool>,
    /// The risk of its tools (mcp only).
    pub default_risk: Option<Risk>,
}

/// What is changed of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct EndpointPatch {
    /// Its name.
    pub name: Option<String>,
    /// Its URL.
    pub base_url: Option<String>,
    /// Its credentials, whole.
    pub auth: Option<AuthInput>,
    /// Its prefix.
    pub name_prefix: Change<String>,
    /// Whether its tools are offered.
    pub enabled: Option<bool>,
    /// What one bad tool does.
    pub sync_policy: Option<SyncPolicy>,
    /// Seconds between syncs.
    pub sync_interval_s: Change<u64>,
    /// What a changed tool does.
    pub tool_changes: Option<ToolChanges>,
    /// The manifest itself; cleared, it is fetched.
    pub manifest: Change<JsonText>,
    /// Whether what the server says of its tools is believed (mcp only).
    pub trusted: Option<bool>,
    /// The risk of its tools (mcp only).
    pub default_risk: Option<Risk>,
}

/// An endpoint as its tenant sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointView {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Tools of its last good set.
    pub tool_count: usize,
    /// Where its response node delivers, for dialects that have one.
    pub callback_url: Option<String>,
}

/// How long the previous callback secret goes on being accepted after a rotation.
const ROTATION_OVERLAP: Duration = Duration::from_secs(24 * 3600);
/// An endpoint whose first sync was cut off is synced this long after it was registered.
const FIRST_SYNC_AGAIN: Duration = Duration::from_secs(60);
/// How long a provider's diagnostics are waited for.
const DIAGNOSTICS_TIMEOUT: Duration = Duration::from_secs(10);

impl Engine {
    /// Registers an endpoint and syncs it for the first time; a failed first sync registers it all the same. The secret
    /// for callbacks is answered here and at a rotation only.
    pub async fn create_endpoint(
        &self,
        by: &WorkspaceAccess,
        new: NewEndpoint,
    ) -> AdminResult<(EndpointView, Option<Secret>)> {
        let settings = EndpointSettings {
            name: new.name,
            dialect: new.dialect,
            base_url: base_url(new.dialect, &new.base_url)?,
            auth: endpoint_auth(new.dialect, new.auth)?,
            name_prefix: new.name_prefix,
            enabled: true,
            sync_policy: new.sync_policy.unwrap_or(default_sync_policy(new.dialect)),
            sync_interval_s: new.sync_interval_s,
            tool_changes: new.tool_changes.unwrap_or(ToolChanges::Accept),
            inline_manifest: new.manifest,
            trusted: new.trusted.unwrap_or(false),
            default_risk: new.default_risk.unwrap_or(DEFAULT_RISK),
        };
        check_trust(new.dialect, new.trusted, new.default_risk)?;
        check_settings(&settings)?;
        let secret = takes_callbacks(new.dialect).then(|| signing::mint_webhook_secret(self.random_bytes()));
        let now = self.clock().now();
        let endpoint = Endpoint {
            id: EndpointId::from_uuid(self.clock().new_uuid()),
            org_id: by.org_id(),
            settings,
            callback_secrets: secret.iter().map(|s| CallbackSecret { secret: s.clone(), valid_until: None }).collect(),
            sync: SyncState::default(),
            version: 1,
            created_at: now,
            updated_at: now,
        };
        let org = self.store().org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
        let most = limits_in_force(&org, self.settings()).max_endpoints;
        let changes = Value::Object(described(&endpoint.settings));
        let object = object(&endpoint.settings.name);
        let audit = self.audit(&By::Workspace(by), by.org_id(), "endpoint.create", object, &changes);
        // The first sync sets the time of the next one; this one counts only when it is cut off.
        let next_due = Some(now.plus(FIRST_SYNC_AGAIN));
        let stored = self.store().create_endpoint(&endpoint, most, next_due, audit).await;
        self.after_change(by.org_id(), stored).await?;
        self.sync_after_change(&endpoint).await;
        Ok((self.changed_endpoint(by, endpoint).await, secret))
    }

    /// The change is made whatever becomes of the sync: that is no reason to answer a failure.
    async fn sync_after_change(&self, endpoint: &Endpoint) {
        if let Err(error) = self.sync_endpoint(endpoint.org_id, endpoint.id, SyncTrigger::Registration).await {
            tracing::warn!(endpoint = %endpoint.id, %error, "a changed endpoint could not be synced");
        }
    }

    /// An endpoint after its change: as it is stored, or, when it cannot be read, as it was just made.
    async fn changed_endpoint(&self, by: &WorkspaceAccess, endpoint: Endpoint) -> EndpointView {
        match self.endpoint(by, endpoint.id).await {
            Ok(view) => view,
            Err(error) => {
                tracing::warn!(endpoint = %endpoint.id, %error, "a changed endpoint could not be read again");
                let catalog = self.0.registry.live(endpoint.org_id).map(|org| org.catalog());
                let tools = catalog.iter().flat_map(|catalog| catalog.tools());
                let tool_count = tools.filter(|tool| tool.endpoint.id == endpoint.id).count();
                self.endpoint_view(endpoint, tool_count)
            }
        }
    }

    /// Endpoints, in order of name.
    pub async fn list_endpoints(&self, by: &WorkspaceAccess, page: &PageRequest) -> AdminResult<Page<EndpointView>> {
        let config = self.store().load_org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
        let after = page.cursor.as_deref().unwrap_or_default();
        let mut rest = config
            .endpoints
            .into_iter()
            .filter(|(endpoint, _)| endpoint.settings.name.as_str() > after)
            .map(|(endpoint, tools)| self.endpoint_view(endpoint, tools.len()));
        let items: Vec<EndpointView> = rest.by_ref().take(page.limit).collect();
        let last = items.last().map(|view| view.endpoint.settings.name.clone());
        Ok(Page { items, next_cursor: rest.next().and(last) })
    }

    /// One endpoint.
    pub async fn endpoint(&self, by: &WorkspaceAccess, id: EndpointId) -> AdminResult<EndpointView> {
        let config = self.store().load_org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
        let found = config.endpoints.into_iter().find(|(endpoint, _)| endpoint.id == id);
        let (endpoint, tools) = found.ok_or(AdminFault::NotFound)?;
        Ok(self.endpoint_view(endpoint, tools.len()))
    }

    fn endpoint_view(&self, endpoint: Endpoint, tool_count: usize) -> EndpointView {
        let callback_url = takes_callbacks(endpoint.settings.dialect).then(|| self.callback_url(endpoint.id));
        EndpointView { endpoint, tool_count, callback_url }
    }

    /// Changes an endpoint. Switched off, its tools are gone at once; changed otherwise, it is synced before the answer.
    pub async fn update_endpoint(
        &self,
        by: &WorkspaceAccess,
        id: EndpointId,
        patch: EndpointPatch,
        if_match: Option<u64>,
    ) -> AdminResult<EndpointView> {
        for _ in 0..MAX_EDITS {
            let turn = self.0.turns.take(by.org_id()).await;
            let before = self.stored_endpoint(by, id).await?;
            check_version(before.version, if_match)?;
            let mut endpoint = before.clone();
            apply_patch(&mut endpoint.settings, patch.clone())?;
            check_settings(&endpoint.settings)?;
            endpoint.updated_at = self.clock().now();
            if endpoint.settings.tool_changes == ToolChanges::Review
                && before.settings.tool_changes == ToolChanges::Accept
            {
                self.accept_present_tools(by, &before).await?;
            }
            let changes = Value::Object(changed_members(&before.settings, &endpoint.settings));
            let object = object(&before.settings.name);
            let audit = self.audit(&By::Workspace(by), by.org_id(), "endpoint.update", object, &changes);
            let org = self.store().org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
            let next_due = self.next_due(&org, &endpoint, endpoint.sync.failures_in_a_row);
            let stored = self.store().update_endpoint(&endpoint, next_due, audit).await;
            drop(turn);
            match stored {
                Err(error) if is_overtaken(&error, if_match) => {}
                stored => {
                    let stored = self.after_change(by.org_id(), stored).await?;
                    self.0.dialogues.let_go(id);
                    // A disabled endpoint is neither up nor down.
                    if stored.settings.name != before.settings.name || !stored.settings.enabled {
                        self.metrics().forget_endpoint(&org.slug, &before.settings.name);
                    }
                    if stored.settings.enabled && stored.settings != before.settings {
                        self.sync_after_change(&stored).await;
                    }
                    return Ok(self.changed_endpoint(by, stored).await);
                }
            }
        }
        Err(AdminFault::Overloaded)
    }

    /// Deletes an endpoint with its tools; its open runs end as `cancelled`.
    pub async fn delete_endpoint(
        &self,
        by: &WorkspaceAccess,
        id: EndpointId,
        if_match: Option<u64>,
    ) -> AdminResult<()> {
        let endpoint = self.stored_endpoint(by, id).await?;
        let object = object(&endpoint.settings.name);
        let audit = self.audit(&By::Workspace(by), by.org_id(), "endpoint.delete", object, &json!({}));
        let now = self.clock().now();
        let ended = self.store().delete_endpoint(by.org_id(), id, if_match, now, audit).await;
        let ended = self.after_change(by.org_id(), ended).await?;
        for run_id in ended {
            match self.store().run(by.org_id(), run_id).await {
                Ok(Some(run)) => self.tell_settled(Arc::new(run)).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(run = %run_id, %error, "whoever waits for an ended run was not told"),
            }
        }
        self.forget_listener(id);
        self.0.dialogues.let_go(id);
        if let Some(org) = self.0.registry.live(by.org_id()) {
            self.metrics().forget_endpoint(&org.catalog().org.slug, &endpoint.settings.name);
        }
        Ok(())
    }

    /// Fetches the manifest now.
    pub async fn sync_now_by(&self, by: &WorkspaceAccess, id: EndpointId) -> AdminResult<Arc<SyncRecord>> {
        self.stored_endpoint(by, id).await?;
        Ok(self.sync_endpoint(by.org_id(), id, SyncTrigger::Api).await?)
    }

    /// Syncs of an endpoint, newest first.
    pub async fn list_syncs(
        &self,
        by: &WorkspaceAccess,
        id: EndpointId,
        page: &PageRequest,
    ) -> AdminResult<Page<SyncRecord>> {
        self.stored_endpoint(by, id).await?;
        Ok(self.store().list_syncs(by.org_id(), id, page).await?)
    }

    /// A new callback secret; the one before is accepted for another day. Answers it and until when the old one is good.
    pub async fn rotate_callback_secret(
        &self,
        by: &WorkspaceAccess,
        id: EndpointId,
    ) -> AdminResult<(Secret, Timestamp)> {
        for _ in 0..MAX_EDITS {
            let turn = self.0.turns.take(by.org_id()).await;
            let mut endpoint = self.stored_endpoint(by, id).await?;
            if !takes_callbacks(endpoint.settings.dialect) {
                return Err(AdminFault::Conflict("endpoints of this dialect take no callbacks".to_owned()));
            }
            let secret = signing::mint_webhook_secret(self.random_bytes());
            let previous_valid_until = self.clock().now().plus(ROTATION_OVERLAP);
            endpoint.callback_secrets.retain(|secret| secret.valid_until.is_none());
            for previous in &mut endpoint.callback_secrets {
                previous.valid_until = Some(previous_valid_until);
            }
            endpoint.callback_secrets.insert(0, CallbackSecret { secret: secret.clone(), valid_until: None });
            endpoint.updated_at = self.clock().now();
            let object = object(&endpoint.settings.name);
            let audit = self.audit(&By::Workspace(by), by.org_id(), "endpoint.rotate_secret", object, &json!({}));
            let org = self.store().org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
            let next_due = self.next_due(&org, &endpoint, endpoint.sync.failures_in_a_row);
            let stored = self.store().update_endpoint(&endpoint, next_due, audit).await;
            drop(turn);
            match stored {
                Err(error) if is_overtaken(&error, None) => {}
                stored => {
                    self.after_change(by.org_id(), stored).await?;
                    return Ok((secret, previous_valid_until));
                }
            }
        }
        Err(AdminFault::Overloaded)
    }

    /// What a provider says about itself, when its manifest offers that.
    pub async fn diagnostics(&self, by: &WorkspaceAccess, id: EndpointId) -> AdminResult<JsonText> {
        let endpoint = self.stored_endpoint(by, id).await?;
        if !endpoint.sync.diagnostics {
            return Err(AdminFault::NotFound);
        }
        let org = self.store().org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
        let mut request = median::encode_diagnostics(&endpoint.settings);
        dispatch::sign_if_wanted(&mut request, &endpoint.settings.auth, self.clock().now());
        let egress = egress_policy(&org, self.settings());
        let limit = self.settings().provider_response_bytes;
        let deadline = Instant::now() + DIAGNOSTICS_TIMEOUT;
        match self.0.ports.transport.send(&request, &egress, limit, deadline).await {
            Ok(answer) => {
                median::decode_diagnostics(&answer).map_err(|(code, message)| AdminFault::Provider { code, message })
            }
            Err(error) => {
                let message = format!("the provider could not be asked: {}", error.kind);
                Err(AdminFault::Provider { code: fault_code(error.kind), message })
            }
        }
    }

    /// What was in force before changes are reviewed was in force with the tenant's consent.
    async fn accept_present_tools(&self, by: &WorkspaceAccess, endpoint: &Endpoint) -> AdminResult<()> {
        let config = self.store().load_org(by.org_id()).await?.ok_or(AdminFault::NotFound)?;
        let tools = config.endpoints.iter().find(|(candidate, _)| candidate.id == endpoint.id);
        for spec in tools.iter().flat_map(|(_, tools)| tools) {
            let accepted = PolicyChange::accepting(&spec.hash);
            let changes = json!({ "accepted_hash": spec.hash });
            let object = format!("tool/{}", spec.name);
            let audit = self.audit(&By::Workspace(by), by.org_id(), "tool.accept", object, &changes);
            self.store().put_policy(by.org_id(), &spec.name, &accepted, audit).await?;
        }
        Ok(())
    }

    async fn stored_endpoint(&self, by: &WorkspaceAccess, id: EndpointId) -> AdminResult<Endpoint> {
        self.store().endpoint(by.org_id(), id).await?.ok_or(AdminFault::NotFound)
    }
}

/// A server that others run may have a tool that is no good: it takes none of the others with it.
const fn default_sync_policy(dialect: Dialect) -> SyncPolicy {
    match dialect {
        Dialect::Topology | Dialect::AgentProvider | Dialect::Median => SyncPolicy::Reject,
        Dialect::Mcp => SyncPolicy::Skip,
    }
}

const fn takes_callbacks(dialect: Dialect) -> bool {
    match dialect {
        Dialect::Topology => true,
        Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => false,
    }
}

fn object(name: &str) -> String {
    format!("endpoint/{name}")
}

fn apply_patch(settings: &mut EndpointSettings, patch: EndpointPatch) -> AdminResult<()> {
    if let Some(name) = patch.name {
        settings.name = name;
    }
    if let Some(url) = patch.base_url {
        settings.base_url = base_url(settings.dialect, &url)?;
    }
    if let Some(auth) = patch.auth {
        settings.auth = endpoint_auth(settings.dialect, auth)?;
    }
    patch.name_prefix.apply(&mut settings.name_prefix);
    settings.enabled = patch.enabled.unwrap_or(settings.enabled);
    settings.sync_policy = patch.sync_policy.unwrap_or(settings.sync_policy);
    patch.sync_interval_s.apply(&mut settings.sync_interval_s);
    settings.tool_changes = patch.tool_changes.unwrap_or(settings.tool_changes);
    patch.manifest.apply(&mut settings.inline_manifest);
    check_trust(settings.dialect, patch.trusted, patch.default_risk)?;
    settings.trusted = patch.trusted.unwrap_or(settings.trusted);
    settings.default_risk = patch.default_risk.unwrap_or(settings.default_risk);
    Ok(())
}

/// The settings for the audit trail: everything but secrets, and of an inline manifest only that there is one.
fn described(settings: &EndpointSettings) -> Map<String, Value> {
    let manifest = if settings.inline_manifest.is_some() { "inline" } else { "fetch" };
    let Value::Object(mut members) = json!({
        "name": settings.name,
        "dialect": settings.dialect.as_str(),
        "base_url": settings.base_url,
        "name_prefix": settings.name_prefix,
        "enabled": settings.enabled,
        "sync": { "policy": settings.sync_policy.as_str(), "interval_s": settings.sync_interval_s },
        "tool_changes": settings.tool_changes.as_str(),
        "manifest": manifest,
    }) else {
        unreachable!("an object was written")
    };
    if settings.dialect == Dialect::Mcp {
        members.insert("trusted".to_owned(), json!(settings.trusted));
        members.insert("default_risk".to_owned(), json!(settings.default_risk.as_str()));
    }
    members
}

fn changed_members(before: &EndpointSettings, after: &EndpointSettings) -> Map<String, Value> {
    let old = described(before);
    let mut changed: Map<String, Value> =
        described(after).into_iter().filter(|(name, value)| old.get(name) != Some(value)).collect();
    if before.auth != after.auth {
        changed.insert("auth".to_owned(), json!("replaced"));
    }
    if before.inline_manifest != after.inline_manifest {
        changed.insert("manifest".to_owned(), json!("replaced"));
    }
    changed
}
