//! Which organizations live on this node: started on demand, once; restarted when gone; asked to leave when idle.

use super::arbiters::Arbiters;
use super::org_actor::OrgActor;
use super::org_handle::{OrgHandle, Shared};
use crate::domain::endpoint::EndpointState;
use crate::domain::ids::{EndpointId, OrgId};
use crate::domain::org::Limits;
use crate::engine::catalog::Catalog;
use crate::engine::dispatch::gate::EndpointGate;
use crate::engine::org::OrgState;
use crate::engine::org::rate_limits::{CallerBudget, RateLimits};
use crate::engine::ports::{Clock, Metrics, Store, StoreError};
use crate::engine::settings::EngineSettings;
use crate::engine::store_port::OrgConfig;
use arc_swap::ArcSwap;
use dashmap::DashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

/// Why an organization is not at hand.
#[derive(Debug, thiserror::Error)]
pub enum RegistryFault {
    /// There is no such organization.
    #[error("there is no such organization")]
    NotFound,
    /// It could not be loaded.
    #[error("the organization could not be loaded")]
    Store(#[source] StoreError),
}

type Slot = Arc<OnceCell<OrgHandle>>;

/// The live organizations of this node.
pub struct Registry {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<dyn Metrics>,
    settings: Arc<EngineSettings>,
    slots: DashMap<OrgId, Slot>,
    arbiters: Arbiters,
    node_depth: Arc<AtomicUsize>,
    caller_budget: Arc<CallerBudget>,
    on_start: OnceLock<OnStart>,
}

/// Told of every organization that has started.
type OnStart = Box<dyn Fn(OrgId) + Send + Sync>;

impl Registry {
    /// An empty registry; needs a running actix `System`.
    pub fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Arc<dyn Metrics>,
        settings: Arc<EngineSettings>,
    ) -> Self {
        Self {
            arbiters: Arbiters::start(settings.actor_threads),
            caller_budget: Arc::new(CallerBudget::new(settings.callers_tracked)),
            slots: DashMap::new(),
            on_start: OnceLock::new(),
            node_depth: Arc::default(),
            store,
            clock,
            metrics,
            settings,
        }
    }

    /// Has `told` called after every start of an organization; once.
    pub fn on_start(&self, told: impl Fn(OrgId) + Send + Sync + 'static) {
        assert!(self.on_start.set(Box::new(told)).is_ok(), "one engine, one registry");
    }

    /// The organization, started if need be. Whoever asks while it starts shares the one start.
    pub async fn get(&self, id: OrgId) -> Result<OrgHandle, RegistryFault> {
        for _ in 0..MAX_STARTS {
            let slot = self.slot(id);
            let handle = match slot.get() {
                Some(handle) => handle.clone(),
                None => match Box::pin(slot.get_or_try_init(|| self.start_org(id))).await {
                    Ok(handle) => handle.clone(),
                    Err(fault) => {
                        self.forget(id, &slot);
                        return Err(fault);
                    }
                },
            };
            if handle.is_alive() {
                handle.mark_used();
                return Ok(handle);
            }
            self.forget(id, &slot);
        }
        // Whatever ends it again and again, asking the store in a circle does not help.
        Err(RegistryFault::Store(StoreError::Overloaded))
    }

    /// The organization if it lives here now.
    pub fn live(&self, id: OrgId) -> Option<OrgHandle> {
        self.slots.get(&id)?.get().filter(|handle| handle.is_alive()).cloned()
    }

    /// Publishes what the store holds now, also to a start that is under way: it may have read what was before. An
    /// organization that does not live here has nothing to publish; a deleted one leaves.
    pub async fn refresh(&self, id: OrgId) -> Result<(), StoreError> {
        let Some(slot) = self.slots.get(&id).map(|slot| Arc::clone(&slot)) else { return Ok(()) };
        // A start that fails has told whoever wanted it.
        let Ok(handle) = slot.get_or_try_init(|| self.start_org(id)).await else { return Ok(()) };
        match self.store.load_org(id).await? {
            Some(config) => handle.publish(self.build_catalog(config, handle.gates())),
            None => {
                self.forget(id, &slot);
                // Whoever cannot be told is left by the actor, and asks the store, which knows nothing of it any more.
                let _ = handle.cancel_all(self.clock.now()).await;
                handle.leave();
            }
        }
        Ok(())
    }

    /// How many organizations live here.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Turns waiting on this node.
    pub fn mailbox_depth(&self) -> usize {
        self.node_depth.load(Ordering::Relaxed)
    }

