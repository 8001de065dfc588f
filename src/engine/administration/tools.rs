//! Tools as the tenant sees them, and the policy it sets on them.

use super::{AdminFault, AdminResult, By};
use crate::domain::change::Change;
use crate::domain::risk::Risk;
use crate::domain::tool::PolicyChange;
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::catalog::{CatalogTool, ToolState};
use crate::engine::settings::{MAX_PENDING_TTL, MAX_RUN_TIMEOUT};
use crate::engine::store_port::{Page, PageRequest};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What is changed of a tool's policy.
#[derive(Clone, Debug, Default)]
pub struct ToolPatch {
    /// Raises the risk.
    pub risk: Change<Risk>,
    /// Demands the end user's confirmation.
    pub requires_confirmation: Change<bool>,
    /// Replaces the run deadline, in milliseconds.
    pub timeout_ms: Change<u64>,
    /// Replaces the lifetime of a pending run, in milliseconds.
    pub pending_ttl_ms: Change<u64>,
}

impl CatalogTool {
    /// Why the tool is not active, as a sentence.
    pub fn why(&self) -> Option<String> {
        let endpoint = &self.endpoint.settings.name;
        match self.state {
            ToolState::Active => None,
            ToolState::Disabled => Some(format!("endpoint \"{endpoint}\" is disabled")),
            ToolState::Quarantined => Some(format!(
                "endpoint \"{endpoint}\" declares it newly or differently; accept hash {} to offer it",
                self.spec.hash
            )),
        }
    }
}

impl Engine {
    /// Tools of the organization, in order of name, whatever their state.
    pub async fn list_tools(&self, by: &WorkspaceAccess, page: &PageRequest) -> AdminResult<Page<Arc<CatalogTool>>> {
        let catalog = self.0.registry.get(by.org_id()).await?.catalog();
        let after = page.cursor.as_deref().unwrap_or_default();
        let mut rest = catalog.tools().filter(|tool| tool.spec.name.as_str() > after);
        let items: Vec<Arc<CatalogTool>> = rest.by_ref().take(page.limit).cloned().collect();
        let last = items.last().map(|tool| tool.spec.name.clone());
        Ok(Page { next_cursor: rest.next().and(last), items })
    }

    /// One tool.
    pub async fn tool(&self, by: &WorkspaceAccess, name: &str) -> AdminResult<Arc<CatalogTool>> {
        let catalog = self.0.registry.get(by.org_id()).await?.catalog();
        catalog.tool(name).cloned().ok_or(AdminFault::NotFound)
    }

    /// Changes a tool's policy: it makes calls stricter, never laxer than declared.
    pub async fn update_tool(
        &self,
        by: &WorkspaceAccess,
        name: &str,
        patch: ToolPatch,
    ) -> AdminResult<Arc<CatalogTool>> {
        let tool = self.tool(by, name).await?;
        let mut changes = Map::new();
        if let Change::Set(risk) = &patch.risk {
            let declared = tool.declared_risk().unwrap_or(Risk::Medium);
            if *risk < declared {
                let message = format!("a risk can be raised, never lowered; it is {}", declared.as_str());
                return Err(AdminFault::invalid("/risk", message));
            }
        }
        if patch.requires_confirmation == Change::Set(false) && tool.spec.requires_confirmation {
            let message = "the endpoint demands a confirmation; that cannot be taken back here";
            return Err(AdminFault::invalid("/requires_confirmation", message));
        }
        note(&mut changes, "risk", &patch.risk, |risk| json!(risk.as_str()));
        note(&mut changes, "requires_confirmation", &patch.requires_confirmation, |value| json!(value));
        note(&mut changes, "timeout_ms", &patch.timeout_ms, |value| json!(value));
        note(&mut changes, "pending_ttl_ms", &patch.pending_ttl_ms, |value| json!(value));
        let change = PolicyChange {
            risk: patch.risk,
            requires_confirmation: patch.requires_confirmation,
            timeout: duration("timeout_ms", patch.timeout_ms, MAX_RUN_TIMEOUT)?,
            pending_ttl: duration("pending_ttl_ms", patch.pending_ttl_ms, MAX_PENDING_TTL)?,
            accepted_hash: None,
        };
        self.put_policy(by, &tool, &change, "tool.update", Value::Object(changes)).await
    }

    /// Accepts the present declaration of a tool: whoever accepts says which one was looked at.
    pub async fn accept_tool(&self, by: &WorkspaceAccess, name: &str, hash: &str) -> AdminResult<Arc<CatalogTool>> {
        let tool = self.tool(by, name).await?;
        if tool.spec.hash != hash {
            let message = format!("the tool's declaration has hash {} now; look at it again", tool.spec.hash);
            return Err(AdminFault::Conflict(message));
        }
        self.put_policy(by, &tool, &PolicyChange::accepting(hash), "tool.accept", json!({ "accepted_hash": hash }))
            .await
    }

    async fn put_policy(
        &self,
        by: &WorkspaceAccess,
        tool: &CatalogTool,
        change: &PolicyChange,
        action: &str,
        changes: Value,
    ) -> AdminResult<Arc<CatalogTool>> {
        let name = &tool.spec.name;
        let audit = self.audit(&By::Workspace(by), by.org_id(), action, format!("tool/{name}"), &changes);
        let stored = self.store().put_policy(by.org_id(), name, change, audit).await;
        self.after_change(by.org_id(), stored).await?;
        self.tool(by, name).await
    }
}

fn duration(name: &str, change: Change<u64>, longest: Duration) -> AdminResult<Change<Duration>> {
    Ok(match change {
        Change::Keep => Change::Keep,
        Change::Clear => Change::Clear,
        Change::Set(ms) if ms >= 1 && u128::from(ms) <= longest.as_millis() => Change::Set(Duration::from_millis(ms)),
        Change::Set(_) => {
            let message = format!("give milliseconds from 1 to {}", longest.as_millis());
            return Err(AdminFault::invalid(format!("/{name}"), message));
        }
    })
}

fn note<T>(changes: &mut Map<String, Value>, name: &str, change: &Change<T>, json: impl Fn(&T) -> Value) {
    match change {
        Change::Keep => {}
        Change::Clear => {
            changes.insert(name.to_owned(), Value::Null);
        }
        Change::Set(value) => {
            changes.insert(name.to_owned(), json(value));
        }
    }
}
