//! Groups: who sees which tools.

use super::{AdminFault, AdminResult, By, MAX_EDITS, check_slug, check_version, is_overtaken};
use crate::domain::group::{Group, Rule};
use crate::domain::ids::GroupId;
use crate::engine::Engine;
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::{Page, PageRequest, StoreError};
use serde_json::{Value, json};

/// Rules of one group.
const MAX_RULES: usize = 100;
/// Values in one member of a rule.
const MAX_VALUES: usize = 500;
/// Characters of one value.
const MAX_VALUE_LENGTH: usize = 128;

impl Engine {
    /// Makes a group.
    pub async fn create_group(&self, by: &WorkspaceAccess, name: String, rules: Vec<Rule>) -> AdminResult<Group> {
        check_slug("/name", &name)?;
        check_rules(&rules)?;
        let now = self.clock().now();
        let id = GroupId::from_uuid(self.clock().new_uuid());
        let group = Group { id, name, rules, version: 1, created_at: now, updated_at: now };
        let audit = self.audit(&By::Workspace(by), by.org_id(), "group.create", object(&group.name), &changes(&group));
        let stored = self.store().create_group(by.org_id(), &group, audit).await;
        self.after_change(by.org_id(), stored).await?;
        Ok(group)
    }

    /// Groups, in order of name.
    pub async fn list_groups(&self, by: &WorkspaceAccess, page: &PageRequest) -> AdminResult<Page<Group>> {
        Ok(self.store().list_groups(by.org_id(), page).await?)
    }

    /// One group.
    pub async fn group(&self, by: &WorkspaceAccess, name: &str) -> AdminResult<Group> {
        self.store().group(by.org_id(), name).await?.ok_or(AdminFault::NotFound)
    }

    /// Replaces a group; what its keys see changes at once.
    pub async fn replace_group(
        &self,
        by: &WorkspaceAccess,
        name: &str,
        new_name: Option<String>,
        rules: Vec<Rule>,
        if_match: Option<u64>,
    ) -> AdminResult<Group> {
        if let Some(new_name) = &new_name {
            check_slug("/name", new_name)?;
        }
        check_rules(&rules)?;
        for _ in 0..MAX_EDITS {
            let turn = self.0.turns.take(by.org_id()).await;
            let mut group = self.group(by, name).await?;
            check_version(group.version, if_match)?;
            group.rules.clone_from(&rules);
            if let Some(new_name) = &new_name {
                group.name.clone_from(new_name);
            }
            group.updated_at = self.clock().now();
            let audit = self.audit(&By::Workspace(by), by.org_id(), "group.replace", object(name), &changes(&group));
            let stored = self.store().update_group(by.org_id(), &group, audit).await;
            drop(turn);
            match stored {
                Err(error) if is_overtaken(&error, if_match) => {}
                stored => return self.after_change(by.org_id(), stored).await,
            }
        }
        Err(AdminFault::Overloaded)
    }

    /// Deletes a group that no key belongs to.
    pub async fn delete_group(&self, by: &WorkspaceAccess, name: &str, if_match: Option<u64>) -> AdminResult<()> {
        let audit = self.audit(&By::Workspace(by), by.org_id(), "group.delete", object(name), &json!({}));
        match self.store().delete_group(by.org_id(), name, if_match, audit).await {
            Err(StoreError::InUse) => {
                Err(AdminFault::InUse(format!("an agent key still belongs to group \"{name}\"; move it first")))
            }
            deleted => self.after_change(by.org_id(), deleted).await,
        }
    }
}

fn object(name: &str) -> String {
    format!("group/{name}")
}

fn changes(group: &Group) -> Value {
    let rules: Vec<Value> = group
        .rules
        .iter()
        .map(|rule| {
            let risks = rule.risks.as_ref().map(|risks| risks.iter().map(|risk| risk.as_str()).collect::<Vec<_>>());
            json!({ "effect": rule.effect.as_str(), "tools": rule.tools, "endpoints": rule.endpoints, "risks": risks })
        })
        .collect();
    json!({ "name": group.name, "rules": rules })
}

fn check_rules(rules: &[Rule]) -> AdminResult<()> {
    if rules.len() > MAX_RULES {
        return Err(AdminFault::invalid("/rules", format!("give at most {MAX_RULES} rules")));
    }
    for (at, rule) in rules.iter().enumerate() {
        for (member, values) in [("tools", &rule.tools), ("endpoints", &rule.endpoints)] {
            let Some(values) = values else { continue };
            let pointer = format!("/rules/{at}/{member}");
            if values.is_empty() || values.len() > MAX_VALUES {
                let message = format!("give 1 to {MAX_VALUES} values, or leave the member out to match everything");
                return Err(AdminFault::invalid(pointer, message));
            }
            if values.iter().any(|value| value.is_empty() || value.chars().count() > MAX_VALUE_LENGTH) {
                return Err(AdminFault::invalid(pointer, format!("give values of 1 to {MAX_VALUE_LENGTH} characters")));
            }
        }
        if rule.risks.as_ref().is_some_and(Vec::is_empty) {
            let message = "give at least one risk, or leave the member out to match everything";
            return Err(AdminFault::invalid(format!("/rules/{at}/risks"), message));
        }
    }
    Ok(())
}
