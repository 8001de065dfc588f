//! The envelope of an answer, read and held to its contract.

use super::super::checks::{object, quoted};
use super::manifest::is_calendar_date;
use crate::domain::error_code::ErrorCode;
use crate::domain::evidence::{
    Action, ActionOutcome, EnvelopeStatus, Evidence, EvidenceBody, EvidenceKind, EvidenceSet,
};
use crate::domain::json::JsonText;
use crate::domain::operation::OperationMark;
use crate::domain::time::Timestamp;
use crate::domain::tool::ProviderTerms;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An envelope whose evidence keeps its contract.
#[derive(Debug)]
pub(super) struct Envelope<'a> {
    pub(super) status: EnvelopeStatus,
    /// The evidence as the provider wrote it.
    pub(super) raw_evidence: &'a RawValue,
    pub(super) evidence: EvidenceSet,
    pub(super) text: Option<String>,
}

/// Why an envelope cannot be believed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

impl Breach {
    fn protocol(what: &str) -> Self {
        Self {
            code: ErrorCode::ProviderProtocolError,
            message: format!("the provider's answer breaks its protocol: {what}"),
        }
    }

    fn evidence(what: impl std::fmt::Display) -> Self {
        Self {
            code: ErrorCode::EvidenceContractViolation,
            message: format!("the evidence breaks its contract: {what}"),
        }
    }
}

/// The members of an envelope that mean something here; others are ignored.
#[derive(Deserialize)]
struct EnvelopeBody<'a> {
    #[serde(borrow)]
    contract_version: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    evidence: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

/// Reads an envelope and checks it by every rule.
pub(super) fn read<'a>(
    terms: &ProviderTerms,
    mark: Option<&OperationMark>,
    body: &'a [u8],
) -> Result<Envelope<'a>, Breach> {
    let said: EnvelopeBody<'a> =
        object(body).ok_or_else(|| Breach::protocol("it is not the JSON object of an answer"))?;
    let text = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let status = text(said.status)
        .as_deref()
        .and_then(EnvelopeStatus::parse)
        .ok_or_else(|| Breach::protocol("its status must be ok, not_found or rejected"))?;
    let raw_evidence = said.evidence.ok_or_else(|| Breach::evidence("the answer has none"))?;
    let evidence = read_evidence(raw_evidence)?;
    check_kinds(terms, status, &evidence)?;
    check_action(terms, mark, &evidence)?;
    if !text(said.contract_version).is_some_and(|version| is_calendar_date(&version)) {
        return Err(Breach::protocol("its contract_version must be a calendar date"));
    }
    let text = match said.text {
        None => None,
        Some(raw) if raw.get() == "null" => None,
        Some(raw) => Some(text(Some(raw)).ok_or_else(|| Breach::protocol("its text must be a string"))?),
    };
    Ok(Envelope { status, raw_evidence, evidence, text })
}

fn read_evidence(raw: &RawValue) -> Result<EvidenceSet, Breach> {
    let items: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| Breach::evidence("the evidence must be an array"))?;
    let items = items
        .iter()
        .enumerate()
        .map(|(index, raw)| read_item(raw).map_err(|what| Breach::evidence(format_args!("item {index} {what}"))));
    EvidenceSet::new(items.collect::<Result<_, _>>()?).map_err(Breach::evidence)
}

#[derive(Deserialize)]
struct ItemHead {
    kind: String,
    id: String,
}

#[derive(Deserialize)]
struct EntityItem {
    #[serde(rename = "type")]
    type_name: String,
    key: String,
    label: Option<String>,
}

#[derive(Deserialize)]
struct ValueItem<'a> {
    of: String,
    field: String,
    #[serde(borrow, deserialize_with = "super::super::checks::present")]
    value: Option<&'a RawValue>,
    value_type: String,
    as_of: Option<String>,
    display: Option<String>,
}

#[derive(Deserialize)]
struct ReferenceItem {
    #[serde(rename = "type")]
    type_name: String,
    value: String,
    url: Option<String>,
}

#[derive(Deserialize)]
struct CompletenessItem<'a> {
    scope: String,
    complete: bool,
    #[serde(borrow)]
    returned: &'a RawValue,
    #[serde(borrow)]
    total: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ActionItem {
    action: String,
    outcome: String,
    operation_id: String,
    request_fingerprint: String,
    recorded_at: Option<String>,
    reference: Option<String>,
}

