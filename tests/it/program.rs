//! The process: what it says when it cannot start, what it keeps to itself while it runs, how it ends.

use crate::support::binary::{Binary, OPERATOR_TOKEN};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::manifests::{having, median, topology, topology_with};
use crate::support::node::sign;
use crate::support::provider::{Latch, PROVIDER_KEY, Provider, Reply, SIGNING_SECRET, acknowledge};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const OPERATOR: (&str, &str) = ("OPERATOR__TOKEN", OPERATOR_TOKEN);

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

/// Runs to the end; answers the exit code and what was said on stderr.
fn ended(mut command: Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(since.as_secs()).expect("it is before the end of time")
}

#[test]
fn every_mistake_of_the_settings_is_told_at_once() {
    let data = folder();
    let mistakes = [
        ("SERVER__LISTEN", "nowhere"),
        ("LIMITS__MAX_TOOLS", "many"),
        ("EGRESS__ALLOW", "10.0.0.0/99"),
        ("OPERATOR__TOKEN", "tg_op_short"),
        ("STORE__URL", "postgres://db/toolgate"),
        ("BUS__URL", "redis://bus"),
        ("LIMITS__MAX_TOLS", "3"),
        ("NO_SUCH_KEY", "x"),
    ];
    let mut check = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    check.args(["config", "check"]).env_clear();
    check.envs(mistakes.iter().map(|(name, value)| (format!("TOOLGATE_{name}"), value)));
    for command in [Binary::command(&data, &mistakes), check] {
        let (code, said) = ended(command);
        assert_eq!(code, Some(1), "{said}");
        for (name, _) in mistakes {
            assert!(said.contains(&format!("TOOLGATE_{name}")), "{name} is not told: {said}");
        }
        assert!(!said.contains("tg_op_short"), "a key is not repeated: {said}");
    }
    assert_eq!(fs::read_dir(data.path()).expect("a folder").count(), 0, "nothing was made");
    // Those of the client and the master key are not settings of the server.
    let mut good = Binary::command(&data, &[OPERATOR]);
    good.env("TOOLGATE_CLIENT_URL", "http://x").env("TOOLGATE_CLIENT_KEY", "k");
    good.env("TOOLGATE_MASTER_KEY", STANDARD.encode([7; 32]));
    Binary::of(good).client().get("/readyz").send().expect(200);
}

#[test]
fn the_operator_token_is_made_once_and_shown_once() {
    let data = folder();
    let first = Binary::of(Binary::command(&data, &[]));
    let token = eventually("the token is printed", || {
        let log = first.log();
        log.split_whitespace().find(|word| word.starts_with("tg_op_")).map(str::to_owned)
    });
    first.client().get("/admin/v1/status").key(&token).send().expect(200);
    assert_eq!(first.terminate().code(), Some(0));
    let holding = |wanted: &str| {
        let files = fs::read_dir(data.path()).expect("a folder").map(|file| file.expect("a file").path());
        files.filter(|path| fs::read(path).is_ok_and(|bytes| contains(&bytes, wanted))).collect::<Vec<_>>()
    };
    let kept = holding(&token);
    assert_eq!(kept.len(), 1, "{kept:?}");
    for file in fs::read_dir(data.path()).expect("a folder") {
        let path = file.expect("a file").path();
        let mode = fs::metadata(&path).expect("it exists").permissions().mode() & 0o777;
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(mode & 0o077, 0, "{name} is open to others: {mode:o}");
        if path == kept[0] || name.contains("key") {
            assert_eq!(mode, 0o600, "{name}");
        }
    }
    let second = Binary::of(Binary::command(&data, &[]));
    second.client().get("/admin/v1/status").key(&token).send().expect(200);
    assert!(!second.log().contains("tg_op_"), "{}", second.log());
}

#[test]
fn metrics_on_an_address_of_the_network_want_the_operator_token() {
    let data = folder();
    let toolgate = Binary::of(Binary::command(&data, &[OPERATOR, ("METRICS__LISTEN", "0.0.0.0:0")]));
    let base = toolgate.metrics_url().replace("0.0.0.0", "127.0.0.1");
    let client = Client::new(base.strip_suffix("/metrics").expect("a base"));
    client.get("/metrics").send().problem(401, "unauthorized");
    client.get("/metrics").key(&toolgate.tenant("acme").workspace).send().problem(401, "unauthorized");
    let shown = client.get("/metrics").header("Authorization", format!("Bearer {OPERATOR_TOKEN}")).send().expect(200);
    assert!(shown.text().contains("toolgate_build_info"));
    client.get("/healthz").send().expect(200);
    client.get("/readyz").send().expect(200);
    toolgate.client().get("/metrics").key(OPERATOR_TOKEN).send().problem(404, "not_found");
}

