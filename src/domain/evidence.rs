//! Evidence: what a provider shows for what it says, each item with an id the others can point to.
//!
//! **Invariant:** an [`EvidenceSet`] exists only once its ids were found unique and its pointers resolved; whether its
//! kinds are those a tool declared is the dialect's question.

use super::json::JsonText;
use std::collections::HashMap;

/// The kinds of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvidenceKind {
    /// Something that exists at the provider.
    Entity,
    /// A field of something.
    Value,
    /// A mutation and its outcome.
    Action,
    /// A number or address under which something can be asked for again.
    Reference,
    /// Whether an answer holds all there is.
    Completeness,
}

impl EvidenceKind {
    /// Every kind, in the order of the contract.
    pub const ALL: [EvidenceKind; 5] = [
        EvidenceKind::Entity,
        EvidenceKind::Value,
        EvidenceKind::Action,
        EvidenceKind::Reference,
        EvidenceKind::Completeness,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            EvidenceKind::Entity => "entity",
            EvidenceKind::Value => "value",
            EvidenceKind::Action => "action",
            EvidenceKind::Reference => "reference",
            EvidenceKind::Completeness => "completeness",
        }
    }

    /// The kind with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceKinds(u8);

impl EvidenceKinds {
    /// Whether a kind is in the set.
    pub const fn contains(self, kind: EvidenceKind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Puts a kind into the set.
    pub const fn insert(&mut self, kind: EvidenceKind) {
        self.0 |= kind.bit();
    }

    /// The kinds, in the order of the contract.
    pub fn iter(self) -> impl Iterator<Item = EvidenceKind> {
        EvidenceKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// The words on the wire, in the order of the contract.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(EvidenceKind::as_str)
    }
}

impl FromIterator<EvidenceKind> for EvidenceKinds {
    fn from_iter<I: IntoIterator<Item = EvidenceKind>>(kinds: I) -> Self {
        let mut set = Self::default();
        kinds.into_iter().for_each(|kind| set.insert(kind));
        set
    }
}

/// What became of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// It took effect.
    Applied,
    /// It did not and will not.
    Rejected,
    /// The provider does not know yet.
    Pending,
}

impl ActionOutcome {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ActionOutcome::Applied => "applied",
            ActionOutcome::Rejected => "rejected",
            ActionOutcome::Pending => "pending",
        }
    }

    /// The outcome with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Applied, Self::Rejected, Self::Pending].into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// A mutation and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The name of the manifest.
    pub action: String,
    /// What became of it.
    pub outcome: ActionOutcome,
    /// The `Operation-Id` it was sent under.
    pub operation_id: String,
    /// The `Request-Fingerprint` it was sent under.
    pub request_fingerprint: String,
    /// When the provider recorded it.
    pub recorded_at: Option<String>,
    /// The id of the evidence that names it.
    pub reference: Option<String>,
}

/// What one item of evidence says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvidenceBody {
    /// Something exists.
    Entity {
        /// What it is, such as `order`.
        type_name: String,
        /// The provider's key of it.
        key: String,
        /// Its name, for people.
        label: Option<String>,
    },
    /// Something has a field.
    Value {
        /// The id of the evidence it belongs to.
        of: String,
        /// The field.
        field: String,
        /// Its value, as the provider wrote it.
        value: JsonText,
        /// What kind of value it is.
        value_type: String,
        /// Since when or at what time it holds.
        as_of: Option<String>,
        /// The provider's own way to show it.
        display: Option<String>,
    },
    /// Something can be asked for again.
    Reference {
        /// What it is, such as `receipt_number`.
        type_name: String,
        /// The reference itself.
        value: String,
        /// Where it leads.
        url: Option<String>,
    },
    /// An answer holds all there is, or not.
    Completeness {
        /// Of what.
        scope: String,
        /// Whether it holds all.
        complete: bool,
        /// How many it holds, as the provider wrote the number.
        returned: String,
        /// How many there are, as the provider wrote the number.
        total: Option<String>,
    },
    /// A mutation has an outcome.
    Action(Action),
}

