//! The pure state of one organization: what is open, and who waits for it. No I/O, no clock of its own; a turn answers
//! effects that the actor carries out.

pub mod rate_limits;

use crate::domain::ids::{EndpointId, RunId};
use crate::domain::run::{Run, RunOutcome, RunStatus};
use crate::domain::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// How far an open run has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The run as it stands.
    pub run: Arc<Run>,
    /// The provider has answered, or nothing will be sent before a person decides: a caller that only waits for the
    /// acknowledgement is done.
    pub acknowledged: bool,
}

/// Receives the progress of one run; closed when the actor is gone.
pub type Waiter = watch::Receiver<Progress>;

/// What a turn wants done.
#[derive(Debug)]
pub enum Effect {
    /// Tell whoever waits.
    Wake(watch::Sender<Progress>, Progress),
    /// Publish how many runs are open, and in which way.
    Gauges(OpenCounts),
}

/// How many runs are open, by what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCounts {
    /// Runs pending.
    pub pending: usize,
    /// Of these, operations sent and not answered yet.
    pub sent: usize,
    /// Runs awaiting approval.
    pub held: usize,
    /// Operations whose outcome is being looked for.
    pub uncertain: usize,
}

impl OpenCounts {
    fn of(run: &Run) -> Self {
        let mut counts = Self::default();
        match run.outcome.status {
            RunStatus::Pending => {
                counts.pending = 1;
                counts.sent = usize::from(run.operation_id.is_some());
            }
            RunStatus::AwaitingApproval => counts.held = 1,
            RunStatus::Inspecting => counts.uncertain = 1,
            RunStatus::Started
            | RunStatus::Completed
            | RunStatus::Failed
            | RunStatus::Denied
            | RunStatus::Expired
            | RunStatus::Cancelled
            | RunStatus::Uncertain => {}
        }
        counts
    }

    const fn add(&mut self, other: Self) {
        self.pending += other.pending;
        self.sent += other.sent;
        self.held += other.held;
        self.uncertain += other.uncertain;
    }

    const fn remove(&mut self, other: Self) {
        self.pending -= other.pending;
        self.sent -= other.sent;
        self.held -= other.held;
        self.uncertain -= other.uncertain;
    }
}

#[derive(Debug)]
struct OpenRun {
    progress: watch::Sender<Progress>,
    correlation_id: Option<String>,
}

/// Open runs of one organization, by our id and by the provider's.
#[derive(Debug, Default)]
pub struct OrgState {
    open: HashMap<RunId, OpenRun>,
    by_correlation: HashMap<(EndpointId, String), RunId>,
    counts: OpenCounts,
}

/// What an actor says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrgSummary {
    /// What is open.
    pub open: OpenCounts,
    /// Runs somebody waits for.
    pub waited_for: usize,
}

impl OrgState {
    /// The state after a start: every open run of the store is known, nobody waits.
    pub fn restore(open_runs: Vec<Run>) -> Self {
        let mut state = Self::default();
        for run in open_runs {
            let correlation_id = run.provider_correlation_id.clone();
            let run_id = run.intent.id;
            let endpoint_id = run.intent.endpoint_id;
            let _ = state.register(Arc::new(run), true);
            if let Some(correlation_id) = correlation_id {
                state.note_correlation(run_id, endpoint_id, correlation_id);
            }
        }
        state
    }

    /// Registers a run before anything is sent, so that no answer can come too early.
    pub fn admit(&mut self, run: Arc<Run>) -> (Waiter, Vec<Effect>) {
        let acknowledged = run.outcome.status == RunStatus::AwaitingApproval;
        let waiter = self.register(run, acknowledged);
        (waiter, vec![self.gauges()])
    }

    fn register(&mut self, run: Arc<Run>, acknowledged: bool) -> Waiter {
        self.counts.add(OpenCounts::of(&run));
        let run_id = run.intent.id;
        let (progress, waiter) = watch::channel(Progress { run, acknowledged });
        self.open.insert(run_id, OpenRun { progress, correlation_id: None });
        waiter
    }

    /// Waits for an open run.
    pub fn watch(&self, run_id: RunId) -> Option<Waiter> {
        self.open.get(&run_id).map(|open| open.progress.subscribe())
    }

