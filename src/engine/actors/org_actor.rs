//! The shell around an organization's pure state: takes turns, carries out their effects, stops when a turn panics.

use crate::domain::approval::ApprovalState;
use crate::domain::operation::OperationState;
use crate::engine::org::{Effect, OrgState};
use crate::engine::ports::Metrics;
use actix::{Actor, ActorContext, Context, Handler, Message};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A step on the state.
type Act = Box<dyn FnOnce(&mut OrgState) -> Vec<Effect> + Send>;

/// One turn: a short step on the state that never waits.
pub(super) struct Turn {
    pub(super) act: Act,
    /// Counts the turn while it waits; dropped when it is taken, and when it never is.
    pub(super) queued: Queued,
}

/// One waiting turn in the counts of its actor and of the node.
pub(super) struct Queued {
    actor: Arc<AtomicUsize>,
    node: Arc<AtomicUsize>,
}

impl Queued {
    pub(super) fn count(actor: &Arc<AtomicUsize>, node: &Arc<AtomicUsize>) -> Self {
        actor.fetch_add(1, Ordering::Relaxed);
        node.fetch_add(1, Ordering::Relaxed);
        Self { actor: Arc::clone(actor), node: Arc::clone(node) }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.actor.fetch_sub(1, Ordering::Relaxed);
        self.node.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Message for Turn {
    type Result = ();
}

/// Leaves after the turns that are waiting.
pub(super) struct Leave;

impl Message for Leave {
    type Result = ();
}

pub(super) struct OrgActor {
    pub(super) state: OrgState,
    pub(super) slug: String,
    pub(super) metrics: Arc<dyn Metrics>,
    pub(super) mailbox_capacity: usize,
}

impl Actor for OrgActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(self.mailbox_capacity);
        let gauges = self.state.gauges();
        self.carry_out(gauges);
    }
}

impl Handler<Turn> for OrgActor {
    type Result = ();

    fn handle(&mut self, Turn { act, queued }: Turn, context: &mut Self::Context) {
        drop(queued);
        match catch_unwind(AssertUnwindSafe(|| act(&mut self.state))) {
            Ok(effects) => effects.into_iter().for_each(|effect| self.carry_out(effect)),
            Err(_) => {
                // The state may be half-changed: a fresh actor starts from the store.
                tracing::error!(org = %self.slug, "a turn panicked; the organization's actor restarts");
                context.terminate();
            }
        }
    }
}

impl Handler<Leave> for OrgActor {
    type Result = ();

    fn handle(&mut self, _: Leave, context: &mut Self::Context) {
        context.stop();
    }
}

impl OrgActor {
    fn carry_out(&self, effect: Effect) {
        match effect {
            Effect::Wake(waiters, progress) => {
                waiters.send_replace(progress);
            }
            Effect::Gauges(open) => {
                self.metrics.pending_runs(&self.slug, open.pending);
                self.metrics.approvals(&self.slug, ApprovalState::Open.as_str(), open.held);
                self.metrics.operations(&self.slug, OperationState::Sent.as_str(), open.sent);
                self.metrics.operations(&self.slug, OperationState::Uncertain.as_str(), open.uncertain);
            }
        }
    }
}
