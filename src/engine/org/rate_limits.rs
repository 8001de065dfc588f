//! Rate limits of one organization: GCRA cells nested as agent key, and caller inside tool inside organization.
//!
//! A cell cannot be looked at without charging it, so cells are charged innermost first: a refusal may leave a charge
//! inside, never in a level shared with others. Cells belong to the organization; no other one can see or drain them.

use crate::domain::ids::KeyId;
use crate::domain::org::{LimitOverrides, Limits};
use crate::engine::ports::Clock;
use arc_swap::ArcSwap;
use dashmap::{DashMap, Entry};
use governor::clock::{Clock as GovernorClock, Reference};
use governor::middleware::StateInformationMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitScope {
    /// The whole organization.
    Organization,
    /// One agent key.
    AgentKey,
    /// One tool.
    Tool,
    /// One caller.
    Caller,
}

impl LimitScope {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitScope::Organization => "organization",
            LimitScope::AgentKey => "agent_key",
            LimitScope::Tool => "tool",
            LimitScope::Caller => "caller",
        }
    }
}

/// A limit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRefusal {
    /// Which one.
    pub scope: LimitScope,
    /// When the next call fits.
    pub retry_after: Duration,
}

/// Where the agent key's limit stands, for the `RateLimit` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStatus {
    /// Calls a second (`q`).
    pub quota_per_second: u64,
    /// Calls left, in proportion to the quota (`r`).
    pub remaining: u64,
    /// Whole seconds until everything is there again (`t`).
    pub reset_s: u64,
}

/// The engine's clock as governor reads it.
#[derive(Clone)]
struct LimitClock(Arc<dyn Clock>);

impl std::fmt::Debug for LimitClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LimitClock")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Monotonic(Duration);

impl std::ops::Add<Nanos> for Monotonic {
    type Output = Self;
    fn add(self, nanos: Nanos) -> Self {
        Self(self.0 + Duration::from(nanos))
    }
}

impl Reference for Monotonic {
    fn duration_since(&self, earlier: Self) -> Nanos {
        self.0.saturating_sub(earlier.0).into()
    }

    fn saturating_sub(&self, duration: Nanos) -> Self {
        Self(self.0.saturating_sub(duration.into()))
    }
}

impl GovernorClock for LimitClock {
    type Instant = Monotonic;
    fn now(&self) -> Monotonic {
        Monotonic(self.0.monotonic())
    }
}

/// A rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    per_second: NonZeroU32,
    burst: NonZeroU32,
}

impl Rate {
    /// Zero stands for one: configuration and API refuse it before.
    fn new(per_second: u64, burst: u64) -> Self {
        let bounded = |n: u64| NonZeroU32::new(u32::try_from(n).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN);
        Self { per_second: bounded(per_second), burst: bounded(burst) }
    }

    const fn quota(self) -> Quota {
        Quota::per_second(self.per_second).allow_burst(self.burst)
    }

