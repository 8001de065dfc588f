//! Dialogues with servers of the earlier era: opened once, shared by all calls of an endpoint, and opened anew when a
//! server has forgotten its session. A call whose client can be asked is made in a session for that client alone: what
//! the server asks there, on whichever stream, is asked of nobody else.

use super::Server;
use super::deadline::Deadline;
use super::exchange::{Listening, Unheard};
use super::held::HeldDialogue;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::{self, Dialogue, Opened, words};
use crate::domain::ids::EndpointId;
use crate::domain::json::JsonText;
use crate::engine::Engine;
use crate::engine::ports::{TransportError, TransportFault};
use futures_util::future::join_all;
use moka::sync::Cache;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Dialogues kept on this node, and how long an unused one is.
const MAX_DIALOGUES: u64 = 10_000;
const KEPT_FOR: Duration = Duration::from_secs(30 * 60);

/// Dialogues of one endpoint that are ended at once, and how long the end of all may take when the node stops.
const ENDED_AT_ONCE: usize = 16;
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// What a client can do that a server may ask of it, as far as toolgate hands questions on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Abilities {
    elicitation: bool,
    sampling: bool,
    roots: bool,
}

impl Abilities {
    /// The abilities among a client's capabilities, a JSON object.
    pub(in crate::engine) fn among(capabilities: &JsonText) -> Self {
        let said: Map<String, Value> = serde_json::from_str(capabilities.as_str()).unwrap_or_default();
        let has = |name: &str| said.get(name).is_some_and(Value::is_object);
        // A server of the earlier era that may ask asks with a form; an empty object means one too.
        let modes = said.get("elicitation").and_then(Value::as_object);
        let elicitation = modes.is_some_and(|modes| modes.is_empty() || modes.contains_key("form"));
        Self { elicitation, sampling: has("sampling"), roots: has("roots") }
    }

    /// Whether this may be asked: no other method of a client is open to a server.
    pub(super) fn allow(self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.elicitation,
            "sampling/createMessage" => self.sampling,
            "roots/list" => self.roots,
            _ => false,
        }
    }

    /// Whether there is anything to ask.
    pub(super) fn are_any(self) -> bool {
        self != Self::default()
    }

    fn capabilities(self) -> JsonText {
        let declared = [("elicitation", self.elicitation), ("sampling", self.sampling), ("roots", self.roots)];
        let declared = declared.into_iter().filter(|(_, can)| *can).map(|(name, _)| (name.to_owned(), json!({})));
        JsonText::of(&Value::Object(declared.collect()))
    }
}

/// For whom a dialogue is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Party {
    /// What the server may ask.
    pub(in crate::engine) abilities: Abilities,
    /// The client it may ask, by its own session.
    pub(in crate::engine) client: Option<[u8; 16]>,
}

/// Settings of another version are another server.
type Key = (EndpointId, u64, Party);

/// Where one dialogue is kept; its lock is held while it is opened.
type Slot = Arc<Mutex<Option<Arc<HeldDialogue>>>>;

/// The dialogues of this node.
pub(in crate::engine) struct Dialogues {
    slots: Cache<Key, Slot>,
    next_id: AtomicU64,
    /// The right to end one, for each endpoint: whoever does not take its own back holds up no other's.
    endings: Cache<EndpointId, Arc<Semaphore>>,
}

impl Default for Dialogues {
    fn default() -> Self {
        let slots = Cache::builder().max_capacity(MAX_DIALOGUES).time_to_idle(KEPT_FOR);
        // The cache itself drops what has left it at some later time.
        let slots = slots.eviction_listener(|_, slot: Slot, _| drop(slot.try_lock().map(|mut kept| kept.take())));
        let endings = Cache::builder().max_capacity(MAX_DIALOGUES).time_to_idle(KEPT_FOR).build();
        Self { slots: slots.build(), next_id: AtomicU64::new(1), endings }
    }
}

impl Dialogues {
    /// An id for a request that no other request of this node has.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The right to end dialogues with an endpoint.
    pub(super) fn endings(&self, endpoint: EndpointId) -> Arc<Semaphore> {
        self.endings.get_with(endpoint, || Arc::new(Semaphore::new(ENDED_AT_ONCE)))
    }

    /// Lets go of those that were unused for too long.
    pub(in crate::engine) fn sweep(&self) {
        self.slots.run_pending_tasks();
    }

    /// Lets go of those with an endpoint that has changed or is gone. Whoever is in a call ends it in the dialogue it has.
    pub(in crate::engine) fn let_go(&self, endpoint: EndpointId) {
        for (key, _) in self.slots.iter().filter(|(key, _)| key.0 == endpoint) {
            self.slots.invalidate(&*key);
        }
    }
}

