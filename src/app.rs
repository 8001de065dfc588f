//! The whole, put together: configuration in, a running gateway out. Only this module knows both adapters and edges.

use crate::adapters::metrics::PrometheusMetrics;
use crate::adapters::secrets::{
    KeyError, MASTER_KEY_FILE, SecretBox, load_or_make_master_key, load_or_make_operator_token, make_data_dir,
};
use crate::adapters::store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use crate::adapters::transport::{HttpTransport, OwnListeners, TransportConfig, TransportSetupError};
use crate::config::{Config, StoreConfig};
use crate::domain::secret::Secret;
use crate::engine::ports::{Clock, Metrics};
use crate::engine::settings::EngineSettings;
use crate::engine::store_port::StoreError;
use crate::engine::{Engine, EngineSecrets, Ports};
use crate::http::server::{self, RunningServer};
use crate::http::{HttpSettings, HttpState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Running calls may take this long to finish when toolgate stops.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Why toolgate does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    /// The data folder cannot be used.
    #[error("the data folder {} cannot be used", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The master key or the operator token cannot be used.
    #[error("a key of this toolgate cannot be used")]
    Key(#[source] KeyError),
    /// There is a database and no key to it.
    #[error(
        "the master key that sealed {} is missing: put its file back, or give TOOLGATE_MASTER_KEY",
        database.display()
    )]
    MasterKeyMissing {
        /// The database.
        database: PathBuf,
    },
    /// The store does not open.
    #[error("the store does not open")]
    Store(#[source] OpenError),
    /// What was left half done cannot be taken up.
    #[error("what was left half done cannot be taken up")]
    Recovery(#[source] StoreError),
    /// The file named by `egress.ca_file` cannot be read.
    #[error("the CA file {} cannot be read", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The way out cannot be set up.
    #[error("outbound connections cannot be set up")]
    Transport(#[source] TransportSetupError),
    /// An address cannot be listened on.
    #[error("{address} cannot be listened on")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A gateway that serves until it is stopped.
pub struct Gateway {
    engine: Engine,
    url: String,
    metrics_url: String,
    operator_token: Secret,
    token_is_new: bool,
    servers: Vec<RunningServer>,
}

impl Gateway {
    /// Opens the store, binds the listeners and serves; needs a running actix `System`. Port 0 takes a free port.
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Self, StartFault> {
        make_data_dir(&config.data_dir)
            .map_err(|source| StartFault::DataDir { path: config.data_dir.clone(), source })?;
        let secrets = open_secrets(&config, clock.as_ref())?;
        let metrics = Arc::new(PrometheusMetrics::new(config.metrics.max_orgs, MAX_ENDPOINT_LABELS));
        let confirmation_key = secrets.sealed.derive("toolgate/confirmation/v1");
        let store = open_store(&config, secrets.sealed, &metrics)?;
        let own = Arc::new(OwnListeners::default());
        let transport = open_transport(&config, &own)?;
        let (api, api_address) = listen(config.server.listen)?;
        let (scrape, metrics_address) = listen(config.metrics.listen)?;
        own.add(api_address);
        own.add(metrics_address);
        let ports = Ports {
            store: Arc::new(store),
            transport: Arc::new(transport),
            clock,
            metrics: Arc::clone(&metrics) as Arc<dyn Metrics>,
        };
        let engine_secrets = EngineSecrets { operator_tokens: secrets.operator_tokens.clone(), confirmation_key };
        let engine = Engine::new(ports, engine_settings(&config, api_address), engine_secrets);
        engine.recover().await.map_err(StartFault::Recovery)?;
        engine.run_background();
        let render = Arc::new(move || metrics.render());
        let state = HttpState::new(engine.clone(), http_settings(&config), render);
        let servers = server::start(state, api, scrape, workers(&config), config.metrics_protected())
            .map_err(|source| StartFault::Listen { address: api_address, source })?;
        Ok(Self {
            engine,
            url: format!("http://{api_address}"),
            metrics_url: format!("http://{metrics_address}/metrics"),
            operator_token: secrets.operator_tokens[0].clone(),
            token_is_new: secrets.token_is_new,
            servers,
        })
    }

    /// Base URL of the APIs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// URL that Prometheus scrapes.
    pub fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    /// The operator token in force.
    pub fn operator_token(&self) -> &Secret {
        &self.operator_token
    }

    /// Whether the operator token was made by this start.
    pub fn operator_token_is_new(&self) -> bool {
        self.token_is_new
    }

    /// Stops gracefully: not ready, no new work, running calls finish, pending ones stay durable. True when no call was
    /// cut off.
    pub async fn stop(self) -> bool {
        self.engine.begin_stop();
        let until = Instant::now() + STOP_WITHIN;
        let whole = self.engine.drain(STOP_WITHIN).await;
        for server in self.servers {
            server.stop().await;
        }
        self.engine.close(until).await;
        whole
    }
}

/// Endpoints of one organization that keep a metrics label of their own.
const MAX_ENDPOINT_LABELS: usize = 1_000;

struct OpenSecrets {
    sealed: SecretBox,
    /// The one in force first.
    operator_tokens: Vec<Secret>,
    token_is_new: bool,
}

fn open_secrets(config: &Config, clock: &dyn Clock) -> Result<OpenSecrets, StartFault> {
    let mut random = [0; 32];
    clock.fill_random(&mut random);
    let master = match &config.secrets.master_key {
        Some(key) => *key.bytes(),
        None => {
            let StoreConfig::Sqlite(database) = &config.store;
            let missing = database.exists() && !config.data_dir.join(MASTER_KEY_FILE).exists();
            if missing {
                // A new key would open nothing of it.
                return Err(StartFault::MasterKeyMissing { database: database.clone() });
            }
            load_or_make_master_key(&config.data_dir, random).map_err(StartFault::Key)?
        }
    };
    let previous = config.secrets.previous_master_key.as_ref().map(|key| *key.bytes());
    clock.fill_random(&mut random);
    let (token, token_is_new) = match &config.operator.token {
        Some(token) => (token.clone(), false),
        None => {
            let kept = load_or_make_operator_token(&config.data_dir, random).map_err(StartFault::Key)?;
            (kept.token, kept.made)
        }
    };
    let operator_tokens = std::iter::once(token).chain(config.operator.previous_token.clone()).collect();
    Ok(OpenSecrets { sealed: SecretBox::new(master, previous), operator_tokens, token_is_new })
}

fn open_store(config: &Config, sealed: SecretBox, metrics: &Arc<PrometheusMetrics>) -> Result<SqliteStore, StartFault> {
    let metrics = Arc::clone(metrics);
    let timer = Arc::new(move |op: &'static str, took: Duration| metrics.store(op, took));
    let options = SqliteOptions { timer: Some(timer), ..SqliteOptions::default() };
    SqliteStore::open(&config.data_dir, sealed, options).map_err(StartFault::Store)
}

fn open_transport(config: &Config, own: &Arc<OwnListeners>) -> Result<HttpTransport, StartFault> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|source| StartFault::CaFile { path: path.clone(), source });
    let extra_roots_pem = config.egress.ca_file.as_ref().map(read).transpose()?;
    let transport = TransportConfig {
        connect_timeout: Duration::from_millis(config.limits.connect_timeout_ms),
        extra_roots_pem,
        ..TransportConfig::default()
    };
    HttpTransport::new(transport, Arc::clone(own)).map_err(StartFault::Transport)
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartFault> {
    let fault = |source| StartFault::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(fault)?;
    let bound = listener.local_addr().map_err(fault)?;
    Ok((listener, bound))
}

fn workers(config: &Config) -> usize {
    match config.server.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

fn engine_settings(config: &Config, bound: SocketAddr) -> EngineSettings {
    let limits = &config.limits;
    EngineSettings {
        public_url: config.server.public_url_at(bound),
        limits: limits.organization.clone(),
        retention: config.retention.clone(),
        egress_allow: config.egress.allow.clone(),
        egress_default_allow: config.egress.default_allow,
        manifest_bytes: limits.manifest_bytes,
        provider_response_bytes: limits.provider_response_bytes,
        manifest_fetch_timeout: Duration::from_millis(limits.manifest_fetch_timeout_ms),
        run_timeout: Duration::from_millis(limits.run_timeout_ms),
        mailbox_capacity: limits.mailbox_capacity,
        actor_threads: workers(config).div_ceil(4),
        callers_tracked: limits.callers_tracked,
        conversations_tracked: limits.conversations_tracked as u64,
        ..EngineSettings::default()
    }
}

fn http_settings(config: &Config) -> HttpSettings {
    let limits = &config.limits;
    HttpSettings {
        run_body_bytes: limits.run_body_bytes,
        callback_body_bytes: limits.callback_body_bytes,
        api_body_bytes: limits.api_body_bytes,
        header_block_bytes: limits.header_block_bytes,
        listen_streams: limits.listen_streams,
        unauthorized_per_second: limits.unauthorized_per_second,
        unauthorized_burst: limits.unauthorized_per_second_burst,
        ..HttpSettings::default()
    }
}
