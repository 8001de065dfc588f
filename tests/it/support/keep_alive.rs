//! One connection, many requests, every byte of them chosen by the test.

use super::client::Answer;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) struct KeepAlive {
    address: String,
    stream: Option<BufReader<TcpStream>>,
    /// Connections made so far.
    pub(crate) connections: usize,
}

impl KeepAlive {
    /// To the server at `base` (`http://host:port`).
    pub(crate) fn new(base: &str) -> Self {
        let address = base.strip_prefix("http://").expect("a plain URL").to_owned();
        Self { address, stream: None, connections: 0 }
    }

    /// The next request gets a connection of its own.
    pub(crate) fn hang_up(&mut self) {
        self.stream = None;
    }

    /// Sends this request and reads its answer. The connection goes on unless the answer says that it does not; a server
    /// that ends it without saying so is an error.
    pub(crate) fn exchange(&mut self, method: &str, request: &[u8]) -> Result<Answer, String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                self.connections += 1;
                let stream = TcpStream::connect(&self.address).map_err(|error| format!("no connection: {error}"))?;
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
                stream.set_nodelay(true).expect("delays can be switched off");
                BufReader::new(stream)
            }
        };
        // A server that has answered already may close before it has read everything.
        let _ = stream.get_mut().write_all(request);
        let answer = read_answer(&mut stream, method)?;
        if !answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.stream = Some(stream);
        }
        Ok(answer)
    }
}

fn read_answer(stream: &mut BufReader<TcpStream>, method: &str) -> Result<Answer, String> {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        let read = stream.read_until(b'\n', &mut line).map_err(|error| format!("no answer: {error}"))?;
        if read == 0 {
            return Err(format!("the connection was dropped after {lines:?}"));
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let status: u16 = lines
        .first()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .ok_or_else(|| format!("no status line: {lines:?}"))?;
    let header = |line: &String| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    let headers: Vec<(String, String)> = lines[1..].iter().filter_map(header).collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    if method != "HEAD" && status != 204 && status != 304 {
        let length = answer.header("content-length").and_then(|value| value.parse().ok());
        let mut body = vec![0; length.ok_or_else(|| format!("no length: {lines:?}"))?];
        stream.read_exact(&mut body).map_err(|error| format!("half an answer: {error}"))?;
        answer.body = body;
    }
    Ok(answer)
}
