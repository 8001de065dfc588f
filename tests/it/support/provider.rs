//! Providers of their own making: plain HTTP/1.1, every byte that comes in kept, every byte that goes out scripted.

use super::manifests::median_manifest;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a provider was sent.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("requests are UTF-8")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("requests are JSON")
    }
}

/// What a provider does with a request it has read.
#[derive(Clone)]
pub(crate) enum Reply {
    /// An answer with its length.
    Http { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// Exactly these bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// The end of the connection, without a word.
    Hangup,
    /// The reply, this much later.
    Late(Duration, Box<Reply>),
    /// The reply, when the test says so.
    Held(Arc<Latch>, Box<Reply>),
    /// An event stream, with further headers.
    Stream(Vec<(String, String)>, Vec<Step>),
}

/// What a provider does next with a stream it has begun. After the last step the stream ends as it should.
#[derive(Clone)]
pub(crate) enum Step {
    /// These bytes.
    Say(Vec<u8>),
    /// Nothing, until the test says so.
    Wait(Arc<Latch>),
    /// Whatever the test says meanwhile, until the other side hangs up.
    Relay(Arc<Mutex<VecDeque<Vec<u8>>>>),
    /// These bytes again and again, until the other side hangs up.
    Flood(Vec<u8>),
    /// The end of the connection, in the middle of the stream.
    Break,
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::text(status, &body.to_string())
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self::Http { status, headers, body: body.as_bytes().to_vec() }
    }
}

/// Holds replies back until it is opened.
#[derive(Default)]
pub(crate) struct Latch(AtomicBool);

impl Latch {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn wait(&self) {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Topology,
    Median,
}

struct Shared {
    speaks: Speaks,
    manifest: Mutex<Reply>,
    tools: Mutex<Vec<Value>>,
    script: Mutex<VecDeque<Reply>>,
    received: Mutex<Vec<Received>>,
    answered: AtomicUsize,
}

/// A provider that listens on a port of its own until it is dropped.
pub(crate) struct Provider {
    shared: Arc<Shared>,
    port: Port,
}

/// What a provider makes of a request.
type Answering = dyn Fn(Received) -> Reply + Send + Sync;

/// A port of its own, listened on until it is dropped.
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    down: Arc<AtomicBool>,
    answering: Arc<Answering>,
}

impl Port {
    /// Answers every request as `answering` says.
    pub(crate) fn open(answering: impl Fn(Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let port = Self { address, connections: Arc::default(), down: Arc::default(), answering: Arc::new(answering) };
        port.listen(listener);
        port
    }

    fn listen(&self, listener: TcpListener) {
        let (connections, down) = (Arc::clone(&self.connections), Arc::clone(&self.down));
        let answering = Arc::clone(&self.answering);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if down.load(Ordering::SeqCst) {
                    return;
                }
                lock(&connections).extend(stream.try_clone());
                let answering = Arc::clone(&answering);
                std::thread::spawn(move || serve(&*answering, &stream));
            }
        });
    }

    /// Refuses connections from now on.
    pub(crate) fn go_down(&self) {
        if !self.down.swap(true, Ordering::SeqCst) {
            // Wakes the listener, which then closes.
            let _ = TcpStream::connect(self.address);
            for connection in lock(&self.connections).drain(..) {
                let _ = connection.shutdown(Shutdown::Both);
            }
            super::eventually("the provider's port closes", || TcpStream::connect(self.address).err());
        }
    }

    /// Listens again on the same port.
    pub(crate) fn come_back(&self) {
        let listener = super::eventually("the port can be had again", || TcpListener::bind(self.address).ok());
        self.down.store(false, Ordering::SeqCst);
        self.listen(listener);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if !self.down.swap(true, Ordering::SeqCst) {
            let _ = TcpStream::connect(self.address);
        }
    }
}

/// The header value a topology provider of these tests is registered with.
pub(crate) const PROVIDER_KEY: &str = "provider-key-7f3a";
/// The secret a median provider of these tests is registered with.
pub(crate) const SIGNING_SECRET: &str = "median-secret-1b9d";

impl Provider {
    /// A topology that offers these tools. Unless told otherwise it starts commands and accepts queries as `prov-N`.
    pub(crate) fn topology(tools: &[Value]) -> Self {
        Self::start(Speaks::Topology, tools)
    }

    /// A median provider that offers these tools. Unless told otherwise it answers every call with `{"ok":true}`.
    pub(crate) fn median(tools: &[Value]) -> Self {
        Self::start(Speaks::Median, tools)
    }

    fn start(speaks: Speaks, tools: &[Value]) -> Self {
        let shared = Arc::new(Shared {
            speaks,
            manifest: Mutex::new(Reply::Hangup),
            tools: Mutex::default(),
            script: Mutex::default(),
            received: Mutex::default(),
            answered: AtomicUsize::new(0),
        });
        let port = Port::open({
            let shared = Arc::clone(&shared);
            move |request| answer(&shared, &request)
        });
        let provider = Self { shared, port };
        provider.offer(tools);
        provider
    }

    /// Refuses connections from now on.
    pub(crate) fn go_down(&self) {
        self.port.go_down();
    }

