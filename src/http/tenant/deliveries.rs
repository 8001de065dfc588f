//! `/v1/deliveries`: what the organization's application is told, and how that fares.

use crate::domain::announcement::{Delivery, DeliveryState};
use crate::engine::access::WorkspaceAccess;
use crate::http::call::{Answer, Call};
use crate::http::conditional::tagged_json;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, list as page_of, ok};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One message.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryItem)]
pub(in crate::http) struct DeliveryItem<'a> {
    /// `msg_` and this make its `webhook-id`, the same at every attempt.
    id: String,
    /// `run.finished`, `approval.opened` or `endpoint.sync_failed`.
    event: &'a str,
    /// `pending`, `delivered` or `given_up`.
    state: &'static str,
    /// Attempts so far.
    attempts: u32,
    /// When it is tried next.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<String>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    /// The message itself.
    #[schema(value_type = Object)]
    data: &'a RawValue,
    created_at: String,
    updated_at: String,
}

impl<'a> DeliveryItem<'a> {
    fn of(delivery: &'a Delivery) -> Self {
        Self {
            id: delivery.id.to_string(),
            event: &delivery.event,
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            next_at: delivery.next_at.map(|at| at.to_string()),
            last_error: delivery.last_error.as_deref(),
            data: delivery.body.raw(),
            created_at: delivery.created_at.to_string(),
            updated_at: delivery.updated_at.to_string(),
        }
    }
}

/// Lists the messages to the organization's webhook, newest first.
#[utoipa::path(
    get, path = "/v1/deliveries", tag = "Organization", operation_id = "list_deliveries",
    params(
        PageParams,
        ("state" = Option<String>, Query, description = "Only `pending`, `delivered` or `given_up` ones"),
    ),
    responses((status = 200, body = ListOf<DeliveryItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let query = call.query();
    let state = query.word("state", DeliveryState::parse)?;
    let page = call.engine().list_deliveries(&call.access, state, &query.page()?).await?;
    Ok(ok(&page_of(&page, DeliveryItem::of)))
}

/// Answers one message.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}", tag = "Organization", operation_id = "get_delivery",
    params(("id" = String, Path)),
    responses((status = 200, body = DeliveryItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let delivery = call.engine().delivery(&call.access, call.id()?).await?;
    Ok(tagged_json(call.headers(), &DeliveryItem::of(&delivery)))
}
