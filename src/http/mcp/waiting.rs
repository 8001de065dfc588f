//! Runs that are not over when they could be answered, and clients that go away meanwhile.
//!
//! A client of the earlier era that goes away leaves its call to its end. One of the present era takes back what was not
//! sent yet; what was sent is cut off only where it just reads.

use super::McpState;
use super::channel::CallChannel;
use super::stream::Going;
use super::tally::Counted;
use crate::domain::ids::RunId;
use crate::domain::run::{Run, RunStatus};
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use crate::engine::run::{RunRefusal, RunReply};
use futures_util::future::BoxFuture;
use moka::sync::Cache;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Runs that are remembered as told of, and for how long: nothing is held longer.
const MOST_TOLD: u64 = 100_000;
const TOLD_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often a client that waits for a run is told that it still goes on.
const TICK: Duration = Duration::from_secs(5);

/// A run that nobody tells of is looked at again so soon.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Waits for an open run until then, and as much longer as people took to answer questions of its server; answers it as
/// it stands.
pub(super) async fn until_over(
    engine: &Engine,
    access: &AgentAccess,
    mut run: Arc<Run>,
    channel: &CallChannel,
    until: Instant,
) -> Arc<Run> {
    let mut ticks = 0;
    let mut next_tick = Instant::now() + TICK;
    while run.outcome.status.is_open() {
        let until = until + channel.time_of_people();
        if Instant::now() >= until {
            break;
        }
        let (asked, seen) = (Instant::now(), run.outcome.status);
        let wait = next_tick.min(until).saturating_duration_since(asked);
        let found = tokio::select! {
            found = engine.agent_run(access, run.intent.id, Some(wait)) => found,
            // What waits for a callback or a person does not end within a stop.
            () = engine.stopped() => return run,
        };
        // A run that was there and cannot be read now is told of as it was.
        let Ok(found) = found else { return run };
        run = found;
        if Instant::now() >= next_tick {
            ticks += 1;
            next_tick += TICK;
            channel.tick(ticks, status_message(&run));
        } else if run.outcome.status == seen {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }
    run
}

/// What is told of a run that goes on.
pub(super) fn status_message(run: &Run) -> &'static str {
    match run.outcome.status {
        RunStatus::AwaitingApproval => "waiting for a person's approval; nothing was sent yet",
        RunStatus::Pending if !run.outcome.started => "about to be sent",
        RunStatus::Inspecting => "something was sent, and its outcome is being looked for",
        RunStatus::Pending
        | RunStatus::Started
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Uncertain => "the tool is at work",
    }
}

/// Runs that were answered as going on: whoever was told of one may come back for it, though nobody waits.
pub(super) struct Told(Cache<RunId, ()>);

impl Default for Told {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(MOST_TOLD).time_to_live(TOLD_FOR).build())
    }
}

impl McpState {
    /// Somebody is answered with this run, which may go on.
    pub(in crate::http) fn note_told(&self, run: &Run) {
        if run.outcome.status.is_open() {
            self.told.0.insert(run.intent.id, ());
        }
    }
}

/// Cancels a run of which nothing was sent and for which nobody waits or comes back. One with an `Idempotency-Key` stays:
/// its client may come back with the key.
async fn give_up(state: &McpState, engine: &Engine, access: &AgentAccess, id: RunId) {
    if state.waiters.holds(&id) || state.told.0.contains_key(&id) {
        return;
    }
    // Whatever cannot be looked at now ends by its own time.
    let found = engine.agent_run(access, id, None).await;
    let Some(run) = found.ok().filter(|run| !run.intent.keyed) else { return };
    let nothing_was_sent = match run.outcome.status {
        RunStatus::AwaitingApproval => true,
        RunStatus::Pending => !run.outcome.started,
        RunStatus::Started
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Inspecting
        | RunStatus::Uncertain => false,
    };
    if nothing_was_sent {
        let _ = engine.cancel_run(access, id).await;
    }
}

/// Works in a task of its own, if there is a runtime left to work in.
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(work);
    }
}

/// Cancels what was not sent, unless somebody waits to the end.
pub(super) struct GivenUpOnDrop {
    state: Arc<McpState>,
    id: RunId,
    waiter: Option<Counted<RunId>>,
    left_by: Option<(Engine, AgentAccess)>,
}

