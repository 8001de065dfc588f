//! What the operator configured, as far as the engine needs it.

use crate::domain::org::{Limits, Retention};
use ipnet::IpNet;
use std::time::Duration;

/// Engine settings; `app.rs` fills them from the configuration.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Absolute base of callback URLs, without a trailing slash.
    pub public_url: String,
    /// The operator's ceiling of every organization's limits.
    pub limits: Limits,
    /// Default retention.
    pub retention: Retention,
    /// Networks that organizations may be given.
    pub egress_allow: Vec<IpNet>,
    /// Every organization gets all of `egress_allow`.
    pub egress_default_allow: bool,
    /// Largest manifest, in bytes.
    pub manifest_bytes: usize,
    /// Largest provider answer, in bytes.
    pub provider_response_bytes: usize,
    /// Deadline of a manifest fetch with its retries.
    pub manifest_fetch_timeout: Duration,
    /// Run deadline of a tool that declares none.
    pub run_timeout: Duration,
    /// Turns that may wait for one organization's actor.
    pub mailbox_capacity: usize,
    /// Threads that organization actors run on.
    pub actor_threads: usize,
    /// How long an organization without a call keeps its actor.
    pub actor_idle: Duration,
    /// Callers whose rate is tracked on this node.
    pub callers_tracked: usize,
    /// Conversations remembered on this node.
    pub conversations_tracked: u64,
    /// Memory for compiled schemas, in bytes (about 12 KB each).
    pub schema_cache_bytes: u64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            public_url: "http://127.0.0.1:8080".to_owned(),
            limits: Limits::default(),
            retention: Retention::default(),
            egress_allow: Vec::new(),
            egress_default_allow: false,
            manifest_bytes: 512_000,
            provider_response_bytes: 4 << 20,
            manifest_fetch_timeout: Duration::from_secs(10),
            run_timeout: Duration::from_secs(30),
            mailbox_capacity: 1024,
            actor_threads: 1,
            actor_idle: Duration::from_secs(300),
            callers_tracked: 100_000,
            conversations_tracked: 100_000,
            schema_cache_bytes: 256 << 20,
        }
    }
}

/// A tool's run deadline is never longer.
pub const MAX_RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// `Prefer: wait` is never longer.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// A pending run never lives longer.
pub const MAX_PENDING_TTL: Duration = Duration::from_secs(24 * 3600);

/// An unmatched callback is kept this long.
pub const EARLY_CALLBACK_TTL: Duration = Duration::from_secs(120);

/// Unmatched callbacks kept for one endpoint.
pub const MAX_EARLY_CALLBACKS: usize = 1000;

/// Median tools over all Median endpoints of an organization.
pub const MAX_MEDIAN_TOOLS: usize = 20;
