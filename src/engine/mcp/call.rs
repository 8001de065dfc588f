//! A tool call to an MCP server, round by round, to its outcome.
//!
//! **Invariant:** a call is made again only when the server has said that it did not take it: it knew neither the session
//! nor the era it was called in. A plain read may also be made again where the server was not reached or not ready, or
//! where what it said can be read so. Nothing is sent of a call that was taken back, or to an endpoint that has changed.

use super::Server;
use super::caller::Questions;
use super::deadline::Deadline;
use super::dialogues::{Abilities, OpeningFault, Party, is_refusal_of_an_era};
use super::exchange::{Heard, Listening, Unheard};
use super::held::HeldDialogue;
use super::reading::{Reading, Step};
use super::round::McpPart;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::{self, Dialogue, ToolCall, words};
use crate::domain::endpoint::SharedEndpoint;
use crate::domain::error_code::ErrorCode;
use crate::domain::json::JsonText;
use crate::domain::org::OrgState;
use crate::domain::run::{Attempt, RunOutcome, RunStatus};
use crate::engine::catalog::CatalogTool;
use crate::engine::dispatch::way::{fault_code, http_outcome, is_connect_fault};
use crate::engine::ports::{TransportError, TransportFault};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Rounds of one call that are made without the agent calling again.
const MAX_ROUNDS: usize = 16;

/// A plain read is repeated at most so often.
const MAX_REPEATS: u32 = 2;

/// Characters of a refusal in which it says what it is about.
const LONGEST_SENTENCE: usize = 1000;

/// What is called, and how its client takes part.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Calling<'a> {
    pub(in crate::engine) tool: &'a Arc<CatalogTool>,
    /// Valid, coerced arguments.
    pub(in crate::engine) arguments: &'a JsonText,
    pub(in crate::engine) part: Option<&'a McpPart>,
    pub(in crate::engine) traceparent: Option<&'a str>,
}

/// How a call ended.
pub(in crate::engine) struct Called {
    pub(in crate::engine) outcome: RunOutcome,
    /// A result that breaks the tool's own output schema.
    pub(in crate::engine) withheld: Option<JsonText>,
    /// HTTP status of the last answer.
    pub(in crate::engine) status: u16,
}

/// Why a call brought no answer.
pub(in crate::engine) enum Lost {
    /// The exchange failed.
    Failed(TransportError),
    /// There is no dialogue to call in.
    Unopened {
        outcome: RunOutcome,
        /// What that says of the endpoint's health, if anything.
        ended: Option<Result<u16, TransportFault>>,
    },
    /// The client took its call back.
    Cancelled,
}

impl From<Unheard> for Lost {
    fn from(unheard: Unheard) -> Self {
        match unheard {
            Unheard::Failed(error) => Lost::Failed(error),
            Unheard::Cancelled => Lost::Cancelled,
        }
    }
}

impl From<OpeningFault> for Lost {
    fn from(fault: OpeningFault) -> Self {
        let failed = |ended, code, message: String| Lost::Unopened {
            outcome: RunOutcome::failed(false, code, message),
            ended: Some(ended),
        };
        let broken = |ended, message: String| failed(ended, ErrorCode::ProviderProtocolError, message);
        match fault {
            OpeningFault::Failed(error) => {
                let message = format!("no session could be opened: {}", error.kind);
                failed(Err(error.kind), fault_code(error.kind), message)
            }
            OpeningFault::Status(status @ (401 | 403)) => {
                let message = format!("the server refused the gateway's credentials (HTTP {status})");
                failed(Ok(status), ErrorCode::ProviderAuthFailed, message)
            }
            OpeningFault::Status(status) => {
                broken(Ok(status), format!("no session could be opened: the server answered HTTP {status}"))
            }
            OpeningFault::Refused(error) => {
                let said = rpc::Error::read(error.raw()).map(|error| error.message).unwrap_or_default();
                broken(Ok(200), format!("the server refused to open a session: {said}"))
            }
            OpeningFault::Version => {
                broken(Ok(200), "the server speaks no revision of the protocol that is known here".to_owned())
            }
            OpeningFault::Cancelled => Lost::Unopened {
                outcome: RunOutcome::ended(RunStatus::Cancelled, false, "cancelled_by_agent"),
                ended: None,
            },
        }
    }
}

impl Lost {
    /// The same of a call that was sent before, and not taken.
    fn after(self, attempts: &[Attempt]) -> Self {
        match self {
            Lost::Unopened { mut outcome, ended } => {
                outcome.started = attempts.iter().any(|attempt| attempt.http_status.is_some());
                Lost::Unopened { outcome, ended }
            }
            lost @ (Lost::Failed(_) | Lost::Cancelled) => lost,
        }
    }
}

