//! `GET /mcp/manifest.json`: the tools a key may use.

use super::headers;
use super::wire::ManifestItem;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::{CatalogTool, Rendered};
use crate::http::call::{Answer, Call};
use crate::http::conditional::{body_etag, conditional_json, to_json};
use std::sync::Arc;

/// Lists the tools this key may use, ordered by id.
#[utoipa::path(
    get, path = "/mcp/manifest.json", tag = "Agent", operation_id = "get_manifest",
    params(("Conversation-Id" = Option<String>, Header, description = "The first sight of one syncs the endpoints that ask for it")),
    responses((status = 200, body = Vec<ManifestItem>), (status = 304, description = "Unchanged")),
)]
pub(in crate::http) async fn get(call: Call<AgentAccess>) -> Answer {
    let fresh = match headers::conversation(call.headers())? {
        Some(conversation) => Some(call.engine().begin_conversation(call.access.clone(), conversation).await),
        None => None,
    };
    let access = fresh.as_ref().unwrap_or(&call.access);
    let visible = access.catalog().visible(&access.key().groups);
    let Rendered { body, etag } = visible.rendered(render);
    Ok(conditional_json(call.headers(), body.clone(), etag))
}

fn render(tools: &[Arc<CatalogTool>]) -> Rendered {
    let items: Vec<ManifestItem<'_>> = tools.iter().map(|tool| ManifestItem::of(tool)).collect();
    let body = to_json(&items);
    let etag = body_etag(&body);
    // It is kept as long as the snapshot is: without the room that the buffer has left.
    Rendered { body: body.into_boxed_slice().into(), etag }
}
