use super::*;
use serde_json::json;

fn compiled(schema: &Value) -> CompiledSchema {
    CompiledSchema::compile(schema.clone(), DefaultDraft::Draft202012)
        .unwrap_or_else(|fault| panic!("{fault}: {schema}"))
}

fn fault(schema: &Value) -> String {
    CompiledSchema::compile(schema.clone(), DefaultDraft::Draft202012).expect_err("should be refused").0
}

fn errors(schema: &Value, value: &Value) -> Vec<FieldError> {
    compiled(schema).validate(value).expect_err("should be invalid")
}

/// The one error of a value.
fn error(schema: &Value, value: &Value) -> FieldError {
    let mut errors = errors(schema, value);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    compiled(schema).validate(value).is_ok()
}

#[test]
fn a_compiled_schema_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<CompiledSchema>();
    let weight = |schema| compiled(&schema).weight_bytes();
    assert!(weight(json!({"type": "object", "properties": {"a": {"pattern": "^a+b$"}}})) > weight(json!(true)));
    let long = "x".repeat(30_000);
    assert!(weight(json!({"description": long})) > 60_000, "the tree and the validator each keep the texts");
}

#[test]
fn a_schema_kept_as_text_is_parsed_once_and_coerces_and_validates_by_its_draft() {
    let text = r##"{"items": {"$ref": "#/definitions/x", "type": "boolean"}, "definitions": {"x": {"type": ["boolean", "integer"]}}}"##;
    let text = JsonText::parse(text).expect("JSON");
    let by = |draft: DefaultDraft| {
        let schema = CompiledSchema::compile_text(&text, draft).expect("a schema");
        let mut value = json!(["5", "true"]);
        assert!(schema.coerce(&mut value));
        assert!(!schema.coerce(&mut value.clone()), "nothing is left to do");
        (schema.validate(&value).is_ok(), value)
    };
    // Beside a reference nothing counts up to draft 7.
    assert_eq!(by(DefaultDraft::Draft7), (true, json!([5, true])));
    assert_eq!(by(DefaultDraft::Draft202012), (false, json!(["5", true])));
}

