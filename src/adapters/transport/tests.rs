//! The transport against real servers on loopback: what they receive, what is made of their answers.

mod addresses;
mod answers;
mod client;
mod connections;
mod open;
mod requests;
mod tls;

use super::*;
use crate::dialects::Method;
use bytes::Bytes;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A server that hands each connection, with its number from 0, to a closure.
struct Provider {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Provider {
    async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(usize, TcpStream) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(counter.fetch_add(1, Ordering::SeqCst), stream));
            }
        });
        Self { address, connections }
    }

    /// Answers every request on every connection with the same bytes, until the client closes.
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::start(move |_, mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                while read_request(&mut stream).await.is_some() {
                    stream.write_all(&answer).await.expect("the client reads");
                }
            }
        })
        .await
    }

    /// Answers 200 to all, and tells every request that arrives.
    async fn recording() -> (Self, mpsc::UnboundedReceiver<Vec<u8>>) {
        let (seen, requests) = mpsc::unbounded_channel();
        let provider = Self::start(move |_, mut stream| {
            let seen = seen.clone();
            async move {
                while let Some(request) = read_request(&mut stream).await {
                    seen.send(request).expect("the test listens");
                    stream.write_all(OK).await.expect("the client reads");
                }
            }
        })
        .await;
        (provider, requests)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// One request, head and body as they came; `None` when the client closed.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
            if bytes.len() >= end + 4 + length {
                return Some(bytes);
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Returns when the client has closed or reset the connection.
async fn read_to_close(stream: &mut TcpStream) {
    while !matches!(stream.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {}
}

fn transport() -> HttpTransport {
    transport_with(TransportConfig::default())
}

fn transport_with(config: TransportConfig) -> HttpTransport {
    HttpTransport::new(config, Arc::new(OwnListeners::default())).expect("the defaults are good")
}

/// May call loopback.
fn loopback() -> EgressPolicy {
    allowing("127.0.0.0/8")
}

fn allowing(net: &str) -> EgressPolicy {
    EgressPolicy { allow: vec![net.parse().expect("a network")] }
}

fn get(url: impl Into<String>) -> OutboundRequest {
    OutboundRequest {
        method: Method::Get,
        url: url.into(),
        headers: vec![],
        body: Bytes::new(),
        median_signature: false,
    }
}

fn post(url: impl Into<String>, body: &'static str) -> OutboundRequest {
    OutboundRequest { method: Method::Post, body: Bytes::from_static(body.as_bytes()), ..get(url) }
}

const LIMIT_BYTES: usize = 1000;

/// Sends under [`loopback`] with a deadline that only a hang reaches.
async fn send(transport: &HttpTransport, request: &OutboundRequest) -> Result<InboundAnswer, TransportError> {
    send_as(transport, request, &loopback()).await
}

async fn send_as(
    transport: &HttpTransport,
    request: &OutboundRequest,
    policy: &EgressPolicy,
) -> Result<InboundAnswer, TransportError> {
    transport.send(request, policy, LIMIT_BYTES, Instant::now() + Duration::from_secs(20)).await
}

fn answer(status: u16, body: impl Into<Bytes>) -> Result<InboundAnswer, TransportError> {
    Ok(InboundAnswer { status, etag: None, body: body.into() })
}

fn error(kind: TransportFault, bytes_sent: bool) -> Result<InboundAnswer, TransportError> {
    Err(TransportError { kind, bytes_sent })
}

/// Waits for what another task brings about.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
