//! Arguments over HTTP: coerced where nothing is lost, validated hard, and only then sent.

use crate::support::client::Answer;
use crate::support::gate::Gate;
use crate::support::manifests::{median_with, topology_with};
use crate::support::provider::Provider;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};

/// One tool for each schema, named `case-N`.
fn world(schemas: &[Value]) -> (Gate, Provider, Tenant) {
    let gate = Gate::start();
    let tool = |(index, schema): (usize, &Value)| topology_with(&format!("case-{index}"), "command", schema);
    let tools: Vec<Value> = schemas.iter().enumerate().map(tool).collect();
    let provider = Provider::topology(&tools);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    (gate, provider, tenant)
}

fn run_text(tenant: &Tenant, tool: &str, args: &str) -> Answer {
    let body = format!(r#"{{"tool":"{tool}","args":{args}}}"#);
    tenant.agent_request("POST", "/mcp/run").text("application/json", body).send()
}

/// The text of `args` that the provider received last.
fn sent(provider: &Provider) -> String {
    let call = provider.last_call();
    let (_, rest) = call.text().split_once("\"args\":").expect("args are sent");
    let (args, _) = rest.rsplit_once(",\"request_id\":").expect("our id is sent");
    args.to_owned()
}

/// An object schema with one property `v` of this schema.
fn v(schema: Value) -> Value {
    json!({ "type": "object", "properties": { "v": schema } })
}

#[test]
fn lossless_scalars_are_coerced() {
    let cases = [
        // QwenLM/qwen-code#4966
        (v(json!({ "type": "integer" })), r#"{"v":"3"}"#, r#"{"v":3}"#),
        (v(json!({ "type": "integer" })), r#"{"v":"-12"}"#, r#"{"v":-12}"#),
        (v(json!({ "type": "integer" })), r#"{"v":20.0}"#, r#"{"v":20}"#),
        (v(json!({ "type": "integer" })), r#"{"v":"18446744073709551615"}"#, r#"{"v":18446744073709551615}"#),
        // oceanbase/powercontext#1098: every digit arrives.
        (v(json!({ "type": "integer" })), r#"{"v":725653563933458432}"#, r#"{"v":725653563933458432}"#),
        (v(json!({ "type": "integer" })), r#"{"v":"725653563933458433"}"#, r#"{"v":725653563933458433}"#),
        (v(json!({ "type": "number" })), r#"{"v":"1.5"}"#, r#"{"v":1.5}"#),
        (v(json!({ "type": "number" })), r#"{"v":"9007199254740993"}"#, r#"{"v":9007199254740993}"#),
        (v(json!({ "type": "boolean" })), r#"{"v":"true"}"#, r#"{"v":true}"#),
        // colinhacks/zod#1672
        (v(json!({ "type": "boolean" })), r#"{"v":"false"}"#, r#"{"v":false}"#),
        (v(json!({ "type": "string" })), r#"{"v":725653563933458432}"#, r#"{"v":"725653563933458432"}"#),
        (v(json!({ "type": "string" })), r#"{"v":1.50}"#, r#"{"v":"1.5"}"#),
        (v(json!({ "type": "string" })), r#"{"v":true}"#, r#"{"v":"true"}"#),
        // A list is tried in order, and an exact match beats any coercion.
        (v(json!({ "type": ["integer", "string"] })), r#"{"v":"3"}"#, r#"{"v":"3"}"#),
        (v(json!({ "type": ["integer", "boolean"] })), r#"{"v":"true"}"#, r#"{"v":true}"#),
        (v(json!({ "type": ["number", "integer"] })), r#"{"v":"4"}"#, r#"{"v":4}"#),
        (v(json!({ "type": ["integer", "null"] })), r#"{"v":null}"#, r#"{"v":null}"#),
        // Through items, prefixItems, additionalProperties, allOf and local references.
        (v(json!({ "type": "array", "items": { "type": "integer" } })), r#"{"v":["1",2]}"#, r#"{"v":[1,2]}"#),
        (
            v(json!({ "items": [{ "type": "integer" }, { "type": "boolean" }] })),
            r#"{"v":["1","true"]}"#,
            r#"{"v":[1,true]}"#,
        ),
        (
            json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": { "v": { "prefixItems": [{ "type": "integer" }] } } }),
            r#"{"v":["1","2"]}"#,
            r#"{"v":[1,"2"]}"#,
        ),
        (
            json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
            r#"{"a":"1","b":2}"#,
            r#"{"a":1,"b":2}"#,
        ),
        (json!({ "type": "object", "allOf": [v(json!({ "type": "integer" }))] }), r#"{"v":"7"}"#, r#"{"v":7}"#),
        (
            json!({ "type": "object", "definitions": { "n": { "type": "integer" } },
                "properties": { "v": { "$ref": "#/definitions/n" } } }),
            r#"{"v":"7"}"#,
            r#"{"v":7}"#,
        ),
        // Nothing is touched that fits, and no other spelling is made of it.
        (v(json!({ "type": "number" })), r#"{"v":1.50,"ü":"é"}"#, r#"{"v":1.50,"ü":"é"}"#),
        (json!({ "type": "object" }), r#"{"b":1,"a":{"z":[],"y":null}}"#, r#"{"b":1,"a":{"z":[],"y":null}}"#),
    ];
    let schemas: Vec<Value> = cases.iter().map(|(schema, _, _)| schema.clone()).collect();
    let (_gate, provider, tenant) = world(&schemas);
    for (index, (schema, args, expected)) in cases.iter().enumerate() {
        let answer = run_text(&tenant, &format!("case-{index}"), args);
        assert_eq!(answer.status, 202, "{schema} {args}: {}", answer.text());
        assert_eq!(sent(&provider), *expected, "{schema} {args}");
    }
}

#[test]
fn nothing_is_coerced_at_a_loss() {
    let integer = || v(json!({ "type": "integer" }));
    let boolean = || v(json!({ "type": "boolean" }));
    let number = || v(json!({ "type": "number" }));
    let string = || v(json!({ "type": "string" }));
    let mut cases: Vec<(Value, String)> = Vec::new();
    // openclaw/openclaw#112577
    for text in
        ["0x10", "1,000", "1e3", "10abc", " 12 ", "12 ", "+1", "20.0", "", "-0", "01", "18446744073709551616", "١"]
    {
        cases.push((integer(), format!(r#"{{"v":"{text}"}}"#)));
    }
    for text in
        ["0x10", "1,000", " 1.5", "1.", ".5", "-0", "-0.0", "NaN", "Infinity", "1e400", "1.2345678901234567", ""]
    {
        cases.push((number(), format!(r#"{{"v":"{text}"}}"#)));
    }
    // ajv-validator/ajv#395, colinhacks/zod#1672
    for value in [r#""1""#, r#""0""#, "1", "0", r#""True""#, r#""yes""#, r#""""#, r#"" true""#, "null"] {
        cases.push((boolean(), format!(r#"{{"v":{value}}}"#)));
    }
    for value in ["null", "[]", "{}", r#"["a"]"#] {
        cases.push((string(), format!(r#"{{"v":{value}}}"#)));
    }
    cases.push((integer(), r#"{"v":true}"#.to_owned()));
    cases.push((integer(), r#"{"v":1.5}"#.to_owned()));
    cases.push((integer(), r#"{"v":null}"#.to_owned()));
    cases.push((integer(), r#"{"v":[1]}"#.to_owned()));
    cases.push((v(json!({ "type": "object" })), r#"{"v":"{\"a\":1}"}"#.to_owned()));
    cases.push((v(json!({ "type": "array" })), r#"{"v":"[1]"}"#.to_owned()));
    cases.push((v(json!({ "type": "array", "items": { "type": "string" } })), r#"{"v":"a"}"#.to_owned()));
    cases.push((v(json!({ "type": "null" })), r#"{"v":"null"}"#.to_owned()));
    // Not entered: only one reading of a value may be possible.
    for keyword in ["anyOf", "oneOf"] {
        cases.push((v(json!({ keyword: [{ "type": "integer" }] })), r#"{"v":"1"}"#.to_owned()));
    }
    let patterned = json!({ "type": "object", "patternProperties": { "^v$": { "type": "integer" } } });
    cases.push((patterned, r#"{"v":"1"}"#.to_owned()));
    let schemas: Vec<Value> = cases.iter().map(|(schema, _)| schema.clone()).collect();
    let (_gate, provider, tenant) = world(&schemas);
    for (index, (schema, args)) in cases.iter().enumerate() {
        let answer = run_text(&tenant, &format!("case-{index}"), args);
        assert_eq!(answer.status, 422, "{schema} {args}: {}", answer.text());
        let problem = answer.problem(422, "invalid_arguments");
        assert_eq!(problem["errors"][0]["pointer"], "/v", "{schema} {args}: {problem}");
    }
    assert!(provider.calls().is_empty(), "an invalid call never reaches the provider");
}

#[test]
fn every_keyword_counts_and_the_place_is_named() {
    let person = json!({
        "type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {
            "name": { "type": "string", "minLength": 2, "maxLength": 5 },
            "age": { "type": "integer", "minimum": 0, "exclusiveMaximum": 150 },
            "tags": { "type": "array", "items": { "type": "string", "pattern": "^[a-z]+$" }, "uniqueItems": true, "maxItems": 3 },
            "born": { "type": "string", "format": "date" },
            "mail": { "type": "string", "format": "email" },
            "a/b~c": { "const": 1 },
            // FlowFuse/flowfuse#8575
            "keys": { "anyOf": [{ "enum": ["all", "keys"] }, { "const": false }] },
        },
    });
    let (_gate, provider, tenant) = world(&[person]);
    for (args, pointer, keyword, message) in [
        (json!({}), "", "required", "name"),
        (json!({ "name": "ann", "nick": 1 }), "", "additionalProperties", "nick"),
        (json!({ "name": "a" }), "/name", "minLength", ""),
        (json!({ "name": "annabella" }), "/name", "maxLength", ""),
        (json!({ "name": "ann", "age": -1 }), "/age", "minimum", ""),
        (json!({ "name": "ann", "age": "150" }), "/age", "exclusiveMaximum", ""),
        (json!({ "name": "ann", "tags": ["a", "B"] }), "/tags/1", "pattern", ""),
        (json!({ "name": "ann", "tags": ["a", "a"] }), "/tags", "uniqueItems", ""),
        (json!({ "name": "ann", "tags": ["a", "b", "c", "d"] }), "/tags", "maxItems", ""),
        (json!({ "name": "ann", "born": "2026-02-30" }), "/born", "format", ""),
        (json!({ "name": "ann", "mail": "ann" }), "/mail", "format", ""),
        (json!({ "name": "ann", "a/b~c": 2 }), "/a~1b~0c", "const", ""),
        (json!({ "name": "ann", "keys": true }), "/keys", "anyOf", ""),
    ] {
        let problem = tenant.run(&json!({ "tool": "case-0", "args": args })).problem(422, "invalid_arguments");
        let errors = problem["errors"].as_array().expect("errors");
        let found = errors.iter().find(|error| error["pointer"] == pointer && error["keyword"] == keyword);
        let found = found.unwrap_or_else(|| panic!("{args}: {problem}"));
        assert!(found["message"].as_str().is_some_and(|text| !text.is_empty() && text.contains(message)), "{found}");
    }
    assert!(provider.calls().is_empty());
    let good = json!({ "name": "ann", "age": "149", "tags": ["a"], "born": "2024-02-29", "keys": false, "a/b~c": 1 });
    tenant.run(&json!({ "tool": "case-0", "args": good })).expect(202);
}

// SparkyFitness#1540, zenrows-mcp#23: an agent that sends null is told to leave the member out.
#[test]
fn an_optional_null_is_told_to_be_left_out() {
    let (_gate, _provider, tenant) = world(&[v(json!({ "type": "integer" }))]);
    let problem = run_text(&tenant, "case-0", r#"{"v":null}"#).problem(422, "invalid_arguments");
    let message = problem["errors"][0]["message"].as_str().expect("a message");
    assert!(message.contains("leave") && message.contains("out"), "{message}");
}

#[test]
fn errors_are_few_and_echo_little() {
    let (_gate, _provider, tenant) =
        world(&[v(json!({ "type": "array", "items": { "type": "integer" } })), v(json!({ "enum": ["a"] }))]);
    let many = json!({ "tool": "case-0", "args": { "v": vec!["x"; 50] } });
    let problem = tenant.run(&many).problem(422, "invalid_arguments");
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(20));
    let long = "s".repeat(500);
    let answer = tenant.run(&json!({ "tool": "case-1", "args": { "v": long } }));
    answer.problem(422, "invalid_arguments");
    assert!(!answer.text().contains(&"s".repeat(65)), "{}", answer.text());
}

// IBM/mcp-context-forge#2322, XcodeBuildMCP#419
#[test]
fn the_draft_is_the_one_the_schema_names() {
    let draft_4 = json!({ "$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
        "properties": { "v": { "type": "integer", "minimum": 3, "exclusiveMinimum": true } } });
    let own_id = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://x.example/s",
        "type": "object", "$defs": { "n": { "type": "integer" } },
        "properties": { "v": { "oneOf": [{ "$ref": "#/$defs/n" }, { "const": "all" }] } } });
    // Without a name a topology's schema is draft-07: there "items" may be a list and "prefixItems" is nothing.
    let unnamed = json!({ "type": "object", "properties": { "v": { "items": [{ "type": "integer" }], "additionalItems": false } } });
    let (_gate, _provider, tenant) = world(&[draft_4, own_id, unnamed]);
    let run = |tool: &str, value: Value| tenant.run(&json!({ "tool": tool, "args": { "v": value } })).status;
    assert_eq!((run("case-0", json!(3)), run("case-0", json!(4))), (422, 202));
    assert_eq!((run("case-1", json!(1)), run("case-1", json!("all")), run("case-1", json!("x"))), (202, 202, 422));
    assert_eq!((run("case-2", json!([1])), run("case-2", json!([1, 2]))), (202, 422));
}

// oceanbase/powercontext#1098: exact on the wire of a signed call, too, and in the tenant's record.
#[test]
fn digits_are_exact_everywhere() {
    let gate = Gate::start();
    let properties = json!({ "id": { "type": "integer" }, "text": { "type": "string" } });
    let provider = Provider::median(&[median_with("find", "medium", &properties)]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("shop", &provider);
    let run = run_text(&tenant, "find", r#"{"id":"725653563933458432","text":725653563933458433}"#).expect(200).json();
    let input = r#"{"id":725653563933458432,"text":"725653563933458433"}"#;
    assert!(provider.last_call().text().contains(input), "{}", provider.last_call().text());
    let id = run["correlation_id"].as_str().expect("an id");
    let shown = tenant.get(&format!("/v1/runs/{id}")).expect(200);
    assert!(shown.text().contains(input), "as coerced: {}", shown.text());
    assert!(shown.text().contains(r#"{"id":"725653563933458432","text":725653563933458433}"#), "as sent");
    let refused = run_text(&tenant, "find", r#"{"id":18446744073709551616}"#);
    assert!(refused.problem(400, "invalid_json").to_string().contains("string"));
}

#[test]
fn a_schema_for_nothing_takes_nothing_and_true_takes_all() {
    // NousResearch/hermes-agent#101804: boolean schemas are schemas.
    let (_gate, _provider, tenant) = world(&[
        json!({ "type": "object", "properties": { "x": true, "y": false } }),
        json!({ "type": "object", "additionalProperties": false }),
    ]);
    let run = |tool: &str, args: Value| tenant.run(&json!({ "tool": tool, "args": args })).status;
    assert_eq!(run("case-0", json!({ "x": [null] })), 202);
    assert_eq!(run("case-0", json!({ "y": 1 })), 422);
    assert_eq!(run("case-1", json!({})), 202);
    assert_eq!(run("case-1", json!({ "x": 1 })), 422);
}