/// Reads one item; the error goes on after its number.
fn read_item(raw: &RawValue) -> Result<Evidence, String> {
    let json = raw.get().as_bytes();
    let head: ItemHead = object(json).ok_or("must be an object with a kind and an id")?;
    if head.id.is_empty() {
        return Err("has an empty id".to_owned());
    }
    let kind = EvidenceKind::parse(&head.kind).ok_or_else(|| format!("has the unknown kind {}", quoted(&head.kind)))?;
    let body = match kind {
        EvidenceKind::Entity => object(json).map(|item: EntityItem| EvidenceBody::Entity {
            type_name: item.type_name,
            key: item.key,
            label: item.label,
        }),
        EvidenceKind::Value => object(json).and_then(|item: ValueItem<'_>| {
            Some(EvidenceBody::Value {
                of: item.of,
                field: item.field,
                value: JsonText::from(item.value?.to_owned()),
                value_type: item.value_type,
                as_of: item.as_of,
                display: item.display,
            })
        }),
        EvidenceKind::Reference => object(json).map(|item: ReferenceItem| EvidenceBody::Reference {
            type_name: item.type_name,
            value: item.value,
            url: item.url,
        }),
        EvidenceKind::Completeness => object(json).and_then(|item: CompletenessItem<'_>| {
            Some(EvidenceBody::Completeness {
                scope: item.scope,
                complete: item.complete,
                returned: count(item.returned)?,
                total: item.total.map(|total| count(total).ok_or(())).transpose().ok()?,
            })
        }),
        EvidenceKind::Action => object(json).and_then(|item: ActionItem| {
            Some(EvidenceBody::Action(Action {
                outcome: ActionOutcome::parse(&item.outcome)?,
                action: item.action,
                operation_id: item.operation_id,
                request_fingerprint: item.request_fingerprint,
                recorded_at: item.recorded_at,
                reference: item.reference,
            }))
        }),
    };
    let body = body.ok_or_else(|| format!("is no {}: {}", kind.as_str(), members_of(kind)))?;
    Ok(Evidence { id: head.id, body })
}

/// What an item of a kind has to have, for sentences.
const fn members_of(kind: EvidenceKind) -> &'static str {
    match kind {
        EvidenceKind::Entity => "it needs type and key, and may have label",
        EvidenceKind::Value => "it needs of, field, value and value_type, and may have as_of and display",
        EvidenceKind::Reference => "it needs type and value, and may have url",
        EvidenceKind::Completeness => "it needs scope, complete and returned, and may have total",
        EvidenceKind::Action => {
            "it needs action, an outcome (applied, rejected or pending), operation_id and request_fingerprint, and may \
             have recorded_at and reference"
        }
    }
}

/// A count: an integer that is not negative, of any size.
fn count(raw: &RawValue) -> Option<String> {
    raw.get().bytes().all(|b| b.is_ascii_digit()).then(|| raw.get().to_owned())
}

fn check_kinds(terms: &ProviderTerms, status: EnvelopeStatus, evidence: &EvidenceSet) -> Result<(), Breach> {
    let (declared, found) = (terms.produces_evidence, evidence.kinds());
    if let Some(kind) = found.iter().find(|kind| !declared.contains(*kind)) {
        let what = format!("the answer has {} evidence, which the manifest does not declare", kind.as_str());
        return Err(Breach::evidence(what));
    }
    match (status, declared.iter().find(|kind| !found.contains(*kind))) {
        (EnvelopeStatus::Ok, Some(kind)) => {
            Err(Breach::evidence(format_args!("the status is ok and {} evidence is missing", kind.as_str())))
        }
        (EnvelopeStatus::Ok, None) | (EnvelopeStatus::NotFound | EnvelopeStatus::Rejected, _) => Ok(()),
    }
}

/// A mutation holds exactly its own action; a read, which declares none, has none by then.
fn check_action(terms: &ProviderTerms, mark: Option<&OperationMark>, evidence: &EvidenceSet) -> Result<(), Breach> {
    let mut actions = evidence.actions();
    if terms.action.is_none() {
        return match actions.next() {
            Some(_) => Err(Breach::evidence("the answer to a read has an action")),
            None => Ok(()),
        };
    }
    let (Some(action), None) = (actions.next(), actions.next()) else {
        return Err(Breach::evidence("the answer to a mutation must have exactly one action"));
    };
    if Some(action.action.as_str()) != terms.action.as_deref() {
        return Err(Breach::evidence("the action is not the one of the manifest"));
    }
    let is_ours = mark.is_some_and(|mark| {
        action.operation_id == mark.id.to_string() && action.request_fingerprint == mark.fingerprint
    });
    if !is_ours {
        return Err(Breach::evidence("the action is of another operation than the one that was sent"));
    }
    check_recorded(action.outcome, action.recorded_at.as_deref()).map_err(Breach::evidence)
}

/// What took effect has been recorded at some time, and a time that is given is one.
pub(super) fn check_recorded(outcome: ActionOutcome, recorded_at: Option<&str>) -> Result<(), &'static str> {
    match (outcome, recorded_at) {
        (ActionOutcome::Applied, None) => Err("the action is applied and has no recorded_at"),
        (_, Some(at)) if Timestamp::parse(at).is_none() => Err("recorded_at must be an RFC 3339 time"),
        (ActionOutcome::Applied, Some(_)) | (ActionOutcome::Rejected | ActionOutcome::Pending, _) => Ok(()),
    }
}
