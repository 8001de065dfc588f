//! What the answer to the question after a receipt means.

use super::super::checks::object;
use super::super::{AnswerContext, InboundAnswer};
use super::answer::{conflict, context_of, of_action, refused};
use super::envelope::{self, Breach, check_recorded};
use super::result;
use crate::domain::error_code::ErrorCode;
use crate::domain::evidence::{Action, ActionOutcome, EnvelopeStatus};
use crate::domain::json::JsonText;
use crate::domain::operation::{OperationIntent, OperationVerdict};
use crate::domain::run::RunOutcome;
use crate::domain::tool::ProviderTerms;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What a provider says about a receipt.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiptAnswer {
    /// The operation has an outcome: `Applied` or `Rejected`, and the receipt as the provider wrote it.
    Adopted(OperationVerdict, JsonText),
    /// The provider has not decided yet.
    Pending,
    /// The provider has never heard of the operation: it may be sent again, the same.
    Missing,
    /// The provider knows the operation with another content; the run is this.
    Conflict(RunOutcome),
    /// The receipt was there and is not kept any more: nobody can say.
    Gone,
    /// The answer says nothing that can be believed.
    Unclear {
        /// What is wrong with it.
        code: ErrorCode,
        /// The same as a sentence.
        message: String,
    },
}

/// The members of a receipt that mean something here; others are ignored.
#[derive(Deserialize)]
struct Receipt<'a> {
    operation_id: String,
    request_fingerprint: String,
    tool: String,
    action: String,
    state: String,
    recorded_at: Option<String>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// Reads the answer to the question after the receipt of a recorded operation.
pub fn decode_receipt(intent: &OperationIntent, answer: &InboundAnswer) -> ReceiptAnswer {
    match answer.status {
        200 => match adopted(intent, answer) {
            Ok(receipt) => receipt,
            Err(Breach { code, message }) => ReceiptAnswer::Unclear { code, message },
        },
        404 => ReceiptAnswer::Missing,
        409 => ReceiptAnswer::Conflict(conflict()),
        410 => ReceiptAnswer::Gone,
        status => {
            let (code, message) = refused(status);
            ReceiptAnswer::Unclear { code, message }
        }
    }
}

fn adopted(intent: &OperationIntent, answer: &InboundAnswer) -> Result<ReceiptAnswer, Breach> {
    let (terms, context) = (&intent.terms, &context_of(intent));
    let breach = |what: &str| Breach {
        code: ErrorCode::ProviderProtocolError,
        message: format!("the provider's receipt breaks its protocol: {what}"),
    };
    let receipt: Receipt<'_> = object(&answer.body).ok_or_else(|| breach("it is not the JSON object of a receipt"))?;
    if !is_of(intent, &receipt) {
        return Err(breach("its ids, tool or action are those of another operation"));
    }
    let outcome =
        ActionOutcome::parse(&receipt.state).ok_or_else(|| breach("its state must be applied, rejected or pending"))?;
    check_recorded(outcome, receipt.recorded_at.as_deref())
        .map_err(|_| breach("recorded_at must be an RFC 3339 time, and be there when the state is applied"))?;
    let status = match outcome {
        ActionOutcome::Pending => return Ok(ReceiptAnswer::Pending),
        ActionOutcome::Applied => EnvelopeStatus::Ok,
        ActionOutcome::Rejected => EnvelopeStatus::Rejected,
    };
    let verdict = match receipt.response {
        Some(response) if response.get() != "null" => of_response(terms, context, outcome, response)?,
        Some(_) | None => None,
    };
    let verdict = verdict.unwrap_or_else(|| {
        let action = Action {
            action: receipt.action,
            outcome,
            operation_id: receipt.operation_id,
            request_fingerprint: receipt.request_fingerprint,
            recorded_at: receipt.recorded_at,
            reference: None,
        };
        of_outcome(outcome, RunOutcome::completed(result::of_receipt(terms, context, status, action)))
    });
    let text = std::str::from_utf8(&answer.body).ok().and_then(|text| JsonText::parse(text).ok());
    let text = text.ok_or_else(|| breach("it is not the JSON object of a receipt"))?;
    Ok(ReceiptAnswer::Adopted(verdict, text))
}

fn is_of(intent: &OperationIntent, receipt: &Receipt<'_>) -> bool {
    receipt.operation_id == intent.mark.id.to_string()
        && receipt.request_fingerprint == intent.mark.fingerprint
        && receipt.tool == intent.provider_tool
        && Some(receipt.action.as_str()) == intent.terms.action.as_deref()
}

const fn of_outcome(outcome: ActionOutcome, run: RunOutcome) -> OperationVerdict {
    match outcome {
        ActionOutcome::Applied => OperationVerdict::Applied(run),
        ActionOutcome::Rejected | ActionOutcome::Pending => OperationVerdict::Rejected(run),
    }
}

/// The verdict of the response kept with a receipt, checked like an answer. `None` when it is an answer from before the
/// decision, which the receipt's own state is newer than.
fn of_response(
    terms: &ProviderTerms,
    context: &AnswerContext<'_>,
    outcome: ActionOutcome,
    response: &RawValue,
) -> Result<Option<OperationVerdict>, Breach> {
    let envelope = envelope::read(terms, context.operation, response.get().as_bytes())?;
    match envelope.evidence.actions().next().map(|action| action.outcome) {
        Some(said) if said == outcome => Ok(Some(of_action(terms, context, &envelope))),
        Some(ActionOutcome::Pending) => Ok(None),
        Some(ActionOutcome::Applied | ActionOutcome::Rejected) | None => Err(Breach {
            code: ErrorCode::EvidenceContractViolation,
            message: "the evidence breaks its contract: the receipt and its response differ in the outcome".to_owned(),
        }),
    }
}
