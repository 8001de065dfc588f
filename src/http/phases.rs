//! The phases of a request, as one visible sequence in the order of the contract: 401, 431, 405, 415, 413, 429 of the
//! agent key, 400, then the `Idempotency-Key` of a write, and only then the handler with its own refusals.

use super::auth::key_text;
use super::body;
use super::call::{Answer, Answering, Call};
use super::error::Problem;
use super::query::Query;
use super::routes::{BodyRule, Handler, PathRoutes, Route, Surface, Verb};
use super::{HttpState, auth, idempotency};
use crate::domain::error_code::ErrorCode;
use crate::domain::json_scan;
use crate::domain::trace::TraceContext;
use crate::engine::access::{AgentAccess, OperatorAccess, WorkspaceAccess};
use crate::engine::org::rate_limits::{LimitScope, RateStatus};
use crate::engine::store_port::WriteId;
use crate::engine::writes::KeyedWrite;
use actix_web::http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, VARY};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use uuid::Uuid;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A request's own id is kept up to this length.
const LONGEST_REQUEST_ID: usize = 128;

/// Proof of who asks, by surface.
enum Access {
    Agent(AgentAccess),
    Tenant(WorkspaceAccess),
    Operator(OperatorAccess),
    Nobody,
}

/// What the answer carries whatever becomes of the request.
struct Marks {
    request_id: HeaderValue,
    trace: TraceContext,
    rate: Option<RateStatus>,
}

/// Mounts every path of a table, and what answers all other paths.
pub(super) fn mount(cfg: &mut web::ServiceConfig, state: web::Data<HttpState>, paths: &'static [PathRoutes]) {
    for path in paths {
        let state = state.clone();
        let resource = web::resource(path.pattern);
        cfg.service(
            resource.to(move |head: HttpRequest, payload: Payload| serve(state.clone(), Some(path), head, payload)),
        );
    }
    cfg.default_service(web::to(move |head: HttpRequest, payload: Payload| serve(state.clone(), None, head, payload)));
}

/// Serves one request: the phases, then what every answer carries.
async fn serve(
    state: web::Data<HttpState>,
    path: Option<&'static PathRoutes>,
    head: HttpRequest,
    mut payload: Payload,
) -> HttpResponse {
    let mut marks = Marks::of(&state, &head);
    let passing = AssertUnwindSafe(pass(&state, path, &head, &mut payload, &mut marks)).catch_unwind();
    let answer = passing.await.unwrap_or_else(|_| {
        tracing::error!(trace_id = marks.trace.trace_id_hex(), "a request made the gateway panic");
        Err(Problem::internal())
    });
    let mut response = match answer {
        Ok(response) => response,
        Err(problem) => {
            body::drain(&head, &mut payload).await;
            limit_refusals(&state, &head, problem).render(&marks.trace.trace_id_hex())
        }
    };
    marks.put_on(response.headers_mut());
    put_cache_headers(head.path(), response.headers_mut());
    response
}

async fn pass(
    state: &web::Data<HttpState>,
    path: Option<&'static PathRoutes>,
    head: &HttpRequest,
    payload: &mut Payload,
    marks: &mut Marks,
) -> Answer {
    let surface = path.map_or_else(|| Surface::of_unknown_path(head.path()), |path| path.surface);
    if state.engine.is_stopping() && surface != Surface::Health {
        return Err(Problem::stopping());
    }
    let access = authenticate(state, surface, head).await?;
    check_header_block(head.headers(), state.settings.header_block_bytes)?;
    let route = path.map(|path| path.route(head.method())).transpose()?;
    body::check_media_type(head.headers(), payload, state.settings.body_timeout).await?;
    let limit_bytes = route.map_or(state.settings.api_body_bytes, |route| route.body.limit_bytes(&state.settings));
    let body = body::read(head, payload, limit_bytes, state.settings.body_timeout).await?;
    charge_agent_key(state, &access, marks)?;
    let Some(route) = route else { return Err(Problem::not_found()) };
    check_request(route, head, &body)?;
    let keyed_write = keyed_write(route, &access, head, &body)?;
    let common = Common { state: state.clone(), head: head.clone(), body, trace: marks.trace };
    match keyed_write {
        // A write that has begun goes on when its client goes away: what it changed is told to whom it concerns.
        None if route.changes_something() => {
            let task = actix_web::rt::spawn(AssertUnwindSafe(common.call(route, access)).catch_unwind());
            task.await.ok().and_then(Result::ok).unwrap_or_else(|| {
                tracing::error!("a write made the gateway panic");
                Err(Problem::internal())
            })
        }
        None => common.call(route, access).await,
        // Boxed: a request without a key does not carry its state about.
        Some(write) => {
            Box::pin(idempotency::once(state, write, move |write| common.call(route, access.for_write(write)))).await
        }
    }
}

