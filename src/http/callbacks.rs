//! `POST /callbacks/{endpoint_id}`: a response node delivers a late answer, signed as Standard Webhooks.

use super::call::{Answer, Call};
use super::conditional::to_json;
use crate::domain::ids::EndpointId;
use crate::engine::callback::CallbackRefusal;
use crate::engine::dispatch::signing::WebhookHeaders;
use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// What a response node sends. It documents the message; the dialect reads it.
#[derive(Deserialize, ToSchema)]
#[expect(dead_code, reason = "the shape is for the document; the bytes go to the dialect as they came")]
pub(super) struct CallbackBody {
    /// `tool.result`.
    r#type: String,
    /// When the result was made (RFC 3339).
    timestamp: String,
    /// The result.
    data: CallbackData,
}

/// A late result; one of the two ids is needed, and `request_id` is looked at first.
#[derive(Deserialize, ToSchema)]
#[expect(dead_code, reason = "the shape is for the document; the bytes go to the dialect as they came")]
pub(super) struct CallbackData {
    /// The provider's own id, as it acknowledged the run.
    correlation_id: Option<String>,
    /// The id the run was sent with.
    request_id: Option<String>,
    /// `completed` or `failed`.
    status: String,
    /// The result of a completed run.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// `{code, message}` of a failed run, handed on as it is.
    #[schema(value_type = Option<Object>)]
    error: Option<Box<RawValue>>,
}

/// The callback is durable.
#[derive(Serialize, ToSchema)]
pub(super) struct Accepted {
    /// Always true.
    accepted: bool,
}

/// Takes a callback: matched, unmatched, late and repeated ones alike.
#[utoipa::path(
    post, path = "/callbacks/{endpoint_id}", tag = "Callbacks", operation_id = "take_callback",
    params(
        ("endpoint_id" = String, Path, description = "The endpoint the answer is from"),
        ("webhook-id" = String, Header, description = "Unique for each message"),
        ("webhook-timestamp" = String, Header, description = "Seconds since the Unix epoch, within five minutes"),
        ("webhook-signature" = String, Header, description = "`v1,` and base64, several with spaces between"),
    ),
    request_body = CallbackBody,
    responses((status = 202, body = Accepted)),
)]
pub(super) async fn take(call: Call<()>) -> Answer {
    // An address that no endpoint can have is answered like one that no endpoint has.
    let endpoint: EndpointId = call.segment("endpoint_id").parse().map_err(|_| CallbackRefusal::InvalidSignature)?;
    let header = |name: &str| call.headers().get(name).map(|value| value.as_bytes());
    let headers = WebhookHeaders {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
    };
    call.engine().take_callback(endpoint, &headers, &call.body).await?;
    let accepted = to_json(&Accepted { accepted: true });
    Ok(HttpResponse::Accepted().insert_header((CONTENT_TYPE, "application/json")).body(accepted))
}
