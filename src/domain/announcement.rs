//! Announcements: what an organization's application is told by its result webhook. Never arguments or results.

use super::ids::{ApprovalId, DeliveryId, OrgId, RunId};
use super::json::JsonText;
use super::manifest::SyncReason;
use super::run::RunStatus;
use super::time::Timestamp;
use serde_json::json;

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// A run has become final.
    RunFinished {
        /// The run.
        run: RunId,
        /// Its catalog name.
        tool: String,
        /// The endpoint's name.
        endpoint: String,
        /// How it ended.
        status: RunStatus,
    },
    /// A teammate is asked.
    ApprovalOpened {
        /// The approval.
        approval: ApprovalId,
        /// The run that is held.
        run: RunId,
        /// Its catalog name.
        tool: String,
        /// The endpoint's name.
        endpoint: String,
        /// When it expires.
        expires_at: Timestamp,
    },
    /// A sync failed that had not failed for this reason before.
    SyncFailed {
        /// The endpoint's name.
        endpoint: String,
        /// Why.
        reason: SyncReason,
    },
}

impl Announcement {
    /// The `type` of the message.
    pub const fn event(&self) -> &'static str {
        match self {
            Announcement::RunFinished { .. } => "run.finished",
            Announcement::ApprovalOpened { .. } => "approval.opened",
            Announcement::SyncFailed { .. } => "endpoint.sync_failed",
        }
    }

    /// The body of the message, as it is signed and sent at every attempt.
    pub fn body(&self, at: Timestamp) -> JsonText {
        let data = match self {
            Announcement::RunFinished { run, tool, endpoint, status } => json!({
                "correlation_id": run.to_string(), "tool": tool, "endpoint": endpoint, "status": status.as_str(),
            }),
            Announcement::ApprovalOpened { approval, run, tool, endpoint, expires_at } => json!({
                "approval_id": approval.to_string(), "correlation_id": run.to_string(), "tool": tool,
                "endpoint": endpoint, "status": "open", "expires_at": expires_at.to_string(),
            }),
            Announcement::SyncFailed { endpoint, reason } => json!({
                "endpoint": endpoint, "status": "sync_failed", "reason": reason.as_str(),
            }),
        };
        JsonText::of(&json!({ "type": self.event(), "timestamp": at.to_string(), "data": data }))
    }
}

/// How a message fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// It is tried, or tried again.
    Pending,
    /// The application took it.
    Delivered,
    /// It was tried to the end in vain.
    GivenUp,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [DeliveryState; 3] = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::GivenUp];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::GivenUp => "given_up",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// One message to an organization's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id; the wire's `webhook-id` is made of it, the same at every attempt.
    pub id: DeliveryId,
    /// The organization.
    pub org_id: OrgId,
    /// The `type` of the message.
    pub event: String,
    /// Exactly what is sent.
    pub body: JsonText,
    /// How it fares.
    pub state: DeliveryState,
    /// Attempts so far.
    pub attempts: u32,
    /// When it is tried next; `None` once it is not any more.
    pub next_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When it was announced.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}
