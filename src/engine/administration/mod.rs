//! Administration: what operators and tenants set, list and look up. Every change is audited in the same step.

pub mod approvals;
mod endpoint_input;
pub mod endpoints;
pub mod groups;
pub mod keys;
pub mod operations;
pub mod orgs;
pub mod records;
pub mod tools;

use super::Engine;
use super::access::{OperatorAccess, WorkspaceAccess};
use super::actors::registry::RegistryFault;
use super::ports::StoreError;
use super::store_port::AuditEntry;
use super::sync::SyncError;
use crate::domain::ids::{AuditId, OrgId};
use crate::domain::json::JsonText;
use crate::domain::org::{LimitOverrides, Limits};
use serde_json::Value;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminFault {
    /// There is no such object in this organization.
    #[error("there is no such object")]
    NotFound,
    /// The name is in use.
    #[error("the name {0} is taken")]
    NameTaken(String),
    /// Something still refers to the object.
    #[error("{0}")]
    InUse(String),
    /// A configured number of objects is reached.
    #[error("the limit of {0} is reached")]
    LimitReached(u64),
    /// `If-Match` names an older version.
    #[error("the object has changed")]
    Stale,
    /// A member is out of bounds.
    #[error("{pointer}: {message}")]
    Invalid {
        /// RFC 6901 pointer into the request.
        pointer: String,
        /// What would be right.
        message: String,
    },
    /// The approval was decided before.
    #[error("this was decided before")]
    AlreadyDecided,
    /// The request is about another state of the object than the present one.
    #[error("{0}")]
    Conflict(String),
    /// The provider could not be asked or answered badly.
    #[error("{message}")]
    Provider {
        /// The code of section 12 of the contract.
        code: crate::domain::error_code::ErrorCode,
        /// What happened.
        message: String,
    },
    /// toolgate is too busy.
    #[error("the gateway is overloaded")]
    Overloaded,
    /// The store does not answer.
    #[error("the store does not answer")]
    Store(#[source] StoreError),
}

/// The result of an administrative call.
pub type AdminResult<T> = Result<T, AdminFault>;

impl AdminFault {
    /// A member that is out of bounds.
    pub fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { pointer: pointer.into(), message: message.into() }
    }
}

impl From<StoreError> for AdminFault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NameTaken { name } => AdminFault::NameTaken(name),
            StoreError::Stale => AdminFault::Stale,
            StoreError::NotFound => AdminFault::NotFound,
            StoreError::InUse => AdminFault::InUse("something still refers to it".to_owned()),
            StoreError::LimitReached { limit } => AdminFault::LimitReached(limit),
            StoreError::Overloaded => AdminFault::Overloaded,
            StoreError::BadCursor => {
                AdminFault::invalid("/cursor", "give the next_cursor of the page before, unchanged")
            }
            error @ (StoreError::Unavailable(_) | StoreError::Corrupt { .. }) => AdminFault::Store(error),
        }
    }
}

impl From<RegistryFault> for AdminFault {
    fn from(fault: RegistryFault) -> Self {
        match fault {
            RegistryFault::NotFound => AdminFault::NotFound,
            RegistryFault::Store(error) => error.into(),
        }
    }
}

impl From<SyncError> for AdminFault {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::NotFound => AdminFault::NotFound,
            SyncError::Disabled => AdminFault::Conflict("the endpoint is disabled; enable it first".to_owned()),
            SyncError::NotDue | SyncError::SettingsChanged => AdminFault::Overloaded,
            SyncError::Store(error) => match *error {
                StoreError::Overloaded => AdminFault::Overloaded,
                StoreError::Unavailable(_)
                | StoreError::Corrupt { .. }
                | StoreError::NameTaken { .. }
                | StoreError::Stale
                | StoreError::NotFound
                | StoreError::InUse
                | StoreError::LimitReached { .. }
                | StoreError::BadCursor => AdminFault::Store(StoreError::Unavailable(Box::new(error))),
            },
        }
    }
}

/// Changed limits, by name.
pub type LimitChanges = Vec<(String, Option<u64>)>;

