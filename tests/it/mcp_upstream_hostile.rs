//! MCP servers that mean no good, or do not know better.

use crate::support::gate::Gate;
use crate::support::mcp_server::{
    Era, McpServer, Once, answer, answer_text, event, read, response, said, stream, tool,
};
use crate::support::provider::{Latch, Provider, Received, Reply, Step};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

fn world(era: Era, settings: &[(&str, &str)]) -> (Gate, McpServer, Tenant, Registered) {
    let gate = Gate::with(settings);
    let server = McpServer::start(era, &[tool("act"), read("look")]);
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({ "trusted": true })).assert_connected();
    (gate, server, tenant, endpoint)
}

#[track_caller]
fn call(server: &McpServer, tenant: &Tenant, reply: impl FnOnce(&Received) -> Reply + Send + 'static) -> Value {
    server.next("tools/call", reply);
    tenant.call("act", &json!({}))
}

fn bytewise(bytes: &[u8]) -> Vec<Step> {
    bytes.iter().map(|byte| Step::Say(vec![*byte])).collect()
}

#[test]
fn how_an_answer_is_cut_into_pieces_changes_nothing() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        let run = call(&server, &tenant, |request| {
            let text = format!("event: message\r\ndata: {}\r\n\r\n", response(request, &said("é😀")));
            stream(bytewise(text.as_bytes()))
        });
        assert_eq!(run["result"]["content"][0]["text"], "é😀", "{era:?}: {run}");
        let run = call(&server, &tenant, |request| {
            let body = response(request, &said("é😀")).to_string();
            let mut bytes =
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for byte in body.as_bytes() {
                bytes.extend_from_slice(b"1\r\n");
                bytes.push(*byte);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            Reply::Raw(bytes)
        });
        assert_eq!(run["result"]["content"][0]["text"], "é😀", "{era:?}: {run}");
    }
}

/// What answers another request is no answer to this one.
#[test]
fn responses_to_other_requests_are_nothing_to_a_call() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        let others = ["0", "\"other\"", "-1", "18446744073709551616", "1.5", "true", "[]"];
        for other in others {
            let stranger = move || format!("{{\"jsonrpc\":\"2.0\",\"id\":{other},\"result\":{}}}", said("not yours"));
            let in_json = call(&server, &tenant, move |_| Reply::text(200, &stranger()));
            let in_a_stream = call(&server, &tenant, move |_| {
                stream(vec![Step::Say(format!("data: {}\n\n", stranger()).into_bytes())])
            });
            for run in [in_json, in_a_stream] {
                assert_eq!((&run["status"], &run["started"]), (&json!("uncertain"), &json!(true)), "{other}: {run}");
                assert!(!run.to_string().contains("not yours"));
            }
            let run = call(&server, &tenant, move |request| {
                let first = Step::Say(format!("data: {}\n\n", stranger()).into_bytes());
                stream(vec![first, event(&response(request, &said("yours")))])
            });
            assert_eq!(run["result"]["content"][0]["text"], "yours");
        }
        assert_eq!(server.calls().len(), 3 * others.len(), "none was sent again");
    }
}

/// A server of the earlier era may ask on a call's stream; it is answered whatever it asks.
#[test]
fn a_server_that_asks_on_a_stream_is_answered() {
    let (_gate, server, tenant, _) = world(Era::Legacy, &[]);
    let all_answered = Arc::new(Latch::default());
    let (latch, answered) = (Arc::clone(&all_answered), AtomicUsize::new(0));
    server.always("response", move |_| {
        if answered.fetch_add(1, Ordering::SeqCst) == 3 {
            latch.open();
        }
        Reply::text(202, "")
    });
    let run = call(&server, &tenant, move |request| {
        let ask = |id: Value, method: &str| event(&json!({ "jsonrpc": "2.0", "id": id, "method": method }));
        stream(vec![
            ask(json!(7), "ping"),
            ask(json!("a-1"), "sampling/createMessage"),
            ask(json!(8), "elicitation/create"),
            ask(json!(9), "no/such/method"),
            Step::Wait(all_answered),
            event(&response(request, &said("ok"))),
        ])
    });
    assert_eq!(run["status"], "completed");
    let mut answers: Vec<Value> = server.requests("response").iter().map(Received::json).collect();
    answers.sort_by_key(|answer| answer["id"].to_string());
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(answers[1], json!({ "jsonrpc": "2.0", "id": 7, "result": {} }));
    answers.remove(1);
    for (answer, id) in answers.iter().zip([json!("a-1"), json!(8), json!(9)]) {
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32601)), "{answer}");
    }
    let session = server.last_call().header("mcp-session-id").expect("a session").to_owned();
    let in_session = |request: &Received| request.header("mcp-session-id") == Some(session.as_str());
    assert!(server.requests("response").iter().all(in_session));
}

/// In the present era there is no way to answer, and nobody tries.
#[test]
fn a_modern_server_that_asks_on_a_stream_is_not_answered() {
    let (_gate, server, tenant, _) = world(Era::Modern, &[]);
    let run = call(&server, &tenant, |request| {
        let ask = event(&json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }));
        stream(vec![ask, event(&response(request, &said("ok")))])
    });
    assert_eq!(run["status"], "completed");
    assert!(server.requests("response").is_empty());
}

