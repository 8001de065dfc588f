//! The gate before an endpoint: at most so many calls in flight, a short queue, and the breaker.
//!
//! It belongs to one endpoint of one organization, so a provider that hangs can fill nothing but its own gate.

use super::breaker::{Breaker, Generation, Open};
use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a call may queue for a slot.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// In-flight cap and breaker of one endpoint.
#[derive(Debug)]
pub struct EndpointGate {
    slots: ArcSwap<Semaphore>,
    capacity: AtomicUsize,
    queued: AtomicUsize,
    breaker: Mutex<Breaker>,
}

/// Why a call was not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRefusal {
    /// The provider keeps failing.
    BreakerOpen {
        /// When the next probe is let through.
        retry_after: Duration,
    },
    /// Every slot is taken and the queue is full or did not move.
    Full {
        /// When to come back.
        retry_after: Duration,
    },
}

impl GateRefusal {
    /// When to come back.
    pub const fn retry_after(self) -> Duration {
        match self {
            GateRefusal::BreakerOpen { retry_after } | GateRefusal::Full { retry_after } => retry_after,
        }
    }

    /// A word for the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            GateRefusal::BreakerOpen { .. } => "breaker_open",
            GateRefusal::Full { .. } => "in_flight_full",
        }
    }
}

/// The right to make one call. Dropping it frees the slot.
#[derive(Debug)]
pub struct GatePermit {
    gate: Arc<EndpointGate>,
    admitted: Generation,
    _slot: OwnedSemaphorePermit,
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        // Without effect once the call was reported.
        self.gate.with_breaker(|breaker| breaker.give_back(self.admitted));
    }
}

impl EndpointGate {
    /// A gate for at most `capacity` calls in flight, and as many waiting.
    pub fn new(capacity: usize) -> Self {
        Self {
            slots: ArcSwap::from_pointee(Semaphore::new(capacity)),
            capacity: AtomicUsize::new(capacity),
            queued: AtomicUsize::new(0),
            breaker: Mutex::new(Breaker::default()),
        }
    }

    /// Changes the cap. Calls under way keep their old slots, so for a moment there may be more.
    pub fn resize(&self, capacity: usize) {
        if self.capacity.swap(capacity, Ordering::Relaxed) != capacity {
            self.slots.store(Arc::new(Semaphore::new(capacity)));
        }
    }

    /// Waits for a slot, shortly; `now` is monotonic.
    pub async fn enter(self: &Arc<Self>, now: Duration) -> Result<GatePermit, GateRefusal> {
        let slots = self.slots.load_full();
        let slot = match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => self.queue_for(slots).await?,
        };
        let admitted = self
            .with_breaker(|breaker| breaker.admit(now))
            .map_err(|Open { retry_after }| GateRefusal::BreakerOpen { retry_after })?;
        Ok(GatePermit { gate: Arc::clone(self), admitted, _slot: slot })
    }

    /// Whether the breaker lets calls through freely.
    pub fn is_healthy(&self) -> bool {
        self.with_breaker(|breaker| breaker.is_closed())
    }

    async fn queue_for(&self, slots: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, GateRefusal> {
        let full = GateRefusal::Full { retry_after: QUEUE_WAIT };
        let place = QueuePlace::take(&self.queued, self.capacity.load(Ordering::Relaxed)).ok_or(full)?;
        let slot = tokio::time::timeout(QUEUE_WAIT, slots.acquire_owned()).await;
        drop(place);
        slot.ok().and_then(Result::ok).ok_or(full)
    }

    fn with_breaker<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        act(&mut self.breaker.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GatePermit {
    /// The gate it is for.
    pub fn gate(&self) -> Arc<EndpointGate> {
        Arc::clone(&self.gate)
    }

    /// Notes how the call ended; answers whether the breaker is closed when that has just changed. A call that is never
    /// reported does not count.
    pub fn report(&self, now: Duration, healthy: bool) -> Option<bool> {
        self.gate.with_breaker(|breaker| breaker.record(self.admitted, now, healthy))
    }
}

struct QueuePlace<'a>(&'a AtomicUsize);

impl<'a> QueuePlace<'a> {
    fn take(queued: &'a AtomicUsize, most: usize) -> Option<Self> {
        let taken = queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        taken.ok().map(|_| Self(queued))
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    #[tokio::test(start_paused = true)]
    async fn a_full_gate_queues_shortly_and_then_refuses() {
        let gate = Arc::new(EndpointGate::new(1));
        let held = gate.enter(NOW).await.expect("the only slot");
        assert!(matches!(gate.enter(NOW).await, Err(GateRefusal::Full { .. })), "waits, then gives up");
        let waiting = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.enter(NOW).await.is_ok() }
        });
        tokio::task::yield_now().await;
        assert!(matches!(gate.enter(NOW).await, Err(GateRefusal::Full { .. })), "the queue holds as many as the gate");
        drop(held);
        assert!(waiting.await.expect("no panic"), "the slot goes to whoever queued");
        assert!(gate.enter(NOW).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_refuses_with_the_time_to_come_back() {
        let gate = Arc::new(EndpointGate::new(64));
        for _ in 0..20 {
            gate.enter(NOW).await.expect("closed").report(NOW, false);
        }
        let refused = gate.enter(NOW).await.map(|_| ());
        assert_eq!(refused, Err(GateRefusal::BreakerOpen { retry_after: Duration::from_secs(5) }));
        assert!(!gate.is_healthy());
    }
}
