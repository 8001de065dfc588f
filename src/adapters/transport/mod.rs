//! The outbound HTTP client: hyper, with our own pinned connector and our own pool of connections for each worker.
//!
//! One request: find a connection whose address the organization may reach, or resolve, check and connect; send exactly
//! the given bytes; read the answer up to its limit, or hand it over piece by piece; put the connection back.
//!
//! **Invariant:** a connection leads to an address that was checked, and is checked again under the policy of whoever
//! takes it from the pool. **Invariant:** a request is written to a second connection only when hyper handed it back
//! unwritten from the first. **Invariant:** a connection whose answer was not read to its end is closed, never pooled;
//! that is also how a provider learns that nobody waits any more.
//! Absent by intent: redirects, proxies from the environment, cookies, content codings.

mod client;
mod connect;
mod exchange;
mod own;
mod pool;
mod pooled_body;
mod resolve;
mod target;

#[cfg(test)]
mod tests;

pub use client::{SimpleAnswer, SimpleClient, SimpleError, SimpleMethod};
pub use connect::TransportSetupError;
pub use own::OwnListeners;

use crate::dialects::{InboundAnswer, OutboundRequest};
use crate::domain::egress::EgressPolicy;
use crate::engine::ports::{OpenAnswer, Transport, TransportError, TransportFault};
use async_trait::async_trait;
use connect::{Connector, OpenError, Sender};
use exchange::{Message, SendFailure};
use hyper::Response;
use hyper::body::Incoming;
use pool::{Pool, PoolLimits, Verdict};
use pooled_body::PooledBody;
use resolve::Resolver;
use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use target::{Origin, Target};
use tokio::runtime;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

/// Workers with a pool of their own; more of them share.
const SHARDS: usize = 32;

/// Parsed URLs kept by each worker. Those with a query are not kept: arguments make them endless.
const MAX_TARGETS: usize = 512;

/// Addresses of one name that are tried before the connection counts as failed.
const MAX_ADDRESSES: usize = 4;

/// How long a connection from the pool may take to finish its last exchange before another is opened.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Settings of the outbound client.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// Longest time to resolve, connect and shake hands.
    pub connect_timeout: Duration,
    /// PEM text of roots that are trusted beside the public ones.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// Idle connections kept for one scheme, host and port by each worker.
    pub idle_per_host: usize,
    /// Idle connections kept by each worker in all.
    pub idle_total: usize,
    /// How long a connection may be idle.
    pub idle_for: Duration,
    /// How long a connection is used at all: after that the name is resolved anew.
    pub connection_lifetime: Duration,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            extra_roots_pem: None,
            idle_per_host: 64,
            idle_total: 512,
            idle_for: Duration::from_secs(30),
            connection_lifetime: Duration::from_secs(300),
        }
    }
}

/// The [`Transport`] of the gateway. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct HttpTransport {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Connector,
    resolver: Resolver,
    own: Arc<OwnListeners>,
    connect_timeout: Duration,
    idle_for: Duration,
    connection_lifetime: Duration,
    shards: Box<[Mutex<Shard>]>,
}

/// What one worker keeps. Its lock is the worker's own and never held across an await.
struct Shard {
    targets: HashMap<Box<str>, Arc<Target>>,
    pool: Pool<Connection>,
    /// A task that sweeps this shard is running.
    is_swept: bool,
}

/// A connection between two exchanges.
struct Connection {
    sender: Sender,
    address: SocketAddr,
    opened: Instant,
    /// Version of the list of own listeners the address was checked against.
    own_version: u64,
    /// The runtime that drives it: on a thread with several, another's may be standing still.
    runtime: runtime::Id,
}

impl HttpTransport {
    /// A client that never calls an address in `own`, to which listeners may be added later.
    pub fn new(config: TransportConfig, own: Arc<OwnListeners>) -> Result<Self, TransportSetupError> {
        Self::with_resolver(config, own, Resolver::System)
    }

