//! One request to an MCP server, and all that comes before its response: progress, announcements, and questions.

use super::Server;
use super::asked::Asked;
use super::caller::McpChannel;
use super::deadline::Deadline;
use super::round::McpPart;
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::sse::{SseFault, SseReader};
use crate::dialects::mcp::{self, Dialogue, words};
use crate::domain::json::JsonText;
use crate::engine::dispatch::gate::{EndpointGate, GatePermit, GateRefusal};
use crate::engine::ports::{AnswerBody, OpenAnswer, TransportError, TransportFault};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// After its response a stream has to end; this long is waited for it, so that the connection can be used again.
const END_OF_STREAM: Duration = Duration::from_millis(20);

/// A broken stream of the earlier era is taken up again after this long, unless the server says when.
const RESUME_AFTER: Duration = Duration::from_secs(1);

/// A server that breaks off at once each time is not asked in a circle without rest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// No call waits longer for a stream to be taken up.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Time to answer a server's question to it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a request brought.
#[derive(Debug)]
pub(super) struct Heard {
    /// HTTP status.
    pub(super) status: u16,
    /// The session the server assigned.
    pub(super) session_id: Option<String>,
    /// The response, or whatever stood in its place; a JSON-RPC message when all is well.
    pub(super) text: String,
    /// What came instead, and answers somebody else by its id.
    pub(super) stray: String,
}

/// Why a request brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// The exchange failed.
    Failed(TransportError),
    /// The client took its call back.
    Cancelled,
}

impl Unheard {
    /// A fault that came when the request was sent already.
    const fn after_sending(kind: TransportFault) -> Self {
        Unheard::Failed(TransportError { kind, bytes_sent: true })
    }
}

/// A request under way: how long it may take, and who listens to what comes before the response.
pub(super) struct Listening<'a> {
    pub(super) dialogue: &'a Dialogue,
    /// The request's id.
    pub(super) id: u64,
    pub(super) deadline: &'a Deadline,
    pub(super) part: Option<&'a McpPart>,
    /// An announcement that the tools have changed counts: in answer to a listing it is about what is being listed.
    pub(super) hears_changes: bool,
    /// The request is the one that opens a dialogue.
    pub(super) opens: bool,
    /// People may be asked before the answer begins, on the stream beside it.
    pub(super) is_attended: bool,
}

impl<'a> Listening<'a> {
    /// To a request that no client has a part in.
    pub(super) const fn alone(dialogue: &'a Dialogue, id: u64, deadline: &'a Deadline) -> Self {
        Self { dialogue, id, deadline, part: None, hears_changes: false, opens: false, is_attended: false }
    }

