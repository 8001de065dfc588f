//! Runs after their admission: waiting for one, looking at one, not wanting one any more.

use super::Engine;
use super::access::AgentAccess;
use super::actors::org_handle::{OrgHandle, TurnFault};
use super::org::Waiter;
use super::ports::StoreError;
use super::run::RunRefusal;
use super::settings::MAX_WAIT;
use super::store_port::{ChangedRun, InsertedRun, RunChange, TokenUse};
use crate::domain::ids::{OrgId, RunId};
use crate::domain::run::{Run, RunOutcome, RunStatus};
use crate::domain::tool::{Dialect, ToolKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the answer to a run is waited for.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) until: Instant,
    /// Wait for the final word, not only for the provider's acknowledgement.
    pub(super) for_final: bool,
}

/// How soon a full mailbox is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What admitting a run found.
pub(super) enum Admitted {
    New(Waiter),
    /// The confirmation token started this run before.
    Before(Arc<Run>),
}

/// Why a run cannot be shown or cancelled.
#[derive(Debug, thiserror::Error)]
pub enum RunLookupFault {
    /// This key made no such run.
    #[error("there is no such run")]
    NotFound,
    /// The store does not answer.
    #[error("the store does not answer")]
    Store(#[source] StoreError),
}

impl Engine {
    /// Registers a run with its organization's actor, then makes it durable: in this order, so that a refusal leaves
    /// nothing behind and no answer can find nobody.
    pub(super) async fn admit(
        &self,
        org: &OrgHandle,
        run: &Arc<Run>,
        token: Option<TokenUse>,
    ) -> Result<Admitted, RunRefusal> {
        let slim = Arc::new(run.slim());
        let waiter = match org.admit(Arc::clone(&slim)).await {
            Ok(waiter) => waiter,
            Err(TurnFault::Overloaded) => return Err(RunRefusal::Overloaded),
            // The actor left or panicked since the key was checked: a fresh one takes the run.
            Err(TurnFault::Gone) => {
                let org = self.0.registry.get(org.id()).await.map_err(|_| RunRefusal::Overloaded)?;
                org.admit(Arc::clone(&slim)).await.map_err(|_| RunRefusal::Overloaded)?
            }
        };
        let inserted = self.store().insert_run(run, token).await;
        if let Ok(InsertedRun::Inserted) = inserted {
            return Ok(Admitted::New(waiter));
        }
        self.tell_settled(slim).await;
        match inserted? {
            InsertedRun::Inserted => Ok(Admitted::New(waiter)),
            InsertedRun::TokenUsed(before) => {
                let found = self.store().run(run.intent.org_id, before).await?;
                found.map(|run| Admitted::Before(Arc::new(run))).ok_or(RunRefusal::ConfirmationMismatch)
            }
        }
    }

    /// Waits as long as there is patience; answers the run as it stands then.
    pub(super) async fn await_run(&self, mut waiter: Waiter, patience: Patience) -> Arc<Run> {
        loop {
            let progress = waiter.borrow_and_update().clone();
            let done = !progress.run.outcome.status.is_open() || (progress.acknowledged && !patience.for_final);
            if done {
                return progress.run;
            }
            let news = tokio::select! {
                changed = waiter.changed() => changed.is_ok(),
                () = tokio::time::sleep_until(patience.until) => false,
                // What is under way ends within the stop; what waits for a provider's callback or a person does not.
                () = self.0.in_flight.stopped(), if progress.acknowledged => false,
            };
            if !news {
                // The time is over or the actor is gone. The run was admitted, so there is an answer whatever the store
                // says; what it says is newer.
                let intent = &progress.run.intent;
                let stored = self.store().run(intent.org_id, intent.id).await;
                return stored.ok().flatten().map_or(progress.run, Arc::new);
            }
        }
    }

    /// A run that this agent key made, waiting for it to change if `wait` is given.
    pub async fn agent_run(
        &self,
        access: &AgentAccess,
        id: RunId,
        wait: Option<Duration>,
    ) -> Result<Arc<Run>, RunLookupFault> {
        let run = self.own_run(access, id).await?;
        let (Some(wait), true) = (wait, run.outcome.status.is_open()) else { return Ok(run) };
        let until = Instant::now() + wait.min(MAX_WAIT);
        match access.org().watch(id).await {
            Ok(Some(mut waiter)) => {
                let seen = run.outcome.status;
                let changed = waiter.wait_for(|progress| progress.run.outcome.status != seen);
                let changed = tokio::time::timeout_at(until, changed).await;
                let told = changed.ok().and_then(Result::ok).map(|progress| Arc::clone(&progress.run));
                // Whether it changed, the time passed or the actor left: the store has the last word. Only of a run that
                // was deleted with its organization it has none.
                match (self.own_run(access, id).await, told) {
                    (Err(RunLookupFault::NotFound), Some(run)) => Ok(run),
                    (found, _) => found,
                }
            }
            // It has just become final, or its actor is elsewhere.
            Ok(None) | Err(_) => self.own_run(access, id).await,
        }
    }

