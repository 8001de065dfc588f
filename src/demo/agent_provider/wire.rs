//! HTTP/1.1 by hand: what a server framework will not do on purpose is to fail as networks and dying servers do.

use super::super::local_server::RecordedRequest;
use bytes::BytesMut;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Longest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most headers of a request.
const MAX_HEADERS: usize = 64;

/// Longest body of a request.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// An answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

impl Answer {
    /// An answer with a JSON body.
    pub(super) const fn json(status: u16, body: String) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            304 => "Not Modified",
            status if status < 500 => "Refused",
            _ => "Failed",
        };
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        if self.status != 304 {
            head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head + "\r\n"
    }
}

/// What becomes of an answer on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It arrives.
    Whole(Answer),
    /// Its head and half of its body arrive, then the connection ends.
    Half(Answer),
    /// The connection ends without a word.
    Close,
    /// The connection is reset.
    Reset,
}

/// Who answers.
pub(super) trait Site: Send + Sync + 'static {
    /// What a request is answered, and what becomes of that.
    fn answer(&self, request: RecordedRequest) -> impl Future<Output = Delivery> + Send;
}

/// A listening server.
pub(super) struct RawServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl RawServer {
    /// Listens on this address of loopback (port 0: any free one); needs a running tokio runtime.
    pub(super) fn start<S: Site>(address: SocketAddr, site: Arc<S>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Self { address, accepting: tokio::spawn(accept(listener, site)) })
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it with all its connections.
    pub(super) async fn stop(mut self) {
        self.accepting.abort();
        // It ends by being aborted; that is what was asked for.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connections belong to this task: they end with it.
async fn accept<S: Site>(listener: TcpListener, site: Arc<S>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        connections.spawn(serve(stream, Arc::clone(&site)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<S: Site>(mut stream: TcpStream, site: Arc<S>) {
    // Without it only the answers come later.
    let _ = stream.set_nodelay(true);
    let mut buffer = BytesMut::new();
    loop {
        let (request, stays_open) = match read_request(&mut stream, &mut buffer).await {
            Ok(read) => read,
            Err(ReadFault::Gone) => return,
            Err(ReadFault::Refused(answer)) => {
                let _ = write(&mut stream, &answer, answer.body.len()).await;
                return;
            }
        };
        let written = match site.answer(request).await {
            Delivery::Whole(answer) => write(&mut stream, &answer, answer.body.len()).await,
            Delivery::Half(answer) => {
                let _ = write(&mut stream, &answer, answer.body.len() / 2).await;
                return;
            }
            Delivery::Close => return,
            Delivery::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
        };
        if written.is_err() || !stays_open {
            return;
        }
    }
}

/// Writes the head and this much of the body.
async fn write(stream: &mut TcpStream, answer: &Answer, body_bytes: usize) -> io::Result<()> {
    let mut bytes = answer.head().into_bytes();
    if answer.status != 304 {
        bytes.extend_from_slice(&answer.body.as_bytes()[..body_bytes]);
    }
    stream.write_all(&bytes).await
}

/// Why there is no request.
enum ReadFault {
    /// The other side has gone.
    Gone,
    /// It cannot be read; this is said, and the connection ended.
    Refused(Answer),
}

impl ReadFault {
    fn refused(status: u16, message: &str) -> Self {
        let error = serde_json::json!({ "error": { "code": "bad_http", "message": message } });
        Self::Refused(Answer {
            headers: vec![("connection", "close".to_owned())],
            ..Answer::json(status, error.to_string())
        })
    }
}

/// The head of a request.
struct Head {
    request: RecordedRequest,
    head_bytes: usize,
    body_bytes: usize,
    stays_open: bool,
}

/// Reads the next request, and tells whether the connection goes on after it.
async fn read_request(stream: &mut TcpStream, buffer: &mut BytesMut) -> Result<(RecordedRequest, bool), ReadFault> {
    let head = loop {
        match parse_head(buffer)? {
            Some(head) => break head,
            None if buffer.len() > MAX_HEAD_BYTES => return Err(ReadFault::refused(431, "the head is too large")),
            None => read_more(stream, buffer).await?,
        }
    };
    while buffer.len() < head.head_bytes + head.body_bytes {
        read_more(stream, buffer).await?;
    }
    let message = buffer.split_to(head.head_bytes + head.body_bytes);
    let body = message[head.head_bytes..].to_vec();
    Ok((RecordedRequest { body, ..head.request }, head.stays_open))
}

async fn read_more(stream: &mut TcpStream, buffer: &mut BytesMut) -> Result<(), ReadFault> {
    match stream.read_buf(buffer).await {
        Ok(0) | Err(_) => Err(ReadFault::Gone),
        Ok(_) => Ok(()),
    }
}

/// `None` while the head has not come whole.
fn parse_head(buffer: &[u8]) -> Result<Option<Head>, ReadFault> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_bytes = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ReadFault::refused(400, "this is no HTTP/1.1")),
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let request = RecordedRequest {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: parsed.path.unwrap_or_default().to_owned(),
        headers: parsed.headers.iter().map(|header| (header.name.to_ascii_lowercase(), text(header.value))).collect(),
        body: Vec::new(),
    };
    if request.header("transfer-encoding").is_some() {
        return Err(ReadFault::refused(411, "send a body with its Content-Length"));
    }
    let body_bytes = match request.header("content-length").map(str::parse) {
        None => 0,
        Some(Ok(bytes)) if bytes <= MAX_BODY_BYTES => bytes,
        Some(Ok(_)) => return Err(ReadFault::refused(413, "the body is too large")),
        Some(Err(_)) => return Err(ReadFault::refused(400, "Content-Length is no number")),
    };
    let closes = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let stays_open = !closes && parsed.version == Some(1);
    Ok(Some(Head { request, head_bytes, body_bytes, stays_open }))
}
