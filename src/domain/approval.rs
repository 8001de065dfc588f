//! Approvals: a reviewer's or teammate's yes to one run that is held until then.

use super::ids::{ApprovalId, OrgId, RunId};
use super::risk::Risk;
use super::time::Timestamp;

/// Where an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalState {
    /// Nobody has decided yet.
    Open,
    /// Somebody said yes; its run goes on.
    Approved,
    /// Somebody, or a change since, said no.
    Denied,
    /// Nobody decided in time.
    Expired,
}

impl ApprovalState {
    /// Every state.
    pub const ALL: [ApprovalState; 4] =
        [ApprovalState::Open, ApprovalState::Approved, ApprovalState::Denied, ApprovalState::Expired];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Open => "open",
            ApprovalState::Approved => "approved",
            ApprovalState::Denied => "denied",
            ApprovalState::Expired => "expired",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalStage {
    /// The organization's reviewer, until its time is over.
    Reviewer,
    /// A teammate.
    Teammate,
}

impl ApprovalStage {
    /// The word a store keeps.
    pub const fn as_str(self) -> &'static str {
        match self {
            ApprovalStage::Reviewer => "reviewer",
            ApprovalStage::Teammate => "teammate",
        }
    }

    /// The stage with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [ApprovalStage::Reviewer, ApprovalStage::Teammate].into_iter().find(|stage| stage.as_str() == word)
    }
}

/// One approval. What is decided about is its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The organization.
    pub org_id: OrgId,
    /// The run that is held.
    pub run_id: RunId,
    /// The risk that made it necessary, when one is declared or set.
    pub risk: Option<Risk>,
    /// Where it stands.
    pub state: ApprovalState,
    /// Who is asked, or who was when it was decided.
    pub stage: ApprovalStage,
    /// SHA-256 of what makes a call identical: agent key, caller, tool, schema hash, canonical arguments.
    pub call_hash: [u8; 32],
    /// SHA-256 of the endpoint's address and the tool's risk when it was opened.
    pub setting_hash: [u8; 32],
    /// The `Idempotency-Key` of the call that opened it.
    pub idempotency_key: Option<String>,
    /// When the reviewer's time is over.
    pub reviewer_until: Option<Timestamp>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Who decided.
    pub decided_by: Option<String>,
    /// What the decider, or the gateway, says about it.
    pub note: Option<String>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// How an approval ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalEnd {
    /// Anything but open.
    pub state: ApprovalState,
    /// Who decided; `None` when time or a change did.
    pub decided_by: Option<String>,
    /// What is said about it.
    pub note: Option<String>,
}
