//! `toolgate group`: which tools a key may use.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::input::{BodyArg, Members};
use super::output::View;
use crate::adapters::transport::SimpleMethod;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

const GROUPS: &str = "/v1/groups";

#[derive(Subcommand)]
pub(super) enum GroupVerb {
    /// List groups.
    List(PageArgs),
    /// Show one.
    Get {
        /// Its name.
        group: String,
    },
    /// Make one.
    Create {
        /// Its name: a-z, 0-9 and -.
        #[arg(required_unless_present = "body")]
        group: Option<String>,
        #[command(flatten)]
        rules: RuleArgs,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Replace the rules of one.
    Update {
        /// Its name.
        group: String,
        #[command(flatten)]
        rules: RuleArgs,
        #[command(flatten)]
        body: BodyArg,
    },
    /// Delete one that no key belongs to.
    Delete {
        /// Its name.
        group: String,
    },
}

/// Rules over tool names; rules over endpoints and risks go into --body.
#[derive(Args)]
pub(super) struct RuleArgs {
    /// Allow tools whose name matches, such as 'order*' (may be repeated).
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// Deny tools whose name matches, whatever is allowed (may be repeated).
    #[arg(long, value_name = "GLOB")]
    deny: Vec<String>,
}

impl RuleArgs {
    fn members(&self, name: Option<&str>) -> Members {
        let rule = |effect: &str, globs: &[String]| {
            Some(globs).filter(|globs| !globs.is_empty()).map(|globs| json!({ "effect": effect, "tools": globs }))
        };
        let rules: Vec<Value> = [rule("allow", &self.allow), rule("deny", &self.deny)].into_iter().flatten().collect();
        Members::default().with("name", name).with("rules", Some(rules).filter(|rules| !rules.is_empty()))
    }
}

pub(super) async fn run(client: &Client, verb: GroupVerb) -> Result<(), CliFault> {
    match verb {
        GroupVerb::List(page) => client.show(Request::get(GROUPS).page(&page), View::Table(&["name", "rules"])).await,
        GroupVerb::Get { group } => client.show(Request::get(path(&group)), View::Record).await,
        GroupVerb::Create { group, rules, body } => {
            let no_rules = |members: Members| members.default_to("rules", Vec::<Value>::new());
            let body = body.or_completed(|| Ok(rules.members(group.as_deref())), no_rules)?;
            client.show(Request::new(SimpleMethod::Post, GROUPS).body(body), View::Record).await
        }
        GroupVerb::Update { group, rules, body } => {
            let no_rules =
                |members: Members| members.default_to("name", group.as_str()).default_to("rules", Vec::<Value>::new());
            let body = body.or_completed(|| Ok(rules.members(None)), no_rules)?;
            client.show(Request::new(SimpleMethod::Put, path(&group)).body(body), View::Record).await
        }
        GroupVerb::Delete { group } => {
            let request = Request::new(SimpleMethod::Delete, path(&group));
            client.show(request, View::Done(format!("deleted {group}"))).await
        }
    }
}

fn path(group: &str) -> String {
    format!("{GROUPS}/{}", segment(group))
}
