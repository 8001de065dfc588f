//! The real program in a process of its own, for what only a process can do: die, and get signals.

use super::client::Client;
use super::gate::settings;
use super::tenant::Tenant;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Made by the contract's rule from the bytes 00…1f.
pub(crate) const OPERATOR_TOKEN: &str = "tg_op_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3XKEij";

pub(crate) struct Binary {
    child: Child,
    client: Client,
    metrics_url: String,
    log: Arc<Mutex<String>>,
}

impl Binary {
    /// `toolgate serve` on this folder; returns when it serves.
    #[track_caller]
    pub(crate) fn serve(data_dir: &TempDir) -> Self {
        Self::of(Self::command(data_dir, &[("OPERATOR__TOKEN", OPERATOR_TOKEN)]))
    }

    /// What this command starts; returns when it serves.
    #[track_caller]
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let event: Value = loop {
            let mut line = String::new();
            let read = lines.read_line(&mut line).expect("stderr can be read");
            log.lock().expect("no test panics holding it").push_str(&line);
            assert!(read > 0, "toolgate ended: {}", log.lock().expect("no test panics holding it"));
            if line.contains("toolgate is serving") {
                break serde_json::from_str(&line).expect("logs are JSON lines");
            }
        };
        let url = |member: &str| event[member].as_str().expect("the URL is logged").to_owned();
        let rest = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                rest.lock().expect("no test panics holding it").push_str(&(line + "\n"));
            }
        });
        Self { child, client: Client::new(&url("url")), metrics_url: url("metrics"), log }
    }

    /// `toolgate serve` on this folder, whatever comes of it.
    pub(crate) fn spawn(data_dir: &TempDir) -> Child {
        let mut command = Self::command(data_dir, &[("OPERATOR__TOKEN", OPERATOR_TOKEN)]);
        command.spawn().expect("the program starts")
    }

    /// `toolgate serve` on this folder with these settings, and with nothing else in its environment.
    pub(crate) fn command(data_dir: &TempDir, extra: &[(&str, &str)]) -> Command {
        let extra: Vec<(String, String)> =
            extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.arg("serve").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.envs(settings(data_dir, &extra));
        command
    }

    /// Where Prometheus finds its metrics.
    pub(crate) fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// A new organization with a workspace key and an agent key of the group `default`; the operator token must be
    /// [`OPERATOR_TOKEN`].
    #[track_caller]
    pub(crate) fn tenant(&self, slug: &str) -> Tenant {
        let request = self.client.post("/admin/v1/orgs", &json!({ "slug": slug, "name": slug }));
        let made = request.key(OPERATOR_TOKEN).send().expect(201).json();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let mut tenant = Tenant {
            client: self.client.clone(),
            org_id: text(&made["org"]["id"]),
            workspace: text(&made["workspace_key"]),
            agent: String::new(),
        };
        tenant.agent = tenant.agent_key(&json!({ "name": "agent", "groups": ["default"] }));
        tenant
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no test panics holding it").clone()
    }

    /// SIGKILL: no goodbye, nothing flushed.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill exists").success());
        self.child.wait().expect("it can be waited for")
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
