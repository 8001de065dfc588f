//! Listening to servers that announce changes of their tools: one stream for each server that offers it, as long as its
//! organization lives on this node.
//!
//! What is announced while nobody listens is found by the next sync; nothing hangs on a stream.

use super::Server;
use super::asked::Asked;
use super::deadline::Deadline;
use super::dialogues::Party;
use super::exchange::{Listening, is_event_stream};
use super::held::HeldDialogue;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::sse::SseReader;
use crate::dialects::mcp::{self, Dialogue, words};
use crate::domain::endpoint::SharedEndpoint;
use crate::domain::ids::{EndpointId, OrgId};
use crate::domain::org::OrgState;
use crate::domain::tool::Dialect;
use crate::engine::Engine;
use crate::engine::catalog::Catalog;
use crate::engine::ports::OpenAnswer;
use dashmap::DashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

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

/// A stream on which more bytes than this come between two looks is no stream of announcements, and is left.
const MAX_BYTES_A_LOOK: usize = 1 << 20;

/// Who is listened to on this node.
#[derive(Default)]
pub(in crate::engine) struct Listeners(DashMap<EndpointId, Listener>);

/// One server that is listened to, or that was found to offer nothing.
struct Listener {
    org: OrgId,
    dialogue: Spoken,
    task: AbortHandle,
}

/// How a server is spoken with: another way is another server, which may offer what the first one does not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spoken {
    /// The version of its settings.
    version: u64,
    /// The revision it answers in.
    protocol_version: Option<String>,
}

impl Spoken {
    fn with(endpoint: &SharedEndpoint) -> Self {
        Self { version: endpoint.version, protocol_version: endpoint.sync.protocol_version.clone() }
    }
}

/// Why a stream ended.
enum End {
    /// The server offers none.
    NotOffered,
    /// It broke, or could not be opened.
    Broken,
    /// There is nothing at the address, or the session is gone.
    NotFound,
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

    /// Listens no more to an endpoint that is gone.
    pub(in crate::engine) fn forget_listener(&self, endpoint: EndpointId) {
        if let Some((_, listener)) = self.0.listeners.0.remove(&endpoint) {
            listener.task.abort();
        }
    }

    /// Begins to listen to every server of a live organization that nobody listens to yet, and leaves those that are not
    /// wanted any more.
    pub(in crate::engine) fn keep_listening(&self, org: OrgId) {
        let Some(catalog) = self.0.registry.live(org).map(|handle| handle.catalog()) else { return };
        self.0.listeners.0.retain(|id, listener| {
            let is_on = |endpoint: &SharedEndpoint| catalog.org.state == OrgState::Active && endpoint.settings.enabled;
            let wanted = listener.org != org || catalog.endpoint(*id).is_some_and(is_on);
            if !wanted {
                listener.task.abort();
            }
            wanted
        });
        let active = catalog.org.state == OrgState::Active;
        for endpoint in catalog.endpoints().filter(|endpoint| active && is_heard(endpoint)) {
            let (id, dialogue) = (endpoint.id, Spoken::with(endpoint));
            // The entry is held until the listener is in its place, so that one that ends at once finds itself there.
            let entry = self.0.listeners.0.entry(id);
            if let dashmap::Entry::Occupied(known) = &entry {
                if known.get().dialogue == dialogue {
                    continue;
                }
                known.get().task.abort();
            }
            let task = tokio::spawn(self.clone().listen_to(org, id, dialogue.clone())).abort_handle();
            entry.insert(Listener { org, dialogue, task });
        }
    }