#[test]
fn a_text_that_no_value_can_hold_is_a_refused_schema() {
    let text = JsonText::parse(r#"{"maximum": 1e999}"#).expect("JSON");
    let fault = CompiledSchema::compile_text(&text, DefaultDraft::Draft202012).expect_err("refused");
    assert!(fault.0.starts_with("the schema cannot be read: "), "{fault}");
}

// IBM/mcp-context-forge#2322: a schema of another draft broke the registration.
#[test]
fn ibm_mcp_context_forge_2322_the_draft_is_chosen_by_schema() {
    let exclusive = |draft: &str, bound: Value| json!({"$schema": draft, "maximum": 5, "exclusiveMaximum": bound});
    assert!(!is_valid(&exclusive("http://json-schema.org/draft-04/schema#", json!(true)), &json!(5)));
    for draft in [
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        assert!(!is_valid(&exclusive(draft, json!(5)), &json!(5)), "{draft}");
        assert!(fault(&exclusive(draft, json!(true))).contains("/exclusiveMaximum"), "{draft}");
    }
    let unknown = fault(&json!({"$schema": "https://example.com/my-draft", "type": "object"}));
    assert!(unknown.contains("my-draft") && unknown.contains("draft-07") && unknown.contains("2020-12"), "{unknown}");
    assert!(fault(&json!({"$schema": 7})).contains("$schema"));
    check(&json!({"properties": {"a": {"$id": "x", "$schema": "https://example.com/d"}}}), DefaultDraft::Draft7)
        .expect_err("an unknown draft inside");
}

#[test]
fn a_schema_without_a_draft_takes_the_default() {
    // An array of items is positional in draft 7 and no schema in 2020-12.
    let schema = json!({"type": "array", "items": [{"type": "integer"}]});
    check(&schema, DefaultDraft::Draft7).expect("draft 7");
    check(&schema, DefaultDraft::Draft202012).expect_err("2020-12");
}

// NousResearch/hermes-agent#101804: a boolean subschema on one tool lost 311 tools.
#[test]
fn nousresearch_hermes_agent_101804_boolean_schemas_are_valid() {
    assert!(is_valid(&json!(true), &json!(1)));
    assert!(!is_valid(&json!(false), &json!(1)));
    let schema = json!({"properties": {"x": true, "y": false}, "items": true, "additionalProperties": false});
    assert!(is_valid(&schema, &json!({"x": 1})));
    assert!(!is_valid(&schema, &json!({"y": 1})));
}

// Kuadrant/mcp-gateway#662: a tool with a bad schema was handed on, and agents could use nothing any more.
#[test]
fn kuadrant_mcp_gateway_662_what_the_metaschema_refuses_is_refused_with_its_place() {
    let message = fault(&json!({"type": "object", "properties": {"a": {"type": "strin"}}}));
    assert!(message.contains("/properties/a/type"), "{message}");
    for schema in [json!(5), json!("x"), json!([]), json!(null), json!({"required": "a"}), json!({"minLength": -1})] {
        check(&schema, DefaultDraft::Draft202012).expect_err("no schema");
    }
}

#[test]
fn limits_hold_exactly() {
    // Alternating containers: {"not": {"not": … true}} is a value nested `depth` deep.
    let nested = |depth: usize| (1..depth).fold(json!(true), |inner, _| json!({"not": inner}));
    check(&nested(32), DefaultDraft::Draft202012).expect("depth 32");
    assert!(fault(&nested(33)).contains("32 levels"));

    let with_nodes = |nodes: usize| json!({"enum": (0..nodes - 2).collect::<Vec<_>>()});
    check(&with_nodes(2_000), DefaultDraft::Draft202012).expect("2,000 nodes");
    assert!(fault(&with_nodes(2_001)).contains("2000 nodes"));

    let with_bytes = |bytes: usize| json!({"title": "x".repeat(bytes - r#"{"title":""}"#.len())});
    assert_eq!(with_bytes(65_536).to_string().len(), 65_536);
    check(&with_bytes(65_536), DefaultDraft::Draft202012).expect("64 KiB");
    assert!(fault(&with_bytes(65_537)).contains("65536 bytes"));
}

// XcodeBuildMCP#419: an own $id and a reference into $defs inside oneOf were not resolved.
#[test]
fn xcodebuildmcp_419_references_resolve_by_the_base_of_their_resource() {
    let schema = json!({
        "$id": "https://example.com/tool.json",
        "oneOf": [{"$ref": "#/$defs/x"}, {"type": "object", "required": ["b"]}],
        "$defs": {"x": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "tool.json#/$defs/n"}}},
                  "n": {"$id": "n.json", "$ref": "#/$defs/inner", "$defs": {"inner": {"type": "integer"}}}}
    });
    assert!(is_valid(&schema, &json!({"a": 1})));
    assert!(!is_valid(&schema, &json!({"a": "1"})));
    assert!(is_valid(&json!({"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "null"}}}), &json!(null)));
}

// xberg#1520: a $ref read files or the network.
#[test]
fn xberg_1520_nothing_outside_the_document_is_fetched() {
    for reference in [
        "https://example.com/schema.json",
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "other.json#/a",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "HTTPS://json-schema.org/draft/2020-12/schema",
    ] {
        for keyword in ["$ref", "$dynamicRef"] {
            let message = fault(&json!({"properties": {"a": {keyword: reference}}}));
            assert!(message.contains("outside") || message.contains("leads"), "{reference}: {message}");
        }
        let unused = json!({"$defs": {"unused": {"$ref": reference}}});
        check(&unused, DefaultDraft::Draft202012).expect_err("even where nothing uses it");
    }
    assert!(fault(&json!({"$ref": "#/$defs/none"})).contains("/$defs/none"));
    assert!(fault(&json!({"$ref": "#none"})).contains("none"));
}

// Stranger6667/jsonschema#1130: a huge {0,N} made the engine panic.
#[test]
fn stranger6667_jsonschema_1130_huge_repetitions_are_refused() {
    for pattern in [
        "^.{0,404600}$",
        "^(ab){0,400000}$",
        "^(a{0,1000}){0,1000}$",
        "^((a{1,60000}){1,60000}){1,60000}$",
        "x{4294967296}",
    ] {
        let message = fault(&json!({"properties": {"a": {"pattern": pattern}}}));
        assert!(message.contains(pattern), "{pattern}: {message}");
        let message = fault(&json!({"patternProperties": {pattern: {"type": "string"}}}));
        assert!(message.contains(pattern), "{pattern}: {message}");
    }
    assert!(is_valid(&json!({"pattern": "^.{0,5000}$"}), &json!("")));
}

// Stranger6667/jsonschema#487: backtracking patterns stall. apache/maka#2663: `pattern: "["` in one tool lost them all.
#[test]
fn stranger6667_jsonschema_487_patterns_are_linear_or_refused() {
    for pattern in ["(?=a)b", "(?<!a)b", r"(a)\1", "[", "(", r"\u"] {
        let message = fault(&json!({"properties": {"a": {"pattern": pattern}}}));
        assert!(message.contains("pattern"), "{pattern}: {message}");
        fault(&json!({"patternProperties": {pattern: true}}));
        fault(&json!({"additionalProperties": false, "properties": {"x": true}, "patternProperties": {pattern: {}}}));
    }
    assert!(fault(&json!({"properties": {"a": {"pattern": "^(?=x)y"}}})).contains("^(?=x)y"));
    let schema = json!({"pattern": "^(a+)+$"});
    assert!(!is_valid(&schema, &json!(format!("{}!", "a".repeat(100_000)))));
}

#[test]
fn references_that_go_round_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "integer"}]}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "additionalProperties": false}),
        json!({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "additionalProperties": false}),
        json!({"properties": {"a": {"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "additionalProperties": false}),
    ] {
        let compiled = compiled(&schema);
        let deep = (0..60).fold(json!({"b": 1}), |inner, _| json!({"a": inner}));
        let _ = compiled.validate(&deep);
        let _ = compiled.validate(&json!(null));
    }
}

/// Invalid at the leaf of 60 levels, which two references reach at each.
fn doubling(applicator: &str) -> Value {
    json!({"properties": {"a": {applicator: [{"$ref": "#"}, {"$ref": "#"}]}}, "additionalProperties": false})
}

#[test]
fn faults_that_double_with_each_level_do_not_stall() {
    let deep = |levels: usize| (0..levels).fold(json!({"b": 1}), |inner, _| json!({"a": inner}));
    let recursive_ref = json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
        "properties": {"a": {"allOf": [{"$recursiveRef": "#"}, {"$recursiveRef": "#"}]}}, "additionalProperties": false
    });
    for schema in [doubling("allOf"), doubling("anyOf"), doubling("oneOf"), recursive_ref] {
        let compiled = compiled(&schema);
        let errors = compiled.validate(&deep(60)).expect_err("a member that is not known");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].message.contains("too deeply nested"), "{errors:?}");
        // Where the account is short it is given.
        let errors = compiled.validate(&deep(3)).expect_err("a member that is not known");
        assert!(errors.iter().all(|e| e.message.contains("\"b\"")), "{errors:?}");
    }
}

