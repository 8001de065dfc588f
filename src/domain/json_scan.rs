//! One pass over the raw bytes of a request, before serde_json sees them.
//!
//! serde_json keeps the last of two equal members and rounds what a double cannot hold. Both would let a call say one
//! thing to a check and another to a provider, so they are refused here, on the bytes, where they can still be seen.

mod number;
mod text;

#[cfg(test)]
mod tests;

use super::json_pointer;
pub(crate) use number::{NumberKind, NumberScan, check_number};
use std::borrow::Cow;
use std::collections::HashSet;

/// Deepest nesting: the outermost container is level 1.
pub const MAX_DEPTH: usize = 64;

/// Most members of one object that are compared one by one; beyond it a hash set keeps the pass linear.
const SCANNED_MEMBERS: usize = 16;

/// Most characters of a member name that a message repeats.
const ECHOED_CHARS: usize = 64;

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScanFault {
    /// What is wrong, where, and what to send instead.
    pub message: String,
}

/// What is asked of the numbers in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// They keep their value when they are read.
    Exact,
    /// They are handed on as text, so any will do.
    AsTheyCome,
}

/// Checks that `body` is one JSON value as section 0 of the contract wants it.
pub fn scan(body: &[u8]) -> Result<(), ScanFault> {
    scan_with(body, Numbers::Exact)
}

/// Checks the same but for the numbers, for a body whose numbers are a provider's and handed on as they came.
pub fn scan_structure(body: &[u8]) -> Result<(), ScanFault> {
    scan_with(body, Numbers::AsTheyCome)
}

fn scan_with(body: &[u8], numbers: Numbers) -> Result<(), ScanFault> {
    if body.starts_with(b"\xEF\xBB\xBF") {
        return Err(ScanFault { message: "the body begins with a byte order mark; send UTF-8 without one".to_owned() });
    }
    if let Err(error) = std::str::from_utf8(body) {
        return Err(ScanFault { message: format!("byte {} is not valid UTF-8", error.valid_up_to()) });
    }
    Scanner::new(body, numbers).run()
}

/// One open container.
struct Frame<'a> {
    /// Where the names of this object begin in `Scanner::names`; unused by an array.
    first_name: usize,
    /// The index of the element being read; `None` for an object.
    index: Option<usize>,
    /// Names of a large object.
    large: Option<HashSet<Cow<'a, [u8]>>>,
}

/// What has to come next.
enum Next {
    /// A value.
    Value,
    /// A value or the end of an array just opened.
    FirstElement,
    /// A member or the end of an object just opened.
    FirstMember,
    /// A member.
    Member,
    /// A comma or the end of the open container, or the end of the body.
    AfterValue,
}

struct Scanner<'a> {
    body: &'a [u8],
    numbers: Numbers,
    at: usize,
    frames: Vec<Frame<'a>>,
    /// Decoded member names of all open objects, outermost first.
    names: Vec<Cow<'a, [u8]>>,
}

impl<'a> Scanner<'a> {
    fn new(body: &'a [u8], numbers: Numbers) -> Self {
        Self { body, numbers, at: 0, frames: Vec::with_capacity(4), names: Vec::with_capacity(16) }
    }

