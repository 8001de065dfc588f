//! One request and what came back, as JSON or as a stream of events.

use super::super::report::Rule;
use super::super::session::{Answer, Session};
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::sse::SseReader;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Largest event of a stream: the whole answer is held anyway.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// What came back.
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The JSON-RPC response, or the body when there is none.
    pub(super) text: String,
    request_id: u64,
}

/// Sends a request with this id. The error is a sentence.
pub(super) async fn ask(session: &Session<'_>, request: &OutboundRequest, request_id: u64) -> Result<Reply, String> {
    let answer = session.send(request).await?;
    let text = match media_type(&answer).as_deref() {
        Some("text/event-stream") => response_in(&answer.body, request_id).unwrap_or_default(),
        Some(_) | None => String::from_utf8_lossy(&answer.body).into_owned(),
    };
    Ok(Reply { answer, text, request_id })
}

/// `Content-Type` without its parameters, in lower case.
fn media_type(answer: &Answer) -> Option<String> {
    let whole = answer.header("content-type")?;
    Some(whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The response to the request in a stream, else any response.
fn response_in(body: &[u8], request_id: u64) -> Option<String> {
    let mut reader = SseReader::new(MAX_EVENT_BYTES);
    // Events before a fault count.
    let _ = reader.push(body);
    let mut other = None;
    for event in reader {
        match rpc::parse(&event.data) {
            Some(message) if message.is_answer_to(request_id) => return Some(event.data),
            Some(Message::Response { .. }) => other = Some(event.data),
            Some(Message::Request { .. } | Message::Notification { .. }) | None => {}
        }
    }
    other
}

impl Reply {
    /// The media type, when it is one that a request may be answered in.
    pub(super) fn media_type(&self) -> Result<String, String> {
        match media_type(&self.answer) {
            Some(known) if matches!(known.as_str(), "application/json" | "text/event-stream") => Ok(known),
            Some(other) => Err(other),
            None => Err("none".to_owned()),
        }
    }

    /// The result or the error, when this is the answer to the request.
    fn response(&self) -> Option<Result<&RawValue, &RawValue>> {
        match rpc::parse(&self.text)? {
            message @ Message::Response { answer, .. } if message.is_answer_to(self.request_id) => Some(answer),
            Message::Response { .. } | Message::Request { .. } | Message::Notification { .. } => None,
        }
    }

    /// The result.
    pub(super) fn result(&self) -> Option<&RawValue> {
        self.response()?.ok()
    }

    /// The result as a value; `null` when there is none.
    pub(super) fn result_value(&self) -> Value {
        self.result().and_then(|result| serde_json::from_str(result.get()).ok()).unwrap_or_default()
    }

    /// The error.
    pub(super) fn error(&self) -> Option<rpc::Error> {
        rpc::Error::read(self.response()?.err()?)
    }

    /// The code of the error.
    pub(super) fn error_code(&self) -> Option<i64> {
        self.error().map(|error| error.code)
    }

    /// Whether a response is there, under another id.
    pub(super) fn has_other_id(&self) -> bool {
        matches!(rpc::parse(&self.text), Some(Message::Response { .. })) && self.response().is_none()
    }

    /// The answer in a few words.
    pub(super) fn account(&self) -> String {
        self.answer.account()
    }
}

/// The request with a header set, or taken out.
pub(super) fn with_header(mut request: OutboundRequest, name: &'static str, value: Option<&str>) -> OutboundRequest {
    request.headers.retain(|(known, _)| known != name);
    request.headers.extend(value.map(|value| (Cow::Borrowed(name), value.to_owned())));
    request
}

/// The request with its body changed.
pub(super) fn with_body(request: OutboundRequest, change: impl FnOnce(&mut Value)) -> OutboundRequest {
    let mut body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    change(&mut body);
    OutboundRequest { body: body.to_string().into(), ..request }
}

/// Sends a request that has to be refused, and judges the answer.
pub(super) async fn judge(
    session: &mut Session<'_>,
    rule: Rule,
    request: &OutboundRequest,
    request_id: u64,
    holds: impl FnOnce(&Reply) -> bool,
) {
    match ask(session, request, request_id).await {
        Ok(reply) => {
            session.report.judge(rule, holds(&reply), reply.account());
        }
        Err(sentence) => session.report.fail(rule, sentence),
    }
}