#[test]
fn a_chain_of_references_that_stand_twice_does_not_stall() {
    let chain = |links: usize| {
        let mut defs = serde_json::Map::new();
        for link in 0..links {
            let next = json!({"$ref": format!("#/$defs/d{}", link + 1)});
            defs.insert(format!("d{link}"), json!({"allOf": [next, next]}));
        }
        defs.insert(format!("d{links}"), json!({"type": "integer"}));
        compiled(&json!({"$ref": "#/$defs/d0", "$defs": defs}))
    };
    let long = chain(60);
    for value in [json!(1), json!("x")] {
        let errors = long.validate(&value).expect_err("nobody can tell in time");
        assert!(errors[0].message.contains("too deeply nested"), "{errors:?}");
    }
    let short = chain(10);
    short.validate(&json!(1)).expect("valid");
    assert_eq!(short.validate(&json!("x")).expect_err("no integer").len(), MAX_FIELD_ERRORS);
}

#[test]
fn many_types_that_refer_to_each_other_are_taken() {
    let kinds: Vec<String> = (0..25).map(|kind| format!("#/$defs/k{kind}")).collect();
    let any: Vec<Value> = kinds.iter().map(|kind| json!({"$ref": kind})).collect();
    let defs: serde_json::Map<String, Value> = (0..25)
        .map(|kind| {
            let members = json!({"kind": {"const": kind}, "in": {"type": "array", "items": {"anyOf": any}}});
            (format!("k{kind}"), json!({"type": "object", "properties": members, "required": ["kind"]}))
        })
        .collect();
    let schema = compiled(&json!({"anyOf": any, "$defs": defs}));
    schema.validate(&json!({"kind": 3, "in": [{"kind": 24, "in": [{"kind": 0}]}]})).expect("valid");
    schema.validate(&json!({"kind": 3, "in": [{"kind": 25}]})).expect_err("no such kind");
}

