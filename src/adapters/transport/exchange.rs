//! One request and its answer on an open connection: what is written, what is read, and what a failure means.

use super::connect::Sender;
use super::target::Target;
use crate::dialects::{InboundAnswer, Method, OutboundRequest};
use crate::engine::ports::TransportFault;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use std::io;

/// The request as hyper takes it.
pub(super) type Message = Request<Full<Bytes>>;

pub(super) const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("toolgate/", env!("CARGO_PKG_VERSION")));
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Longest entity tag that is kept, in bytes.
const MAX_ETAG: usize = 256;
/// Longest session id that is kept, in bytes: it goes into a header of every later request.
const MAX_SESSION_ID: usize = 1024;

pub(super) const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// Writes down a provider's request: `Host`, what every request has, and the request's own headers, nothing else.
/// A header that cannot be written, or that would change where the request ends, makes it uncallable.
pub(super) fn message(request: &OutboundRequest, target: &Target) -> Result<Message, TransportFault> {
    let mut message = Request::new(Full::new(request.body.clone()));
    *message.uri_mut() = target.uri.clone();
    *message.method_mut() = match request.method {
        Method::Get => hyper::Method::GET,
        Method::Post => hyper::Method::POST,
        Method::Delete => hyper::Method::DELETE,
    };
    let headers = message.headers_mut();
    headers.reserve(6 + request.headers.len());
    headers.insert(header::HOST, target.host_header.clone());
    headers.insert(header::USER_AGENT, USER_AGENT);
    headers.insert(header::ACCEPT, JSON);
    headers.insert(header::ACCEPT_ENCODING, IDENTITY);
    match request.method {
        Method::Get | Method::Delete => {}
        Method::Post => {
            headers.insert(header::CONTENT_TYPE, JSON);
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(request.body.len()));
        }
    }
    for (name, value) in &request.headers {
        add_header(headers, name, value).ok_or(TransportFault::BadUrl)?;
    }
    Ok(message)
}

/// `None` when the header cannot be sent. One that replaces a default of ours stands alone, others may repeat.
pub(super) fn add_header(headers: &mut HeaderMap, name: &str, value: &str) -> Option<()> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
    if is_framing(&name) {
        return None;
    }
    if matches!(name.as_str(), "accept" | "user-agent" | "content-type") {
        headers.insert(name, value);
    } else {
        headers.append(name, value);
    }
    Some(())
}

/// Headers that say where a message goes or ends, or what the answer is packed in: the transport's own business.
fn is_framing(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "host"
            | "content-length"
            | "transfer-encoding"
            | "connection"
            | "upgrade"
            | "te"
            | "trailer"
            | "expect"
            | "accept-encoding"
    )
}

/// Why a message got no answer.
#[derive(Debug)]
pub(super) enum SendFailure {
    /// hyper gave the message back: not one byte of it was written.
    Unsent(Box<Message>),
    /// Some of it may have been.
    Sent(hyper::Error),
}

/// Sends a message and waits for the head of the answer.
pub(super) async fn send(sender: &mut Sender, message: Message) -> Result<Response<Incoming>, SendFailure> {
    sender.try_send_request(message).await.map_err(|mut error| match error.take_message() {
        Some(message) => SendFailure::Unsent(Box::new(message)),
        None => SendFailure::Sent(error.into_error()),
    })
}

/// Refuses an answer that is packed: nobody asked for that, and what it unpacks to has no bound.
pub(super) fn uncoded(response: Response<Incoming>) -> Result<Response<Incoming>, TransportFault> {
    let mut encodings = response.headers().get_all(header::CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(TransportFault::Malformed);
    }
    Ok(response)
}

/// Reads an answer, at most `max_bytes` of body. An announced length over the limit is refused before a byte is read.
pub(super) async fn read_answer(
    response: Response<Incoming>,
    max_bytes: usize,
) -> Result<InboundAnswer, TransportFault> {
    let (head, body) = response.into_parts();
    let etag = entity_tag(&head.headers);
    let body = read_body(body, max_bytes).await.map_err(|error| match error {
        BodyError::TooLarge => TransportFault::TooLarge,
        BodyError::Broken(error) => fault_of(&error),
    })?;
    Ok(InboundAnswer { status: head.status.as_u16(), etag, body })
}

/// The entity tag of an answer, when it is one that can be sent back: quoted, visible and of a sane length.
fn entity_tag(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::ETAG)?.to_str().ok()?;
    let opaque = text.strip_prefix("W/").unwrap_or(text);
    let inner = opaque.strip_prefix('"')?.strip_suffix('"')?;
    (text.len() <= MAX_ETAG && inner.bytes().all(|b| b.is_ascii_graphic() && b != b'"')).then(|| text.to_owned())
}

/// The media type of an answer with its parameters, as it was written.
pub(super) fn content_type(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(header::CONTENT_TYPE)?.to_str().ok()?.to_owned())
}

/// The MCP session an answer opens, when its id is one that can be sent back.
pub(super) fn session_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("mcp-session-id")?.to_str().ok()?;
    let is_good = (1..=MAX_SESSION_ID).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    is_good.then(|| text.to_owned())
}

/// Why a body was not read to its end.
#[derive(Debug)]
pub(super) enum BodyError {
    TooLarge,
    Broken(hyper::Error),
}

/// Reads a body that may not be longer than `max_bytes`; more than one chunk beyond the limit is never held.
pub(super) async fn read_body(mut body: Incoming, max_bytes: usize) -> Result<Bytes, BodyError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max_bytes {
        return Err(BodyError::TooLarge);
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers are read over.
        let Ok(chunk) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        if chunk.len() > max_bytes - first.len() - rest.len() {
            return Err(BodyError::TooLarge);
        }
        if first.is_empty() && rest.is_empty() {
            // Most answers come in one piece and are handed on without a copy.
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.reserve(announced.max(first.len() + chunk.len()));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// What hyper's error says about the provider. A head over the limits is no HTTP that we speak.
pub(super) fn fault_of(error: &hyper::Error) -> TransportFault {
    if error.is_parse() {
        return TransportFault::Malformed;
    }
    // Faults of a chunked body come as I/O errors of these kinds.
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<io::Error>() {
            return match cause.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => TransportFault::Malformed,
                _ => TransportFault::Reset,
            };
        }
        source = cause.source();
    }
    TransportFault::Reset
}
