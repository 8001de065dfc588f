//! Runs after their admission: waiting for one, looking at one, not wanting one any more.

use super::Engine;
use super::access::AgentAccess;
use super::actors::org_handle::{OrgHandle, TurnFault};
use super::idempotency::same_call;
use super::org::Waiter;
use super::ports::StoreError;
use super::run::RunRefusal;
use super::settings::MAX_WAIT;
use super::store_port::{Admission, ChangedRun, InsertedRun, RunChange};
use crate::domain::approval::{ApprovalEnd, ApprovalState};
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

/// A run that is to be cancelled is looked at so often: it goes on twice at most.
const MAX_LOOKS: usize = 3;

/// How soon a full mailbox is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What admitting a run found.
pub(super) enum Admitted {
    New(Waiter),
    /// The confirmation token started this run before, or the call is identical to one that is held.
    Before(Arc<Run>),
    /// An identical call took the `Idempotency-Key` a moment ago.
    Twin(Arc<Run>),
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
        admission: Admission,
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
        let wanted = admission.reservation.as_ref().map(|reservation| reservation.content_hash);
        let inserted = self.store().insert_run(run, admission).await;
        if let Ok(InsertedRun::Inserted) = inserted {
            return Ok(Admitted::New(waiter));
        }
        self.tell_settled(slim).await;
        let find = |id| async move {
            let found = self.store().run(run.intent.org_id, id).await?;
            found.map(Arc::new).ok_or(RunRefusal::Overloaded)
        };
        match inserted? {
            InsertedRun::Inserted => Ok(Admitted::New(waiter)),
            InsertedRun::KeyTaken(reserved) => {
                let before = same_call(&reserved, wanted.unwrap_or_default())?;
                Ok(Admitted::Twin(find(before).await?))
            }
            InsertedRun::TokenUsed(before) | InsertedRun::Attached(before) => Ok(Admitted::Before(find(before).await?)),
        }
    }

    /// Waits for a run that somebody else made, as long as there is patience.
    pub(super) async fn await_known(&self, run: Arc<Run>, patience: Patience) -> Result<Arc<Run>, RunRefusal> {
        if !run.outcome.status.is_open() {
            return Ok(run);
        }
        let (org_id, id) = (run.intent.org_id, run.intent.id);
        let org = self.0.registry.get(org_id).await.map_err(|_| RunRefusal::Overloaded)?;
        match org.watch(id).await {
            Ok(Some(waiter)) => Ok(self.await_run(waiter, patience).await),
            // It has just become final, or its actor is elsewhere.
            Ok(None) | Err(_) => Ok(self.store().run(org_id, id).await?.map_or(run, Arc::new)),
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
        let mut run = self.own_run(access, id).await?;
        // Between a look and its end it may have gone on: from held to approved, from approved to sent.
        for _ in 0..MAX_LOOKS {
            if !can_be_given_up(&run) {
                break;
            }
            let outcome = RunOutcome::ended(RunStatus::Cancelled, run.outcome.started, "cancelled_by_agent");
            // A person who is being asked about it sees why it is closed.
            let is_held = run.outcome.status == RunStatus::AwaitingApproval;
            let approval = is_held.then(|| ApprovalEnd {
                state: ApprovalState::Denied,
                decided_by: None,
                note: Some("cancelled".to_owned()),
            });
            let ended = self.end_run(access.key().org_id, id, outcome, approval).await;
            run = ended.map_err(RunLookupFault::Store)?;
        }
        Ok(run)
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

    /// Ends an open run and wakes whoever waits. One that is final, or went on since somebody decided to end it, is
    /// answered as it is.
    pub(super) async fn end_run(
        &self,
        org: OrgId,
        id: RunId,
        outcome: RunOutcome,
        approval: Option<ApprovalEnd>,
    ) -> Result<Arc<Run>, StoreError> {
        let at = self.clock().now();
        let change = RunChange {
            org_id: org,
            run_id: id,
            outcome,
            withheld_result: None,
            attempts: Vec::new(),
            operation: None,
            approval,
            by_sender: false,
            at,
        };
        match self.store().change_run(&change).await {
            Ok(ChangedRun::Changed(run)) => {
                let run = Arc::from(run);
                self.count_final(&run).await;
                self.tell_settled(Arc::clone(&run)).await;
                Ok(run)
            }
            Ok(ChangedRun::WasFinal(run)) => {
                // Whoever ended it may not have come to tell.
                let run: Arc<Run> = Arc::from(run);
                self.tell_settled(Arc::clone(&run)).await;
                Ok(run)
            }
            Err(StoreError::Stale) => self.store().run(org, id).await?.map(Arc::new).ok_or(StoreError::NotFound),
            Err(error) => Err(error),
        }
    }

    /// Wakes whoever waits for a run that is final now. Nobody waits where no actor lives.
    pub(super) async fn tell_settled(&self, run: Arc<Run>) {
        if let Some(org) = self.0.registry.live(run.intent.org_id) {
            tell(org, run, News::Settled).await;
        }
    }

    /// Tells that a provider accepted a run, or that what became of it is being looked for.
    pub(super) async fn tell_accepted(&self, org: OrgHandle, run: Arc<Run>) {
        // One whose receipt is looked for is counted by what it ends as: most of them end well.
        if run.outcome.status.is_open() && run.outcome.status != RunStatus::Inspecting {
            self.count_status_of(&org.catalog().org.slug, &run);
        }
        tell(org, run, News::Accepted).await;
    }

    /// Tells that a held run was approved and goes on.
    pub(super) async fn tell_released(&self, run: Arc<Run>) {
        if let Some(org) = self.0.registry.live(run.intent.org_id) {
            tell(org, run, News::Released).await;
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

/// What an actor is told of a run.
#[derive(Clone, Copy)]
enum News {
    Accepted,
    Released,
    Settled,
}

/// Tells an actor of a run. A full mailbox is asked again: there are no more of these than runs were admitted, and a run
/// that is not told of stays open in the actor.
async fn tell(org: OrgHandle, run: Arc<Run>, news: News) {
    if told(&org, &run, news).await == Err(TurnFault::Overloaded) {
        tokio::spawn(async move {
            while told(&org, &run, news).await == Err(TurnFault::Overloaded) {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        });
    }
}

async fn told(org: &OrgHandle, run: &Arc<Run>, news: News) -> Result<(), TurnFault> {
    let run = Arc::clone(run);
    match news {
        News::Accepted => org.accepted(run).await,
        News::Released => org.released(run).await,
        News::Settled => org.settled(run).await,
    }
}

/// Nothing was sent yet, or only a query is waited for.
fn can_be_given_up(run: &Run) -> bool {
    match run.outcome.status {
        RunStatus::AwaitingApproval => true,
        // Approved, and not sent yet.
        RunStatus::Pending if !run.outcome.started => true,
        RunStatus::Pending => is_topology_query(run),
        RunStatus::Started
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Inspecting
        | RunStatus::Uncertain => false,
    }
}

/// A run whose result arrives by callback.
pub(super) fn is_topology_query(run: &Run) -> bool {
    match run.intent.dialect {
        Dialect::Topology => run.intent.kind == ToolKind::Query,
        Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => false,
    }
}
