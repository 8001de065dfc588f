//! `/v1/operations`: mutations at providers that keep receipts.

use crate::domain::operation::OperationState;
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::OperationView;
use crate::http::call::{Answer, Call};
use crate::http::conditional::tagged_json;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, list as page_of, ok};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One operation.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationItem)]
pub(in crate::http) struct OperationItem<'a> {
    /// `Operation-Id`.
    id: String,
    /// Its run.
    correlation_id: String,
    /// Bare name of the tool.
    tool: &'a str,
    /// Name of the endpoint.
    endpoint: &'a str,
    /// `Request-Fingerprint`.
    fingerprint: &'a str,
    /// `prepared`, `sent`, `applied`, `rejected`, `conflict` or `uncertain`: whether it was applied is not known; its receipt
    /// is looked at while there is a `next_at`.
    state: &'static str,
    /// How often it may have been sent.
    attempts: u32,
    /// When it is looked at again; absent once nothing more is done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<String>,
    /// The receipt as the provider last showed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    receipt: Option<&'a RawValue>,
    created_at: String,
    updated_at: String,
}

impl<'a> OperationItem<'a> {
    fn of(view: &'a OperationView) -> Self {
        let (intent, progress) = (&view.operation.intent, &view.operation.progress);
        Self {
            id: intent.mark.id.to_string(),
            correlation_id: intent.run_id.to_string(),
            tool: &view.tool,
            endpoint: &view.endpoint,
            fingerprint: &intent.mark.fingerprint,
            state: progress.state.as_str(),
            attempts: progress.attempts,
            next_at: progress.next_at.map(|at| at.to_string()),
            receipt: progress.receipt.as_ref().map(|receipt| receipt.raw()),
            created_at: intent.created_at.to_string(),
            updated_at: progress.updated_at.to_string(),
        }
    }
}

/// Lists the operations, newest first.
#[utoipa::path(
    get, path = "/v1/operations", tag = "Operations", operation_id = "list_operations",
    params(
        PageParams,
        ("state" = Option<String>, Query, description = "Only `prepared`, `sent`, `applied`, `rejected`, `conflict` or `uncertain` ones"),
    ),
    responses((status = 200, body = ListOf<OperationItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let query = call.query();
    let state = query.word("state", OperationState::parse)?;
    let page = call.engine().list_operations(&call.access, state, &query.page()?).await?;
    Ok(ok(&page_of(&page, OperationItem::of)))
}

/// Answers one operation.
#[utoipa::path(
    get, path = "/v1/operations/{id}", tag = "Operations", operation_id = "get_operation",
    params(("id" = String, Path, description = "The run's `operation_id`")),
    responses((status = 200, body = OperationItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let view = call.engine().operation(&call.access, call.id()?).await?;
    Ok(tagged_json(call.headers(), &OperationItem::of(&view)))
}
