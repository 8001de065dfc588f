//! Time: one task takes what is due from the store, one follows the change feed, one keeps house.

use super::Engine;
use super::actors::registry::{RegistryFault, SWEEP_EVERY};
use super::ports::StoreError;
use super::runs::is_topology_query;
use super::store_port::Due;
use crate::domain::approval::{ApprovalEnd, ApprovalState};
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::{OrgId, RunId};
use crate::domain::manifest::SyncTrigger;
use crate::domain::risk::Risk;
use crate::domain::run::{Run, RunOutcome, RunStatus};
use crate::domain::tool::Dialect;
use dashmap::DashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How often the due table is looked at: well under the shortest time that anything waits for.
const DUE_EVERY: Duration = Duration::from_millis(250);
/// Entries taken at one look.
const DUE_AT_ONCE: usize = 200;
/// Whoever took an entry has this long to deal with it before it is due again.
const DUE_LEASE: Duration = Duration::from_secs(60);
/// Due work waits for a place no longer than its lease lasts.
const PLACE_PATIENCE: Duration = Duration::from_secs(55);
/// Pieces of due work of one kind that wait for a place; more are due again when their lease is over.
const MOST_QUEUED: usize = 4096;
/// Interval syncs under way at once, so that providers that hang do not pile up.
const SYNCS_AT_ONCE: usize = 64;
/// Of these, of one organization.
const SYNCS_OF_ONE_ORG: usize = 8;
/// Looks at receipts and resends under way at once.
const OPERATIONS_AT_ONCE: usize = 256;
/// Of these, of one organization.
const OPERATIONS_OF_ONE_ORG: usize = 64;
/// Messages to applications under way at once.
const DELIVERIES_AT_ONCE: usize = 64;
/// Of these, of one organization.
const DELIVERIES_OF_ONE_ORG: usize = 8;
/// How often the change feed is looked at: well under the second in which a cached key may be believed.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);
/// How often what is past its retention is deleted.
const PURGE_EVERY: Duration = Duration::from_secs(600);

impl Engine {
    /// Starts the engine's own tasks; call it once, on the thread of the actix `System`.
    /// They end when a stop begins.
    pub fn run_background(&self) {
        tokio::spawn(self.clone().follow_the_feed());
        tokio::spawn(self.clone().keep_due_times());
        tokio::spawn(self.clone().keep_house());
        tokio::spawn(self.clone().purge_from_time_to_time());
    }

