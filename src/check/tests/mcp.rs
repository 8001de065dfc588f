//! MCP servers of both eras, good and broken.

use super::*;
use crate::demo::mcp_provider::{McpOptions, McpProvider};
use serde_json::{Value, json};

mod breaches;
mod server;

use server::{Breach, Era, McpServer, SESSION, TOKEN};

const NEW_SESSION: &str = "mcp-session-id";

fn bearer() -> EndpointAuth {
    EndpointAuth::Bearer(Secret::new(TOKEN))
}

fn mcp(url: &str) -> CheckOptions {
    CheckOptions { call: sample("weather.now", r#"{"city":"Köln"}"#), ..options(Dialect::Mcp, url, bearer()) }
}

async fn lines_with(era: Era, breach: Breach) -> Vec<Line> {
    let server = McpServer::start(era, breach);
    lines_of(&mcp(&server.url())).await
}

#[test]
fn the_demos_provider_passes() {
    in_a_system(async {
        let provider = McpProvider::start(McpOptions::default()).expect("a port of loopback is free");
        let auth = EndpointAuth::Bearer(Secret::new(provider.bearer()));
        let call = sample("search_products", r#"{"words":"tea"}"#);
        let lines = lines_of(&CheckOptions { call, ..options(Dialect::Mcp, &provider.url(), auth) }).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
    });
}

#[test]
fn a_server_of_the_present_era_passes() {
    in_a_system(async {
        let lines = lines_with(Era::Modern, Breach::none()).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), Vec::<&str>::new(), "{lines:#?}");
        let came = |rule: &str| lines.iter().find(|line| line.rule == rule).map(|line| line.came.as_str());
        assert_eq!(came("server: era"), Some("the present one, 2026-07-28"));
        assert_eq!(came("tools/list: pages"), Some("2, and an end"), "agentgateway#3476: all pages");
        assert_eq!(came("tools: number"), Some("3"));
        assert_eq!(came("tools: x-mcp-header"), Some("1 of them"));
        assert!(lines.iter().all(|line| line.section.starts_with('§')));
    });
}

#[test]
fn a_server_of_the_earlier_era_passes_and_gets_its_session_back() {
    in_a_system(async {
        let server = McpServer::start(Era::Legacy, Breach::none());
        let lines = lines_of(&mcp(&server.url())).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), Vec::<&str>::new(), "{lines:#?}");
        let came = |rule: &str| lines.iter().find(|line| line.rule == rule).map(|line| line.came.as_str());
        assert_eq!(came("server: era"), Some("an earlier one, 2025-11-25"));
        assert_eq!(came("tools/list: media type"), Some("text/event-stream"));
        assert!(lines.iter().all(|line| !line.came.contains(SESSION)), "whoever has the id speaks in the session");
        // IBM/mcp-context-forge#1549: sessions that nobody needs any more are not left behind.
        let requests = server.requests();
        let opened = requests.iter().filter(|request| request.json()["method"] == "initialize").count();
        let ended = requests.iter().filter(|request| request.method == "DELETE").count();
        assert_eq!((opened, ended), (1, 1));
    });
}

#[test]
fn a_server_without_sessions_and_credentials_passes() {
    in_a_system(async {
        let stateless =
            Breach::answer(|_, said| said.headers.retain(|(name, _)| *name != NEW_SESSION)).and_request(|request| {
                // The good server behind it wants what this one does not.
                let is_opening = matches!(request.json()["method"].as_str(), Some("initialize"));
                let is_probe = request.header("mcp-protocol-version") == Some("2026-07-28");
                request.set_header("authorization", Some(&format!("Bearer {TOKEN}")));
                if !is_opening && !is_probe {
                    request.set_header(NEW_SESSION, Some(SESSION));
                }
            });
        let server = McpServer::start(Era::Legacy, stateless);
        let open = CheckOptions { auth: EndpointAuth::None, ..mcp(&server.url()) };
        let lines = lines_of(&open).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(
            rules(&lines, Mark::Skip),
            [
                "credentials: tools/list without them",
                "credentials: tools/list with wrong ones",
                "credentials: call with wrong ones",
                "session: one that is over",
            ],
            "{lines:#?}"
        );
    });
}

#[test]
fn what_an_earlier_revision_knows_not_is_not_asked() {
    in_a_system(async {
        let old = Breach::answer(|_, said| said.body = said.body.replace("2025-11-25", "2025-03-26")).and_request(
            |request| {
                if request.header("mcp-protocol-version") == Some("2025-03-26") {
                    request.set_header("mcp-protocol-version", Some("2025-11-25"));
                }
            },
        );
        let lines = lines_with(Era::Legacy, old).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), ["version: unknown"], "{lines:#?}");
    });
}

#[test]
fn what_may_change_something_is_not_called_unasked() {
    in_a_system(async {
        let server = McpServer::start(Era::Modern, Breach::none());
        let asked = CheckOptions { call: sample("mail_send", "{}"), allow_mutations: true, ..mcp(&server.url()) };
        let unasked = CheckOptions { allow_mutations: false, ..asked.clone() };
        let sent =
            || server.requests().iter().filter(|request| request.json()["params"]["name"] == "mail_send").count();
        let lines = lines_of(&unasked).await;
        assert!(rules(&lines, Mark::Skip).contains(&"call: answer"), "{lines:#?}");
        assert_eq!(sent(), 0);
        let lines = lines_of(&asked).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(sent(), 1);
    });
}

