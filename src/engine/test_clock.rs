//! A clock that tests turn by hand.

use super::ports::Clock;
use crate::domain::time::Timestamp;
use async_trait::async_trait;
use rand::Rng as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// Stands still until it is advanced.
#[derive(Debug)]
pub struct TestClock {
    elapsed: watch::Sender<Duration>,
}

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

impl TestClock {
    /// A clock at the start of 2026.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { elapsed: watch::Sender::new(Duration::from_secs(1_000_000)) })
    }

    /// Lets time pass, waking whoever sleeps until then.
    pub fn advance(&self, by: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        START.plus(*self.elapsed.borrow())
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.borrow()
    }

    async fn sleep_until(&self, at: Timestamp) {
        let mut elapsed = self.elapsed.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = elapsed.wait_for(|elapsed| START.plus(*elapsed) >= at).await;
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        rand::rng().fill_bytes(buffer);
    }

    fn new_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}
