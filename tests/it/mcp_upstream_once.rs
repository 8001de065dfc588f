//! A call is made once: whatever happens on the way, none whose effect is unknown is sent a second time.

use crate::support::gate::Gate;
use crate::support::mcp_server::{
    Answering, Era, McpServer, answer, event, event_with_id, failure, failure_without_id, method_of, read, response,
    said, stream, tool,
};
use crate::support::provider::{Latch, Received, Reply, Step};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::sync::Arc;

/// A server with a tool that acts and one that only reads, and is believed to.
fn world(era: Era, settings: &[(&str, &str)]) -> (Gate, McpServer, Tenant, Registered) {
    let gate = Gate::with(settings);
    let server = McpServer::start(era, &[tool("act"), read("look")]);
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({ "trusted": true })).assert_connected();
    (gate, server, tenant, endpoint)
}

const ERAS: [Era; 3] = [Era::Modern, Era::Legacy, Era::LegacyWithoutSessions];

/// How the next call of `tool` ends when it is answered like this each time: status, `started`, code or reason, and how
/// often it was sent.
#[track_caller]
fn outcome(
    server: &McpServer,
    tenant: &Tenant,
    tool: &str,
    reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (String, bool, String, usize) {
    let before = server.calls().len();
    server.always("tools/call", reply);
    let run = tenant.call(tool, &json!({}));
    server.as_usual("tools/call");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let why = if run["error"].is_object() { text(&run["error"]["code"]) } else { text(&run["reason"]) };
    let started = run["started"].as_bool().expect("a flag");
    (text(&run["status"]), started, why, server.calls().len() - before)
}

fn told(status: &str, started: bool, why: &str, sent: usize) -> (String, bool, String, usize) {
    (status.to_owned(), started, why.to_owned(), sent)
}

#[test]
fn a_server_that_is_not_there_was_not_called() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        server.go_down();
        for tool in ["act", "look"] {
            let run = tenant.call(tool, &json!({}));
            assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)), "{era:?} {tool}: {run}");
            assert_eq!(run["error"]["code"], "endpoint_unavailable");
        }
        server.come_back();
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed", "{era:?}");
    }
}

#[test]
fn a_broken_exchange_leaves_the_outcome_open_unless_the_tool_only_reads() {
    let broken: [(&str, &str, Answering); 9] = [
        ("no answer", "provider_error", |_| Reply::Hangup),
        ("half a head", "provider_error", |_| Reply::Raw(b"HTTP/1.1 200 O".to_vec())),
        ("half a body", "provider_error", |_| {
            Reply::Raw(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"json".to_vec(),
            )
        }),
        ("no HTTP", "provider_protocol_error", |_| Reply::Raw(b"HELLO\r\n\r\n".to_vec())),
        ("a stream without a response", "provider_error", |_| stream(vec![Step::Say(b": hi\n\n".to_vec())])),
        ("a stream that breaks", "provider_error", |_| stream(vec![Step::Say(b"data: {\n\n".to_vec()), Step::Break])),
        ("half an event", "provider_error", |request| {
            stream(vec![Step::Say(format!("data: {}", response(request, &said("almost"))).into_bytes())])
        }),
        ("no JSON", "provider_protocol_error", |_| Reply::text(200, "<html>")),
        ("nothing", "provider_protocol_error", |_| Reply::text(202, "")),
    ];
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        for (what, code, reply) in broken {
            assert_eq!(outcome(&server, &tenant, "act", reply), told("uncertain", true, code, 1), "{era:?}: {what}");
            assert_eq!(outcome(&server, &tenant, "look", reply), told("failed", true, code, 1), "{era:?}: {what}");
        }
        assert_eq!(server.executed(), 0);
    }
}

#[test]
fn a_server_that_fails_is_asked_again_only_where_that_harms_nobody() {
    for era in ERAS {
        let (_gate, server, tenant, endpoint) = world(era, &[]);
        for status in [500, 501, 502, 503, 504, 599] {
            let reply = move |_: &Received| Reply::text(status, "oops");
            assert_eq!(
                outcome(&server, &tenant, "act", reply),
                told("uncertain", true, "provider_error", 1),
                "{status}"
            );
            let times = if (502..=504).contains(&status) { 3 } else { 1 };
            assert_eq!(
                outcome(&server, &tenant, "look", reply),
                told("failed", true, "provider_error", times),
                "{status}"
            );
        }
        // The server is not believed any more: then nothing only reads.
        tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &json!({ "trusted": false })).expect(200);
        let reply = |_: &Received| Reply::text(503, "oops");
        assert_eq!(outcome(&server, &tenant, "look", reply), told("uncertain", true, "provider_error", 1));
    }
}

