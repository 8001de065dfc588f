//! `POST /mcp/run`: runs a tool.

use super::headers::{self, LONGEST_CONVERSATION};
use super::wire::{self, RunBody, RunContext};
use crate::domain::json::JsonText;
use crate::domain::run::CallContext;
use crate::engine::access::AgentAccess;
use crate::engine::run::RunReply;
use crate::engine::run::RunRequest;
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::{idempotency, json, prefer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Longest `request_id`, in characters.
const LONGEST_REQUEST_ID: usize = 128;

/// Longest `context.turn`, `context.locale` and `context.timezone`, in characters.
const LONGEST_TURN: usize = 128;
const LONGEST_LOCALE: usize = 35;
const LONGEST_TIMEZONE: usize = 64;

/// Runs a tool by its canonical id or its bare name.
#[utoipa::path(
    post, path = "/mcp/run", tag = "Agent", operation_id = "run_tool",
    params(
        ("X-Caller-Identity" = Option<String>, Header, description = "The end user; at most 256 visible characters"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible characters: the same call with the same key is made once and answers the same run, with `Idempotent-Replay: true`; another call with it is a 409"),
        ("Conversation-Id" = Option<String>, Header, description = "At most 128 visible characters"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: seconds to wait for the final word, at most 60"),
    ),
    request_body = RunBody,
    responses(
        (status = 200, description = "The run is over, its outcome is uncertain, or a confirmation is needed first", body = wire::RunAnswer),
        (status = 202, description = "The run was started and goes on, or is held for a person", body = wire::RunAnswer),
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
    if let RunReply::Run(run) | RunReply::Replay(run) = &reply {
        call.state.mcp.note_told(run);
    }
    Ok(wire::render_reply(&reply, request_id.as_deref(), wait))
}

/// One pass over the body, which the scan has found to be acceptable JSON.
fn run_request(call: &Call<AgentAccess>) -> Result<RunRequest, Problem> {
    let body: RunBody<'_> = json::parse(&call.body)?;
    let arguments = match body.args {
        None => JsonText::empty_object(),
        Some(args) if args.get().starts_with('{') => JsonText::from(RawValue::to_owned(args)),
        Some(_) => return Err(Problem::invalid_request("args is a JSON object")),
    };
    let request_id = bounded("request_id", body.request_id, LONGEST_REQUEST_ID)?;
    let context = call_context(body.context.map(|context| context.0), headers::conversation(call.headers())?)?;
    Ok(RunRequest {
        tool: body.tool.into_owned(),
        arguments,
        request_id,
        confirmation: body.confirmation.map(Cow::into_owned),
        caller: headers::caller(call.headers())?.map(str::to_owned),
        idempotency_key: idempotency::key(call.headers())?,
        context,
        wait: prefer::wait(call.headers()),
        traceparent: Some(call.trace.to_header()),
        // The holder of the key shows the question to a person, or its key says that it does not.
        can_confirm: true,
        mcp: None,
    })
}

/// What the body's `context` says; a conversation named there comes before one in a header.
fn call_context(said: Option<RunContext<'_>>, in_header: Option<&str>) -> Result<CallContext, Problem> {
    let Some(said) = said else {
        return Ok(CallContext { conversation: in_header.map(str::to_owned), ..CallContext::default() });
    };
    let conversation = bounded("context.conversation", said.conversation, LONGEST_CONVERSATION)?;
    Ok(CallContext {
        conversation: conversation.or_else(|| in_header.map(str::to_owned)),
        turn: bounded("context.turn", said.turn.map(|turn| turn.0), LONGEST_TURN)?,
        locale: bounded("context.locale", said.locale, LONGEST_LOCALE)?,
        timezone: bounded("context.timezone", said.timezone, LONGEST_TIMEZONE)?,
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
