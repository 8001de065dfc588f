//! `toolgate endpoint`: the providers of an organization.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members, secret};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::{Args, Subcommand};

const ENDPOINTS: &str = "/v1/endpoints";

#[derive(Subcommand)]
pub(super) enum EndpointVerb {
    /// List endpoints.
    List(PageArgs),
    /// Show one.
    Get {
        /// Name or id.
        endpoint: String,
    },
    /// Register one and sync it; for a topology, the answer holds its callback secret, once.
    Create {
        #[command(flatten)]
        new: NewEndpoint,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Change one.
    Update {
        /// Name or id.
        endpoint: String,
        #[command(flatten)]
        change: EndpointChange,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Delete one with its tools.
    Delete {
        /// Name or id.
        endpoint: String,
    },
    /// Fetch its manifest now.
    Sync {
        /// Name or id.
        endpoint: String,
    },
    /// List the syncs so far, newest first.
    Syncs {
        /// Name or id.
        endpoint: String,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Make a new callback secret; the one before counts for another 24 h.
    RotateSecret {
        /// Name or id.
        endpoint: String,
    },
    /// Ask the provider about itself (median, when its manifest offers that).
    Diagnostics {
        /// Name or id.
        endpoint: String,
    },
}

#[derive(Args)]
pub(super) struct NewEndpoint {
    /// Its name: a-z, 0-9 and -.
    #[arg(required_unless_present = "body")]
    name: Option<String>,
    /// The protocol it speaks: topology, agent-provider, median or mcp.
    #[arg(long, required_unless_present = "body")]
    dialect: Option<String>,
    /// Where it is.
    #[arg(long, value_name = "URL", required_unless_present = "body")]
    base_url: Option<String>,
    #[command(flatten)]
    auth: AuthArgs,
    /// Put before every tool name of this endpoint.
    #[arg(long, value_name = "PREFIX")]
    name_prefix: Option<String>,
    /// Tools of a topology, instead of a manifest that is fetched: a JSON array, @FILE or -.
    #[arg(long, value_name = "JSON|@FILE|-")]
    tools: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sync: SyncArgs,
}

#[derive(Args)]
pub(super) struct EndpointChange {
    /// A new name.
    #[arg(long)]
    name: Option<String>,
    /// Where it is now.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    #[command(flatten)]
    auth: AuthArgs,
    /// Put before every tool name of this endpoint; "" for none.
    #[arg(long, value_name = "PREFIX")]
    name_prefix: Option<String>,
    /// Whether its tools are offered and synced.
    #[arg(long)]
    enabled: Option<bool>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sync: SyncArgs,
}

/// What the gateway shows the provider. Each secret may be given as @FILE or - to keep it out of the process list.
#[derive(Args)]
pub(super) struct AuthArgs {
    /// Topology, mcp: the header that holds the secret (topology: X-Auth when absent).
    #[arg(long, value_name = "NAME")]
    auth_header: Option<String>,
    /// Topology, mcp: the secret shown to the provider (or @FILE, or -).
    #[arg(long, value_name = "SECRET")]
    auth_value: Option<String>,
    /// Agent-provider, mcp: the bearer token shown to the provider (or @FILE, or -).
    #[arg(long, value_name = "TOKEN")]
    bearer: Option<String>,
    /// Median: the secret requests are signed with (or @FILE, or -).
    #[arg(long, value_name = "SECRET")]
    signing_secret: Option<String>,
    /// Median: the key that secret is derived from (or @FILE, or -).
    #[arg(long, value_name = "KEY")]
    median_key: Option<String>,
}

impl AuthArgs {
    fn members(&self) -> Result<Members, CliFault> {
        let read = |option: &Option<String>| option.as_deref().map(secret).transpose();
        Ok(Members::default()
            .with("header", self.auth_header.as_deref())
            .with("value", read(&self.auth_value)?)
            .with("bearer", read(&self.bearer)?)
            .with("signing_secret", read(&self.signing_secret)?)
            .with("median_key", read(&self.median_key)?))
    }
}

/// What an MCP server is believed.
#[derive(Args)]
pub(super) struct TrustArgs {
    /// Mcp: whether what the server says of its tools is believed.
    #[arg(long, value_name = "true|false")]
    trusted: Option<bool>,
    /// Mcp: the risk of its tools, but of those that only read where it is trusted.
    #[arg(long, value_name = "low|medium|reviewed|high")]
    default_risk: Option<String>,
}

impl TrustArgs {
    fn add_to(&self, members: Members) -> Members {
        members.with("trusted", self.trusted).with("default_risk", self.default_risk.as_deref())
    }
}

/// How its manifest is taken.
#[derive(Args)]
pub(super) struct SyncArgs {
    /// What one bad tool does: reject the sync, or skip the tool.
    #[arg(long, value_name = "reject|skip")]
    sync_policy: Option<String>,
    /// Seconds between two syncs; 0 is off.
    #[arg(long, value_name = "SECONDS")]
    sync_interval_s: Option<u64>,
    /// What a changed tool does: accept it, or hold it for review.
    #[arg(long, value_name = "accept|review")]
    tool_changes: Option<String>,
}

impl SyncArgs {
    fn add_to(&self, members: Members) -> Members {
        let sync =
            Members::default().with("policy", self.sync_policy.as_deref()).with("interval_s", self.sync_interval_s);
        members.object("sync", sync).with("tool_changes", self.tool_changes.as_deref())
    }
}

impl NewEndpoint {
    fn members(&self) -> Result<Members, CliFault> {
        let members = Members::default()
            .with("name", self.name.as_deref())
            .with("dialect", self.dialect.as_deref())
            .with("base_url", self.base_url.as_deref())
            .object("auth", self.auth.members()?)
            .with("name_prefix", self.name_prefix.as_deref());
        let manifest = Members::default().json("tools", self.tools.as_deref())?;
        Ok(self.sync.add_to(self.trust.add_to(members.object("manifest", manifest))))
    }
}

impl EndpointChange {
    fn members(&self) -> Result<Members, CliFault> {
        let members = Members::default()
            .with("name", self.name.as_deref())
            .with("base_url", self.base_url.as_deref())
            .object("auth", self.auth.members()?)
            .clearable("name_prefix", self.name_prefix.as_deref())
            .with("enabled", self.enabled);
        Ok(self.sync.add_to(self.trust.add_to(members)))
    }
}

pub(super) async fn run(client: &Client, verb: EndpointVerb) -> Result<(), CliFault> {
    match verb {
        EndpointVerb::List(page) => {
            let view = View::Table(&["name", "dialect", "state", "reason.code", "tool_count", "last_good_at", "id"]);
            client.show(Request::get(ENDPOINTS).page(&page), view).await
        }
        EndpointVerb::Get { endpoint } => {
            client.show(Request::get(path(client, &endpoint, "").await?), View::Record).await
        }
        EndpointVerb::Create { new, body } => {
            let body = body.or(|| new.members())?;
            client.show(Request::new(SimpleMethod::Post, ENDPOINTS).body(body), View::Record).await
        }
        EndpointVerb::Update { endpoint, change, body } => {
            let body = body.or(|| change.members())?;
            let path = path(client, &endpoint, "").await?;
            client.show(Request::new(SimpleMethod::Patch, path).body(body), View::Record).await
        }
        EndpointVerb::Delete { endpoint } => {
            let request = Request::new(SimpleMethod::Delete, path(client, &endpoint, "").await?);
            client.show(request, View::Done(format!("deleted {endpoint}"))).await
        }
        EndpointVerb::Sync { endpoint } => {
            let path = path(client, &endpoint, "/sync").await?;
            client.show_sync(Request::new(SimpleMethod::Post, path)).await
        }
        EndpointVerb::Syncs { endpoint, page } => {
            let view = View::Table(&["at", "trigger", "outcome", "reason.code", "http_status", "duration_ms"]);
            client.show(Request::get(path(client, &endpoint, "/syncs").await?).page(&page), view).await
        }
        EndpointVerb::RotateSecret { endpoint } => {
            let path = path(client, &endpoint, "/rotate-secret").await?;
            client.show(Request::new(SimpleMethod::Post, path), View::Record).await
        }
        EndpointVerb::Diagnostics { endpoint } => {
            client.show(Request::get(path(client, &endpoint, "/diagnostics").await?), View::Record).await
        }
    }
}

async fn path(client: &Client, endpoint: &str, rest: &str) -> Result<String, CliFault> {
    let id = client.id_of("endpoint", ENDPOINTS, "name", endpoint).await?;
    Ok(format!("{ENDPOINTS}/{}{rest}", segment(&id)))
}
