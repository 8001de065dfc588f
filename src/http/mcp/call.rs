//! `tools/call`: a run like any other, answered in the words of its client's era.
//!
//! Nearly every call is answered at once, as one JSON body. Where there is something to tell before, or nothing to answer
//! for a while, the answer becomes a stream.

use super::answer::{self, failure};
use super::channel::{Asked, CallChannel, Questioning};
use super::confirm::{self, Decision};
use super::reply::{Fault, Reply};
use super::request::{Request, object, text};
use super::round::Round;
use super::running::{CallKey, Running};
use super::stream::{self, Going};
use super::waiting::{self, Asking, Detached, GivenUpOnDrop, LeftOnDrop};
use super::{Client, McpState, get_run, item, modern, tasks};
use crate::domain::json::JsonText;
use crate::domain::risk::Risk;
use crate::domain::run::{CallContext, Run, RunStatus};
use crate::domain::secret::Secret;
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::{CatalogTool, ShownTo};
use crate::engine::confirmation::Confirmation;
use crate::engine::mcp::caller::{McpCaller, McpChannel};
use crate::engine::run::{RunRefusal, RunReply, RunRequest};
use crate::http::agent::headers;
use crate::http::auth::key_text;
use crate::http::call::Call;
use crate::http::error::Problem;
use crate::http::idempotency::{self, IDEMPOTENT_REPLAY};
use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A call that is not answered by then is answered as a stream.
const STREAM_AFTER: Duration = Duration::from_secs(2);

/// Longest a client is kept waiting for a callback or a person.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// Time to record an outcome after its call.
const RECORDING: Duration = Duration::from_secs(5);

/// A call, ready to be made.
struct ToolCall {
    state: Arc<McpState>,
    engine: Engine,
    access: AgentAccess,
    tool: Arc<CatalogTool>,
    era: ShownTo,
    has_tasks: bool,
    channel: Arc<CallChannel>,
    until: Instant,
    /// Where a person may be asked first while it goes on: the key it is made with, to be checked anew after that.
    key: Option<Secret>,
}

/// What a request for a call turns out to be.
enum Wanted {
    Run(Box<(ToolCall, RunRequest)>),
    /// `toolgate_get_run`, with these arguments.
    Look(String),
    /// The user was asked, and said no.
    Declined,
}

/// Answers a call.
pub(super) async fn answer(call: &Call<AgentAccess>, request: &Request<'_>, client: &Client) -> HttpResponse {
    let token = match request.params.bounded_progress_token() {
        Ok(token) => token,
        Err(fault) => return client.fit(Reply::Fault(fault)).respond(request.id),
    };
    let channel = CallChannel::new(token, questioning(call, client));
    let until = Instant::now() + LONGEST_WAIT;
    let (mut only_reads, mut is_keyed) = (false, false);
    let going = match wanted(call, request, client, &channel, until) {
        Ok(Wanted::Run(made)) => {
            only_reads = made.0.tool.is_plain_read();
            is_keyed = made.1.idempotency_key.is_some();
            made.0.make(made.1).boxed()
        }
        Ok(Wanted::Look(arguments)) => {
            let (engine, access, channel) = (call.engine().clone(), call.access.clone(), Arc::clone(&channel));
            let era = client.era;
            async move { get_run::run(&engine, &access, &arguments, era, &channel, until).await }.boxed()
        }
        Ok(Wanted::Declined) => return declined(client.era).respond(request.id),
        Err(fault) => return client.fit(Reply::Fault(fault)).respond(request.id),
    };
    let going: Going = match client.era {
        // Its client may come back with the key, and others may wait for it too.
        ShownTo::Modern if is_keyed && !only_reads => async move { Some(going.await) }.boxed(),
        ShownTo::Modern => {
            let lost = LeftOnDrop::new(&channel, only_reads);
            let going = async move {
                let reply = going.await;
                lost.done();
                Some(reply)
            };
            going.boxed()
        }
        ShownTo::Legacy => {
            let running =
                Running::new(Arc::clone(&call.state.mcp), call_key(call, request.id, client), Arc::clone(&channel));
            let taken_back = Arc::clone(&channel);
            let going = async move {
                let _running = running;
                tokio::select! {
                    biased;
                    () = taken_back.cancelled() => None,
                    reply = going => Some(reply.for_legacy()),
                }
            };
            Detached::new(going.boxed(), &channel).boxed()
        }
    };
    deliver(request.id, going, channel, client.accepts_stream).await
}

