//! A whole gateway in this process, with its own data folder, free ports, and a clock that the test turns.

use super::client::{Answer, Client, Request};
use super::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use toolgate::app::Gateway;
use toolgate::config::Config;
use toolgate::engine::ports::Clock;
use toolgate::engine::test_clock::TestClock;

/// Rates nobody reaches by accident: the clock stands still, so nothing that was used comes back by itself.
const ROOMY: [(&str, &str); 10] = [
    ("LIMITS__ORGANIZATION_PER_SECOND", "1000000"),
    ("LIMITS__ORGANIZATION_PER_SECOND_BURST", "1000000"),
    ("LIMITS__AGENT_KEY_PER_SECOND", "1000000"),
    ("LIMITS__AGENT_KEY_PER_SECOND_BURST", "1000000"),
    ("LIMITS__TOOL_PER_SECOND", "1000000"),
    ("LIMITS__TOOL_PER_SECOND_BURST", "1000000"),
    ("LIMITS__CALLER_PER_SECOND", "1000000"),
    ("LIMITS__CALLER_PER_SECOND_BURST", "1000000"),
    ("LIMITS__UNAUTHORIZED_PER_SECOND", "1000000"),
    ("LIMITS__UNAUTHORIZED_PER_SECOND_BURST", "1000000"),
];

/// The settings of a gateway under test, without the prefix of the environment.
pub(crate) fn settings(data_dir: &TempDir, extra: &[(String, String)]) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> =
        ROOMY.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut set = |name: &str, value: &str| {
        settings.retain(|(other, _)| other != name);
        settings.push((name.to_owned(), value.to_owned()));
    };
    set("DATA_DIR", &data_dir.path().to_string_lossy());
    set("SERVER__LISTEN", "127.0.0.1:0");
    set("SERVER__WORKERS", "1");
    set("METRICS__LISTEN", "127.0.0.1:0");
    set("EGRESS__ALLOW", "127.0.0.0/8");
    set("EGRESS__DEFAULT_ALLOW", "true");
    for (name, value) in extra {
        set(name, value);
    }
    settings.into_iter().map(|(name, value)| (format!("TOOLGATE_{name}"), value)).collect()
}

pub(crate) struct Gate {
    client: Client,
    metrics_url: String,
    operator: String,
    clock: Arc<TestClock>,
    extra: Vec<(String, String)>,
    data_dir: Option<TempDir>,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Gate {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A gateway with these settings beside the usual ones, such as `("LIMITS__MAX_TOOLS", "3")`.
    pub(crate) fn with(extra: &[(&str, &str)]) -> Self {
        let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::on(TempDir::new().expect("a temporary folder"), extra, TestClock::new())
    }

    fn on(data_dir: TempDir, extra: Vec<(String, String)>, clock: Arc<TestClock>) -> Self {
        let config = Config::load(None, settings(&data_dir, &extra).into_iter()).expect("good settings");
        let (up, is_up) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let for_gateway: Arc<dyn Clock> = clock.clone();
        let thread = std::thread::spawn(move || {
            actix::System::new().block_on(async move {
                let gateway = Gateway::start(config, for_gateway).await.expect("the gateway starts");
                let operator = gateway.operator_token().reveal().to_owned();
                let urls = (gateway.url().to_owned(), gateway.metrics_url().to_owned());
                up.send((urls, operator)).expect("the test waits");
                // A test that drops its gateway stops it too.
                let _ = stopped.await;
                assert!(gateway.stop().await, "no call is cut off by a graceful stop");
            });
        });
        let ((url, metrics_url), operator) = is_up.recv().expect("the gateway starts");
        let running = Some(Running { stop, thread });
        Self { client: Client::new(&url), metrics_url, operator, clock, extra, data_dir: Some(data_dir), running }
    }

    /// Stops gracefully and starts again on the same data, with the same clock.
    pub(crate) fn restart(mut self) -> Self {
        let running = self.running.take().expect("the gateway runs");
        running.stop.send(()).expect("the gateway waits for this");
        running.thread.join().expect("the gateway stops cleanly");
        let data_dir = self.data_dir.take().expect("a gateway has its folder");
        Self::on(data_dir, std::mem::take(&mut self.extra), Arc::clone(&self.clock))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn url(&self) -> &str {
        self.client.base()
    }

    /// The metrics as Prometheus reads them.
    #[track_caller]
    pub(crate) fn metrics(&self) -> String {
        let base = self.metrics_url.strip_suffix("/metrics").expect("the metrics stand at /metrics");
        Client::new(base).get("/metrics").send().expect(200).text().to_owned()
    }

    pub(crate) fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    pub(crate) fn clock(&self) -> &Arc<TestClock> {
        &self.clock
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(crate) fn operator_token(&self) -> &str {
        &self.operator
    }

    pub(crate) fn get(&self, path: &str) -> Request {
        self.client.get(path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Request {
        self.client.post(path, body)
    }

    /// A request with the operator token.
    pub(crate) fn operator(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let request = self.client.request(method, path).key(&self.operator);
        body.into_iter().fold(request, Request::json).send()
    }

    /// A new organization with a workspace key and an agent key of the group `default`.
    #[track_caller]
    pub(crate) fn tenant(&self, slug: &str) -> Tenant {
        self.tenant_with(&json!({ "slug": slug, "name": slug }))
    }

    #[track_caller]
    pub(crate) fn tenant_with(&self, org: &Value) -> Tenant {
        let made = self.operator("POST", "/admin/v1/orgs", Some(org)).expect(201).json();
        let workspace = made["workspace_key"].as_str().expect("a workspace key").to_owned();
        let org_id = made["org"]["id"].as_str().expect("an id").to_owned();
        let mut tenant = Tenant { client: self.client.clone(), org_id, workspace, agent: String::new() };
        tenant.agent = tenant.agent_key(&json!({ "name": "agent", "groups": ["default"] }));
        tenant
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Nobody waits for the end: a test is over when its last assertion holds.
        if let Some(running) = self.running.take() {
            let _ = running.stop.send(());
        }
    }
}
