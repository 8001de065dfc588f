//! `toolgate approval`: runs that are held until a person of the organization has decided.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::Subcommand;

const APPROVALS: &str = "/v1/approvals";

#[derive(Subcommand)]
pub(super) enum ApprovalVerb {
    /// List approvals, newest first.
    List {
        /// Only open, approved, denied or expired ones.
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one.
    Get {
        /// Its id.
        id: String,
    },
    /// Let its run go on.
    Approve {
        /// Its id.
        id: String,
        /// What is said about it.
        #[arg(long)]
        note: Option<String>,
    },
    /// Refuse its run.
    Deny {
        /// Its id.
        id: String,
        /// What is said about it.
        #[arg(long)]
        note: Option<String>,
    },
}

pub(super) async fn run(client: &Client, verb: ApprovalVerb) -> Result<(), CliFault> {
    match verb {
        ApprovalVerb::List { state, page } => {
            let view = View::Table(&["created_at", "tool", "endpoint", "caller", "risk", "state", "expires_at", "id"]);
            client.show(Request::get(APPROVALS).query("state", state).page(&page), view).await
        }
        ApprovalVerb::Get { id } => client.show(Request::get(path(&id)), View::Record).await,
        ApprovalVerb::Approve { id, note } => decide(client, &id, "approve", note).await,
        ApprovalVerb::Deny { id, note } => decide(client, &id, "deny", note).await,
    }
}

async fn decide(client: &Client, id: &str, decision: &str, note: Option<String>) -> Result<(), CliFault> {
    let decided = || Ok(Members::default().with("decision", Some(decision)).with("note", note));
    let body = BodyArg { body: None }.or(decided)?;
    client.show(Request::new(SimpleMethod::Post, path(id)).body(body), View::Record).await
}

fn path(id: &str) -> String {
    format!("{APPROVALS}/{}", segment(id))
}