    async fn follow_the_feed(self) {
        while !self.is_stopping() {
            if let Err(error) = self.follow_changes().await {
                tracing::warn!(%error, "the change feed could not be read");
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }

    async fn keep_house(self) {
        while !self.is_stopping() {
            self.0.registry.sweep();
            self.0.dialogues.sweep();
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }

    async fn purge_from_time_to_time(self) {
        while !self.is_stopping() {
            let now = self.clock().now();
            if let Err(error) = self.store().purge(now).await {
                tracing::warn!(%error, "what is past its retention could not be deleted");
            }
            self.clock().sleep_until(now.plus(PURGE_EVERY)).await;
        }
    }

    async fn keep_due_times(self) {
        let syncs = Places::new(SYNCS_AT_ONCE, SYNCS_OF_ONE_ORG);
        let operations = Places::new(OPERATIONS_AT_ONCE, OPERATIONS_OF_ONE_ORG);
        let deliveries = Places::new(DELIVERIES_AT_ONCE, DELIVERIES_OF_ONE_ORG);
        while !self.is_stopping() {
            // The next look is counted from this one: what falls due while it lasts is not left out until the one after.
            let now = self.clock().now();
            let taken = match self.store().take_due(now, DUE_LEASE, DUE_AT_ONCE).await {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "the due table could not be read");
                    Vec::new()
                }
            };
            let more = taken.len() == DUE_AT_ONCE;
            let mut expiries = Vec::new();
            for due in taken {
                match due {
                    Due::Sync(org, endpoint) => self.in_place(&syncs, org, move |engine| async move {
                        // The outcome is recorded; an endpoint that is gone or disabled is not due again.
                        let _ = engine.sync_endpoint(org, endpoint, SyncTrigger::Interval).await;
                    }),
                    Due::Operation(org, run) => self.in_place(&operations, org, move |engine| async move {
                        engine.attend_operation(org, run).await;
                    }),
                    Due::Delivery(org, id) => self.in_place(&deliveries, org, move |engine| async move {
                        engine.deliver(org, id).await;
                    }),
                    Due::RunExpiry(org, run) => expiries.push(self.expire_run(org, run)),
                }
            }
            // All at once: the store writes them together.
            futures_util::future::join_all(expiries).await;
            if !more {
                self.clock().sleep_until(now.plus(DUE_EVERY)).await;
            }
        }
    }

    /// Does a piece of due work in a task of its own, once it has a place. What has none before its lease is over is due
    /// again: a tenant whose providers hang keeps neither expiries nor the others' work waiting.
    fn in_place<F>(&self, places: &Arc<Places>, org: OrgId, work: impl FnOnce(Engine) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(queued) = places.queue() else { return };
        let (engine, places) = (self.clone(), Arc::clone(places));
        tokio::spawn(async move {
            let place = tokio::time::timeout(PLACE_PATIENCE, places.take(org)).await;
            drop(queued);
            if let Ok(place) = place {
                work(engine).await;
                drop(place);
            }
        });
    }

    /// Ends an open run whose time is over. One that is being sent or recorded here has its time yet; its lease brings it
    /// back.
    async fn expire_run(&self, org: OrgId, id: RunId) {
        if self.0.in_flight.is_dispatching(id) {
            return;
        }
        if let Err(error) = self.try_expire_run(org, id).await {
            tracing::warn!(%org, run = %id, %error, "a run could not be expired; it is tried again");
        }
    }

    pub(super) async fn try_expire_run(&self, org: OrgId, id: RunId) -> Result<(), StoreError> {
        // A result that was kept through a crash comes before the end of its run's time.
        self.clone().deliver_kept(org).await;
        let Some(run) = self.store().run(org, id).await? else { return Ok(()) };
        if !run.outcome.status.is_open() {
            return Ok(());
        }
        // Its actor counts and shows what is open.
        let handle = match self.0.registry.get(org).await {
            Ok(handle) => handle,
            Err(RegistryFault::NotFound) => return Ok(()),
            Err(RegistryFault::Store(error)) => return Err(error),
        };
        match run.outcome.status {
            RunStatus::AwaitingApproval if run.intent.expires_at.is_some_and(|at| self.clock().now() < at) => {
                // Only its reviewer's time is over.
                self.pass_to_teammate(&run).await;
                return Ok(());
            }
            RunStatus::Pending if !run.outcome.started => {
                let engine = self.clone();
                tokio::spawn(async move { engine.resume_approved(&handle, run).await });
                return Ok(());
            }
            _ => {}
        }
        let risk = handle.catalog().tool(&run.intent.tool).and_then(|tool| tool.risk);
        let held = run.outcome.status == RunStatus::AwaitingApproval;
        let approval = held.then_some(ApprovalEnd { state: ApprovalState::Expired, decided_by: None, note: None });
        self.end_run(org, id, outcome_of_expiry(&run, risk), approval).await.map(drop)
    }

    /// Takes up what a process before this one left half done; call it once, before anything else.
    pub async fn recover(&self) -> Result<(), StoreError> {
        self.store().recover(self.clock().now()).await
    }

    /// Whether new work is refused.
    pub fn is_stopping(&self) -> bool {
        self.0.in_flight.is_stopping()
    }

    /// Returns once a stop has begun.
    pub async fn stopped(&self) {
        self.0.in_flight.stopped().await;
    }

    /// Refuses new work from now on.
    pub fn begin_stop(&self) {
        self.0.in_flight.stop();
    }

    /// Waits for the calls under way, at most `longest`; true when none is left.
    pub async fn drain(&self, longest: Duration) -> bool {
        tokio::time::timeout(longest, self.0.in_flight.drained()).await.is_ok()
    }

    /// Ends the dialogues with MCP servers, as far as there is time until then, and the actors, and closes the store.
    pub async fn close(&self, until: Instant) {
        self.end_dialogues(until).await;
        self.0.registry.stop();
        self.store().close().await;
    }

    /// Whether this node can serve: the store answers, and no stop has begun.
    pub async fn ready(&self) -> bool {
        !self.is_stopping() && self.store().ping().await.is_ok()
    }
}

/// Places for one kind of due work: so many at once, and so many of one organization. Whoever finds none queues for one.
struct Places {
    of_all: Arc<Semaphore>,
    most_of_one_org: usize,
    by_org: DashMap<OrgId, Arc<Semaphore>>,
    queued: AtomicUsize,
}

/// One piece of work's place; its organization's part of it is taken first, so that nobody waits for a place of all while
/// holding one.
struct Place {
    places: Arc<Places>,
    org: OrgId,
    of_org: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

/// One piece of work that waits for a place.
struct QueuedWork(Arc<Places>);

impl Places {
    fn new(most: usize, most_of_one_org: usize) -> Arc<Self> {
        let of_all = Arc::new(Semaphore::new(most));
        Arc::new(Self { of_all, most_of_one_org, by_org: DashMap::new(), queued: AtomicUsize::new(0) })
    }

