//! The system's time and randomness.

use crate::domain::time::Timestamp;
use crate::engine::ports::Clock;
use async_trait::async_trait;
use rand::Rng as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Time as the machine tells it.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        // A generator of this thread, seeded by the operating system and seeded anew from time to time: every request
        // needs some bytes, and a system call for each would cost more than the bytes.
        rand::rng().fill_bytes(buffer);
    }

    fn new_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}
