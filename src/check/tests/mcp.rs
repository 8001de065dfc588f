//! MCP servers of both eras, good and broken.

use super::*;
use crate::dialects::mcp::words::{META_CLIENT_CAPABILITIES, META_VERSION};
use serde_json::{Value, json};

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
        assert_eq!(rules(&lines, Mark::Skip), ["batch", "version: unknown"], "{lines:#?}");
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

fn is(request: &RecordedRequest, method: &str) -> bool {
    request.json()["method"] == method
}

/// The call the developer asks for, not the one that repeats it with another header.
fn is_sample(request: &RecordedRequest) -> bool {
    request.json()["params"]["name"] == "weather.now" && request.json()["id"] == 30
}

/// A list by its own request, not one that a refusal is tried with.
fn is_list(request: &RecordedRequest) -> bool {
    is(request, "tools/list") && request.json()["id"].as_u64() >= Some(20)
}

/// An answer with its result changed.
fn result(when: fn(&RecordedRequest) -> bool, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Breach {
    Breach::answer(move |request, said| {
        if when(request) {
            let mut body = said.json();
            change(&mut body["result"]);
            said.set_json(&body);
        }
    })
}

fn breaches_of_lists() -> Vec<(Breach, Vec<&'static str>)> {
    let said = |change: fn(&mut server::Said)| {
        Breach::answer(move |request, said| {
            if is_list(request) {
                change(said);
            }
        })
    };
    vec![
        (said(|said| said.status = 500), vec!["tools/list: answer"]),
        (said(|said| said.set_json(&json!({ "tools": [] }))), vec!["tools/list: answer"]),
        (said(|said| said.headers.retain(|(name, _)| *name != "content-type")), vec!["tools/list: media type"]),
        (said(|said| said.set_header("content-type", "text/plain")), vec!["tools/list: media type"]),
        (
            said(|said| {
                let mut body = said.json();
                body["id"] = json!("20");
                said.set_json(&body);
            }),
            vec!["tools/list: id"],
        ),
        (result(is_list, |result| result["tools"] = json!({})), vec!["tools/list: form"]),
        (result(is_list, |result| result["nextCursor"] = json!(2)), vec!["tools/list: form"]),
        // codebase-memory-mcp#1247: page 1 for ever.
        (result(is_list, |result| result["nextCursor"] = json!("1")), vec!["tools/list: pages"]),
    ]
}

fn breaches_of_calls() -> Vec<(Breach, Vec<&'static str>)> {
    vec![
        (
            Breach::answer(|request, said| {
                if is_sample(request) {
                    (said.status, said.body) = (202, String::new());
                }
            }),
            vec!["call: answer"],
        ),
        (result(is_sample, |result| result["content"] = Value::Null), vec!["call: form"]),
        (result(is_sample, |result| result["content"] = json!([{}])), vec!["call: form"]),
        (result(is_sample, |result| result["isError"] = json!("no")), vec!["call: form"]),
        (
            result(is_sample, |result| *result = json!({ "resultType": "input_required", "inputRequests": {} })),
            vec!["call: form"],
        ),
        (result(is_sample, |result| result["resultType"] = json!("task")), vec!["call: form"]),
        (result(is_sample, |result| result["structuredContent"] = json!({})), vec!["call: structured content"]),
        (
            result(is_sample, |result| *result = json!({ "resultType": "complete", "content": [] })),
            vec!["call: structured content"],
        ),
        // IBM/mcp-context-forge#4135: an error needs no structured content.
        (
            result(is_sample, |result| *result = json!({ "resultType": "complete", "content": [], "isError": true })),
            vec![],
        ),
        (
            Breach::answer(|request, said| {
                if is(request, "tools/call") && said.json().get("error").is_some() && said.status != 401 {
                    let code = said.json()["error"]["code"].clone();
                    if code == json!(-32602) {
                        said.status = 200;
                        said.set_json(&json!({ "jsonrpc": "2.0", "id": request.json()["id"],
                            "result": { "resultType": "complete", "content": [], "isError": true } }));
                    }
                }
            }),
            vec!["call: unknown tool"],
        ),
    ]
}

/// A server that takes what it should refuse: what comes is mended before the good server sees it.
fn mended(mend: impl Fn(&mut RecordedRequest) + Send + Sync + 'static) -> Breach {
    Breach::request(mend)
}

fn breaches_of_refusals() -> Vec<(Breach, Vec<&'static str>)> {
    let good = format!("Bearer {TOKEN}");
    let with_good = move |when: fn(&RecordedRequest) -> bool| {
        let good = good.clone();
        mended(move |request| {
            if when(request) {
                request.set_header("authorization", Some(&good));
            }
        })
    };
    vec![
        (with_good(|request| request.header("authorization").is_none()), vec!["credentials: tools/list without them"]),
        (
            with_good(|request| request.header("authorization").is_some() && is(request, "tools/list")),
            vec!["credentials: tools/list with wrong ones"],
        ),
        (with_good(|request| is(request, "tools/call")), vec!["credentials: call with wrong ones"]),
        (
            mended(|request| {
                if let Some(first) = request.json().get(0) {
                    request.body = first.to_string().into_bytes();
                }
            }),
            vec!["batch"],
        ),
    ]
}

#[test]
fn every_breach_of_either_era_stands_at_its_rule() {
    in_a_system(async {
        for era in [Era::Modern, Era::Legacy] {
            let all = [breaches_of_lists(), breaches_of_calls(), breaches_of_refusals()];
            for (number, (breach, expected)) in all.into_iter().flatten().enumerate() {
                let lines = lines_with(era, breach).await;
                assert_eq!(rules(&lines, Mark::Fail), expected, "{era:?} {number}: {lines:#?}");
            }
        }
    });
}

#[test]
fn every_breach_of_the_present_era_stands_at_its_rule() {
    let header = |name: &'static str, value: fn(&Value) -> Value| {
        mended(move |request| {
            let value = value(&request.json());
            if request.header("authorization").is_some() && value.is_string() {
                request.set_header(name, value.as_str());
            }
        })
    };
    let error = |from: i64, status: u16, code: i64| {
        Breach::answer(move |_, said| {
            let mut body = said.json();
            if body["error"]["code"] == json!(from) {
                body["error"]["code"] = json!(code);
                said.status = status;
                said.set_json(&body);
            }
        })
    };
    let cases = vec![
        (
            result(|r| is(r, "server/discover"), |result| result["supportedVersions"] = json!(["2025-11-25"])),
            vec!["discover: answer"],
        ),
        (result(|r| is(r, "server/discover"), |result| result["capabilities"] = json!([])), vec!["discover: answer"]),
        (result(|r| is(r, "server/discover"), |result| result["capabilities"] = json!({})), vec!["discover: tools"]),
        (error(-32601, 404, -32000), vec!["method: unknown"]),
        (error(-32601, 200, -32601), vec!["method: unknown"]),
        (error(-32022, 400, -32602), vec!["version: unknown"]),
        (
            Breach::answer(|_, said| {
                said.body = said.body.replace(r#""supported":["2026-07-28"]"#, r#""supported":[]"#)
            }),
            vec!["version: unknown"],
        ),
        (
            mended(|request| {
                let mut body = request.json();
                if body["params"]["_meta"].is_object() && body["params"]["_meta"][META_CLIENT_CAPABILITIES].is_null() {
                    body["params"]["_meta"][META_CLIENT_CAPABILITIES] = json!({});
                    request.body = body.to_string().into_bytes();
                }
            }),
            vec!["_meta: without the client's capabilities"],
        ),
        (
            header("mcp-method", |body| body["method"].clone()),
            vec!["headers: no Mcp-Method", "headers: another Mcp-Method than the body's"],
        ),
        (header("mcp-name", |body| body["params"]["name"].clone()), vec!["headers: another Mcp-Name than the body's"]),
        (
            header("mcp-protocol-version", |body| body["params"]["_meta"][META_VERSION].clone()),
            vec!["headers: another MCP-Protocol-Version than the body's"],
        ),
        (
            mended(|request| {
                if request.json()["params"]["name"] == "weather.now" {
                    request.set_header("mcp-param-city", Some("=?base64?S8O2bG4=?="));
                }
            }),
            vec!["call: another Mcp-Param header than the argument"],
        ),
    ];
    in_a_system(async {
        for (number, (breach, expected)) in cases.into_iter().enumerate() {
            let lines = lines_with(Era::Modern, breach).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{number}: {lines:#?}");
        }
    });
}

#[test]
fn every_breach_of_the_earlier_era_stands_at_its_rule() {
    let opening = |change: fn(&mut Value)| result(|request| is(request, "initialize"), change);
    let said = |when: fn(&RecordedRequest) -> bool, change: fn(&mut server::Said)| {
        Breach::answer(move |request, said| {
            if when(request) {
                change(said);
            }
        })
    };
    let cases = vec![
        (opening(|result| result["protocolVersion"] = json!("1.0")), vec!["server: era", "initialize: version"]),
        (opening(|result| result["serverInfo"] = json!({ "name": "s" })), vec!["initialize: form"]),
        (opening(|result| result["capabilities"] = json!({ "prompts": {} })), vec!["initialize: tools"]),
        (said(|r| is(r, "notifications/initialized"), |said| said.status = 200), vec!["initialized: answer"]),
        (said(|r| is(r, "notifications/initialized"), |said| said.body = "{}".to_owned()), vec!["initialized: answer"]),
        // agentgateway#3622: without a 404 nobody knows that a new session is wanted.
        (
            said(|_| true, |said| said.status = if said.status == 404 { 400 } else { said.status }),
            vec!["session: one that is over"],
        ),
        (
            mended(|request| {
                if request.header("mcp-protocol-version") == Some("1900-01-01") {
                    request.set_header("mcp-protocol-version", Some("2025-11-25"));
                }
            }),
            vec!["version: unknown"],
        ),
        (
            Breach::answer(|_, said| {
                if said.body.contains("-32601") {
                    said.body = said.body.replace("-32601", "-32000");
                }
            }),
            vec!["method: unknown"],
        ),
        (said(|r| r.method == "DELETE", |said| said.status = 500), vec!["session: given back"]),
        (said(|r| r.method == "DELETE", |said| said.status = 405), vec![]),
    ];
    in_a_system(async {
        for (number, (breach, expected)) in cases.into_iter().enumerate() {
            let lines = lines_with(Era::Legacy, breach).await;
            assert_eq!(rules(&lines, Mark::Fail), expected, "{number}: {lines:#?}");
        }
        // Visible ASCII only; a header of another kind is not sent back.
        let bad = Breach::answer(|_, said| {
            for (name, value) in &mut said.headers {
                if *name == NEW_SESSION {
                    *value = "a b".to_owned();
                }
            }
        });
        let lines = lines_with(Era::Legacy, bad).await;
        assert_eq!(rules(&lines, Mark::Fail).first(), Some(&"session: id"), "{lines:#?}");
    });
}
