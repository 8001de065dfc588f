//! What has happened: runs and the audit trail, for the tenant's eyes.

use super::{AdminFault, AdminResult};
use crate::domain::group::Verdict;
use crate::domain::ids::{KeyId, RunId};
use crate::domain::run::Run;
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::catalog::ToolState;
use crate::engine::store_port::{AuditEntry, Page, PageRequest, RunFilter};

/// Why an agent key can or cannot use a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// It is listed.
    pub visible: bool,
    /// It can be called.
    pub callable: bool,
    /// `allowed`, `denied_by_rule`, `no_rule`, `not_found`, `quarantined`, `endpoint_disabled` or `key_revoked`.
    pub reason: &'static str,
    /// The group whose rule decided.
    pub group: Option<String>,
    /// Its index in the group.
    pub rule: Option<usize>,
}

impl Explanation {
    const fn no(reason: &'static str) -> Self {
        Self { visible: false, callable: false, reason, group: None, rule: None }
    }
}

impl Engine {
    /// Runs of the organization, newest first.
    pub async fn list_runs(
        &self,
        by: &WorkspaceAccess,
        filter: &RunFilter,
        page: &PageRequest,
    ) -> AdminResult<Page<Run>> {
        // What was answered a moment ago is in the list.
        self.store().catch_up().await?;
        let mut filter = filter.clone();
        // A tool is shown by its canonical id too.
        if let Some((_, name)) = filter.tool.as_deref().and_then(|tool| tool.split_once(':')) {
            filter.tool = Some(name.to_owned());
        }
        Ok(self.store().list_runs(by.org_id(), &filter, page).await?)
    }

    /// One run of the organization.
    pub async fn tenant_run(&self, by: &WorkspaceAccess, id: RunId) -> AdminResult<Run> {
        self.store().catch_up().await?;
        self.store().run(by.org_id(), id).await?.ok_or(AdminFault::NotFound)
    }

    /// The audit trail, newest first.
    pub async fn list_audit(&self, by: &WorkspaceAccess, page: &PageRequest) -> AdminResult<Page<AuditEntry>> {
        Ok(self.store().list_audit(by.org_id(), page).await?)
    }

    /// Why an agent key can or cannot use a tool, by the same decision that lists and calls.
    pub async fn explain(&self, by: &WorkspaceAccess, agent_key: KeyId, tool: &str) -> AdminResult<Explanation> {
        let Some(key) = self.store().agent_key(by.org_id(), agent_key).await? else {
            return Ok(Explanation::no("key_revoked"));
        };
        if key.expires_at.is_some_and(|at| at <= self.clock().now()) {
            return Ok(Explanation::no("key_revoked"));
        }
        let catalog = self.0.registry.get(by.org_id()).await?.catalog();
        let found = catalog.tool(tool).or_else(|| catalog.tools().find(|candidate| candidate.id == tool));
        let Some(found) = found else { return Ok(Explanation::no("not_found")) };
        let (allowed, reason, group, rule) = match catalog.verdict(&key.groups, found) {
            Verdict::Allowed { group, rule } => (true, "allowed", Some(group.to_owned()), Some(rule)),
            Verdict::Denied { group, rule } => (false, "denied_by_rule", Some(group.to_owned()), Some(rule)),
            Verdict::NoRule => (false, "no_rule", None, None),
        };
        let reason = match found.state {
            ToolState::Active => reason,
            ToolState::Quarantined => "quarantined",
            ToolState::Disabled => "endpoint_disabled",
        };
        let usable = allowed && found.state == ToolState::Active;
        Ok(Explanation { visible: usable, callable: usable, reason, group, rule })
    }
}
