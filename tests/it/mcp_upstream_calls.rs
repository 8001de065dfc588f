//! Calls to MCP servers: what is sent, and what becomes of whatever is answered.

use crate::support::gate::Gate;
use crate::support::mcp_server::{
    MCP_TOKEN, McpServer, answer, answer_text, event, failure, read, response, said, stream, tool, tool_with,
};
use crate::support::provider::{Received, Reply};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};

fn world(server: &McpServer) -> (Gate, Tenant, Registered) {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let endpoint = server.register(&tenant, "shop", &json!({ "trusted": true })).assert_connected();
    (gate, tenant, endpoint)
}

fn both(tools: &[Value]) -> [McpServer; 2] {
    [McpServer::modern(tools), McpServer::legacy(tools)]
}

// docker/mcp-gateway#97: the gateway's own key was forwarded. BerriAI/litellm#35403: the configured one was not sent.
#[test]
fn nothing_of_the_agents_request_is_sent_on_but_what_is_meant_to_be() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    for server in both(&[tool("act")]) {
        let (_gate, tenant, _) = world(&server);
        let run = tenant.client.request("POST", "/mcp/run").json(&json!({ "tool": "act", "args": {} }));
        let run = run
            .header("Authorization", format!("Bearer {}", tenant.agent))
            .header("X-Auth", &tenant.agent)
            .header("X-Caller-Identity", "web:ann")
            .header("Idempotency-Key", "key-1")
            .header("Conversation-Id", "talk-1")
            .header("Cookie", "sid=secret")
            .header("X-Other", "other")
            .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))
            .send()
            .expect(200)
            .json();
        assert_eq!(run["status"], "completed");
        let call = server.last_call();
        assert_eq!(call.header("authorization"), Some(format!("Bearer {MCP_TOKEN}").as_str()));
        assert!(call.header("traceparent").is_some_and(|sent| sent.contains(TRACE)), "the trace goes on");
        let mut names: Vec<String> = call.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.retain(|name| !name.starts_with("mcp-"));
        names.sort();
        let expected = [
            "accept",
            "accept-encoding",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "traceparent",
            "user-agent",
        ];
        assert_eq!(names, expected);
        for request in server.all() {
            let bytes = format!("{:?} {}", request.headers, String::from_utf8_lossy(&request.body));
            for kept in [tenant.agent.as_str(), &tenant.workspace, "web:ann", "key-1", "talk-1", "sid=", "other"] {
                assert!(!bytes.contains(kept), "{kept}: {bytes}");
            }
        }
    }
}

