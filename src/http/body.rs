//! Reading a request's body within its limit.

use super::error::Problem;
use crate::domain::error_code::ErrorCode;
use actix_web::HttpRequest;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use actix_web::web::Payload;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use std::time::Duration;

/// A refused body of at most so many bytes is read and dropped, so that its connection can go on.
const DRAINED_BYTES: u64 = 1 << 20;

/// For so long at most.
const DRAINED_FOR: Duration = Duration::from_secs(1);

/// The announced length; `None` for a chunked body.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether the request announces a body.
pub(super) fn is_announced(headers: &HeaderMap) -> bool {
    announced(headers).is_some_and(|length| length > 0) || headers.contains_key(TRANSFER_ENCODING)
}

/// A body has to be `application/json`, in any case and with any parameters, and not compressed. A chunked body that
/// turns out to be empty is none.
pub(super) async fn check_media_type(
    headers: &HeaderMap,
    payload: &mut Payload,
    timeout: Duration,
) -> Result<(), Problem> {
    let Err(problem) = media_type(headers) else { return Ok(()) };
    let is_none =
        announced(headers).is_none() && matches!(tokio::time::timeout(timeout, payload.next()).await, Ok(None));
    if is_none { Ok(()) } else { Err(problem) }
}

fn media_type(headers: &HeaderMap) -> Result<(), Problem> {
    if !is_announced(headers) {
        return Ok(());
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(ErrorCode::UnsupportedMediaType, "send the body as Content-Type: application/json"));
    }
    let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(ErrorCode::UnsupportedMediaType, "send the body without a Content-Encoding"));
    }
    Ok(())
}

/// Reads the body. A body of exactly `limit_bytes` passes; one that announces more is refused before it is read.
pub(super) async fn read(
    head: &HttpRequest,
    payload: &mut Payload,
    limit_bytes: usize,
    timeout: Duration,
) -> Result<Bytes, Problem> {
    if !is_announced(head.headers()) {
        return Ok(Bytes::new());
    }
    let length = announced(head.headers());
    if length.is_some_and(|length| length > limit_bytes as u64) {
        return Err(Problem::too_large(limit_bytes));
    }
    let whole = tokio::time::timeout(timeout, collect(payload, length, limit_bytes)).await;
    whole.unwrap_or_else(|_| Err(Problem::invalid_request("the body did not arrive in time")))
}

async fn collect(payload: &mut Payload, length: Option<u64>, limit_bytes: usize) -> Result<Bytes, Problem> {
    let cut_off = |_| Problem::invalid_request("the body did not arrive whole");
    let Some(first) = payload.next().await.transpose().map_err(cut_off)? else { return Ok(Bytes::new()) };
    if first.len() > limit_bytes {
        return Err(Problem::too_large(limit_bytes));
    }
    // A small body comes in one piece, and is taken as it is.
    if length == Some(first.len() as u64) {
        return Ok(first);
    }
    let mut body = BytesMut::from(first.as_ref());
    while let Some(chunk) = payload.next().await.transpose().map_err(cut_off)? {
        if body.len() + chunk.len() > limit_bytes {
            return Err(Problem::too_large(limit_bytes));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Drops the small body of a refused request. The rest of a larger one is the server's business: it closes.
pub(super) async fn drain(head: &HttpRequest, payload: &mut Payload) {
    if announced(head.headers()).is_some_and(|length| length > 0 && length <= DRAINED_BYTES) {
        let all = async { while let Some(Ok(_)) = payload.next().await {} };
        // A client that does not send what it announced is answered all the same.
        let _ = tokio::time::timeout(DRAINED_FOR, all).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    // TykTechnologies/tyk#8539
    #[test]
    fn media_types_are_compared_without_case_and_parameters() {
        for good in ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;x=y"]
        {
            assert!(media_type(&headers(&[("content-length", "2"), ("content-type", good)])).is_ok(), "{good}");
        }
        for bad in
            ["", "text/plain", "application/json5", "application/problem+json", "application/x, application/json"]
        {
            assert!(media_type(&headers(&[("content-length", "2"), ("content-type", bad)])).is_err(), "{bad}");
        }
        assert!(media_type(&headers(&[("transfer-encoding", "chunked")])).is_err());
        assert!(media_type(&headers(&[("content-length", "0"), ("content-type", "text/plain")])).is_ok());
        assert!(media_type(&headers(&[])).is_ok());
    }

    #[test]
    fn a_compressed_body_is_refused_as_such() {
        let compressed = [("content-length", "2"), ("content-type", "application/json"), ("content-encoding", "gzip")];
        assert!(media_type(&headers(&compressed)).is_err());
    }
}
