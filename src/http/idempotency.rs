//! `Idempotency-Key`: a write of the tenant's or the operator's API is made once and answered as often as it is asked for.
//!
//! A write runs in a task of its own: a client that goes away leaves it to its end, and its answer is kept. Identical ones
//! that come meanwhile wait for that end. **Invariant:** what is kept, and given to anyone but the first, shows `null`
//! where a secret was shown.

use super::HttpState;
use super::call::{Answer, Answering};
use super::error::Problem;
use crate::domain::canonical;
use crate::domain::error_code::ErrorCode;
use crate::domain::key;
use crate::engine::Engine;
use crate::engine::dispatch::signing;
use crate::engine::store_port::{StoreResult, WriteAnswer, WriteId};
use crate::engine::writes::{BegunWrite, KeyedWrite, WriteTicket};
use actix_web::body::to_bytes;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, LOCATION};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Says that an answer was given before.
pub(super) const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");

/// Longest key, in characters.
const LONGEST_KEY: usize = 128;

/// Headers that belong to an answer, whoever asks for it.
const KEPT_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, ETAG, LOCATION];

/// A write that another node is making is waited for so long: longer than any write takes.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(30);

/// How soon the store is asked again about it.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The key of a request: visible characters as they stand, or the same as a quoted string (RFC 9651).
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY);
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.all(|other| other == value)).and_then(unquoted);
    let good =
        text.filter(|text| (1..=LONGEST_KEY).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()));
    good.map(Some).ok_or_else(|| {
        let shape = "1 to 128 visible ASCII characters, as they are or as a quoted string";
        Problem::invalid_request(format!("Idempotency-Key may be sent once and holds {shape}"))
    })
}

/// The contents of a quoted string; what does not begin with a quote stands for itself.
fn unquoted(text: &str) -> Option<String> {
    let text = text.trim_matches([' ', '\t']);
    let Some(rest) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let (mut contents, mut rest) = (String::new(), rest.chars());
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(contents),
            '\\' => contents.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            other => contents.push(other),
        }
    }
}

/// SHA-256 of what a request asks for: its method, its target, and its body whatever its spaces and order of members.
pub(super) fn content_hash(head: &HttpRequest, body: &[u8]) -> [u8; 32] {
    let target = head.uri().path_and_query().map_or("", |target| target.as_str());
    let mut hash = Sha256::new();
    for part in [head.method().as_str(), target] {
        hash.update(part);
        hash.update([0]);
    }
    match serde_json::from_slice(body) {
        Ok(value) => hash.update(canonical::to_canonical(&value)),
        // No body, which is another request than `{}`; the phases have refused what is no JSON.
        Err(_) => hash.update(body),
    }
    hash.finalize().into()
}

/// Writes under way on this node.
#[derive(Default)]
pub(super) struct WritesUnderWay(DashMap<WriteId, UnderWay>);

struct UnderWay {
    content_hash: [u8; 32],
    end: watch::Receiver<Option<End>>,
}

/// How a write ended, for everybody who waits for it.
#[derive(Clone)]
enum End {
    Answered(Arc<WriteAnswer>),
    Refused(Arc<Problem>),
}

/// What a request found its write to be on this node.
enum Entry {
    /// The first: it has to tell the others how it ends.
    First(watch::Sender<Option<End>>),
    Joined(watch::Receiver<Option<End>>),
    Other,
}

impl WritesUnderWay {
    fn enter(&self, write: &KeyedWrite) -> Entry {
        match self.0.entry(write.id().clone()) {
            dashmap::Entry::Occupied(entry) if entry.get().content_hash == *write.content_hash() => {
                Entry::Joined(entry.get().end.clone())
            }
            dashmap::Entry::Occupied(_) => Entry::Other,
            dashmap::Entry::Vacant(entry) => {
                let (tell, end) = watch::channel(None);
                entry.insert(UnderWay { content_hash: *write.content_hash(), end });
                Entry::First(tell)
            }
        }
    }
}

/// Takes a write out of the table, also when its task panics.
struct LeavesWhenDropped(web::Data<HttpState>, WriteId);

impl Drop for LeavesWhenDropped {
    fn drop(&mut self) {
        self.0.writes.0.remove(&self.1);
    }
}