#[test]
fn arguments_are_coerced_and_held_against_the_schema() {
    let schema = json!({ "type": "object", "required": ["n"], "additionalProperties": false,
        "properties": { "n": { "type": "integer" }, "big": { "type": "integer" }, "on": { "type": "boolean" } } });
    for server in both(&[tool_with("act", &schema)]) {
        let (_gate, tenant, _) = world(&server);
        let body = r#"{"tool":"act","args":{"n":"20","big":725653563933458432,"on":"false"}}"#;
        let run = tenant.agent_request("POST", "/mcp/run").text("application/json", body).send().expect(200).json();
        assert_eq!(run["status"], "completed");
        let sent = server.last_call();
        assert!(sent.text().contains(r#""n":20"#) && sent.text().contains("725653563933458432"), "{}", sent.text());
        assert_eq!(sent.json()["params"]["arguments"]["on"], false);
        let calls = server.calls().len();
        tenant.run(&json!({ "tool": "act" })).problem(422, "invalid_arguments");
        tenant.run(&json!({ "tool": "act", "args": { "n": 1, "m": 1 } })).problem(422, "invalid_arguments");
        assert_eq!(server.calls().len(), calls, "no invalid call reaches the server");
    }
    let server = McpServer::modern(&[tool("plain")]);
    let (_gate, tenant, _) = world(&server);
    tenant.run(&json!({ "tool": "plain" })).expect(200);
    assert_eq!(server.last_call().json()["params"]["arguments"], json!({}), "absent arguments are an empty object");
}

/// Annotated arguments are repeated in headers, for whoever looks at nothing else; in the present era only.
#[test]
fn annotated_arguments_are_repeated_in_headers() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" }, "n": { "type": "integer", "x-mcp-header": "N" } } });
    let [modern, legacy] = both(&[tool_with("act", &schema)]);
    for server in [&modern, &legacy] {
        let (_gate, tenant, _) = world(server);
        tenant.call("act", &json!({ "region": "Zürich", "n": "7" }));
    }
    let call = modern.last_call();
    assert_eq!(call.header("mcp-param-region"), Some("=?base64?WsO8cmljaA==?="));
    assert_eq!(call.header("mcp-param-n"), Some("7"));
    assert_eq!(legacy.last_call().header("mcp-param-region"), None);
}

/// The whole result, to the last digit, of plain reads and of others, as JSON and as a stream.
#[test]
fn a_result_is_handed_on_as_it_came() {
    let results = [
        r#"{"content":[{"type":"text","text":"ok"}],"resultType":"complete","n":1e400,"big":725653563933458432123,"d":1.50}"#,
        r#"{"content":[],"resultType":"complete","structuredContent":null,"x-vendor":{"a":[{},[],"",false]}}"#,
        r#"{"content":[{"type":"hologram","frames":[1,2],"deep":{"er":null}},{"type":"text","text":"é\u0000 \ud83d\ude00"}],"isError":false}"#,
        r#"{"structuredContent":[1,2,3],"content":[{"type":"resource_link","uri":"a:b"}],"_meta":{"a/b":1},"resultType":"complete"}"#,
    ];
    for server in both(&[tool("act"), read("look")]) {
        let (_gate, tenant, _) = world(&server);
        for (index, result) in results.into_iter().enumerate() {
            for tool in ["act", "look"] {
                server.next("tools/call", move |request| match index % 2 {
                    0 => answer_text(request, result),
                    _ => {
                        let text = format!(
                            "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n\n",
                            request.json()["id"]
                        );
                        stream(vec![crate::support::provider::Step::Say(text.into_bytes())])
                    }
                });
                let run = tenant.run(&json!({ "tool": tool })).expect(200);
                assert!(run.text().contains(&format!("\"result\":{result}")), "{}", run.text());
                // No reader of the tests takes such numbers.
                let id = run.text().split("\"correlation_id\":\"").nth(1).expect("an id");
                let id = id.split('"').next().expect("an id").to_owned();
                crate::support::eventually("it is recorded as it came", || {
                    let seen = tenant.agent_request("GET", &format!("/mcp/runs/{id}")).send();
                    seen.text().contains(&format!("\"result\":{result}")).then_some(())
                });
            }
        }
    }
}

#[test]
fn an_error_of_the_tool_fails_the_run_and_its_result_goes_along() {
    for server in both(&[tool("act"), read("look")]) {
        let (_gate, tenant, _) = world(&server);
        for name in ["act", "look"] {
            let result = json!({ "content": [{ "type": "image", "data": "" }, { "type": "text", "text": "No order 7" }],
                "isError": true, "structuredContent": { "hint": "list first" }, "resultType": "complete" });
            let sent = result.clone();
            server.next("tools/call", move |request| answer(request, &sent));
            let run = tenant.call(name, &json!({}));
            assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(true)));
            assert_eq!(run["error"], json!({ "code": "provider_error", "message": "No order 7" }));
            assert_eq!(run["result"], result);
            server.next("tools/call", |request| answer(request, &json!({ "content": [], "isError": true })));
            let run = tenant.call(name, &json!({}));
            assert_eq!(run["error"]["code"], "provider_error");
            assert!(run["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        }
    }
}

fn with_output(name: &str) -> Value {
    let mut item = tool(name);
    item["outputSchema"] =
        json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer", "maximum": 10 } } });
    item
}

// IBM/mcp-context-forge#4135: an output schema hid the real error.
#[test]
fn an_output_schema_is_enforced_but_not_on_errors() {
    for server in both(&[with_output("act")]) {
        let (_gate, tenant, _) = world(&server);
        let run = |result: Value| {
            server.next("tools/call", move |request| answer(request, &result));
            tenant.call("act", &json!({}))
        };
        let structured = |value: Value| json!({ "content": [], "structuredContent": value, "resultType": "complete" });
        assert_eq!(run(structured(json!({ "n": 10, "more": 1 })))["status"], "completed");
        for broken in [structured(json!({ "n": "secret-11" })), structured(json!([])), said("secret-11")] {
            let withheld = broken.clone();
            let failed = run(broken);
            assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("output_invalid")));
            assert_eq!((failed.get("result"), &failed["started"]), (None, &json!(true)));
            assert!(!failed.to_string().contains("secret-11"), "{failed}");
            assert!(!tenant.agent_run(&failed).to_string().contains("secret-11"));
            assert_eq!(tenant.tenant_run(&failed)["withheld_result"], withheld, "the tenant may look at it");
        }
        let mut error = said("the real error");
        error["isError"] = json!(true);
        let failed = run(error);
        assert_eq!(failed["error"], json!({ "code": "provider_error", "message": "the real error" }));
    }
}

#[test]
fn results_of_unknown_types_leave_open_whether_the_tool_ran() {
    for server in both(&[tool("act"), read("look")]) {
        let (_gate, tenant, _) = world(&server);
        for result in [
            json!({ "resultType": "task", "task": { "taskId": "t-1", "status": "working" } }),
            json!({ "resultType": "something", "content": [] }),
            json!({ "resultType": 7 }),
            json!({ "isError": "yes" }),
            json!([]),
            json!("done"),
            Value::Null,
        ] {
            for (name, status) in [("act", "uncertain"), ("look", "failed")] {
                let sent = result.clone();
                server.next("tools/call", move |request| answer(request, &sent));
                let run = tenant.call(name, &json!({}));
                assert_eq!((&run["status"], &run["started"]), (&json!(status), &json!(true)), "{result}: {run}");
            }
        }
        assert_eq!(server.executed(), 0, "none was sent again");
    }
}

