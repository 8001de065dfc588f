//! What the engine needs from the world. Adapters implement these traits; nothing else crosses the border.

use crate::dialects::{InboundAnswer, OutboundRequest};
use crate::domain::egress::EgressPolicy;
use crate::domain::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

pub use super::store_port::{Store, StoreError};

/// Time and randomness, injected so that tests can turn them.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;

    /// Time that never goes back, for rates.
    fn monotonic(&self) -> Duration;

    /// Returns once [`Clock::now`] has reached `at`.
    async fn sleep_until(&self, at: Timestamp);

    /// Fills `buffer` with bytes nobody can guess.
    fn fill_random(&self, buffer: &mut [u8]);

    /// A new UUIDv7.
    fn new_uuid(&self) -> Uuid;
}

/// Carries one request to a provider and brings the answer back.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Resolves, checks and pins the address, connects, sends exactly the given bytes and reads the answer, all before
    /// `deadline` (real time: a deadline is a deadline whatever a test's clock says). Follows no redirect. An answer
    /// of any HTTP status is `Ok`.
    async fn send(
        &self,
        request: &OutboundRequest,
        egress: &EgressPolicy,
        max_response_bytes: usize,
        deadline: Instant,
    ) -> Result<InboundAnswer, TransportError>;

    /// Like [`Transport::send`], but returns once the head of the answer has come, which is before `deadline`; the body
    /// is read as it comes. Its length and the time it takes are the caller's to bound.
    async fn open(
        &self,
        request: &OutboundRequest,
        egress: &EgressPolicy,
        deadline: Instant,
    ) -> Result<OpenAnswer, TransportError>;
}

/// An answer of any HTTP status whose body is still coming.
pub struct OpenAnswer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type` as it was written, parameters too.
    pub content_type: Option<String>,
    /// `Mcp-Session-Id`, when it is one that can be sent back: 1 to 1024 visible ASCII characters.
    pub session_id: Option<String>,
    /// The rest. Dropped before its end, it closes the connection: that tells the provider that nobody waits any more.
    pub body: Box<dyn AnswerBody>,
}

impl fmt::Debug for OpenAnswer {
    // Whoever holds a session id speaks in the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, content_type) = (&self.status, &self.content_type);
        f.debug_struct("OpenAnswer").field("status", status).field("content_type", content_type).finish_non_exhaustive()
    }
}

/// The body of an [`OpenAnswer`].
#[async_trait]
pub trait AnswerBody: Send {
    /// The next bytes, as soon as any have come, never none of them; `None` once the body has come whole. A fault is
    /// final: it is said again, a cut body never ends like a whole one. A call that is given up loses no byte.
    async fn chunk(&mut self) -> Result<Option<Bytes>, TransportFault>;
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{}", if *.bytes_sent { " after bytes were sent" } else { "" })]
pub struct TransportError {
    /// What happened.
    pub kind: TransportFault,
    /// Whether any byte of the request may have reached the provider: then a mutation must not be sent again.
    pub bytes_sent: bool,
}

/// What happened to an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportFault {
    /// The address is not allowed, or is toolgate's own.
    #[error("the address is not allowed")]
    BlockedAddress,
    /// The URL cannot be called at all.
    #[error("the URL is not acceptable")]
    BadUrl,
    /// The name does not resolve.
    #[error("the host name does not resolve")]
    Unresolvable,
    /// The connection was refused or failed.
    #[error("the connection failed")]
    ConnectFailed,
    /// The connection was not made in time.
    #[error("the connection timed out")]
    ConnectTimeout,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Tls,
    /// The deadline passed.
    #[error("no answer in time")]
    Timeout,
    /// The connection broke.
    #[error("the connection broke")]
    Reset,
    /// The answer is over its limit.
    #[error("the answer is too large")]
    TooLarge,
    /// The answer is not HTTP, or its encoding is unknown.
    #[error("the answer is not valid HTTP")]
    Malformed,
}

impl TransportFault {
    /// A word for records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            TransportFault::BlockedAddress => "blocked_address",
            TransportFault::BadUrl => "bad_url",
            TransportFault::Unresolvable => "unresolvable",
            TransportFault::ConnectFailed => "connect_failed",
            TransportFault::ConnectTimeout => "connect_timeout",
            TransportFault::Tls => "tls",
            TransportFault::Timeout => "timeout",
            TransportFault::Reset => "reset",
            TransportFault::TooLarge => "too_large",
            TransportFault::Malformed => "malformed",
        }
    }
}

/// Where a run spent its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimes {
    /// In toolgate.
    pub gateway: Duration,
    /// At the provider.
    pub provider: Duration,
}

/// What is counted. `org` and `endpoint` are slugs; an adapter bounds how many it keeps apart.
pub trait Metrics: Send + Sync + 'static {
    /// A run reached a status that is final or leaves the caller waiting.
    fn run(&self, org: &str, dialect: &'static str, kind: &'static str, status: &'static str);
    /// How long an answered run took.
    fn run_times(&self, dialect: &'static str, times: RunTimes);
    /// One request to a provider ended; `outcome` is `ok`, `http_4xx`, `http_5xx`, a transport fault's word, or
    /// `breaker_open` for a call that the endpoint's breaker refused.
    fn provider_request(&self, org: &str, endpoint: &str, outcome: &'static str);
    /// A limit refused a call; `scope` is `organization`, `agent_key`, `tool`, `caller` or `peer`.
    fn rate_limited(&self, org: &str, scope: &'static str);
    /// A sync ended.
    fn sync(&self, org: &str, outcome: &'static str);
    /// Whether an endpoint answers (its last sync was good and its breaker is closed).
    fn endpoint_up(&self, org: &str, endpoint: &str, up: bool);
    /// An endpoint was deleted or renamed: its series go.
    fn forget_endpoint(&self, org: &str, endpoint: &str);
    /// An organization was deleted: its series go.
    fn forget_org(&self, org: &str);
    /// How many runs of the organization are pending.
    fn pending_runs(&self, org: &str, count: usize);
    /// How many approvals of the organization are open.
    fn approvals(&self, org: &str, state: &'static str, count: usize);
    /// How many operations of the organization are open in `state`.
    fn operations(&self, org: &str, state: &'static str, count: usize);
    /// A callback was taken; `outcome` is `matched`, `unmatched`, `late`, `duplicate`, `ignored`, `bad_signature` or `refused`.
    fn callback(&self, org: &str, outcome: &'static str);
    /// How many organization actors live on this node.
    fn org_actors(&self, count: usize);
    /// How many turns wait in the mailboxes of this node, in all.
    fn mailbox_depth(&self, depth: usize);
    /// How long a store operation took.
    fn store(&self, op: &'static str, took: Duration);
    /// Records of plain reads that were dropped because the queue was full.
    fn records_dropped(&self, count: u64);
}
