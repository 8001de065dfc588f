//! Conditional requests over the bytes of an answer: `ETag`, `If-None-Match`, `If-Match`.

use super::error::Problem;
use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The strong entity tag of a body: its SHA-256, quoted.
pub(super) fn body_etag(body: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Sha256::digest(body)))
}

/// 200 with the body, or 304 when the client has it already.
pub(super) fn conditional_json(headers: &HeaderMap, body: impl Into<Bytes>, etag: &str) -> HttpResponse {
    if if_none_match(headers, etag) {
        return HttpResponse::NotModified().insert_header((ETAG, etag)).finish();
    }
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).insert_header((ETAG, etag)).body(body.into())
}

/// A value as JSON under the tag of its bytes.
pub(super) fn tagged_json(headers: &HeaderMap, value: &impl Serialize) -> HttpResponse {
    let body = to_json(value);
    let etag = body_etag(&body);
    conditional_json(headers, body, &etag)
}

/// 200 with an item that was just changed, under the tag of its bytes.
pub(super) fn changed_json(value: &impl Serialize) -> HttpResponse {
    tagged_json(&HeaderMap::new(), value)
}

/// Refuses a change of an item without a version when `If-Match` names another state of it than `present`.
pub(super) fn if_match_state(headers: &HeaderMap, present: &impl Serialize) -> Result<(), Problem> {
    let Some(tags) = tags(headers, IF_MATCH) else { return Ok(()) };
    let etag = body_etag(&to_json(present));
    if tags.iter().any(|tag| tag == "*" || *tag == etag) { Ok(()) } else { Err(Problem::stale()) }
}

/// The JSON of one of our own wire types.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("wire types are maps with text keys, lists, text and numbers")
}

/// Whether `If-None-Match` names the entity tag, compared weakly as RFC 9110 wants it for this header.
pub(super) fn if_none_match(headers: &HeaderMap, etag: &str) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    tags(headers, IF_NONE_MATCH).is_some_and(|tags| tags.iter().any(|tag| tag == "*" || opaque(tag) == etag))
}

/// Every entity tag of a list header, over all its lines; `None` when there is no such header. Opaque tags may hold
/// commas, so the list is read by quotes.
fn tags(headers: &HeaderMap, name: HeaderName) -> Option<Vec<String>> {
    let mut found = None;
    for value in headers.get_all(name) {
        let tags: &mut Vec<String> = found.get_or_insert_default();
        let Ok(text) = value.to_str() else {
            tags.push(String::new());
            continue;
        };
        let (mut tag, mut quoted) = (String::new(), false);
        for c in text.chars() {
            match c {
                '"' => {
                    quoted = !quoted;
                    tag.push(c);
                }
                ',' if !quoted => tags.push(std::mem::take(&mut tag)),
                ' ' | '\t' if !quoted => {}
                other => tag.push(other),
            }
        }
        tags.push(tag);
        tags.retain(|tag| !tag.is_empty());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn headers(name: HeaderName, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_str(line).expect("a header value"));
        }
        headers
    }

    #[test]
    fn if_none_match_compares_weakly_over_lists_and_lines() {
        for (lines, matches) in [
            (vec![], false),
            (vec!["\"a\""], true),
            (vec!["W/\"a\""], true),
            (vec!["\"b\", \"a\""], true),
            (vec!["\"b\"", "W/\"a\""], true),
            (vec!["*"], true),
            (vec!["\"b\""], false),
            (vec!["a"], false),
            (vec!["\"x,\"a\",y\""], false),
            (vec![""], false),
        ] {
            assert_eq!(if_none_match(&headers(IF_NONE_MATCH, &lines), "\"a\""), matches, "{lines:?}");
        }
    }

    #[test]
    fn a_known_body_is_not_sent_again() {
        let known = headers(IF_NONE_MATCH, &["\"a\""]);
        let answer = conditional_json(&known, "{}", "\"a\"");
        assert_eq!(answer.status().as_u16(), 304);
        assert_eq!(answer.headers().get(ETAG).and_then(|v| v.to_str().ok()), Some("\"a\""));
        assert_eq!(conditional_json(&known, "{}", "\"b\"").status().as_u16(), 200);
    }
}
