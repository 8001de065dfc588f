//! What a careful provider checks before it does anything, by its own reading of the protocol.

use super::super::local_server::RecordedRequest;
use crate::domain::canonical;
use crate::domain::time::Timestamp;
use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "bad_request", message)
    }
}

/// The body of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallBody {
    pub(super) arguments: Value,
    subject: String,
    workspace: String,
}

/// Whether the request shows the bearer token.
pub(super) fn bearer(request: &RecordedRequest, expected: &str) -> Result<(), Refusal> {
    let shown = request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if shown.as_bytes().ct_eq(expected.as_bytes()).into() {
        Ok(())
    } else {
        Err(Refusal::new(401, "unauthorized", "Authorization does not hold this provider's bearer token"))
    }
}

/// A header that must be there.
pub(super) fn required<'a>(request: &'a RecordedRequest, name: &str) -> Result<&'a str, Refusal> {
    request.header(name).ok_or_else(|| Refusal::bad(format!("{name} is missing")))
}

/// `Trace-Id` is 32 lower-case hex digits.
pub(super) fn trace_id(request: &RecordedRequest) -> Result<(), Refusal> {
    let trace_id = required(request, "trace-id")?;
    if trace_id.len() == 32 && is_lower_hex(trace_id) {
        Ok(())
    } else {
        Err(Refusal::bad("trace-id must be 32 lower-case hex digits"))
    }
}

/// A UUIDv7 in its usual spelling.
pub(super) fn operation_id(text: &str) -> Result<(), Refusal> {
    let parsed = Uuid::try_parse(text).ok().filter(|id| id.get_version_num() == 7 && id.to_string() == text);
    parsed.map(|_| ()).ok_or_else(|| Refusal::bad("the operation id must be a UUIDv7 in lower case"))
}

/// `sha256:` and 64 lower-case hex digits.
pub(super) fn fingerprint_form(text: &str) -> Result<(), Refusal> {
    match text.strip_prefix("sha256:") {
        Some(digits) if digits.len() == 64 && is_lower_hex(digits) => Ok(()),
        Some(_) | None => Err(Refusal::bad("request-fingerprint must be sha256: and 64 lower-case hex digits")),
    }
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Reads the body of a call; every member is needed, and there are no others.
pub(super) fn call_body(request: &RecordedRequest) -> Result<CallBody, Refusal> {
    let media_type = required(request, "content-type")?.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(Refusal::new(415, "unsupported_media_type", "a call is application/json"));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|_| Refusal::bad("the body is not JSON"))?;
    let body = members(&body, "the body", &["arguments", "context"])?;
    if !body["arguments"].is_object() {
        return Err(Refusal::bad("arguments must be an object"));
    }
    let names = ["workspace", "conversation", "turn", "subject", "locale", "timezone", "now"];
    let context = members(&body["context"], "context", &names)?;
    let subject = members(&context["subject"], "subject", &["id", "channel", "assurance"])?;
    for name in ["conversation", "turn"] {
        if !context[name].is_null() && !context[name].is_string() {
            return Err(Refusal::bad(format!("{name} must be text or null")));
        }
    }
    for name in ["locale", "timezone"] {
        text(context, name)?;
    }
    let now = text(context, "now")?;
    if Timestamp::parse(now).map(|time| time.to_string()).as_deref() != Some(now) {
        return Err(Refusal::bad("now must be RFC 3339 in UTC with milliseconds"));
    }
    let id = text(subject, "id")?;
    let channel = match id.split_once(':') {
        Some((channel, _)) if !channel.is_empty() => channel,
        Some(_) | None => "agent",
    };
    if subject["channel"] != channel || subject["assurance"] != "channel_asserted" {
        return Err(Refusal::bad("channel and assurance do not belong to the subject's id"));
    }
    let workspace = text(context, "workspace")?.to_owned();
    Ok(CallBody { arguments: body["arguments"].clone(), subject: id.to_owned(), workspace })
}

/// The members of an object that has exactly these.
fn members<'a>(value: &'a Value, what: &str, names: &[&str]) -> Result<&'a Map<String, Value>, Refusal> {
    let object = value.as_object().ok_or_else(|| Refusal::bad(format!("{what} must be an object")))?;
    if let Some(missing) = names.iter().find(|name| !object.contains_key(**name)) {
        return Err(Refusal::bad(format!("{what} has no {missing}")));
    }
    match object.keys().find(|name| !names.contains(&name.as_str())) {
        Some(unknown) => Err(Refusal::bad(format!("{what} has an unknown member {unknown}"))),
        None => Ok(object),
    }
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str, Refusal> {
    let text = object[name].as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| Refusal::bad(format!("{name} must be text, and not empty")))
}

impl CallBody {
    /// The fingerprint that belongs to this call.
    pub(super) fn fingerprint(&self, tool: &str, contract_version: &str) -> String {
        let fingerprinted = json!({
            "arguments": self.arguments,
            "contract_version": contract_version,
            "subject": self.subject,
            "tool": tool,
            "workspace": self.workspace,
        });
        format!("sha256:{}", canonical::sha256_hex(&fingerprinted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_the_vector_of_the_protocol() {
        let body = CallBody {
            arguments: json!({ "category": "plumbing", "reference": "REQ-7" }),
            subject: "whatsapp:+201000000000".to_owned(),
            workspace: "ws_1".to_owned(),
        };
        assert_eq!(
            body.fingerprint("request.create", "2026-09-01"),
            "sha256:7bf4dd79f8a8ea782f2a9ae11443393a5e024fa25358ee3edfb046570947f53b"
        );
    }
}
