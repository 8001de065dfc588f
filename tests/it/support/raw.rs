//! Requests byte by byte, for what a well-behaved client would not send.

use super::client::Answer;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Sends these bytes to the server at `base` (`http://host:port`) and reads one answer.
#[track_caller]
pub(crate) fn exchange(base: &str, bytes: &[u8]) -> Answer {
    let mut stream = connect(base);
    // A server that has answered already may close before it has read everything.
    let _ = stream.write_all(bytes);
    read_answer(&mut stream)
}

/// A request with these header lines and this body; `Content-Length` is added.
#[track_caller]
pub(crate) fn request(base: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n").into_bytes();
    for header in headers {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    exchange(base, &bytes)
}

/// A connection to the server at `base`.
#[track_caller]
pub(crate) fn connect(base: &str) -> TcpStream {
    let address = base.strip_prefix("http://").expect("a plain URL");
    let stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    stream
}

/// Reads one answer, to its announced length or to the end of the connection.
#[track_caller]
pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        if let Some(answer) = parse(&bytes) {
            let _ = stream.shutdown(Shutdown::Both);
            return answer;
        }
        match stream.read(&mut chunk) {
            Ok(0) => panic!("the connection ended early: {:?}", String::from_utf8_lossy(&bytes)),
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            Err(error) => panic!("no answer: {error}; so far {:?}", String::from_utf8_lossy(&bytes)),
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status line");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let body = bytes.get(end + 4..end + 4 + length)?.to_vec();
    Some(Answer { status, headers, body })
}