#[test]
fn a_stop_says_so_first_and_leaves_what_is_pending() {
    let data = folder();
    let provider = Provider::topology(&[topology("act", "command"), topology("ask", "query")]);
    let toolgate = Binary::serve(&data);
    let tenant = toolgate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let pending = tenant.call("ask", &json!({}));
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(acknowledge("command", "p"))));
    let agent = tenant.clone();
    let running = std::thread::spawn(move || agent.call("act", &json!({})));
    eventually("the command is sent", || (provider.calls().len() == 2).then_some(()));
    let (client, metrics) = (toolgate.client().clone(), toolgate.metrics_url().to_owned());
    let scrape = Client::new(metrics.strip_suffix("/metrics").expect("a base"));
    let ending = std::thread::spawn(move || toolgate.terminate());
    for health in [&client, &scrape] {
        eventually("readiness goes", || (health.get("/readyz").send().status == 503).then_some(()));
        health.get("/healthz").send().expect(200);
    }
    tenant.run(&json!({ "tool": "act" })).problem(503, "overloaded");
    tenant.get("/v1/endpoints").problem(503, "overloaded");
    latch.open();
    assert_eq!(running.join().expect("it is answered")["status"], "started");
    assert_eq!(ending.join().expect("it ends").code(), Some(0));

    let again = Binary::serve(&data);
    let id = text(&pending["correlation_id"]);
    let data = json!({ "request_id": id, "status": "completed", "payload": "after" });
    let body = json!({ "type": "tool.result", "timestamp": "2026-01-12T13:46:40Z", "data": data }).to_string();
    let (now, secret) = (seconds(), text(&endpoint.body["callback"]["secret"]));
    let request = again.client().request("POST", &format!("/callbacks/{}", endpoint.id));
    let request = request.text("application/json", body.as_bytes()).header("webhook-id", "m-1");
    let request = request.header("webhook-timestamp", now.to_string());
    request.header("webhook-signature", sign(secret, "m-1", now, body.as_bytes())).send().expect(202);
    let seen = again.client().get(&format!("/mcp/runs/{id}")).key(&tenant.agent).send().expect(200).json();
    assert_eq!((&seen["status"], &seen["result"]), (&json!("completed"), &json!("after")));
    assert_eq!(provider.calls().len(), 2);
}

#[test]
fn secrets_are_read_with_the_key_before_and_written_with_the_new_one() {
    let data = folder();
    let (one, two) = (STANDARD.encode([1; 32]), STANDARD.encode([2; 32]));
    let start = |key: &str, previous: Option<&str>| {
        let previous: Vec<_> = previous.into_iter().map(|key| ("SECRETS__PREVIOUS_MASTER_KEY", key)).collect();
        let mut command = Binary::command(&data, &[vec![OPERATOR], previous].concat());
        command.env("TOOLGATE_MASTER_KEY", key);
        command
    };
    let provider = Provider::topology(&[topology("go", "command"), topology("ask", "query")]);
    let first = Binary::of(start(&one, None));
    let tenant = first.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    assert_eq!(first.terminate().code(), Some(0));

    let rotated = Binary::of(start(&two, Some(&one)));
    let tenant = crate::support::tenant::Tenant { client: rotated.client().clone(), ..tenant };
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    assert_eq!(provider.last_call().header("x-auth"), Some(PROVIDER_KEY));
    let auth = json!({ "auth": { "header": "X-Auth", "value": "rewritten-secret" } });
    tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &auth).expect(200);
    assert_eq!(rotated.terminate().code(), Some(0));

    // A stranger's key is told at the start, before anything goes wrong with it.
    let (code, said) = ended(start(&STANDARD.encode([3; 32]), None));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("master key"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// Whether the bytes hold the text.
fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Every file below, whole.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let read = |path: std::path::PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![(path.display().to_string(), fs::read(&path).expect("it can be read"))],
    };
    entries.flat_map(read).collect()
}