/// An error in the protocol's words that comes with a failing status, or from whoever gave up waiting, says nothing of what
/// the tool has done; one about credentials says that it was not asked.
#[test]
fn an_error_of_a_failing_server_leaves_the_outcome_open() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        for (status, code) in [(408, -32001), (500, -32603), (502, -32000), (504, -32001)] {
            let reply = move |_: &Received| failure_without_id(status, code, "Request timed out");
            let expected = told("uncertain", true, "provider_error", 1);
            assert_eq!(outcome(&server, &tenant, "act", reply), expected, "{era:?} {status}");
        }
        let in_time = |request: &Received| failure(request, 504, -32001, "Request timed out");
        let expected = told("uncertain", true, "provider_error", 1);
        assert_eq!(outcome(&server, &tenant, "act", in_time), expected, "{era:?}: a proxy that knows the protocol");
        let denied = |request: &Received| failure(request, 401, -32001, "Unauthorized");
        let expected = told("failed", true, "provider_auth_failed", 1);
        assert_eq!(outcome(&server, &tenant, "act", denied), expected, "{era:?}");
        let own_word = |request: &Received| failure(request, 200, -32603, "no such account");
        assert_eq!(outcome(&server, &tenant, "act", own_word), told("failed", true, "provider_error", 1), "{era:?}");
    }
}

/// A refusal that need not be about the session or the protocol may come from whoever has run the tool already.
#[test]
fn a_refusal_of_the_call_itself_stands() {
    let refusals: [(&str, &str, Answering); 6] = [
        ("provider_error", "400 -32000 of this call", |request| {
            failure(request, 400, -32000, "charged, but not mailed")
        }),
        ("provider_error", "404 -32004 of this call", |request| failure(request, 404, -32004, "no such customer")),
        ("provider_error", "405 -32000 of this call", |request| failure(request, 405, -32000, "not on Sundays")),
        ("provider_error", "400 -32600 of this call", |request| failure(request, 400, -32600, "no such customer")),
        ("provider_error", "400 -32000 of no call", |_| failure_without_id(400, -32000, "no such customer")),
        ("provider_protocol_error", "400 and text", |_| Reply::text(400, "no such customer")),
    ];
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        for (code, what, refusal) in refusals {
            assert_eq!(outcome(&server, &tenant, "act", refusal), told("failed", true, code, 1), "{era:?}: {what}");
        }
        // Afterwards it is called as before.
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed", "{era:?}");
        assert_eq!(server.executed(), 1);
    }
}

#[test]
fn every_attempt_of_a_read_is_recorded() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        server.next("tools/call", |_| Reply::text(503, ""));
        server.next("tools/call", |_| Reply::text(502, ""));
        let run = tenant.call("look", &json!({}));
        assert_eq!(run["status"], "completed");
        let shown = crate::support::eventually("the run is recorded", || {
            tenant.items("/v1/runs").into_iter().find(|item| item["correlation_id"] == run["correlation_id"])
        });
        let attempts: Vec<_> = shown["attempts"]
            .as_array()
            .expect("attempts")
            .iter()
            .map(|attempt| (attempt["outcome"].clone(), attempt["http_status"].clone()))
            .collect();
        let expected = [("http_5xx", 503), ("http_5xx", 502), ("ok", 200)];
        assert_eq!(attempts, expected.map(|(outcome, status)| (json!(outcome), json!(status))));
    }
}

