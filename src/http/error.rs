//! Problem documents (RFC 9457): the one way an error leaves toolgate.
//!
//! **Invariant:** a problem never names what the asker may not see, and one code always has one title and one type.

use super::idempotency::IDEMPOTENT_REPLAY;
use crate::domain::error_code::ErrorCode;
use crate::domain::schema::{FieldError, MAX_FIELD_ERRORS};
use crate::engine::access::AccessFault;
use crate::engine::callback::CallbackRefusal;
use crate::engine::org::rate_limits::RateRefusal;
use crate::engine::ports::StoreError;
use crate::engine::run::RunRefusal;
use crate::engine::runs::RunLookupFault;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;
use utoipa::ToSchema;

/// Most characters of a detail that repeats something of the request.
const LONGEST_DETAIL: usize = 300;

/// Seconds a client that found every slot taken is told to stay away.
const UNMATCHED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// An error on its way out.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    code: ErrorCode,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
    limit: Option<&'static str>,
    allow: Option<String>,
    replayed: bool,
}

/// A problem document on the wire; the members stand in this order.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody<'a> {
    /// A stable URI of the kind of problem.
    r#type: String,
    /// The same for every problem of this kind.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong in this case, and what would be right.
    detail: &'a str,
    /// The code to decide by.
    code: &'static str,
    /// The trace the request belongs to.
    trace_id: &'a str,
    /// Faults of single values.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<FieldProblem<'a>>>,
    /// When the request fits again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// Which limit refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
}

/// One fault of one value.
#[derive(Serialize, ToSchema)]
pub(super) struct FieldProblem<'a> {
    /// RFC 6901, relative to `args`.
    pointer: &'a str,
    /// The JSON Schema keyword that failed.
    keyword: &'a str,
    /// What is wrong and how to mend it.
    message: &'a str,
}

impl Problem {
    /// A problem with its sentence.
    pub(super) fn new(code: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
            limit: None,
            allow: None,
            replayed: false,
        }
    }

    /// A member, header or parameter is unknown, missing or out of bounds.
    pub(super) fn invalid_request(detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(ErrorCode::InvalidRequest, detail);
        if let Some((end, _)) = problem.detail.char_indices().nth(LONGEST_DETAIL) {
            problem.detail = Cow::Owned(format!("{}…", &problem.detail[..end]));
        }
        problem
    }

    /// Missing, wrong, revoked, expired, of another kind: one body.
    pub(super) fn unauthorized() -> Self {
        Self::new(
            ErrorCode::Unauthorized,
            "send a valid key of the right kind as X-Auth or as Authorization: Bearer, not two different ones",
        )
    }

    /// No such object for this key.
    pub(super) fn not_found() -> Self {
        Self::new(ErrorCode::NotFound, "nothing with this address is visible to this key")
    }

    /// A fault of toolgate itself: nothing of it is told.
    pub(super) fn internal() -> Self {
        Self::new(ErrorCode::Internal, "the gateway failed to handle the request; the trace id finds it in its log")
    }

    /// toolgate is stopping.
    pub(super) fn stopping() -> Self {
        Self::new(ErrorCode::Overloaded, "the gateway is stopping; send the request again")
    }

    /// The path exists, the method does not.
    pub(super) fn method_not_allowed(allow: String) -> Self {
        let detail = format!("this address takes {allow}");
        Self { allow: Some(allow), ..Self::new(ErrorCode::MethodNotAllowed, detail) }
    }

    /// The body is over its limit.
    pub(super) fn too_large(limit_bytes: usize) -> Self {
        Self::new(ErrorCode::TooLarge, format!("the body may have at most {limit_bytes} bytes"))
    }

    /// The header block is over its limit.
    pub(super) fn headers_too_large(limit_bytes: usize) -> Self {
        Self::new(ErrorCode::HeadersTooLarge, format!("the header block may have at most {limit_bytes} bytes"))
    }

    /// A rate limit refused.
    pub(super) fn rate_limited(refusal: RateRefusal) -> Self {
        let limit = refusal.scope.as_str();
        let detail = format!("the rate limit of this {} is used up", limit.replace('_', " "));
        Self { retry_after: Some(refusal.retry_after), limit: Some(limit), ..Self::new(ErrorCode::RateLimited, detail) }
    }

    /// This peer address was refused too often.
    pub(super) fn too_many_refusals(retry_after: Duration) -> Self {
        let detail = "too many requests of this address were refused";
        Self { retry_after: Some(retry_after), ..Self::new(ErrorCode::RateLimited, detail) }
    }

    /// The same problem for one more request that waited for it.
    pub(super) fn replayed(self) -> Self {
        Self { replayed: true, ..self }
    }

    /// The code.
    pub(super) const fn code(&self) -> ErrorCode {
        self.code
    }

    /// The sentence.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// The answer that carries the problem.
    pub(super) fn render(&self, trace_id: &str) -> HttpResponse {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = HttpResponse::build(status);
        answer.insert_header((CONTENT_TYPE, "application/problem+json"));
        if let Some(allow) = &self.allow {
            answer.insert_header((ALLOW, allow.as_str()));
        }
        if let Some(after) = self.retry_after {
            answer.insert_header((RETRY_AFTER, whole_seconds(after)));
        }
        if self.replayed {
            answer.insert_header((IDEMPOTENT_REPLAY, "true"));
        }
        if self.code == ErrorCode::Unauthorized {
            answer.insert_header((WWW_AUTHENTICATE, "Bearer"));
        }
        answer.body(self.body(trace_id))
    }

    fn body(&self, trace_id: &str) -> Vec<u8> {
        let errors = self.errors.iter().take(MAX_FIELD_ERRORS).map(|error| FieldProblem {
            pointer: &error.pointer,
            keyword: &error.keyword,
            message: &error.message,
        });
        let body = ProblemBody {
            r#type: format!("urn:toolgate:problem:{}", self.code.as_str()),
            title: self.code.title(),
            status: self.code.status(),
            detail: &self.detail,
            code: self.code.as_str(),
            trace_id,
            errors: (!self.errors.is_empty()).then(|| errors.collect()),
            retry_after_ms: self.retry_after.map(whole_millis),
            limit: self.limit,
        };
        serde_json::to_vec(&body).expect("a problem is strings and numbers")
    }
}

