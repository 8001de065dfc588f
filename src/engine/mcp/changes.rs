//! A server announces that its tools have changed: they are synced at once, and a server that announces without end is
//! synced now and then.

use crate::domain::endpoint::Endpoint;
use crate::domain::ids::EndpointId;
use crate::domain::manifest::SyncTrigger;
use crate::engine::Engine;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// So many announcements of one server are followed at once, and one more each time the gap has passed.
const BURST: u32 = 8;
const GAP: Duration = Duration::from_secs(5);

/// What was announced a short while ago.
#[derive(Default)]
pub(in crate::engine) struct Announced(DashMap<EndpointId, Noted>);

struct Noted {
    /// When all that was followed so far would have been, one a gap.
    paid_until: Instant,
    /// A sync waits for its time.
    is_waiting: bool,
}

impl Announced {
    /// How long to wait before the sync this announcement asks for; `None` when one is waiting already.
    fn note(&self, endpoint: EndpointId, now: Instant) -> Option<Duration> {
        self.0.retain(|_, noted| noted.is_waiting || noted.paid_until > now);
        let mut noted = self.0.entry(endpoint).or_insert(Noted { paid_until: now, is_waiting: false });
        if noted.is_waiting {
            return None;
        }
        let ahead = noted.paid_until.max(now) + GAP;
        noted.paid_until = ahead;
        let pause = ahead.saturating_duration_since(now + GAP * BURST);
        noted.is_waiting = !pause.is_zero();
        Some(pause)
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
            // A sync that is under way may have read what was before.
            engine.sync_under_way(id).await;
            // It leaves its own record, and its failure is told there.
            let _ = engine.sync_endpoint(org, id, SyncTrigger::ListChanged).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_announcements_count_at_once_and_a_flood_once_a_gap() {
        let (announced, id) = (Announced::default(), EndpointId::from_uuid(uuid::Uuid::nil()));
        let begun = Instant::now();
        for _ in 0..BURST {
            assert_eq!(announced.note(id, begun), Some(Duration::ZERO));
        }
        let soon = begun + Duration::from_secs(1);
        assert_eq!(announced.note(id, soon), Some(GAP - Duration::from_secs(1)));
        assert_eq!(announced.note(id, soon), None, "one is waiting");
        announced.done_waiting(id);
        assert_eq!(announced.note(id, begun + GAP), Some(GAP));
        announced.done_waiting(id);
        let later = begun + GAP * (BURST + 2);
        assert_eq!(announced.note(id, later), Some(Duration::ZERO));
        assert_eq!(announced.0.len(), 1);
        let other = EndpointId::from_uuid(uuid::Uuid::max());
        assert_eq!(announced.note(other, later + GAP), Some(Duration::ZERO));
        assert_eq!(announced.0.len(), 1, "what is paid is forgotten");
    }
}