// litellm#33374: a timeout of 5 s that answers after 60.
#[test]
fn a_deadline_ends_a_call_wherever_it_hangs() {
    let never = Arc::new(Latch::default());
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        for tool in ["act", "look"] {
            tenant.patch(&format!("/v1/tools/{tool}"), &json!({ "timeout_ms": 300 })).expect(200);
            let (status, latch) = (if tool == "act" { "uncertain" } else { "failed" }, Arc::clone(&never));
            let silent = move |_: &Received| Reply::Held(Arc::clone(&latch), Box::new(Reply::Hangup));
            assert_eq!(outcome(&server, &tenant, tool, silent), told(status, true, "provider_timeout", 1), "{era:?}");
            let latch = Arc::clone(&never);
            let in_a_stream =
                move |_: &Received| stream(vec![Step::Say(b": hi\n\n".to_vec()), Step::Wait(Arc::clone(&latch))]);
            assert_eq!(outcome(&server, &tenant, tool, in_a_stream), told(status, true, "provider_timeout", 1));
        }
        // The server of the earlier era is told that nobody waits; a modern one sees its stream end.
        if era == Era::Modern {
            assert!(server.requests("notifications/cancelled").is_empty());
        } else {
            let ids: Vec<_> = server.calls().iter().map(|call| call.json()["id"].clone()).collect();
            crate::support::eventually("each is called off", || {
                let told = server.requests("notifications/cancelled");
                let told: Vec<_> = told.iter().map(|told| told.json()["params"]["requestId"].clone()).collect();
                ids.iter().all(|id| told.contains(id)).then_some(())
            });
        }
    }
    never.open();
}

#[test]
fn a_hanging_opening_ends_with_the_deadline_and_is_not_called_off() {
    let never = Arc::new(Latch::default());
    let (gate, server, tenant, _) = world(Era::Legacy, &[]);
    tenant.patch("/v1/tools/act", &json!({ "timeout_ms": 300 })).expect(200);
    let latch = Arc::clone(&never);
    server.always("initialize", move |_| Reply::Held(Arc::clone(&latch), Box::new(Reply::Hangup)));
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let run = tenant.call("act", &json!({}));
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)), "{run}");
    assert_eq!(run["error"]["code"], "provider_timeout");
    assert!(server.calls().is_empty() && server.requests("notifications/cancelled").is_empty());
    never.open();
}

/// A stream of the earlier era that tells ids can be taken up again; the call is not made again.
#[test]
fn a_broken_stream_is_taken_up_where_it_broke() {
    for era in [Era::Legacy, Era::LegacyWithoutSessions] {
        let (_gate, server, tenant, _) = world(era, &[]);
        let late: Arc<std::sync::Mutex<Option<Value>>> = Arc::default();
        for endings in [vec![Step::Break], Vec::new()] {
            let asked = server.count("GET");
            let noted = Arc::clone(&late);
            server.next("tools/call", move |request| {
                *noted.lock().expect("no panic") = Some(response(request, &said("late")));
                let note = json!({ "jsonrpc": "2.0", "method": "notifications/message" });
                let mut steps = vec![Step::Say(b"retry: 60\n\n".to_vec()), event_with_id("ev-1", &note)];
                steps.extend(endings);
                stream(steps)
            });
            // Taken up, it breaks once more, before it has told an id of its own.
            server.next("GET", |_| stream(vec![Step::Say(b": still here\n\n".to_vec()), Step::Break]));
            server.next("GET", |_| stream(vec![event(&json!({ "jsonrpc": "2.0", "method": "x" })), Step::Break]));
            let noted = Arc::clone(&late);
            server.next("GET", move |_| {
                let response = noted.lock().expect("no panic").take().expect("it was called");
                stream(vec![event_with_id("ev-2", &response)])
            });
            let run = tenant.call("act", &json!({}));
            assert_eq!(run["result"]["content"][0]["text"], "late", "{era:?}: {run}");
            let call = server.last_call();
            let taken_up = server.requests("GET").split_off(asked);
            assert_eq!(taken_up.len(), 3);
            for get in taken_up {
                assert_eq!(get.header("last-event-id"), Some("ev-1"));
                assert_eq!(get.header("accept"), Some("text/event-stream"));
                for same in ["mcp-session-id", "mcp-protocol-version", "authorization"] {
                    assert_eq!(get.header(same), call.header(same), "{same}");
                }
            }
        }
        assert_eq!(server.calls().len(), 2);
    }
}

