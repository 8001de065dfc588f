//! Operations: mutations at a provider that keeps receipts, from before their first byte to their last word.
//!
//! The state machine is here and pure; the engine carries out what a step says. **Invariant:** after bytes may have left,
//! nothing but the same operation with the same fingerprint is ever sent again, and that only after the provider has said
//! that it does not know the operation, and only while it still keeps receipts.

#[cfg(test)]
mod tests;

use super::error_code::ErrorCode;
use super::ids::{EndpointId, OperationId, OrgId, RunId};
use super::json::JsonText;
use super::run::{RunOutcome, RunStatus};
use super::time::Timestamp;
use super::tool::ProviderTerms;
use std::sync::Arc;
use std::time::Duration;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationState {
    /// Recorded; no byte has left.
    Prepared,
    /// Bytes may have left; no answer yet.
    Sent,
    /// The provider has applied it.
    Applied,
    /// The provider has refused it.
    Rejected,
    /// The provider knows the operation with other content.
    Conflict,
    /// Whether it was applied is not known.
    Uncertain,
}

impl OperationState {
    /// Every state.
    pub const ALL: [OperationState; 6] = [
        OperationState::Prepared,
        OperationState::Sent,
        OperationState::Applied,
        OperationState::Rejected,
        OperationState::Conflict,
        OperationState::Uncertain,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            OperationState::Prepared => "prepared",
            OperationState::Sent => "sent",
            OperationState::Applied => "applied",
            OperationState::Rejected => "rejected",
            OperationState::Conflict => "conflict",
            OperationState::Uncertain => "uncertain",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What every request about an operation carries: the headers `Operation-Id` and `Request-Fingerprint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationMark {
    /// The operation.
    pub id: OperationId,
    /// `sha256:` and 64 lower-case hex digits.
    pub fingerprint: String,
}

/// What a provider's answer, or its receipt, says about an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationVerdict {
    /// It was applied.
    Applied(RunOutcome),
    /// It was refused; nothing was changed.
    Rejected(RunOutcome),
    /// The provider knows it with other content.
    Conflict(RunOutcome),
    /// Nothing that could be relied on.
    Unclear {
        /// Why.
        code: ErrorCode,
        /// What happened, without hosts or secrets.
        message: String,
    },
}

impl OperationVerdict {
    /// What the run is as long as nothing more is known.
    pub fn outcome_so_far(self) -> RunOutcome {
        match self {
            OperationVerdict::Applied(outcome)
            | OperationVerdict::Rejected(outcome)
            | OperationVerdict::Conflict(outcome) => outcome,
            OperationVerdict::Unclear { code, .. } => RunOutcome::ended(RunStatus::Uncertain, true, code.as_str()),
        }
    }
}

/// What is fixed about an operation when it is recorded: every resend and every look at its receipt uses these, whatever
/// the manifest says by then.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationIntent {
    /// Its id and fingerprint.
    pub mark: OperationMark,
    /// The organization.
    pub org_id: OrgId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// Where it is sent, and to nowhere else: receipts of another address say nothing about it.
    pub origin: String,
    /// The provider's own name of the tool.
    pub provider_tool: String,
    /// What the manifest demanded of the tool and promised.
    pub terms: Arc<ProviderTerms>,
    /// Exactly the body of its POST.
    pub body: JsonText,
    /// `Trace-Id`.
    pub trace_id: String,
    /// Language of the facts.
    pub locale: Option<String>,
    /// Time zone of the facts.
    pub timezone: Option<String>,
    /// The provider's own time limit.
    pub timeout: Duration,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// How far an operation has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationProgress {
    /// Where it stands.
    pub state: OperationState,
    /// Counts the steps: a store takes a step only upon the one before it.
    pub step: u32,
    /// POSTs whose bytes may have left.
    pub attempts: u32,
    /// Looks at the receipt since the last POST.
    pub looks: u32,
    /// When bytes first left.
    pub sent_at: Option<Timestamp>,
    /// When it is looked at again; `None` once nothing more is done about it.
    pub next_at: Option<Timestamp>,
    /// The receipt as the provider last showed it.
    pub receipt: Option<JsonText>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// What is fixed.
    pub intent: OperationIntent,
    /// How far it has come.
    pub progress: OperationProgress,
}

/// What happened to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationEvent {
    /// A POST is about to leave.
    Sending {
        /// When its answer is overdue.
        overdue_at: Timestamp,
    },
    /// The POST was given up before any byte had left.
    NotSent,
    /// An answer or a receipt says that it was applied.
    Applied,
    /// An answer or a receipt says that it was refused.
    Rejected,
    /// An answer or a receipt says that the provider knows it with other content.
    Conflict,
    /// A POST had no answer to be relied on, or the gateway was interrupted before it came.
    Unclear,
    /// The provider is still at it, or its receipt could not be read.
    NoReceiptYet,
    /// The provider does not know the operation.
    ReceiptMissing,
    /// The provider has forgotten the operation.
    ReceiptGone,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationNext {
    /// Nothing: this is the last word.
    Done,
    /// Wait for what was just begun.
    Wait,
    /// Look at the receipt at `next_at`.
    Inspect,
    /// Send the same operation again, now.
    Resend,
}

/// Pauses before the looks at a receipt; the last one goes on.
const LOOK_AFTER: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(8),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// The same operation is sent again at most so often.
pub const MAX_RESENDS: u32 = 3;

impl OperationProgress {
    /// Recorded, nothing sent.
    pub const fn prepared(at: Timestamp) -> Self {
        Self {
            state: OperationState::Prepared,
            step: 0,
            attempts: 0,
            looks: 0,
            sent_at: None,
            next_at: None,
            receipt: None,
            updated_at: at,
        }
    }

    /// Whether the last word is spoken.
    pub const fn is_final(&self) -> bool {
        match self.state {
            OperationState::Applied | OperationState::Rejected | OperationState::Conflict => true,
            OperationState::Uncertain => self.next_at.is_none(),
            OperationState::Prepared | OperationState::Sent => false,
        }
    }

    /// The progress after `event`, and what is to be done next. `receipt_retention` is how long the provider keeps
    /// receipts: once that has passed since the first POST, its not knowing an operation proves nothing any more.
    pub fn after(
        &self,
        event: OperationEvent,
        receipt_retention: Duration,
        now: Timestamp,
    ) -> (OperationProgress, OperationNext) {
        let mut next = Self { step: self.step + 1, updated_at: now, ..self.clone() };
        if self.is_final() {
            return (self.clone(), OperationNext::Done);
        }
        let kept_for = |part: Duration| self.sent_at.is_none_or(|sent_at| now < sent_at.plus(part));
        let receipts_are_kept = kept_for(receipt_retention);
        let what = match event {
            OperationEvent::Sending { overdue_at } => {
                next.state = OperationState::Sent;
                next.attempts += 1;
                next.looks = 0;
                next.sent_at = self.sent_at.or(Some(now));
                next.next_at = Some(overdue_at);
                OperationNext::Wait
            }
            OperationEvent::NotSent if self.attempts <= 1 => {
                next = Self { state: OperationState::Prepared, attempts: 0, sent_at: None, next_at: None, ..next };
                OperationNext::Done
            }
            OperationEvent::Applied => next.end(OperationState::Applied),
            OperationEvent::Rejected => next.end(OperationState::Rejected),
            OperationEvent::Conflict => next.end(OperationState::Conflict),
            OperationEvent::ReceiptGone => next.end(OperationState::Uncertain),
            // Long before they are thrown away, so that a clock which was set back does not mistake forgotten for unknown.
            OperationEvent::ReceiptMissing if self.attempts <= MAX_RESENDS && kept_for(receipt_retention / 2) => {
                OperationNext::Resend
            }
            OperationEvent::ReceiptMissing => next.end(OperationState::Uncertain),
            // A resend that never left changes nothing of what is not known about the POST before it.
            OperationEvent::NotSent | OperationEvent::Unclear | OperationEvent::NoReceiptYet => {
                next.state = OperationState::Uncertain;
                let pause = LOOK_AFTER[(self.looks as usize).min(LOOK_AFTER.len() - 1)];
                next.looks += 1;
                if receipts_are_kept {
                    next.next_at = Some(now.plus(pause));
                    OperationNext::Inspect
                } else {
                    next.end(OperationState::Uncertain)
                }
            }
        };
        (next, what)
    }

    const fn end(&mut self, state: OperationState) -> OperationNext {
        self.state = state;
        self.next_at = None;
        OperationNext::Done
    }
}
