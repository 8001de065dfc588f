//! `toolgate check`: tests a provider against its dialect, the way the provider's developer wants it.
//!
//! Every rule becomes one line: whether it holds, what was expected, what came, and the section of the wire contract
//! that says so. Requests are encoded and answers read by the gateway's own dialects, so a provider that passes here is
//! understood there. Beside good requests it sends ones that a careful provider refuses.
//!
//! The developer names the address, so any may be called, loopback and private ones too. A tool that changes something
//! is called only when the developer says so.

mod agent_provider;
mod callback;
mod manifest;
mod mcp;
mod median;
mod report;
mod sample;
mod session;
#[cfg(test)]
mod tests;
mod topology;

use crate::adapters::transport::{SimpleClient, TransportSetupError};
use crate::domain::endpoint::{DEFAULT_RISK, EndpointAuth, EndpointSettings, SyncPolicy, ToolChanges};
use crate::domain::json::JsonText;
use crate::domain::secret::Secret;
use crate::domain::tool::Dialect;
use crate::engine::dispatch::signing::{self, UnusableSecret};
pub use report::{Line, Mark, Summary};
use session::Session;
use std::net::SocketAddr;
use std::time::Duration;
use url::Url;

/// A call the developer wants to see.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleCall {
    /// The provider's own name of the tool.
    pub tool: String,
    /// Its arguments: a JSON object.
    pub arguments: JsonText,
    /// Who is behind the call, as `X-Caller-Identity` names them.
    pub caller: Option<String>,
}

/// Where late answers are waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct CallbackOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Under which address the provider reaches that, when it is another.
    pub public_url: Option<String>,
    /// What callbacks have to be signed with.
    pub secret: Option<Secret>,
    /// How long a callback is waited for.
    pub wait: Duration,
}

/// What is checked, and how far.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckOptions {
    /// The protocol.
    pub dialect: Dialect,
    /// Where the provider is.
    pub base_url: String,
    /// The credentials it expects.
    pub auth: EndpointAuth,
    /// A tool to call.
    pub call: Option<SampleCall>,
    /// Whether a tool may be called that changes something.
    pub allow_mutations: bool,
    /// Where late answers are waited for, if at all.
    pub callback: Option<CallbackOptions>,
    /// How long any one answer is waited for.
    pub timeout: Duration,
}

/// Why nothing could be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckFault {
    /// The address cannot be one of a provider.
    #[error("{0} is not an http or https URL without query (but for mcp) and fragment")]
    BadUrl(String),
    /// The credentials are those of another dialect.
    #[error("these are not the credentials of the dialect {}", .0.as_str())]
    WrongCredentials(Dialect),
    /// Callbacks cannot be verified with that.
    #[error("the secret of callbacks cannot be used")]
    CallbackSecret(#[source] UnusableSecret),
    /// The client cannot be set up.
    #[error("the client cannot be set up")]
    Setup(#[source] TransportSetupError),
    /// Nobody can listen there.
    #[error("callbacks cannot be listened for at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Checks a provider, handing each line on as soon as it is known. Needs a running actix `System`.
pub async fn run(options: &CheckOptions, sink: &mut dyn FnMut(&Line)) -> Result<Summary, CheckFault> {
    if let Some(secret) = options.callback.as_ref().and_then(|callback| callback.secret.as_ref()) {
        signing::sign(secret, "check", 0, b"").map_err(CheckFault::CallbackSecret)?;
    }
    let client = SimpleClient::new(None, options.timeout).map_err(CheckFault::Setup)?;
    let mut session = Session::new(settings(options)?, client, sink);
    match options.dialect {
        Dialect::Topology => topology::check(&mut session, options).await?,
        Dialect::AgentProvider => agent_provider::check(&mut session, options).await,
        Dialect::Median => median::check(&mut session, options).await,
        Dialect::Mcp => mcp::check(&mut session, options).await,
    }
    Ok(session.report.summary())
}

/// The endpoint as a registration would make it.
fn settings(options: &CheckOptions) -> Result<EndpointSettings, CheckFault> {
    let fits = match &options.auth {
        EndpointAuth::Header { .. } => matches!(options.dialect, Dialect::Topology | Dialect::Mcp),
        EndpointAuth::Bearer(_) => matches!(options.dialect, Dialect::AgentProvider | Dialect::Mcp),
        EndpointAuth::None => options.dialect == Dialect::Mcp,
        EndpointAuth::SigningSecret(_) | EndpointAuth::MedianKey(_) => options.dialect == Dialect::Median,
    };
    if !fits {
        return Err(CheckFault::WrongCredentials(options.dialect));
    }
    Ok(EndpointSettings {
        name: "checked".to_owned(),
        dialect: options.dialect,
        base_url: base_url(options.dialect, &options.base_url)?,
        auth: options.auth.clone(),
        name_prefix: None,
        enabled: true,
        sync_policy: SyncPolicy::Skip,
        sync_interval_s: None,
        tool_changes: ToolChanges::Accept,
        inline_manifest: None,
        trusted: false,
        default_risk: DEFAULT_RISK,
    })
}

/// The address without a trailing slash; of an agent-provider the origin only.
fn base_url(dialect: Dialect, text: &str) -> Result<String, CheckFault> {
    let bad = || CheckFault::BadUrl(text.to_owned());
    let url = Url::parse(text).map_err(|_| bad())?;
    // The URL of an MCP server is called as it is; those of the others are continued.
    let is_whole = url.query().is_none() || dialect == Dialect::Mcp;
    let is_plain = matches!(url.scheme(), "http" | "https") && is_whole && url.fragment().is_none();
    if !is_plain || !url.has_host() {
        return Err(bad());
    }
    Ok(match dialect {
        Dialect::AgentProvider => url.origin().ascii_serialization(),
        Dialect::Topology | Dialect::Median => url.as_str().trim_end_matches('/').to_owned(),
        Dialect::Mcp => url.into(),
    })
}
