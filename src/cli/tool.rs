//! `toolgate tool`: the catalog of an organization.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::{Args, Subcommand};

const TOOLS: &str = "/v1/tools";

#[derive(Subcommand)]
pub(super) enum ToolVerb {
    /// List tools of every state.
    List(PageArgs),
    /// Show one.
    Get {
        /// Its name.
        tool: String,
    },
    /// Make one stricter than its provider declares it.
    Update {
        /// Its name.
        tool: String,
        #[command(flatten)]
        change: ToolChange,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Take a quarantined one into the catalog, as it is declared now.
    Accept {
        /// Its name.
        tool: String,
        /// The hash of the declaration you have read (`tool get`).
        #[arg(long)]
        hash: String,
    },
    /// List what the agent key may use, as its agent sees it.
    Manifest,
    /// Say why an agent key can or cannot use one.
    Explain {
        /// Its name.
        tool: String,
        /// Name or id of the agent key.
        #[arg(long, value_name = "AGENT_KEY")]
        agent_key: String,
    },
}

#[derive(Args)]
pub(super) struct ToolChange {
    /// A higher risk: low, medium, reviewed or high; "" for the declared one.
    #[arg(long)]
    risk: Option<String>,
    /// Whether the end user has to confirm each call.
    #[arg(long)]
    requires_confirmation: Option<bool>,
    /// How long a call may take.
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// How long a query may stay pending.
    #[arg(long, value_name = "MS")]
    pending_ttl_ms: Option<u64>,
}

impl ToolChange {
    fn members(&self) -> Members {
        Members::default()
            .clearable("risk", self.risk.as_deref())
            .with("requires_confirmation", self.requires_confirmation)
            .with("timeout_ms", self.timeout_ms)
            .with("pending_ttl_ms", self.pending_ttl_ms)
    }
}

pub(super) async fn run(client: &Client, verb: ToolVerb) -> Result<(), CliFault> {
    match verb {
        ToolVerb::List(page) => {
            let view = View::Table(&["name", "endpoint", "dialect", "kind", "risk", "state"]);
            client.show(Request::get(TOOLS).page(&page), view).await
        }
        ToolVerb::Get { tool } => client.show(Request::get(path(&tool)), View::Record).await,
        ToolVerb::Update { tool, change, body } => {
            let body = body.or(|| Ok(change.members()))?;
            client.show(Request::new(SimpleMethod::Patch, path(&tool)).body(body), View::Record).await
        }
        ToolVerb::Accept { tool, hash } => {
            let body = serde_json::json!({ "hash": hash }).to_string();
            let request = Request::new(SimpleMethod::Post, format!("{}/accept", path(&tool))).body(body);
            client.show(request, View::Record).await
        }
        ToolVerb::Manifest => {
            client.show(Request::get("/mcp/manifest.json"), View::Table(&["id", "kind", "risk", "description"])).await
        }
        ToolVerb::Explain { tool, agent_key } => {
            let id = client.id_of("agent key", "/v1/agent-keys", "name", &agent_key).await?;
            let request = Request::get("/v1/explain").query("agent_key", Some(id)).query("tool", Some(tool));
            client.show(request, View::Record).await
        }
    }
}

fn path(tool: &str) -> String {
    format!("{TOOLS}/{}", segment(tool))
}
