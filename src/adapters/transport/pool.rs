//! Idle connections, bounded in number and age. Time is handed in; no connection type is known here.
//!
//! **Invariant:** at most `per_host` idle connections a host and `total` in all, none idle or alive longer than allowed
//! at a sweep.

use super::target::Origin;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bounds of one pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolLimits {
    pub(super) per_host: usize,
    pub(super) total: usize,
    pub(super) idle_for: Duration,
}

/// What the caller says of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Take it.
    Use,
    /// Not for this caller; another may have it.
    Leave,
    /// Of no use to anyone.
    Drop,
}

#[derive(Debug)]
struct Idle<C> {
    connection: C,
    since: Instant,
}

/// Idle connections of one worker.
#[derive(Debug)]
pub(super) struct Pool<C> {
    hosts: HashMap<Arc<Origin>, VecDeque<Idle<C>>>,
    count: usize,
    limits: PoolLimits,
}

impl<C> Pool<C> {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self { hosts: HashMap::new(), count: 0, limits }
    }

    /// How many connections are idle.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The connection that was put back last, of those `judge` lets pass.
    pub(super) fn take(&mut self, origin: &Origin, now: Instant, judge: impl Fn(&C) -> Verdict) -> Option<C> {
        let idle = self.hosts.get_mut(origin)?;
        // The last is the youngest: when its time is over, so is that of all.
        if idle.back().is_some_and(|last| is_over(last, now, &self.limits)) {
            self.count -= idle.len();
            idle.clear();
        }
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            match judge(&idle[at].connection) {
                Verdict::Use => {
                    self.count -= 1;
                    return idle.remove(at).map(|found| found.connection);
                }
                Verdict::Leave => {}
                Verdict::Drop => {
                    self.count -= 1;
                    idle.remove(at);
                }
            }
        }
        None
    }

    /// Keeps a connection for the next caller; in a full host the oldest makes room, in a full pool it is dropped.
    pub(super) fn put(&mut self, origin: &Arc<Origin>, connection: C, now: Instant) {
        let is_known = self.hosts.contains_key(&**origin);
        // Hosts are counted too: an empty queue is left in place by `take` for the connection that will come back.
        if self.count >= self.limits.total || (!is_known && self.hosts.len() >= self.limits.total) {
            self.sweep(now, |_| true);
            if self.count >= self.limits.total {
                return;
            }
        }
        let idle = self.hosts.entry(Arc::clone(origin)).or_default();
        if idle.len() >= self.limits.per_host {
            idle.pop_front();
            self.count -= 1;
        }
        idle.push_back(Idle { connection, since: now });
        self.count += 1;
    }

    /// Drops what is idle for too long or not worth keeping, and forgets hosts without connections.
    pub(super) fn sweep(&mut self, now: Instant, keep: impl Fn(&C) -> bool) {
        let limits = self.limits;
        let mut count = 0;
        self.hosts.retain(|_, idle| {
            idle.retain(|one| !is_over(one, now, &limits) && keep(&one.connection));
            count += idle.len();
            !idle.is_empty()
        });
        self.count = count;
    }
}

fn is_over<C>(idle: &Idle<C>, now: Instant, limits: &PoolLimits) -> bool {
    now.saturating_duration_since(idle.since) > limits.idle_for
}

#[cfg(test)]
mod tests {
    use super::super::target::Target;
    use super::*;

    const LIMITS: PoolLimits = PoolLimits { per_host: 2, total: 3, idle_for: Duration::from_secs(30) };

    fn origin(name: &str) -> Arc<Origin> {
        Target::parse(&format!("http://{name}/")).expect("a URL").origin
    }

    fn take(pool: &mut Pool<u32>, origin: &Origin, now: Instant) -> Option<u32> {
        pool.take(origin, now, |_| Verdict::Use)
    }

    #[test]
    fn the_last_one_in_is_the_first_one_out_and_hosts_are_apart() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        pool.put(&origin("a"), 1, now);
        pool.put(&origin("a"), 2, now);
        pool.put(&origin("b"), 3, now);
        assert_eq!(take(&mut pool, &origin("a"), now), Some(2));
        assert_eq!(take(&mut pool, &origin("a"), now), Some(1));
        assert_eq!(take(&mut pool, &origin("a"), now), None);
        assert_eq!(take(&mut pool, &origin("b"), now), Some(3));
        assert_eq!(pool.len(), 0);
    }

    // IBM/mcp-context-forge#1549: connections pile up until the provider has none left.
    #[test]
    fn nothing_grows_over_its_bound() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        for number in 0..10 {
            pool.put(&origin("a"), number, now);
        }
        assert_eq!(pool.len(), 2);
        for host in 0..10 {
            pool.put(&origin(&format!("host-{host}")), 0, now);
        }
        assert_eq!(pool.len(), 3);
        assert_eq!(take(&mut pool, &origin("a"), now), Some(9));
        assert_eq!(take(&mut pool, &origin("a"), now), Some(8));
        for host in 0..10 {
            let origin = origin(&format!("other-{host}"));
            pool.put(&origin, 0, now);
            take(&mut pool, &origin, now);
        }
        assert!(pool.hosts.len() <= LIMITS.total, "{} hosts are remembered", pool.hosts.len());
    }

    #[test]
    fn the_idle_have_their_time() {
        let (mut pool, start) = (Pool::new(LIMITS), Instant::now());
        pool.put(&origin("a"), 1, start);
        assert_eq!(take(&mut pool, &origin("a"), start + LIMITS.idle_for), Some(1));
        pool.put(&origin("a"), 1, start);
        assert_eq!(take(&mut pool, &origin("a"), start + LIMITS.idle_for + Duration::from_millis(1)), None);
        assert_eq!(pool.len(), 0);
        pool.put(&origin("a"), 1, start);
        pool.put(&origin("b"), 2, start + Duration::from_secs(20));
        pool.sweep(start + Duration::from_secs(40), |_| true);
        assert_eq!((pool.len(), pool.hosts.len()), (1, 1));
    }

    #[test]
    fn what_is_left_stays_and_what_is_dropped_goes() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        pool.put(&origin("a"), 1, now);
        pool.put(&origin("a"), 2, now);
        let judge = |number: &u32| if *number == 2 { Verdict::Drop } else { Verdict::Leave };
        assert_eq!(pool.take(&origin("a"), now, judge), None);
        assert_eq!(pool.len(), 1);
        assert_eq!(take(&mut pool, &origin("a"), now), Some(1));
    }
}
