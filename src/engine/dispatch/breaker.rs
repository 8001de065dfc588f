//! Circuit breaker: a provider that keeps failing is left alone for a while.
//!
//! Pure: time comes in, a decision goes out. Only transport failures and 5xx count; a 4xx is the caller's fault and says
//! that the provider is well.

use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(10);
const SLOTS: usize = 10;
const MIN_CALLS: u32 = 20;
const OPEN_FOR: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    second: u64,
    calls: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Duration,
    },
    /// One probe is under way; a probe that never reports back gives way to another after the open time.
    Probing {
        since: Duration,
    },
}

/// Which stretch of a breaker's life a call was admitted in: reports of an earlier one do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

/// The breaker of one endpoint.
#[derive(Debug)]
pub struct Breaker {
    state: State,
    slots: [Slot; SLOTS],
    generation: u64,
}

/// The breaker is open; come back after this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Time until the next probe.
    pub retry_after: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed, slots: [Slot::default(); SLOTS], generation: 0 }
    }
}

impl Breaker {
    /// Whether a call may go out at `now` (monotonic).
    pub fn admit(&mut self, now: Duration) -> Result<Generation, Open> {
        let wait_until = match self.state {
            State::Closed => return Ok(Generation(self.generation)),
            State::Open { until } => until,
            State::Probing { since } => since + OPEN_FOR,
        };
        if now < wait_until {
            return Err(Open { retry_after: wait_until - now });
        }
        self.enter(State::Probing { since: now });
        Ok(Generation(self.generation))
    }

    /// Notes how a call ended; answers whether the breaker is closed when that has just changed.
    pub fn record(&mut self, admitted: Generation, now: Duration, healthy: bool) -> Option<bool> {
        if admitted != Generation(self.generation) {
            return None;
        }
        if let State::Probing { .. } = self.state {
            self.slots = [Slot::default(); SLOTS];
            self.enter(if healthy { State::Closed } else { State::Open { until: now + OPEN_FOR } });
            return healthy.then_some(true);
        }
        let second = now.as_secs();
        let slot = &mut self.slots[second as usize % SLOTS];
        if slot.second != second {
            *slot = Slot { second, ..Slot::default() };
        }
        slot.calls += 1;
        slot.failures += u32::from(!healthy);
        if !healthy && self.state == State::Closed && self.is_failing(second) {
            self.enter(State::Open { until: now + OPEN_FOR });
            return Some(false);
        }
        None
    }

    /// Takes back a call that was admitted and never made: were it the probe, the next call is.
    pub fn give_back(&mut self, admitted: Generation) {
        if let (true, State::Probing { since }) = (admitted == Generation(self.generation), self.state) {
            self.enter(State::Open { until: since });
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }

    /// Whether calls are let through freely.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn is_failing(&self, second: u64) -> bool {
        let recent = self.slots.iter().filter(|slot| slot.second + WINDOW.as_secs() > second);
        let (calls, failures) = recent.fold((0, 0), |(c, f), slot| (c + slot.calls, f + slot.failures));
        calls >= MIN_CALLS && failures * 2 >= calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_secs(1000) + Duration::from_millis(ms)
    }

    fn call(breaker: &mut Breaker, now: Duration, healthy: bool) -> Option<bool> {
        let admitted = breaker.admit(now).expect("it lets calls through");
        breaker.record(admitted, now, healthy)
    }

    fn failing(calls: u32) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..calls {
            call(&mut breaker, at(0), false);
        }
        breaker
    }

    #[test]
    fn nineteen_failures_do_not_open_it_and_twenty_do() {
        assert!(failing(19).admit(at(1)).is_ok());
        assert_eq!(failing(20).admit(at(0)), Err(Open { retry_after: Duration::from_secs(5) }));
    }

    #[test]
    fn less_than_half_failing_does_not_open_it() {
        let mut breaker = Breaker::default();
        for _ in 0..21 {
            call(&mut breaker, at(0), true);
        }
        for _ in 0..20 {
            call(&mut breaker, at(0), false);
        }
        assert!(breaker.is_closed());
        assert_eq!(call(&mut breaker, at(0), false), Some(false), "the change is told");
        assert!(!breaker.is_closed());
    }

    #[test]
    fn old_calls_do_not_count() {
        let mut breaker = failing(19);
        call(&mut breaker, at(10_000), false);
        assert!(breaker.is_closed());
    }

    #[test]
    fn one_probe_decides() {
        let mut breaker = failing(20);
        let probe = breaker.admit(at(5_000)).expect("the probe");
        assert!(breaker.admit(at(5_001)).is_err(), "only one");
        breaker.record(probe, at(5_100), false);
        assert_eq!(breaker.admit(at(5_100)), Err(Open { retry_after: Duration::from_secs(5) }));
        let probe = breaker.admit(at(10_100)).expect("the next probe");
        assert_eq!(breaker.record(probe, at(10_200), true), Some(true));
        assert!(breaker.admit(at(10_201)).is_ok() && breaker.is_closed());
    }

    #[test]
    fn a_straggler_of_before_decides_nothing() {
        let mut breaker = Breaker::default();
        let straggler = breaker.admit(at(0)).expect("closed");
        for _ in 0..20 {
            call(&mut breaker, at(0), false);
        }
        let probe = breaker.admit(at(5_000)).expect("the probe");
        assert_eq!(breaker.record(straggler, at(5_001), true), None);
        assert!(!breaker.is_closed(), "the probe is still out");
        assert_eq!(breaker.record(probe, at(5_002), true), Some(true));
        assert_eq!(breaker.record(straggler, at(5_003), false), None);
    }

    #[test]
    fn a_probe_that_was_never_made_gives_way_at_once() {
        let mut breaker = failing(20);
        let probe = breaker.admit(at(5_000)).expect("the probe");
        breaker.give_back(probe);
        assert!(breaker.admit(at(5_001)).is_ok());
    }

    #[test]
    fn a_probe_that_never_reports_gives_way() {
        let mut breaker = failing(20);
        assert!(breaker.admit(at(5_000)).is_ok());
        assert!(breaker.admit(at(9_999)).is_err());
        assert!(breaker.admit(at(10_000)).is_ok());
    }
}
