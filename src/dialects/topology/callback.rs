//! The late answer of a response node: `POST /callbacks/{endpoint_id}`.
//!
//! The payload is a provider's payload: it is handed on as the text it came in, whatever its numbers. Members nobody
//! knows are ignored. The signature was checked before, over exactly these bytes.

use super::super::checks::{object, present};
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::RunId;
use crate::domain::json::JsonText;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A callback that says what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// Our id. `None` when it was not sent, and when it is no id of ours and so matches nothing.
    pub request_id: Option<RunId>,
    /// The provider's own id.
    pub correlation_id: Option<String>,
    /// What became of the run.
    pub result: CallbackResult,
}

/// What a response node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackResult {
    /// Done. A payload of `null` is a payload.
    Completed {
        /// The result.
        payload: Option<JsonText>,
    },
    /// Done, with an error.
    Failed {
        /// What the provider says about it: a JSON object.
        error: Option<JsonText>,
        /// A result all the same.
        payload: Option<JsonText>,
    },
}

/// Why a body is no callback, as a sentence for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackFault {
    /// Not JSON in UTF-8.
    #[error("the body is not JSON")]
    NotJson,
    /// Not an object, or one member twice.
    #[error("the body must be one object in which no member stands twice")]
    NotAnObject,
    /// Another message.
    #[error("type must be \"tool.result\"")]
    WrongType,
    /// No content.
    #[error("data must be an object in which no member stands twice")]
    NoData,
    /// An id that is no text.
    #[error("data.{0} must be a string")]
    IdNotText(&'static str),
    /// Nothing says which run is meant.
    #[error("data needs a request_id or a correlation_id")]
    NoId,
    /// Neither done nor failed.
    #[error("data.status must be \"completed\" or \"failed\"")]
    BadStatus,
    /// An error that is no object.
    #[error("data.error must be an object with code and message")]
    BadError,
}

impl CallbackFault {
    /// The code of the answer.
    pub const fn code(self) -> ErrorCode {
        match self {
            CallbackFault::NotJson => ErrorCode::InvalidJson,
            CallbackFault::NotAnObject
            | CallbackFault::WrongType
            | CallbackFault::NoData
            | CallbackFault::IdNotText(_)
            | CallbackFault::NoId
            | CallbackFault::BadStatus
            | CallbackFault::BadError => ErrorCode::InvalidRequest,
        }
    }
}

/// The whole body. `timestamp` is for people: the signed header is what counts.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    correlation_id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads the body of a callback.
pub fn parse_callback(body: &[u8]) -> Result<Callback, CallbackFault> {
    // UTF-8 and JSON throughout, also where nothing is read from.
    serde_json::from_slice::<&RawValue>(body).map_err(|_| CallbackFault::NotJson)?;
    let envelope: Envelope<'_> = object(body).ok_or(CallbackFault::NotAnObject)?;
    if envelope.kind.and_then(string).as_deref() != Some("tool.result") {
        return Err(CallbackFault::WrongType);
    }
    let data: Data<'_> = envelope.data.and_then(|raw| object(raw.get().as_bytes())).ok_or(CallbackFault::NoData)?;
    let request_id = id(data.request_id, "request_id")?;
    let correlation_id = id(data.correlation_id, "correlation_id")?;
    if request_id.is_none() && correlation_id.is_none() {
        return Err(CallbackFault::NoId);
    }
    let payload = data.payload.map(kept);
    let result = match data.status.and_then(string).as_deref() {
        Some("completed") => CallbackResult::Completed { payload },
        Some("failed") => match data.error {
            Some(raw) if !raw.get().starts_with('{') => return Err(CallbackFault::BadError),
            error => CallbackResult::Failed { error: error.map(kept), payload },
        },
        Some(_) | None => return Err(CallbackFault::BadStatus),
    };
    Ok(Callback { request_id: request_id.and_then(|text| text.parse().ok()), correlation_id, result })
}

fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// An id that was sent. The empty text is none: that is how a run answers a caller who gave no `request_id`.
fn id(raw: Option<&RawValue>, member: &'static str) -> Result<Option<String>, CallbackFault> {
    match raw {
        None => Ok(None),
        Some(raw) => match string(raw) {
            Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            None => Err(CallbackFault::IdNotText(member)),
        },
    }
}

