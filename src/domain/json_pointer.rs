//! RFC 6901 pointers, as messages and schema references use them.

use std::borrow::Cow;

/// Longest pointer that a message repeats, in characters.
const SHOWN_CHARS: usize = 256;

/// Appends one reference token, escaped.
pub(crate) fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// One reference token as the name it stands for.
pub(crate) fn unescape(token: &str) -> Cow<'_, str> {
    if token.contains('~') { Cow::Owned(token.replace("~1", "/").replace("~0", "~")) } else { Cow::Borrowed(token) }
}

/// The pointer as a message shows it: names are the sender's and may be of any length.
pub(crate) fn shortened(pointer: String) -> String {
    match pointer.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &pointer[..end]),
        None => pointer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_escaped_and_read_back() {
        let mut pointer = String::new();
        push(&mut pointer, "a/b");
        push(&mut pointer, "~1");
        assert_eq!(pointer, "/a~1b/~01");
        assert_eq!(unescape("a~1b"), "a/b");
        assert_eq!(unescape("~01"), "~1");
    }
}
