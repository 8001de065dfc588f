//! The result of a tool call, as its server says it.

use super::super::checks::{object, present, quoted};
use crate::domain::error_code::ErrorCode;
use crate::domain::json::JsonText;
use crate::domain::run::{RunError, RunOutcome, RunStatus};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Most characters of a tool's own error text that stand in the error's message.
const LONGEST_MESSAGE: usize = 1000;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolResult {
    /// The call is over. The whole result is the outcome's.
    Complete(RunOutcome),
    /// The server wants to know something first.
    InputRequired {
        /// The whole result, as it came.
        result: JsonText,
        /// Its questions, a JSON object; `None` when it only wants the call again.
        input_requests: Option<JsonText>,
        /// What it wants to have back.
        request_state: Option<String>,
    },
    /// Nobody can tell what became of the call.
    Unclear(String),
}

/// Reads a result.
pub fn decode_result(result: &RawValue) -> ToolResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members<'a> {
        result_type: Option<Cow<'a, str>>,
        is_error: Option<bool>,
        input_requests: Option<Box<RawValue>>,
        request_state: Option<String>,
    }
    let Some(said) = object::<Members<'_>>(result.get().as_bytes()) else {
        return ToolResult::Unclear("the result is not what a tool may answer".to_owned());
    };
    let whole = JsonText::from(result.to_owned());
    match said.result_type.as_deref() {
        // The earlier era knows no types of results.
        None | Some("complete") if said.is_error == Some(true) => ToolResult::Complete(RunOutcome {
            status: RunStatus::Failed,
            started: true,
            error: Some(RunError::Gateway { code: ErrorCode::ProviderError, message: error_text(result) }),
            result: Some(whole),
            reason: None,
        }),
        None | Some("complete") => ToolResult::Complete(RunOutcome::completed(whole)),
        Some("input_required") => match (said.input_requests, said.request_state) {
            (None, None) => ToolResult::Unclear("the server asks for more and does not say for what".to_owned()),
            (Some(requests), _) if !requests.get().starts_with('{') => {
                ToolResult::Unclear("the server's questions are no object".to_owned())
            }
            (input_requests, request_state) => ToolResult::InputRequired {
                result: whole,
                input_requests: input_requests.map(JsonText::from),
                request_state,
            },
        },
        Some(other) => ToolResult::Unclear(format!("results of the type {} are not known", quoted(other))),
    }
}

/// The `structuredContent` of a result; also when it is `null`.
pub fn structured_content(result: &JsonText) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(borrow, default, rename = "structuredContent", deserialize_with = "present")]
        structured: Option<&'a RawValue>,
    }
    object::<Members<'_>>(result.as_str().as_bytes())?.structured
}

/// What the tool itself says went wrong: the text of its answer.
fn error_text(result: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Text<'a> {
        r#type: Cow<'a, str>,
        text: Cow<'a, str>,
    }
    let content = object::<Members<'_>>(result.get().as_bytes()).map(|said| said.content).unwrap_or_default();
    let texts = content.iter().filter_map(|block| object::<Text<'_>>(block.get().as_bytes()));
    let mut told = texts.filter(|block| block.r#type == "text").map(|block| block.text);
    match told.next() {
        Some(text) => text.chars().take(LONGEST_MESSAGE).collect(),
        None => "the tool reports an error and says no more".to_owned(),
    }
}
