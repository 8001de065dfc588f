//! Manifests: what a sync found, why it failed, and what it changed.

use super::tool::DeclaredTool;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

macro_rules! sync_reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal;)*) => {
        /// Why a sync failed or a tool was left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SyncReason { $($(#[$doc])* $variant,)* }

        impl SyncReason {
            /// Every reason.
            pub const ALL: &'static [SyncReason] = &[$(SyncReason::$variant,)*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(SyncReason::$variant => $word,)* }
            }

            /// The reason with this word.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
            }
        }
    };
}

sync_reasons! {
    /// No connection.
    Unreachable = "unreachable";
    /// No answer within the fetch limit.
    Timeout = "timeout";
    /// An HTTP status other than 200.
    BadStatus = "bad_status";
    /// 401 or 403.
    Unauthorized = "unauthorized";
    /// The body is not JSON.
    NotJson = "not_json";
    /// The body is over its limit.
    TooLarge = "too_large";
    /// The manifest's version is not spoken.
    UnsupportedVersion = "unsupported_version";
    /// More tools than the dialect allows.
    TooManyTools = "too_many_tools";
    /// More tools than the organization may have.
    OrgToolLimit = "org_tool_limit";
    /// One name twice in one manifest.
    DuplicateName = "duplicate_name";
    /// The name belongs to another endpoint.
    NameTaken = "name_taken";
    /// The name is reserved.
    ReservedName = "reserved_name";
    /// The name breaks the dialect's rule.
    BadName = "bad_name";
    /// The description breaks the dialect's rule.
    BadDescription = "bad_description";
    /// The risk is none of the known ones.
    BadRisk = "bad_risk";
    /// The schema is refused.
    BadSchema = "bad_schema";
    /// Any other fault of the manifest.
    BadManifest = "bad_manifest";
    /// The address is not allowed.
    BlockedAddress = "blocked_address";
}

/// A reason and a sentence for whoever must fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFault {
    /// The reason code.
    pub reason: SyncReason,
    /// What is wrong and what would be right, naming the tool where one is at fault.
    pub message: String,
}

impl SyncFault {
    /// A fault with its sentence.
    pub fn new(reason: SyncReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for SyncFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.message)
    }
}

/// A tool that a sync left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedTool {
    /// The provider's own name or id of the item, as far as it could be read.
    pub tool: String,
    /// Why.
    pub fault: SyncFault,
}

/// A manifest that its dialect accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The checked tools, in the provider's order.
    pub tools: Vec<DeclaredTool>,
    /// Items left out, with their reasons.
    pub skipped: Vec<SkippedTool>,
    /// SHA-256 of the canonical JSON of the whole manifest, 64 hex digits.
    pub hash: String,
    /// The manifest offers diagnostics (median).
    pub diagnostics: bool,
    /// The entity tag of the answer it came in; no dialect reads it from the body, the fetch adds it.
    pub etag: Option<String>,
    /// The revision of the protocol it came in (mcp); the fetch adds it.
    pub protocol_version: Option<String>,
}

/// What made a sync run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncTrigger {
    /// The endpoint was registered, or its settings changed.
    Registration,
    /// A workspace key asked for it.
    Api,
    /// A new conversation began.
    Conversation,
    /// The interval has passed.
    Interval,
    /// The provider announced a change.
    ListChanged,
}

impl SyncTrigger {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            SyncTrigger::Registration => "registration",
            SyncTrigger::Api => "api",
            SyncTrigger::Conversation => "conversation",
            SyncTrigger::Interval => "interval",
            SyncTrigger::ListChanged => "list_changed",
        }
    }

    /// The trigger with this word.
    pub fn parse(word: &str) -> Option<Self> {
        use SyncTrigger::{Api, Conversation, Interval, ListChanged, Registration};
        [Registration, Api, Conversation, Interval, ListChanged].into_iter().find(|t| t.as_str() == word)
    }
}

/// How a sync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// A new set of tools is in force.
    Applied,
    /// The manifest is the one in force.
    Unchanged,
    /// The last good set stays.
    Failed,
}

impl SyncOutcome {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            SyncOutcome::Applied => "applied",
            SyncOutcome::Unchanged => "unchanged",
            SyncOutcome::Failed => "failed",
        }
    }

    /// The outcome with this word.
    pub fn parse(word: &str) -> Option<Self> {
        use SyncOutcome::{Applied, Failed, Unchanged};
        [Applied, Unchanged, Failed].into_iter().find(|o| o.as_str() == word)
    }
}

/// One tool whose declaration changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTool {
    /// Its catalog name.
    pub name: String,
    /// The members that were added, removed or changed, in order.
    pub members: Vec<String>,
}

/// What a sync changed, by catalog name, each list in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestDiff {
    /// Tools that are new.
    pub added: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Tools declared differently; every member counts.
    pub changed: Vec<ChangedTool>,
}

impl ManifestDiff {
    /// Compares two sets of tools.
    pub fn between(old: &[DeclaredTool], new: &[DeclaredTool]) -> Self {
        let index = |tools: &[DeclaredTool]| -> BTreeMap<String, Value> {
            tools.iter().map(|tool| (tool.spec.name.clone(), tool.declared.clone())).collect()
        };
        let (old, new) = (index(old), index(new));
        let mut diff = Self::default();
        for (name, declared) in &new {
            match old.get(name) {
                None => diff.added.push(name.clone()),
                Some(before) if before != declared => {
                    diff.changed.push(ChangedTool { name: name.clone(), members: changed_members(before, declared) })
                }
                Some(_) => {}
            }
        }
        diff.removed = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        diff
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

fn changed_members(before: &Value, after: &Value) -> Vec<String> {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return Vec::new();
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}