/// What a round is made with beside the arguments.
#[derive(Default)]
struct Round {
    /// Answers to the server's questions, a JSON object.
    input_responses: Option<JsonText>,
    /// What the server gave with them.
    request_state: Option<String>,
}

/// What to do after an exchange.
enum Next {
    /// It stands.
    Done,
    /// The same call once more.
    Repeat,
    /// The same call, in a session opened anew.
    Reopen,
    /// The same call, in the earlier era.
    EarlierEra,
}

impl Calling<'_> {
    /// What the client can be asked, as it is told to the server with this call.
    fn capabilities(&self) -> JsonText {
        match self.part {
            Some(part) if part.caller.questions != Questions::None => part.caller.capabilities.clone(),
            Some(_) | None => JsonText::empty_object(),
        }
    }

    /// Whether nothing more is to be sent of the call.
    fn is_withdrawn(&self) -> bool {
        self.part.is_some_and(|part| part.caller.channel.is_withdrawn())
    }

    /// A server of the earlier era asks while the call goes on: only a client that is there can answer.
    fn party(&self) -> Party {
        match self.part.map(|part| &part.caller) {
            Some(caller) if caller.questions == Questions::Ask && caller.session.is_some() => {
                let abilities = Abilities::among(&caller.capabilities);
                Party { abilities, client: caller.session.filter(|_| abilities.are_any()) }
            }
            Some(_) | None => Party::default(),
        }
    }

    /// Without arguments from the agent, none are sent; the gateway has added none to an empty object.
    fn arguments(&self) -> Option<&JsonText> {
        let given = self.part.is_none_or(|part| part.caller.arguments_given);
        (given || self.arguments.as_str() != "{}").then_some(self.arguments)
    }

    fn next_after(&self, dialogue: &Dialogue, heard: &Result<Heard, Unheard>, reopened: bool) -> Next {
        let plain_read = self.tool.is_plain_read();
        match heard {
            Ok(heard) if !reopened && is_not_taken(heard, dialogue, plain_read) => match dialogue {
                Dialogue::Modern => Next::EarlierEra,
                Dialogue::Legacy { .. } => Next::Reopen,
            },
            Ok(heard) if plain_read && matches!(heard.status, 502..=504) => Next::Repeat,
            Err(Unheard::Failed(error)) if plain_read && !error.bytes_sent && is_connect_fault(error.kind) => {
                Next::Repeat
            }
            Ok(_) | Err(_) => Next::Done,
        }
    }
}

