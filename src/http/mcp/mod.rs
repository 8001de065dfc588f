//! `POST /mcp`: the Model Context Protocol towards agents, of the present era (2026-07-28) and of the earlier one, which
//! opens with `initialize`. The facts are those of the protocol's specification.
//!
//! A message is read as raw JSON and answered as text, so that nothing a provider said is lost between. A `tools/call` is
//! a run like one of `/mcp/run`. Requests of both eras come to one address:
//!
//! - A request is of the present era when its `_meta` or its `MCP-Protocol-Version` names a revision of it, or when only
//!   that era has its method; it is served by itself. Any other is of the earlier one.
//! - Refusals before the message is read (401, 413, 415, 429, 431, 503) are problem documents, like everywhere; from then
//!   on every error is a JSON-RPC error with the request's id, or null where none could be read.
//! - The present era wants both forms of an answer accepted (406 otherwise). A client of the earlier era has to accept
//!   JSON; where it does not accept a stream it is told of no progress and asked nothing. Without `Accept` either will do.
//! - Prompts and resources are served as empty lists and therefore advertised; nothing is found in them.
//! - What an earlier client answers to a question that it was not asked is refused (400), and a session that is not its
//!   own is not found (404).

mod accept;
mod answer;
mod call;
mod channel;
mod confirm;
mod get_run;
mod item;
mod legacy;
mod listen;
mod listing;
mod members;
mod modern;
mod origin;
mod reply;
mod request;
mod round;
mod running;
mod stream;
mod tally;
mod tasks;
mod waiting;

use crate::dialects::mcp::words;
use crate::domain::ids::{OrgId, RunId};
use crate::domain::json::JsonText;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::ShownTo;
use crate::engine::mcp::caller::Questions;
use crate::engine::mcp::session::Session;
use crate::http::agent::headers;
use crate::http::call::{Answer, Call};
use actix_web::HttpResponse;
use channel::{Asked, OpenQuestions};
use reply::{Fault, Reply};
use request::{Capabilities, Message, Params, Request};
use running::RunningCalls;
use serde_json::value::RawValue;
use tally::Tally;
use waiting::Told;