#[test]
fn a_large_value_gets_a_short_account() {
    let items = json!(vec!["x"; 500_000]);
    let errors = errors(&json!({"items": {"type": "integer"}}), &items);
    assert_eq!((errors.len(), errors[0].pointer.as_str()), (1, "/0"));
    let alternatives = json!({"anyOf": [{"items": {"type": "integer"}}, {"items": {"type": "null"}}]});
    assert_eq!(self::errors(&alternatives, &items).len(), 1);
    let by_reference = json!({"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}});
    assert_eq!(self::errors(&by_reference, &items).len(), 1);
    assert_eq!(self::errors(&by_reference, &json!(vec!["x"; 5_000])).len(), MAX_FIELD_ERRORS);
}

#[test]
fn eight_formats_are_asserted_in_every_draft() {
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        for (format, good, bad) in [
            ("date", "2026-02-28", "2026-02-30"),
            ("date-time", "2026-02-28T10:00:00.5+02:00", "2026-02-28 10:00:00"),
            ("time", "10:00:00Z", "25:00:00Z"),
            ("email", "a@example.com", "a.example.com"),
            ("uri", "https://example.com/x?y#z", "/x"),
            ("uuid", "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a8057"),
            ("ipv4", "192.0.2.1", "192.0.2.256"),
            ("ipv6", "2001:db8::1", "2001:db8::g"),
        ] {
            let schema = json!({"$schema": draft, "format": format});
            assert!(is_valid(&schema, &json!(good)), "{draft} {format}");
            let error = error(&schema, &json!(bad));
            assert_eq!(error.keyword, "format");
            assert!(error.message.contains(format) && error.message.contains(bad), "{}", error.message);
        }
        for format in ["hostname", "duration", "regex", "uri-reference", "json-pointer", "idn-email", "iri", "color"] {
            assert!(is_valid(&json!({"$schema": draft, "format": format}), &json!("\u{0} [ no")), "{draft} {format}");
        }
    }
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "age": {"$ref": "#/$defs/age"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "home": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city", "street"]}
        },
        "required": ["name", "age"],
        "additionalProperties": false,
        "$defs": {"age": {"type": "integer", "minimum": 0}}
    })
}

