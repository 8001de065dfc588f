//! What a server answers to `tools/call`, with all that may stand in a result's place: a JSON-RPC error, a bare HTTP status,
//! a proxy's word.

use super::super::checks::quoted;
use super::rpc::{self, Message};
use super::{ToolResult, decode_result};
use crate::domain::error_code::ErrorCode;
use crate::domain::json::JsonText;
use crate::domain::run::{RunError, RunOutcome, RunStatus};
use serde_json::json;
use serde_json::value::RawValue;

/// What a server's answer makes of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallResponse {
    /// The call is over.
    Over(RunOutcome),
    /// The server wants to know something first, and to be called again.
    InputRequired {
        /// The whole result, as it came.
        result: JsonText,
        /// Its questions, a JSON object; `None` when it only wants the call again.
        input_requests: Option<JsonText>,
        /// What it wants to have back.
        request_state: Option<String>,
    },
}

/// Reads an answer: its HTTP status, and the message it holds. A call that is not `repeatable` ends as uncertain wherever
/// the answer does not say what became of it.
pub fn decode_response(repeatable: bool, status: u16, text: &str) -> CallResponse {
    CallResponse::Over(match rpc::parse(text) {
        Some(Message::Response { answer: Ok(result), .. }) => match decode_result(result) {
            ToolResult::Complete(outcome) => outcome,
            ToolResult::InputRequired { result, input_requests, request_state } => {
                return CallResponse::InputRequired { result, input_requests, request_state };
            }
            ToolResult::Unclear(message) => unclear(repeatable, ErrorCode::ProviderProtocolError, message),
        },
        Some(Message::Response { id, answer: Err(error) }) => match status {
            // Whatever else it says, this is about the gateway's credentials.
            401 | 403 => undecodable(repeatable, status),
            status if !repeatable && is_anothers_word(status, id.is_some()) => undecodable(repeatable, status),
            _ => rpc_failure(error),
        },
        Some(Message::Request { .. } | Message::Notification { .. }) | None => undecodable(repeatable, status),
    })
}

/// A proxy that gave up waiting, or what is left of a server that broke down, cannot say what the tool has done. A server's
/// own word names the request.
const fn is_anothers_word(status: u16, names_the_request: bool) -> bool {
    matches!(status, 408 | 502..=504) || (status >= 500 && !names_the_request)
}

/// The server asks what nobody can be asked.
pub fn cannot_ask() -> RunOutcome {
    let message = "the server asks its caller for more, and this caller cannot be asked";
    RunOutcome::failed(true, ErrorCode::ProviderProtocolError, message)
}

/// What an answer means that is no JSON-RPC response: the HTTP status is all there is.
fn undecodable(repeatable: bool, status: u16) -> RunOutcome {
    match status {
        401 | 403 => RunOutcome::failed(
            true,
            ErrorCode::ProviderAuthFailed,
            format!("the server refused the gateway's credentials (HTTP {status})"),
        ),
        // A proxy may say the first, which had handed the call on.
        408 | 500.. => unclear(repeatable, ErrorCode::ProviderError, format!("the server answered HTTP {status}")),
        // Whoever answers so has not run the tool.
        400..500 => {
            RunOutcome::failed(true, ErrorCode::ProviderProtocolError, format!("the server answered HTTP {status}"))
        }
        _ => unclear(
            repeatable,
            ErrorCode::ProviderProtocolError,
            "the server's answer breaks its protocol: it is no JSON-RPC response".to_owned(),
        ),
    }
}

/// Whether the tool ran is not known. One that may be called again has failed; any other may have done something.
fn unclear(repeatable: bool, code: ErrorCode, message: String) -> RunOutcome {
    if repeatable {
        RunOutcome::failed(true, code, message)
    } else {
        RunOutcome::ended(RunStatus::Uncertain, true, code.as_str())
    }
}

/// What a JSON-RPC error in answer to a call makes of its run. The error itself goes along: to an MCP client it can say
/// more than to any other.
pub fn rpc_failure(error: &RawValue) -> RunOutcome {
    let said = rpc::Error::read(error);
    let (code, message) = said.map_or((0, String::new()), |error| (error.code, error.message));
    let told = format!("the server answered with the JSON-RPC error {code}: {}", quoted(&message));
    let told = json!({ "code": ErrorCode::ProviderError.as_str(), "message": told }).to_string();
    let whole = [told.trim_end_matches('}'), ",\"rpc_error\":", error.get(), "}"].concat();
    let error = match JsonText::parse(&whole) {
        Ok(error) => RunError::Provider(error),
        Err(_) => RunError::Gateway { code: ErrorCode::ProviderError, message },
    };
    RunOutcome { status: RunStatus::Failed, started: true, result: None, error: Some(error), reason: None }
}
