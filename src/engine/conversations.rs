//! Conversations seen on this node: the first sight of one makes endpoints sync that ask for it.

use crate::domain::ids::OrgId;
use moka::sync::Cache;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A conversation is new again after this long.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);

pub(super) struct Conversations {
    /// By hash: the id itself is the agent's business.
    seen: Cache<(OrgId, u64), ()>,
    hasher: RandomState,
}

impl Conversations {
    pub(super) fn new(most: u64) -> Self {
        let seen = Cache::builder().max_capacity(most).time_to_live(REMEMBERED_FOR).build();
        Self { seen, hasher: RandomState::new() }
    }

    /// Whether this is the first sight of the conversation; of many at once, one is first.
    pub(super) fn is_new(&self, org: OrgId, conversation: &str) -> bool {
        let key = (org, self.hasher.hash_one(conversation));
        self.seen.entry(key).or_insert(()).is_fresh()
    }
}