impl Server<'_> {
    /// Runs a tool. Every exchange is added to `attempts`.
    pub(in crate::engine) async fn call(
        &self,
        calling: Calling<'_>,
        attempts: &mut Vec<Attempt>,
    ) -> Result<Called, Lost> {
        if calling.is_withdrawn() {
            // Not even a session is opened for it.
            return Err(OpeningFault::Cancelled.into());
        }
        let deadline = &Deadline::at(Instant::now() + calling.tool.timeout);
        let mut round = Round {
            input_responses: calling.part.and_then(|part| part.caller.input_responses.clone()),
            request_state: calling.part.and_then(|part| part.server_state.clone()),
        };
        let mut status = 200;
        for _ in 0..MAX_ROUNDS {
            let heard = self.send_round(&calling, &round, deadline, attempts).await;
            let heard = heard.map_err(|lost| lost.after(attempts))?;
            status = heard.status;
            let reading = Reading {
                engine: self.engine.clone(),
                tool: Arc::clone(calling.tool),
                hands_on: calling.part.is_some_and(|part| part.caller.questions == Questions::HandOn),
            };
            match self.engine.read_answer(heard.text.len(), move || reading.of(&heard)).await {
                Step::Over { outcome, withheld } => return Ok(Called { outcome, withheld, status }),
                Step::Asked { questions, state } => {
                    let Some(input_responses) = self.answers(&calling, deadline, questions).await else {
                        return Ok(Called { outcome: mcp::cannot_ask(), withheld: None, status });
                    };
                    round = Round { input_responses, request_state: state };
                }
            }
        }
        let message = format!("the server asked {MAX_ROUNDS} times without coming to an end");
        let outcome = RunOutcome::failed(true, ErrorCode::ProviderProtocolError, message);
        Ok(Called { outcome, withheld: None, status })
    }

    /// Sends one round in the era the server speaks; in the other one, or in a new session, when that is what it says.
    async fn send_round(
        &self,
        calling: &Calling<'_>,
        round: &Round,
        deadline: &Deadline,
        attempts: &mut Vec<Attempt>,
    ) -> Result<Heard, Lost> {
        let party = calling.party();
        let mut dialogue = match self.endpoint.sync.protocol_version.as_deref() {
            Some(version) if words::is_legacy(version) => self.open_or_modern(party, deadline.instant()).await?,
            Some(_) | None => Arc::new(HeldDialogue::modern()),
        };
        let (mut reopened, mut repeats) = (false, 0);
        loop {
            if calling.is_withdrawn() {
                return Err(OpeningFault::Cancelled.into());
            }
            let heard = self.send_once(calling, round, &dialogue, deadline, attempts).await;
            let next = calling.next_after(&dialogue, &heard, reopened);
            if let (Dialogue::Legacy { .. }, Ok(heard)) = (&**dialogue, &heard)
                && doubts_the_session(heard)
            {
                self.forget(party, &dialogue, heard.status, deadline.instant()).await;
            }
            // What was taken away meanwhile is not called again.
            if !matches!(next, Next::Done) && !self.still_stands() {
                return heard.map_err(Lost::from);
            }
            match next {
                Next::Done => return heard.map_err(Lost::from),
                Next::Repeat => {
                    repeats += 1;
                    if repeats > MAX_REPEATS || !self.engine.pause(repeats, deadline.instant()).await {
                        return heard.map_err(Lost::from);
                    }
                }
                Next::Reopen => {
                    reopened = true;
                    let status = heard.map_or(400, |heard| heard.status);
                    self.forget(party, &dialogue, status, deadline.instant()).await;
                    dialogue = self.open_or_modern(party, deadline.instant()).await?;
                }
                Next::EarlierEra => {
                    reopened = true;
                    let Ok(opened) = self.dialogue(party, deadline.instant()).await else {
                        // It does not speak that one either: what it said first stands.
                        return heard.map_err(Lost::from);
                    };
                    // The next sync remembers it.
                    self.engine.tools_changed(self.endpoint);
                    dialogue = opened;
                }
            }
        }
    }

    /// Whether the endpoint is as it was when the call began, and may still be called.
    fn still_stands(&self) -> bool {
        let Some(org) = self.engine.0.registry.live(self.endpoint.org_id) else { return false };
        let catalog = org.catalog();
        let is_same = |now: &SharedEndpoint| now.version == self.endpoint.version && now.settings.enabled;
        catalog.org.state == OrgState::Active && catalog.endpoint(self.endpoint.id).is_some_and(is_same)
    }

    /// The dialogue of the earlier era; of the present one when the server has left the earlier one behind.
    async fn open_or_modern(&self, party: Party, deadline: Instant) -> Result<Arc<HeldDialogue>, Lost> {
        match self.dialogue(party, deadline).await {
            Err(OpeningFault::Refused(error)) if is_refusal_of_an_era(error.raw()) => {
                self.engine.tools_changed(self.endpoint);
                Ok(Arc::new(HeldDialogue::modern()))
            }
            opened => Ok(opened?),
        }
    }

    async fn send_once(
        &self,
        calling: &Calling<'_>,
        round: &Round,
        dialogue: &Dialogue,
        deadline: &Deadline,
        attempts: &mut Vec<Attempt>,
    ) -> Result<Heard, Unheard> {
        let id = self.engine.0.dialogues.next_id();
        let capabilities = calling.capabilities();
        let call = ToolCall {
            tool: &calling.tool.spec,
            arguments: calling.arguments(),
            capabilities: capabilities.raw(),
            progress_token: calling.part.is_some_and(|part| part.caller.wants_progress).then_some(id),
            input_responses: round.input_responses.as_ref().map(JsonText::raw),
            request_state: round.request_state.as_deref(),
        };
        let mut request = mcp::encode_call(&self.endpoint.settings, dialogue, id, &call);
        if let Some(traceparent) = calling.traceparent {
            request.headers.push((Cow::Borrowed("traceparent"), traceparent.to_owned()));
        }
        let (at, begun) = (self.engine.clock().now(), Instant::now());
        let is_attended = calling.party().abilities.are_any() && dialogue.session_id().is_some();
        let part = calling.part;
        let listening = Listening { dialogue, id, deadline, part, hears_changes: true, opens: false, is_attended };
        let heard = if is_attended {
            Box::pin(self.ask_attending(&request, &listening)).await
        } else {
            self.ask(&request, &listening).await
        };
        let (outcome, http_status) = match &heard {
            Ok(heard) => (http_outcome(heard.status), Some(heard.status)),
            Err(Unheard::Failed(error)) => (error.kind.as_str(), None),
            Err(Unheard::Cancelled) => ("cancelled", None),
        };
        self.engine.metrics().provider_request(self.org, &self.endpoint.settings.name, outcome);
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        attempts.push(Attempt { at, duration_ms, outcome: outcome.to_owned(), http_status });
        heard
    }

    /// The client's answers to a server's questions, a JSON object; `None` of it where there are none to answer. Nothing
    /// at all when the client cannot be asked, or does not answer.
    async fn answers(
        &self,
        calling: &Calling<'_>,
        deadline: &Deadline,
        questions: Option<JsonText>,
    ) -> Option<Option<JsonText>> {
        #[derive(Deserialize)]
        struct Question<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let Some(questions) = questions else { return Some(None) };
        let part = calling.part?;
        let questions: BTreeMap<String, Question<'_>> = serde_json::from_str(questions.as_str()).ok()?;
        let mut answers = Vec::with_capacity(questions.len());
        for (name, question) in questions {
            if !part.may_be_asked(&question.method) {
                return None;
            }
            let params = JsonText::parse(question.params.map_or("{}", RawValue::get)).ok()?;
            let answer = self.put_to_client(part, deadline, &question.method, &params).await?.ok()?;
            answers.push([&Value::String(name).to_string(), ":", answer.as_str()].concat());
        }
        JsonText::parse(&["{", &answers.join(","), "}"].concat()).ok().map(Some)
    }
}