    /// The agent does not want the run any more. What can be given up is cancelled; anything else stays as it is.
    pub async fn cancel_run(&self, access: &AgentAccess, id: RunId) -> Result<Arc<Run>, RunLookupFault> {
        let run = self.own_run(access, id).await?;
        if !can_be_given_up(&run) {
            return Ok(run);
        }
        let outcome = RunOutcome::ended(RunStatus::Cancelled, run.outcome.started, "cancelled_by_agent");
        self.end_run(access.key().org_id, id, outcome).await.map_err(RunLookupFault::Store)
    }

    async fn own_run(&self, access: &AgentAccess, id: RunId) -> Result<Arc<Run>, RunLookupFault> {
        let find = || self.store().run(access.key().org_id, id);
        let mut found = find().await.map_err(RunLookupFault::Store)?;
        if found.is_none() {
            // It may have been answered a moment ago, with its record still on the way.
            self.store().catch_up().await.map_err(RunLookupFault::Store)?;
            found = find().await.map_err(RunLookupFault::Store)?;
        }
        found.filter(|run| run.intent.agent_key == access.key().id).map(Arc::new).ok_or(RunLookupFault::NotFound)
    }

    /// Ends an open run and wakes whoever waits; a final one is answered unchanged.
    pub(super) async fn end_run(&self, org: OrgId, id: RunId, outcome: RunOutcome) -> Result<Arc<Run>, StoreError> {
        let at = self.clock().now();
        let change = RunChange { org_id: org, run_id: id, outcome, withheld_result: None, attempts: Vec::new(), at };
        match self.store().change_run(&change).await? {
            ChangedRun::Changed(run) => {
                let run = Arc::from(run);
                self.count_final(&run).await;
                self.tell_settled(Arc::clone(&run)).await;
                Ok(run)
            }
            ChangedRun::WasFinal(run) => Ok(Arc::from(run)),
        }
    }

    /// Wakes whoever waits for a run that is final now. Nobody waits where no actor lives. A full mailbox is asked again:
    /// there are no more of these than runs were admitted, and a run that is not told of stays open in the actor.
    pub(super) async fn tell_settled(&self, run: Arc<Run>) {
        let Some(org) = self.0.registry.live(run.intent.org_id) else { return };
        if org.settled(Arc::clone(&run)).await == Err(TurnFault::Overloaded) {
            tokio::spawn(async move {
                while org.settled(Arc::clone(&run)).await == Err(TurnFault::Overloaded) {
                    tokio::time::sleep(ASK_AGAIN_AFTER).await;
                }
            });
        }
    }

    /// Tells that a provider accepted a run, likewise.
    pub(super) async fn tell_accepted(&self, org: OrgHandle, run: Arc<Run>) {
        if run.outcome.status.is_open() {
            self.count_status_of(&org.catalog().org.slug, &run);
        }
        if org.accepted(Arc::clone(&run)).await == Err(TurnFault::Overloaded) {
            tokio::spawn(async move {
                while org.accepted(Arc::clone(&run)).await == Err(TurnFault::Overloaded) {
                    tokio::time::sleep(ASK_AGAIN_AFTER).await;
                }
            });
        }
    }

    /// Counts a run that has just become final.
    pub(super) async fn count_final(&self, run: &Run) {
        let Some(org) = self.0.registry.live(run.intent.org_id) else { return };
        self.count_status_of(&org.catalog().org.slug, run);
    }

    /// Counts the status that a run of the organization with this slug has reached: its last one, or one to wait at.
    pub(super) fn count_status_of(&self, slug: &str, run: &Run) {
        let intent = &run.intent;
        self.metrics().run(slug, intent.dialect.as_str(), intent.kind.as_str(), run.outcome.status.as_str());
    }
}

/// Nothing was sent yet, or only a query is waited for.
fn can_be_given_up(run: &Run) -> bool {
    match run.outcome.status {
        RunStatus::AwaitingApproval => true,
        RunStatus::Pending => is_topology_query(run),
        RunStatus::Started
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Uncertain => false,
    }
}

/// A run whose result arrives by callback.
pub(super) fn is_topology_query(run: &Run) -> bool {
    match run.intent.dialect {
        Dialect::Topology => run.intent.kind == ToolKind::Query,
        Dialect::Median => false,
    }
}