    /// The provider accepted a run, perhaps under its own id, or what became of it is being looked for.
    pub fn accepted(&mut self, run: Arc<Run>) -> Vec<Effect> {
        let (run_id, endpoint_id) = (run.intent.id, run.intent.endpoint_id);
        let correlation_id = run.provider_correlation_id.clone();
        let effects = self.progress(run, true);
        if let Some(correlation_id) = correlation_id {
            self.note_correlation(run_id, endpoint_id, correlation_id);
        }
        effects
    }

    /// A held run was approved: it goes on.
    pub fn released(&mut self, run: Arc<Run>) -> Vec<Effect> {
        self.progress(run, false)
    }

    fn progress(&mut self, run: Arc<Run>, acknowledged: bool) -> Vec<Effect> {
        let Some(open) = self.open.get(&run.intent.id) else { return Vec::new() };
        self.counts.remove(OpenCounts::of(&open.progress.borrow().run));
        self.counts.add(OpenCounts::of(&run));
        // Told in the turn itself: the next turn reads the run from here.
        open.progress.send_replace(Progress { run, acknowledged });
        vec![self.gauges()]
    }

    fn note_correlation(&mut self, run_id: RunId, endpoint_id: EndpointId, correlation_id: String) {
        if let Some(open) = self.open.get_mut(&run_id) {
            open.correlation_id = Some(correlation_id.clone());
            // A provider that uses one id twice has its first run matched, as the store does.
            self.by_correlation.entry((endpoint_id, correlation_id)).or_insert(run_id);
        }
    }

    /// A run has become final: it leaves, and whoever waits is told.
    pub fn settled(&mut self, run: Arc<Run>) -> Vec<Effect> {
        let Some(open) = self.open.remove(&run.intent.id) else { return Vec::new() };
        self.counts.remove(OpenCounts::of(&open.progress.borrow().run));
        if let Some(correlation_id) = open.correlation_id {
            let key = (run.intent.endpoint_id, correlation_id);
            if self.by_correlation.get(&key) == Some(&run.intent.id) {
                self.by_correlation.remove(&key);
            }
        }
        vec![Effect::Wake(open.progress, Progress { run, acknowledged: true }), self.gauges()]
    }

    /// Ends everything that is open: its organization was deleted.
    pub fn cancel_all(&mut self, at: Timestamp) -> Vec<Effect> {
        let open: Vec<Arc<Run>> = self.open.values().map(|open| Arc::clone(&open.progress.borrow().run)).collect();
        let ended = |run: Arc<Run>| {
            let mut run = Arc::unwrap_or_clone(run);
            let status = run.status_once_deleted();
            run.outcome = RunOutcome::ended(status, run.outcome.started, "organization_deleted");
            run.updated_at = at;
            run.finished_at = Some(at);
            Arc::new(run)
        };
        open.into_iter().flat_map(|run| self.settled(ended(run))).collect()
    }

    /// The open run of `endpoint` that a callback means: ours first, then the provider's own id.
    pub fn matching(
        &self,
        endpoint: EndpointId,
        request_id: Option<RunId>,
        correlation_id: Option<&str>,
    ) -> Option<Arc<Run>> {
        let by_ours = request_id.filter(|id| self.run(*id).is_some_and(|run| run.intent.endpoint_id == endpoint));
        let run_id = by_ours.or_else(|| {
            let key = (endpoint, correlation_id?.to_owned());
            self.by_correlation.get(&key).copied()
        })?;
        self.run(run_id)
    }

    /// An open run.
    pub fn run(&self, run_id: RunId) -> Option<Arc<Run>> {
        self.open.get(&run_id).map(|open| Arc::clone(&open.progress.borrow().run))
    }

    /// What this organization has open.
    pub fn summary(&self) -> OrgSummary {
        OrgSummary {
            open: self.counts,
            waited_for: self.open.values().filter(|open| open.progress.receiver_count() > 0).count(),
        }
    }

    /// How many runs are open.
    pub const fn gauges(&self) -> Effect {
        Effect::Gauges(self.counts)
    }
}
