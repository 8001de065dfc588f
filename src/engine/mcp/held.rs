//! A dialogue that is held, and its session given back to the server when nobody holds it any more: a server keeps a
//! session for as long as it is not told that nobody wants it.

use super::Server;
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::{self, Dialogue};
use crate::domain::egress::EgressPolicy;
use crate::engine::ports::Transport;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Time for a server to take a session back.
const ENDING: Duration = Duration::from_secs(5);

/// Longest answer to that, in bytes; nothing in it is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// A dialogue, and how it is ended.
pub(in crate::engine) struct HeldDialogue {
    dialogue: Dialogue,
    ending: Option<Ending>,
    /// The server does not know the session any more.
    is_forgotten: AtomicBool,
}

/// All that it takes to end a dialogue; its endpoint may be gone by then.
struct Ending {
    request: OutboundRequest,
    egress: EgressPolicy,
    transport: Arc<dyn Transport>,
    /// The right to do so: an endpoint with thousands of sessions is not told of all at once.
    turns: Arc<Semaphore>,
}

impl HeldDialogue {
    /// The dialogue with a server that keeps none.
    pub(super) fn modern() -> Self {
        Self { dialogue: Dialogue::Modern, ending: None, is_forgotten: AtomicBool::new(false) }
    }

    /// A dialogue that `server` has opened.
    pub(super) fn opened(dialogue: Dialogue, server: &Server<'_>) -> Self {
        let request = mcp::encode_end_session(&server.endpoint.settings, &dialogue);
        let ending = request.map(|request| Ending {
            request,
            egress: server.egress.clone(),
            transport: Arc::clone(&server.engine.0.ports.transport),
            turns: server.engine.0.dialogues.endings(server.endpoint.id),
        });
        Self { dialogue, ending, is_forgotten: AtomicBool::new(false) }
    }

    /// There is no session to give back any more.
    pub(super) fn mark_forgotten(&self) {
        self.is_forgotten.store(true, Ordering::Relaxed);
    }

    /// Gives the session back, and waits until the server has taken it.
    pub(super) async fn end(mut self) {
        if let Some(ending) = self.take_ending() {
            ending.send().await;
        }
    }

    fn take_ending(&mut self) -> Option<Ending> {
        self.ending.take().filter(|_| !*self.is_forgotten.get_mut())
    }
}

impl Drop for HeldDialogue {
    fn drop(&mut self) {
        // Outside a runtime, or in one that ends, the session is left to the server's own patience.
        if let (Some(ending), Ok(runtime)) = (self.take_ending(), Handle::try_current()) {
            runtime.spawn(ending.send());
        }
    }
}

impl Deref for HeldDialogue {
    type Target = Dialogue;

    fn deref(&self) -> &Dialogue {
        &self.dialogue
    }
}

impl Ending {
    async fn send(self) {
        // One whose turn does not come in time is left to the server's own patience, so that no queue grows for ever.
        let Ok(Ok(_turn)) = timeout(ENDING, self.turns.acquire()).await else { return };
        let deadline = Instant::now() + ENDING;
        // It is a courtesy, which a server may refuse (405): whether it arrives changes nothing.
        let _ = self.transport.send(&self.request, &self.egress, MAX_ANSWER_BYTES, deadline).await;
    }
}