impl EvidenceBody {
    /// The kind.
    pub const fn kind(&self) -> EvidenceKind {
        match self {
            EvidenceBody::Entity { .. } => EvidenceKind::Entity,
            EvidenceBody::Value { .. } => EvidenceKind::Value,
            EvidenceBody::Reference { .. } => EvidenceKind::Reference,
            EvidenceBody::Completeness { .. } => EvidenceKind::Completeness,
            EvidenceBody::Action(_) => EvidenceKind::Action,
        }
    }

    /// The id of the evidence this item points to.
    fn points_to(&self) -> Option<(&'static str, &str)> {
        match self {
            EvidenceBody::Value { of, .. } => Some(("of", of)),
            EvidenceBody::Action(action) => action.reference.as_deref().map(|id| ("reference", id)),
            EvidenceBody::Entity { .. } | EvidenceBody::Reference { .. } | EvidenceBody::Completeness { .. } => None,
        }
    }
}

/// One item of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Unique in its envelope.
    pub id: String,
    /// What it says.
    pub body: EvidenceBody,
}

/// How the provider says a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeStatus {
    /// As asked.
    Ok,
    /// There is no such thing.
    NotFound,
    /// It was refused.
    Rejected,
}

impl EnvelopeStatus {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            EnvelopeStatus::Ok => "ok",
            EnvelopeStatus::NotFound => "not_found",
            EnvelopeStatus::Rejected => "rejected",
        }
    }

    /// The status with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Ok, Self::NotFound, Self::Rejected].into_iter().find(|status| status.as_str() == word)
    }
}

/// The evidence of one answer: ids unique, every pointer resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceSet {
    items: Vec<Evidence>,
    by_id: HashMap<String, usize>,
}

/// Why items of evidence do not go together, as a sentence without its subject's envelope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceFault {
    /// One id twice.
    #[error("the id \"{}\" stands twice", shortened(.0))]
    DuplicateId(String),
    /// A pointer leads nowhere.
    #[error("{member} of \"{}\" names \"{}\", which is not in the answer", shortened(.id), shortened(.target))]
    Unresolved {
        /// The item that points.
        id: String,
        /// Its member.
        member: &'static str,
        /// Where it points.
        target: String,
    },
}

/// A provider's id in a sentence: it may be as long as an answer.
fn shortened(id: &str) -> String {
    const LONGEST: usize = 64;
    let mut shown: String = id.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if id.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

impl EvidenceSet {
    /// Items that go together.
    pub fn new(items: Vec<Evidence>) -> Result<Self, EvidenceFault> {
        let mut by_id = HashMap::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if by_id.insert(item.id.clone(), index).is_some() {
                return Err(EvidenceFault::DuplicateId(item.id.clone()));
            }
        }
        for item in &items {
            let Some((member, target)) = item.body.points_to() else { continue };
            if !by_id.contains_key(target) {
                return Err(EvidenceFault::Unresolved { id: item.id.clone(), member, target: target.to_owned() });
            }
        }
        Ok(Self { items, by_id })
    }

    /// The items, in the provider's order.
    pub fn items(&self) -> &[Evidence] {
        &self.items
    }

    /// The kinds the items have.
    pub fn kinds(&self) -> EvidenceKinds {
        self.items.iter().map(|item| item.body.kind()).collect()
    }

    /// The item with this id.
    pub fn get(&self, id: &str) -> Option<&Evidence> {
        self.by_id.get(id).and_then(|index| self.items.get(*index))
    }

    /// The actions.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.items.iter().filter_map(|item| match &item.body {
            EvidenceBody::Action(action) => Some(action),
            EvidenceBody::Entity { .. }
            | EvidenceBody::Value { .. }
            | EvidenceBody::Reference { .. }
            | EvidenceBody::Completeness { .. } => None,
        })
    }
}
