//! The call, and what its answer means.

use super::super::checks::{object, present, quoted};
use super::super::{AnswerContext, ApprovalMark, Call, CallAnswer, InboundAnswer, OutboundRequest};
use super::{VERSION, request};
use crate::domain::endpoint::EndpointSettings;
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::RunId;
use crate::domain::json::JsonText;
use crate::domain::run::{RunOutcome, RunStatus};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// Room for everything of the body but the arguments.
const BODY_FRAME: usize = 320;

/// The body of a call, its members in the order of the contract. The arguments go in as the text they are.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallBody<'a> {
    op: &'static str,
    version: u8,
    tool: &'a str,
    input: &'a RawValue,
    #[serde(serialize_with = "id_text")]
    call_id: &'a RunId,
    context: Context<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Context<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<Customer<'a>>,
    approval: Approval<'a>,
}

#[derive(Serialize)]
struct Customer<'a> {
    id: &'a str,
}

#[derive(Serialize)]
struct Approval<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
}

fn id_text<S: Serializer>(id: &&RunId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The request that runs a tool, under the provider's own name for it.
pub fn encode_call(settings: &EndpointSettings, call: &Call<'_>) -> OutboundRequest {
    let approval = match call.approval {
        ApprovalMark::None => Approval { kind: "none", by: None },
        ApprovalMark::Reviewer { by } => Approval { kind: "reviewer", by: by.as_deref() },
        ApprovalMark::Teammate { by } => Approval { kind: "teammate", by: by.as_deref() },
    };
    let content = CallBody {
        op: "call",
        version: VERSION,
        tool: &call.tool.provider_name,
        input: call.arguments.raw(),
        call_id: &call.run_id,
        context: Context {
            conversation_id: call.conversation,
            customer: call.caller.map(|id| Customer { id }),
            approval,
        },
    };
    let mut body = Vec::with_capacity(BODY_FRAME + call.arguments.as_str().len());
    serde_json::to_writer(&mut body, &content).expect("a vector takes every byte, and every member is text or JSON");
    request(settings, body)
}

/// The body of an answer. Presence counts: a result of `null` is a result, an error of `null` beside it is one too many.
#[derive(Deserialize)]
struct AnswerBody<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Reads the answer to a call. The body decides; the status only counts where the body says nothing.
pub fn decode_answer(context: &AnswerContext<'_>, answer: &InboundAnswer) -> CallAnswer {
    let unclear = || unclear(context, answer.status);
    let outcome = match object::<AnswerBody<'_>>(&answer.body) {
        Some(AnswerBody { result: Some(result), error: None }) => {
            RunOutcome::completed(JsonText::from(result.to_owned()))
        }
        Some(AnswerBody { result: None, error: Some(error) }) => match reported(error) {
            Some((code, message)) => RunOutcome::failed(true, code, message),
            None => unclear(),
        },
        Some(_) | None => unclear(),
    };
    CallAnswer::Settled(outcome)
}

/// A failure in the provider's own words: its kind and a message for the agent; `None` when it is not of that shape.
pub(super) fn reported(error: &RawValue) -> Option<(ErrorCode, String)> {
    /// What a provider says about a failure.
    #[derive(Deserialize)]
    struct ProviderError {
        code: String,
        message: Option<String>,
    }

    let said: ProviderError = object(error.get().as_bytes())?;
    Some(match said.message {
        Some(message) if said.code == "execution_failed" => (ErrorCode::ExecutionFailed, message),
        None if said.code == "execution_failed" => {
            (ErrorCode::ExecutionFailed, "the tool failed and gave no reason".to_owned())
        }
        // The message of any other code is meant for the provider's own people.
        Some(_) | None => {
            (ErrorCode::ProviderError, format!("the provider answered with the error code {}", quoted(&said.code)))
        }
    })
}

/// What an answer means whose body says nothing: the HTTP status is all there is.
pub(super) fn undecodable(status: u16) -> (ErrorCode, String) {
    match status {
        401 | 403 => {
            (ErrorCode::ProviderAuthFailed, format!("the provider refused the gateway's signature (HTTP {status})"))
        }
        500.. => (ErrorCode::ProviderError, format!("the provider answered HTTP {status}")),
        _ => (
            ErrorCode::ProviderProtocolError,
            "the provider's answer breaks its protocol: its body is not an object with either a result or an error"
                .to_owned(),
        ),
    }
}

/// Whether the tool ran is not known. One that may be called again has failed; any other may have done something.
fn unclear(context: &AnswerContext<'_>, status: u16) -> RunOutcome {
    let (code, message) = undecodable(status);
    // A refused signature is certain: the provider never looked at the call.
    if code == ErrorCode::ProviderAuthFailed || context.repeatable {
        return RunOutcome::failed(true, code, message);
    }
    RunOutcome::ended(RunStatus::Uncertain, true, code.as_str())
}
