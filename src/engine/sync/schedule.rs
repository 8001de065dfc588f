//! When an endpoint is synced next: the interval, the back-off after failures, and rest for quiet organizations.

use crate::domain::endpoint::{Endpoint, SyncState};
use crate::domain::ids::OrgId;
use crate::domain::org::Org;
use crate::domain::time::Timestamp;
use crate::engine::Engine;
use crate::engine::catalog::limits_in_force;
use std::time::Duration;

/// An organization nobody calls is synced this often.
const QUIET_INTERVAL: Duration = Duration::from_secs(3600);

/// Nobody has called for this long: quiet.
const QUIET_AFTER: Duration = Duration::from_secs(24 * 3600);

const FIRST_BACK_OFF_S: u64 = 1;
const LONGEST_BACK_OFF_S: u64 = 300;

/// A conversation is content with a sync that ended this short a while ago.
const RECENT: Duration = Duration::from_secs(1);

impl Engine {
    /// When the next interval sync of an endpoint is due; `None` when the interval is off.
    pub(in crate::engine) fn next_due(
        &self,
        org: &Org,
        endpoint: &Endpoint,
        failures_in_a_row: u32,
    ) -> Option<Timestamp> {
        let configured = endpoint.settings.sync_interval_s;
        let interval_s = configured.unwrap_or(limits_in_force(org, self.settings()).sync_interval_s);
        if interval_s == 0 || !endpoint.settings.enabled || endpoint.settings.inline_manifest.is_some() {
            return None;
        }
        let now = self.clock().now();
        if failures_in_a_row > 0 {
            let pause = back_off(failures_in_a_row);
            return Some(now.plus(pause + Duration::from_millis(self.random_below(1 + pause.as_millis() as u64 / 4))));
        }
        let interval = Duration::from_secs(interval_s);
        let interval = if self.is_quiet(org.id) { interval.max(QUIET_INTERVAL) } else { interval };
        // ± 10 %, so that endpoints registered together do not stay together.
        let tenth = interval.as_millis() as u64 / 10;
        Some(
            now.plus(interval - Duration::from_millis(tenth) + Duration::from_millis(self.random_below(2 * tenth + 1))),
        )
    }

    /// Nobody has called the organization for a day.
    fn is_quiet(&self, org: OrgId) -> bool {
        let last = self.0.access.last_call(org);
        last.is_none_or(|last| self.clock().now().since(last) > QUIET_AFTER)
            && self.clock().now().since(self.0.started_at) > QUIET_AFTER
    }
}

/// 1 s, doubling to 300 s.
fn back_off(failures_in_a_row: u32) -> Duration {
    let doubled = FIRST_BACK_OFF_S.checked_shl(failures_in_a_row.saturating_sub(1).min(16)).unwrap_or(u64::MAX);
    Duration::from_secs(doubled.min(LONGEST_BACK_OFF_S))
}

pub(super) fn is_recent(state: &SyncState, now: Timestamp) -> bool {
    state.last_synced_at.is_some_and(|at| now.since(at) < RECENT)
}

pub(super) fn is_backing_off(state: &SyncState, now: Timestamp) -> bool {
    state.failures_in_a_row > 0
        && state.last_synced_at.is_some_and(|at| now.since(at) < back_off(state.failures_in_a_row))
}