/// Makes a write, unless it was made before or is being made: then it is answered alike.
pub(super) async fn once(
    state: &web::Data<HttpState>,
    write: KeyedWrite,
    make: impl FnOnce(WriteId) -> Answering + 'static,
) -> Answer {
    match state.writes.enter(&write) {
        Entry::Other => Err(other_content()),
        Entry::Joined(mut end) => {
            let end = end.wait_for(Option::is_some).await.map(|end| end.clone());
            end.ok().flatten().map_or_else(|| Err(Problem::internal()), End::again)
        }
        Entry::First(tell) => {
            let state = state.clone();
            let task = actix_web::rt::spawn(async move {
                let leaves = LeavesWhenDropped(state.clone(), write.id().clone());
                let (answer, end) = answer(&state.engine, &write, make).await;
                // Out of the table before the news: whoever asks after it finds the answer in the store.
                drop(leaves);
                tell.send_replace(Some(end));
                answer
            });
            task.await.unwrap_or_else(|_| Err(Problem::internal()))
        }
    }
}

/// The answer for the first request, and for all others.
async fn answer(engine: &Engine, write: &KeyedWrite, make: impl FnOnce(WriteId) -> Answering) -> (Answer, End) {
    let shared = |problem: Problem| (Err(problem.clone()), End::Refused(Arc::new(problem.replayed())));
    let refused = |problem: Problem| (Err(problem.clone()), End::Refused(Arc::new(problem)));
    match begin(engine, write).await {
        Ok(BegunWrite::Make(ticket)) => {
            let made = AssertUnwindSafe(make(write.id().clone())).catch_unwind().await;
            let made = made.unwrap_or_else(|_| {
                tracing::error!("a write made the gateway panic");
                Err(Problem::internal())
            });
            match made {
                Ok(response) => keep(engine, ticket, response).await.unwrap_or_else(shared),
                Err(problem) => {
                    engine.release_write(ticket).await;
                    shared(problem)
                }
            }
        }
        Ok(BegunWrite::Answered(kept)) => {
            let end = End::Answered(Arc::new(kept));
            (end.clone().again(), end)
        }
        Ok(BegunWrite::UnderWay) => refused(Problem::overloaded()),
        Ok(BegunWrite::AnswerLost) => refused(answer_lost()),
        Ok(BegunWrite::Other) => refused(other_content()),
        Err(error) => refused(error.into()),
    }
}

/// Begins a write; one that is being made elsewhere is waited for.
async fn begin(engine: &Engine, write: &KeyedWrite) -> StoreResult<BegunWrite> {
    let until = Instant::now() + WAIT_FOR_OTHERS;
    loop {
        match engine.begin_write(write).await? {
            BegunWrite::UnderWay if Instant::now() < until => tokio::time::sleep(ASK_AGAIN_AFTER).await,
            begun => return Ok(begun),
        }
    }
}

/// Keeps an answer, without its secrets, before anyone is told of it.
async fn keep(engine: &Engine, ticket: WriteTicket, response: HttpResponse) -> Result<(Answer, End), Problem> {
    let (head, body) = response.into_parts();
    let body = to_bytes(body).await.map_err(|error| {
        tracing::error!(error = %error, "the body of a write's answer could not be kept");
        Problem::internal()
    })?;
    let header = |name: &HeaderName| {
        let value = head.headers().get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    };
    let kept = WriteAnswer {
        status: head.status().as_u16(),
        headers: KEPT_HEADERS.iter().filter_map(header).collect(),
        body: without_secrets(&body),
    };
    engine.keep_answer(ticket, &kept).await;
    let response = if body.is_empty() { head.set_body(()).map_into_boxed_body() } else { with_body(head, body) };
    Ok((Ok(response), End::Answered(Arc::new(kept))))
}

fn with_body(head: HttpResponse<()>, body: Bytes) -> HttpResponse {
    head.set_body(body).map_into_boxed_body()
}

impl End {
    /// The same once more.
    fn again(self) -> Answer {
        let kept = match self {
            End::Answered(kept) => kept,
            End::Refused(problem) => return Err(Problem::clone(&problem)),
        };
        let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
        let mut answer = HttpResponse::build(status);
        for (name, value) in &kept.headers {
            answer.insert_header((name.as_str(), value.as_str()));
        }
        answer.insert_header((IDEMPOTENT_REPLAY, "true"));
        Ok(if kept.body.is_empty() { answer.finish() } else { answer.body(kept.body.clone()) })
    }
}

fn other_content() -> Problem {
    let detail = "this Idempotency-Key stands for another request; take a new key for this one";
    Problem::new(ErrorCode::OperationConflict, detail)
}

fn answer_lost() -> Problem {
    let detail = "the request of this Idempotency-Key has changed something, and its answer was lost; read the object, or \
                  /v1/audit, to see what was changed before you send it again with a new key";
    Problem::new(ErrorCode::OperationConflict, detail)
}