#[test]
fn errors_point_to_the_value_and_say_what_to_mend() {
    let error = error(&person(), &json!({"name": "Ann", "age": 1, "tags": ["a", "c"]}));
    assert_eq!((error.pointer.as_str(), error.keyword.as_str()), ("/tags/1", "enum"));
    assert_eq!(error.message, r#"expected one of "a", "b", got the string "c""#);

    let missing = errors(&person(), &json!({"home": {}}));
    let of = |pointer: &str| missing.iter().filter(|e| e.pointer == pointer && e.keyword == "required").count();
    assert_eq!((of(""), of("/home")), (2, 2), "{missing:?}");
    for member in ["\"name\"", "\"age\"", "\"city\"", "\"street\""] {
        assert_eq!(missing.iter().filter(|e| e.message.contains(member)).count(), 1, "{member}");
    }

    let unknown = errors(&person(), &json!({"name": "Ann", "age": 1, "x": 1, "Name": 2}));
    assert_eq!(unknown.len(), 2);
    assert!(unknown.iter().all(|e| e.pointer.is_empty() && e.keyword == "additionalProperties"));
    assert!(unknown[0].message.contains("\"x\"") && unknown[1].message.contains("\"Name\""));

    let closed = json!({"properties": {"in": {"additionalProperties": false}}});
    let unknown = errors(&closed, &json!({"in": {"x": 1, "y": {}}}));
    let named: Vec<_> = unknown.iter().map(|e| (e.pointer.as_str(), e.keyword.as_str())).collect();
    assert_eq!(named, [("/in", "additionalProperties"); 2]);
    assert!(unknown[0].message.contains("\"x\"") && unknown[1].message.contains("\"y\""), "{unknown:?}");
    let never = json!({"properties": {"additionalProperties": false}});
    let refused = self::error(&never, &json!({"additionalProperties": {"x": 1}}));
    assert_eq!((refused.pointer.as_str(), refused.keyword.as_str()), ("/additionalProperties", "falseSchema"));

    let escaped = json!({"properties": {"a/b~c": {"type": "integer"}}});
    assert_eq!(self::error(&escaped, &json!({"a/b~c": "x"})).pointer, "/a~1b~0c");
}

#[test]
fn at_most_twenty_errors_are_reported() {
    let schema = json!({"items": {"type": "integer"}});
    assert_eq!(errors(&schema, &json!(vec!["x"; 500])).len(), MAX_FIELD_ERRORS);
    let schema = json!({"properties": {"a": true}, "additionalProperties": false});
    let many: Value = Value::Object((0..500).map(|i| (format!("m{i}"), json!(1))).collect());
    assert_eq!(errors(&schema, &many).len(), MAX_FIELD_ERRORS);
}

#[test]
fn values_are_echoed_at_most_64_characters() {
    let long = "ä".repeat(10_000);
    let nested = json!({"deep": [long.clone(), {"x": long.clone()}]});
    let name = "n".repeat(10_000);
    for (schema, value) in [
        (json!({"type": "integer"}), json!(long)),
        (json!({"type": "string"}), nested.clone()),
        (json!({"enum": [long.clone(), "b"]}), json!(long.clone() + "x")),
        (json!({"const": nested}), json!({"deep": []})),
        (json!({"maxLength": 3}), json!(long)),
        (json!({"pattern": "^b+c$"}), json!(long)),
        (json!({"format": "date"}), json!(long)),
        (json!({"additionalProperties": false}), json!({name.clone(): 1})),
        (json!({"propertyNames": {"maxLength": 3}}), json!({name.clone(): 1})),
        (json!({"required": [name.clone()]}), json!({})),
        (json!({"anyOf": [{"const": long}, {"type": "integer"}]}), json!(long.clone() + "x")),
        (json!({"not": {"type": "string"}}), json!(long)),
        (json!({"uniqueItems": true}), json!([long, long])),
        (json!({"contains": {"type": "integer"}}), json!([long])),
        (json!({"unevaluatedProperties": false}), json!({name.clone(): 1})),
        (json!({"properties": {"n": false}}), json!({"n": long})),
        (json!({"minItems": 9}), json!([long])),
    ] {
        let message = error(&schema, &value).message;
        for run in ["ä".repeat(65), "n".repeat(65)] {
            assert!(!message.contains(&run), "{message}");
        }
        assert!(message.chars().count() <= 600, "{message}");
    }
    let options: Vec<u32> = (0..900).collect();
    let message = error(&json!({"enum": options}), &json!("x")).message;
    assert!(message.contains("900 in all") && message.len() < 200, "{message}");
}

// SparkyFitness#1540: an optional argument sent as null was tried 25 times.
#[test]
fn sparkyfitness_1540_an_optional_null_is_told_to_be_left_out() {
    let schema = json!({
        "properties": {
            "a": {"type": "string"}, "b": {"$ref": "#/$defs/b"}, "c": {"type": "string", "enum": ["x"]},
            "d": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "must": {"type": "string"},
            "inner": {"type": "object", "properties": {"e": {"type": "boolean"}}},
            "list": {"type": "array", "items": {"type": "string"}},
            "e/f": {"type": "string"}
        },
        "allOf": [{"required": ["must"]}],
        "$defs": {"b": {"type": "integer"}}
    });
    let sent = json!({
        "a": null, "b": null, "c": null, "d": null, "must": null, "inner": {"e": null}, "list": [null], "e/f": null
    });
    let errors = errors(&schema, &sent);
    let advised: Vec<&str> =
        errors.iter().filter(|e| e.message.contains("leave it out")).map(|e| e.pointer.as_str()).collect();
    let mut sorted = advised.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["/a", "/b", "/c", "/d", "/e~1f", "/inner/e"]);
    assert_eq!(errors.len(), 8, "{errors:?}");
    let of = |pointer: &str| errors.iter().find(|e| e.pointer == pointer).expect("reported");
    assert_eq!(of("/a").keyword, "type");
    assert_eq!(of("/must").message, "expected a string, got null");
    assert_eq!(of("/list/0").message, "expected a string, got null");
    assert!(is_valid(&json!({"properties": {"a": {"type": ["string", "null"]}}}), &json!({"a": null})));
}

