//! The real server in a process of its own, with one organization, one endpoint and one agent key.

use super::process::{Process, free_address, wait_for};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

const OPERATOR_TOKEN: &str = "tg_op_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3XKEij";

/// A running toolgate.
pub struct Gateway {
    /// Its process.
    pub process: Process,
    /// Where its APIs are.
    pub address: SocketAddr,
    /// The key of an agent that may use every tool.
    pub agent_key: String,
}

/// Starts toolgate in `folder`, without rate limits to be met, and registers the endpoint that `registration` describes.
pub fn start(folder: &Path, registration: &str) -> Gateway {
    let address = free_address();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command
        .arg("serve")
        .env("TOOLGATE_SERVER__LISTEN", address.to_string())
        .env("TOOLGATE_METRICS__LISTEN", free_address().to_string())
        .env("TOOLGATE_DATA_DIR", folder.join("data"))
        .env("TOOLGATE_OPERATOR__TOKEN", OPERATOR_TOKEN)
        .env("TOOLGATE_EGRESS__ALLOW", "127.0.0.0/8")
        .env("TOOLGATE_EGRESS__DEFAULT_ALLOW", "true")
        .env("TOOLGATE_LOG__LEVEL", "warn");
    for scope in ["ORGANIZATION", "AGENT_KEY", "TOOL", "CALLER"] {
        command.env(format!("TOOLGATE_LIMITS__{scope}_PER_SECOND"), "1000000");
        command.env(format!("TOOLGATE_LIMITS__{scope}_PER_SECOND_BURST"), "1000000");
    }
    let process = Process::start(&mut command);
    wait_for(address);
    let base = format!("http://{address}");
    let org = post(&base, "/admin/v1/orgs", OPERATOR_TOKEN, r#"{"slug":"bench","name":"Bench"}"#);
    let workspace = org["workspace_key"].as_str().expect("a key").to_owned();
    let endpoint = post(&base, "/v1/endpoints", &workspace, registration);
    assert_eq!(endpoint["state"], "connected", "{endpoint}");
    let key = post(&base, "/v1/agent-keys", &workspace, r#"{"name":"bench","groups":["default"]}"#);
    let agent_key = key["key"].as_str().expect("a key").to_owned();
    Gateway { process, address, agent_key }
}

fn post(base: &str, path: &str, key: &str, body: &str) -> serde_json::Value {
    let mut answer = ureq::post(format!("{base}{path}"))
        .header("X-Auth", key)
        .header("Content-Type", "application/json")
        .send(body)
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    answer.body_mut().read_json().expect("JSON")
}
