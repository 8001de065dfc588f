//! Organizations: the tenant, its state and its limits.

use super::ids::OrgId;
use super::secret::Secret;
use super::time::Timestamp;
use ipnet::IpNet;

/// Whether an organization may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrgState {
    /// It works.
    Active,
    /// Its keys are refused (403), nothing is synced; callbacks are still recorded.
    Suspended,
    /// Deleted: everything is gone but the slug, which is never given again.
    Deleted,
}

impl OrgState {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            OrgState::Active => "active",
            OrgState::Suspended => "suspended",
            OrgState::Deleted => "deleted",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [OrgState::Active, OrgState::Suspended, OrgState::Deleted].into_iter().find(|s| s.as_str() == word)
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $default:literal;)*) => {
        /// Limits in force; every value has its unit in its name.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits { $($(#[$doc])* pub $name: u64,)* }

        /// Limits that were set; what is `None` is inherited.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct LimitOverrides { $($(#[$doc])* pub $name: Option<u64>,)* }

        impl Default for Limits {
            fn default() -> Self { Self { $($name: $default,)* } }
        }

        impl Limits {
            /// Names of all limits, as the API and the configuration spell them.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// The value of the limit with this name.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name { $(stringify!($name) => Some(self.$name),)* _ => None }
            }

            /// Sets the limit with this name; false when there is none.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name { $(stringify!($name) => { self.$name = value; true })* _ => false }
            }

            fn with_each(&self, overrides: &LimitOverrides) -> Self {
                Self { $($name: overrides.$name.unwrap_or(self.$name),)* }
            }

            fn clamped_each(&self, overrides: &LimitOverrides) -> Self {
                Self { $($name: overrides.$name.map_or(self.$name, |v| v.min(self.$name)),)* }
            }
        }

        impl LimitOverrides {
            /// The value of the limit with this name, where one was set.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name { $(stringify!($name) => self.$name,)* _ => None }
            }

            /// Sets or clears the limit with this name; false when there is none.
            pub fn set(&mut self, name: &str, value: Option<u64>) -> bool {
                match name { $(stringify!($name) => { self.$name = value; true })* _ => false }
            }
        }
    };
}

limits! {
    /// Runs a second of the whole organization.
    organization_per_second = 100;
    /// Runs at once of the whole organization.
    organization_per_second_burst = 200;
    /// Requests a second of one agent key.
    agent_key_per_second = 50;
    /// Requests at once of one agent key.
    agent_key_per_second_burst = 100;
    /// Runs a second of one tool.
    tool_per_second = 20;
    /// Runs at once of one tool.
    tool_per_second_burst = 40;
    /// Runs a second of one caller.
    caller_per_second = 10;
    /// Runs at once of one caller.
    caller_per_second_burst = 20;
    /// Calls to one endpoint that may be under way at once.
    endpoint_in_flight = 64;
    /// Endpoints of the organization.
    max_endpoints = 100;
    /// Tools of the organization.
    max_tools = 500;
    /// Lifetime of a pending run.
    pending_ttl_ms = 900_000;
    /// Lifetime of an approval.
    approval_ttl_ms = 900_000;
    /// Lifetime of a confirmation token.
    confirmation_ttl_ms = 600_000;
    /// How long a reviewer is waited for.
    reviewer_timeout_ms = 20_000;
    /// Seconds between two syncs of one endpoint; 0 is off.
    sync_interval_s = 300;
}

/// The limits that are rates, each with a burst beside it.
const RATES: [(&str, &str); 4] = [
    ("organization_per_second", "organization_per_second_burst"),
    ("agent_key_per_second", "agent_key_per_second_burst"),
    ("tool_per_second", "tool_per_second_burst"),
    ("caller_per_second", "caller_per_second_burst"),
];

