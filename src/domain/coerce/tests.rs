mod properties;

use super::*;
use crate::domain::schema::{CompiledSchema, DefaultDraft};
use serde_json::json;

/// What becomes of one argument of the given type.
fn to(target: &str, value: Value) -> Value {
    coerced(json!({"properties": {"v": {"type": target}}}), json!({"v": value}))["v"].take()
}

fn coerced(schema: Value, mut arguments: Value) -> Value {
    let before = arguments.clone();
    let changed = coerce(&schema, &mut arguments);
    assert_eq!(changed, arguments != before, "the answer tells whether anything changed");
    arguments
}

#[track_caller]
fn stays(target: &str, value: Value) {
    assert_eq!(to(target, value.clone()).to_string(), value.to_string(), "to {target}");
}

// QwenLM/qwen-code#4966: {"depth":"3"} was refused.
#[test]
fn qwenlm_qwen_code_4966_a_numeric_string_becomes_an_integer() {
    assert_eq!(to("integer", json!("3")), json!(3));
    assert_eq!(to("integer", json!("0")), json!(0));
    assert_eq!(to("integer", json!("-17")), json!(-17));
    assert_eq!(to("integer", json!("18446744073709551615")), json!(u64::MAX));
    assert_eq!(to("integer", json!("-9223372036854775808")), json!(i64::MIN));
}

// openclaw#112577: spellings that only a lenient parser takes.
#[test]
fn openclaw_112577_other_spellings_do_not_become_numbers() {
    for text in [
        "0x10",
        "1,000",
        "10abc",
        " 12 ",
        "12 ",
        "\t12",
        "+5",
        "",
        "-",
        "-0",
        "007",
        "-01",
        "1_000",
        "١٢",
        "0b1",
        "NaN",
        "Infinity",
        "18446744073709551616",
        "-9223372036854775809",
        "1e400",
        ".5",
        "5.",
        "1e",
        "--1",
        "12\n",
    ] {
        stays("integer", json!(text));
        stays("number", json!(text));
    }
    for text in ["20.0", "1e3", "1.5", "-0.0", "1E5"] {
        stays("integer", json!(text));
    }
    for text in ["-0.0", "-0e5", "0.1234567890123456", "1e301", "9007199254740993.0"] {
        stays("number", json!(text));
    }
}

#[test]
fn a_string_becomes_the_number_it_spells() {
    for (text, number) in [
        ("1.50", json!(1.5)),
        ("20.0", json!(20.0)),
        ("1e3", json!(1000.0)),
        ("0.1", json!(0.1)),
        ("-2.5E-3", json!(-0.0025)),
        ("5", json!(5)),
        ("725653563933458433", json!(725_653_563_933_458_433_u64)),
        ("1.23456789012345e200", json!(1.234_567_890_123_45e200)),
    ] {
        assert_eq!(to("number", json!(text)).to_string(), number.to_string(), "{text}");
    }
}

// colinhacks/zod#1672: "false" became true.
#[test]
fn colinhacks_zod_1672_only_the_two_words_become_booleans() {
    assert_eq!(to("boolean", json!("true")), json!(true));
    assert_eq!(to("boolean", json!("false")), json!(false));
    for text in ["True", "FALSE", "yes", "no", "on", "", "0", "1", " true", "t"] {
        stays("boolean", json!(text));
    }
}

// ajv#395: "1" → true is not lossless.
#[test]
fn ajv_395_what_would_lose_something_is_never_coerced() {
    for value in [json!(0), json!(1), json!("1"), json!(null), json!([]), json!([true])] {
        stays("boolean", value);
    }
    for value in [json!(true), json!(null), json!(1.5), json!(["3"]), json!({}), json!([3])] {
        stays("integer", value);
    }
    for value in [json!(null), json!([]), json!(["a"]), json!({"a": 1})] {
        stays("string", value);
    }
    for value in [json!("null"), json!(""), json!(0), json!(false)] {
        stays("null", value);
    }
    for value in [json!("a,b"), json!("[1]"), json!(1), json!("x")] {
        stays("array", value);
    }
    for value in [json!("{}"), json!("{\"a\":1}"), json!(1), json!([])] {
        stays("object", value);
    }
}

#[test]
fn scalars_become_their_canonical_text() {
    for (value, text) in [
        (json!(5), "5"),
        (json!(-5), "-5"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(1.5), "1.5"),
        (json!(20.0), "20"),
        (json!(1e21), "1e+21"),
        (json!(1e-7), "1e-7"),
        (json!(true), "true"),
        (json!(false), "false"),
    ] {
        assert_eq!(to("string", value), json!(text));
    }
    let written: Value = serde_json::from_str("{\"v\":1.50}").expect("JSON");
    assert_eq!(coerced(json!({"properties": {"v": {"type": "string"}}}), written), json!({"v": "1.5"}));
}