impl Engine {
    /// Ends all dialogues, as far as their servers let it until then, and in a short time.
    pub(in crate::engine) async fn end_dialogues(&self, until: Instant) {
        let slots: Vec<Slot> = self.0.dialogues.slots.iter().map(|(_, slot)| slot).collect();
        // One that is still in use is given back by its user.
        let held = slots.iter().filter_map(|slot| slot.try_lock().ok()?.take().and_then(Arc::into_inner));
        let all = join_all(held.map(HeldDialogue::end));
        if timeout_at(until.min(Instant::now() + ENDED_WITHIN), all).await.is_err() {
            tracing::debug!("not all sessions could be given back to their MCP servers in time");
        }
    }
}

/// Why no dialogue could be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpeningFault {
    /// The exchange failed.
    Failed(TransportError),
    /// The server answered with this status and nothing of the protocol.
    Status(u16),
    /// The server refused to open with this JSON-RPC error.
    Refused(JsonText),
    /// The server chose a revision that is not spoken.
    Version,
    /// The client took its call back.
    Cancelled,
}

impl Server<'_> {
    /// The dialogue with a server of the earlier era, opened when there is none.
    pub(super) async fn dialogue(&self, party: Party, deadline: Instant) -> Result<Arc<HeldDialogue>, OpeningFault> {
        let key = (self.endpoint.id, self.endpoint.version, party);
        let slot = self.engine.0.dialogues.slots.get_with(key, Slot::default);
        let late = || OpeningFault::Failed(TransportError { kind: TransportFault::Timeout, bytes_sent: false });
        let mut kept = timeout_at(deadline, slot.lock()).await.map_err(|_| late())?;
        if let Some(dialogue) = &*kept {
            return Ok(Arc::clone(dialogue));
        }
        let dialogue = Arc::new(self.open_dialogue(party.abilities, deadline).await?);
        *kept = Some(Arc::clone(&dialogue));
        Ok(dialogue)
    }

    /// Opens another session next time. One that the server does not know any more (404) is not given back.
    pub(super) async fn forget(&self, party: Party, dialogue: &Arc<HeldDialogue>, status: u16, deadline: Instant) {
        if status == 404 {
            dialogue.mark_forgotten();
        }
        let key = (self.endpoint.id, self.endpoint.version, party);
        let Some(slot) = self.engine.0.dialogues.slots.get(&key) else { return };
        // Whoever holds it for long is opening the next one.
        let Ok(mut kept) = timeout_at(deadline, slot.lock()).await else { return };
        // Another call may have opened the next one already.
        if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, dialogue)) {
            *kept = None;
        }
    }

    async fn open_dialogue(&self, abilities: Abilities, until: Instant) -> Result<HeldDialogue, OpeningFault> {
        let deadline = &Deadline::at(until);
        let settings = &self.endpoint.settings;
        let id = self.engine.0.dialogues.next_id();
        let capabilities = abilities.capabilities();
        let request = mcp::encode_initialize(settings, id, capabilities.raw());
        // Nothing is agreed on yet, and nobody listens.
        let before = Dialogue::Legacy {
            version: words::LEGACY_VERSIONS[0].to_owned(),
            session_id: None,
            announces_changes: false,
        };
        let listening = Listening { opens: true, ..Listening::alone(&before, id, deadline) };
        let heard = self.ask(&request, &listening).await.map_err(opening_fault)?;
        let result = match rpc::parse(&heard.text) {
            Some(Message::Response { answer: Ok(result), .. }) if heard.status == 200 => result,
            Some(Message::Response { answer: Err(error), .. }) => {
                return Err(OpeningFault::Refused(JsonText::from(error.to_owned())));
            }
            Some(_) | None => return Err(OpeningFault::Status(heard.status)),
        };
        let opened = mcp::decode_opened(result);
        let spoken = opened.is_some();
        let Opened { version, announces_changes } = opened
            .unwrap_or_else(|| Opened { version: words::LEGACY_VERSIONS[0].to_owned(), announces_changes: false });
        let dialogue = Dialogue::Legacy { version, session_id: heard.session_id, announces_changes };
        // Whatever becomes of it, the server has opened a session.
        let dialogue = HeldDialogue::opened(dialogue, self);
        if !spoken {
            return Err(OpeningFault::Version);
        }
        let opened = mcp::encode_initialized(settings, &dialogue);
        // Nothing is said in answer that counts: some servers answer with a stream, and say nothing on it.
        let status = self.tell(&opened, until).await.map_err(OpeningFault::Failed)?;
        if matches!(status, 200..300) { Ok(dialogue) } else { Err(OpeningFault::Status(status)) }
    }
}

fn opening_fault(unheard: Unheard) -> OpeningFault {
    match unheard {
        Unheard::Failed(error) => OpeningFault::Failed(error),
        Unheard::Cancelled => OpeningFault::Cancelled,
    }
}

/// `initialize` is a method this server does not know, or one that it wants to have under another version.
pub(super) fn is_refusal_of_an_era(error: &RawValue) -> bool {
    let code = rpc::Error::read(error).map(|error| error.code);
    matches!(code, Some(words::METHOD_NOT_FOUND | words::UNSUPPORTED_VERSION | words::HEADER_MISMATCH))
}