/// Who toolgate is.
const SERVER_INFO: &str =
    concat!(r#"{"name":"toolgate","title":"toolgate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// What each result of ours says about its server.
const RESULT_META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolgate","title":"toolgate","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// How long a list may be kept, and by whom: what a key sees is its own business.
const LIST_HINTS: &str = r#""ttlMs":60000,"cacheScope":"private""#;

/// What a model is told about these tools.
const INSTRUCTIONS: &str = "These tools belong to the endpoints of one organization. A call may have to wait for a \
                            person's yes; do not repeat a call whose outcome is unknown.";

/// What the edge keeps of MCP between requests: calls under way, questions without an answer, and streams.
#[derive(Default)]
pub(super) struct McpState {
    questions: OpenQuestions,
    running: RunningCalls,
    /// Clients that wait for a run: an identical call joins one that is held, and its client goes on waiting for it when
    /// the first one has gone.
    waiters: Tally<RunId>,
    told: Told,
    streams: Tally<OrgId>,
}

/// Who asks, as far as MCP has words for it.
struct Client {
    era: ShownTo,
    capabilities: Capabilities,
    /// Of the earlier era, and only where it can be asked something.
    session: Option<Session>,
    accepts_stream: bool,
}

impl Client {
    fn legacy(session: Option<Session>, accepts_stream: bool) -> Self {
        let said = session.as_ref().and_then(|session| Capabilities::read(session.capabilities.as_str(), &[]));
        Self { era: ShownTo::Legacy, capabilities: said.unwrap_or_default(), session, accepts_stream }
    }

    /// Whether it can be asked something while its call goes on.
    fn can_be_asked(&self) -> bool {
        self.session.is_some() && self.accepts_stream
    }

    /// Whether a person can be asked through it.
    fn can_confirm(&self) -> bool {
        match self.era {
            ShownTo::Modern => self.capabilities.form,
            ShownTo::Legacy => self.capabilities.form && self.can_be_asked(),
        }
    }

    fn questions(&self) -> Questions {
        match self.era {
            ShownTo::Modern => Questions::HandOn,
            ShownTo::Legacy if self.can_be_asked() => Questions::Ask,
            ShownTo::Legacy => Questions::None,
        }
    }

    /// What a tool's server is told that it can do.
    fn told_on(&self) -> JsonText {
        let said = match self.questions() {
            Questions::HandOn | Questions::Ask => self.capabilities.told_on.as_deref(),
            Questions::None => None,
        };
        match said {
            None | Some("{}") => JsonText::empty_object(),
            Some(said) => JsonText::parse(said).unwrap_or_else(|_| JsonText::empty_object()),
        }
    }

    /// An answer as this client's era has it.
    fn fit(&self, reply: Reply) -> Reply {
        match self.era {
            ShownTo::Modern => reply,
            ShownTo::Legacy => reply.for_legacy(),
        }
    }
}

/// Takes one message of the Model Context Protocol.
#[utoipa::path(
    post, path = "/mcp", tag = "Agent", operation_id = "mcp",
    description = "The Model Context Protocol over Streamable HTTP, revisions 2026-07-28, 2025-11-25, 2025-06-18 and \
                   2025-03-26: one JSON-RPC message a request.",
    params(
        ("MCP-Protocol-Version" = Option<String>, Header, description = "The revision that is spoken"),
        ("Mcp-Method" = Option<String>, Header, description = "The body's method, from revision 2026-07-28 on"),
        ("Mcp-Name" = Option<String>, Header, description = "The name, address or task id in the body's parameters, from revision 2026-07-28 on"),
        ("Mcp-Session-Id" = Option<String>, Header, description = "The session of an earlier revision's client"),
        ("X-Caller-Identity" = Option<String>, Header, description = "The end user; at most 256 visible characters"),
        ("Idempotency-Key" = Option<String>, Header, description = "As for a run: of a `tools/call`"),
        ("Conversation-Id" = Option<String>, Header, description = "At most 128 visible characters"),
    ),
    request_body(content = Object, description = "A JSON-RPC 2.0 request, notification or response"),
    responses(
        (status = 200, description = "A JSON-RPC response, or a stream of events (SSE) that ends with one", body = Object),
        (status = 202, description = "A notification or a response was taken"),
        (status = 400, description = "A JSON-RPC error: no message, or one that its revision does not allow", body = Object),
        (status = 403, description = "The origin is foreign, or the organization is suspended", body = Object),
        (status = 404, description = "A JSON-RPC error: no such method, or no such session", body = Object),
        (status = 406, description = "A JSON-RPC error: the answer's forms are not accepted", body = Object),
    ),
)]
pub(in crate::http) async fn post(call: Call<AgentAccess>) -> Answer {
    let public_url = &call.engine().settings().public_url;
    if !origin::is_ours(call.headers(), public_url, call.head.app_config().local_addr()) {
        let fault = Fault::new(403, words::INVALID_REQUEST, "requests of this origin are not served");
        return Ok(fault.respond(None));
    }
    let body = call.body.clone();
    Ok(match request::read(&body) {
        Err(unreadable) => unreadable.fault.respond(unreadable.id),
        Ok(Message::Request(request)) => {
            let id = request.id;
            serve(call, request).await.unwrap_or_else(|fault| fault.respond(Some(id)))
        }
        Ok(Message::Notification { method, params }) => take_notification(&call, &method, &params),
        Ok(Message::Response { id, answer }) => take_answer(&call, id, answer),
    })
}

/// Serves a request of either era.
async fn serve(mut call: Call<AgentAccess>, request: Request<'_>) -> Result<HttpResponse, Fault> {
    let accepts = accept::accepts(call.headers());
    let is_modern = modern::is_meant(call.headers(), &request);
    let opens = !is_modern && request.method == "initialize";
    if !accepts.json || (is_modern && !accepts.stream) {
        let message = "accept application/json and text/event-stream";
        return Err(Fault::new(406, words::INVALID_REQUEST, message));
    }
    let client = if is_modern {
        let capabilities = modern::check(call.headers(), &request)?;
        Client { era: ShownTo::Modern, capabilities, session: None, accepts_stream: true }
    } else if opens {
        Client::legacy(None, accepts.stream)
    } else {
        Client::legacy(legacy::check(&call)?, accepts.stream)
    };
    let conversation = headers::conversation(call.headers());
    let conversation = conversation.map_err(|problem| Fault::invalid_request(problem.detail().to_owned()))?;
    if let Some(conversation) = conversation {
        call.access = Box::pin(call.engine().begin_conversation(call.access.clone(), conversation)).await;
    } else if opens {
        // Who opens a dialogue begins a conversation.
        call.access = Box::pin(call.engine().begin_unnamed_conversation(call.access.clone())).await;
    }
    match client.era {
        ShownTo::Modern => serve_modern(&call, &request, &client).await,
        ShownTo::Legacy if opens => Ok(legacy::initialize(&call, request.id, &request.params)),
        ShownTo::Legacy => Ok(serve_legacy(&call, &request, &client).await),
    }
}