    /// How long a drained cell takes to be full again.
    fn refill(self) -> Duration {
        Duration::from_secs_f64(f64::from(self.burst.get()) / f64::from(self.per_second.get()))
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, LimitClock, StateInformationMiddleware>;

/// One GCRA cell.
#[derive(Debug)]
struct Cell {
    rate: Rate,
    limiter: Limiter,
    /// Monotonic milliseconds of the last charge: a cell left alone for its refill time is full, and can be forgotten.
    last_charged_ms: AtomicU64,
}

impl Cell {
    fn new(rate: Rate, clock: &LimitClock) -> Self {
        let limiter = RateLimiter::direct_with_clock(rate.quota(), clock.clone()).with_middleware();
        Self { rate, limiter, last_charged_ms: AtomicU64::new(millis(GovernorClock::now(clock).0)) }
    }

    /// Takes one call out of the cell; answers how many are left.
    fn charge(&self, scope: LimitScope, clock: &LimitClock) -> Result<u32, RateRefusal> {
        let now = GovernorClock::now(clock);
        self.last_charged_ms.store(millis(now.0), Ordering::Relaxed);
        match self.limiter.check() {
            Ok(snapshot) => Ok(snapshot.remaining_burst_capacity()),
            Err(not_until) => Err(RateRefusal { scope, retry_after: not_until.wait_time_from(now) }),
        }
    }

    fn is_full(&self, now: Duration) -> bool {
        millis(now).saturating_sub(self.last_charged_ms.load(Ordering::Relaxed)) > millis(self.rate.refill())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How many callers are tracked on this node, over all organizations.
#[derive(Debug)]
pub struct CallerBudget {
    tracked: AtomicUsize,
    most: usize,
}

impl CallerBudget {
    /// A budget of `most` callers.
    pub const fn new(most: usize) -> Self {
        Self { tracked: AtomicUsize::new(0), most }
    }

    /// How many are tracked now.
    pub fn tracked(&self) -> usize {
        self.tracked.load(Ordering::Relaxed)
    }

    /// One organization may track an eighth of the node's callers, so that none can use up another's part.
    fn has_room(&self, tracked_by_organization: usize) -> bool {
        self.tracked() < self.most && tracked_by_organization < (self.most / 8).max(1)
    }
}

/// Shards of each map of an organization. By default there would be four a processor of 128 bytes each, for every
/// organization that is active; the calls of one organization meet at its one cell anyhow.
const SHARDS: usize = 4;

/// The cells of one organization.
#[derive(Debug)]
pub struct RateLimits {
    clock: LimitClock,
    organization: ArcSwap<Cell>,
    agent_keys: DashMap<KeyId, Arc<Cell>>,
    tools: DashMap<String, Arc<Cell>>,
    /// By hash, so that a caller's identity is not kept; a collision makes two callers share a cell.
    callers: DashMap<u64, Arc<Cell>>,
    /// How many those are: counting the map itself would lock all of it.
    callers_tracked: AtomicUsize,
    caller_budget: Arc<CallerBudget>,
    hasher: RandomState,
}

/// Callers beyond the bound share this cell.
const OVERFLOW: u64 = 0;

impl RateLimits {
    /// Full cells by these limits.
    pub fn new(clock: Arc<dyn Clock>, limits: &Limits, caller_budget: Arc<CallerBudget>) -> Self {
        let clock = LimitClock(clock);
        Self {
            organization: ArcSwap::from_pointee(Cell::new(organization_rate(limits), &clock)),
            agent_keys: DashMap::with_shard_amount(SHARDS),
            tools: DashMap::with_shard_amount(SHARDS),
            callers: DashMap::with_shard_amount(SHARDS),
            callers_tracked: AtomicUsize::new(0),
            caller_budget,
            hasher: RandomState::new(),
            clock,
        }
    }

    /// Charges one request of an agent key whose own limits are `own`.
    pub fn charge_agent_key(
        &self,
        key: KeyId,
        limits: &Limits,
        own: &LimitOverrides,
    ) -> Result<RateStatus, (RateRefusal, RateStatus)> {
        // Only a key with limits of its own has them computed: this is on every call.
        let own = (*own != LimitOverrides::default()).then(|| limits.clamped(own));
        let limits = own.as_ref().unwrap_or(limits);
        let rate = Rate::new(limits.agent_key_per_second, limits.agent_key_per_second_burst);
        let charged = cell(&self.agent_keys, &key, rate, &self.clock).charge(LimitScope::AgentKey, &self.clock);
        charged.map(|left| status(rate, left)).map_err(|refusal| {
            let reset_s = refusal.retry_after.as_secs() + 1;
            (refusal, RateStatus { quota_per_second: u64::from(rate.per_second.get()), remaining: 0, reset_s })
        })
    }

    /// Charges one run: its caller, its tool, its organization, in that order.
    pub fn charge_run(&self, tool: &str, caller: Option<&str>, limits: &Limits) -> Result<(), RateRefusal> {
        if let Some(caller) = caller {
            let rate = Rate::new(limits.caller_per_second, limits.caller_per_second_burst);
            self.caller_cell(caller, rate).charge(LimitScope::Caller, &self.clock)?;
        }
        let rate = Rate::new(limits.tool_per_second, limits.tool_per_second_burst);
        cell(&self.tools, tool, rate, &self.clock).charge(LimitScope::Tool, &self.clock)?;
        self.organization_cell(limits).charge(LimitScope::Organization, &self.clock).map(|_| ())
    }

    /// Forgets cells that are full again, and with them whoever does not call any more.
    pub fn sweep(&self) {
        let now = GovernorClock::now(&self.clock).0;
        let mut forgotten = 0;
        self.callers.retain(|_, cell| {
            let keep = !cell.is_full(now);
            forgotten += usize::from(!keep);
            keep
        });
        self.callers_tracked.fetch_sub(forgotten, Ordering::Relaxed);
        self.caller_budget.tracked.fetch_sub(forgotten, Ordering::Relaxed);
        self.agent_keys.retain(|_, cell| !cell.is_full(now));
        self.tools.retain(|_, cell| !cell.is_full(now));
    }

    fn organization_cell(&self, limits: &Limits) -> Arc<Cell> {
        let rate = organization_rate(limits);
        let current = self.organization.load_full();
        if current.rate == rate {
            return current;
        }
        self.organization.store(Arc::new(Cell::new(rate, &self.clock)));
        self.organization.load_full()
    }

    fn caller_cell(&self, caller: &str, rate: Rate) -> Arc<Cell> {
        let key = self.hasher.hash_one(caller).max(OVERFLOW + 1);
        if let Some(found) = self.callers.get(&key).filter(|cell| cell.rate == rate) {
            return Arc::clone(&found);
        }
        let has_room = self.caller_budget.has_room(self.callers_tracked.load(Ordering::Relaxed));
        let key = if has_room || self.callers.contains_key(&key) { key } else { OVERFLOW };
        match self.callers.entry(key) {
            Entry::Occupied(mut entry) => {
                if entry.get().rate != rate {
                    entry.insert(Arc::new(Cell::new(rate, &self.clock)));
                }
                Arc::clone(entry.get())
            }
            Entry::Vacant(entry) => {
                self.callers_tracked.fetch_add(1, Ordering::Relaxed);
                self.caller_budget.tracked.fetch_add(1, Ordering::Relaxed);
                Arc::clone(&entry.insert(Arc::new(Cell::new(rate, &self.clock))))
            }
        }
    }
}

impl Drop for RateLimits {
    fn drop(&mut self) {
        self.caller_budget.tracked.fetch_sub(*self.callers_tracked.get_mut(), Ordering::Relaxed);
    }
}

fn organization_rate(limits: &Limits) -> Rate {
    Rate::new(limits.organization_per_second, limits.organization_per_second_burst)
}

/// The cell of `key`, made anew when its rate has changed.
fn cell<K, Q>(cells: &DashMap<K, Arc<Cell>>, key: &Q, rate: Rate, clock: &LimitClock) -> Arc<Cell>
where
    K: Eq + Hash + std::borrow::Borrow<Q>,
    Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
{
    if let Some(found) = cells.get(key).filter(|cell| cell.rate == rate) {
        return Arc::clone(&found);
    }
    let mut entry = cells.entry(key.to_owned()).or_insert_with(|| Arc::new(Cell::new(rate, clock)));
    if entry.rate != rate {
        *entry = Arc::new(Cell::new(rate, clock));
    }
    Arc::clone(&entry)
}

/// `r` is in proportion to the quota: a client that spaces its calls by it never meets the limit.
fn status(rate: Rate, left: u32) -> RateStatus {
    let (quota, burst) = (u64::from(rate.per_second.get()), u64::from(rate.burst.get()));
    let missing = burst.saturating_sub(u64::from(left));
    RateStatus {
        quota_per_second: quota,
        remaining: u64::from(left) * quota / burst,
        reset_s: missing.div_ceil(quota).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::test_clock::TestClock;

    fn limits(per_second: u64) -> Limits {
        let mut limits = Limits::default();
        for scope in ["organization", "agent_key", "tool", "caller"] {
            limits.set(&format!("{scope}_per_second"), per_second);
            limits.set(&format!("{scope}_per_second_burst"), per_second * 2);
        }
        limits
    }

    fn cells(clock: &Arc<TestClock>, limits: &Limits, most_callers: usize) -> RateLimits {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
        RateLimits::new(clock, limits, Arc::new(CallerBudget::new(most_callers)))
    }

    #[test]
    fn the_first_call_of_a_default_key_leaves_the_headers_of_the_contract() {
        let clock = TestClock::new();
        let limits = Limits::default();
        let key = KeyId::from_uuid(clock.new_uuid());
        let status = cells(&clock, &limits, 10).charge_agent_key(key, &limits, &LimitOverrides::default());
        assert_eq!(status, Ok(RateStatus { quota_per_second: 50, remaining: 49, reset_s: 1 }));
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let clock = TestClock::new();
        let limits = limits(2);
        let cells = cells(&clock, &limits, 10);
        for _ in 0..4 {
            assert_eq!(cells.charge_run("t", None, &limits), Ok(()));
        }
        let refusal = cells.charge_run("t", None, &limits).expect_err("the burst is used up");
        assert_eq!(refusal, RateRefusal { scope: LimitScope::Tool, retry_after: Duration::from_millis(500) });
        clock.advance(Duration::from_millis(500));
        assert_eq!(cells.charge_run("t", None, &limits), Ok(()));
        assert!(cells.charge_run("t", None, &limits).is_err());
    }

    #[test]
    fn a_refused_caller_costs_the_organization_nothing() {
        let clock = TestClock::new();
        let mut limits = limits(100);
        limits.caller_per_second = 1;
        limits.caller_per_second_burst = 1;
        limits.organization_per_second = 1;
        limits.organization_per_second_burst = 2;
        let cells = cells(&clock, &limits, 10);
        assert_eq!(cells.charge_run("t", Some("ann"), &limits), Ok(()));
        for _ in 0..10 {
            let refusal = cells.charge_run("t", Some("ann"), &limits).expect_err("one a second");
            assert_eq!(refusal.scope, LimitScope::Caller);
        }
        assert_eq!(cells.charge_run("t", Some("bob"), &limits), Ok(()));
    }

    // boinkor-net/governor#171
    #[test]
    fn callers_are_bounded_and_swept() {
        let clock = TestClock::new();
        let limits = limits(10);
        let cells = cells(&clock, &limits, 80);
        for n in 0..1000 {
            let _ = cells.charge_run("t", Some(&format!("caller-{n}")), &limits);
        }
        assert!(cells.callers.len() <= 11, "{} tracked", cells.callers.len());
        clock.advance(Duration::from_secs(60));
        cells.sweep();
        assert_eq!((cells.callers.len(), cells.caller_budget.tracked()), (0, 0));
    }

    #[test]
    fn a_changed_limit_counts_at_once() {
        let clock = TestClock::new();
        let cells = cells(&clock, &limits(1), 10);
        while cells.charge_run("t", None, &limits(1)).is_ok() {}
        assert_eq!(cells.charge_run("t", None, &limits(50)), Ok(()));
    }
}