/// The server says that it did not take the call: it knows nothing of the session, or of the era. What it says of the call
/// itself, by its id, stands.
///
/// Of a call that may have done something nothing less than such a word counts: the status that the protocol has for a
/// session that is gone, a code that no server gives that has looked at the call, or a sentence about sessions. Some
/// servers have no better one: those of the official SDKs say "Bad Request: No valid session ID provided" with 400.
fn is_not_taken(heard: &Heard, dialogue: &Dialogue, plain_read: bool) -> bool {
    let (code, names_the_call) = match rpc::parse(&heard.text) {
        Some(Message::Response { id, answer: Err(error) }) => {
            (rpc::Error::read(error).map(|error| error.code), id.is_some())
        }
        Some(Message::Response { answer: Ok(_), .. }) => return false,
        Some(Message::Request { .. } | Message::Notification { .. }) | None => (None, false),
    };
    let is_of_the_protocol = code.is_some_and(is_of_the_protocol);
    match heard.status {
        400 | 404 | 405 | 406 | 415 if is_of_the_protocol => true,
        400 | 404 | 405 | 406 | 415 if plain_read => code.is_none_or(is_about_the_dialogue),
        404 if dialogue.session_id().is_some() => !names_the_call || speaks_of_the_dialogue(heard),
        400 | 404 => !names_the_call && speaks_of_the_dialogue(heard),
        405 | 406 | 415 => !names_the_call,
        // An error that came with success may be the tool's own word, and one in time (408) a proxy's: that it ran is not
        // to be excluded.
        _ => false,
    }
}

/// Codes with which a server refuses to look at a call.
const fn is_of_the_protocol(code: i64) -> bool {
    matches!(code, words::METHOD_NOT_FOUND | words::UNSUPPORTED_VERSION | words::HEADER_MISMATCH)
}

/// Codes that implementations chose for themselves before the protocol had any, and the one of no request at all.
const fn is_about_the_dialogue(code: i64) -> bool {
    matches!(code, -32019..=-32000 | words::INVALID_REQUEST)
}

fn speaks_of_the_dialogue(heard: &Heard) -> bool {
    let said = if heard.stray.is_empty() { &heard.text } else { &heard.stray };
    let said: String = said.chars().take(LONGEST_SENTENCE).collect::<String>().to_ascii_lowercase();
    ["session", "initializ", "protocol version", "protocol-version"].iter().any(|word| said.contains(word))
}

/// Whether this answer may mean that the server has lost the session: the next call is made in another one then.
fn doubts_the_session(heard: &Heard) -> bool {
    match rpc::parse(&heard.text) {
        // Whoever names the call has read it, and knows the session it came in.
        Some(Message::Response { id, answer: Err(_) }) => id.is_none() && matches!(heard.status, 400 | 404),
        Some(_) => false,
        None => matches!(heard.status, 400 | 404),
    }
}
