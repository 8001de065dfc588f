//! The fixed set of threads that organization actors run on, chosen by hash of the organization.
//!
//! actix ends an arbiter's thread when an actor on it panics (actix#204). Turns are caught, so that should never happen;
//! if it does all the same, [`Arbiters::replace_dead`] puts a new thread in the dead one's place.

use crate::domain::ids::OrgId;
use actix::{Actor, Addr, Arbiter, Context};
use arc_swap::ArcSwap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

pub(super) struct Arbiters {
    threads: Vec<ArcSwap<Arbiter>>,
}

impl Arbiters {
    /// Starts `count` threads; needs a running actix `System`.
    pub(super) fn start(count: usize) -> Self {
        Self { threads: (0..count.max(1)).map(|_| ArcSwap::from_pointee(Arbiter::new())).collect() }
    }

    /// Starts an actor on the organization's thread, or on the next one that is alive.
    pub(super) fn start_actor<A>(&self, org: OrgId, make: impl FnOnce(&mut Context<A>) -> A + Send + 'static) -> Addr<A>
    where
        A: Actor<Context = Context<A>>,
    {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(org);
        let home = hash as usize % self.threads.len();
        let alive = (0..self.threads.len())
            .map(|step| self.threads[(home + step) % self.threads.len()].load_full())
            .find(|arbiter| is_alive(arbiter))
            .unwrap_or_else(|| self.threads[home].load_full());
        A::start_in_arbiter(&alive.handle(), make)
    }

    /// Replaces threads that have ended; call it from the system's own thread. Answers how many.
    pub(super) fn replace_dead(&self) -> usize {
        let dead = self.threads.iter().filter(|thread| !is_alive(&thread.load_full()));
        dead.map(|thread| thread.store(std::sync::Arc::new(Arbiter::new()))).count()
    }

    /// Ends every thread.
    pub(super) fn stop(&self) {
        for thread in &self.threads {
            thread.load().stop();
        }
    }

    #[cfg(test)]
    pub(super) fn stop_thread_of(&self, org: OrgId) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(org);
        self.threads[hash as usize % self.threads.len()].load().stop();
    }
}

fn is_alive(arbiter: &Arbiter) -> bool {
    arbiter.spawn(std::future::ready(()))
}