#[test]
fn a_stream_that_cannot_be_taken_up_leaves_the_outcome_open() {
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &[]);
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/message" });
        let without_id = {
            let note = note.clone();
            move |_: &Received| stream(vec![Step::Say(b"retry: 60\n\n".to_vec()), event(&note), Step::Break])
        };
        let with_id = move |_: &Received| {
            stream(vec![Step::Say(b"retry: 60\n\n".to_vec()), event_with_id("ev-1", &note), Step::Break])
        };
        let uncertain = told("uncertain", true, "provider_error", 1);
        assert_eq!(outcome(&server, &tenant, "act", without_id), uncertain, "{era:?}");
        assert_eq!(server.count("GET"), 0, "{era:?}: there is no place to take it up at");
        assert_eq!(outcome(&server, &tenant, "act", with_id.clone()), uncertain, "{era:?}");
        assert_eq!(server.count("GET"), usize::from(era != Era::Modern), "a modern stream is never taken up");
        assert_eq!(outcome(&server, &tenant, "look", with_id), told("failed", true, "provider_error", 1));
    }
}

/// A server that breaks off at once each time is not asked without rest until the deadline.
#[test]
fn a_stream_that_breaks_for_ever_ends_with_the_deadline() {
    let (_gate, server, tenant, _) = world(Era::Legacy, &[]);
    tenant.patch("/v1/tools/act", &json!({ "timeout_ms": 1000 })).expect(200);
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/message" });
    let broken = move |_: &Received| {
        stream(vec![Step::Say(b"retry: 0\n\n".to_vec()), event_with_id("ev-1", &note), Step::Break])
    };
    server.always("GET", broken.clone());
    let ended = outcome(&server, &tenant, "act", broken);
    assert_eq!(ended, told("uncertain", true, "provider_timeout", 1));
    assert!((2..=21).contains(&server.count("GET")), "{} times", server.count("GET"));
}

// truefoundry#769: an answer of tens of megabytes.
#[test]
fn answers_over_the_limit_are_cut_off() {
    let limit = [("LIMITS__PROVIDER_RESPONSE_BYTES", "65536")];
    for era in ERAS {
        let (_gate, server, tenant, _) = world(era, &limit);
        let long = said(&"x".repeat(70_000));
        let json = {
            let long = long.clone();
            move |request: &Received| answer(request, &long)
        };
        let events = move |request: &Received| stream(vec![event(&response(request, &long))]);
        let many = |_: &Received| {
            let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": "x" } });
            stream(vec![Step::Flood(format!("data: {note}\n\n").into_bytes())])
        };
        let comments = |_: &Received| stream(vec![Step::Flood(b": and so on\n".to_vec())]);
        let one_line = |_: &Received| stream(vec![Step::Say(b"data: ".to_vec()), Step::Flood(vec![b'x'; 512])]);
        for (tool, status) in [("act", "uncertain"), ("look", "failed")] {
            let expected = || told(status, true, "provider_protocol_error", 1);
            assert_eq!(outcome(&server, &tenant, tool, json.clone()), expected(), "{era:?}: as JSON");
            assert_eq!(outcome(&server, &tenant, tool, events.clone()), expected(), "{era:?}: as one event");
            assert_eq!(outcome(&server, &tenant, tool, many), expected(), "{era:?}: many events");
            assert_eq!(outcome(&server, &tenant, tool, comments), expected(), "{era:?}: comments without end");
            assert_eq!(outcome(&server, &tenant, tool, one_line), expected(), "{era:?}: a line without end");
        }
        let fits = said(&"x".repeat(65_000));
        server.next("tools/call", move |request| answer(request, &fits));
        assert_eq!(tenant.call("act", &json!({}))["status"], "completed");
    }
}

/// After a crash in between, sent without an outcome means uncertain.
#[test]
fn a_call_that_hangs_when_the_gateway_stops_is_not_made_again() {
    let (gate, server, tenant, _) = world(Era::Legacy, &[]);
    let latch = Arc::new(Latch::default());
    let held = Arc::clone(&latch);
    server.next("tools/call", move |request| Reply::Held(held, Box::new(answer(request, &said("done after all")))));
    let run = tenant.run_request(&json!({ "tool": "act" })).header("Prefer", "wait=0").send().expect(202).json();
    crate::support::eventually("it is sent", || (server.calls().len() == 1).then_some(()));
    latch.open();
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let ended = tenant.agent_run(&run);
    assert_eq!((&ended["status"], server.calls().len()), (&json!("completed"), 1), "{ended}");
    assert!(server.all().iter().filter(|request| method_of(request) == "tools/call").count() == 1);
}
