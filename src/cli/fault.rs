//! Why a command failed, as its user reads it.

use super::output::printable;
use crate::adapters::transport::{SimpleError, TransportSetupError};
use serde_json::Value;
use std::error::Error as _;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliFault {
    /// Nothing to show the gateway.
    #[error("a key is needed: give --key, or set TOOLGATE_CLIENT_KEY")]
    NoKey,
    /// An option that clap cannot judge.
    #[error("{0}")]
    BadInput(String),
    /// A file that an option names.
    #[error("{name} cannot be read")]
    Unreadable {
        /// The file, or `-`.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No object of this name.
    #[error("there is no {what} named {name}")]
    Unknown {
        /// Such as `endpoint`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The client cannot be set up.
    #[error("the client cannot be set up")]
    Setup(#[source] TransportSetupError),
    /// The gateway did not answer.
    #[error("the gateway does not answer")]
    NoAnswer(#[source] SimpleError),
    /// The gateway said no.
    #[error("the gateway answered {status}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The problem document, or `null`.
        problem: Value,
        /// The answer as it came, when that is what was asked for.
        raw: Option<String>,
    },
    /// The gateway answered, and the sync is what failed.
    #[error("the sync failed; the last good tools stay")]
    SyncFailed,
    /// The answer is not what the API gives.
    #[error("the answer is not JSON: is that a toolgate?")]
    NotJson,
    /// Standard output is gone.
    #[error("the answer cannot be printed")]
    Output(#[source] io::Error),
}

impl CliFault {
    /// The code a script sees: 2 for a command line that is not right, 1 for everything else.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            CliFault::NoKey | CliFault::BadInput(_) | CliFault::Unreadable { .. } => ExitCode::from(2),
            CliFault::Unknown { .. }
            | CliFault::Setup(_)
            | CliFault::NoAnswer(_)
            | CliFault::Refused { .. }
            | CliFault::NotJson
            | CliFault::SyncFailed
            | CliFault::Output(_) => ExitCode::FAILURE,
        }
    }

    /// All there is to say about it, in lines.
    pub(super) fn report(&self) -> String {
        match self {
            CliFault::Refused { raw: Some(raw), .. } => raw.clone(),
            CliFault::Refused { status, problem, raw: None } => refusal(*status, problem),
            CliFault::SyncFailed
            | CliFault::NoKey
            | CliFault::BadInput(_)
            | CliFault::Unreadable { .. }
            | CliFault::Unknown { .. }
            | CliFault::Setup(_)
            | CliFault::NoAnswer(_)
            | CliFault::NotJson
            | CliFault::Output(_) => {
                let mut line = format!("error: {self}");
                let mut cause = self.source();
                while let Some(source) = cause {
                    let _ = write!(line, ": {source}");
                    cause = source.source();
                }
                line
            }
        }
    }
}

/// A problem document: its sentence and code, a line a field, and what to quote to whoever runs the gateway.
fn refusal(status: u16, problem: &Value) -> String {
    let text = |member: &str| problem[member].as_str().map(printable);
    let detail = text("detail").or_else(|| text("title")).unwrap_or_else(|| "the gateway refused".to_owned());
    let code = text("code").unwrap_or_else(|| "no code".to_owned());
    let mut report = format!("error: {detail} ({status} {code})");
    for error in problem["errors"].as_array().into_iter().flatten() {
        let part = |member: &str| printable(error[member].as_str().unwrap_or_default());
        let _ = write!(report, "\n  {}: {}", part("pointer"), part("message"));
    }
    if let Some(ms) = problem["retry_after_ms"].as_u64() {
        let _ = write!(report, "\n  try again in {ms} ms");
    }
    if let Some(trace_id) = text("trace_id") {
        let _ = write!(report, "\n  trace_id {trace_id}");
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_tells_code_fields_and_trace() {
        let problem = json!({
            "detail": "the arguments are not valid", "code": "invalid_arguments", "trace_id": "4bf9",
            "errors": [{ "pointer": "/days", "keyword": "type", "message": "must be an integer\u{1b}[2J" }],
        });
        let expected = "error: the arguments are not valid (422 invalid_arguments)\n  \
                        /days: must be an integer\\u{1b}[2J\n  trace_id 4bf9";
        assert_eq!(refusal(422, &problem), expected);
        assert_eq!(refusal(502, &Value::Null), "error: the gateway refused (502 no code)");
    }
}
