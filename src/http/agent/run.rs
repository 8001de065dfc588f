//! `POST /mcp/run`: runs a tool.

use super::headers::{self, LONGEST_CONVERSATION};
use super::wire::{self, RunBody};
use crate::domain::json::JsonText;
use crate::engine::access::AgentAccess;
use crate::engine::run::RunRequest;
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::{json, prefer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Longest `request_id`, in characters.
const LONGEST_REQUEST_ID: usize = 128;

/// Runs a tool by its canonical id or its bare name.
#[utoipa::path(
    post, path = "/mcp/run", tag = "Agent", operation_id = "run_tool",
    params(
        ("X-Caller-Identity" = Option<String>, Header, description = "The end user; at most 256 visible characters"),
        ("Conversation-Id" = Option<String>, Header, description = "At most 128 visible characters"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: seconds to wait for the final word, at most 60"),
    ),
    request_body = RunBody,
    responses(
        (status = 200, description = "The run is over, or a confirmation is needed first", body = wire::RunAnswer),
        (status = 202, description = "The run was started and goes on", body = wire::RunAnswer),
    ),
)]
pub(in crate::http) async fn post(call: Call<AgentAccess>) -> Answer {
    let request = run_request(&call)?;
    let fresh = match headers::conversation(call.headers())? {
        Some(conversation) => Some(Box::pin(call.engine().begin_conversation(call.access.clone(), conversation)).await),
        None => None,
    };
    let (wait, request_id) = (request.wait, request.request_id.clone());
    let reply = call.engine().run(fresh.as_ref().unwrap_or(&call.access), request).await?;
    Ok(wire::render_reply(&reply, request_id.as_deref(), wait))
}

/// One pass over the body, which the scan has found to be acceptable JSON.
fn run_request(call: &Call<AgentAccess>) -> Result<RunRequest, Problem> {
    let body: RunBody<'_> = json::parse(&call.body)?;
    let arguments = match body.args {
        None => JsonText::of(&serde_json::Value::Object(serde_json::Map::new())),
        Some(args) if args.get().starts_with('{') => JsonText::from(RawValue::to_owned(args)),
        Some(_) => return Err(Problem::invalid_request("args is a JSON object")),
    };
    let request_id = bounded("request_id", body.request_id, LONGEST_REQUEST_ID)?;
    let in_context = body.context.and_then(|context| context.0.conversation);
    let in_context = bounded("context.conversation", in_context, LONGEST_CONVERSATION)?;
    let in_header = headers::conversation(call.headers())?.map(str::to_owned);
    Ok(RunRequest {
        tool: body.tool.into_owned(),
        arguments,
        request_id,
        confirmation: body.confirmation.map(Cow::into_owned),
        caller: headers::caller(call.headers())?.map(str::to_owned),
        conversation: in_context.or(in_header),
        wait: prefer::wait(call.headers()),
        traceparent: Some(call.trace.to_header()),
    })
}

fn bounded(name: &str, text: Option<Cow<'_, str>>, longest: usize) -> Result<Option<String>, Problem> {
    match text {
        Some(text) if text.chars().count() > longest => {
            Err(Problem::invalid_request(format!("{name} may have at most {longest} characters")))
        }
        text => Ok(text.map(Cow::into_owned)),
    }
}
