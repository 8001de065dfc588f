//! Reads `text/event-stream` as it comes, by the rules of the WHATWG's HTML standard, section 9.2.
//!
//! Where the standard serves a browser and we serve a relay, this differs:
//! - An event without data is reported when it carries an id or a retry time, since a reader resumes by them.
//! - Bytes that are not UTF-8 are a fault where they would be read (data, event and id), not replaced: a replaced
//!   character would be a result that the provider never gave. In what is ignored they are ignored.
//! - An id that is too long to be sent back counts as an empty one: the stream cannot be resumed there.
//!
//! **Invariant:** what is reported depends on the bytes alone, never on how they were cut into chunks; each byte is
//! looked at a bounded number of times; what is held of the event being read is at most about twice its limit.

use std::collections::VecDeque;
use std::sync::Arc;

/// Longest id that is kept, in bytes: it would go into the header of the request that resumes.
const MAX_ID_BYTES: usize = 1024;

/// The longest name of a field that is read, its colon and the space: `event: `.
const MAX_FIELD_BYTES: usize = 7;

/// Room that is kept for lines between events.
const MAX_KEPT_LINE_BYTES: usize = 4096;

const BOM: &[u8] = "\u{feff}".as_bytes();

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type; none is `message`.
    pub event: Option<String>,
    /// Its data, the lines joined by LF; empty when there were none.
    pub data: String,
    /// The last event id as it stands after this event, also when an earlier one set it; an empty one is none.
    pub id: Option<String>,
    /// The reconnection time this event sets, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseFault {
    /// An event, or a line that is part of none, is longer than the limit.
    #[error("an event is over {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// What would be read is not UTF-8.
    #[error("an event is not valid UTF-8")]
    NotUtf8,
}

/// The reader: bytes go in by [`SseReader::push`], events come out by [`Iterator::next`], which may give some again
/// after it gave none. What follows the last blank line when a stream ends is no event and is never reported.
#[derive(Debug)]
pub struct SseReader {
    max_event_bytes: usize,
    fault: Option<SseFault>,
    /// How much of a leading BOM has come; `None` once the start is over.
    bom_seen: Option<usize>,
    /// The last byte was a CR: a LF that follows belongs to it.
    is_after_cr: bool,
    /// The line being read is a comment, of which nothing is kept.
    is_in_comment: bool,
    /// The line being read, as far as it came in earlier chunks.
    line: Vec<u8>,
    block: Block,
    last_id: Option<Arc<str>>,
    events: VecDeque<Finished>,
}

/// The event being read.
#[derive(Debug, Default)]
struct Block {
    event: String,
    /// None without a data field, which is not the same as empty data: a further line adds a line break.
    data: Option<String>,
    /// The id this event sets.
    id: Option<Option<Arc<str>>>,
    retry_ms: Option<u64>,
}

/// An event that waits to be taken. The id is shared until then: a short stream may repeat a long one very often.
#[derive(Debug)]
struct Finished {
    event: Option<String>,
    data: String,
    id: Option<Arc<str>>,
    retry_ms: Option<u64>,
}