#[test]
fn a_json_rpc_error_fails_the_run() {
    for server in both(&[tool("act"), read("look")]) {
        let (_gate, tenant, _) = world(&server);
        for (status, code) in [(200, -32602), (200, -32603), (400, -32602), (500, -32603), (200, 7), (200, -32601)] {
            for name in ["act", "look"] {
                let calls = server.calls().len();
                server.next("tools/call", move |request| failure(request, status, code, "no such order"));
                let run = tenant.call(name, &json!({}));
                assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_error")));
                let message = run["error"]["message"].as_str().expect("a message");
                assert!(message.contains(&code.to_string()) && message.contains("no such order"), "{message}");
                assert_eq!(server.calls().len(), calls + 1, "{status} {code}: it is not sent again");
            }
        }
    }
}

/// Over `/mcp/run` nobody can be asked.
#[test]
fn a_server_that_asks_where_nobody_can_be_asked_fails_the_run() {
    let server = McpServer::modern(&[tool("act")]);
    let (_gate, tenant, _) = world(&server);
    server.next("tools/call", |request| {
        let ask = json!({ "method": "elicitation/create", "params": { "message": "Sure?" } });
        answer(request, &json!({ "resultType": "input_required", "inputRequests": { "q": ask }, "requestState": "s" }))
    });
    let run = tenant.call("act", &json!({}));
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_protocol_error")), "{run}");
    assert_eq!(server.calls().len(), 1);
}

#[test]
fn a_server_that_only_wants_the_call_again_gets_it_with_its_state() {
    let server = McpServer::modern(&[tool("act")]);
    let (_gate, tenant, _) = world(&server);
    let again = |state: &'static str| {
        move |request: &Received| answer(request, &json!({ "resultType": "input_required", "requestState": state }))
    };
    server.next("tools/call", again("one é"));
    server.next("tools/call", again("two"));
    let run = tenant.call("act", &json!({ "a": 1 }));
    assert_eq!(run["status"], "completed", "{run}");
    let calls: Vec<Value> = server.calls().iter().map(Received::json).collect();
    let states: Vec<_> = calls.iter().map(|call| call["params"]["requestState"].clone()).collect();
    assert_eq!(states, [Value::Null, json!("one é"), json!("two")]);
    assert!(calls.iter().all(|call| call["params"]["arguments"] == json!({ "a": 1 })));
    assert_eq!(tenant.tenant_run(&run)["attempts"].as_array().map(Vec::len), Some(3));
    server.always("tools/call", again("for ever"));
    let before = server.calls().len();
    let run = tenant.call("act", &json!({}));
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_protocol_error")), "{run}");
    assert!(server.calls().len() - before <= 16);
}

/// A stream may bring anything before the response.
#[test]
fn a_response_is_found_among_whatever_else_a_stream_brings() {
    for server in both(&[tool("act")]) {
        let (_gate, tenant, _) = world(&server);
        server.next("tools/call", |request| {
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": 1, "progress": 1 } });
            let other = json!({ "jsonrpc": "2.0", "id": 1, "result": said("somebody else's") });
            stream(vec![
                crate::support::provider::Step::Say(
                    b"\xef\xbb\xbf: hi\r\rid: 1\nretry: 10\n\nevent: x\ndata: 7\n\n".to_vec(),
                ),
                event(&progress),
                event(&other),
                event(&json!([response(request, &said("in a batch"))])),
                event(&response(request, &said("mine"))),
                event(&response(request, &said("too late"))),
            ])
        });
        let run = tenant.call("act", &json!({}));
        assert_eq!(run["result"]["content"][0]["text"], "mine", "{run}");
    }
}

#[test]
fn a_run_by_key_is_sent_once_and_answered_again() {
    for server in both(&[tool("act"), read("look")]) {
        let (_gate, tenant, _) = world(&server);
        for name in ["act", "look"] {
            let run =
                || tenant.run_request(&json!({ "tool": name })).header("Idempotency-Key", name).send().expect(200);
            let (first, again) = (run(), run());
            assert_eq!(again.header("idempotent-replay"), Some("true"));
            assert_eq!(first.json(), again.json());
        }
        assert_eq!(server.executed(), 2);
    }
}

#[test]
fn a_slow_call_can_be_asked_for_later() {
    for server in both(&[tool("act")]) {
        let (_gate, tenant, _) = world(&server);
        let latch = std::sync::Arc::new(crate::support::provider::Latch::default());
        let held = std::sync::Arc::clone(&latch);
        server.next("tools/call", move |request| Reply::Held(held, Box::new(answer(request, &said("slow")))));
        let run = tenant.run_request(&json!({ "tool": "act" })).header("Prefer", "wait=0").send().expect(202).json();
        assert_eq!(run["status"], "pending");
        latch.open();
        let id = run["correlation_id"].as_str().expect("an id");
        let done =
            tenant.agent_request("GET", &format!("/mcp/runs/{id}")).header("Prefer", "wait=20").send().expect(200);
        assert_eq!(done.json()["result"]["content"][0]["text"], "slow");
    }
}
