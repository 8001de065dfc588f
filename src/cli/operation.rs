//! `toolgate operation` and `toolgate delivery`: mutations with receipts, and messages to the organization's application.

use super::client::{Client, PageArgs, Request, segment};
use super::fault::CliFault;
use super::output::View;
use clap::Subcommand;

#[derive(Subcommand)]
pub(super) enum OperationVerb {
    /// List operations, newest first.
    List {
        /// Only prepared, sent, applied, rejected, conflict or uncertain ones.
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one with its receipt.
    Get {
        /// Its id: the operation_id of a run.
        id: String,
    },
}

#[derive(Subcommand)]
pub(super) enum DeliveryVerb {
    /// List messages, newest first.
    List {
        /// Only pending, delivered or given_up ones.
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one with what it says.
    Get {
        /// Its id.
        id: String,
    },
}

pub(super) async fn operations(client: &Client, verb: OperationVerb) -> Result<(), CliFault> {
    match verb {
        OperationVerb::List { state, page } => {
            let view = View::Table(&["created_at", "tool", "endpoint", "state", "attempts", "id"]);
            client.show(Request::get("/v1/operations").query("state", state).page(&page), view).await
        }
        OperationVerb::Get { id } => {
            client.show(Request::get(format!("/v1/operations/{}", segment(&id))), View::Record).await
        }
    }
}

pub(super) async fn deliveries(client: &Client, verb: DeliveryVerb) -> Result<(), CliFault> {
    match verb {
        DeliveryVerb::List { state, page } => {
            let view = View::Table(&["created_at", "event", "state", "attempts", "last_error", "id"]);
            client.show(Request::get("/v1/deliveries").query("state", state).page(&page), view).await
        }
        DeliveryVerb::Get { id } => {
            client.show(Request::get(format!("/v1/deliveries/{}", segment(&id))), View::Record).await
        }
    }
}
