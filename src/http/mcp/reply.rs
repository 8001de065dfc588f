//! What a request is answered: a result or an error, as one JSON-RPC response.

use super::members::quoted;
use crate::dialects::mcp::words;
use crate::engine::catalog::ShownTo;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// An error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The HTTP status; the earlier era answers the faults of a method with 200.
    pub(super) status: u16,
    pub(super) code: i64,
    pub(super) message: Cow<'static, str>,
    /// JSON.
    pub(super) data: Option<String>,
}

impl Fault {
    pub(super) fn new(status: u16, code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// The message is no request.
    pub(super) fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, words::INVALID_REQUEST, message)
    }

    /// The parameters are wrong.
    pub(super) fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, words::INVALID_PARAMS, message)
    }

    /// Headers and body say different things.
    pub(super) fn header_mismatch(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, words::HEADER_MISMATCH, message)
    }

    /// The revision is not spoken.
    pub(super) fn unsupported_version(requested: &str) -> Self {
        let data = format!(r#"{{"supported":{},"requested":{}}}"#, supported_versions(), quoted(requested));
        let message = "this revision of the protocol is not spoken here";
        Self { data: Some(data), ..Self::new(400, words::UNSUPPORTED_VERSION, message) }
    }

    /// The client has to declare the Tasks extension first.
    pub(super) fn wants_tasks() -> Self {
        let data = format!(r#"{{"requiredCapabilities":{{"extensions":{{"{}":{{}}}}}}}}"#, words::TASKS_EXTENSION);
        let message = "the client has to declare the Tasks extension for this";
        Self { data: Some(data), ..Self::new(400, words::MISSING_CAPABILITY, message) }
    }

    /// The organization holds as many streams as it may.
    pub(super) fn too_many_streams(most: usize) -> Self {
        let message = format!("the organization has {most} streams open, the most it may; close one first");
        Self::new(429, words::SERVER_ERROR, message)
    }

    /// No resource has this address, a JSON string; the earlier era has a code of its own for it.
    pub(super) fn no_such_resource(uri: Option<&RawValue>, era: ShownTo) -> Self {
        let code = match era {
            ShownTo::Modern => words::INVALID_PARAMS,
            ShownTo::Legacy => words::RESOURCE_NOT_FOUND,
        };
        let data = uri.map(|uri| format!(r#"{{"uri":{}}}"#, uri.get()));
        Self { data, ..Self::new(400, code, "there is no such resource") }
    }

    /// One text, whatever the cause.
    pub(super) fn unknown_tool() -> Self {
        Self::invalid_params("no tool of this name is visible to this key")
    }

    /// The JSON of the error itself.
    pub(super) fn to_json(&self) -> String {
        let message = quoted(&self.message);
        match &self.data {
            Some(data) => format!(r#"{{"code":{},"message":{message},"data":{data}}}"#, self.code),
            None => format!(r#"{{"code":{},"message":{message}}}"#, self.code),
        }
    }

    /// The answer to the request with this id; `None` where the id could not be read.
    pub(super) fn respond(self, id: Option<&str>) -> HttpResponse {
        Reply::Fault(self).respond(id.unwrap_or("null"))
    }
}

/// Every revision that is spoken, as a JSON array.
pub(super) fn supported_versions() -> String {
    let versions = std::iter::once(words::MODERN_VERSION).chain(words::LEGACY_VERSIONS).map(quoted);
    format!("[{}]", versions.collect::<Vec<_>>().join(","))
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The JSON of a result.
    Result(String),
    Fault(Fault),
}

impl From<Result<String, Fault>> for Reply {
    fn from(answered: Result<String, Fault>) -> Self {
        answered.map_or_else(Reply::Fault, Reply::Result)
    }
}

impl Reply {
    /// The whole JSON-RPC response.
    pub(super) fn message(&self, id: &str) -> String {
        match self {
            Reply::Result(result) => [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#, result, "}"].concat(),
            Reply::Fault(fault) => [r#"{"jsonrpc":"2.0","id":"#, id, r#","error":"#, &fault.to_json(), "}"].concat(),
        }
    }

    /// The same answer for a client of the earlier era, which reads errors of a method only from a 200.
    pub(super) fn for_legacy(self) -> Self {
        match self {
            Reply::Fault(fault) => Reply::Fault(Fault { status: 200, ..fault }),
            result @ Reply::Result(_) => result,
        }
    }

    /// The answer as one JSON body.
    pub(super) fn respond(&self, id: &str) -> HttpResponse {
        let status = match self {
            Reply::Result(_) => StatusCode::OK,
            Reply::Fault(fault) => StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        HttpResponse::build(status).insert_header((CONTENT_TYPE, "application/json")).body(self.message(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_the_id_of_its_request() {
        let fault = Fault::unsupported_version("1900-01-01");
        assert_eq!(
            Reply::Fault(fault).message("\"a\""),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32022,"message":"this revision of the protocol is not spoken here","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":"1900-01-01"}}}"#
        );
        let reply = Reply::Fault(Fault::unknown_tool());
        assert_eq!(reply.respond("1").status(), StatusCode::BAD_REQUEST);
        assert_eq!(reply.for_legacy().respond("1").status(), StatusCode::OK);
    }
}
