//! `toolgate org`: organizations as the operator sees them, and one organization's own settings.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members, limit};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::{Args, Subcommand, ValueEnum};

const ORGS: &str = "/admin/v1/orgs";

#[derive(Subcommand)]
pub(super) enum OrgVerb {
    /// List organizations.
    List(PageArgs),
    /// Show one.
    Get {
        /// Slug or id.
        org: String,
    },
    /// Register one; the answer holds its first workspace key, once.
    Create {
        #[command(flatten)]
        new: NewOrg,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Change one.
    Update {
        /// Slug or id.
        org: String,
        #[command(flatten)]
        change: OrgChange,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Delete one with everything in it. Its slug is never given again.
    Delete {
        /// Slug or id.
        org: String,
    },
    /// Make another workspace key for one, when its last was lost.
    WorkspaceKey {
        /// Slug or id.
        org: String,
        /// Display name of the key.
        #[arg(long)]
        name: String,
    },
    /// Count the runs of one by tool and status.
    Usage {
        /// Slug or id.
        org: String,
        /// From when (RFC 3339).
        #[arg(long)]
        from: Option<String>,
        /// Until when (RFC 3339).
        #[arg(long)]
        to: Option<String>,
    },
    /// Show or change the settings of the workspace key's own organization.
    Settings {
        #[command(flatten)]
        change: OwnChange,
        #[command(flatten)]
        body: BodyArg,
    },
}

#[derive(Args)]
pub(super) struct NewOrg {
    /// Its slug: a-z, 0-9 and -.
    #[arg(required_unless_present = "body")]
    slug: Option<String>,
    /// Its display name; the slug when absent.
    #[arg(long)]
    name: Option<String>,
    /// A ceiling, such as organization_per_second=20 (may be repeated).
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
    limits: Vec<(String, Option<u64>)>,
}

/// Whether an organization may work.
#[derive(Clone, Copy, ValueEnum)]
enum OrgStateArg {
    Active,
    Suspended,
}

impl OrgStateArg {
    const fn as_str(self) -> &'static str {
        match self {
            OrgStateArg::Active => "active",
            OrgStateArg::Suspended => "suspended",
        }
    }
}

#[derive(Args)]
pub(super) struct OrgChange {
    /// Its display name.
    #[arg(long)]
    name: Option<String>,
    /// A ceiling, such as organization_per_second=20; without a number it is inherited (may be repeated).
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
    limits: Vec<(String, Option<u64>)>,
    /// A network of the operator's egress.allow that it may reach (may be repeated; replaces the list).
    #[arg(long, value_name = "CIDR")]
    egress_allow: Vec<String>,
    /// Whether it may work.
    #[arg(long)]
    state: Option<OrgStateArg>,
}

#[derive(Args)]
pub(super) struct OwnChange {
    /// A limit below the operator's, such as tool_per_second=5; without a number it is inherited (may be repeated).
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
    limits: Vec<(String, Option<u64>)>,
    /// URL of the reviewer, whose new secret is shown once; empty takes it away.
    #[arg(long, value_name = "URL")]
    reviewer: Option<String>,
    /// URL of the result webhook, whose new secret is shown once; empty takes it away.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// What becomes of a call whose agent cannot bring the end user's confirmation.
    #[arg(long)]
    confirmation_fallback: Option<FallbackArg>,
}

/// What stands in for a confirmation nobody can give.
#[derive(Clone, Copy, ValueEnum)]
enum FallbackArg {
    Refuse,
    Approval,
}

impl FallbackArg {
    const fn as_str(self) -> &'static str {
        match self {
            FallbackArg::Refuse => "refuse",
            FallbackArg::Approval => "approval",
        }
    }
}

impl OwnChange {
    fn members(&self) -> Members {
        let hook = |members: Members, name: &str, url: Option<&str>| match url {
            Some("") => members.clearable(name, Some("")),
            url => members.object(name, Members::default().with("url", url)),
        };
        let members = Members::default().limits(&self.limits);
        let members = hook(members, "reviewer", self.reviewer.as_deref());
        let members = hook(members, "webhook", self.webhook.as_deref());
        members.with("confirmation_fallback", self.confirmation_fallback.map(FallbackArg::as_str))
    }
}

pub(super) async fn run(client: &Client, verb: OrgVerb) -> Result<(), CliFault> {
    match verb {
        OrgVerb::List(page) => {
            let view = View::Table(&["slug", "name", "state", "id", "created_at"]);
            client.show(Request::get(ORGS).page(&page), view).await
        }
        OrgVerb::Get { org } => client.show(Request::get(path(client, &org).await?), View::Record).await,
        OrgVerb::Create { new, body } => {
            let options = Members::default()
                .with("slug", new.slug.as_deref())
                .with("name", new.name.as_deref())
                .limits(&new.limits);
            let named = |members: Members| members.default_to("name", new.slug.as_deref().unwrap_or_default());
            let body = body.or_completed(|| Ok(options), named)?;
            client.show(Request::new(SimpleMethod::Post, ORGS).body(body), View::Record).await
        }
        OrgVerb::Update { org, change, body } => {
            let body = body.or(|| {
                let members = Members::default()
                    .with("name", change.name.as_deref())
                    .limits(&change.limits)
                    .list("egress_allow", &change.egress_allow);
                Ok(members.with("state", change.state.map(OrgStateArg::as_str)))
            })?;
            let path = path(client, &org).await?;
            client.show(Request::new(SimpleMethod::Patch, path).body(body), View::Record).await
        }
        OrgVerb::Delete { org } => {
            let request = Request::new(SimpleMethod::Delete, path(client, &org).await?);
            client.show(request, View::Done(format!("deleted {org}"))).await
        }
        OrgVerb::WorkspaceKey { org, name } => {
            let path = format!("{}/workspace-keys", path(client, &org).await?);
            let body = serde_json::json!({ "name": name }).to_string();
            client.show(Request::new(SimpleMethod::Post, path).body(body), View::Record).await
        }
        OrgVerb::Usage { org, from, to } => {
            let path = format!("{}/usage", path(client, &org).await?);
            client.show(Request::get(path).query("from", from).query("to", to), View::Record).await
        }
        OrgVerb::Settings { change, body } => {
            let members = change.members();
            if body.body.is_none() && members.is_empty() {
                return client.show(Request::get("/v1/org"), View::Record).await;
            }
            let body = body.or(|| Ok(members))?;
            client.show(Request::new(SimpleMethod::Patch, "/v1/org").body(body), View::Record).await
        }
    }
}

async fn path(client: &Client, org: &str) -> Result<String, CliFault> {
    Ok(format!("{ORGS}/{}", segment(&client.id_of("organization", ORGS, "slug", org).await?)))
}
