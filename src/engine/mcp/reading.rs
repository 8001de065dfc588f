//! What a server's response makes of a call.

use super::exchange::Heard;
use crate::dialects::mcp::{self, CallResponse};
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
        match mcp::decode_response(self.tool.is_plain_read(), heard.status, &heard.text) {
            CallResponse::Over(outcome) => self.checked(outcome),
            CallResponse::InputRequired { result, .. } if self.hands_on => {
                Step::Over { outcome: RunOutcome::completed(result), withheld: None }
            }
            CallResponse::InputRequired { input_requests, request_state, .. } => {
                Step::Asked { questions: input_requests, state: request_state }
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
