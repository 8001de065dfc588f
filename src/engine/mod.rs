//! The use-cases: everything toolgate does, over ports.
//!
//! [`Engine`] is what `http` and `app` hold. Every entry wants a value that only a checked key gives
//! ([`access::AgentAccess`], [`access::WorkspaceAccess`], [`access::OperatorAccess`]).

pub mod access;
pub mod actors;
pub mod administration;
pub mod approval;
mod approved;
pub mod callback;
mod carry_on;
pub mod catalog;
pub mod confirmation;
mod conversations;
pub mod dispatch;
mod due;
mod idempotency;
mod in_flight;
pub mod mcp;
mod operation;
pub mod org;
pub mod ports;
mod reviewer;
pub mod run;
pub mod runs;
mod schemas;
pub mod settings;
pub mod store_port;
pub mod store_records;
pub mod sync;
pub mod test_clock;
mod turns;
mod webhook;
pub mod writes;

use crate::domain::ids::{EndpointId, OrgId};
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use access::AccessCache;
use actors::registry::Registry;
use confirmation::ConfirmationSeal;
use conversations::Conversations;
use in_flight::InFlight;
use mcp::changes::Announced;
use mcp::dialogues::Dialogues;
use mcp::listener::Listeners;
use mcp::session::SessionSeal;
use moka::sync::Cache;
use ports::{Clock, Metrics, Store, Transport};
use schemas::Schemas;
use settings::EngineSettings;
use std::sync::Arc;
use sync::SingleFlight;
use tokio::sync::Semaphore;
use turns::Turns;

/// The ports an engine works with.
#[derive(Clone)]
pub struct Ports {
    /// What lasts.
    pub store: Arc<dyn Store>,
    /// The way to providers.
    pub transport: Arc<dyn Transport>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<dyn Metrics>,
}

/// The secrets an engine works with.
pub struct EngineSecrets {
    /// The operator token and, during a rotation, its predecessor.
    pub operator_tokens: Vec<Secret>,
    /// Seals confirmation tokens: 32 bytes, the same on every node and after every restart.
    pub confirmation_key: [u8; 32],
}

/// The whole of toolgate but its edges. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    ports: Ports,
    settings: Arc<EngineSettings>,
    registry: Registry,
    access: AccessCache,
    schemas: Schemas,
    syncs: SingleFlight,
    turns: Turns,
    dialogues: Dialogues,
    announced: Announced,
    listeners: Listeners,
    /// The right to check a manifest.
    decoding: Semaphore,
    /// The right to read a large answer.
    reading: Semaphore,
    conversations: Conversations,
    seal: ConfirmationSeal,
    sessions: SessionSeal,
    in_flight: Arc<InFlight>,
    /// Which organization an endpoint belongs to: never changes, so it is kept while it is asked for.
    endpoint_orgs: Cache<EndpointId, OrgId>,
    started_at: Timestamp,
}

impl Engine {
    /// An engine at rest; needs a running actix `System`. [`Engine::run_background`] makes it keep time.
    pub fn new(ports: Ports, settings: EngineSettings, secrets: EngineSecrets) -> Self {
        let settings = Arc::new(settings);
        let Ports { store, clock, metrics, .. } = ports.clone();
        let inner = Arc::new(Inner {
            registry: Registry::start(store, clock, metrics, Arc::clone(&settings)),
            access: AccessCache::new(&secrets.operator_tokens),
            schemas: Schemas::new(settings.schema_cache_bytes),
            syncs: SingleFlight::default(),
            turns: Turns::default(),
            dialogues: Dialogues::default(),
            announced: Announced::default(),
            listeners: Listeners::default(),
            decoding: Semaphore::new(1),
            reading: Semaphore::new(1),
            conversations: Conversations::new(settings.conversations_tracked),
            seal: ConfirmationSeal::new(secrets.confirmation_key),
            sessions: SessionSeal::derived_from(&secrets.confirmation_key),
            in_flight: Arc::default(),
            endpoint_orgs: Cache::new(100_000),
            started_at: ports.clock.now(),
            ports,
            settings,
        });
        let engine = Arc::downgrade(&inner);
        inner.registry.on_start(move |org| {
            if let Some(inner) = engine.upgrade() {
                let engine = Engine(inner);
                tokio::spawn(engine.clone().begin_listening(org));
                tokio::spawn(engine.deliver_kept(org));
            }
        });
        Self(inner)
    }

    /// The metrics port, for the edges.
    pub fn metrics(&self) -> &dyn Metrics {
        self.0.ports.metrics.as_ref()
    }

    /// The clock, for the edges.
    pub fn clock(&self) -> &dyn Clock {
        self.0.ports.clock.as_ref()
    }

    /// What the operator configured.
    pub fn settings(&self) -> &EngineSettings {
        &self.0.settings
    }

    fn store(&self) -> &dyn Store {
        self.0.ports.store.as_ref()
    }
}
