//! `toolgate check`.

use super::process::{PROGRAM, command};
use serde_json::Value;
use std::process::Output;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use toolgate::demo::agent_provider::{AgentProvider, AgentProviderOptions};
use toolgate::demo::mcp_provider::{McpOptions, McpProvider};
use toolgate::demo::median_provider::{MedianOptions, MedianProvider};
use toolgate::demo::topology_provider::{TopologyOptions, TopologyProvider};
use toolgate::domain::secret::Secret;

const CALLBACK_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// The demo's providers, in a thread of their own.
struct Providers {
    topology: String,
    agent_provider: String,
    median: String,
    mcp: String,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Providers {
    fn start() -> Self {
        let (end, ended) = oneshot::channel();
        let (urls, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            actix::System::new().block_on(async {
                let topology = TopologyProvider::start(TopologyOptions::default()).expect("a free port");
                topology.set_callback_secret(Secret::new(CALLBACK_SECRET));
                let agent_provider = AgentProvider::start(AgentProviderOptions::default()).expect("a free port");
                let median = MedianProvider::start(MedianOptions::default()).expect("a free port");
                let mcp = McpProvider::start(McpOptions::default()).expect("a free port");
                let [topology, agent_provider, median] =
                    [topology.url(), agent_provider.url(), median.url()].map(str::to_owned);
                urls.send([topology, agent_provider, median, mcp.url()]).expect("the test waits");
                let _ = ended.await;
            });
        });
        let [topology, agent_provider, median, mcp] = started.recv().expect("the providers start");
        Self { topology, agent_provider, median, mcp, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Providers {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

fn check(arguments: &[&str]) -> (Output, String) {
    let output = command(PROGRAM).arg("check").args(arguments).output().expect("the program starts");
    let said = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    (output, said)
}

#[test]
fn good_providers_pass() {
    let providers = Providers::start();
    let auth = format!("X-Auth={}", TopologyOptions::default().auth_value);
    let query = ["--tool", "sales-report", "--args", r#"{"days": 7}"#, "--listen", "127.0.0.1:0"];
    let topology =
        [&providers.topology, "--dialect", "topology", "--header", &auth, "--callback-secret", CALLBACK_SECRET];
    let bearer = AgentProviderOptions::default().bearer;
    let refund =
        ["--tool", "refund.issue", "--args", r#"{"order": "ORD-1043", "amount": "1.00"}"#, "--allow-mutations"];
    let agent_provider = [&providers.agent_provider, "--dialect", "agent-provider", "--bearer", &bearer];
    let secret = MedianOptions::default().signing_secret;
    let status = ["--tool", "orderStatus", "--args", r#"{"orderNumber": "ORD-1042"}"#];
    let median = [&providers.median, "--dialect", "median", "--signing-secret", &secret];
    for arguments in [
        [topology.as_slice(), &query].concat(),
        [agent_provider.as_slice(), &refund].concat(),
        [median.as_slice(), &status].concat(),
    ] {
        let (output, said) = check(&arguments);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.lines().count() > 15 && said.ends_with(" ok, 0 failed, 0 skipped\n"), "{said}");
        assert!(said.lines().rev().skip(1).all(|line| line.starts_with("ok    §")), "{said}");
    }
}

#[test]
fn a_good_mcp_server_passes() {
    let providers = Providers::start();
    let bearer = McpOptions::default().bearer;
    let call = ["--tool", "search_products", "--args", r#"{"words": "tea"}"#];
    let (output, said) =
        check(&[[&*providers.mcp, "--dialect", "mcp", "--bearer", &bearer].as_slice(), &call].concat());
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // No argument of its tools stands in a header.
    assert!(said.lines().count() > 30 && said.ends_with(" ok, 0 failed, 1 skipped\n"), "{said}");
}

#[test]
fn a_breach_is_a_line_and_exit_1() {
    let providers = Providers::start();
    let (output, said) = check(&[&providers.median, "--dialect", "median", "--signing-secret", "another"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FAIL  §6      manifest: status: expected HTTP 200; came HTTP 401"), "{said}");
    let (output, said) = check(&[&providers.median, "--dialect", "median", "--signing-secret", "another", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let status = lines.iter().find(|line| line["rule"] == "manifest: status").expect("the line");
    assert_eq!((&status["mark"], &status["section"]), (&"FAIL".into(), &"§6".into()));
    assert!(lines.iter().all(|line| line["expected"].is_string() && line["came"].is_string()), "{said}");
}

#[test]
fn an_mcp_server_may_be_asked_without_credentials() {
    for credentials in [&[][..], &["--bearer", "b"], &["--header", "X-Key=s"]] {
        let (output, said) = check(&[&["http://127.0.0.1:1/mcp?a=1", "--dialect", "mcp"], credentials].concat());
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("FAIL  §11.2   server: answer: "), "{said}");
        assert!(said.lines().last().is_some_and(|line| line.starts_with("0 ok, 1 failed, ")), "{said}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_2_and_asks_nobody() {
    for arguments in [
        vec!["http://127.0.0.1:1"],
        vec!["http://127.0.0.1:1", "--dialect", "smoke-signals", "--bearer", "b"],
        vec!["http://127.0.0.1:1", "--dialect", "median"],
        vec!["http://127.0.0.1:1", "--dialect", "median", "--bearer", "b"],
        vec!["http://127.0.0.1:1", "--dialect", "median", "--signing-secret", "s", "--median-key", "k"],
        vec!["http://127.0.0.1:1", "--dialect", "topology", "--header", "X-Auth"],
        vec!["http://127.0.0.1:1", "--dialect", "agent-provider", "--header", "X-Auth=s"],
        vec!["http://127.0.0.1:1", "--dialect", "agent-provider", "--bearer", "b", "--tool", "t", "--args", "{"],
        vec!["http://127.0.0.1:1", "--dialect", "agent-provider", "--bearer", "b", "--args", "{}"],
        vec![
            "http://127.0.0.1:1",
            "--dialect",
            "topology",
            "--header",
            "X-Auth=s",
            "--listen",
            "127.0.0.1:0",
            "--callback-secret",
            "whsec_?",
        ],
        vec!["http://127.0.0.1:1", "--dialect", "mcp", "--signing-secret", "s"],
        vec!["http://127.0.0.1:1", "--dialect", "mcp", "--bearer", "b", "--header", "X-Key=s"],
        vec!["http://127.0.0.1:1/#a", "--dialect", "mcp"],
        vec!["somewhere", "--dialect", "agent-provider", "--bearer", "b"],
    ] {
        let (output, said) = check(&arguments);
        assert_eq!((output.status.code(), said.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "it says why: {arguments:?}");
    }
}
