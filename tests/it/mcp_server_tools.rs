//! `tools/list` and `tools/call` towards MCP clients, over endpoints of every dialect.

use crate::support::agent_provider::ReceiptProvider;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, median_with, topology, topology_with};
use crate::support::mcp::{error, modern_headers, modern_message, result, text, with_tasks};
use crate::support::mcp_upstream::McpUpstream;
use crate::support::provider::{Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use toolgate::demo::shop;

/// The tools of every page, and how many pages there were.
#[track_caller]
fn walk(tenant: &Tenant, list: &dyn Fn(&Value) -> Value) -> (Vec<Value>, usize) {
    let (mut tools, mut params, mut pages) = (Vec::new(), json!({}), 0);
    loop {
        let page = list(&params);
        tools.extend(page["tools"].as_array().expect("tools").clone());
        pages += 1;
        assert!(pages < 20, "the cursor moves on: {}", tenant.org_id);
        match page.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return (tools, pages),
        }
    }
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[test]
fn a_long_list_comes_in_pages_of_a_stable_order() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let items = |range: std::ops::Range<usize>| -> Vec<Value> {
        range.map(|n| topology(&format!("t{n:03}"), "command")).collect()
    };
    let provider = Provider::topology(&items(0..250));
    let endpoint = tenant.endpoint("many", &provider);
    let modern = |params: &Value| tenant.modern("tools/list", params, &json!({}));
    let legacy = |params: &Value| tenant.legacy("tools/list", params);
    let expected: Vec<String> = (0..250).map(|n| format!("t{n:03}")).collect();
    for list in [&modern as &dyn Fn(&Value) -> Value, &legacy] {
        let (tools, pages) = walk(&tenant, list);
        assert_eq!((names(&tools), pages), (expected.iter().map(String::as_str).collect(), 3));
    }
    let first = modern(&json!({}));
    assert_eq!((&first["resultType"], &first["cacheScope"]), (&json!("complete"), &json!("private")));
    assert!(first["ttlMs"].as_u64().is_some());
    assert!(legacy(&json!({})).get("ttlMs").is_none() && legacy(&json!({})).get("resultType").is_none());
    // The tool that a cursor names may be gone by the time it is used.
    let cursor = json!({ "cursor": first["nextCursor"] });
    provider.offer(&items(100..250));
    tenant.sync(&endpoint);
    assert_eq!(modern(&cursor)["tools"][0]["name"], "t100");
    for bad in ["", "x", "bW9yZQ", "%%%"] {
        let answer = tenant.modern_request("tools/list", &json!({ "cursor": bad }), &json!({})).send();
        error(&answer, 400, -32602, &json!(1));
        error(&tenant.legacy_request("tools/list", &json!({ "cursor": bad })).send(), 200, -32602, &json!(1));
    }
    error(&tenant.legacy_request("tools/list", &json!({ "cursor": 5 })).send(), 200, -32602, &json!(1));
}

#[test]
fn what_is_listed_is_what_is_callable_and_each_key_sees_its_own() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    tenant.endpoint("shop", &Provider::median(&[median("lookup", "low"), median("refund", "low")]));
    let rules = json!([{ "effect": "allow", "tools": ["lookup"] }]);
    tenant.post("/v1/groups", &json!({ "name": "some", "rules": rules })).expect(201);
    let narrow = tenant.as_agent(&tenant.agent_key(&json!({ "name": "narrow", "groups": ["some"] })));
    let listed = |tenant: &Tenant| {
        let tools = tenant.modern("tools/list", &json!({}), &json!({}))["tools"].clone();
        names(tools.as_array().expect("tools")).into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert_eq!(listed(&tenant), BTreeSet::from(["lookup".to_owned(), "refund".to_owned()]));
    assert_eq!(listed(&narrow), BTreeSet::from(["lookup".to_owned()]));
    for name in listed(&tenant) {
        assert_eq!(tenant.modern_call(&name, &json!({}))["isError"], false);
    }
    // One text, whatever the cause: in another group, nowhere, or only its name with more around it.
    let params = |name: &str| json!({ "name": name, "arguments": {} });
    let told: BTreeSet<Vec<u8>> = ["refund", "nonsense", "median:lookup", "LOOKUP", "toolgate_get_run", ""]
        .iter()
        .map(|name| {
            let answer = narrow.modern_request("tools/call", &params(name), &json!({})).send();
            error(&answer, 400, -32602, &json!(1));
            answer.body
        })
        .collect();
    assert_eq!(told.len(), 1);
    error(&narrow.legacy_request("tools/call", &params("refund")).send(), 200, -32602, &json!(1));
    error(&narrow.legacy_request("tools/call", &json!({ "arguments": {} })).send(), 200, -32602, &json!(1));
    let listed_arguments = json!({ "name": "lookup", "arguments": [] });
    error(&narrow.legacy_request("tools/call", &listed_arguments).send(), 200, -32602, &json!(1));
}