fn kept(raw: &RawValue) -> JsonText {
    JsonText::from(raw.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(payload: &str) -> Result<Callback, CallbackFault> {
        let body = format!(
            r#"{{"type":"tool.result","timestamp":"2026-01-01T00:00:00Z","data":{{"correlation_id":"c","status":"completed","payload":{payload}}}}}"#
        );
        parse_callback(body.as_bytes())
    }

    fn payload_of(callback: Callback) -> Option<String> {
        match callback.result {
            CallbackResult::Completed { payload } | CallbackResult::Failed { payload, .. } => {
                payload.map(|json| json.as_str().to_owned())
            }
        }
    }

    #[test]
    fn a_payload_is_kept_as_the_text_it_came_in() {
        for payload in [
            "null",
            "1e400",
            "123456789012345678901234567890",
            "-0.0",
            r#"{"b":1.50,"a":[ 1 , 2 ],"a":"\u00e9"}"#,
            r#""\ud800""#,
        ] {
            let callback = completed(payload).expect(payload);
            assert_eq!(payload_of(callback).as_deref(), Some(payload));
        }
    }

    #[test]
    fn an_absent_payload_is_told_from_a_null_one() {
        let body = br#"{"type":"tool.result","data":{"correlation_id":"c","status":"completed"}}"#;
        assert_eq!(payload_of(parse_callback(body).expect("a callback")), None);
    }

    #[test]
    fn a_failure_hands_its_error_on_with_a_result_beside_it() {
        let body = br#"{"type":"tool.result","data":{"request_id":"0198a000-0000-7000-8000-000000000001",
            "status":"failed","error":{"code":7,"message":"no","more":1e999},"payload":[1],"later":true},"v":2}"#;
        let callback = parse_callback(body).expect("a callback");
        assert_eq!(
            callback.request_id.map(|id| id.to_string()).as_deref(),
            Some("0198a000-0000-7000-8000-000000000001")
        );
        let CallbackResult::Failed { error, payload } = callback.result else { panic!("not failed") };
        assert_eq!(error.expect("an error").as_str(), r#"{"code":7,"message":"no","more":1e999}"#);
        assert_eq!(payload.expect("a payload").as_str(), "[1]");
    }

    #[test]
    fn a_request_id_that_is_none_of_ours_matches_nothing_but_is_taken() {
        let body = br#"{"type":"tool.result","data":{"request_id":"theirs","status":"completed"}}"#;
        let callback = parse_callback(body).expect("a callback");
        assert_eq!((callback.request_id, callback.correlation_id), (None, None));
    }

    #[test]
    fn every_breach_of_the_shape_is_named() {
        use CallbackFault::*;
        for (body, fault) in [
            ("", NotJson),
            ("\u{feff}{}", NotJson),
            ("{} {}", NotJson),
            ("[]", NotAnObject),
            (r#"["tool.result",{"correlation_id":"c","status":"completed"}]"#, NotAnObject),
            (r#"{"type":"tool.result","type":"tool.result","data":{}}"#, NotAnObject),
            ("{}", WrongType),
            (r#"{"type":"tool.other","data":{}}"#, WrongType),
            (r#"{"type":"tool.result"}"#, NoData),
            (r#"{"type":"tool.result","data":["c"]}"#, NoData),
            (r#"{"type":"tool.result","data":{"correlation_id":"c","correlation_id":"d"}}"#, NoData),
            (r#"{"type":"tool.result","data":{"status":"completed"}}"#, NoId),
            (r#"{"type":"tool.result","data":{"request_id":"","correlation_id":null,"status":"completed"}}"#, NoId),
            (r#"{"type":"tool.result","data":{"request_id":1,"status":"completed"}}"#, IdNotText("request_id")),
            (r#"{"type":"tool.result","data":{"correlation_id":{},"status":"failed"}}"#, IdNotText("correlation_id")),
            (r#"{"type":"tool.result","data":{"correlation_id":"c"}}"#, BadStatus),
            (r#"{"type":"tool.result","data":{"correlation_id":"c","status":"done"}}"#, BadStatus),
            (r#"{"type":"tool.result","data":{"correlation_id":"c","status":"failed","error":"no"}}"#, BadError),
        ] {
            assert_eq!(parse_callback(body.as_bytes()), Err(fault), "{body}");
        }
        let not_utf8 =
            b"{\"type\":\"tool.result\",\"x\":\"\xff\",\"data\":{\"correlation_id\":\"c\",\"status\":\"completed\"}}";
        assert_eq!(parse_callback(not_utf8), Err(NotJson));
    }
}