    async fn listen_to(self, org: OrgId, id: EndpointId, dialogue: Spoken) {
        let (mut pause, mut was_found) = (FIRST_PAUSE, true);
        while let Some((catalog, endpoint)) = self.still_wanted(org, id, &dialogue) {
            let begun = Instant::now();
            match self.hear_out(&catalog, &endpoint, was_found).await {
                // A server that is spoken with otherwise is asked again.
                End::NotOffered => return,
                // Not even in a session that was opened for it.
                End::NotFound if !was_found => return,
                End::NotFound => was_found = false,
                End::Unwanted => break,
                End::Broken => was_found = true,
            }
            pause = if begun.elapsed() > GOOD_STREAM { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            let jitter = Duration::from_millis(self.random_below(1 + pause.as_millis() as u64 / 4));
            tokio::select! {
                () = tokio::time::sleep(pause + jitter) => {}
                () = self.0.in_flight.stopped() => break,
            }
        }
        self.0.listeners.0.remove_if(&id, |_, known| known.dialogue == dialogue);
    }

    /// The endpoint as it is now, when it is still the one that was asked about and its organization lives here.
    fn still_wanted(&self, org: OrgId, id: EndpointId, dialogue: &Spoken) -> Option<(Arc<Catalog>, SharedEndpoint)> {
        let catalog = self.0.registry.live(org)?.catalog();
        let endpoint = catalog.endpoint(id).filter(|found| Spoken::with(found) == *dialogue && is_heard(found))?;
        let endpoint = Arc::clone(endpoint);
        Some((catalog, endpoint))
    }

    /// Listens to one stream until it ends. Where none was found the last time, the session was not the reason.
    async fn hear_out(&self, catalog: &Catalog, endpoint: &SharedEndpoint, was_found: bool) -> End {
        let server = Server {
            engine: self,
            org: &catalog.org.slug,
            egress: &catalog.egress,
            endpoint,
            max_answer_bytes: MAX_MESSAGE_BYTES,
        };
        let (dialogue, mut answer) = match server.open_stream(was_found).await {
            Ok(opened) => opened,
            Err(end) => return end,
        };
        let mut events = SseReader::new(MAX_MESSAGE_BYTES);
        let (mut look_at, mut bytes) = (Instant::now() + LOOK_EVERY, 0);
        loop {
            let chunk = tokio::select! {
                chunk = answer.body.chunk() => chunk,
                () = self.0.in_flight.stopped() => return End::Unwanted,
                // Whatever comes meanwhile: some servers send a sign of life more often than this.
                () = sleep_until(look_at) => {
                    (look_at, bytes) = (Instant::now() + LOOK_EVERY, 0);
                    match self.still_wanted(endpoint.org_id, endpoint.id, &Spoken::with(endpoint)) {
                        Some(_) => continue,
                        None => return End::Unwanted,
                    }
                }
            };
            let Ok(Some(chunk)) = chunk else { return End::Broken };
            bytes += chunk.len();
            if bytes > MAX_BYTES_A_LOOK {
                return End::Broken;
            }
            let fault = events.push(&chunk).err();
            for event in events.by_ref() {
                match heard(&event.data) {
                    News::Changed => self.tools_changed(endpoint),
                    News::NotOffered => return End::NotOffered,
                    News::Asked => server.answer_alone(&dialogue, &event.data).await,
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
    /// A server of the earlier era asks here whether anybody is there, and takes silence for an answer.
    async fn answer_alone(&self, dialogue: &Dialogue, message: &str) {
        let deadline = &Deadline::at(Instant::now() + OPENING);
        let id = self.engine.0.dialogues.next_id();
        let listening = Listening::alone(dialogue, id, deadline);
        let mut asked = Asked::default();
        self.take(message, &listening, &mut asked);
        asked.all().await;
    }

    async fn open_stream(&self, was_found: bool) -> Result<(Arc<HeldDialogue>, OpenAnswer), End> {
        let deadline = Instant::now() + OPENING;
        let is_legacy = self.endpoint.sync.protocol_version.as_deref().is_some_and(words::is_legacy);
        let dialogue = match is_legacy {
            true => self.dialogue(Party::default(), deadline).await.map_err(|_| End::Broken)?,
            false => Arc::new(HeldDialogue::modern()),
        };
        if matches!(**dialogue, Dialogue::Legacy { announces_changes: false, .. }) {
            return Err(End::NotOffered);
        }
        let id = self.engine.0.dialogues.next_id();
        let request = mcp::encode_listen(&self.endpoint.settings, &dialogue, id);
        let opened = self.engine.0.ports.transport.open(&request, self.egress, deadline).await;
        let answer = opened.map_err(|_| End::Broken)?;
        match answer.status {
            200 if is_event_stream(&answer) => Ok((dialogue, answer)),
            404 if is_legacy && dialogue.session_id().is_some() => {
                if was_found {
                    // Some servers have nothing to GET: that proves nothing of the session, which is given back.
                    self.forget(Party::default(), &dialogue, 400, deadline).await;
                }
                Err(End::NotFound)
            }
            // Whether it is the session that is wrong, the next call or sync finds out.
            400 if is_legacy => Err(End::Broken),
            // It may take the stream before for open still (409), or want better credentials soon.
            401 | 403 | 408 | 409 | 429 | 500.. => Err(End::Broken),
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
    /// The server wants to know something.
    Asked,
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
        Some(Message::Request { .. }) => News::Asked,
        Some(Message::Response { .. }) | None => News::Nothing,
    }
}

/// A server that was spoken with once, also one that is away at the moment.
fn is_heard(endpoint: &SharedEndpoint) -> bool {
    let settings = &endpoint.settings;
    settings.dialect == Dialect::Mcp && settings.enabled && endpoint.sync.protocol_version.is_some()
}
