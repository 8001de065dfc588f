//! What every behaviour is tested with: a whole gateway, an HTTP client, and providers that do as they are told.

pub(crate) mod agent_provider;
pub(crate) mod approvals;
pub(crate) mod binary;
pub(crate) mod client;
pub(crate) mod gate;
pub(crate) mod hook;
pub(crate) mod keep_alive;
pub(crate) mod manifests;
pub(crate) mod mcp;
pub(crate) mod mcp_server;
pub(crate) mod mcp_upstream;
pub(crate) mod node;
pub(crate) mod openapi;
pub(crate) mod prometheus;
pub(crate) mod provider;
pub(crate) mod raw;
pub(crate) mod tenant;

use std::time::{Duration, Instant};

/// How long something that happens in real time may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that other threads bring about.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
