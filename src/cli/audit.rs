//! `toolgate audit`: who changed what.

use super::client::{Client, PageArgs, Request};
use super::fault::CliFault;
use super::output::View;
use clap::Subcommand;

#[derive(Subcommand)]
pub(super) enum AuditVerb {
    /// List changes, newest first.
    List(PageArgs),
}

pub(super) async fn run(client: &Client, verb: AuditVerb) -> Result<(), CliFault> {
    match verb {
        AuditVerb::List(page) => {
            let view = View::Table(&["at", "actor.kind", "actor.name", "action", "object", "from"]);
            client.show(Request::get("/v1/audit").page(&page), view).await
        }
    }
}
