//! A server announces that its tools have changed: they are synced at once, and a server that announces without end is
//! synced now and then.

use crate::domain::endpoint::Endpoint;
use crate::domain::ids::EndpointId;
use crate::domain::manifest::SyncTrigger;
use crate::engine::Engine;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest time between two syncs that announcements make.
const SHORTEST_GAP: Duration = Duration::from_secs(5);

/// What was announced a short while ago.
#[derive(Default)]
pub(in crate::engine) struct Announced(DashMap<EndpointId, Noted>);

struct Noted {
    synced_at: Instant,
    /// A sync waits for the gap to pass.
    is_waiting: bool,
}

impl Announced {
    /// How long to wait before the sync this announcement asks for; `None` when one is waiting already.
    fn note(&self, endpoint: EndpointId, now: Instant) -> Option<Duration> {
        self.0.retain(|_, noted| noted.is_waiting || now.duration_since(noted.synced_at) < SHORTEST_GAP);
        let mut noted = match self.0.entry(endpoint) {
            dashmap::Entry::Vacant(entry) => {
                entry.insert(Noted { synced_at: now, is_waiting: false });
                return Some(Duration::ZERO);
            }
            dashmap::Entry::Occupied(entry) => entry.into_ref(),
        };
        if std::mem::replace(&mut noted.is_waiting, true) {
            return None;
        }
        noted.synced_at += SHORTEST_GAP;
        Some(noted.synced_at.saturating_duration_since(now))
    }

    fn done_waiting(&self, endpoint: EndpointId) {
        if let Some(mut noted) = self.0.get_mut(&endpoint) {
            noted.is_waiting = false;
        }
    }
}

impl Engine {
    /// Syncs an endpoint whose server says that its tools have changed.
    pub(in crate::engine) fn tools_changed(&self, endpoint: &Endpoint) {
        let (org, id) = (endpoint.org_id, endpoint.id);
        let Some(pause) = self.0.announced.note(id, Instant::now()) else { return };
        let engine = self.clone();
        tokio::spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
                engine.0.announced.done_waiting(id);
            }
            // It leaves its own record, and its failure is told there.
            let _ = engine.sync_endpoint(org, id, SyncTrigger::ListChanged).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_announcement_counts_at_once_and_a_flood_once_a_gap() {
        let (announced, id) = (Announced::default(), EndpointId::from_uuid(uuid::Uuid::nil()));
        let begun = Instant::now();
        assert_eq!(announced.note(id, begun), Some(Duration::ZERO));
        assert_eq!(announced.note(id, begun + Duration::from_secs(1)), Some(Duration::from_secs(4)));
        assert_eq!(announced.note(id, begun + Duration::from_secs(2)), None, "one is waiting");
        announced.done_waiting(id);
        assert_eq!(announced.note(id, begun + Duration::from_secs(6)), Some(Duration::from_secs(4)));
        announced.done_waiting(id);
        let later = begun + Duration::from_secs(60);
        assert_eq!(announced.note(id, later), Some(Duration::ZERO));
        assert_eq!(announced.0.len(), 1);
    }
}