    fn channel(&self) -> Option<&'a dyn McpChannel> {
        self.part.map(|part| &*part.caller.channel)
    }

    /// Returns when the client takes its call back.
    async fn cancelled(&self) {
        match self.channel() {
            Some(channel) => channel.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl Server<'_> {
    /// Sends a request and listens to its answer until the response is there.
    pub(super) async fn ask(&self, request: &OutboundRequest, listening: &Listening<'_>) -> Result<Heard, Unheard> {
        let opening = self.open_in_time(request, listening);
        let answer = match listening.channel() {
            None => opening.await,
            Some(channel) => tokio::select! {
                biased;
                opened = opening => opened,
                () = channel.cancelled() => return Err(self.call_off(listening)),
            },
        };
        let answer = answer.map_err(|error| {
            if error.bytes_sent && error.kind == TransportFault::Timeout {
                self.call_off(listening);
            }
            Unheard::Failed(error)
        })?;
        let (status, session_id) = (answer.status, answer.session_id.clone());
        let text = if is_event_stream(&answer) {
            Box::pin(self.listen(answer.body, listening)).await?
        } else {
            let text = self.read_whole(answer.body, listening).await?;
            // What answers somebody else is nothing to this call.
            let is_anothers = |message: Message<'_>| {
                matches!(message, Message::Response { .. }) && !message.is_answer_to(listening.id)
            };
            if rpc::parse(&text).is_some_and(is_anothers) {
                return Ok(Heard { status, session_id, text: String::new(), stray: text });
            }
            text
        };
        Ok(Heard { status, session_id, text, stray: String::new() })
    }

    async fn open_in_time(
        &self,
        request: &OutboundRequest,
        listening: &Listening<'_>,
    ) -> Result<OpenAnswer, TransportError> {
        let (transport, deadline) = (&self.engine.0.ports.transport, listening.deadline);
        if !listening.is_attended {
            return transport.open(request, self.egress, deadline.instant()).await;
        }
        tokio::select! {
            opened = transport.open(request, self.egress, Instant::now() + LONGEST_PAUSE) => opened,
            () = deadline.passed() => Err(TransportError { kind: TransportFault::Timeout, bytes_sent: true }),
        }
    }

    /// Sends a notification; answers the HTTP status.
    pub(super) async fn tell(&self, request: &OutboundRequest, deadline: Instant) -> Result<u16, TransportError> {
        let mut answer = self.engine.0.ports.transport.open(request, self.egress, deadline).await?;
        // Read to its end, its connection can be used again; most have no body.
        let _ = timeout(END_OF_STREAM, answer.body.chunk()).await;
        Ok(answer.status)
    }

    async fn read_whole(&self, mut body: Box<dyn AnswerBody>, listening: &Listening<'_>) -> Result<String, Unheard> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.next_chunk(&mut *body, listening).await? {
            if bytes.len() + chunk.len() > self.max_answer_bytes {
                return Err(Unheard::after_sending(TransportFault::TooLarge));
            }
            bytes.extend_from_slice(&chunk);
        }
        String::from_utf8(bytes).map_err(|_| Unheard::after_sending(TransportFault::Malformed))
    }

    /// The next bytes of an answer, in time and as long as they are wanted.
    async fn next_chunk(
        &self,
        body: &mut dyn AnswerBody,
        listening: &Listening<'_>,
    ) -> Result<Option<bytes::Bytes>, Unheard> {
        tokio::select! {
            biased;
            chunk = body.chunk() => chunk.map_err(Unheard::after_sending),
            () = listening.cancelled() => Err(self.call_off(listening)),
            () = listening.deadline.passed() => {
                self.call_off(listening);
                Err(Unheard::after_sending(TransportFault::Timeout))
            }
        }
    }

    /// Reads a stream of messages until the response is among them; one of the earlier era that breaks off is taken up
    /// again where the server lets it.
    async fn listen(&self, mut body: Box<dyn AnswerBody>, listening: &Listening<'_>) -> Result<String, Unheard> {
        let mut read = 0;
        let mut resume = Resume::default();
        let mut asked = Asked::default();
        loop {
            let mut events = SseReader::new(self.max_answer_bytes);
            loop {
                let chunk = match asked.meanwhile(self.next_chunk(&mut *body, listening)).await {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) | Err(Unheard::Failed(TransportError { kind: TransportFault::Reset, .. })) => break,
                    Err(fault) => return Err(fault),
                };
                read += chunk.len();
                if read > self.max_answer_bytes {
                    return Err(Unheard::after_sending(TransportFault::TooLarge));
                }
                let fault = events.push(&chunk).err();
                for event in events.by_ref() {
                    resume.note(event.id, event.retry_ms);
                    if self.take(&event.data, listening, &mut asked) {
                        // Read to its end, its connection can be used again.
                        let _ = timeout(END_OF_STREAM, body.chunk()).await;
                        return Ok(event.data);
                    }
                    asked.room().await;
                }
                match fault {
                    None => {}
                    Some(SseFault::TooLarge { .. }) => return Err(Unheard::after_sending(TransportFault::TooLarge)),
                    Some(SseFault::NotUtf8) => return Err(Unheard::after_sending(TransportFault::Malformed)),
                }
            }
            drop(body);
            body = asked.meanwhile(self.resume(&resume, listening)).await?;
        }
    }

    /// Takes up a stream that broke off after the last event it told.
    async fn resume(&self, resume: &Resume, listening: &Listening<'_>) -> Result<Box<dyn AnswerBody>, Unheard> {
        let broken = || Unheard::after_sending(TransportFault::Reset);
        let Dialogue::Legacy { .. } = listening.dialogue else { return Err(broken()) };
        let last_event_id = resume.last_event_id.as_deref().ok_or_else(broken)?;
        let at = Instant::now() + resume.after.unwrap_or(RESUME_AFTER);
        if at >= listening.deadline.instant() {
            return Err(Unheard::after_sending(TransportFault::Timeout));
        }
        tokio::select! {
            () = sleep_until(at) => {}
            () = listening.cancelled() => return Err(self.call_off(listening)),
        }
        let request = mcp::encode_resume(&self.endpoint.settings, listening.dialogue, Some(last_event_id));
        let opened = self.engine.0.ports.transport.open(&request, self.egress, listening.deadline.instant()).await;
        let answer = opened.map_err(|error| Unheard::after_sending(error.kind))?;
        if answer.status == 200 && is_event_stream(&answer) { Ok(answer.body) } else { Err(broken()) }
    }

    /// Takes one message of a stream; true when it is the response.
    pub(super) fn take<'a>(&'a self, text: &str, listening: &'a Listening<'_>, asked: &mut Asked<'a>) -> bool {
        match rpc::parse(text) {
            Some(response @ Message::Response { .. }) => return response.is_answer_to(listening.id),
            Some(Message::Notification { method, params }) => match (&*method, params) {
                ("notifications/progress", Some(params)) => tell_progress(listening, params),
                ("notifications/tools/list_changed", _) if listening.hears_changes => {
                    self.engine.tools_changed(self.endpoint);
                }
                ("notifications/cancelled", Some(params)) => asked.take_back(params),
                _ => {}
            },
            // In the present era a server asks by its result, and there is no way to answer anything else.
            Some(Message::Request { id, method, params }) if matches!(listening.dialogue, Dialogue::Legacy { .. }) => {
                let (id, method) = (JsonText::from(id.to_owned()), method.into_owned());
                let params = params.map(|params| JsonText::from(params.to_owned()));
                let has_room = asked.has_room_for_people();
                asked.add(id.as_str().to_owned(), async move {
                    let part = listening.part.filter(|part| has_room && part.may_be_asked(&method));
                    self.answer(&id, &method, params, part, listening).await;
                });
            }
            Some(Message::Request { .. }) | None => {}
        }
        false
    }

    /// Puts a server's question to the client. Meanwhile the call's clock stands still and its place at the endpoint is
    /// free: whoever thinks it over, or has gone away, holds up nobody else. `None` when there is no answer.
    pub(super) async fn put_to_client(
        &self,
        part: &McpPart,
        deadline: &Deadline,
        method: &str,
        params: &JsonText,
    ) -> Option<Result<JsonText, JsonText>> {
        let paused = deadline.pause();
        let place = part.take_place();
        let gate = place.as_ref().map(GatePermit::gate);
        drop(place);
        let answer = tokio::select! {
            answer = part.caller.channel.ask(method, params) => answer,
            () = self.engine.0.in_flight.stopped() => None,
        };
        drop(paused);
        if let Some(gate) = gate {
            part.keep(self.place_again(&gate, deadline).await);
        }
        answer
    }

    /// A place for a call that goes on after its questions; without one, the server hears of the answer no sooner.
    async fn place_again(&self, gate: &Arc<EndpointGate>, deadline: &Deadline) -> Option<GatePermit> {
        let entering = async {
            loop {
                match gate.enter(self.engine.clock().monotonic()).await {
                    Ok(permit) => return Some(permit),
                    Err(GateRefusal::Full { .. }) => tokio::time::sleep(SHORTEST_PAUSE).await,
                    // The server has the call already.
                    Err(GateRefusal::BreakerOpen { .. }) => return None,
                }
            }
        };
        tokio::select! {
            place = entering => place,
            () = deadline.passed() => None,
        }
    }

    /// Answers what a server of the earlier era asks during a call: the agent's client does, if there is one to be asked.
    async fn answer(
        &self,
        id: &JsonText,
        method: &str,
        params: Option<JsonText>,
        part: Option<&McpPart>,
        listening: &Listening<'_>,
    ) {
        let refused = || {
            let error = serde_json::json!({ "code": words::METHOD_NOT_FOUND, "message": "the client cannot be asked" });
            Err(JsonText::of(&error))
        };
        let answer = match (method, part) {
            ("ping", _) => Ok(JsonText::empty_object()),
            (_, Some(part)) => {
                let params = params.unwrap_or_else(JsonText::empty_object);
                self.put_to_client(part, listening.deadline, method, &params).await.unwrap_or_else(refused)
            }
            (_, None) => refused(),
        };
        let answer = answer.as_ref().map(JsonText::raw).map_err(JsonText::raw);
        let reply = mcp::encode_response(&self.endpoint.settings, listening.dialogue, id.raw(), answer);
        // A server that does not take its answers in holds nobody up for longer than its call may take.
        let deadline = listening.deadline.instant().min(Instant::now() + REPLY_TIMEOUT);
        let sent = self.engine.0.ports.transport.send(&reply, self.egress, self.max_answer_bytes, deadline).await;
        if let Err(error) = sent {
            // The server goes on waiting, and the call's own deadline ends it.
            tracing::debug!(endpoint = %self.endpoint.settings.name, %error, "a server could not be answered");
        }
    }

    /// Tells the server that nobody waits any more. In the present era the end of the stream says it.
    fn call_off(&self, listening: &Listening<'_>) -> Unheard {
        // What opens a dialogue is never called off.
        if let Dialogue::Legacy { .. } = listening.dialogue
            && !listening.opens
        {
            let request = mcp::encode_cancelled(&self.endpoint.settings, listening.dialogue, listening.id);
            let (engine, egress) = (self.engine.clone(), self.egress.clone());
            let limit = self.max_answer_bytes;
            tokio::spawn(async move {
                let deadline = Instant::now() + REPLY_TIMEOUT;
                // It is a courtesy: whether it arrives changes nothing.
                let _ = engine.0.ports.transport.send(&request, &egress, limit, deadline).await;
            });
        }
        Unheard::Cancelled
    }
}

/// Where a broken stream can be taken up.
#[derive(Default)]
struct Resume {
    last_event_id: Option<String>,
    after: Option<Duration>,
}

impl Resume {
    fn note(&mut self, id: Option<String>, retry_ms: Option<u64>) {
        // A stream that was taken up goes on where the one before ended, also before it has told an id of its own.
        self.last_event_id = id.or(self.last_event_id.take());
        let after = retry_ms.map(Duration::from_millis).or(self.after);
        self.after = after.map(|after| after.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

pub(super) fn is_event_stream(answer: &OpenAnswer) -> bool {
    let media_type = answer.content_type.as_deref().and_then(|text| text.split(';').next()).unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("text/event-stream")
}

/// Hands progress of this very request on to the client that asked for it.
fn tell_progress(listening: &Listening<'_>, params: &RawValue) {
    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    let Some(part) = listening.part.filter(|part| part.caller.wants_progress) else { return };
    let token = serde_json::from_str::<Members<'_>>(params.get());
    if token.is_ok_and(|said| said.token.get() == listening.id.to_string()) {
        part.caller.channel.progress(&JsonText::from(params.to_owned()));
    }
}