#[test]
fn tools_are_described_so_that_every_client_can_read_the_list() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let bare = json!({ "properties": { "city": { "type": "string" } } });
    let output = json!({ "type": "array" });
    let topologies = [
        having(topology_with("weather", "query", &bare), "output_schema", output.clone()),
        having(topology("order", "command"), "output_schema", json!({ "type": "object" })),
        topology_with("anything", "command", &json!(true)),
    ];
    tenant.endpoint("pulse", &Provider::topology(&topologies));
    tenant.endpoint("shop", &Provider::median(&[median("lookup", "low"), median("refund", "medium")]));
    let desk = ReceiptProvider::of(shop::agent_tools());
    tenant.post("/v1/endpoints", &desk.registration("desk")).expect(201);
    let list = |tools: Value| -> Vec<Value> { tools["tools"].as_array().expect("tools").clone() };
    let modern = list(tenant.modern("tools/list", &json!({}), &with_tasks()));
    let legacy = list(tenant.legacy("tools/list", &json!({})));
    let find = |tools: &[Value], name: &str| -> Value {
        tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}: {tools:?}")).clone()
    };
    for tool in modern.iter().chain(&legacy) {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    let weather = find(&modern, "weather");
    assert_eq!(
        (&weather["title"], &weather["description"]),
        (&json!("Title of weather"), &json!("Does what weather says"))
    );
    assert_eq!(weather["inputSchema"]["$schema"], "http://json-schema.org/draft-07/schema#");
    assert_eq!(weather["outputSchema"]["type"], "array");
    assert!(find(&legacy, "weather").get("outputSchema").is_none(), "that era's results are objects");
    assert!(find(&legacy, "order").get("outputSchema").is_none(), "a command gives no result");
    let hints = |name: &str| {
        let annotations = find(&modern, name)["annotations"].clone();
        ["readOnlyHint", "destructiveHint", "idempotentHint"].map(|hint| annotations[hint].as_bool().expect("a flag"))
    };
    assert_eq!(hints("order_get"), [true, false, true], "a plain read");
    assert_eq!(hints("order_cancel"), [false, true, false]);
    assert_eq!(hints("weather"), [false, false, false], "nobody's word makes it a plain read");
    assert_eq!(
        (hints("order"), hints("lookup"), hints("refund")),
        ([false, true, false], [false, false, false], [false, true, false])
    );
    // A dotted name is shown without dots; either is taken.
    for name in ["order_get", "order.get"] {
        let found = tenant.modern_call(name, &json!({ "order": "ORD-1042" }));
        assert_eq!(
            (&found["isError"], &found["structuredContent"]["status"]),
            (&json!(false), &json!("ok")),
            "{found}"
        );
    }
    assert!(names(&legacy).contains(&"toolgate_get_run") && !names(&modern).contains(&"toolgate_get_run"));
}

