//! What the answer to a call means.

use super::super::{AnswerContext, CallAnswer, InboundAnswer};
use super::envelope::{self, Breach, Envelope};
use super::{result, terms};
use crate::domain::error_code::ErrorCode;
use crate::domain::evidence::ActionOutcome;
use crate::domain::operation::{OperationIntent, OperationVerdict};
use crate::domain::run::RunOutcome;
use crate::domain::tool::{ProviderTerms, ToolSpec};

/// Reads the answer to a call. A read is settled by it; of a mutation it says what became of the operation.
pub fn decode_answer(tool: &ToolSpec, context: &AnswerContext<'_>, answer: &InboundAnswer) -> CallAnswer {
    if tool.mutating {
        CallAnswer::Operation(of_mutation(terms(tool), context, answer))
    } else {
        CallAnswer::Settled(of_read(terms(tool), context, answer))
    }
}

/// Reads the answer to a POST of an operation that was sent before. That this one was turned down says nothing about the
/// one before it, which may be at work still.
pub fn decode_resend(intent: &OperationIntent, answer: &InboundAnswer) -> OperationVerdict {
    match answer.status {
        200..=299 | 409 => of_mutation(&intent.terms, &context_of(intent), answer),
        status => {
            let (code, message) = refused(status);
            OperationVerdict::Unclear { code, message }
        }
    }
}

/// What has to be known of a recorded operation to read what is said about it.
pub(super) fn context_of(intent: &OperationIntent) -> AnswerContext<'_> {
    AnswerContext {
        operation: Some(&intent.mark),
        repeatable: false,
        locale: intent.locale.as_deref(),
        timezone: intent.timezone.as_deref(),
    }
}

fn of_read(terms: &ProviderTerms, context: &AnswerContext<'_>, answer: &InboundAnswer) -> RunOutcome {
    if !(200..300).contains(&answer.status) {
        let (code, message) = refused(answer.status);
        return RunOutcome::failed(true, code, message);
    }
    match envelope::read(terms, None, &answer.body) {
        Ok(envelope) => RunOutcome::completed(result::of_envelope(terms, context, &envelope)),
        Err(Breach { code, message }) => RunOutcome::failed(true, code, message),
    }
}

fn of_mutation(terms: &ProviderTerms, context: &AnswerContext<'_>, answer: &InboundAnswer) -> OperationVerdict {
    match answer.status {
        200..=299 => match envelope::read(terms, context.operation, &answer.body) {
            Ok(envelope) => of_action(terms, context, &envelope),
            Err(Breach { code, message }) => OperationVerdict::Unclear { code, message },
        },
        409 => OperationVerdict::Conflict(conflict()),
        // The request was turned down before the tool ran; 408 alone says that it did not come in whole.
        400..=407 | 410..=499 => {
            let (code, message) = refused(answer.status);
            OperationVerdict::Rejected(RunOutcome::failed(true, code, message))
        }
        _ => {
            let (code, message) = refused(answer.status);
            OperationVerdict::Unclear { code, message }
        }
    }
}

/// What the action of a checked envelope makes of its operation.
pub(super) fn of_action(
    terms: &ProviderTerms,
    context: &AnswerContext<'_>,
    envelope: &Envelope<'_>,
) -> OperationVerdict {
    let completed = || RunOutcome::completed(result::of_envelope(terms, context, envelope));
    match envelope.evidence.actions().next().map(|action| action.outcome) {
        Some(ActionOutcome::Applied) => OperationVerdict::Applied(completed()),
        Some(ActionOutcome::Rejected) => OperationVerdict::Rejected(completed()),
        // The provider's word is that it has to be asked again.
        Some(ActionOutcome::Pending) | None => OperationVerdict::Unclear {
            code: ErrorCode::ProviderError,
            message: "the provider has not decided on the action yet".to_owned(),
        },
    }
}

/// The run of an operation that the provider knows with another content.
pub(super) fn conflict() -> RunOutcome {
    let message = "the provider knows this operation with other content; nothing more is sent under it";
    RunOutcome::failed(true, ErrorCode::OperationConflict, message)
}

/// The code and the sentence of a status that is no answer. Nothing of the body is handed on.
pub(super) fn refused(status: u16) -> (ErrorCode, String) {
    let answered = || format!("the provider answered HTTP {status}");
    match status {
        401 | 403 => {
            (ErrorCode::ProviderAuthFailed, format!("the provider refused the gateway's credentials (HTTP {status})"))
        }
        408 => (ErrorCode::ProviderTimeout, answered()),
        400..=599 => (ErrorCode::ProviderError, answered()),
        _ => (ErrorCode::ProviderProtocolError, format!("{}, which says nothing about a call", answered())),
    }
}
