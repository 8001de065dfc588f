//! What a server's response makes of a call.

use super::exchange::Heard;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::{self, ToolResult};
use crate::domain::error_code::ErrorCode;
use crate::domain::json::JsonText;
use crate::domain::run::{RunOutcome, RunStatus};
use crate::engine::Engine;
use crate::engine::catalog::CatalogTool;
use crate::engine::schemas::Side;
use std::sync::Arc;

/// All that a response is read by.
pub(super) struct Reading {
    pub(super) engine: Engine,
    pub(super) tool: Arc<CatalogTool>,
    /// A server's questions end the run: the client calls again with its answers.
    pub(super) hands_on: bool,
}

/// What a round made of the call.
pub(super) enum Step {
    /// It is over.
    Over {
        outcome: RunOutcome,
        /// A result that breaks the tool's own output schema.
        withheld: Option<JsonText>,
    },
    /// The server wants to be called again.
    Asked {
        /// Its questions, a JSON object, if it has any.
        questions: Option<JsonText>,
        /// What it wants to have back.
        state: Option<String>,
    },
}

impl Reading {
    pub(super) fn of(&self, heard: &Heard) -> Step {
        let repeatable = self.tool.is_plain_read();
        let over = |outcome| Step::Over { outcome, withheld: None };
        match rpc::parse(&heard.text) {
            Some(Message::Response { answer: Ok(result), .. }) => match mcp::decode_result(result) {
                ToolResult::Complete(outcome) => self.checked(outcome),
                ToolResult::InputRequired { result, .. } if self.hands_on => over(RunOutcome::completed(result)),
                ToolResult::InputRequired { input_requests, request_state, .. } => {
                    Step::Asked { questions: input_requests, state: request_state }
                }
                ToolResult::Unclear(message) => {
                    over(mcp::unclear(repeatable, ErrorCode::ProviderProtocolError, message))
                }
            },
            Some(Message::Response { id, answer: Err(error) }) => over(match heard.status {
                // Whatever else it says, this is about the gateway's credentials.
                401 | 403 => mcp::undecodable(repeatable, heard.status),
                status if !repeatable && is_anothers_word(status, id.is_some()) => {
                    mcp::unclear(repeatable, ErrorCode::ProviderError, format!("the server answered HTTP {status}"))
                }
                _ => mcp::rpc_failure(error),
            }),
            Some(Message::Request { .. } | Message::Notification { .. }) | None => {
                over(mcp::undecodable(repeatable, heard.status))
            }
        }
    }

    /// Holds a good result against the tool's output schema. A failed one is not: that would hide the real error.
    fn checked(&self, outcome: RunOutcome) -> Step {
        let fault = match &outcome.result {
            Some(result) if outcome.status == RunStatus::Completed => self.output_fault(result),
            Some(_) | None => None,
        };
        match fault {
            None => Step::Over { outcome, withheld: None },
            Some(message) => Step::Over {
                withheld: outcome.result,
                outcome: RunOutcome::failed(true, ErrorCode::OutputInvalid, message),
            },
        }
    }

    fn output_fault(&self, result: &JsonText) -> Option<String> {
        let spec = &self.tool.spec;
        let schema = spec.output_schema.as_ref()?;
        let draft = self.tool.endpoint.settings.dialect.default_draft();
        let validator = self.engine.0.schemas.get(&spec.hash, Side::Output, schema, draft).ok()?;
        let Some(structured) = mcp::structured_content(result) else {
            return Some("the result has no structuredContent, which the tool's output schema promises".to_owned());
        };
        let Ok(value) = serde_json::from_str(structured.get()) else {
            return Some("the result holds a number that cannot be checked against the output schema".to_owned());
        };
        let errors = validator.validate(&value).err()?;
        let first = errors.first()?;
        Some(format!("the result does not satisfy the output schema at \"{}\" ({})", first.pointer, first.keyword))
    }
}

/// A proxy that gave up waiting, or what is left of a server that broke down, cannot say what the tool has done. A server's
/// own word names the request.
const fn is_anothers_word(status: u16, names_the_request: bool) -> bool {
    matches!(status, 408 | 502..=504) || (status >= 500 && !names_the_request)
}
