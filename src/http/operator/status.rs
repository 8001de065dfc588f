//! `/admin/v1/status`.

use crate::engine::access::OperatorAccess;
use crate::http::call::{Answer, Call};
use crate::http::wire::ok;
use serde::Serialize;
use utoipa::ToSchema;

/// What this toolgate says about itself.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct StatusAnswer {
    /// Nodes that work together.
    nodes: usize,
    /// Organizations that live on this node now.
    actors: usize,
    /// Turns waiting on this node.
    mailbox_depth: usize,
    store: StoreItem,
    bus: BusItem,
}

/// The store.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct StoreItem {
    /// `sqlite` or `postgres`.
    kind: &'static str,
    /// Number of the newest migration applied.
    migration: u32,
    /// Changes waiting for the writer.
    queue_depth: usize,
    /// Organizations that are not deleted.
    orgs: u64,
}

/// What nodes tell each other by.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct BusItem {
    /// `local`: there is one node.
    kind: &'static str,
}

/// Answers how this node does.
#[utoipa::path(
    get, path = "/admin/v1/status", tag = "Operator", operation_id = "get_status",
    responses((status = 200, body = StatusAnswer)),
)]
pub(in crate::http) async fn get(call: Call<OperatorAccess>) -> Answer {
    let status = call.engine().node_status(&call.access).await?;
    let store = StoreItem {
        kind: status.store.kind,
        migration: status.store.migration,
        queue_depth: status.store.queue_depth,
        orgs: status.store.orgs,
    };
    let (actors, mailbox_depth) = (status.actors, status.mailbox_depth);
    Ok(ok(&StatusAnswer { nodes: 1, actors, mailbox_depth, store, bus: BusItem { kind: "local" } }))
}
