//! The HTTP edge: extract, one engine call, render.
//!
//! [`routes`] is the one table of everything that is served, [`phases`] the one sequence that every request passes.
//! Wire types live beside the handlers that speak them. **Invariant:** a handler is handed the access value of its
//! surface and cannot be reached without it. **Invariant:** nothing here knows an adapter or the configuration.

mod agent;
mod auth;
mod body;
mod call;
mod callbacks;
mod conditional;
mod docs;
mod error;
mod health;
mod idempotency;
mod json;
mod mcp;
mod operator;
mod phases;
mod prefer;
mod query;
mod routes;
pub mod server;
mod tenant;
mod wire;

use crate::engine::Engine;
use actix_web::web;
use auth::PeerLimits;
use health::Readiness;
use idempotency::WritesUnderWay;
use mcp::McpState;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the operator configured of the edge.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Largest body of a run, in bytes.
    pub run_body_bytes: usize,
    /// Largest body of a callback, in bytes.
    pub callback_body_bytes: usize,
    /// Largest body of any other request, in bytes.
    pub api_body_bytes: usize,
    /// Largest header block, in bytes: names, values and what stands between them.
    pub header_block_bytes: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// 401s a second of one peer address.
    pub unauthorized_per_second: u32,
    /// 401s at once of one peer address.
    pub unauthorized_burst: u32,
    /// Peer addresses whose 401s are counted apart.
    pub peers_tracked: usize,
    /// Streams of `subscriptions/listen` that one organization may have open.
    pub listen_streams: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            run_body_bytes: 1 << 20,
            callback_body_bytes: 1 << 20,
            api_body_bytes: 1 << 20,
            header_block_bytes: 16 << 10,
            body_timeout: Duration::from_secs(30),
            unauthorized_per_second: 100,
            unauthorized_burst: 200,
            peers_tracked: 100_000,
            listen_streams: 4_000,
        }
    }
}

/// Renders the metrics in the Prometheus text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What every request works with; one for all workers.
pub struct HttpState {
    engine: Engine,
    settings: HttpSettings,
    peers: PeerLimits,
    readiness: Readiness,
    writes: WritesUnderWay,
    mcp: Arc<McpState>,
    render_metrics: RenderMetrics,
}

impl HttpState {
    /// The edge of `engine`.
    pub fn new(engine: Engine, settings: HttpSettings, render_metrics: RenderMetrics) -> Self {
        let peers = PeerLimits::new(&settings);
        let (readiness, writes) = (Readiness::default(), WritesUnderWay::default());
        let mcp = Arc::default();
        Self { engine, settings, peers, readiness, writes, mcp, render_metrics }
    }
}

impl fmt::Debug for HttpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpState").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Serves the APIs, the callbacks, the documents and the health of toolgate.
pub fn configure(cfg: &mut web::ServiceConfig, state: web::Data<HttpState>) {
    phases::mount(cfg, state, &routes::API);
}

/// Serves the metrics and the health of toolgate, for a listener of its own. `protected` wants the operator token for
/// the metrics.
pub fn configure_metrics(cfg: &mut web::ServiceConfig, state: web::Data<HttpState>, protected: bool) {
    phases::mount(cfg, state, if protected { &routes::PROTECTED_METRICS } else { &routes::OPEN_METRICS });
}