#[test]
fn the_url_is_called_as_it_is() {
    in_a_system(async {
        let server = McpServer::start(Era::Modern, Breach::none());
        let lines = lines_of(&mcp(&format!("{}?tenant=a", server.url()))).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert!(server.requests().iter().all(|request| request.path == "/v1/mcp/"));
    });
}

#[test]
fn without_a_dialogue_nothing_is_guessed() {
    let said = |status: u16, body: &'static str| {
        Breach::answer(move |_, said| (said.status, said.body) = (status, body.to_owned()))
    };
    let other = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32022, "message": "m",
        "data": { "supported": ["2099-01-01"], "requested": "2026-07-28" } } });
    in_a_system(async {
        let breaches = [
            said(404, "Not Found"),
            said(401, ""),
            said(503, ""),
            said(200, "<html>"),
            Breach::answer(move |_, said| (said.status, said.body) = (400, other.to_string())),
        ];
        for breach in breaches {
            let lines = lines_with(Era::Legacy, breach).await;
            assert_eq!(rules(&lines, Mark::Fail), ["server: era"], "{lines:#?}");
            assert_eq!(rules(&lines, Mark::Ok), ["server: answer"], "{lines:#?}");
        }
        let lines = lines_of(&mcp("http://127.0.0.1:1")).await;
        assert_eq!(rules(&lines, Mark::Fail), ["server: answer"], "{lines:#?}");
        assert!(rules(&lines, Mark::Ok).is_empty(), "nothing can be said for it");
    });
}

#[test]
fn every_fault_of_a_tool_stands_at_its_rule() {
    let tool = |name: &str, change: Value| {
        let mut tool = json!({ "name": name, "inputSchema": { "type": "object" } });
        let (members, changes) = (tool.as_object_mut().expect("members"), change.as_object().expect("members").clone());
        members.extend(changes);
        tool
    };
    let schema = |properties: Value| json!({ "inputSchema": { "type": "object", "properties": properties } });
    let long = "n".repeat(65);
    let cases = [
        (vec![tool("good", json!({})), json!({})], "tools: members", "tool 1"),
        (vec![json!(7)], "tools: members", "object"),
        (vec![tool("a", json!({ "annotations": { "readOnlyHint": "yes" } }))], "tools: members", "readOnlyHint"),
        (vec![tool("a b", json!({}))], "tools: names", "a b"),
        (vec![tool(&long, json!({}))], "tools: names", "65"),
        (vec![tool("a.b", json!({})), tool("a-B", json!({}))], "tools: one name each", "a.b"),
        (vec![tool("toolgate_x", json!({}))], "tools: reserved names", "toolgate_"),
        (vec![tool("a", schema(json!({ "x": { "type": "int" } })))], "tools: schemas", "int"),
        (vec![tool("a", schema(json!({ "x": { "pattern": "[" } })))], "tools: schemas", "pattern"),
        (
            vec![tool("a", schema(json!({ "x": { "$ref": "https://evil.example/" } })))],
            "tools: schemas",
            "evil.example",
        ),
        (
            vec![tool("a", schema(json!({ "x": { "type": "number", "x-mcp-header": "X" } })))],
            "tools: x-mcp-header",
            "\"X\"",
        ),
    ];
    in_a_system(async {
        for (tools, rule, words) in cases {
            let list = json!(tools);
            let breach = Breach::tools(tools);
            let server = McpServer::start(Era::Modern, breach);
            let lines = lines_of(&CheckOptions { call: None, ..mcp(&server.url()) }).await;
            assert_eq!(rules(&lines, Mark::Fail), [rule], "{list}: {lines:#?}");
            let line = lines.iter().find(|line| line.mark == Mark::Fail).expect("the line");
            assert!(line.came.contains(words), "{list}: {line}");
        }
        // IBM/mcp-context-forge#4304: a reason for each tool that will be missing.
        let several = (0..5).map(|n| tool(&format!("bad {n}"), json!({}))).chain([tool("good", json!({}))]).collect();
        let server = McpServer::start(Era::Modern, Breach::tools(several));
        let lines = lines_of(&CheckOptions { call: None, ..mcp(&server.url()) }).await;
        assert_eq!(rules(&lines, Mark::Fail), ["tools: names"; 5], "{lines:#?}");
        for n in 0..5 {
            assert!(lines.iter().any(|line| line.came.contains(&format!("\"bad {n}\""))), "{lines:#?}");
        }
        let empty = McpServer::start(Era::Modern, Breach::tools(Vec::new()));
        let lines = lines_of(&CheckOptions { call: None, ..mcp(&empty.url()) }).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "a server may have no tools: {lines:#?}");
        let many = (0..501).map(|n| tool(&format!("t{n}"), json!({}))).collect();
        let many = McpServer::start(Era::Modern, Breach::tools(many));
        let lines = lines_of(&CheckOptions { call: None, ..mcp(&many.url()) }).await;
        assert_eq!(rules(&lines, Mark::Fail), ["tools: number"], "{lines:#?}");
    });
}