    /// Listens again on the same port.
    pub(crate) fn come_back(&self) {
        self.port.come_back();
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.port.address)
    }

    /// The registration of this provider.
    pub(crate) fn registration(&self, name: &str) -> Value {
        match self.shared.speaks {
            Speaks::Topology => json!({
                "name": name, "dialect": "topology", "base_url": self.url(),
                "auth": { "header": "X-Auth", "value": PROVIDER_KEY },
            }),
            Speaks::Median => json!({
                "name": name, "dialect": "median", "base_url": self.url(),
                "auth": { "signing_secret": SIGNING_SECRET },
            }),
        }
    }

    /// Offers these tools from now on.
    pub(crate) fn offer(&self, tools: &[Value]) {
        *lock(&self.shared.tools) = tools.to_vec();
        let manifest = match self.shared.speaks {
            Speaks::Topology => Value::from(tools.to_vec()),
            Speaks::Median => median_manifest(tools),
        };
        self.manifest(Reply::json(200, &manifest));
    }

    /// Answers every manifest request so from now on.
    pub(crate) fn manifest(&self, reply: Reply) {
        *lock(&self.shared.manifest) = reply;
    }

    /// Answers the next call so; replies queue up.
    pub(crate) fn next(&self, reply: Reply) {
        lock(&self.shared.script).push_back(reply);
    }

    fn received(&self, wanted: impl Fn(&Received) -> bool) -> Vec<Received> {
        lock(&self.shared.received).iter().filter(|received| wanted(received)).cloned().collect()
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> Vec<Received> {
        self.received(|received| received.method == "POST")
    }

    #[track_caller]
    pub(crate) fn last_call(&self) -> Received {
        self.calls().pop().expect("the provider was called")
    }

    /// Manifest requests so far.
    pub(crate) fn fetches(&self) -> Vec<Received> {
        self.received(|received| received.method == "GET")
    }
}

/// A URL nobody listens at.
pub(crate) fn dead_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("a bound address"))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(shared: &Shared, request: &Received) -> Reply {
    lock(&shared.received).push(request.clone());
    match request.method.as_str() {
        "GET" => lock(&shared.manifest).clone(),
        _ => lock(&shared.script).pop_front().unwrap_or_else(|| usual(shared, request)),
    }
}

fn serve(answering: &Answering, stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        if !send(stream, answering(request)) {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn usual(shared: &Shared, request: &Received) -> Reply {
    match shared.speaks {
        Speaks::Median => Reply::text(200, r#"{"result":{"ok":true}}"#),
        Speaks::Topology => {
            let tool = request.json()["tool"].clone();
            let tools = lock(&shared.tools);
            let kind = tools
                .iter()
                .find(|item| item["id"] == tool)
                .map_or("query", |item| item["kind"].as_str().expect("a kind"));
            acknowledge(kind, &format!("prov-{}", shared.answered.fetch_add(1, Ordering::SeqCst)))
        }
    }
}

/// A topology's acknowledgement.
pub(crate) fn acknowledge(kind: &str, correlation_id: &str) -> Reply {
    let status = if kind == "command" { "started" } else { "pending" };
    Reply::json(202, &json!({ "kind": kind, "status": status, "started": true, "correlation_id": correlation_id }))
}

/// Writes the reply; whether the connection goes on.
fn send(mut stream: &TcpStream, reply: Reply) -> bool {
    match reply {
        Reply::Hangup => false,
        Reply::Late(pause, reply) => {
            std::thread::sleep(pause);
            send(stream, *reply)
        }
        Reply::Held(latch, reply) => {
            latch.wait();
            send(stream, *reply)
        }
        Reply::Raw(bytes) => {
            let _ = stream.write_all(&bytes);
            false
        }
        Reply::Http { status, headers, body } => {
            let mut bytes = format!("HTTP/1.1 {status} Scripted\r\nContent-Length: {}\r\n", body.len()).into_bytes();
            for (name, value) in headers {
                bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&body);
            stream.write_all(&bytes).is_ok()
        }
        Reply::Stream(headers, steps) => {
            let mut head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n".to_owned();
            for (name, value) in headers {
                head += &format!("{name}: {value}\r\n");
            }
            head += "\r\n";
            stream.write_all(head.as_bytes()).is_ok()
                && steps.iter().all(|step| take(stream, step))
                && stream.write_all(b"0\r\n\r\n").is_ok()
        }
    }
}

/// Takes a step of a stream; whether it goes on.
fn take(stream: &TcpStream, step: &Step) -> bool {
    match step {
        Step::Say(bytes) => write_chunk(stream, bytes),
        Step::Wait(latch) => {
            latch.wait();
            true
        }
        Step::Relay(queue) => {
            // Nothing comes from the other side but its end.
            stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout can be set");
            loop {
                let next = lock(queue).pop_front();
                match next {
                    Some(bytes) if write_chunk(stream, &bytes) => {}
                    Some(_) => return false,
                    None if stream.peek(&mut [0]).is_ok_and(|read| read == 0) => return false,
                    None => {}
                }
            }
        }
        Step::Flood(bytes) => {
            while write_chunk(stream, bytes) {}
            false
        }
        Step::Break => false,
    }
}

fn write_chunk(mut stream: &TcpStream, bytes: &[u8]) -> bool {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    stream.write_all(&chunk).is_ok()
}

pub(super) fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Received> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let (method, rest) = lines.first()?.split_once(' ')?;
    let path = rest.split(' ').next()?.to_owned();
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().expect("a length"))];
    reader.read_exact(&mut body).ok()?;
    Some(Received { method: method.to_owned(), path, headers, body })
}