/// One body if there is an answer soon and nothing to tell before it, else a stream.
async fn deliver(id: &str, mut going: Going, channel: Arc<CallChannel>, accepts_stream: bool) -> HttpResponse {
    let reply = if accepts_stream {
        tokio::select! {
            biased;
            reply = &mut going => reply,
            () = channel.has_news() => return stream::follow(id.to_owned(), going, channel),
            () = tokio::time::sleep(STREAM_AFTER) => return stream::follow(id.to_owned(), going, channel),
        }
    } else {
        going.await
    };
    match reply {
        Some(reply) if channel.has_something() && accepts_stream => {
            stream::follow(id.to_owned(), async { Some(reply) }.boxed(), channel)
        }
        Some(reply) => {
            let mut answer = reply.respond(id);
            // A stream has sent its headers before this is known.
            if channel.is_replay() {
                answer.headers_mut().insert(IDEMPOTENT_REPLAY, HeaderValue::from_static("true"));
            }
            answer
        }
        // Its client took it back: there is no answer, and a body that says so.
        None => HttpResponse::Ok().insert_header((CONTENT_TYPE, "text/event-stream")).finish(),
    }
}

/// How the client of the earlier era is asked, if it can be.
fn questioning(call: &Call<AgentAccess>, client: &Client) -> Option<Questioning> {
    let session = client.session.as_ref().filter(|_| client.can_be_asked())?;
    let engine = call.engine().clone();
    Some(Questioning {
        state: Arc::clone(&call.state.mcp),
        asked: Asked { key: call.access.key().id, session: session.id },
        patience: Duration::from_millis(call.access.catalog().limits.confirmation_ttl_ms),
        new_id: Box::new(move || {
            let mut random = [0; 16];
            engine.clock().fill_random(&mut random);
            ["toolgate-", &hex::encode(random)].concat()
        }),
    })
}

fn call_key(call: &Call<AgentAccess>, id: &str, client: &Client) -> CallKey {
    CallKey {
        key: call.access.key().id,
        session: client.session.as_ref().map(|session| session.id),
        caller: headers::caller(call.headers()).ok().flatten().map(str::to_owned),
        id: id.to_owned(),
    }
}

fn wanted(
    call: &Call<AgentAccess>,
    request: &Request<'_>,
    client: &Client,
    channel: &Arc<CallChannel>,
    until: Instant,
) -> Result<Wanted, Fault> {
    let params = &request.params;
    let name = text("name", params.name)?.ok_or_else(|| Fault::invalid_params("name is missing"))?;
    let given = object("arguments", params.arguments)?;
    let arguments = given.map_or("{}", |arguments| arguments.get());
    let visible = call.access.catalog().visible(&call.access.key().groups);
    if name == get_run::NAME && get_run::is_listed(&call.access, &visible, client.capabilities.tasks) {
        return Ok(Wanted::Look(arguments.to_owned()));
    }
    let tool = visible.resolve_shown(&name).cloned().ok_or_else(Fault::unknown_tool)?;
    if let (ShownTo::Modern, Some(mcp)) = (client.era, &tool.spec.mcp) {
        modern::check_arguments(call.headers(), &mcp.header_params, arguments)?;
    }
    let round = Round::of(request, client.era)?;
    if round.decision == Some(Decision::No) && round.token.is_some() {
        return Ok(Wanted::Declined);
    }
    let confirmation = match round.decision {
        Some(Decision::Yes) => round.token.as_deref().map(str::to_owned),
        Some(Decision::No | Decision::Unclear) | None => None,
    };
    let mut run_request = run_request(call, &tool, arguments, client)?;
    run_request.idempotency_key = run_request.idempotency_key.map(|key| round.key_of(key));
    run_request.confirmation = confirmation;
    if tool.spec.mcp.is_some() || round.state.is_some() {
        run_request.mcp = Some(Box::new(McpCaller {
            capabilities: client.told_on(),
            arguments_given: given.is_some(),
            questions: client.questions(),
            input_responses: round.responses.and_then(|responses| JsonText::parse(&responses).ok()),
            request_state: round.state,
            session: client.session.as_ref().map(|session| own_session(session.id, run_request.caller.as_deref())),
            wants_progress: channel.tells_progress(),
            channel: Arc::clone(channel) as Arc<dyn McpChannel>,
        }));
    }
    let may_be_asked = tool.requires_confirmation && client.era == ShownTo::Legacy;
    let key = may_be_asked.then(|| key_text(call.headers()).ok()).flatten().map(Secret::new);
    let tool_call = ToolCall {
        state: Arc::clone(&call.state.mcp),
        engine: call.engine().clone(),
        access: call.access.clone(),
        tool,
        era: client.era,
        has_tasks: client.capabilities.tasks,
        channel: Arc::clone(channel),
        until,
        key,
    };
    Ok(Wanted::Run(Box::new((tool_call, run_request))))
}