    fn run(mut self) -> Result<(), ScanFault> {
        let mut next = Next::Value;
        loop {
            self.skip_space();
            next = match next {
                Next::Value => self.value()?,
                Next::FirstElement if self.peek() == Some(b']') => self.close(),
                Next::FirstElement => self.value()?,
                Next::FirstMember if self.peek() == Some(b'}') => self.close(),
                Next::FirstMember | Next::Member => self.member()?,
                Next::AfterValue if self.frames.is_empty() => break,
                Next::AfterValue => self.after_value()?,
            };
        }
        if self.at == self.body.len() { Ok(()) } else { Err(self.fault("more bytes follow the JSON value")) }
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Next, ScanFault> {
        match self.peek() {
            Some(b'{') => self.open(None),
            Some(b'[') => self.open(Some(0)),
            Some(b'"') => {
                self.string()?;
                Ok(Next::AfterValue)
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(_) => Err(self.fault("a JSON value is expected")),
            None if self.body.is_empty() => Err(self.fault("the body is empty")),
            None => Err(self.fault("the body ends where a JSON value is expected")),
        }
    }

    fn open(&mut self, index: Option<usize>) -> Result<Next, ScanFault> {
        if self.frames.len() == MAX_DEPTH {
            return Err(self.fault(&format!("the body nests deeper than {MAX_DEPTH} levels")));
        }
        self.at += 1;
        self.frames.push(Frame { first_name: self.names.len(), index, large: None });
        Ok(if index.is_some() { Next::FirstElement } else { Next::FirstMember })
    }

    fn close(&mut self) -> Next {
        self.at += 1;
        if let Some(frame) = self.frames.pop() {
            self.names.truncate(frame.first_name);
        }
        Next::AfterValue
    }

    fn after_value(&mut self) -> Result<Next, ScanFault> {
        let Some(frame) = self.frames.last_mut() else { return Ok(Next::AfterValue) };
        match (self.body.get(self.at), &mut frame.index) {
            (Some(b','), Some(index)) => {
                *index += 1;
                self.at += 1;
                Ok(Next::Value)
            }
            (Some(b','), None) => {
                self.at += 1;
                Ok(Next::Member)
            }
            (Some(b']'), Some(_)) | (Some(b'}'), None) => Ok(self.close()),
            (Some(_), Some(_)) => Err(self.fault("a comma or ] is expected")),
            (Some(_), None) => Err(self.fault("a comma or } is expected")),
            (None, _) => Err(self.fault("the body ends before the JSON value does")),
        }
    }

    fn member(&mut self) -> Result<Next, ScanFault> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.fault("a member name in double quotes is expected"));
        }
        let has_escapes = self.string()?;
        let raw = &self.body[start + 1..self.at - 1];
        let name = if has_escapes { Cow::Owned(text::decode(raw)) } else { Cow::Borrowed(raw) };
        if self.is_duplicate(&name) {
            return Err(self.duplicate(&name, start));
        }
        if let Some(large) = self.frames.last_mut().and_then(|frame| frame.large.as_mut()) {
            large.insert(name.clone());
        }
        self.names.push(name);
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.fault("a colon is expected after the member name"));
        }
        self.at += 1;
        Ok(Next::Value)
    }

    fn is_duplicate(&mut self, name: &[u8]) -> bool {
        let Some(frame) = self.frames.last_mut() else { return false };
        let known = &self.names[frame.first_name..];
        if known.len() < SCANNED_MEMBERS {
            return known.iter().any(|other| other.as_ref() == name);
        }
        frame.large.get_or_insert_with(|| known.iter().cloned().collect()).contains(name)
    }

    /// Passes over a string; true when it has escapes.
    fn string(&mut self) -> Result<bool, ScanFault> {
        match text::skip_string(self.body, self.at) {
            Ok((end, has_escapes)) => {
                self.at = end;
                Ok(has_escapes)
            }
            Err((at, what)) => {
                self.at = at;
                Err(self.fault(what))
            }
        }
    }

    fn number(&mut self) -> Result<Next, ScanFault> {
        let start = self.at;
        match check_number(&self.body[start..]) {
            NumberScan::Exact { length, .. } => {
                self.at += length;
                Ok(Next::AfterValue)
            }
            NumberScan::Inexact { length, .. } if self.numbers == Numbers::AsTheyCome => {
                self.at += length;
                Ok(Next::AfterValue)
            }
            NumberScan::Inexact { fault, .. } => Err(self.fault(&format!("{fault}; send it as a string"))),
            NumberScan::NoNumber { at } => {
                self.at += at;
                Err(self.fault("a number is not written as JSON wants it"))
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<Next, ScanFault> {
        if self.body[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(Next::AfterValue)
        } else {
            Err(self.fault("a JSON value is expected"))
        }
    }

    #[cold]
    fn duplicate(&self, name: &[u8], at: usize) -> ScanFault {
        let name = String::from_utf8_lossy(name);
        let mut shown: String = name.chars().take(ECHOED_CHARS).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        let object = self.pointer(self.frames.len().saturating_sub(1));
        ScanFault { message: format!("the member {shown:?} stands twice in the object at {object} (byte {at})") }
    }

    #[cold]
    fn fault(&self, what: &str) -> ScanFault {
        ScanFault { message: format!("{what}: at {} (byte {})", self.pointer(self.frames.len()), self.at) }
    }

    /// Where the value being read stands, `levels` containers deep.
    fn pointer(&self, levels: usize) -> String {
        let mut pointer = String::new();
        for (level, frame) in self.frames.iter().enumerate().take(levels) {
            let end = self.frames.get(level + 1).map_or(self.names.len(), |inner| inner.first_name);
            match (frame.index, self.names[frame.first_name..end].last()) {
                (Some(index), _) => json_pointer::push(&mut pointer, &index.to_string()),
                (None, Some(name)) => json_pointer::push(&mut pointer, &String::from_utf8_lossy(name)),
                (None, None) => {}
            }
        }
        if pointer.is_empty() { "the top level".to_owned() } else { json_pointer::shortened(pointer) }
    }
}
