//! `toolgate key`: agent keys, and with `--workspace` workspace keys.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members, limit};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(super) enum KeyVerb {
    /// List keys.
    List {
        #[command(flatten)]
        kind: Kind,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one; never the key itself.
    Get {
        /// Name or id.
        name: String,
        #[command(flatten)]
        kind: Kind,
    },
    /// Make one; the answer holds it, once.
    Create {
        /// Its display name.
        #[arg(required_unless_present = "body")]
        name: Option<String>,
        #[command(flatten)]
        kind: Kind,
        #[command(flatten)]
        members: KeyArgs,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Change one.
    Update {
        /// Name or id.
        name: String,
        /// A new display name.
        #[arg(long)]
        rename: Option<String>,
        #[command(flatten)]
        kind: Kind,
        #[command(flatten)]
        members: KeyArgs,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Revoke one, at once.
    Delete {
        /// Name or id.
        name: String,
        #[command(flatten)]
        kind: Kind,
    },
}

/// Which keys.
#[derive(Args)]
pub(super) struct Kind {
    /// Workspace keys instead of agent keys.
    #[arg(long)]
    workspace: bool,
}

impl Kind {
    const fn list(&self) -> &'static str {
        if self.workspace { "/v1/workspace-keys" } else { "/v1/agent-keys" }
    }

    async fn path(&self, client: &Client, name: &str) -> Result<String, CliFault> {
        let what = if self.workspace { "workspace key" } else { "agent key" };
        Ok(format!("{}/{}", self.list(), segment(&client.id_of(what, self.list(), "name", name).await?)))
    }
}

#[derive(Args)]
pub(super) struct KeyArgs {
    /// A group it belongs to (may be repeated; default when none is named).
    #[arg(long = "group", value_name = "GROUP", conflicts_with = "workspace")]
    groups: Vec<String>,
    /// When it stops working (RFC 3339); "" for never.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// A limit of its own, such as agent_key_per_second=5 (may be repeated).
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = limit, conflicts_with = "workspace")]
    limits: Vec<(String, Option<u64>)>,
    /// Whether its holder shows confirmations to a person.
    #[arg(long, conflicts_with = "workspace")]
    confirms: Option<bool>,
}

impl KeyArgs {
    fn members(&self, name: Option<&str>) -> Members {
        Members::default()
            .with("name", name)
            .list("groups", &self.groups)
            .clearable("expires_at", self.expires_at.as_deref())
            .limits(&self.limits)
            .with("confirms", self.confirms)
    }
}

pub(super) async fn run(client: &Client, verb: KeyVerb) -> Result<(), CliFault> {
    match verb {
        KeyVerb::List { kind, page } => {
            let view = if kind.workspace {
                View::Table(&["name", "expires_at", "last_used_at", "id"])
            } else {
                View::Table(&["name", "groups", "expires_at", "last_used_at", "id"])
            };
            client.show(Request::get(kind.list()).page(&page), view).await
        }
        KeyVerb::Get { name, kind } => client.show(Request::get(kind.path(client, &name).await?), View::Record).await,
        KeyVerb::Create { name, kind, members, body } => {
            let complete = |members: Members| match kind.workspace {
                true => members,
                false => members.default_to("groups", vec!["default"]),
            };
            let body = body.or_completed(|| Ok(members.members(name.as_deref())), complete)?;
            client.show(Request::new(SimpleMethod::Post, kind.list()).body(body), View::Record).await
        }
        KeyVerb::Update { name, rename, kind, members, body } => {
            let body = body.or(|| Ok(members.members(rename.as_deref())))?;
            let path = kind.path(client, &name).await?;
            client.show(Request::new(SimpleMethod::Patch, path).body(body), View::Record).await
        }
        KeyVerb::Delete { name, kind } => {
            let request = Request::new(SimpleMethod::Delete, kind.path(client, &name).await?);
            client.show(request, View::Done(format!("revoked {name}"))).await
        }
    }
}