/// The JSON of an answer with `null` in place of every secret of our own making. Done on the text, so that nothing else of
/// it changes; such secrets are written without escapes.
fn without_secrets(json: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(json.len());
    let mut at = 0;
    while at < json.len() {
        let length = if json[at] == b'"' { text_length(&json[at..]) } else { 1 };
        let token = &json[at..at + length];
        kept.extend_from_slice(if is_secret(token) { b"null" } else { token });
        at += length;
    }
    kept
}

/// Bytes from one quote to the next that is not escaped, both counted.
fn text_length(json: &[u8]) -> usize {
    let mut escaped = false;
    let end = json.iter().skip(1).position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

fn is_secret(token: &[u8]) -> bool {
    let text = token.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let text = text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    key::recognise(text).is_some() || signing::is_webhook_secret(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::key::KeyKind;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;

    fn key_of(lines: &[&[u8]]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).expect("a header value"));
        }
        key(&headers).map_err(|problem| problem.code().as_str())
    }

    #[test]
    fn a_key_stands_as_it_is_or_quoted() {
        let long = "k".repeat(LONGEST_KEY);
        for (line, expected) in [
            ("k-1", "k-1"),
            ("\"k-1\"", "k-1"),
            ("a\"b", "a\"b"),
            ("a\\b", "a\\b"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (&long, &long),
            (&format!("\"{long}\""), &long),
        ] {
            assert_eq!(key_of(&[line.as_bytes()]), Ok(Some(expected.to_owned())), "{line}");
        }
        assert_eq!(key_of(&[]), Ok(None));
        assert_eq!(key_of(&[b"a", b"a"]), Ok(Some("a".to_owned())));
        let (too_long, too_long_quoted) = (format!("{long}k"), format!("\"{long}k\""));
        for bad in
            ["", "\"\"", "\"", "\"a", "\"a\"b", "\"a\";p=1", "\"a\\b\"", "a b", "\"a b\"", &too_long, &too_long_quoted]
        {
            assert_eq!(key_of(&[bad.as_bytes()]), Err("invalid_request"), "{bad}");
        }
        assert_eq!(key_of(&["é".as_bytes()]), Err("invalid_request"));
        assert_eq!(key_of(&[b"a", b"b"]), Err("invalid_request"));
    }

    #[test]
    fn what_is_asked_for_is_compared_whatever_its_spelling() {
        let hash = |method: &str, target: &str, body: &str| {
            let method = actix_web::http::Method::from_bytes(method.as_bytes()).expect("a method");
            let head = TestRequest::with_uri(target).method(method).to_http_request();
            content_hash(&head, body.as_bytes())
        };
        let first = hash("POST", "/v1/groups", r#"{"a":1,"b":[2]}"#);
        assert_eq!(first, hash("POST", "/v1/groups", "{ \"b\" : [ 2 ],\n\"a\":1.0 }"));
        for (method, target, body) in [
            ("PUT", "/v1/groups", r#"{"a":1,"b":[2]}"#),
            ("POST", "/v1/groups?x", r#"{"a":1,"b":[2]}"#),
            ("POST", "/v1/group", r#"{"a":1,"b":[2]}"#),
            ("POST", "/v1/groups", r#"{"a":1,"b":[3]}"#),
            ("POST", "/v1/groups", ""),
        ] {
            assert_ne!(first, hash(method, target, body), "{method} {target} {body}");
        }
        assert_ne!(hash("POST", "/v1/x", ""), hash("POST", "/v1/x", "{}"));
    }

    #[test]
    fn every_secret_of_ours_becomes_null_and_nothing_else_changes() {
        let workspace = key::mint(KeyKind::Workspace, [1; 32]);
        let hook = signing::mint_webhook_secret([2; 24]);
        let (workspace, hook) = (workspace.reveal(), hook.reveal());
        let body = format!(
            r#"{{"key":"{workspace}","in":{{"secret":"{hook}","note":"say \"{hook}\" \\"}},"n":1.50,"secret":"mine"}}"#
        );
        let expected =
            format!(r#"{{"key":null,"in":{{"secret":null,"note":"say \"{hook}\" \\"}},"n":1.50,"secret":"mine"}}"#);
        assert_eq!(String::from_utf8(without_secrets(body.as_bytes())).expect("UTF-8"), expected);
        assert_eq!(without_secrets(b""), b"");
        assert_eq!(without_secrets(b"\"cut"), b"\"cut");
    }
}
