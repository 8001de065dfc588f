//! A provider that does as little as possible: every POST is answered with one fixed body, every GET with a manifest.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A Median manifest of one tool of risk `low`.
pub const MANIFEST: &str = r#"{"version":1,"tools":[{"name":"echo","description":"Says it back.","risk":"low","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"count":{"type":"integer"}},"required":["text"],"additionalProperties":false}}]}"#;

/// What every call is answered.
pub const RESULT: &str = r#"{"result":{"text":"hello","count":3,"note":"a short answer of a fast provider"}}"#;

/// Serves until the process ends.
pub fn serve(address: SocketAddr) -> ! {
    serve_with(address, |head| Cow::Borrowed(if head.starts_with("GET") { MANIFEST } else { RESULT }))
}

/// Serves until the process ends, with the body that `answer` makes of a request's head.
pub fn serve_with(address: SocketAddr, answer: impl Fn(&str) -> Cow<'static, str> + 'static) -> ! {
    serve_exchanges(address, move |head, _| answer(head))
}

/// Serves until the process ends, with the body that `answer` makes of a request's head and body.
pub fn serve_exchanges(address: SocketAddr, answer: impl Fn(&str, &[u8]) -> Cow<'static, str> + 'static) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer = Rc::new(answer);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a TCP option");
            tokio::task::spawn_local(talk(stream, Rc::clone(&answer)));
        }
    })
}

async fn talk(mut stream: TcpStream, answer: Rc<impl Fn(&str, &[u8]) -> Cow<'static, str>>) {
    let mut buffer = Vec::with_capacity(8192);
    loop {
        let Some((head, length)) = complete(&buffer) else {
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        let text = std::str::from_utf8(&buffer[..head]).expect("a head is text");
        let body = answer(text, &buffer[head..head + length]);
        buffer.drain(..head + length);
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Lengths of head and body of the first complete message in the buffer.
pub fn complete(buffer: &[u8]) -> Option<(usize, usize)> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    (buffer.len() >= head + length).then_some((head, length))
}