/// An update without `If-Match` that others keep overtaking is tried this often.
const MAX_EDITS: usize = 32;

/// Nothing pending, held or confirmed lives longer: a day.
const LONGEST_LIFETIME_MS: u64 = 24 * 3_600_000;

/// The longest time between two syncs: a week.
const LONGEST_INTERVAL_S: u64 = 7 * 24 * 3600;

/// The largest limit that may be set: anything above is as good as none.
const LARGEST_LIMIT: u64 = 1_000_000_000;

fn check_version(version: u64, if_match: Option<u64>) -> AdminResult<()> {
    match if_match {
        Some(wanted) if wanted != version => Err(AdminFault::Stale),
        _ => Ok(()),
    }
}

/// Another edit came first: with `If-Match` that is the answer, without it the edit is made again.
fn is_overtaken(error: &StoreError, if_match: Option<u64>) -> bool {
    matches!(error, StoreError::Stale) && if_match.is_none()
}

fn apply_limits(overrides: &mut LimitOverrides, changes: &LimitChanges) -> AdminResult<()> {
    for (name, value) in changes {
        let pointer = format!("/limits/{name}");
        let smallest = u64::from(name != "sync_interval_s");
        let largest = match name.as_str() {
            "sync_interval_s" => LONGEST_INTERVAL_S,
            name if name.ends_with("_ms") => LONGEST_LIFETIME_MS,
            _ => LARGEST_LIMIT,
        };
        if let Some(value) = value
            && !(smallest..=largest).contains(value)
        {
            return Err(AdminFault::invalid(pointer, format!("give a number from {smallest} to {largest}")));
        }
        if !overrides.set(name, *value) {
            let known = Limits::NAMES.join(", ");
            return Err(AdminFault::invalid(pointer, format!("there is no such limit; known are {known}")));
        }
    }
    Ok(())
}

fn check_display_name(name: &str) -> AdminResult<()> {
    let length = name.chars().count();
    if (1..=200).contains(&length) && !name.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(AdminFault::invalid("/name", "give 1 to 200 characters without control characters"))
    }
}

fn check_slug(pointer: &str, name: &str) -> AdminResult<()> {
    if crate::domain::naming::is_slug(name) {
        Ok(())
    } else {
        Err(AdminFault::invalid(pointer, "give 1 to 63 of a-z, 0-9 and -, not beginning with -"))
    }
}

/// Who an audit entry names.
pub(super) enum By<'a> {
    Operator(&'a OperatorAccess),
    Workspace(&'a WorkspaceAccess),
}

impl Engine {
    pub(super) fn audit(
        &self,
        by: &By<'_>,
        org_id: OrgId,
        action: &str,
        object: String,
        changes: &Value,
    ) -> AuditEntry {
        let (kind, id, name, from, write) = match by {
            By::Operator(access) => ("operator", String::new(), "operator".to_owned(), access.from(), access.write()),
            By::Workspace(access) => {
                let key = access.key();
                ("workspace_key", key.id.to_string(), key.name.clone(), access.from(), access.write())
            }
        };
        AuditEntry {
            id: AuditId::from_uuid(self.clock().new_uuid()),
            org_id,
            at: self.clock().now(),
            actor_kind: kind.to_owned(),
            actor_id: id,
            actor_name: name,
            action: action.to_owned(),
            object,
            changes: JsonText::of(changes),
            from: from.to_owned(),
            write: write.cloned(),
        }
    }

    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.clock().fill_random(&mut bytes);
        bytes
    }
}

fn limit_changes_json(changes: &LimitChanges) -> Value {
    changes.iter().map(|(name, value)| (name.clone(), value.map_or(Value::Null, Value::from))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sync_that_finds_the_store_busy_says_so() {
        let fault = |error| AdminFault::from(SyncError::Store(Arc::new(error)));
        assert!(matches!(fault(StoreError::Overloaded), AdminFault::Overloaded));
        assert!(matches!(fault(StoreError::Unavailable("gone".into())), AdminFault::Store(_)));
    }
}