impl GivenUpOnDrop {
    pub(super) fn new(state: &Arc<McpState>, engine: &Engine, access: &AgentAccess, run: &Run) -> Self {
        let id = run.intent.id;
        let waiter = state.waiters.enter(id, usize::MAX);
        Self { state: Arc::clone(state), id, waiter, left_by: Some((engine.clone(), access.clone())) }
    }

    /// It was waited for.
    pub(super) fn done(mut self) {
        self.left_by = None;
    }
}

impl Drop for GivenUpOnDrop {
    fn drop(&mut self) {
        let (state, id) = (Arc::clone(&self.state), self.id);
        // Whoever has gone does not wait.
        self.waiter = None;
        if let Some((engine, access)) = self.left_by.take() {
            spawn(async move { give_up(&state, &engine, &access, id).await });
        }
    }
}

/// A run being asked for that may turn out to be held: dropped meanwhile, it is asked for to the end and then given up.
pub(super) struct Asking {
    work: Option<BoxFuture<'static, Result<RunReply, RunRefusal>>>,
    state: Arc<McpState>,
    engine: Engine,
    access: AgentAccess,
}

impl Asking {
    pub(super) fn new(
        state: &Arc<McpState>,
        engine: &Engine,
        access: &AgentAccess,
        work: BoxFuture<'static, Result<RunReply, RunRefusal>>,
    ) -> Self {
        Self { work: Some(work), state: Arc::clone(state), engine: engine.clone(), access: access.clone() }
    }
}

impl Future for Asking {
    type Output = Result<RunReply, RunRefusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("a future is not polled after its end");
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let (state, engine, access) = (Arc::clone(&self.state), self.engine.clone(), self.access.clone());
            spawn(async move {
                if let Ok(RunReply::Run(run)) = work.await {
                    give_up(&state, &engine, &access, run.intent.id).await;
                }
            });
        }
    }
}

/// A call of the earlier era: it goes on when nobody reads its answer any more, and asks nobody then.
pub(super) struct Detached {
    going: Option<Going>,
    channel: Arc<CallChannel>,
}

impl Detached {
    pub(super) fn new(going: Going, channel: &Arc<CallChannel>) -> Self {
        Self { going: Some(going), channel: Arc::clone(channel) }
    }
}

impl Future for Detached {
    type Output = Option<super::reply::Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let going = self.going.as_mut().expect("a future is not polled after its end");
        let polled = going.as_mut().poll(cx);
        if polled.is_ready() {
            self.going = None;
        }
        polled
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(going) = self.going.take() {
            self.channel.hang_up();
            spawn(async move {
                let _ = going.await;
            });
        }
    }
}

/// A call of the present era: when nobody reads its answer any more, nothing is sent of it that was not sent yet. One that
/// only reads is taken back at its server too; of anything else the outcome has to be known once it was sent.
pub(super) struct LeftOnDrop {
    channel: Option<Arc<CallChannel>>,
    only_reads: bool,
}

impl LeftOnDrop {
    pub(super) fn new(channel: &Arc<CallChannel>, only_reads: bool) -> Self {
        Self { channel: Some(Arc::clone(channel)), only_reads }
    }

    /// It was waited for.
    pub(super) fn done(mut self) {
        self.channel = None;
    }
}

impl Drop for LeftOnDrop {
    fn drop(&mut self) {
        match self.channel.take() {
            Some(channel) if self.only_reads => channel.cancel(),
            Some(channel) => channel.withdraw(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::mcp::caller::McpChannel;
    use futures_util::FutureExt;

    #[test]
    fn what_was_not_sent_of_a_call_ends_with_its_client() {
        let left = |only_reads: bool, is_done: bool| {
            let channel = CallChannel::new(None, None);
            let guard = LeftOnDrop::new(&channel, only_reads);
            if is_done {
                guard.done()
            } else {
                drop(guard)
            }
            (channel.is_withdrawn(), channel.cancelled().now_or_never().is_some())
        };
        assert_eq!(left(false, false), (true, false), "what was sent goes on");
        assert_eq!(left(true, false), (true, true), "unless it only reads");
        assert_eq!((left(false, true), left(true, true)), ((false, false), (false, false)));
    }
}