/// What tells the sessions apart in which tools' servers ask: an agent may speak for many callers in one session of its
/// own, and none of them is asked what is another's.
fn own_session(session: [u8; 16], caller: Option<&str>) -> [u8; 16] {
    let Some(caller) = caller else { return session };
    let hash = Sha256::new().chain_update(session).chain_update(caller).finalize();
    *hash.first_chunk().expect("a hash has 32 bytes")
}

fn run_request(
    call: &Call<AgentAccess>,
    tool: &CatalogTool,
    arguments: &str,
    client: &Client,
) -> Result<RunRequest, Fault> {
    let bad = |problem: Problem| Fault::invalid_request(problem.detail().to_owned());
    let conversation = headers::conversation(call.headers()).map_err(bad)?.map(str::to_owned);
    let can_confirm = client.can_confirm();
    // A call that is held is answered as held at once; whether it is waited for is decided here.
    let asks_teammate = tool.requires_confirmation && !(call.access.key().confirms && can_confirm);
    let is_held = asks_teammate || tool.risk.is_some_and(Risk::needs_approval);
    Ok(RunRequest {
        tool: tool.spec.name.clone(),
        arguments: JsonText::parse(arguments).map_err(|_| Fault::invalid_params("arguments is a JSON object"))?,
        request_id: None,
        confirmation: None,
        idempotency_key: idempotency::key(call.headers()).map_err(bad)?,
        caller: headers::caller(call.headers()).map_err(bad)?.map(str::to_owned),
        context: CallContext { conversation, ..CallContext::default() },
        wait: is_held.then_some(Duration::ZERO),
        traceparent: Some(call.trace.to_header()),
        can_confirm,
        mcp: None,
    })
}

fn declined(era: ShownTo) -> Reply {
    failure(era, "The user declined this call; nothing was done. Do not make it again unless the user asks for it.")
}

impl ToolCall {
    /// Makes the call, to its answer.
    async fn make(mut self, request: RunRequest) -> Reply {
        let again = self.key.clone().map(|key| (key, request.clone()));
        let mut reply = self.run(request).await;
        if let (Ok(RunReply::ConfirmationRequired { confirmation, .. }), Some((key, request))) = (&reply, again) {
            match self.ask(confirmation).await {
                Decision::Yes => {
                    // Meanwhile the key may have been revoked, and the tool taken away from it.
                    let Ok(access) = self.engine.agent_access(key.reveal()).await else {
                        return failure(self.era, "This call cannot be made any more; nothing was done.");
                    };
                    self.access = access;
                    let confirmation = Some(confirmation.token.clone());
                    reply = self.run(RunRequest { confirmation, ..request }).await;
                }
                Decision::No => return declined(self.era),
                Decision::Unclear => {
                    let text = "The user could not be asked, or did not confirm this call in time; nothing was done.";
                    return failure(self.era, text);
                }
            }
        }
        if let Ok(RunReply::Replay(_)) = reply {
            self.channel.mark_replay();
        }
        match reply {
            Ok(RunReply::Run(run) | RunReply::Replay(run)) => self.settle(run).await,
            Ok(RunReply::ConfirmationRequired { confirmation, .. }) => match self.era {
                ShownTo::Modern => Reply::Result(confirm::question(&confirmation)),
                ShownTo::Legacy => answer::of_refusal(RunRefusal::CannotConfirm, self.era),
            },
            Err(refusal) => answer::of_refusal(refusal, self.era),
        }
    }

