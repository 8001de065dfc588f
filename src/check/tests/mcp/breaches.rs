//! One breach at a time, each at its rule and at no other.

use super::server::Said;
use super::*;
use crate::dialects::mcp::words::{META_CLIENT_CAPABILITIES, META_VERSION};

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
    let said = |change: fn(&mut Said)| {
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
    ]
}

/// toolhive#5745: what is looked at one by one has to come one by one.
fn taking_batches() -> Breach {
    mended(|request| {
        if let Some(first) = request.json().get(0) {
            request.body = first.to_string().into_bytes();
        }
    })
}

#[test]
fn a_batch_is_a_breach_in_the_present_era_only() {
    in_a_system(async {
        let lines = lines_with(Era::Modern, taking_batches()).await;
        assert_eq!(rules(&lines, Mark::Fail), ["batch"], "{lines:#?}");
        let lines = lines_with(Era::Legacy, taking_batches()).await;
        assert_eq!(rules(&lines, Mark::Fail), Vec::<&str>::new(), "{lines:#?}");
        assert_eq!(rules(&lines, Mark::Skip), ["batch"], "{lines:#?}");
    });
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
    let said = |when: fn(&RecordedRequest) -> bool, change: fn(&mut Said)| {
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