    /// The right to wait for a place; `None` when too many do.
    fn queue(self: &Arc<Self>) -> Option<QueuedWork> {
        let queued = QueuedWork(Arc::clone(self));
        (self.queued.fetch_add(1, Ordering::Relaxed) < MOST_QUEUED).then_some(queued)
    }

    async fn take(self: Arc<Self>, org: OrgId) -> Place {
        const NEVER_CLOSED: &str = "the semaphores of places are never closed";
        let of_org =
            Arc::clone(&*self.by_org.entry(org).or_insert_with(|| Arc::new(Semaphore::new(self.most_of_one_org))));
        let of_org = of_org.acquire_owned().await.expect(NEVER_CLOSED);
        let of_all = Arc::clone(&self.of_all).acquire_owned().await.expect(NEVER_CLOSED);
        Place { places: self, org, of_org: Some(of_org), _of_all: of_all }
    }
}

impl Drop for QueuedWork {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of_org = None;
        // Nobody works or waits when only the table knows the organization's places.
        self.places.by_org.remove_if(&self.org, |_, places| Arc::strong_count(places) == 1);
    }
}

/// What an open run becomes when its time is over. One that would have been answered in its own exchange was cut off by
/// a crash: whether it took effect is not known, unless it is of the kind whose loss counts as a failure.
fn outcome_of_expiry(run: &Run, risk: Option<Risk>) -> RunOutcome {
    if run.outcome.status == RunStatus::AwaitingApproval {
        return RunOutcome::ended(RunStatus::Denied, false, "approval_expired");
    }
    if is_topology_query(run) {
        return RunOutcome::ended(RunStatus::Expired, run.outcome.started, "no_result_in_time");
    }
    let loses_nothing = match (run.intent.dialect, risk) {
        // With a key, nobody may make it again: it must not be called failed.
        (Dialect::Median, Some(Risk::Low)) => !run.intent.keyed,
        (Dialect::AgentProvider, _) => run.operation_id.is_none(),
        (Dialect::Median | Dialect::Topology | Dialect::Mcp, _) => false,
    };
    if loses_nothing {
        RunOutcome::failed(true, ErrorCode::ProviderTimeout, "the call was cut off by a restart of the gateway")
    } else {
        RunOutcome::ended(RunStatus::Uncertain, true, "interrupted")
    }
}