/// 401 and 403.
async fn authenticate(state: &HttpState, surface: Surface, head: &HttpRequest) -> Result<Access, Problem> {
    let engine = &state.engine;
    let from = || head.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default();
    Ok(match surface {
        Surface::Agent => Access::Agent(engine.agent_access(key_text(head.headers())?).await?),
        Surface::Tenant => Access::Tenant(engine.workspace_access(key_text(head.headers())?, &from()).await?),
        Surface::Operator => Access::Operator(engine.operator_access(key_text(head.headers())?, &from())?),
        Surface::Callback | Surface::Public | Surface::Health => Access::Nobody,
    })
}

/// 431. Counted as the lines stand in the request: name, colon, space, value, line end.
fn check_header_block(headers: &HeaderMap, limit_bytes: usize) -> Result<(), Problem> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > limit_bytes { Err(Problem::headers_too_large(limit_bytes)) } else { Ok(()) }
}

/// 429 of the agent key: its level covers every request of its surface.
fn charge_agent_key(state: &HttpState, access: &Access, marks: &mut Marks) -> Result<(), Problem> {
    let Access::Agent(access) = access else { return Ok(()) };
    match access.charge() {
        Ok(status) => {
            marks.rate = Some(status);
            Ok(())
        }
        Err((refusal, status)) => {
            marks.rate = Some(status);
            state.engine.metrics().rate_limited(&access.catalog().org.slug, LimitScope::AgentKey.as_str());
            Err(Problem::rate_limited(refusal))
        }
    }
}

/// 400 of what can be told without the handler: the body's form, parameters nobody takes, headers of a later version.
fn check_request(route: &Route, head: &HttpRequest, body: &Bytes) -> Result<(), Problem> {
    match route.body {
        BodyRule::None if !body.is_empty() => {
            return Err(Problem::invalid_request("this request takes no body"));
        }
        // A callback is looked at after its signature, a message of MCP by whoever answers in that protocol's words.
        BodyRule::None | BodyRule::Callback | BodyRule::Message => {}
        BodyRule::Optional if body.is_empty() => {}
        BodyRule::Optional | BodyRule::Json | BodyRule::Run => {
            json_scan::scan(body).map_err(|fault| Problem::new(ErrorCode::InvalidJson, fault.message))?;
        }
    }
    match route.surface() {
        Surface::Agent | Surface::Tenant | Surface::Operator => {}
        Surface::Callback | Surface::Public | Surface::Health => return Ok(()),
    }
    match route.query {
        Some(known) => Query::of(head.query_string()).check(known),
        None => Ok(()),
    }
}

/// The write that an `Idempotency-Key` makes of a request. Runs look after their keys themselves; what changes nothing has
/// no use for one.
fn keyed_write(route: &Route, access: &Access, head: &HttpRequest, body: &[u8]) -> Result<Option<KeyedWrite>, Problem> {
    let key = || idempotency::key(head.headers());
    let content = || idempotency::content_hash(head, body);
    match (route.verb, access) {
        (Verb::Get, _) | (_, Access::Agent(_) | Access::Nobody) => Ok(None),
        (Verb::Post | Verb::Put | Verb::Patch | Verb::Delete, Access::Tenant(access)) => {
            Ok(key()?.map(|key| access.keyed_write(key, content())))
        }
        (Verb::Post | Verb::Put | Verb::Patch | Verb::Delete, Access::Operator(access)) => {
            Ok(key()?.map(|key| access.keyed_write(key, content())))
        }
    }
}

impl Access {
    /// The same proof, used for a write that was reserved.
    fn for_write(self, write: WriteId) -> Self {
        match self {
            Access::Tenant(access) => Access::Tenant(access.for_write(write)),
            Access::Operator(access) => Access::Operator(access.for_write(write)),
            other @ (Access::Agent(_) | Access::Nobody) => other,
        }
    }
}

/// A call without its proof of who asks.
struct Common {
    state: web::Data<HttpState>,
    head: HttpRequest,
    body: Bytes,
    trace: TraceContext,
}

impl Common {
    fn with<A>(self, access: A) -> Call<A> {
        Call { state: self.state, head: self.head, access, body: self.body, trace: self.trace }
    }

