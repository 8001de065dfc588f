//! Turns to edit an organization: who reads, decides and writes on this node does so one after the other.
//!
//! The store compares versions and has the last word, also between nodes; taking turns only keeps twenty edits at once
//! from overtaking each other until some of them give up.

use crate::domain::ids::OrgId;
use dashmap::DashMap;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard};

#[derive(Default)]
pub(super) struct Turns {
    waiting: DashMap<OrgId, Arc<Mutex<()>>>,
}

/// A turn; dropping it lets the next one have theirs.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    org: OrgId,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for a turn.
    pub(super) async fn take(&self, org: OrgId) -> Turn<'_> {
        let line = Arc::clone(&self.waiting.entry(org).or_default());
        Turn { turns: self, org, held: Some(line.lock_owned().await) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        // Nobody waits when only the table knows the line.
        self.turns.waiting.remove_if(&self.org, |_, line| Arc::strong_count(line) == 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn one_at_a_time_and_nothing_is_left_behind() {
        let turns = Arc::new(Turns::default());
        let inside = Arc::new(AtomicUsize::new(0));
        let org = OrgId::from_uuid(uuid::Uuid::nil());
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (turns, inside) = (Arc::clone(&turns), Arc::clone(&inside));
                tokio::spawn(async move {
                    let _turn = turns.take(org).await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert!(turns.waiting.is_empty());
    }
}
