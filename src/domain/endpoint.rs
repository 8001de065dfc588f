//! Endpoints: a provider that a tenant registered, and the state of its manifest.

use super::ids::{EndpointId, OrgId};
use super::json::JsonText;
use super::manifest::{SkippedTool, SyncFault};
use super::risk::Risk;
use super::secret::Secret;
use super::time::Timestamp;
use super::tool::Dialect;
use std::sync::Arc;

/// The credentials toolgate shows to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAuth {
    /// One header with a fixed value (topology, where it is `X-Auth` by default, and mcp).
    Header {
        /// Header name.
        name: String,
        /// Header value.
        value: Secret,
    },
    /// A bearer token (agent-provider, mcp).
    Bearer(Secret),
    /// Median: the secret requests are signed with.
    SigningSecret(Secret),
    /// Median: the key the signing secret is derived from.
    MedianKey(Secret),
    /// None is shown (mcp).
    None,
}

/// The risk of an MCP server's tools where the tenant says nothing.
pub const DEFAULT_RISK: Risk = Risk::Medium;

/// What one bad tool does to a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// It fails the sync; the last good set stays.
    Reject,
    /// It is left out and listed with its reason.
    Skip,
}

impl SyncPolicy {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            SyncPolicy::Reject => "reject",
            SyncPolicy::Skip => "skip",
        }
    }

    /// The policy with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [SyncPolicy::Reject, SyncPolicy::Skip].into_iter().find(|p| p.as_str() == word)
    }
}

/// What a changed tool does to the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChanges {
    /// It is taken over.
    Accept,
    /// It is quarantined until a workspace key accepts its hash.
    Review,
}

impl ToolChanges {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ToolChanges::Accept => "accept",
            ToolChanges::Review => "review",
        }
    }

    /// The setting with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [ToolChanges::Accept, ToolChanges::Review].into_iter().find(|c| c.as_str() == word)
    }
}

/// A secret the provider's response node signs callbacks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackSecret {
    /// `whsec_` and 24 random bytes as base64.
    pub secret: Secret,
    /// Until when it is accepted; `None` for the current one.
    pub valid_until: Option<Timestamp>,
}

/// What the tenant set; every change raises `version`.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSettings {
    /// The endpoint's name (a slug), unique in its organization.
    pub name: String,
    /// The protocol it speaks; fixed at registration.
    pub dialect: Dialect,
    /// Absolute http(s) URL without a trailing slash, query or fragment; of an MCP server exactly as it was given.
    pub base_url: String,
    /// Credentials shown to the provider.
    pub auth: EndpointAuth,
    /// Goes before every tool name of this endpoint.
    pub name_prefix: Option<String>,
    /// Whether its tools are offered and synced.
    pub enabled: bool,
    /// What one bad tool does.
    pub sync_policy: SyncPolicy,
    /// Seconds between syncs; `None` takes the organization's, 0 is off.
    pub sync_interval_s: Option<u64>,
    /// What a changed tool does.
    pub tool_changes: ToolChanges,
    /// The manifest given at registration instead of a fetched one: the JSON array of its tools.
    pub inline_manifest: Option<JsonText>,
    /// What the server says of its tools is believed (mcp only).
    pub trusted: bool,
    /// The risk of its tools, but of those that only read where it is trusted (mcp only).
    pub default_risk: Risk,
}

/// What the syncs so far have found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncState {
    /// When the last sync ended.
    pub last_synced_at: Option<Timestamp>,
    /// When the last good sync ended.
    pub last_good_at: Option<Timestamp>,
    /// Why the last sync failed; `None` after a good one.
    pub fault: Option<SyncFault>,
    /// Hash of the manifest of the last good set: SHA-256 of canonical JSON, 64 hex digits.
    pub manifest_hash: Option<String>,
    /// The entity tag the last good set came with, for conditional requests.
    pub manifest_etag: Option<String>,
    /// The endpoint version the last good set was made under.
    pub applied_version: Option<u64>,
    /// Tools the last good sync left out.
    pub skipped: Vec<SkippedTool>,
    /// Failed syncs in a row, for the back-off.
    pub failures_in_a_row: u32,
    /// The manifest offers diagnostics (median).
    pub diagnostics: bool,
    /// The revision of the protocol that the last good sync was answered in (mcp).
    pub protocol_version: Option<String>,
}

/// One endpoint of one organization, without its tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Its organization.
    pub org_id: OrgId,
    /// What the tenant set.
    pub settings: EndpointSettings,
    /// Secrets its callbacks are signed with, newest first (topology only).
    pub callback_secrets: Vec<CallbackSecret>,
    /// What the syncs found.
    pub sync: SyncState,
    /// Raised by every change of the settings.
    pub version: u64,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its settings last changed.
    pub updated_at: Timestamp,
}

/// The state word of an endpoint item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// The last sync was good.
    Connected,
    /// The last sync failed, or none has ended yet.
    SyncFailed,
    /// Switched off by the tenant.
    Disabled,
}

impl EndpointState {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            EndpointState::Connected => "connected",
            EndpointState::SyncFailed => "sync_failed",
            EndpointState::Disabled => "disabled",
        }
    }
}

impl Endpoint {
    /// The state word.
    pub fn state(&self) -> EndpointState {
        if !self.settings.enabled {
            EndpointState::Disabled
        } else if self.sync.last_good_at.is_some() && self.sync.fault.is_none() {
            EndpointState::Connected
        } else {
            EndpointState::SyncFailed
        }
    }
}

/// An endpoint as readers share it.
pub type SharedEndpoint = Arc<Endpoint>;