#[test]
fn results_are_one_text_and_structured_content() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::median(&[median_with("lookup", "low", &json!({ "n": { "type": "integer" } }))]);
    tenant.endpoint("shop", &provider);
    let told = r#"{"result": {"a" : 1.50, "big": 12345678901234567890123 } }"#;
    provider.next(Reply::text(200, told));
    let params = json!({ "name": "lookup", "arguments": { "n": "3" } });
    let answer = tenant.modern_request("tools/call", &params, &json!({})).send();
    assert_eq!(provider.last_call().json()["input"], json!({ "n": 3 }), "coerced like any run's");
    assert!(
        answer.text().contains(r#""structuredContent":{"a":1.50,"big":12345678901234567890123}"#),
        "{}",
        answer.text()
    );
    assert_eq!(text(&result(&answer)), r#"{"a":1.50,"big":12345678901234567890123}"#);
    provider.next(Reply::text(200, r#"{"result":[1,2]}"#));
    assert_eq!(tenant.modern_call("lookup", &json!({}))["structuredContent"], json!([1, 2]));
    provider.next(Reply::text(200, r#"{"result":[1,2]}"#));
    let legacy = tenant.legacy("tools/call", &json!({ "name": "lookup" }));
    assert_eq!(legacy["structuredContent"], json!({ "result": [1, 2] }));
    assert_eq!((text(&legacy), legacy.get("resultType")), ("[1,2]", None));
    // What the model can mend it is told; the call reached nobody.
    let calls = provider.calls().len();
    let wrong = tenant.modern_call("lookup", &json!({ "n": "x", "m": 1 }));
    assert!(wrong["isError"] == true && text(&wrong).contains("/n") && text(&wrong).contains("m"), "{wrong}");
    assert_eq!(provider.calls().len(), calls);
    provider.next(Reply::text(200, r#"{"error":{"code":"execution_failed","message":"no such order"}}"#));
    let failed = tenant.legacy_call("lookup", &json!({}));
    assert!(failed["isError"] == true && text(&failed).contains("no such order"), "{failed}");
}

#[test]
fn a_limit_or_a_dead_endpoint_is_told_to_the_model() {
    let gate = Gate::with(&[("LIMITS__TOOL_PER_SECOND", "1"), ("LIMITS__TOOL_PER_SECOND_BURST", "1")]);
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("order", "command"), topology("pay", "command")]);
    tenant.endpoint("bank", &provider);
    assert_eq!(tenant.modern_call("order", &json!({}))["isError"], false);
    let limited = tenant.modern_call("order", &json!({}));
    assert!(limited["isError"] == true && text(&limited).contains("1 s"), "{limited}");
    // An answer that is lost leaves it unknown whether the command was taken.
    provider.next(Reply::Hangup);
    let uncertain = tenant.legacy_call("pay", &json!({}));
    assert!(uncertain["isError"] == true && text(&uncertain).contains("Do not repeat it"), "{uncertain}");
}

fn mcp_tool(name: &str, more: Value) -> Value {
    let mut tool = json!({ "name": name, "inputSchema": { "type": "object" } });
    for (member, value) in more.as_object().expect("an object") {
        tool[member] = value.clone();
    }
    tool
}

#[test]
fn an_mcp_servers_tools_and_results_are_relayed_as_they_came() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let told = json!({
        "resultType": "complete", "content": [{ "type": "hologram", "x": 1.5 }], "structuredContent": [1],
        "unknown": { "a": [] }, "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "up", "version": "9" } },
    });
    let icons = json!([{ "src": "https://icons.example/1.png" }]);
    let tools = [
        mcp_tool(
            "do.it",
            json!({ "icons": icons, "x-unknown": { "name": "inner" }, "annotations": { "readOnlyHint": true } }),
        ),
        mcp_tool("fails", json!({ "outputSchema": { "type": "object", "required": ["a"] } })),
        mcp_tool("breaks", json!({})),
        mcp_tool("wants", json!({})),
    ];
    let answer = told.clone();
    let upstream = McpUpstream::start(&tools, move |params| match params["name"].as_str() {
        Some("do.it") => json!({ "result": answer }),
        Some("fails") => json!({ "result": { "content": [{ "type": "text", "text": "bad luck" }], "isError": true } }),
        Some("wants") => {
            json!({ "error": { "code": -32021, "message": "no", "data": { "requiredCapabilities": { "sampling": {} } } } })
        }
        _ => json!({ "error": { "code": -32603, "message": "boom" } }),
    });
    let made = tenant.post("/v1/endpoints", &upstream.registration("up")).expect(201).json();
    assert_eq!(made["state"], "connected", "{made}");
    let listed = tenant.modern("tools/list", &json!({}), &json!({}))["tools"].clone();
    let item =
        listed.as_array().expect("tools").iter().find(|tool| tool["name"] == "do_it").expect("without dots").clone();
    assert_eq!((&item["icons"], &item["x-unknown"]["name"]), (&icons, &json!("inner")));
    assert_eq!(item["annotations"], json!({ "readOnlyHint": true }), "its own words");
    assert_eq!(tenant.modern_call("do_it", &json!({ "b": 1 })), told);
    let call = upstream.calls().pop().expect("a call").json();
    assert_eq!((&call["params"]["name"], &call["params"]["arguments"]), (&json!("do.it"), &json!({ "b": 1 })));
    let mut without_type = told.clone();
    without_type.as_object_mut().expect("an object").remove("resultType");
    assert_eq!(tenant.legacy("tools/call", &json!({ "name": "do.it" })), without_type);
    assert!(upstream.calls().pop().expect("a call").json()["params"].get("arguments").is_none(), "none were given");
    // IBM/mcp-context-forge#4135: an output schema never hides an error.
    let failed = tenant.modern_call("fails", &json!({}));
    assert_eq!(
        (text(&failed), &failed["isError"], &failed["resultType"]),
        ("bad luck", &json!(true), &json!("complete"))
    );
    let broken = tenant.modern_call("breaks", &json!({}));
    assert!(broken["isError"] == true && text(&broken).contains("boom"), "{broken}");
    let params = json!({ "name": "wants", "arguments": {} });
    let wanting = error(&tenant.modern_request("tools/call", &params, &json!({})).send(), 400, -32021, &json!(1));
    assert_eq!(wanting["data"]["requiredCapabilities"], json!({ "sampling": {} }));
    assert_eq!(tenant.legacy("tools/call", &params)["isError"], true);
}

#[test]
fn a_client_is_told_on_as_it_is_but_for_what_toolgate_serves_itself() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let upstream = McpUpstream::start(&[mcp_tool("ask", json!({}))], |params| {
        let asks = params.get("inputResponses").is_none();
        let questions = json!({ "q": { "method": "sampling/createMessage", "params": { "maxTokens": 1 } } });
        if asks {
            json!({ "result": { "resultType": "input_required", "inputRequests": questions, "requestState": "upstream-state" } })
        } else {
            json!({ "result": { "content": [], "structuredContent": params["requestState"] } })
        }
    });
    tenant.post("/v1/endpoints", &upstream.registration("up")).expect(201);
    let capabilities =
        json!({ "sampling": {}, "x": { "y": 1 }, "extensions": { "a/b": {}, "io.modelcontextprotocol/tasks": {} } });
    let mut params = json!({ "name": "ask", "arguments": {} });
    let asked = tenant.modern("tools/call", &params, &capabilities);
    let said = &upstream.calls()[0].json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    assert_eq!(*said, json!({ "sampling": {}, "x": { "y": 1 }, "extensions": { "a/b": {} } }));
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(asked["inputRequests"]["q"]["params"], json!({ "maxTokens": 1 }));
    let state = asked["requestState"].as_str().expect("a state").to_owned();
    assert!(!state.contains("upstream-state"), "sealed: {state}");
    params["requestState"] = json!(state);
    params["inputResponses"] = json!({ "q": { "role": "assistant" } });
    assert_eq!(tenant.modern("tools/call", &params, &capabilities)["structuredContent"], "upstream-state");
    assert_eq!(upstream.calls()[1].json()["params"]["inputResponses"], json!({ "q": { "role": "assistant" } }));
    // Nobody else's state, nor one for another call.
    let refused = |params: &Value, tenant: &Tenant| {
        error(&tenant.modern_request("tools/call", params, &capabilities).send(), 400, -32602, &json!(1));
    };
    let second = tenant.as_agent(&tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    refused(&params, &second);
    refused(&json!({ "name": "ask", "arguments": { "z": 1 }, "requestState": state, "inputResponses": {} }), &tenant);
    refused(
        &json!({ "name": "ask", "arguments": {}, "requestState": format!("{state}A"), "inputResponses": {} }),
        &tenant,
    );
    assert_eq!(upstream.calls().len(), 2, "nothing was sent");
}

#[test]
fn headers_repeat_the_arguments_that_a_tool_wants_repeated() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" }, "n": { "type": "integer", "x-mcp-header": "N" },
    } });
    let tool = mcp_tool("sql", json!({ "inputSchema": schema }));
    let upstream = McpUpstream::start(&[tool], |_| json!({ "result": { "content": [] } }));
    tenant.post("/v1/endpoints", &upstream.registration("up")).expect(201);
    let call = |arguments: Value, headers: &[(&str, &str)]| {
        let message = modern_message("tools/call", &json!({ "name": "sql", "arguments": arguments }), &json!({}));
        let own = modern_headers(&message);
        let request = own.iter().fold(tenant.mcp(&message), |request, (name, value)| request.header(name, value));
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
    };
    for (arguments, headers) in [
        (json!({ "region": "Hello" }), vec![("Mcp-Param-Region", "=?base64?SGVsbG8=?=")]),
        (json!({ "region": "SGVsbG8=" }), vec![("MCP-PARAM-REGION", "SGVsbG8=")]),
        (json!({ "region": null, "n": 42 }), vec![("Mcp-Param-N", "42.0")]),
        (json!({}), vec![("Mcp-Param-Unknown", "x")]),
    ] {
        assert_eq!(call(arguments.clone(), &headers).status, 200, "{arguments} {headers:?}");
    }
    let sent = upstream.calls().len();
    for (arguments, headers) in [
        (json!({ "region": "Hello" }), vec![]),
        (json!({ "region": "Hello" }), vec![("Mcp-Param-Region", "=?base64?SGVsbG8?=")]),
        (json!({ "region": "Hello" }), vec![("Mcp-Param-Region", "=?base64?SGVs!!!bG8=?=")]),
        (json!({ "region": "Hello" }), vec![("Mcp-Param-Region", "hello")]),
        (json!({}), vec![("Mcp-Param-Region", "x")]),
        (json!({ "n": 41 }), vec![("Mcp-Param-N", "42")]),
    ] {
        error(&call(arguments, &headers), 400, -32020, &json!(1));
    }
    assert_eq!(upstream.calls().len(), sent, "nothing was called");
    // The earlier era knows no such headers.
    assert_eq!(tenant.legacy_call("sql", &json!({ "region": "Hello" }))["content"], json!([]));
}