async fn serve_modern(call: &Call<AgentAccess>, request: &Request<'_>, client: &Client) -> Result<HttpResponse, Fault> {
    let (engine, access) = (call.engine(), &call.access);
    let result = match request.method.as_ref() {
        "tools/call" => return Ok(call::answer(call, request, client).await),
        "subscriptions/listen" => return listen::open(call, request, &client.capabilities).await,
        "server/discover" => discovery(),
        "tasks/get" | "tasks/update" | "tasks/cancel" if !client.capabilities.tasks => return Err(Fault::wants_tasks()),
        "tasks/get" => tasks::get(engine, access, request).await?,
        "tasks/update" => tasks::update(engine, access, request).await?,
        "tasks/cancel" => tasks::cancel(engine, access, request).await?,
        _ => served_in_both(call, request, client)?,
    };
    Ok(Reply::Result(result).respond(request.id))
}

async fn serve_legacy(call: &Call<AgentAccess>, request: &Request<'_>, client: &Client) -> HttpResponse {
    let reply: Reply = match request.method.as_ref() {
        "tools/call" => return call::answer(call, request, client).await,
        "ping" => Reply::Result("{}".to_owned()),
        _ => served_in_both(call, request, client).into(),
    };
    client.fit(reply).respond(request.id)
}

/// Methods that both eras have, each in its own words.
fn served_in_both(call: &Call<AgentAccess>, request: &Request<'_>, client: &Client) -> Result<String, Fault> {
    match request.method.as_ref() {
        "tools/list" => listing::tools(&call.access, client.era, client.capabilities.tasks, &request.params),
        "prompts/list" => Ok(listing::nothing("prompts", client.era)),
        "resources/list" => Ok(listing::nothing("resources", client.era)),
        "resources/templates/list" => Ok(listing::nothing("resourceTemplates", client.era)),
        "prompts/get" => Err(Fault::invalid_params("there is no such prompt")),
        "resources/read" => Err(Fault::no_such_resource(request.params.uri, client.era)),
        _ => Err(Fault::new(404, words::METHOD_NOT_FOUND, "there is no such method")),
    }
}

/// `server/discover`.
fn discovery() -> String {
    let (versions, tasks) = (reply::supported_versions(), words::TASKS_EXTENSION);
    format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{{"tools":{{"listChanged":true}},"prompts":{{}},"resources":{{}},"extensions":{{"{tasks}":{{}}}}}},"instructions":"{INSTRUCTIONS}",{LIST_HINTS},{RESULT_META}}}"#
    )
}

/// A notification is taken, whatever it is; only a client of the earlier era has one that changes something.
fn take_notification(call: &Call<AgentAccess>, method: &str, params: &Params<'_>) -> HttpResponse {
    if !modern::is_said_in(call.headers()) {
        let session = match legacy::check(call) {
            Ok(session) => session,
            Err(fault) => return fault.respond(None),
        };
        if let ("notifications/cancelled", Some(id)) = (method, params.request_id) {
            call::take_back(call, &Client::legacy(session, true), id.get());
        }
    }
    HttpResponse::Accepted().finish()
}

/// The answer of a client of the earlier era to a question on one of its streams.
fn take_answer(call: &Call<AgentAccess>, id: &RawValue, said: Result<&RawValue, &RawValue>) -> HttpResponse {
    let refused = |message| Fault::invalid_request(message).respond(None);
    if modern::is_said_in(call.headers()) {
        return refused("this revision has no answers of clients: call again with inputResponses");
    }
    let session = match legacy::check(call) {
        Ok(Some(session)) => session,
        Ok(None) => return refused("an answer belongs to a session"),
        Err(fault) => return fault.respond(None),
    };
    let own = |raw: &RawValue| JsonText::from(raw.to_owned());
    let said = said.map(own).map_err(own);
    let by = Asked { key: call.access.key().id, session: session.id };
    let is_open = request::string(id).is_some_and(|id| call.state.mcp.questions.answer(&id, by, said));
    if is_open { HttpResponse::Accepted().finish() } else { refused("no question with this id is open in the session") }
}