/// A server's slowness to take its answers in is the server's time.
#[test]
fn a_server_cannot_stretch_a_call_by_asking() {
    let (_gate, server, tenant, _) = world(Era::Legacy, &[]);
    tenant.patch("/v1/tools/act", &json!({ "timeout_ms": 500 })).expect(200);
    let never = Arc::new(Latch::default());
    let (held, silence) = (Arc::clone(&never), Arc::clone(&never));
    server.always("response", move |_| Reply::Held(Arc::clone(&held), Box::new(Reply::Hangup)));
    let begun = Instant::now();
    let run = call(&server, &tenant, move |request| {
        let ping = |id: usize| event(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
        let mut steps: Vec<Step> = (0..50).map(ping).collect();
        steps.push(Step::Wait(silence));
        steps.push(event(&response(request, &said("at last"))));
        stream(steps)
    });
    assert_eq!(run["status"], "uncertain", "{run}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(server.count("response") <= 16, "so many are answered at once");
    never.open();
}

#[test]
fn a_flood_before_the_response_does_no_harm() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        let run = call(&server, &tenant, |request| {
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": request.json()["id"], "progress": 1, "message": "working" } });
            let mut steps: Vec<Step> = (0..10_000).map(|_| event(&progress)).collect();
            steps.push(event(&response(request, &said("ok"))));
            stream(steps)
        });
        assert_eq!(run["status"], "completed", "{era:?}");
        assert_eq!(server.calls().len(), 1);
    }
}

#[test]
fn packed_answers_and_redirects_are_refused() {
    let elsewhere = Provider::median(&[]);
    for era in ERAS {
        let (_gate, server, tenant, endpoint) = world(era, &[]);
        let packed = |content_type: &'static str| {
            move |_: &Received| Reply::Http {
                status: 200,
                headers: vec![
                    ("Content-Type".to_owned(), content_type.to_owned()),
                    ("Content-Encoding".to_owned(), "gzip".to_owned()),
                ],
                body: vec![0x1f, 0x8b, 8],
            }
        };
        for content_type in ["application/json", "text/event-stream"] {
            let run = call(&server, &tenant, packed(content_type));
            assert_eq!((&run["status"], &run["reason"]), (&json!("uncertain"), &json!("provider_protocol_error")));
        }
        let location = elsewhere.url();
        let redirect = move |_: &Received| Reply::Http {
            status: 307,
            headers: vec![("Location".to_owned(), location.clone())],
            body: Vec::new(),
        };
        let run = call(&server, &tenant, redirect.clone());
        assert!(matches!(run["status"].as_str(), Some("uncertain" | "failed")), "{run}");
        server.always("tools/list", redirect);
        assert_eq!(tenant.sync(&endpoint)["reason"]["code"], "bad_status");
        server.always("tools/list", packed("application/json"));
        assert_eq!(tenant.sync(&endpoint)["reason"]["code"], "not_json");
        assert_eq!(tenant.listed().len(), 2);
    }
    assert!(elsewhere.fetches().is_empty() && elsewhere.calls().is_empty(), "nothing follows a redirect");
}

#[test]
fn what_cannot_be_read_is_told_as_a_breach() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        let not_utf8 = |request: &Received| {
            let mut body = response(request, &said("x")).to_string().into_bytes();
            let at = body.iter().position(|byte| *byte == b'x').expect("its text");
            body[at] = 0xff;
            body
        };
        let breaches: [Once; 5] = [
            Box::new(move |request| Reply::Http { status: 200, headers: Vec::new(), body: not_utf8(request) }),
            Box::new(move |request| {
                let data = [b"data: ".to_vec(), not_utf8(request), b"\n\n".to_vec()].concat();
                stream(vec![Step::Say(data)])
            }),
            Box::new(|request| {
                Reply::text(200, &format!("{}{}", response(request, &said("a")), response(request, &said("b"))))
            }),
            Box::new(|request| {
                let id = &request.json()["id"];
                Reply::text(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}},"error":{{"code":1}}}}"#))
            }),
            Box::new(|request| {
                let id = &request.json()["id"];
                Reply::text(200, &format!(r#"{{"id":{id},"result":{}}}"#, said("no version")))
            }),
        ];
        for (index, breach) in breaches.into_iter().enumerate() {
            let run = call(&server, &tenant, breach);
            assert_eq!(
                (&run["status"], &run["reason"]),
                (&json!("uncertain"), &json!("provider_protocol_error")),
                "{index}: {run}"
            );
        }
        // What lies deep in a result is nobody's to look at.
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let result = format!(r#"{{"content":[],"resultType":"complete","deep":{deep}}}"#);
        let sent = result.clone();
        server.next("tools/call", move |request| answer_text(request, &sent));
        let run = tenant.run(&json!({ "tool": "act" })).expect(200);
        assert!(run.text().contains(&result), "it is handed on as it came");
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed", "and goes on");
    }
}

/// One tenant's server that hangs fills nobody else's calls.
#[test]
fn a_hanging_server_takes_its_own_slots_alone() {
    let never = Arc::new(Latch::default());
    let (gate, server, tenant, _) = world(Era::Modern, &[("LIMITS__ENDPOINT_IN_FLIGHT", "1")]);
    let other = gate.tenant("other");
    let good = McpServer::legacy(&[tool("fine")]);
    good.register(&other, "fine", &json!({})).assert_connected();
    let held = Arc::clone(&never);
    server
        .always("tools/call", move |request| Reply::Held(Arc::clone(&held), Box::new(answer(request, &said("late")))));
    tenant.run_request(&json!({ "tool": "act" })).header("Prefer", "wait=0").send().expect(202);
    crate::support::eventually("it hangs", || (server.calls().len() == 1).then_some(()));
    tenant.run(&json!({ "tool": "act" })).problem(503, "endpoint_unavailable");
    assert_eq!(other.call("fine", &json!({}))["status"], "completed");
    assert_eq!(server.calls().len(), 1);
    never.open();
}
