//! What callers hold of an organization's actor: its published snapshot, its limits, and named calls into its mailbox.

use super::org_actor::{Leave, OrgActor, Queued, Turn};
use crate::domain::ids::{EndpointId, OrgId, RunId};
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::engine::catalog::Catalog;
use crate::engine::dispatch::gate::EndpointGate;
use crate::engine::org::rate_limits::RateLimits;
use crate::engine::org::{Effect, OrgState, OrgSummary, Waiter};
use actix::Addr;
use actix::prelude::SendError;
use arc_swap::ArcSwap;
use dashmap::DashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// Why the actor did not take a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnFault {
    /// Its mailbox is full.
    #[error("the organization's mailbox is full")]
    Overloaded,
    /// It has left or panicked; the registry starts a fresh one.
    #[error("the organization's actor is gone")]
    Gone,
}

/// A live organization. Cheap to clone.
#[derive(Clone)]
pub struct OrgHandle(Arc<Shared>);

pub(super) struct Shared {
    pub(super) id: OrgId,
    pub(super) actor: Addr<OrgActor>,
    /// False once a turn has panicked, a moment before the actor has stopped.
    pub(super) alive: Arc<AtomicBool>,
    pub(super) catalog: ArcSwap<Catalog>,
    /// The revision of the newest snapshot, for whoever waits for a change.
    pub(super) changes: watch::Sender<u64>,
    pub(super) rates: RateLimits,
    pub(super) gates: Arc<DashMap<EndpointId, Arc<EndpointGate>>>,
    pub(super) started: Instant,
    /// Milliseconds after `started` of the last use.
    pub(super) last_used_ms: AtomicUsize,
    pub(super) depth: Arc<AtomicUsize>,
    pub(super) node_depth: Arc<AtomicUsize>,
}

struct DeadOnPanic(Arc<AtomicBool>);

impl Drop for DeadOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(false, Ordering::Release);
        }
    }
}

impl OrgHandle {
    pub(super) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// The organization.
    pub fn id(&self) -> OrgId {
        self.0.id
    }