    /// Lets idle organizations go, sweeps the limits of the others, replaces dead threads, and updates the gauges. Call
    /// it every few seconds, from the system's own thread.
    pub fn sweep(&self) {
        let replaced = self.arbiters.replace_dead();
        if replaced > 0 {
            tracing::error!(threads = replaced, "actor threads had ended and were replaced");
        }
        let handles: Vec<(OrgId, Slot)> =
            self.slots.iter().map(|entry| (*entry.key(), Arc::clone(entry.value()))).collect();
        for (id, slot) in handles {
            let Some(handle) = slot.get() else { continue };
            if !handle.is_alive() {
                self.forget(id, &slot);
            } else if handle.idle_for() >= self.settings.actor_idle
                && handle.mailbox_depth() == 0
                && !handle.is_watched()
            {
                self.forget(id, &slot);
                handle.leave();
            } else {
                handle.rates().sweep();
            }
        }
        self.metrics.org_actors(self.count());
        self.metrics.mailbox_depth(self.mailbox_depth());
    }

    #[cfg(test)]
    pub(super) fn stop_thread_of(&self, id: OrgId) {
        self.arbiters.stop_thread_of(id);
    }

    /// Ends every actor.
    pub fn stop(&self) {
        self.slots.clear();
        self.arbiters.stop();
    }

    fn slot(&self, id: OrgId) -> Slot {
        if let Some(slot) = self.slots.get(&id) {
            return Arc::clone(&slot);
        }
        Arc::clone(&self.slots.entry(id).or_default())
    }

    /// Takes the slot out unless another one has taken its place.
    fn forget(&self, id: OrgId, slot: &Slot) {
        self.slots.remove_if(&id, |_, current| Arc::ptr_eq(current, slot));
    }

    async fn start_org(&self, id: OrgId) -> Result<OrgHandle, RegistryFault> {
        let config = self.store.load_org(id).await.map_err(RegistryFault::Store)?.ok_or(RegistryFault::NotFound)?;
        let open_runs = self.store.open_runs(id).await.map_err(RegistryFault::Store)?;
        let gates = Arc::new(DashMap::with_shard_amount(GATE_SHARDS));
        let catalog = self.build_catalog(config, &gates);
        for endpoint in catalog.endpoints().filter(|endpoint| endpoint.settings.enabled) {
            let up = endpoint.state() == EndpointState::Connected;
            self.metrics.endpoint_up(&catalog.org.slug, &endpoint.settings.name, up);
        }
        let actor = OrgActor {
            state: OrgState::restore(open_runs),
            slug: catalog.org.slug.clone(),
            metrics: Arc::clone(&self.metrics),
            mailbox_capacity: self.settings.mailbox_capacity,
        };
        let handle = OrgHandle::new(Shared {
            id,
            actor: self.arbiters.start_actor(id, move |_| actor),
            rates: RateLimits::new(Arc::clone(&self.clock), &catalog.limits, Arc::clone(&self.caller_budget)),
            changes: watch::Sender::new(catalog.revision),
            catalog: ArcSwap::from_pointee(catalog),
            gates,
            alive: Arc::new(AtomicBool::new(true)),
            started: Instant::now(),
            last_used_ms: AtomicUsize::new(0),
            depth: Arc::default(),
            node_depth: Arc::clone(&self.node_depth),
        });
        // Until its first turn an actor's mailbox has actix's small default: nobody is let in before.
        let _ = handle.summary().await;
        if let Some(told) = self.on_start.get() {
            told(id);
        }
        Ok(handle)
    }

    fn build_catalog(&self, config: OrgConfig, gates: &DashMap<EndpointId, Arc<EndpointGate>>) -> Catalog {
        let catalog = Catalog::build(config, &self.settings, |endpoint, limits| gate_of(gates, endpoint, limits));
        gates.retain(|id, _| catalog.endpoint(*id).is_some());
        catalog
    }
}

fn gate_of(gates: &DashMap<EndpointId, Arc<EndpointGate>>, endpoint: EndpointId, limits: &Limits) -> Arc<EndpointGate> {
    let capacity = usize::try_from(limits.endpoint_in_flight).unwrap_or(usize::MAX).clamp(1, MAX_IN_FLIGHT);
    let gate = Arc::clone(&gates.entry(endpoint).or_insert_with(|| Arc::new(EndpointGate::new(capacity))));
    gate.resize(capacity);
    gate
}

/// An organization has few endpoints, and its map of gates as few shards as can be, each some 128 bytes.
const GATE_SHARDS: usize = 2;

/// An actor that ends right after its start is started anew this often.
const MAX_STARTS: usize = 3;

/// More than any provider takes, and well within a semaphore.
const MAX_IN_FLIGHT: usize = 100_000;

/// How often [`Registry::sweep`] wants to be called.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);
