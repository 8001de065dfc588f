//! The configuration: built-in documented defaults, under a TOML file, under the environment.
//!
//! Unknown keys are refused, and every mistake is reported at once with where it came from and what would be right:
//! who starts a gateway should not find their mistakes one restart at a time.

mod documented;
mod fault;
mod layers;
mod ranges;
mod read;

pub use documented::{DocumentedKey, documented_keys};
pub use fault::{ConfigFault, ConfigFaults};

use crate::domain::org::{Limits, Retention};
use crate::domain::secret::Secret;
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The variable that holds the master key, whatever else is configured.
pub const MASTER_KEY_VARIABLE: &str = "TOOLGATE_MASTER_KEY";

/// Everything an operator can set, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `server.*`
    pub server: ServerConfig,
    /// `metrics.*`
    pub metrics: MetricsConfig,
    /// `data_dir`: folder for everything toolgate keeps.
    pub data_dir: PathBuf,
    /// `store.url`
    pub store: StoreConfig,
    /// `bus.url`
    pub bus: BusConfig,
    /// `operator.*`
    pub operator: OperatorConfig,
    /// `secrets.*`
    pub secrets: SecretsConfig,
    /// `egress.*`
    pub egress: EgressConfig,
    /// `limits.*`
    pub limits: LimitsConfig,
    /// `retention.*`: what a new organization begins with.
    pub retention: Retention,
    /// `log.*`
    pub log: LogConfig,
}

/// The listener for the APIs and callbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// `server.listen`
    pub listen: SocketAddr,
    /// `server.public_url` without a trailing slash, when it was set; see [`ServerConfig::public_url_at`].
    pub public_url: Option<String>,
    /// `server.workers`, with 0 already resolved to the number of cores.
    pub workers: usize,
}

impl ServerConfig {
    /// The base URL providers reach, given the address that was bound (which has the real port when 0 was asked for).
    pub fn public_url_at(&self, bound: SocketAddr) -> String {
        self.public_url.clone().unwrap_or_else(|| {
            // Listening everywhere is no address to call; this machine's own at least is one.
            let host: IpAddr = match bound.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            format!("http://{}", SocketAddr::new(host, bound.port()))
        })
    }
}

/// The listener for `/metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// `metrics.listen`
    pub listen: SocketAddr,
    /// `metrics.max_orgs`: organizations with a label of their own.
    pub max_orgs: usize,
}

/// Where data lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// An SQLite file.
    Sqlite(PathBuf),
}

/// How several nodes talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusConfig {
    /// They do not: one node alone.
    Local,
}

/// The operator's token; without one, it is made on first start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorConfig {
    /// `operator.token`
    pub token: Option<Secret>,
    /// `operator.previous_token`
    pub previous_token: Option<Secret>,
}

/// The key that secrets are encrypted with; without one, it is made on first start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretsConfig {
    /// `TOOLGATE_MASTER_KEY`, else `secrets.master_key`.
    pub master_key: Option<MasterKey>,
    /// `secrets.previous_master_key`
    pub previous_master_key: Option<MasterKey>,
}

/// 32 bytes that `Debug` hides.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey([u8; 32]);

impl MasterKey {
    /// The bytes, for the cipher.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// The operator's ceiling for outbound calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// `egress.allow`
    pub allow: Vec<IpNet>,
    /// `egress.default_allow`
    pub default_allow: bool,
    /// `egress.ca_file`
    pub ca_file: Option<PathBuf>,
}

/// Sizes, times and numbers; every one has its unit in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// What an organization begins with, and the ceiling where its operator sets none.
    pub organization: Limits,
    /// Largest body of a run.
    pub run_body_bytes: usize,
    /// Largest body of a callback.
    pub callback_body_bytes: usize,
    /// Largest body of any other request to the APIs.
    pub api_body_bytes: usize,
    /// Largest answer of a provider to a call.
    pub provider_response_bytes: usize,
    /// Largest manifest.
    pub manifest_bytes: usize,
    /// Largest header block of a request.
    pub header_block_bytes: usize,
    /// How long a connection to a provider may take.
    pub connect_timeout_ms: u64,
    /// How long fetching a manifest may take.
    pub manifest_fetch_timeout_ms: u64,
    /// How long a run may take when its tool does not say.
    pub run_timeout_ms: u64,
    /// Callers whose rate is remembered on this node.
    pub callers_tracked: usize,
    /// Conversations that are remembered on this node.
    pub conversations_tracked: usize,
    /// MCP streams that one organization may have open on this node.
    pub listen_streams: usize,
    /// 401s a second of one peer address.
    pub unauthorized_per_second: u32,
    /// 401s at once of one peer address.
    pub unauthorized_per_second_burst: u32,
    /// Messages that may wait for one organization's actor.
    pub mailbox_capacity: usize,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `log.format`
    pub format: LogFormat,
    /// `log.level`: directives of a filter, such as `info` or `info,toolgate::engine=debug`.
    pub level: String,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

impl Config {
    /// Reads the defaults, the file and the environment, in rising order of weight.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigFaults> {
        let mut faults = Vec::new();
        let layers = layers::merge(file, environment, &mut faults);
        let config = read::config(&layers, &mut faults);
        if faults.is_empty() { Ok(config) } else { Err(ConfigFaults::new(faults)) }
    }

    /// Whether `/metrics` wants the operator token: it is open on loopback only.
    pub fn metrics_protected(&self) -> bool {
        !self.metrics.listen.ip().is_loopback()
    }
}

/// The variables of this process that concern toolgate. One that is not UTF-8 is read with replacement characters, which
/// [`Config::load`] reports: it is not overlooked.
pub fn process_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(layers::PREFIX))
}