    /// The newest snapshot; never waits.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.load_full()
    }

    /// The organization's rate limits.
    pub fn rates(&self) -> &RateLimits {
        &self.0.rates
    }

    /// Turns waiting for the actor.
    pub fn mailbox_depth(&self) -> usize {
        self.0.depth.load(Ordering::Relaxed)
    }

    /// Registers a run before anything is sent for it.
    pub async fn admit(&self, run: Arc<Run>) -> Result<Waiter, TurnFault> {
        self.ask(move |state| state.admit(run)).await
    }

    /// Waits for an open run; `None` when it is not open.
    pub async fn watch(&self, run_id: RunId) -> Result<Option<Waiter>, TurnFault> {
        self.ask(move |state| (state.watch(run_id), Vec::new())).await
    }

    /// The provider accepted a run.
    pub async fn accepted(&self, run: Arc<Run>) -> Result<(), TurnFault> {
        self.ask(move |state| ((), state.accepted(run))).await
    }

    /// A held run was approved and goes on.
    pub async fn released(&self, run: Arc<Run>) -> Result<(), TurnFault> {
        self.ask(move |state| ((), state.released(run))).await
    }

    /// A run is final in the store: whoever waits is woken.
    pub async fn settled(&self, run: Arc<Run>) -> Result<(), TurnFault> {
        self.ask(move |state| ((), state.settled(run))).await
    }

    /// The organization is deleted: all it has open ends, and whoever waits is told.
    pub(super) async fn cancel_all(&self, at: Timestamp) -> Result<(), TurnFault> {
        self.ask(move |state| ((), state.cancel_all(at))).await
    }

    /// The open run that a callback to `endpoint` means.
    pub async fn matching(
        &self,
        endpoint: EndpointId,
        request_id: Option<RunId>,
        correlation_id: Option<String>,
    ) -> Result<Option<Arc<Run>>, TurnFault> {
        self.ask(move |state| (state.matching(endpoint, request_id, correlation_id.as_deref()), Vec::new())).await
    }

    /// What the organization has open.
    pub async fn summary(&self) -> Result<OrgSummary, TurnFault> {
        self.ask(|state| (state.summary(), Vec::new())).await
    }

    /// Publishes a newer snapshot; one that is not newer is dropped, and what was rendered of it stays. Whoever asks next sees it.
    pub(super) fn publish(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog);
        self.0.catalog.rcu(|current| {
            if catalog.revision > current.revision { Arc::clone(&catalog) } else { Arc::clone(current) }
        });
        // Told after the snapshot is there, and also when it is not newer: a key may be gone, of which no snapshot knows.
        self.0.changes.send_modify(|revision| *revision = (*revision).max(catalog.revision));
    }

    /// Tells whenever something of the organization has changed; ends when the organization leaves this node or starts anew.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether somebody waits for a newer snapshot.
    pub(super) fn is_watched(&self) -> bool {
        self.0.changes.receiver_count() > 0
    }

    /// Whether the breaker of an endpoint lets calls through freely.
    pub fn is_healthy(&self, endpoint: EndpointId) -> bool {
        self.0.gates.get(&endpoint).is_none_or(|gate| gate.is_healthy())
    }

    /// The gate of an endpoint that has been called or synced.
    pub fn gate(&self, endpoint: EndpointId) -> Option<Arc<EndpointGate>> {
        self.0.gates.get(&endpoint).map(|gate| Arc::clone(&gate))
    }

    pub(super) fn gates(&self) -> &DashMap<EndpointId, Arc<EndpointGate>> {
        &self.0.gates
    }

    pub(super) fn is_alive(&self) -> bool {
        self.0.alive.load(Ordering::Acquire) && self.0.actor.connected()
    }

    pub(super) fn mark_used(&self) {
        let now = usize::try_from(self.0.started.elapsed().as_millis()).unwrap_or(usize::MAX);
        self.0.last_used_ms.store(now, Ordering::Relaxed);
    }

    pub(super) fn idle_for(&self) -> Duration {
        let last_used = Duration::from_millis(self.0.last_used_ms.load(Ordering::Relaxed) as u64);
        self.0.started.elapsed().saturating_sub(last_used)
    }

    pub(super) fn leave(&self) {
        // A full mailbox means that it is not idle after all; the next sweep asks again.
        let _ = self.0.actor.try_send(Leave);
    }

    /// Makes the next turn panic.
    #[cfg(test)]
    pub(super) async fn panic(&self) -> Result<(), TurnFault> {
        self.ask(|_| -> ((), Vec<Effect>) { panic!("injected") }).await
    }

    /// Occupies the actor until `gate` opens.
    #[cfg(test)]
    pub(super) async fn block(&self, gate: std::sync::mpsc::Receiver<()>) -> Result<(), TurnFault> {
        self.ask(move |_| {
            let _ = gate.recv();
            ((), Vec::new())
        })
        .await
    }

    async fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut OrgState) -> (T, Vec<Effect>) + Send + 'static,
    ) -> Result<T, TurnFault> {
        let (reply, answer) = oneshot::channel();
        let alive = Arc::clone(&self.0.alive);
        let act = Box::new(move |state: &mut OrgState| {
            let reply = reply;
            // Dropped before `reply`: whoever is told that the actor is gone finds it marked so.
            let _wreck = DeadOnPanic(alive);
            let (value, effects) = act(state);
            // Whoever asked may have gone away; the turn counts all the same.
            let _ = reply.send(value);
            effects
        });
        let queued = Queued::count(&self.0.depth, &self.0.node_depth);
        self.0.actor.try_send(Turn { act, queued }).map_err(|refused| match refused {
            SendError::Full(_) => TurnFault::Overloaded,
            SendError::Closed(_) => TurnFault::Gone,
        })?;
        answer.await.map_err(|_| TurnFault::Gone)
    }
}
