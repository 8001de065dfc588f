//! Time: one task takes what is due from the store, one follows the change feed, one keeps house.

use super::Engine;
use super::actors::registry::{RegistryFault, SWEEP_EVERY};
use super::ports::StoreError;
use super::runs::is_topology_query;
use super::store_port::Due;
use crate::domain::error_code::ErrorCode;
use crate::domain::ids::{EndpointId, OrgId, RunId};
use crate::domain::manifest::SyncTrigger;
use crate::domain::risk::Risk;
use crate::domain::run::{Run, RunOutcome, RunStatus};
use crate::domain::tool::Dialect;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the due table is looked at.
const DUE_EVERY: Duration = Duration::from_secs(1);
/// Entries taken at one look.
const DUE_AT_ONCE: usize = 200;
/// Whoever took an entry has this long to deal with it before it is due again.
const DUE_LEASE: Duration = Duration::from_secs(60);
/// Interval syncs under way at once, so that providers that hang do not pile up.
const SYNCS_AT_ONCE: usize = 64;
/// Of these, of one organization.
const SYNCS_OF_ONE_ORG: usize = 8;
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
        let syncs = Arc::new(DueSyncs::default());
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
                    Due::Sync(org, endpoint) => self.start_due_sync(&syncs, org, endpoint),
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

    /// Syncs in a task of its own. What finds no place is due again when its lease is over: a tenant whose providers hang
    /// keeps neither expiries nor the others' syncs waiting.
    fn start_due_sync(&self, syncs: &Arc<DueSyncs>, org: OrgId, endpoint: EndpointId) {
        let Some(place) = syncs.take_place(org) else { return };
        let engine = self.clone();
        tokio::spawn(async move {
            // The outcome is recorded; an endpoint that is gone or disabled is not due again.
            let _ = engine.sync_endpoint(org, endpoint, SyncTrigger::Interval).await;
            drop(place);
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

    async fn try_expire_run(&self, org: OrgId, id: RunId) -> Result<(), StoreError> {
        // A result that was kept through a crash comes before the end of its run's time.
        self.clone().deliver_kept(org).await;
        let Some(run) = self.store().run(org, id).await? else { return Ok(()) };
        if !run.outcome.status.is_open() {
            return Ok(());
        }
        // Its actor counts and shows what is open.
        let catalog = match self.0.registry.get(org).await {
            Ok(handle) => handle.catalog(),
            Err(RegistryFault::NotFound) => return Ok(()),
            Err(RegistryFault::Store(error)) => return Err(error),
        };
        let risk = catalog.tool(&run.intent.tool).and_then(|tool| tool.spec.risk);
        self.end_run(org, id, outcome_of_expiry(&run, risk)).await.map(drop)
    }

    /// Whether new work is refused.
    pub fn is_stopping(&self) -> bool {
        self.0.in_flight.is_stopping()
    }

    /// Refuses new work from now on.
    pub fn begin_stop(&self) {
        self.0.in_flight.stop();
    }

    /// Waits for the calls under way, at most `longest`; true when none is left.
    pub async fn drain(&self, longest: Duration) -> bool {
        tokio::time::timeout(longest, self.0.in_flight.drained()).await.is_ok()
    }

    /// Ends the actors and closes the store.
    pub async fn close(&self) {
        self.0.registry.stop();
        self.store().close().await;
    }

    /// Whether this node can serve: the store answers, and no stop has begun.
    pub async fn ready(&self) -> bool {
        !self.is_stopping() && self.store().ping().await.is_ok()
    }
}

/// Interval syncs under way.
#[derive(Default)]
struct DueSyncs {
    by_org: Mutex<HashMap<OrgId, usize>>,
}

/// One sync's place.
struct DuePlace(Arc<DueSyncs>, OrgId);

impl DueSyncs {
    fn take_place(self: &Arc<Self>, org: OrgId) -> Option<DuePlace> {
        let mut by_org = self.by_org.lock().unwrap_or_else(PoisonError::into_inner);
        let of_org = by_org.get(&org).copied().unwrap_or_default();
        if of_org >= SYNCS_OF_ONE_ORG || by_org.values().sum::<usize>() >= SYNCS_AT_ONCE {
            return None;
        }
        by_org.insert(org, of_org + 1);
        Some(DuePlace(Arc::clone(self), org))
    }
}

impl Drop for DuePlace {
    fn drop(&mut self) {
        let mut by_org = self.0.by_org.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_org.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                by_org.remove(&self.1);
            }
        }
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
    match (run.intent.dialect, risk) {
        (Dialect::Median, Some(Risk::Low)) => {
            RunOutcome::failed(true, ErrorCode::ProviderTimeout, "the call was cut off by a restart of the gateway")
        }
        (Dialect::Median | Dialect::Topology, _) => RunOutcome::ended(RunStatus::Uncertain, true, "interrupted"),
    }
}