    fn call(self, route: &Route, access: Access) -> Answering {
        match (route.handler, access) {
            (Handler::Agent(handler), Access::Agent(access)) => handler(self.with(access)),
            (Handler::Tenant(handler), Access::Tenant(access)) => handler(self.with(access)),
            (Handler::Operator(handler), Access::Operator(access)) => handler(self.with(access)),
            (Handler::Callback(handler) | Handler::Public(handler) | Handler::Health(handler), Access::Nobody) => {
                handler(self.with(()))
            }
            // All routes of a path have its surface; should one not, nobody passes.
            (
                Handler::Agent(_)
                | Handler::Tenant(_)
                | Handler::Operator(_)
                | Handler::Callback(_)
                | Handler::Public(_)
                | Handler::Health(_),
                _,
            ) => Box::pin(async { Err(Problem::internal()) }),
        }
    }
}

/// Too many 401s of one peer address become 429s.
fn limit_refusals(state: &HttpState, head: &HttpRequest, problem: Problem) -> Problem {
    if problem.code().status() != 401 {
        return problem;
    }
    let peer: Option<std::net::IpAddr> = head.peer_addr().map(|peer| peer.ip());
    let peers: &auth::PeerLimits = &state.peers;
    match peers.charge(peer) {
        Ok(()) => problem,
        Err(retry_after) => {
            state.engine.metrics().rate_limited("", "peer");
            Problem::too_many_refusals(retry_after)
        }
    }
}

impl Marks {
    fn of(state: &HttpState, head: &HttpRequest) -> Self {
        let own = head.headers().get(X_REQUEST_ID).filter(|id| is_request_id(id.as_bytes())).cloned();
        let request_id = own.unwrap_or_else(|| {
            let mut buffer = Uuid::encode_buffer();
            let id = state.engine.clock().new_uuid();
            let text = id.as_hyphenated().encode_lower(&mut buffer);
            HeaderValue::from_str(text).expect("a UUID is visible ASCII")
        });
        let mut random = [0; 24];
        state.engine.clock().fill_random(&mut random);
        let traceparent = head.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
        Self { request_id, trace: TraceContext::continue_from(traceparent, random), rate: None }
    }

    fn put_on(self, headers: &mut HeaderMap) {
        headers.insert(X_REQUEST_ID, self.request_id);
        if let Some(RateStatus { quota_per_second, remaining, reset_s }) = self.rate {
            let mut put = |name, text: String| {
                let value = HeaderValue::from_str(&text).expect("numbers and words are visible ASCII");
                headers.insert(name, value);
            };
            put(RATE_LIMIT_POLICY, format!("\"agent_key\";q={quota_per_second};w=1"));
            put(RATE_LIMIT, format!("\"agent_key\";r={remaining};t={reset_s}"));
        }
    }
}

fn is_request_id(bytes: &[u8]) -> bool {
    (1..=LONGEST_REQUEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

/// What an entity tag stands for may be kept but has to be asked about; nothing else of the three APIs is kept.
fn put_cache_headers(path: &str, headers: &mut HeaderMap) {
    if headers.contains_key(ETAG) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        headers.insert(VARY, HeaderValue::from_static("X-Auth, Authorization"));
    } else if Surface::of_unknown_path(path) != Surface::Public {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_block_of_exactly_its_limit_passes() {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("abcd"));
        headers.append(TRACEPARENT, HeaderValue::from_static("abcd"));
        let bytes = "x-request-id: abcd\r\ntraceparent: abcd\r\n".len();
        assert!(check_header_block(&headers, bytes).is_ok());
        assert!(check_header_block(&headers, bytes - 1).is_err());
    }

    #[test]
    fn a_request_keeps_its_id_when_it_is_short_and_visible() {
        assert!(is_request_id(b"abc-1"));
        assert!(is_request_id(&[b'x'; LONGEST_REQUEST_ID]));
        for bad in [&b""[..], &[b'x'; LONGEST_REQUEST_ID + 1], b"a b", "é".as_bytes(), b"a\tb"] {
            assert!(!is_request_id(bad));
        }
    }

    #[test]
    fn tagged_answers_are_asked_about_and_others_are_not_kept() {
        let cache = |path: &str, tagged: bool| {
            let mut headers = HeaderMap::new();
            if tagged {
                headers.insert(ETAG, HeaderValue::from_static("\"1\""));
            }
            put_cache_headers(path, &mut headers);
            headers.get(CACHE_CONTROL).map(|value| value.to_str().expect("ASCII").to_owned())
        };
        assert_eq!(cache("/v1/tools", true).as_deref(), Some("private, no-cache"));
        assert_eq!(cache("/openapi.json", true).as_deref(), Some("private, no-cache"));
        for path in ["/v1/tools", "/mcp", "/admin/v1/orgs", "/mcp/x"] {
            assert_eq!(cache(path, false).as_deref(), Some("no-store"), "{path}");
        }
        assert_eq!(cache("/healthz", false), None);
        assert_eq!(cache("/v1x", false), None);
    }
}
