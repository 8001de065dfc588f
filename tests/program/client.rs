//! The client commands against a gateway in a process of its own.

use super::process::{PROGRAM, ProcessGroup, command, free_port};
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Two tools of a topology that needs no provider until one of them is called.
const TOOLS: &str = r#"[
    {"id": "topology:sales-report", "title": "Sales report", "description": "Adds up orders.", "kind": "query",
     "input_schema": {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}},
    {"id": "topology:send-mail", "title": "Send mail", "description": "Sends a mail.", "kind": "command",
     "input_schema": {"type": "object"}}
]"#;

struct Gateway {
    url: String,
    operator_token: String,
    process: Child,
    group: ProcessGroup,
    folder: TempDir,
}

impl Gateway {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = format!("127.0.0.1:{}", free_port());
        let process = command(PROGRAM)
            .arg("serve")
            .env("TOOLGATE_SERVER__LISTEN", &address)
            .env("TOOLGATE_METRICS__LISTEN", "127.0.0.1:0")
            .env("TOOLGATE_DATA_DIR", folder.path().join("data"))
            .process_group(0)
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let group = ProcessGroup(process.id());
        let token = folder.path().join("data/operator.token");
        let begun = Instant::now();
        while std::net::TcpStream::connect(&address).is_err() || !token.exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the gateway does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        let operator_token = std::fs::read_to_string(token).expect("the token is kept").trim().to_owned();
        Self { url: format!("http://{address}"), operator_token, process, group, folder }
    }

    fn output(&self, key: &str, arguments: &[&str]) -> Output {
        command(PROGRAM)
            .args(arguments)
            .env("TOOLGATE_CLIENT_URL", &self.url)
            .env("TOOLGATE_CLIENT_KEY", key)
            .current_dir(self.folder.path())
            .output()
            .expect("the program starts")
    }

    /// What a command that does its work prints.
    #[track_caller]
    fn done(&self, key: &str, arguments: &[&str]) -> String {
        let output = self.output(key, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// As [`Gateway::done`], the answer as it came.
    #[track_caller]
    fn json(&self, key: &str, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.done(key, &arguments)).expect("JSON")
    }

    /// What a command says that fails with this exit code.
    #[track_caller]
    fn refused(&self, key: &str, arguments: &[&str], code: i32) -> String {
        let output = self.output(key, arguments);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    fn workspace_key(&self) -> String {
        let made = self.json(&self.operator_token, &["org", "create", "acme"]);
        made["workspace_key"].as_str().expect("a key").to_owned()
    }

    /// Ends it as an operator does; true when it said goodbye by itself.
    fn stop(mut self) -> bool {
        self.group.signal("TERM");
        self.process.wait().is_ok_and(|status| status.success())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn an_operator_keeps_organizations() {
    let gateway = Gateway::start();
    let operator = gateway.operator_token.clone();
    gateway.workspace_key();
    let said = gateway.refused(&operator, &["org", "create", "acme"], 1);
    assert!(said.contains("409 name_taken"), "{said}");
    let changed =
        gateway.json(&operator, &["org", "update", "acme", "--name", "Acme & Co", "--limit", "tool_per_second=5"]);
    assert_eq!(changed["name"], "Acme & Co");
    assert_eq!(changed["limits"]["tool_per_second"], 5);
    assert!(gateway.done(&operator, &["org", "list"]).starts_with("SLUG  NAME       STATE"));
    assert!(gateway.done(&operator, &["org", "get", "acme"]).contains("Acme & Co"));
    let key = gateway.json(&operator, &["org", "workspace-key", "acme", "--name", "spare"]);
    assert!(text(&key["key"]).starts_with("tg_ws_"));
    gateway.done(&operator, &["org", "usage", "acme"]);
    assert_eq!(gateway.done(&operator, &["org", "delete", "acme"]), "deleted acme\n");
    let said = gateway.refused(&operator, &["org", "get", "acme"], 1);
    assert!(said.contains("there is no organization named acme") || said.contains("404"), "{said}");
    assert!(gateway.stop(), "SIGTERM ends it with 0");
}

#[test]
fn an_administrator_keeps_endpoints_tools_groups_and_keys() {
    let gateway = Gateway::start();
    let key = gateway.workspace_key();
    let secret = gateway.folder.path().join("secret");
    std::fs::write(&secret, "s3cret\n").expect("written");
    let create = ["endpoint", "create", "shop", "--dialect", "topology", "--base-url", "https://shop.example"];
    let options = ["--auth-value", "@secret", "--tools", TOOLS, "--sync-interval-s", "0"];
    let made = gateway.json(&key, &[create.as_slice(), &options].concat());
    assert_eq!((&made["state"], &made["tool_count"]), (&"connected".into(), &2.into()), "{made}");
    assert!(text(&made["callback"]["secret"]).starts_with("whsec_"));
    assert_eq!(gateway.json(&key, &["endpoint", "sync", "shop"])["outcome"], "unchanged");
    assert!(gateway.done(&key, &["endpoint", "syncs", "shop"]).contains("registration"));
    let dead = ["endpoint", "create", "dead", "--dialect", "topology", "--base-url", "http://127.0.0.1:9"];
    gateway.done(&key, &[dead.as_slice(), &["--auth-value", "@secret"]].concat());
    let said = gateway.refused(&key, &["endpoint", "sync", "dead"], 1);
    assert!(said.contains("the sync failed"), "{said}");
    assert!(text(&gateway.json(&key, &["endpoint", "rotate-secret", "shop"])["secret"]).starts_with("whsec_"));
    let table = gateway.done(&key, &["tool", "list"]);
    assert!(table.starts_with("NAME") && table.contains("sales-report  shop"), "{table}");
    let stricter = gateway.json(&key, &["tool", "update", "send-mail", "--requires-confirmation", "true"]);
    assert_eq!(stricter["policy"]["requires_confirmation"], true, "{stricter}");

    gateway.done(&key, &["group", "create", "reports", "--allow", "sales-*", "--deny", "send-*"]);
    let agent = gateway.json(&key, &["key", "create", "bot", "--group", "reports"]);
    assert_eq!(agent["groups"], serde_json::json!(["reports"]));
    let said = gateway.refused(&key, &["group", "delete", "reports"], 1);
    assert!(said.contains("409 in_use"), "{said}");
    let why = gateway.json(&key, &["tool", "explain", "send-mail", "--agent-key", "bot"]);
    assert_eq!(why["reason"], "denied_by_rule");
    gateway.done(&key, &["key", "update", "bot", "--group", "default"]);
    assert_eq!(gateway.done(&key, &["group", "delete", "reports"]), "deleted reports\n");
    assert!(gateway.done(&key, &["key", "list", "--workspace"]).contains("NAME"));
    assert!(gateway.done(&key, &["audit", "list"]).contains("group.delete"));
    gateway.done(&key, &["endpoint", "update", "shop", "--enabled", "false"]);
    assert!(gateway.done(&key, &["endpoint", "list"]).contains("disabled"));
    assert_eq!(gateway.done(&key, &["key", "delete", "bot"]), "revoked bot\n");
}

#[test]
fn an_agent_calls_and_reads_why_not() {
    let gateway = Gateway::start();
    let key = gateway.workspace_key();
    let create = ["endpoint", "create", "shop", "--dialect", "topology", "--base-url", "https://shop.invalid"];
    gateway.done(&key, &[create.as_slice(), &["--auth-value", "s", "--tools", TOOLS]].concat());
    let agent = gateway.json(&key, &["key", "create", "bot"]);
    let agent = text(&agent["key"]);
    assert!(gateway.done(agent, &["tool", "manifest"]).contains("topology:sales-report"));
    let said = gateway.refused(agent, &["run", "call", "sales-report", "--args", r#"{"days": "soon"}"#], 1);
    assert!(said.contains("422 invalid_arguments") && said.contains("\n  /days: "), "{said}");
    let said = gateway.refused(agent, &["run", "call", "no-such-tool"], 1);
    assert!(said.contains("404 unknown_tool"), "{said}");
    let run = gateway.json(agent, &["run", "call", "send-mail", "--request-id", "r-1"]);
    assert_eq!((text(&run["status"]), text(&run["request_id"])), ("failed", "r-1"), "nobody answers there: {run}");
    let id = text(&run["correlation_id"]);
    assert!(gateway.done(agent, &["run", "get", id]).contains("send-mail"));
    assert!(gateway.done(&key, &["run", "list", "--status", "failed"]).contains(id));
    let record = gateway.json(&key, &["run", "get", id]);
    assert_eq!(record["arguments"]["sent"], serde_json::json!({}), "{record}");
}

#[test]
fn a_wrong_command_line_exits_with_2_and_a_refusal_with_1() {
    let gateway = Gateway::start();
    let key = gateway.workspace_key();
    gateway.refused(&key, &["tool", "frobnicate"], 2);
    let said = gateway.refused("", &["tool", "list"], 2);
    assert!(said.contains("TOOLGATE_CLIENT_KEY"), "{said}");
    let said = gateway.refused(&key, &["key", "create", "--body", "@no-such-file"], 2);
    assert!(said.contains("no-such-file cannot be read"), "{said}");
    let said = gateway.refused("tg_ws_wrong", &["tool", "list"], 1);
    assert!(said.contains("401 unauthorized"), "{said}");
    let said = gateway.refused(&key, &["tool", "list", "--url", "http://127.0.0.1:1"], 1);
    assert!(said.contains("does not answer"), "{said}");
    let said = gateway.refused(&key, &["endpoint", "get", "nowhere"], 1);
    assert!(said.contains("there is no endpoint named nowhere"), "{said}");
}

#[test]
fn an_administrator_decides_and_sets_who_is_told() {
    let gateway = Gateway::start();
    let key = gateway.workspace_key();
    let create = ["endpoint", "create", "shop", "--dialect", "topology", "--base-url", "https://shop.invalid"];
    gateway.done(&key, &[create.as_slice(), &["--auth-value", "s", "--tools", TOOLS]].concat());
    gateway.done(&key, &["tool", "update", "send-mail", "--risk", "high"]);
    let agent = gateway.json(&key, &["key", "create", "bot"]);
    let run = gateway.json(text(&agent["key"]), &["run", "call", "send-mail", "--wait", "0"]);
    assert_eq!(run["status"], "awaiting_approval", "{run}");
    let table = gateway.done(&key, &["approval", "list", "--state", "open"]);
    assert!(table.contains("send-mail") && table.contains("high"), "{table}");
    let open = gateway.json(&key, &["approval", "list", "--state", "open"]);
    let id = text(&open["items"][0]["id"]);
    assert!(gateway.done(&key, &["approval", "get", id]).contains(text(&run["correlation_id"])));
    let denied = gateway.json(&key, &["approval", "deny", id, "--note", "not today"]);
    assert_eq!((text(&denied["state"]), text(&denied["note"])), ("denied", "not today"), "{denied}");
    let said = gateway.refused(&key, &["approval", "approve", id], 1);
    assert!(said.contains("409 already_decided"), "{said}");
    assert_eq!(gateway.done(&key, &["approval", "list", "--state", "open"]), "none\n");
    assert_eq!(gateway.done(&key, &["operation", "list"]), "none\n");
    assert_eq!(gateway.done(&key, &["delivery", "list", "--state", "given_up"]), "none\n");

    let hook = "https://hooks.example/x";
    let settings = ["org", "settings", "--reviewer", hook, "--webhook", hook, "--confirmation-fallback", "approval"];
    let set = gateway.json(&key, &settings);
    assert!(text(&set["reviewer"]["secret"]).starts_with("whsec_"), "{set}");
    assert_eq!((text(&set["webhook"]["url"]), text(&set["confirmation_fallback"])), (hook, "approval"));
    let set = gateway.json(&key, &["org", "settings", "--reviewer", ""]);
    assert_eq!((&set["reviewer"], text(&set["webhook"]["url"])), (&Value::Null, hook), "{set}");
    assert!(set["webhook"].get("secret").is_none(), "{set}");
}

#[test]
fn a_write_with_a_key_is_made_once() {
    let gateway = Gateway::start();
    let key = gateway.workspace_key();
    let create = ["key", "create", "bot", "--idempotency-key", "k-1"];
    let (first, again) = (gateway.json(&key, &create), gateway.json(&key, &create));
    assert_eq!((&again["id"], &again["key"]), (&first["id"], &Value::Null));
    assert!(text(&first["key"]).starts_with("tg_ag_"));
    let said = gateway.refused(&key, &["key", "create", "other", "--idempotency-key", "k-1"], 1);
    assert!(said.contains("409 operation_conflict"), "{said}");
}

#[test]
fn settings_are_checked_all_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("toolgate.toml");
    let check = |contents: &str| {
        std::fs::write(&file, contents).expect("written");
        command(PROGRAM).args(["config", "check", "--config"]).arg(&file).output().expect("the program starts")
    };
    assert!(check("[server]\nlisten = \"127.0.0.1:1\"\n").status.success());
    let output = check("[server]\nlisten = \"nowhere\"\ncolour = 1\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("server.listen") && said.contains("server.colour"), "{said}");
}