// BerriAI/litellm#31393: arguments in the logs although logging them was off.
#[test]
fn neither_the_log_nor_the_files_tell_what_went_through() {
    let data = folder();
    let mut command = Binary::command(&data, &[OPERATOR, ("LOG__LEVEL", "trace")]);
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
    let toolgate = Binary::of(command);
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" }, "s": {} } });
    let asks = having(topology_with("ask", "query", &schema), "requires_confirmation", json!(true));
    let topologies = Provider::topology(&[topology_with("go", "command", &schema), asks, topology("late", "query")]);
    let medians = Provider::median(&[median("find", "low")]);
    let tenant = toolgate.tenant("acme");
    let endpoint = tenant.endpoint("topologies", &topologies);
    let second = tenant.endpoint("medians", &medians);
    let mut secrets: Vec<String> =
        [PROVIDER_KEY, SIGNING_SECRET, OPERATOR_TOKEN, &tenant.workspace, &tenant.agent].map(str::to_owned).to_vec();
    let callback_secret = text(&endpoint.body["callback"]["secret"]).to_owned();
    secrets.extend([callback_secret.clone(), callback_secret["whsec_".len()..].to_owned()]);

    tenant.call("go", &json!({ "s": "planted-argument" }));
    tenant.run(&json!({ "tool": "go", "args": { "n": "planted-invalid" } })).problem(422, "invalid_arguments");
    tenant
        .run_request(&json!({}))
        .text("application/json", r#"{"tool": "planted-broken"#)
        .send()
        .problem(400, "invalid_json");
    medians.next(Reply::json(200, &json!({ "result": "planted-result" })));
    assert_eq!(tenant.call("find", &json!({}))["result"], "planted-result");
    medians.next(Reply::json(200, &json!({ "error": { "code": "execution_failed", "message": "planted-error" } })));
    tenant.call("find", &json!({}));
    medians.next(Reply::text(200, "planted-garbage"));
    tenant.call("find", &json!({}));
    topologies.next(Reply::Raw(b"planted-raw\r\n\r\n".to_vec()));
    tenant.call("go", &json!({ "s": "planted-argument" }));
    let asked = tenant.call("ask", &json!({ "s": "planted-summary" }));
    secrets.push(text(&asked["confirmation"]["token"]).to_owned());
    topologies.manifest(Reply::text(200, r#"[{"planted-manifest": 1}]"#));
    tenant.sync(&endpoint);
    medians.manifest(Reply::text(500, "planted-status"));
    tenant.sync(&second);
    let late = tenant.call("late", &json!({}));
    let payload = json!({ "request_id": late["correlation_id"], "status": "completed", "payload": "planted-payload" });
    let body = json!({ "type": "tool.result", "timestamp": "2026-01-12T13:46:40Z", "data": payload }).to_string();
    let now = seconds();
    for signature in ["v1,planted-signature".to_owned(), sign(&callback_secret, "m-1", now, body.as_bytes())] {
        let request = toolgate.client().request("POST", &format!("/callbacks/{}", endpoint.id));
        let request = request.text("application/json", body.as_bytes()).header("webhook-id", "m-1");
        request.header("webhook-timestamp", now.to_string()).header("webhook-signature", signature).send();
    }
    assert_eq!(tenant.agent_run(&late)["result"], "planted-payload");
    let rotated = tenant.request("POST", &format!("/v1/endpoints/{}/rotate-secret", endpoint.id)).send().expect(200);
    secrets.push(text(&rotated.json()["secret"]).to_owned());
    let shown = tenant.post("/v1/workspace-keys", &json!({ "name": "second" })).expect(201).json();
    secrets.push(text(&shown["key"]).to_owned());
    let mut wrong = tenant.agent.clone();
    wrong.replace_range(10..14, "XXXX");
    toolgate.client().get("/mcp/manifest.json").key(&wrong).send().problem(401, "unauthorized");
    secrets.push(wrong);

    eventually("what is written behind is written", || {
        (tenant.items("/v1/runs").iter().filter(|run| run["tool"] == "median:find").count() == 3).then_some(())
    });
    let whole = files(data.path());
    let log = toolgate.log();
    assert!(log.lines().count() > 1, "{log}");
    for planted in secrets.iter().map(String::as_str).chain(["planted-"]) {
        assert!(!log.contains(planted), "the log tells {planted}: {log}");
    }
    // The operator token was configured, so that no file has to hold it.
    for (name, bytes) in &whole {
        for planted in secrets.iter().map(String::as_str) {
            assert!(!contains(bytes, planted), "{name} holds {planted}");
        }
        for planted in ["planted-argument", "planted-result", "planted-payload", "planted-summary", "planted-error"] {
            assert!(!contains(bytes, planted), "{name} holds {planted}");
        }
    }
    assert_eq!(toolgate.terminate().code(), Some(0));
}
