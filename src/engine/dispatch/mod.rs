//! Attempts: signed, within one deadline, behind a gate.

pub mod breaker;
pub mod call;
pub mod gate;
pub(in crate::engine) mod hook;
pub(in crate::engine) mod plan;
pub mod signing;
pub(in crate::engine) mod way;

use crate::dialects::OutboundRequest;
use crate::domain::endpoint::EndpointAuth;
use crate::domain::time::Timestamp;
use crate::engine::Engine;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// Signs a request that is about to leave, where its dialect signs: the signature holds the time.
pub(in crate::engine) fn sign_if_wanted(request: &mut OutboundRequest, auth: &EndpointAuth, now: Timestamp) {
    if !request.median_signature {
        return;
    }
    if let Some(secret) = signing::median_secret(auth) {
        let signature = signing::median_signature(&secret, now, &request.body);
        request.headers.push((Cow::Borrowed("median-signature"), signature));
    }
}

/// Answers up to this size are read where they came in: that takes no longer than reading them from the network did.
const READ_IN_PLACE_BYTES: usize = 64 << 10;

impl Engine {
    /// Reads an answer. A large one is read beside the event loops and one at a time, so that whoever's provider sends
    /// many of them slows down nothing but large answers.
    pub(in crate::engine) async fn read_answer<T: Send + 'static>(
        &self,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes <= READ_IN_PLACE_BYTES {
            return read();
        }
        let _one = self.0.reading.acquire().await.expect("the right to read is never taken away");
        let done = tokio::task::spawn_blocking(read).await;
        done.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
    }

    /// A jittered pause before the next attempt; false when the deadline leaves no room for it.
    pub(in crate::engine) async fn pause(&self, attempt: u32, deadline: Instant) -> bool {
        let pause = Duration::from_millis(u64::from(100 * attempt) + self.random_below(100 * u64::from(attempt)));
        let until = Instant::now() + pause;
        if until >= deadline {
            return false;
        }
        tokio::time::sleep_until(until).await;
        true
    }
}