impl SseReader {
    /// A reader of one stream, from its start. An event whose data and type together are longer than `max_event_bytes`
    /// is a fault.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            fault: None,
            bom_seen: Some(0),
            is_after_cr: false,
            is_in_comment: false,
            line: Vec::new(),
            block: Block::default(),
            last_id: None,
            events: VecDeque::new(),
        }
    }

    /// Takes the next bytes. After a fault the events before it can still be taken; the fault is final.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), SseFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = self.read(chunk);
        if let Err(fault) = result {
            self.fault = Some(fault);
            (self.line, self.block) = (Vec::new(), Block::default());
        }
        result
    }

    fn read(&mut self, chunk: &[u8]) -> Result<(), SseFault> {
        let mut rest = self.skip_bom(chunk);
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.is_after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            if first == b':' && self.line.is_empty() {
                self.is_in_comment = true;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, after) = match end {
                Some(end) => (&rest[..end], Some(end)),
                None => (rest, None),
            };
            if !self.is_in_comment {
                self.check_line(self.line.len() + part.len())?;
            }
            let Some(end) = after else {
                if !self.is_in_comment {
                    self.line.extend_from_slice(part);
                }
                return Ok(());
            };
            self.is_after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if std::mem::take(&mut self.is_in_comment) {
                continue;
            }
            if self.line.is_empty() {
                self.end_line(part)?;
            } else {
                // Most lines come whole; only one that did not is copied.
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.end_line(&line)?;
                // One long event must not hold its room for as long as the stream lives.
                line.clear();
                line.shrink_to(MAX_KEPT_LINE_BYTES);
                self.line = line;
            }
        }
        Ok(())
    }

    /// Passes over a BOM at the start of the stream. The beginning of one that turns out to be none is text.
    fn skip_bom<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let Some(seen) = self.bom_seen else { return chunk };
        let matching = BOM[seen..].iter().zip(chunk).take_while(|(expected, byte)| expected == byte).count();
        let seen = seen + matching;
        if seen == BOM.len() {
            self.bom_seen = None;
        } else if matching == chunk.len() {
            self.bom_seen = Some(seen);
        } else {
            self.bom_seen = None;
            self.line.extend_from_slice(&BOM[..seen]);
        }
        &chunk[matching..]
    }

    /// Refuses a line that cannot be part of an event within the limit, before it is held.
    fn check_line(&self, line_bytes: usize) -> Result<(), SseFault> {
        let data_bytes = self.block.data.as_ref().map_or(0, String::len);
        self.check(data_bytes.saturating_add(line_bytes), self.max_event_bytes.saturating_add(MAX_FIELD_BYTES))
    }

    fn check(&self, bytes: usize, limit_bytes: usize) -> Result<(), SseFault> {
        if bytes > limit_bytes { Err(SseFault::TooLarge { limit_bytes: self.max_event_bytes }) } else { Ok(()) }
    }

    /// A line without its end; not a comment.
    fn end_line(&mut self, line: &[u8]) -> Result<(), SseFault> {
        if line.is_empty() {
            self.end_event();
            return Ok(());
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || std::str::from_utf8(value).map_err(|_| SseFault::NotUtf8);
        match name {
            b"data" => {
                let text = text()?;
                match &mut self.block.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(text);
                    }
                    none => *none = Some(text.to_owned()),
                }
            }
            b"event" => text()?.clone_into(&mut self.block.event),
            b"id" => {
                let text = text()?;
                // The standard ignores one with a NUL.
                if !text.contains('\0') {
                    self.block.id = Some((1..=MAX_ID_BYTES).contains(&text.len()).then(|| text.into()));
                }
            }
            b"retry" => self.block.retry_ms = milliseconds(value).or(self.block.retry_ms),
            _ => {}
        }
        let event_bytes = self.block.data.as_ref().map_or(0, String::len).saturating_add(self.block.event.len());
        self.check(event_bytes, self.max_event_bytes)
    }

    fn end_event(&mut self) {
        let block = std::mem::take(&mut self.block);
        let is_reported = block.data.is_some() || block.id.is_some() || block.retry_ms.is_some();
        if let Some(id) = block.id {
            self.last_id = id;
        }
        if is_reported {
            self.events.push_back(Finished {
                event: Some(block.event).filter(|event| !event.is_empty()),
                data: block.data.unwrap_or_default(),
                id: self.last_id.clone(),
                retry_ms: block.retry_ms,
            });
        }
    }
}

impl Iterator for SseReader {
    type Item = SseEvent;

    /// The next event that has come whole.
    fn next(&mut self) -> Option<SseEvent> {
        let Finished { event, data, id, retry_ms } = self.events.pop_front()?;
        Some(SseEvent { event, data, id: id.map(|id| (*id).to_owned()), retry_ms })
    }
}

/// A reconnection time: digits only. One beyond all bounds is the largest there is, not the server's last one.
fn milliseconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(value.iter().fold(0, add))
}

#[cfg(test)]
mod tests;