/// Rounded up, at least 1: a client that comes back then is not refused for having come back too early.
fn whole_seconds(duration: Duration) -> u64 {
    whole_millis(duration).div_ceil(1000)
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                Self::new(ErrorCode::StoreUnavailable, "the store does not answer; send the request again later")
            }
            StoreError::Overloaded => Self::overloaded(),
            StoreError::Corrupt { .. } => Self::internal(),
            StoreError::NameTaken { name } => Self::new(ErrorCode::NameTaken, format!("the name \"{name}\" is taken")),
            StoreError::Stale => Self::stale(),
            StoreError::NotFound => Self::not_found(),
            StoreError::BadCursor => {
                Self::invalid_request("cursor: give the next_cursor of the page before, unchanged")
            }
            StoreError::InUse => Self::new(ErrorCode::InUse, "something still refers to this object"),
            StoreError::LimitReached { limit } => {
                Self::new(ErrorCode::LimitReached, format!("there may be at most {limit} of these"))
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if let StoreError::Unavailable(_) | StoreError::Corrupt { .. } = error {
            tracing::error!(error = &error as &dyn std::error::Error, "the store failed a request");
        }
        Self::from(&error)
    }
}

impl Problem {
    /// toolgate is too busy.
    pub(super) fn overloaded() -> Self {
        Self::new(ErrorCode::Overloaded, "the gateway is overloaded; send the request again later")
    }

    /// The object changed since it was read.
    pub(super) fn stale() -> Self {
        Self::new(ErrorCode::PreconditionFailed, "the object has changed; read it again and repeat the change")
    }
}

impl From<AccessFault> for Problem {
    fn from(fault: AccessFault) -> Self {
        match fault {
            AccessFault::Unauthorized => Self::unauthorized(),
            AccessFault::Suspended => Self::new(ErrorCode::Forbidden, "the organization is suspended"),
            AccessFault::Store(error) => error.into(),
        }
    }
}