    fn with_resolver(
        config: TransportConfig,
        own: Arc<OwnListeners>,
        resolver: Resolver,
    ) -> Result<Self, TransportSetupError> {
        let limits = PoolLimits { per_host: config.idle_per_host, total: config.idle_total, idle_for: config.idle_for };
        let shard = || Mutex::new(Shard { targets: HashMap::new(), pool: Pool::new(limits), is_swept: false });
        let inner = Inner {
            connector: Connector::new(config.extra_roots_pem.as_deref())?,
            resolver,
            own,
            connect_timeout: config.connect_timeout,
            idle_for: config.idle_for,
            connection_lifetime: config.connection_lifetime,
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How many connections are idle, on all workers.
    pub fn idle_connections(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).pool.len()).sum()
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(
        &self,
        request: &OutboundRequest,
        egress: &EgressPolicy,
        max_response_bytes: usize,
        deadline: Instant,
    ) -> Result<InboundAnswer, TransportError> {
        let sent = AtomicBool::new(false);
        let exchange = async {
            let answering = self.inner.begin(request, egress, deadline, &sent).await?;
            self.inner.read_whole(answering, max_response_bytes).await
        };
        settled(timeout_at(deadline, exchange).await, &sent)
    }

    async fn open(
        &self,
        request: &OutboundRequest,
        egress: &EgressPolicy,
        deadline: Instant,
    ) -> Result<OpenAnswer, TransportError> {
        let sent = AtomicBool::new(false);
        let head = self.inner.begin(request, egress, deadline, &sent);
        let Answering { target, connection, response } = settled(timeout_at(deadline, head).await, &sent)?;
        let (head, body) = response.into_parts();
        Ok(OpenAnswer {
            status: head.status.as_u16(),
            content_type: exchange::content_type(&head.headers),
            session_id: exchange::session_id(&head.headers),
            body: Box::new(PooledBody::new(Arc::clone(&self.inner), target, connection, body)),
        })
    }
}

/// The result of an exchange under its deadline.
fn settled<T>(result: Result<Result<T, TransportFault>, Elapsed>, sent: &AtomicBool) -> Result<T, TransportError> {
    let result = result.unwrap_or(Err(TransportFault::Timeout));
    result.map_err(|kind| TransportError { kind, bytes_sent: sent.load(Ordering::Relaxed) })
}

/// An answer whose head has come, and the connection its body comes on.
struct Answering {
    target: Arc<Target>,
    connection: Connection,
    response: Response<Incoming>,
}

impl Inner {
    /// Sends a request and waits for the head of its answer; the caller ends it at the deadline. `sent` is true from
    /// the moment a connection has the message until it is handed back.
    async fn begin(
        &self,
        request: &OutboundRequest,
        egress: &EgressPolicy,
        deadline: Instant,
        sent: &AtomicBool,
    ) -> Result<Answering, TransportFault> {
        // `timeout_at` looks at the clock only after a first poll, which could send.
        if Instant::now() >= deadline {
            return Err(TransportFault::Timeout);
        }
        let target = self.target(&request.url)?;
        let mut message = exchange::message(request, &target)?;
        if let Some(mut connection) = self.checkout(&target.origin, egress).await {
            match send_on(&mut connection, message, sent).await {
                Ok(response) => return Ok(Answering { target, connection, response: exchange::uncoded(response)? }),
                Err(SendFailure::Sent(error)) => return Err(exchange::fault_of(&error)),
                // It was closed while it was idle. One fresh connection, not one more from the pool.
                Err(SendFailure::Unsent(unsent)) => message = *unsent,
            }
        }
        let mut connection = self.connect(&target.origin, egress).await?;
        match send_on(&mut connection, message, sent).await {
            Ok(response) => Ok(Answering { target, connection, response: exchange::uncoded(response)? }),
            Err(SendFailure::Sent(error)) => Err(exchange::fault_of(&error)),
            Err(SendFailure::Unsent(_)) => Err(TransportFault::Reset),
        }
    }

    /// Reads the body of an answer, at most `max_response_bytes`.
    async fn read_whole(
        self: &Arc<Self>,
        answering: Answering,
        max_response_bytes: usize,
    ) -> Result<InboundAnswer, TransportFault> {
        let Answering { target, connection, response } = answering;
        let answer = exchange::read_answer(response, max_response_bytes).await?;
        self.release(&target.origin, connection);
        Ok(answer)
    }

    /// Keeps a connection whose answer was read to its end, where it can carry another.
    fn release(self: &Arc<Self>, origin: &Arc<Origin>, connection: Connection) {
        if !connection.sender.is_closed() {
            self.put_back(origin, connection);
        }
    }

    fn target(&self, url: &str) -> Result<Arc<Target>, TransportFault> {
        if url.contains('?') {
            return Target::parse(url).map(Arc::new);
        }
        if let Some(target) = self.shard().targets.get(url) {
            return Ok(Arc::clone(target));
        }
        let target = Arc::new(Target::parse(url)?);
        let targets = &mut self.shard().targets;
        if targets.len() >= MAX_TARGETS {
            targets.clear();
        }
        targets.insert(url.into(), Arc::clone(&target));
        Ok(target)
    }

    /// A live connection to an address this policy admits.
    async fn checkout(&self, origin: &Origin, egress: &EgressPolicy) -> Option<Connection> {
        let now = Instant::now();
        let own_version = self.own.version();
        let runtime = runtime::Handle::current().id();
        let judge = |idle: &Connection, must_be_ready: bool| {
            if idle.sender.is_closed() || idle.own_version != own_version || self.is_worn(idle, now) {
                Verdict::Drop
            } else if idle.runtime != runtime
                || !resolve::admits(egress, origin.tls, idle.address.ip())
                || (must_be_ready && !idle.sender.is_ready())
            {
                Verdict::Leave
            } else {
                Verdict::Use
            }
        };
        loop {
            let found = {
                let pool = &mut self.shard().pool;
                // One that was put back a moment ago may not be ready yet: take it only when there is no other.
                let ready = pool.take(origin, now, |idle| judge(idle, true));
                ready.or_else(|| pool.take(origin, now, |idle| judge(idle, false)))
            };
            let mut connection = found?;
            // It may still be at the end of its last exchange, or find out only now that it was closed.
            let is_ready = connection.sender.is_ready()
                || matches!(timeout(SETTLE_TIME, connection.sender.ready()).await, Ok(Ok(())));
            if is_ready {
                return Some(connection);
            }
        }
    }