// oceanbase/powercontext#1098: 725653563933458432 came out rounded.
#[test]
fn oceanbase_powercontext_1098_large_integers_stay_exact() {
    assert_eq!(to("string", json!(725_653_563_933_458_432_u64)), json!("725653563933458432"));
    assert_eq!(to("integer", json!("725653563933458432")), json!(725_653_563_933_458_432_u64));
    stays("integer", json!(725_653_563_933_458_432_u64));
    stays("number", json!(i64::MIN));
    // Beyond what an integer of a call can be, a whole decimal stays the decimal it is.
    for double in [1e300, -1e20, 1e20] {
        stays("integer", json!(double));
    }
}

#[test]
fn a_whole_number_is_written_as_the_integer() {
    for (double, integer) in [
        (20.0, "20"),
        (-3.0, "-3"),
        (0.0, "0"),
        (-0.0, "0"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (1e16, "10000000000000000"),
        (-1e17, "-100000000000000000"),
        (1e19, "10000000000000000000"),
        (1.234_567_890_123_45e18, "1234567890123450000"),
    ] {
        assert_eq!(to("integer", json!(double)).to_string(), integer);
    }
    stays("number", json!(20.0));
    let both = json!({"properties": {"v": {"type": ["number", "integer"]}}});
    assert_eq!(coerced(both, json!({"v": 20.0})).to_string(), "{\"v\":20}");
    let any_of_two = json!({"items": {"type": "number", "allOf": [{"type": "integer"}]}});
    assert_eq!(coerced(any_of_two, json!([20.0, 1.5, "7"])).to_string(), "[20,1.5,7]");
}

#[test]
fn a_type_list_is_tried_in_order_and_an_exact_match_wins() {
    let by = |types: Value, value: Value| coerced(json!({"items": {"type": types}}), json!([value]))[0].take();
    assert_eq!(by(json!(["integer", "string"]), json!("5")), json!("5"));
    assert_eq!(by(json!(["string", "integer"]), json!(5)), json!(5));
    assert_eq!(by(json!(["integer", "boolean"]), json!("5")), json!(5));
    assert_eq!(by(json!(["boolean", "integer"]), json!("5")), json!(5));
    assert_eq!(by(json!(["boolean", "string"]), json!(5)), json!("5"));
    assert_eq!(by(json!(["null", "integer"]), json!("null")), json!("null"));
    assert_eq!(by(json!(["null", "string"]), json!(null)), json!(null));
    assert_eq!(by(json!(["integer", "number"]), json!("1.5")), json!(1.5));
    assert_eq!(by(json!(["integer", "null"]), json!("x")), json!("x"));
}

#[test]
fn coercion_goes_through_the_named_keywords() {
    let integer = json!({"type": "integer"});
    let cases = [
        (json!({"properties": {"a": integer}}), json!({"a": "1", "b": "1"}), json!({"a": 1, "b": "1"})),
        (json!({"additionalProperties": integer}), json!({"a": "1"}), json!({"a": 1})),
        (
            json!({"properties": {"a": {"type": "string"}, "b": {}}, "additionalProperties": integer}),
            json!({"a": "1", "b": "1", "c": "1"}),
            json!({"a": "1", "b": "1", "c": 1}),
        ),
        (json!({"items": integer}), json!(["1", "x", "2"]), json!([1, "x", 2])),
        (json!({"prefixItems": [integer, true]}), json!(["1", "1", "1"]), json!([1, "1", "1"])),
        (json!({"prefixItems": [{"type": "string"}], "items": integer}), json!(["1", "1", "1"]), json!(["1", 1, 1])),
        (json!({"items": [integer], "additionalItems": {"type": "integer"}}), json!(["1", "1"]), json!([1, "1"])),
        (json!({"allOf": [{"properties": {"a": integer}}, {}]}), json!({"a": "1"}), json!({"a": 1})),
        (json!({"$ref": "#/$defs/x", "$defs": {"x": {"items": integer}}}), json!(["1"]), json!([1])),
        (
            json!({"properties": {"l": {"items": {"properties": {"n": {"allOf": [{"type": "integer"}]}}}}}}),
            json!({"l": [{"n": "1"}, {"n": "y"}]}),
            json!({"l": [{"n": 1}, {"n": "y"}]}),
        ),
    ];
    for (schema, arguments, expected) in cases {
        assert_eq!(coerced(schema.clone(), arguments), expected, "{schema}");
    }
}

#[test]
fn coercion_enters_nothing_else() {
    let integer = json!({"type": "integer"});
    for schema in [
        json!({"anyOf": [{"items": integer}]}),
        json!({"oneOf": [{"items": integer}]}),
        json!({"not": {"items": integer}}),
        json!({"if": {"items": integer}}),
        json!({"then": {"items": integer}, "else": {"items": integer}, "if": true}),
        json!({"contains": integer}),
        json!({"unevaluatedItems": integer}),
        json!({"$defs": {"items": integer}}),
        json!({"additionalItems": integer}),
        json!({"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x", "items": integer}}}),
    ] {
        assert_eq!(coerced(schema.clone(), json!(["1"])), json!(["1"]), "{schema}");
    }
    for schema in [
        json!({"patternProperties": {"^a": integer}}),
        json!({"patternProperties": {"^a": integer}, "additionalProperties": integer}),
        json!({"dependentSchemas": {"a": {"properties": {"a": integer}}}}),
        json!({"unevaluatedProperties": integer}),
        json!({"additionalProperties": true}),
    ] {
        assert_eq!(coerced(schema.clone(), json!({"a": "1"})), json!({"a": "1"}), "{schema}");
    }
    let both = json!({
        "properties": {"a1": {"type": "integer"}}, "patternProperties": {"^a": {}}, "additionalProperties": {"type": "integer"}
    });
    assert_eq!(coerced(both, json!({"a1": "1", "a2": "1", "b": "1"})), json!({"a1": 1, "a2": "1", "b": 1}));
}

