//! `toolgate run`: the records of runs, and calling a tool as an agent does.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(super) enum RunVerb {
    /// List the organization's runs, newest first (workspace key).
    List {
        /// Only with this status.
        #[arg(long)]
        status: Option<String>,
        /// Only of this tool.
        #[arg(long)]
        tool: Option<String>,
        /// Only of this endpoint.
        #[arg(long)]
        endpoint: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one: its record with a workspace key, its agent's view with an agent key.
    Get {
        /// Its correlation_id.
        id: String,
        /// Wait this many seconds for a change (agent key).
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u32>,
    },
    /// Call a tool (agent key).
    Call {
        #[command(flatten)]
        call: CallArgs,
        #[command(flatten)]
        body: BodyArg,
        /// Who is behind the agent.
        #[arg(long, value_name = "IDENTITY")]
        caller: Option<String>,
        /// The conversation it belongs to.
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// Wait this many seconds for the result.
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u32>,
    },
    /// Give up a run that has not ended (agent key).
    Cancel {
        /// Its correlation_id.
        id: String,
    },
}

#[derive(Args)]
pub(super) struct CallArgs {
    /// Its id or bare name.
    #[arg(required_unless_present = "body")]
    tool: Option<String>,
    /// The arguments: a JSON object, @FILE or -.
    #[arg(long, value_name = "JSON|@FILE|-")]
    args: Option<String>,
    /// The token of the user's confirmation.
    #[arg(long, value_name = "TOKEN")]
    confirmation: Option<String>,
    /// An id of your own, which the answer repeats.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

impl CallArgs {
    fn members(&self) -> Result<Members, CliFault> {
        let members = Members::default().with("tool", self.tool.as_deref()).json("args", self.args.as_deref())?;
        Ok(members.with("confirmation", self.confirmation.as_deref()).with("request_id", self.request_id.as_deref()))
    }
}

pub(super) async fn run(client: &Client, verb: RunVerb) -> Result<(), CliFault> {
    match verb {
        RunVerb::List { status, tool, endpoint, page } => {
            let view = View::Table(&["created_at", "tool", "status", "error.code", "caller", "correlation_id"]);
            let request = Request::get("/v1/runs").query("status", status).query("tool", tool);
            client.show(request.query("endpoint", endpoint).page(&page), view).await
        }
        RunVerb::Get { id, wait } => {
            let surface = if client.is_agent() { "/mcp" } else { "/v1" };
            let request = Request::get(format!("{surface}/runs/{}", segment(&id)));
            client.show(request.header("Prefer", wait.map(prefer)), View::Record).await
        }
        RunVerb::Call { call, body, caller, conversation, wait } => {
            let body = body.or(|| call.members())?;
            let request = Request::new(SimpleMethod::Post, "/mcp/run")
                .header("X-Caller-Identity", caller)
                .header("Conversation-Id", conversation)
                .header("Prefer", wait.map(prefer))
                .body(body);
            client.show(request, View::Record).await
        }
        RunVerb::Cancel { id } => {
            let request = Request::new(SimpleMethod::Delete, format!("/mcp/runs/{}", segment(&id)));
            client.show(request, View::Record).await
        }
    }
}

fn prefer(seconds: u32) -> String {
    format!("wait={seconds}")
}
