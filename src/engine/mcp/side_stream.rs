//! The stream beside a call: a server of the earlier era may ask there what it could have asked on the call's own.
//!
//! It is opened for calls whose client can be asked, in a session that is that client's alone.

use super::Server;
use super::asked::Asked;
use super::exchange::{Heard, Listening, Unheard, is_event_stream};
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::{self, sse::SseReader};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;

/// A call waits this long for the stream beside it: some servers do not say that it is open before they have something to
/// say on it.
const OPENING: Duration = Duration::from_millis(300);

impl Server<'_> {
    /// Sends a request and listens to its answer and to the stream beside it.
    pub(super) async fn ask_attending(
        &self,
        request: &OutboundRequest,
        listening: &Listening<'_>,
    ) -> Result<Heard, Unheard> {
        let (opened, open) = oneshot::channel();
        let mut attending = pin!(self.attend(listening, opened));
        let is_over = tokio::select! {
            biased;
            () = &mut attending => true,
            _ = open => false,
            () = tokio::time::sleep(OPENING) => false,
        };
        let mut asking = pin!(self.ask(request, listening));
        tokio::select! {
            heard = &mut asking => return heard,
            () = attending, if !is_over => {}
        }
        asking.await
    }

    /// Answers what is asked on the stream beside a call until it ends; at once where a server offers none.
    async fn attend(&self, listening: &Listening<'_>, opened: oneshot::Sender<()>) {
        let request = mcp::encode_resume(&self.endpoint.settings, listening.dialogue, None);
        let deadline = listening.deadline.instant();
        let Ok(mut answer) = self.engine.0.ports.transport.open(&request, self.egress, deadline).await else { return };
        if answer.status != 200 || !is_event_stream(&answer) {
            return;
        }
        // Whoever waits for it may have gone on without.
        let _ = opened.send(());
        let mut events = SseReader::new(self.max_answer_bytes);
        let (mut asked, mut read) = (Asked::default(), 0);
        while let Ok(Some(chunk)) = asked.meanwhile(answer.body.chunk()).await {
            read += chunk.len();
            let fault = events.push(&chunk).err();
            for event in events.by_ref() {
                // No response to the call comes here.
                self.take(&event.data, listening, &mut asked);
                asked.room().await;
            }
            if fault.is_some() || read > self.max_answer_bytes {
                break;
            }
        }
        // What was asked is answered without it.
        asked.all().await;
    }
}
