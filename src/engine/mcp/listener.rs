//! Listening to servers that announce changes of their tools: one stream for each server that offers it, as long as its
//! organization lives on this node.
//!
//! What is announced while nobody listens is found by the next sync; nothing hangs on a stream.

use super::Server;
use super::dialogues::Party;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::sse::SseReader;
use crate::dialects::mcp::{self, Dialogue, words};
use crate::domain::endpoint::{EndpointState, SharedEndpoint};
use crate::domain::ids::{EndpointId, OrgId};
use crate::domain::tool::Dialect;
use crate::engine::Engine;
use crate::engine::catalog::Catalog;
use crate::engine::ports::OpenAnswer;
use dashmap::DashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a stream may take to open.
const OPENING: Duration = Duration::from_secs(10);

/// How often a listener looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Pauses before a stream that broke is opened again: doubling from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// A stream that lasted this long was a good one.
const GOOD_STREAM: Duration = Duration::from_secs(60);

/// Longest message on a stream, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Who is listened to on this node, under which version of the settings.
#[derive(Default)]
pub(in crate::engine) struct Listeners(DashMap<EndpointId, u64>);

/// Why a stream ended.
enum End {
    /// The server offers none.
    NotOffered,
    /// It broke, or could not be opened.
    Broken,
    /// Nobody wants it any more.
    Unwanted,
}

impl Engine {
    /// Begins to listen once an organization has started.
    pub(in crate::engine) async fn begin_listening(self, org: OrgId) {
        // Whoever starts it holds its place until the start is over; of one that failed there is nothing to hear.
        if self.0.registry.get(org).await.is_ok() {
            self.keep_listening(org);
        }
    }

    /// Stops remembering an endpoint that is gone.
    pub(in crate::engine) fn forget_listener(&self, endpoint: EndpointId) {
        self.0.listeners.0.remove(&endpoint);
    }

    /// Begins to listen to every server of a live organization that nobody listens to yet.
    pub(in crate::engine) fn keep_listening(&self, org: OrgId) {
        let Some(catalog) = self.0.registry.live(org).map(|handle| handle.catalog()) else { return };
        for endpoint in catalog.endpoints().filter(|endpoint| is_heard(endpoint)) {
            let known = self.0.listeners.0.insert(endpoint.id, endpoint.version);
            if known != Some(endpoint.version) {
                tokio::spawn(self.clone().listen_to(org, endpoint.id, endpoint.version));
            }
        }
    }

    async fn listen_to(self, org: OrgId, id: EndpointId, version: u64) {
        let mut pause = FIRST_PAUSE;
        while let Some((catalog, endpoint)) = self.still_wanted(org, id, version) {
            let begun = Instant::now();
            match self.hear_out(&catalog, &endpoint).await {
                // Other settings, or a start of the organization, ask again.
                End::NotOffered => return,
                End::Unwanted => break,
                End::Broken => {}
            }
            pause = if begun.elapsed() > GOOD_STREAM { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            let jitter = Duration::from_millis(self.random_below(1 + pause.as_millis() as u64 / 4));
            tokio::select! {
                () = tokio::time::sleep(pause + jitter) => {}
                () = self.0.in_flight.stopped() => break,
            }
        }
        self.0.listeners.0.remove_if(&id, |_, known| *known == version);
    }

    /// The endpoint as it is now, when it is still the one that was asked about and its organization lives here.
    fn still_wanted(&self, org: OrgId, id: EndpointId, version: u64) -> Option<(Arc<Catalog>, SharedEndpoint)> {
        let catalog = self.0.registry.live(org)?.catalog();
        let endpoint = catalog.endpoint(id).filter(|endpoint| endpoint.version == version && is_heard(endpoint))?;
        let endpoint = Arc::clone(endpoint);
        Some((catalog, endpoint))
    }

    /// Listens to one stream until it ends.
    async fn hear_out(&self, catalog: &Catalog, endpoint: &SharedEndpoint) -> End {
        let server = Server {
            engine: self,
            org: &catalog.org.slug,
            egress: &catalog.egress,
            endpoint,
            max_answer_bytes: MAX_MESSAGE_BYTES,
        };
        let mut answer = match server.open_stream().await {
            Ok(answer) => answer,
            Err(end) => return end,
        };
        let mut events = SseReader::new(MAX_MESSAGE_BYTES);
        loop {
            let chunk = tokio::select! {
                chunk = answer.body.chunk() => chunk,
                () = self.0.in_flight.stopped() => return End::Unwanted,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    match self.still_wanted(endpoint.org_id, endpoint.id, endpoint.version) {
                        Some(_) => continue,
                        None => return End::Unwanted,
                    }
                }
            };
            let Ok(Some(chunk)) = chunk else { return End::Broken };
            let fault = events.push(&chunk).err();
            for event in events.by_ref() {
                match heard(&event.data) {
                    News::Changed => self.tools_changed(endpoint),
                    News::NotOffered => return End::NotOffered,
                    News::Nothing => {}
                }
            }
            if fault.is_some() {
                return End::Broken;
            }
        }
    }
}

impl Server<'_> {
    async fn open_stream(&self) -> Result<OpenAnswer, End> {
        let deadline = Instant::now() + OPENING;
        let is_legacy = self.endpoint.sync.protocol_version.as_deref().is_some_and(words::is_legacy);
        let dialogue = match is_legacy {
            true => self.dialogue(Party::default(), deadline).await.map_err(|_| End::Broken)?,
            false => Arc::new(Dialogue::Modern),
        };
        if matches!(&*dialogue, Dialogue::Legacy { announces_changes: false, .. }) {
            return Err(End::NotOffered);
        }
        let id = self.engine.0.dialogues.next_id();
        let request = mcp::encode_listen(&self.endpoint.settings, &dialogue, id);
        let opened = self.engine.0.ports.transport.open(&request, self.egress, deadline).await;
        let answer = opened.map_err(|_| End::Broken)?;
        let is_stream = answer.content_type.as_deref().is_some_and(|text| text.starts_with("text/event-stream"));
        match answer.status {
            200 if is_stream => Ok(answer),
            400 | 404 if is_legacy => {
                // The session is gone; the next stream opens a new one.
                self.forget(Party::default(), &dialogue).await;
                Err(End::Broken)
            }
            429 | 500.. => Err(End::Broken),
            // A modern server that offers none answers with an error, as JSON.
            _ => Err(End::NotOffered),
        }
    }
}

/// What a message on a stream tells.
enum News {
    Changed,
    /// The server acknowledges the stream without what was asked for.
    NotOffered,
    Nothing,
}

fn heard(message: &str) -> News {
    match rpc::parse(message) {
        Some(Message::Notification { method, params }) => match &*method {
            "notifications/tools/list_changed" => News::Changed,
            "notifications/subscriptions/acknowledged" if !mcp::acknowledges_tools(params) => News::NotOffered,
            _ => News::Nothing,
        },
        Some(Message::Response { answer: Err(_), .. }) => News::NotOffered,
        Some(Message::Response { .. } | Message::Request { .. }) | None => News::Nothing,
    }
}

fn is_heard(endpoint: &SharedEndpoint) -> bool {
    endpoint.settings.dialect == Dialect::Mcp && endpoint.state() == EndpointState::Connected
}