    async fn run(&self, request: RunRequest) -> Result<RunReply, RunRefusal> {
        if !self.tool.can_stay_open(self.access.catalog().org.confirmation_fallback) {
            return self.engine.run(&self.access, request).await;
        }
        let (engine, access) = (self.engine.clone(), self.access.clone());
        let work = async move { engine.run(&access, request).await };
        Asking::new(&self.state, &self.engine, &self.access, work.boxed()).await
    }

    async fn ask(&self, confirmation: &Confirmation) -> Decision {
        let question = confirm::legacy_question(confirmation);
        let answer = tokio::select! {
            answer = self.channel.ask("elicitation/create", &question) => answer,
            // A person's time to think keeps no gateway from stopping.
            () = self.engine.stopped() => None,
        };
        match answer {
            Some(Ok(result)) => Decision::read(result.raw()),
            Some(Err(_)) | None => Decision::Unclear,
        }
    }

    /// Until when it is waited for: as long as its server may take, where nobody could ask for it later.
    fn longest(&self) -> Instant {
        if self.tool.can_stay_open(self.access.catalog().org.confirmation_fallback) {
            return self.until;
        }
        let begun = self.until - LONGEST_WAIT;
        self.until.max(begun + self.tool.timeout + RECORDING)
    }

    /// Answers a run. One that is not over becomes a task where the client follows tasks, else it is waited for.
    async fn settle(&self, run: Arc<Run>) -> Reply {
        if !goes_on(&run) {
            return answer::of_run(&self.engine, &self.access, &run, self.era);
        }
        if self.has_tasks {
            self.state.note_told(&run);
            return tasks::created(&self.access, &run);
        }
        let given_up = GivenUpOnDrop::new(&self.state, &self.engine, &self.access, &run);
        let run = waiting::until_over(&self.engine, &self.access, run, &self.channel, self.longest()).await;
        given_up.done();
        if goes_on(&run) {
            self.state.note_told(&run);
            return answer::standing(&run, self.era, item::shows_output_schema(&self.tool, self.era));
        }
        answer::of_run(&self.engine, &self.access, &run, self.era)
    }
}

/// Whether more is to come of a run. One whose outcome is being looked for is told of as uncertain: nobody knows how long
/// that takes, and the model must not repeat it meanwhile.
fn goes_on(run: &Run) -> bool {
    match run.outcome.status {
        RunStatus::Pending | RunStatus::AwaitingApproval => true,
        RunStatus::Started
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Denied
        | RunStatus::Expired
        | RunStatus::Cancelled
        | RunStatus::Inspecting
        | RunStatus::Uncertain => false,
    }
}

/// `notifications/cancelled`: the client takes one of its calls back.
pub(super) fn take_back(call: &Call<AgentAccess>, client: &Client, id: &str) {
    let state: &McpState = &call.state.mcp;
    state.running.cancel(&call_key(call, id, client));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_in_one_session_are_asked_apart() {
        let of = |caller| own_session([7; 16], caller);
        assert_eq!((of(None), of(Some("ann"))), ([7; 16], of(Some("ann"))));
        assert!(of(Some("ann")) != of(Some("bob")) && of(Some("ann")) != of(None));
        assert_ne!(own_session([8; 16], Some("ann")), of(Some("ann")));
    }
}
