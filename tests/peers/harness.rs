//! The processes of a test: servers on node, a gateway between, and what is needed to set it up.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use ureq::Agent;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_toolgate");

/// Made by the contract's rule from the bytes 00…1f.
pub(crate) const OPERATOR_TOKEN: &str = "tg_op_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3XKEij";

/// The folder of this folder's scripts.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// Where the peers are. The first call in a process brings what is missing.
pub(crate) fn peers() -> &'static Path {
    static PEERS: OnceLock<PathBuf> = OnceLock::new();
    PEERS.get_or_init(|| {
        let chosen = std::env::var_os("MCP_PEERS").map(PathBuf::from);
        let folder = chosen.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers"));
        let output = Command::new(scripts().join("install")).arg(&folder).output().expect("bash is there");
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "the peers cannot be installed: {}", said());
        folder
    })
}

/// A command that finds the peers, and no settings of whoever runs the tests.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let folder = peers();
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOOLGATE_")) {
        command.env_remove(name);
    }
    command.env("MCP_PEERS", folder).stdin(Stdio::null());
    command
}

/// Runs one of the scripts on node.
pub(crate) fn node(script: &str) -> Command {
    let mut command = command(peers().join("node/node"));
    command.arg(scripts().join(script));
    command
}

/// An HTTP client that answers whatever came back.
pub(crate) fn http() -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(Duration::from_secs(90)));
    config.build().into()
}

/// A server of these scripts, for as long as a test holds it.
pub(crate) struct Upstream {
    child: Child,
    /// It ends when this does, also when the test was killed.
    _alive: ChildStdin,
    url: String,
}

impl Upstream {
    pub(crate) fn start(script: &str, arguments: &[&str]) -> Self {
        let mut command = node(script);
        command.args(arguments).arg("--until-stdin-ends").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node starts");
        let alive = child.stdin.take().expect("stdin is piped");
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("stdout is piped"));
        said.read_line(&mut line).expect("it says where it listens");
        let url = line.trim().strip_prefix("listening ").expect("it says where it listens").to_owned();
        Self { child, _alive: alive, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What stands beside its MCP endpoint, such as `/__cases`.
    pub(crate) fn told(&self, path: &str) -> String {
        let base = self.url.strip_suffix("/mcp").expect("it listens at /mcp");
        let mut answer = http().get(format!("{base}{path}")).call().expect("it answers");
        answer.body_mut().with_config().limit(1 << 30).read_to_string().expect("text")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The settings of a gateway whose limits nobody reaches by accident, and which may reach loopback.
fn settings(data_dir: &Path) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = ["ORGANIZATION", "AGENT_KEY", "TOOL", "CALLER", "UNAUTHORIZED"]
        .iter()
        .flat_map(|scope| [format!("LIMITS__{scope}_PER_SECOND"), format!("LIMITS__{scope}_PER_SECOND_BURST")])
        .map(|name| (name, "1000000".to_owned()))
        .collect();
    let data_dir = data_dir.to_string_lossy();
    let more = [
        ("DATA_DIR", data_dir.as_ref()),
        ("SERVER__LISTEN", "127.0.0.1:0"),
        ("SERVER__WORKERS", "1"),
        ("METRICS__LISTEN", "127.0.0.1:0"),
        ("EGRESS__ALLOW", "127.0.0.0/8"),
        ("EGRESS__DEFAULT_ALLOW", "true"),
        ("OPERATOR__TOKEN", OPERATOR_TOKEN),
    ];
    settings.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
    settings.into_iter().map(|(name, value)| (format!("TOOLGATE_{name}"), value)).collect()
}

/// `toolgate serve`, for as long as a test holds it.
pub(crate) struct Gateway {
    child: Child,
    url: String,
    _data_dir: TempDir,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        let data_dir = TempDir::new().expect("a temporary folder");
        // Thousands of clients want as many descriptors as there may be.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"ulimit -n "$(ulimit -H -n)"; exec "$0" serve"#, PROGRAM]);
        command.env_clear().envs(settings(data_dir.path()));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let serving = lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains("toolgate is serving"));
        let event: Value = serde_json::from_str(&serving.expect("toolgate serves")).expect("logs are JSON lines");
        // What it says later is read away, so that it never waits to say it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self { child, url: event["url"].as_str().expect("the URL is logged").to_owned(), _data_dir: data_dir }
    }

    /// Its MCP endpoint.
    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.url)
    }

    /// Bytes of memory that it holds now.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// A new organization with a workspace key and an agent key of the group `default`.
    #[track_caller]
    pub(crate) fn organization(&self, slug: &str) -> Organization {
        let org = json!({ "slug": slug, "name": slug });
        let made = request(&self.url, "POST", "/admin/v1/orgs", OPERATOR_TOKEN, &org);
        let workspace = text(&made["workspace_key"]);
        let mut organization = Organization { base: self.url.clone(), workspace, agent: String::new() };
        let agent = organization.send("POST", "/v1/agent-keys", &json!({ "name": "agent", "groups": ["default"] }));
        organization.agent = text(&agent["key"]);
        organization
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// A request with a JSON body that goes well; answers the JSON.
#[track_caller]
fn request(base: &str, method: &str, path: &str, key: &str, body: &Value) -> Value {
    let request = ureq::http::Request::builder().method(method).uri(format!("{base}{path}"));
    let request = request.header("X-Auth", key).header("Content-Type", "application/json");
    let mut answer = http().run(request.body(body.to_string()).expect("a request")).expect("it answers");
    let said = answer.body_mut().with_config().limit(1 << 30).read_to_string().expect("text");
    assert!(answer.status().is_success(), "{method} {path}: {} {said}", answer.status());
    serde_json::from_str(&said).unwrap_or(Value::Null)
}

/// One organization of a gateway, with its keys.
#[derive(Clone)]
pub(crate) struct Organization {
    pub(crate) base: String,
    workspace: String,
    pub(crate) agent: String,
}

impl Organization {
    /// A request of its administrator that goes well.
    #[track_caller]
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        request(&self.base, method, path, &self.workspace, body)
    }

    /// The items of a list.
    #[track_caller]
    pub(crate) fn items(&self, path: &str) -> Vec<Value> {
        let mut answer = http().get(format!("{}{path}", self.base)).header("X-Auth", &self.workspace).call();
        let page: Value = answer.as_mut().expect("it answers").body_mut().read_json().expect("JSON");
        page["items"].as_array().expect("items").clone()
    }

    /// Registers an MCP server, which is told of as it was registered.
    #[track_caller]
    pub(crate) fn endpoint(&self, upstream: &Upstream) -> Value {
        let endpoint = json!({
            "name": "upstream", "dialect": "mcp", "base_url": upstream.url(), "auth": {}, "trusted": true,
            "sync": { "interval_s": 0 },
        });
        let made = self.send("POST", "/v1/endpoints", &endpoint);
        assert_eq!(made["state"], "connected", "{made}");
        made
    }
}

/// What a program printed that did its work.
#[track_caller]
pub(crate) fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}
