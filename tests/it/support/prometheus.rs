//! The real Prometheus, scraping a toolgate by the configuration that `dashboards/` offers.

use super::client::Client;
use super::eventually;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) struct Prometheus {
    child: Child,
    client: Client,
    folder: TempDir,
}

/// A file of `dashboards/`.
pub(crate) fn dashboards(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text with every occurrence replaced; it has to occur.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not there: {text}");
    text.replace(from, to)
}

impl Prometheus {
    /// Scrapes this metrics URL every second, and evaluates the rules as often.
    pub(crate) fn scraping(metrics_url: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let target = metrics_url.strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics"));
        let config = replaced(&dashboards("prometheus.yml"), "127.0.0.1:9464", target.expect("a metrics URL"));
        let config = replaced(&config, "interval: 15s", "interval: 1s");
        fs::write(folder.path().join("prometheus.yml"), config).expect("the folder can be written");
        fs::write(folder.path().join("alerts.yml"), dashboards("alerts.yml")).expect("the folder can be written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
        let log = fs::File::create(folder.path().join("log")).expect("the folder can be written");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={free}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("this test needs Prometheus: apt-get install prometheus (tests/run does so)"),
            _ => panic!("prometheus does not start: {error}"),
        });
        let prometheus = Self { child, client: Client::new(&format!("http://{free}")), folder };
        eventually("Prometheus is ready", || {
            let ready = prometheus.client.get("/-/ready").try_send();
            ready.is_ok_and(|answer| answer.status == 200).then_some(())
        });
        prometheus
    }

    fn data(&self, path: &str) -> Value {
        let answer = self.client.get(path).send();
        let body = answer.json();
        assert_eq!(body["status"], "success", "{path}: {body}; {}", self.log());
        body["data"].clone()
    }

    /// What an instant query finds.
    pub(crate) fn query(&self, expression: &str) -> Vec<Value> {
        let encoded = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let data = self.data(&format!("/api/v1/query?query={encoded}"));
        data["result"].as_array().expect("a vector").clone()
    }

    /// Every rule it has loaded.
    pub(crate) fn rules(&self) -> Vec<Value> {
        let data = self.data("/api/v1/rules");
        let groups = data["groups"].as_array().expect("groups");
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