impl From<RunRefusal> for Problem {
    fn from(refusal: RunRefusal) -> Self {
        match refusal {
            RunRefusal::UnknownTool => Self::new(ErrorCode::UnknownTool, "no tool of this name is visible to this key"),
            RunRefusal::InvalidArguments(errors) => {
                let detail = "the arguments do not satisfy the tool's input_schema; mend what errors says";
                Self { errors, ..Self::new(ErrorCode::InvalidArguments, detail) }
            }
            RunRefusal::CannotConfirm => Self::new(ErrorCode::Forbidden, "this key may not run this tool"),
            RunRefusal::KeyConflict => Self::new(
                ErrorCode::OperationConflict,
                "this Idempotency-Key stands for another call of this agent key; another call needs another key",
            ),
            // Only a call over MCP carries a state; it is told in that protocol's own words.
            RunRefusal::StateMismatch => {
                Self::new(ErrorCode::ConfirmationMismatch, "the request state is not for this call, or has expired")
            }
            RunRefusal::ConfirmationMismatch => Self::new(
                ErrorCode::ConfirmationMismatch,
                "the confirmation is not for this call, or has expired; run without one to be given another",
            ),
            RunRefusal::RateLimited(refusal) => Self::rate_limited(refusal),
            RunRefusal::Unavailable(refusal) => Self {
                retry_after: Some(refusal.retry_after()),
                ..Self::new(ErrorCode::EndpointUnavailable, "the endpoint of this tool cannot take a call now")
            },
            RunRefusal::Overloaded => Self::overloaded(),
            RunRefusal::Store(error) => error.into(),
        }
    }
}

impl From<RunLookupFault> for Problem {
    fn from(fault: RunLookupFault) -> Self {
        match fault {
            RunLookupFault::NotFound => Self::not_found(),
            RunLookupFault::Store(error) => error.into(),
        }
    }
}

impl From<CallbackRefusal> for Problem {
    fn from(refusal: CallbackRefusal) -> Self {
        match refusal {
            CallbackRefusal::InvalidSignature => {
                Self::new(ErrorCode::InvalidSignature, "the signature does not verify for this address")
            }
            CallbackRefusal::NotJson(message) => Self::new(ErrorCode::InvalidJson, message),
            CallbackRefusal::Malformed(message) => Self::invalid_request(message),
            CallbackRefusal::TooMany => Self {
                retry_after: Some(UNMATCHED_RETRY_AFTER),
                ..Self::new(ErrorCode::RateLimited, "too many callbacks of this endpoint belong to no run")
            },
            CallbackRefusal::Overloaded => Self::overloaded(),
            CallbackRefusal::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::org::rate_limits::LimitScope;

    fn text(problem: &Problem) -> String {
        String::from_utf8(problem.body("0af7")).expect("UTF-8")
    }

    #[test]
    fn members_stand_in_the_order_of_the_contract() {
        let refusal = RateRefusal { scope: LimitScope::AgentKey, retry_after: Duration::from_micros(1_200_001) };
        let mut problem = Problem::rate_limited(refusal);
        problem.errors =
            vec![FieldError { pointer: "/a".to_owned(), keyword: "type".to_owned(), message: "m".to_owned() }];
        assert_eq!(
            text(&problem),
            r#"{"type":"urn:toolgate:problem:rate_limited","title":"Too many requests","status":429,"detail":"the rate limit of this agent key is used up","code":"rate_limited","trace_id":"0af7","errors":[{"pointer":"/a","keyword":"type","message":"m"}],"retry_after_ms":1201,"limit":"agent_key"}"#
        );
        let answer = problem.render("0af7");
        assert_eq!(answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()), Some("2"));
    }

    #[test]
    fn what_does_not_apply_is_left_out() {
        let body = text(&Problem::not_found());
        assert!(body.ends_with(r#""trace_id":"0af7"}"#), "{body}");
    }

    #[test]
    fn every_code_has_a_status_that_http_knows() {
        for code in ErrorCode::ALL {
            assert_eq!(Problem::new(*code, "x").render("").status().as_u16(), code.status(), "{code:?}");
        }
    }

    #[test]
    fn a_method_that_is_not_allowed_is_answered_with_those_that_are() {
        let answer = Problem::method_not_allowed("GET, DELETE".to_owned()).render("");
        assert_eq!(answer.headers().get(ALLOW).and_then(|v| v.to_str().ok()), Some("GET, DELETE"));
    }

    #[test]
    fn a_detail_that_repeats_the_request_is_cut() {
        let problem = Problem::invalid_request("é".repeat(1000));
        assert_eq!(problem.detail().chars().count(), LONGEST_DETAIL + 1);
    }

    #[test]
    fn a_wait_is_never_told_as_zero() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1000)), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
    }
}