// XcodeBuildMCP#419: references resolve by the base of the resource they stand in.
#[test]
fn xcodebuildmcp_419_references_inside_the_document_are_followed() {
    let integer = json!({"type": "integer"});
    for schema in [
        json!({"items": {"$ref": "#/$defs/a~1b%25"}, "$defs": {"a/b%": integer}}),
        json!({"items": {"$ref": "#n"}, "$defs": {"x": {"$anchor": "n", "type": "integer"}}}),
        json!({"$id": "https://example.com/t.json", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": integer}}),
        json!({"$id": "https://example.com/t.json", "items": {"$ref": "t.json#/$defs/x"}, "$defs": {"x": integer}}),
        json!({"items": {"$ref": "x.json"}, "$defs": {"x": {"$id": "x.json", "type": "integer"}}}),
        json!({"items": {"$ref": "urn:x:y"}, "$defs": {"x": {"$id": "urn:x:y", "type": "integer"}}}),
        json!({"items": {"$ref": "#/$defs/x"}, "$defs": {
            "x": {"$id": "x.json", "$ref": "#/$defs/y", "$defs": {"y": integer}}, "y": {"type": "boolean"}
        }}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "#n"},
               "definitions": {"x": {"$id": "#n", "type": "integer"}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/l", "items": {"type": "boolean"},
               "definitions": {"l": {"items": integer}}}),
    ] {
        assert_eq!(coerced(schema.clone(), json!(["1", "true"])), json!([1, "true"]), "{schema}");
        let compiled = CompiledSchema::compile(schema.clone(), DefaultDraft::Draft202012).expect("a schema");
        compiled.validate(&json!([1])).expect("valid by the validator too");
    }
    for lost in ["#/nowhere", "#none", "other.json", "https://example.com/x", "#/$defs/x/1/y", "#/%FF"] {
        let schema = json!({"items": {"$ref": lost}, "$defs": {"x": [1]}});
        assert_eq!(coerced(schema, json!(["1"])), json!(["1"]));
    }
}

#[test]
fn beside_a_reference_nothing_counts_up_to_draft_7() {
    let schema = json!({
        "items": {"$ref": "#/definitions/x", "type": "boolean"}, "definitions": {"x": {"type": ["boolean", "integer"]}}
    });
    let by = |draft: DefaultDraft, mut value: Value| {
        coerce_as(&schema, draft, &mut value);
        value
    };
    assert_eq!(by(DefaultDraft::Draft7, json!(["5", "true"])), json!([5, true]));
    assert_eq!(by(DefaultDraft::Draft202012, json!(["5", "true"])), json!(["5", true]));
}

#[test]
fn references_that_go_round_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
    ] {
        assert_eq!(coerced(schema, json!({"a": "1"})), json!({"a": "1"}));
    }
    let tree = json!({
        "properties": {"value": {"type": "integer"}, "children": {"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    });
    let nested = |leaf: Value| (0..60).fold(json!({"value": leaf}), |inner, _| json!({"children": [inner]}));
    assert_eq!(coerced(tree, nested(json!("5"))), nested(json!(5)));
}

#[test]
fn types_that_contradict_each_other_change_nothing() {
    let schema = json!({"items": {"type": "string", "allOf": [{"type": "integer"}]}});
    assert_eq!(coerced(schema, json!([5, "5", true])), json!([5, "5", true]));
    let fitting = json!({"items": {"type": ["integer", "string"], "allOf": [{"type": ["string", "null"]}]}});
    assert_eq!(coerced(fitting, json!([5, "x"])), json!(["5", "x"]));
}

#[test]
fn strange_schemas_and_values_are_left_alone() {
    for schema in
        [json!(true), json!(false), json!(5), json!({"type": 5}), json!({"type": []}), json!({"properties": 1})]
    {
        assert_eq!(coerced(schema, json!({"a": "1"})), json!({"a": "1"}));
    }
    assert_eq!(coerced(json!({"type": "integer"}), json!("5")), json!(5));
    assert_eq!(coerced(json!({"type": "array"}), json!({"a": 1})), json!({"a": 1}));
}

// FlowFuse#8575, xberg#1520, docker/mcp-gateway#414 and the rest of the family: names are compared as they are.
#[test]
fn member_names_are_compared_exactly() {
    let schema = json!({"properties": {"count": {"type": "integer"}}});
    assert_eq!(coerced(schema, json!({"Count": "1", "count": "2"})), json!({"Count": "1", "count": 2}));
}