impl Limits {
    /// The operator's ceiling: these limits with what the operator set for one organization. A rate that is set without
    /// its burst has twice as much for a burst.
    pub fn with(&self, overrides: &LimitOverrides) -> Self {
        let mut limits = self.with_each(overrides);
        for (burst, twice) in bursts_to_follow(overrides, &limits) {
            limits.set(burst, twice);
        }
        limits
    }

    /// What a tenant set, clamped to these limits; the burst follows its rate as in [`Limits::with`].
    pub fn clamped(&self, overrides: &LimitOverrides) -> Self {
        let mut limits = self.clamped_each(overrides);
        for (burst, twice) in bursts_to_follow(overrides, &limits) {
            limits.set(burst, twice.min(self.get(burst).unwrap_or(twice)));
        }
        limits
    }
}

/// Bursts whose rate alone was set, with twice that rate.
fn bursts_to_follow(overrides: &LimitOverrides, limits: &Limits) -> Vec<(&'static str, u64)> {
    let alone = RATES.iter().filter(|(rate, burst)| overrides.get(rate).is_some() && overrides.get(burst).is_none());
    alone.map(|(rate, burst)| (*burst, limits.get(rate).unwrap_or_default().saturating_mul(2))).collect()
}

/// A receiver of signed messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Absolute http(s) URL.
    pub url: String,
    /// `whsec_` and 24 random bytes as base64: what is sent there is signed with it.
    pub secret: Secret,
}

/// What becomes of a call whose agent cannot bring the end user's confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfirmationFallback {
    /// It is refused.
    #[default]
    Refuse,
    /// A teammate is asked instead.
    Approval,
}

impl ConfirmationFallback {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConfirmationFallback::Refuse => "refuse",
            ConfirmationFallback::Approval => "approval",
        }
    }

    /// The fallback with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [ConfirmationFallback::Refuse, ConfirmationFallback::Approval].into_iter().find(|f| f.as_str() == word)
    }
}

/// How long things are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Hours a run is kept.
    pub run_retention_h: u64,
    /// Hours a run's arguments and results are kept.
    pub result_retention_h: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { run_retention_h: 168, result_retention_h: 24 }
    }
}

/// One organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Org {
    /// Its id.
    pub id: OrgId,
    /// Its slug: unique for ever, also the metrics label.
    pub slug: String,
    /// Its display name.
    pub name: String,
    /// Whether it may work.
    pub state: OrgState,
    /// Limits the operator set (the ceiling).
    pub operator_limits: LimitOverrides,
    /// Limits the tenant set (below the ceiling).
    pub tenant_limits: LimitOverrides,
    /// What of the operator's `egress.allow` this organization may reach.
    pub egress_allow: Vec<IpNet>,
    /// How long things are kept.
    pub retention: Retention,
    /// Decides about runs of risk `reviewed`.
    pub reviewer: Option<Hook>,
    /// Is told of approvals waiting and runs finished.
    pub webhook: Option<Hook>,
    /// What stands in for a confirmation nobody can give.
    pub confirmation_fallback: ConfirmationFallback,
    /// Raised by every change.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_follows_the_rate_that_was_set_without_it() {
        let limits = Limits::default();
        let set = |rate, burst| LimitOverrides {
            tool_per_second: rate,
            tool_per_second_burst: burst,
            ..LimitOverrides::default()
        };
        let operator = limits.with(&set(Some(50), None));
        assert_eq!((operator.tool_per_second, operator.tool_per_second_burst), (50, 100));
        let tenant = limits.clamped(&set(Some(2), None));
        assert_eq!((tenant.tool_per_second, tenant.tool_per_second_burst), (2, 4));
        let above = limits.clamped(&set(Some(1_000), None));
        assert_eq!((above.tool_per_second, above.tool_per_second_burst), (20, 40), "the ceiling holds");
        let both = limits.clamped(&set(Some(2), Some(1)));
        assert_eq!((both.tool_per_second, both.tool_per_second_burst), (2, 1));
    }
}
