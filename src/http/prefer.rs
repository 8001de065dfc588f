//! `Prefer: wait=N` (RFC 7240): how long the client is willing to wait.

use crate::engine::settings::MAX_WAIT;
use actix_web::http::header::{HeaderMap, HeaderName};
use std::time::Duration;

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The `wait` preference, clamped to the longest wait; `None` when there is none or it cannot be read. As the RFC wants,
/// the first of several counts, and what is not understood is ignored.
pub(super) fn wait(headers: &HeaderMap) -> Option<Duration> {
    headers.get_all(PREFER).filter_map(|value| value.to_str().ok()).flat_map(preferences).find_map(|preference| {
        // What follows a semicolon are parameters of the preference.
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| seconds(value.trim()))
    })?
}

/// The seconds, unquoted: digits only; a number beyond any clock is the longest wait.
fn seconds(value: &str) -> Option<Duration> {
    let digits = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().map_or(MAX_WAIT, Duration::from_secs).min(MAX_WAIT))
}

/// Splits at commas outside quotes.
fn preferences(text: &str) -> Vec<&str> {
    let mut quoted = false;
    text.split(|c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;
    use proptest::prelude::*;

    fn wait_of(lines: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(PREFER, HeaderValue::from_str(line).expect("a header value"));
        }
        wait(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn wait_is_found_among_other_preferences() {
        for (lines, expected) in [
            (vec![], None),
            (vec!["wait=10"], Some(10)),
            (vec!["WAIT = 10"], Some(10)),
            (vec!["wait=\"10\""], Some(10)),
            (vec!["respond-async, wait=5"], Some(5)),
            (vec!["respond-async; wait=7, wait=5; x=1"], Some(5)),
            (vec!["respond-async", "wait=5"], Some(5)),
            (vec!["wait=5, wait=9"], Some(5)),
            (vec!["x=\"a, wait=3\", wait=4"], Some(4)),
            (vec!["wait=0"], Some(0)),
        ] {
            assert_eq!(wait_of(&lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn wait_is_clamped_to_a_minute() {
        assert_eq!(wait_of(&["wait=61"]), Some(60));
        assert_eq!(wait_of(&["wait=99999999999999999999999999"]), Some(60));
    }

    #[test]
    fn what_is_not_a_number_of_seconds_is_ignored() {
        for garbage in
            ["wait", "wait=", "wait=-1", "wait=1.5", "wait=1s", "wait=+1", "waiting=5", "=5", ";wait=5", "\""]
        {
            assert_eq!(wait_of(&[garbage]), None, "{garbage}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic_or_wait_too_long(text in "[ -~]{0,60}") {
            prop_assert!(wait_of(&[&text]).is_none_or(|wait| wait <= 60));
        }
    }
}
