//! Clients that people use, each as it comes from its registry, listing and calling through toolgate.

use super::harness::{Gateway, Organization, Upstream, command, node, peers, printed, scripts};
use serde_json::{Value, json};
use std::process::Command;

/// A tool that answers without a question.
pub(crate) const GREET: &str = "greet";
/// A tool whose server asks the user.
pub(crate) const ASKING: &str = "test_elicitation";
/// A tool that toolgate runs only after the user's yes.
pub(crate) const CONFIRMED: &str = "test_image_content";
pub(crate) const PROGRESS: &str = "test_tool_with_progress";

/// What stands between a client and the tools.
pub(crate) struct Way {
    pub(crate) gateway: Gateway,
    pub(crate) organization: Organization,
    _upstream: Upstream,
}

impl Way {
    pub(crate) fn to_a_server_that_speaks(era: &str) -> Self {
        let upstream = Upstream::start("upstream.mjs", &["--era", era]);
        let gateway = Gateway::start();
        let organization = gateway.organization("clients");
        organization.endpoint(&upstream);
        organization.send("PATCH", &format!("/v1/tools/{CONFIRMED}"), &json!({ "requires_confirmation": true }));
        Self { gateway, organization, _upstream: upstream }
    }
}

/// One of the clients, as it speaks with one era.
struct Client<'a> {
    way: &'a Way,
    name: &'static str,
    flags: &'static [&'static str],
    /// The version that it ends up with, where it tells.
    version: Option<&'static str>,
}

impl Client<'_> {
    fn command(&self) -> Command {
        let script = |extension: &str| format!("clients/{}.{extension}", self.name);
        match self.name.split_once('_') {
            Some(("py", environment)) => {
                let mut client = command(peers().join(environment).join("bin/python"));
                client.arg(scripts().join(script("py")));
                client
            }
            Some(_) | None => node(&script("mjs")),
        }
    }

    /// What came of listing and calling.
    #[track_caller]
    fn calls(&self, tool: &str, arguments: &str, flags: &[&str]) -> Value {
        let mut client = self.command();
        client.args([&self.way.gateway.mcp_url(), &self.way.organization.agent, tool, arguments]);
        let said = printed(client.args(self.flags).args(flags));
        let outcome: Value = serde_json::from_str(&said).expect("one line of JSON");
        assert_eq!(outcome["client"], self.name);
        assert_eq!(outcome["protocol"].as_str(), self.version, "{outcome}");
        outcome
    }

    /// Every client can do this much.
    fn lists_and_calls(&self) {
        let outcome = self.calls(GREET, r#"{"name":"世界 🦀"}"#, &[]);
        assert_eq!(outcome["result"]["content"][0]["text"], "Hello, 世界 🦀!", "{outcome}");
        let listed: Vec<&str> = outcome["tools"].as_array().expect("tools").iter().filter_map(Value::as_str).collect();
        let wanted = self.way.organization.items("/v1/tools?limit=200").len();
        let own = listed.iter().filter(|name| name.starts_with("toolgate_")).count();
        assert_eq!(listed.len() - own, wanted, "every tool is listed: {listed:?}");
        assert!([GREET, ASKING, CONFIRMED, PROGRESS].iter().all(|name| listed.contains(name)), "{listed:?}");
        println!("{} {}", self.name, outcome["version"].as_str().expect("a version"));
    }

    fn is_told_of_progress(&self) {
        let outcome = self.calls(PROGRESS, "{}", &["--progress"]);
        let told = outcome["progress"].as_array().expect("progress").iter();
        let told: Vec<f64> = told.map(|update| update["progress"].as_f64().expect("a number")).collect();
        assert_eq!(told, [0.0, 50.0, 100.0], "{outcome}");
        assert_eq!(outcome["result"]["content"][0]["text"], "Progress told", "{outcome}");
    }

    /// What the server asks the user.
    fn hands_on_questions(&self) {
        for (action, answered) in [("accept", "action=accept, content={"), ("decline", "action=decline, content={}")] {
            let outcome = self.calls(ASKING, r#"{"message":"Who are you?"}"#, &["--elicit", action]);
            let text = outcome["result"]["content"][0]["text"].as_str().expect("a text");
            assert!(text.contains(answered), "{outcome}");
            assert_eq!(outcome["questions"].as_array().map(Vec::len), Some(1), "{outcome}");
            assert_eq!(outcome["questions"][0]["message"], "Who are you?", "{outcome}");
        }
    }

    /// What toolgate asks the user.
    fn confirms(&self) {
        let outcome = self.calls(CONFIRMED, "{}", &["--elicit", "accept"]);
        assert_eq!(outcome["questions"].as_array().map(Vec::len), Some(1), "{outcome}");
        let message = outcome["questions"][0]["message"].as_str().expect("a message");
        assert!(message.contains(CONFIRMED), "the question names the tool: {outcome}");
        assert_eq!(outcome["result"]["content"][0]["type"], "image", "{outcome}");
        let outcome = self.calls(CONFIRMED, "{}", &["--elicit", "decline"]);
        assert_eq!(outcome["questions"].as_array().map(Vec::len), Some(1), "{outcome}");
        assert_eq!(outcome["result"]["isError"], true, "{outcome}");
    }

    /// A client that cannot ask its user is not let through.
    fn is_refused_without_a_user(&self) {
        let outcome = self.calls(CONFIRMED, "{}", &[]);
        assert_eq!(outcome["result"]["isError"], true, "{outcome}");
    }
}

const MODERN: Option<&str> = Some("2026-07-28");
const LEGACY: Option<&str> = Some("2025-11-25");

/// A client that speaks both eras, with both.
fn speaks_both(name: &'static str) {
    let way = &Way::to_a_server_that_speaks("modern");
    let modern = Client { way, name, flags: &[], version: MODERN };
    let legacy = Client { way, name, flags: &["--legacy"], version: LEGACY };
    for client in [&modern, &legacy] {
        client.lists_and_calls();
        client.is_told_of_progress();
        client.hands_on_questions();
        client.confirms();
    }
    legacy.is_refused_without_a_user();
}

/// A client of the earlier era, in front of a server of that era.
fn speaks_the_earlier(name: &'static str) {
    let way = &Way::to_a_server_that_speaks("legacy");
    let client = Client { way, name, flags: &[], version: LEGACY };
    client.lists_and_calls();
    client.is_told_of_progress();
    client.hands_on_questions();
    client.confirms();
}

#[test]
fn the_python_sdk_2_lists_calls_and_answers() {
    speaks_both("py_mcp2");
}

#[test]
fn the_python_sdk_1_lists_calls_and_answers() {
    speaks_the_earlier("py_mcp1");
}

#[test]
fn fastmcp_lists_and_calls() {
    let way = &Way::to_a_server_that_speaks("both");
    let client = Client { way, name: "py_fastmcp", flags: &[], version: MODERN };
    client.lists_and_calls();
    client.is_told_of_progress();
    client.is_refused_without_a_user();
}

#[test]
fn the_typescript_sdk_2_lists_calls_and_answers() {
    speaks_both("ts_v2");
}

#[test]
fn the_typescript_sdk_1_lists_calls_and_answers() {
    speaks_the_earlier("ts_v1");
}

#[test]
fn the_inspector_lists_and_calls() {
    let way = &Way::to_a_server_that_speaks("both");
    for flags in [&[] as &[_], &["--legacy"]] {
        Client { way, name: "inspector", flags, version: None }.lists_and_calls();
    }
}
