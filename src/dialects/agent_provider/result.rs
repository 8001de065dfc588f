//! The result of a run: the provider's evidence as it wrote it, the facts told from it, and its free text apart.

use super::super::AnswerContext;
use super::envelope::Envelope;
use crate::domain::evidence::{Action, EnvelopeStatus, Evidence, EvidenceBody, EvidenceSet};
use crate::domain::facts::{Speech, facts, unsupported};
use crate::domain::json::JsonText;
use crate::domain::tool::ProviderTerms;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct RunResult<'a> {
    status: &'static str,
    evidence: &'a RawValue,
    facts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<FreeText<'a>>,
}

/// What the provider says beside its evidence: never verified, whatever it says.
#[derive(Serialize)]
struct FreeText<'a> {
    value: &'a str,
    verified: bool,
    unsupported: Vec<String>,
}

fn speech(terms: &ProviderTerms, context: &AnswerContext<'_>) -> Speech {
    Speech::choose(context.locale, &terms.languages, context.timezone)
}

fn json(result: &RunResult<'_>) -> JsonText {
    let raw = serde_json::value::to_raw_value(result).expect("every member is text or JSON already");
    JsonText::from(raw)
}

/// The result of an answer.
pub(super) fn of_envelope(terms: &ProviderTerms, context: &AnswerContext<'_>, envelope: &Envelope<'_>) -> JsonText {
    let speech = speech(terms, context);
    let text = envelope.text.as_deref().map(|text| FreeText {
        value: text,
        verified: false,
        unsupported: unsupported(text, &envelope.evidence, &speech),
    });
    json(&RunResult {
        status: envelope.status.as_str(),
        evidence: envelope.raw_evidence,
        facts: facts(&envelope.evidence, &speech),
        text,
    })
}

/// The result of a receipt that has no response with it: what it says of the action, and no evidence.
pub(super) fn of_receipt(
    terms: &ProviderTerms,
    context: &AnswerContext<'_>,
    status: EnvelopeStatus,
    action: Action,
) -> JsonText {
    let speech = speech(terms, context);
    let item = Evidence { id: "receipt".to_owned(), body: EvidenceBody::Action(Action { reference: None, ..action }) };
    let set = EvidenceSet::new(vec![item]).expect("one item that points nowhere goes with itself");
    let none: &RawValue = serde_json::from_str("[]").expect("an empty list is JSON");
    json(&RunResult { status: status.as_str(), evidence: none, facts: facts(&set, &speech), text: None })
}
