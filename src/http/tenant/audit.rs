//! `/v1/audit`.

use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::AuditEntry;
use crate::http::call::{Answer, Call};
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, list as page_of, ok};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One line of the audit trail.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditItem)]
pub(in crate::http) struct AuditItem<'a> {
    id: String,
    at: String,
    actor: ActorItem<'a>,
    /// Such as `endpoint.create`.
    action: &'a str,
    /// What it was done to, such as `endpoint/weather`.
    object: &'a str,
    /// What changed; secrets are never in it.
    #[schema(value_type = Object)]
    changes: &'a RawValue,
    /// The address the request came from.
    from: &'a str,
}

/// Who did it.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ActorItem<'a> {
    /// `operator`, `workspace_key` or `system`.
    kind: &'a str,
    id: &'a str,
    name: &'a str,
}

impl<'a> AuditItem<'a> {
    fn of(entry: &'a AuditEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            at: entry.at.to_string(),
            actor: ActorItem { kind: &entry.actor_kind, id: &entry.actor_id, name: &entry.actor_name },
            action: &entry.action,
            object: &entry.object,
            changes: entry.changes.raw(),
            from: &entry.from,
        }
    }
}

/// Lists who changed what, newest first.
#[utoipa::path(
    get, path = "/v1/audit", tag = "Organization", operation_id = "list_audit",
    params(PageParams),
    responses((status = 200, body = ListOf<AuditItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_audit(&call.access, &call.query().page()?).await?;
    Ok(ok(&page_of(&page, AuditItem::of)))
}
