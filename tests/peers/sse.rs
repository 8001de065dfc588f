//! Reads events (SSE) one by one, while they come.

use std::io::Read;

/// The events of a stream.
pub(crate) struct Events<R> {
    from: R,
    chunk: Vec<u8>,
    at: usize,
    after_carriage_return: bool,
    last_id: Option<String>,
}

impl<R: Read> Events<R> {
    pub(crate) fn of(from: R) -> Self {
        Self { from, chunk: Vec::new(), at: 0, after_carriage_return: false, last_id: None }
    }

    /// The data of the next event that has some; `None` at the end of the stream.
    pub(crate) fn next_data(&mut self) -> Option<String> {
        let mut data: Option<String> = None;
        loop {
            let line = self.line()?;
            let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
            if line.is_empty() {
                match data.take().filter(|data| !data.is_empty()) {
                    Some(data) => return Some(data),
                    None => continue,
                }
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            if field == "id" {
                self.last_id = Some(value.to_owned());
            } else if field == "data" {
                match &mut data {
                    Some(data) => data.extend(["\n", value]),
                    None => data = Some(value.to_owned()),
                }
            }
        }
    }

    /// From where the stream can be gone on with.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The next line without its end, which is LF, CR or both.
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            let byte = self.byte()?;
            let skipped = byte == b'\n' && self.after_carriage_return;
            self.after_carriage_return = byte == b'\r';
            match byte {
                b'\n' if skipped => {}
                b'\n' | b'\r' => return Some(String::from_utf8(line).expect("events are UTF-8")),
                byte => line.push(byte),
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        if self.at == self.chunk.len() {
            self.chunk.resize(16 << 10, 0);
            let read = self.from.read(&mut self.chunk).unwrap_or(0);
            self.chunk.truncate(read);
            self.at = 0;
        }
        let byte = self.chunk.get(self.at).copied();
        self.at += 1;
        byte
    }
}

#[test]
fn events_are_read_whatever_ends_their_lines() {
    let text = "\u{feff}: hello\rdata: 1\r\rdata:2\r\ndata\r\n\r\n\nevent: x\ndata: 3\n\ndata: cut off\n";
    let mut events = Events::of(text.as_bytes());
    assert_eq!(events.next_data().as_deref(), Some("1"));
    assert_eq!(events.next_data().as_deref(), Some("2\n"));
    assert_eq!(events.next_data().as_deref(), Some("3"));
    assert_eq!(events.next_data(), None);
}