    fn is_worn(&self, connection: &Connection, now: Instant) -> bool {
        now.saturating_duration_since(connection.opened) > self.connection_lifetime
    }

    fn put_back(self: &Arc<Self>, origin: &Arc<Origin>, connection: Connection) {
        let index = shard_index();
        let was_swept = {
            let mut shard = lock(&self.shards[index]);
            shard.pool.put(origin, connection, Instant::now());
            std::mem::replace(&mut shard.is_swept, true)
        };
        if !was_swept {
            // Without the lock: a runtime that is shutting down drops the task, and with it the sweeper, at once.
            tokio::spawn(sweep(Sweeper { inner: Arc::downgrade(self), index }, self.idle_for));
        }
    }

    /// A new connection to one of the origin's addresses, all of them checked.
    async fn connect(&self, origin: &Origin, egress: &EgressPolicy) -> Result<Connection, TransportFault> {
        let until = Instant::now() + self.connect_timeout;
        let open = async {
            let own_version = self.own.version();
            let addresses = resolve::addresses(origin, &self.resolver, egress, &self.own).await?;
            let (stream, address) = self.first_open(&addresses, until).await?;
            let sender = self.connector.http(stream, origin).await.map_err(|error| open_fault(&error))?;
            let runtime = runtime::Handle::current().id();
            Ok(Connection { sender, address, opened: Instant::now(), own_version, runtime })
        };
        timeout_at(until, open).await.unwrap_or(Err(TransportFault::ConnectTimeout))
    }

    /// Tries the addresses one after the other; each gets its share of the time that is left.
    async fn first_open(
        &self,
        addresses: &[SocketAddr],
        until: Instant,
    ) -> Result<(tokio::net::TcpStream, SocketAddr), TransportFault> {
        let tried = &addresses[..addresses.len().min(MAX_ADDRESSES)];
        let mut fault = TransportFault::Unresolvable;
        for (left, address) in (1..=tried.len()).rev().zip(tried) {
            // `left` is at most MAX_ADDRESSES.
            let share = until.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            match timeout(share, self.connector.tcp(*address)).await {
                Ok(Ok(stream)) => return Ok((stream, *address)),
                Ok(Err(error)) => fault = open_fault(&error),
                Err(_) => fault = TransportFault::ConnectTimeout,
            }
        }
        Err(fault)
    }

    fn shard(&self) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_index()])
    }
}

async fn send_on(
    connection: &mut Connection,
    message: Message,
    sent: &AtomicBool,
) -> Result<Response<Incoming>, SendFailure> {
    sent.store(true, Ordering::Relaxed);
    let result = exchange::send(&mut connection.sender, message).await;
    if matches!(result, Err(SendFailure::Unsent(_))) {
        sent.store(false, Ordering::Relaxed);
    }
    result
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_fault(error: &OpenError) -> TransportFault {
    match error {
        OpenError::Tcp(_) | OpenError::Http(_) => TransportFault::ConnectFailed,
        OpenError::ServerName => TransportFault::BadUrl,
        OpenError::Tls(_) => TransportFault::Tls,
    }
}

/// The shard of the calling thread.
fn shard_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: Cell<Option<usize>> = const { Cell::new(None) };
    }
    INDEX.with(|index| {
        index.get().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
            index.set(Some(new));
            new
        })
    })
}

/// Marks its shard as no longer swept when the task ends, also when its runtime is dropped.
struct Sweeper {
    inner: Weak<Inner>,
    index: usize,
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            lock(&inner.shards[self.index]).is_swept = false;
        }
    }
}

/// Closes what a worker that has gone quiet left idle; ends when there is nothing left or the transport is gone.
async fn sweep(mut sweeper: Sweeper, idle_for: Duration) {
    loop {
        tokio::time::sleep(idle_for / 2).await;
        let Some(inner) = sweeper.inner.upgrade() else { return };
        let now = Instant::now();
        let shard = &mut *lock(&inner.shards[sweeper.index]);
        shard.pool.sweep(now, |idle| !idle.sender.is_closed() && !inner.is_worn(idle, now));
        if shard.pool.len() == 0 {
            // Under the same lock, so that whoever puts the next one back starts the next sweeper.
            shard.is_swept = false;
            sweeper.inner = Weak::new();
            return;
        }
    }
}
