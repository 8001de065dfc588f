//! How many of a kind each party holds open.

use dashmap::DashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// What is open, counted by party. A party that holds nothing is not remembered.
#[derive(Debug)]
pub(super) struct Tally<K: Eq + Hash>(Arc<DashMap<K, usize>>);

impl<K: Eq + Hash> Default for Tally<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash + Clone> Tally<K> {
    /// Counts one more of `party`, unless it holds `most` already.
    pub(super) fn enter(&self, party: K, most: usize) -> Option<Counted<K>> {
        let mut held = self.0.entry(party.clone()).or_default();
        if *held >= most {
            return None;
        }
        *held += 1;
        drop(held);
        Some(Counted { tally: Arc::clone(&self.0), party })
    }

    /// Whether `party` holds any.
    pub(super) fn holds(&self, party: &K) -> bool {
        self.0.contains_key(party)
    }
}

/// One that is open; dropped with it.
pub(super) struct Counted<K: Eq + Hash> {
    tally: Arc<DashMap<K, usize>>,
    party: K,
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        self.tally.remove_if_mut(&self.party, |_, held| {
            *held -= 1;
            *held == 0
        });
    }
}

impl<K: Eq + Hash> fmt::Debug for Counted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_holds_no_more_than_it_may() {
        let tally = Tally::default();
        let first = tally.enter("acme", 2).expect("the first");
        let second = tally.enter("acme", 2).expect("the second");
        assert!(tally.enter("acme", 2).is_none(), "one too many");
        assert!(tally.enter("other", 2).is_some(), "each party by itself");
        drop(first);
        assert!(tally.enter("acme", 2).is_some(), "there is room again");
        drop(second);
        assert!(!tally.holds(&"acme"));
        assert!(tally.0.is_empty(), "nobody is remembered");
    }
}