// FlowFuse#8575: anyOf with an enum and a const let `true` through.
#[test]
fn flowfuse_8575_every_keyword_counts_and_the_field_is_named() {
    let schema = json!({"properties": {"context": {"anyOf": [{"enum": ["all", "keys"]}, {"const": false}]}}});
    for good in [json!("all"), json!("keys"), json!(false)] {
        assert!(is_valid(&schema, &json!({"context": good})));
    }
    let error = error(&schema, &json!({"context": true}));
    assert_eq!((error.pointer.as_str(), error.keyword.as_str()), ("/context", "anyOf"));
    assert_eq!(error.message, r#"expected one of these: one of "all", "keys"; or exactly false, got true"#);

    let schema = json!({"oneOf": [
        {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
        {"properties": {"size": {"type": "integer"}}, "required": ["size"]}
    ]});
    let error = self::error(&schema, &json!({"kind": "b"}));
    assert_eq!(error.keyword, "oneOf");
    assert!(error.message.contains("at /kind: exactly \"a\""), "{}", error.message);
    assert!(error.message.contains("an object with the member \"size\""), "{}", error.message);
}

#[test]
fn integers_are_compared_exactly() {
    let schema = json!({"const": 725_653_563_933_458_432_u64});
    assert!(is_valid(&schema, &json!(725_653_563_933_458_432_u64)));
    assert!(!is_valid(&schema, &json!(725_653_563_933_458_433_u64)));
    let schema = json!({"maximum": u64::MAX - 1});
    assert!(is_valid(&schema, &json!(u64::MAX - 1)));
    assert!(!is_valid(&schema, &json!(u64::MAX)));
}

#[test]
fn names_are_matched_with_the_engine_of_the_validator() {
    assert!(name_matches("^x-", "x-a"));
    assert!(!name_matches("^x-", "a"));
    assert!(name_matches(r"^\d{2,3}$", "123"));
    assert!(!name_matches(r"^\d{2,3}$", "1234"));
    assert!(name_matches("(?=refused)", "anything"));
}
