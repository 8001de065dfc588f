//! Headers an agent may send, each within its length.

use crate::http::error::Problem;
use actix_web::http::header::{HeaderMap, HeaderName};

const CALLER: HeaderName = HeaderName::from_static("x-caller-identity");
const CONVERSATION: HeaderName = HeaderName::from_static("conversation-id");

/// Longest `X-Caller-Identity`.
const LONGEST_CALLER: usize = 256;

/// Longest `Conversation-Id`.
pub(super) const LONGEST_CONVERSATION: usize = 128;

/// Who the end user is, as the agent says.
pub(in crate::http) fn caller(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    opaque(headers, &CALLER, "X-Caller-Identity", LONGEST_CALLER)
}

/// Which conversation the request belongs to.
pub(in crate::http) fn conversation(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    opaque(headers, &CONVERSATION, "Conversation-Id", LONGEST_CONVERSATION)
}

/// One header of visible characters; empty is absent.
fn opaque<'a>(
    headers: &'a HeaderMap,
    header: &HeaderName,
    shown: &'static str,
    longest: usize,
) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(header);
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_graphic()));
    match text {
        Some(text) if text.len() <= longest && values.all(|other| other == value) => {
            Ok(Some(text).filter(|text| !text.is_empty()))
        }
        Some(_) | None => Err(Problem::invalid_request(format!(
            "{shown} may be sent once and hold at most {longest} visible ASCII characters"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn caller_of(lines: &[&[u8]]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = HeaderValue::from_bytes(line).expect("a header value");
            headers.append(HeaderName::from_static("x-caller-identity"), value);
        }
        caller(&headers).map(|caller| caller.map(str::to_owned)).map_err(|problem| problem.code().as_str())
    }

    #[test]
    fn a_caller_is_visible_and_not_too_long() {
        assert_eq!(caller_of(&[]), Ok(None));
        assert_eq!(caller_of(&[b""]), Ok(None));
        assert_eq!(caller_of(&[b"whatsapp:+201000000000"]), Ok(Some("whatsapp:+201000000000".to_owned())));
        assert_eq!(caller_of(&[b"a", b"a"]), Ok(Some("a".to_owned())));
        assert!(caller_of(&[&[b'x'; LONGEST_CALLER]]).is_ok());
        for bad in [&[&[b'x'; LONGEST_CALLER + 1][..]][..], &[b"a b"], &[b"\xc3\xa9"], &[b"a", b"b"]] {
            assert_eq!(caller_of(bad), Err("invalid_request"));
        }
    }
}
