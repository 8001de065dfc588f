//! Risk: how much human consent a call needs.

/// Ordered from harmless to dangerous; a tenant's policy may raise a risk, never lower it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// Runs.
    Low,
    /// Runs; the manifest tells the agent to ask its user first.
    Medium,
    /// Needs the user's confirmation, then a reviewer.
    Reviewed,
    /// Waits for a teammate's approval.
    High,
}

impl Risk {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::Reviewed => "reviewed",
            Risk::High => "high",
        }
    }

    /// The risk with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Risk::Low, Risk::Medium, Risk::Reviewed, Risk::High].into_iter().find(|risk| risk.as_str() == word)
    }

    /// Whether a run is held for a reviewer or teammate before anything is sent.
    pub const fn needs_approval(self) -> bool {
        matches!(self, Risk::Reviewed | Risk::High)
    }
}
