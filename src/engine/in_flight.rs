//! Calls under way, counted so that a stop can wait for them.

use crate::domain::ids::RunId;
use dashmap::DashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// Calls under way on this node.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    count: AtomicUsize,
    stopping: watch::Sender<bool>,
    ended: Notify,
    /// Runs that are being sent or recorded here: their time is not over, whatever the clock says.
    dispatching: DashSet<RunId>,
}

/// One run being sent or recorded on this node.
#[derive(Debug)]
pub(super) struct Dispatching(Arc<InFlight>, RunId);

impl Drop for Dispatching {
    fn drop(&mut self) {
        self.0.dispatching.remove(&self.1);
    }
}

/// One call under way.
#[derive(Debug)]
pub(super) struct InFlightGuard(Arc<InFlight>);

impl Clone for InFlightGuard {
    /// Counts once more what is under way already, also when a stop has begun.
    fn clone(&self) -> Self {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

impl InFlight {
    /// Counts a call in; `None` once a stop has begun.
    pub(super) fn enter(self: &Arc<Self>) -> Option<InFlightGuard> {
        // Counted first: a stop that begins in between sees this call.
        self.count.fetch_add(1, Ordering::SeqCst);
        let guard = InFlightGuard(Arc::clone(self));
        (!*self.stopping.borrow()).then_some(guard)
    }

    /// Notes that a run is being sent or recorded; `None` when it is already.
    pub(super) fn dispatch(self: &Arc<Self>, run: RunId) -> Option<Dispatching> {
        self.dispatching.insert(run).then(|| Dispatching(Arc::clone(self), run))
    }

    /// Whether a run is being sent or recorded on this node.
    pub(super) fn is_dispatching(&self, run: RunId) -> bool {
        self.dispatching.contains(&run)
    }

    /// From now on nothing new begins.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns once a stop has begun.
    pub(super) async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Whether a stop has begun.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns once no call is under way.
    pub(super) async fn drained(&self) {
        loop {
            let ended = self.ended.notified();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_waiters();
    }
}
