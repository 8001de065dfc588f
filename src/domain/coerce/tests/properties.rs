//! What holds for every schema and every value.

use super::*;
use crate::domain::canonical::to_canonical;
use proptest::prelude::*;

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const NAMES: [&str; 4] = ["a", "b", "x-c", "Ä"];

fn any_type() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => prop::sample::select(TYPES.as_slice()).prop_map(Value::from),
        1 => prop::sample::subsequence(TYPES.as_slice(), 1..4).prop_shuffle().prop_map(|types| json!(types)),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => any_type().prop_map(|types| json!({"type": types})),
        1 => Just(json!({"$ref": "#"})),
        1 => Just(json!({"$ref": "#/$defs/d"})),
        1 => Just(json!(true)),
        1 => Just(json!({"enum": ["1", 2, true]})),
    ];
    let schema = leaf.prop_recursive(4, 32, 4, |inner| {
        let named = prop::collection::vec((prop::sample::select(NAMES.as_slice()), inner.clone()), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()));
        prop_oneof![
            (named.clone(), inner.clone()).prop_map(|(p, a)| json!({"properties": p, "additionalProperties": a})),
            (named, inner.clone(), inner.clone()).prop_map(|(p, x, a)| json!({
                "properties": p, "patternProperties": {"^x-": x}, "additionalProperties": a
            })),
            inner.clone().prop_map(|items| json!({"items": items})),
            (prop::collection::vec(inner.clone(), 1..3), inner.clone())
                .prop_map(|(prefix, rest)| json!({"prefixItems": prefix, "items": rest})),
            (any_type(), prop::collection::vec(inner.clone(), 1..3))
                .prop_map(|(types, all)| json!({"type": types, "allOf": all})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|any| json!({"anyOf": any})),
            inner.prop_map(|not| json!({"not": not})),
        ]
    });
    (schema.clone(), schema).prop_map(|(root, d)| match root {
        Value::Object(mut members) => {
            members.insert("$defs".to_owned(), json!({"d": d}));
            Value::Object(members)
        }
        other => other,
    })
}

fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-99_i64..99).prop_map(Value::from),
        (-99_i64..99).prop_map(|n| json!(n as f64)),
        Just(json!(-0.0)),
        (-999_999_999_999_999_i64..=999_999_999_999_999, -30_i32..30)
            .prop_map(|(digits, e)| json!(format!("{digits}e{e}").parse::<f64>().expect("a number"))),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?".prop_map(Value::from),
        "true|false|null| 1|0x1|\\PC{0,4}".prop_map(Value::from),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    any_scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(NAMES.as_slice()), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// Compares two values leaf by leaf: each pair is equal, or one spells the other.
fn is_lossless(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, v), (l, w))| k == l && is_lossless(v, w))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(v, w)| is_lossless(v, w)),
        (Value::String(text), Value::Number(_) | Value::Bool(_)) => {
            // The spelling read as JSON is the very value, digit by digit.
            serde_json::from_str::<Value>(text).is_ok_and(|read| to_canonical(&read) == to_canonical(after))
        }
        (Value::Number(_) | Value::Bool(_), Value::String(text)) => to_canonical(before) == *text,
        (before, after) => to_canonical(before) == to_canonical(after),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn coercing_twice_changes_nothing_and_nothing_is_lost(schema in any_schema(), value in any_value()) {
        let mut once = value.clone();
        let changed = coerce(&schema, &mut once);
        prop_assert_eq!(changed, once != value);
        prop_assert!(is_lossless(&value, &once), "{} became {}", value, once);
        let mut twice = once.clone();
        prop_assert!(!coerce(&schema, &mut twice), "{} became {} became {}", value, once, twice);
    }

    #[test]
    fn what_comes_out_validates_or_is_refused_and_what_validates_stays(schema in any_schema(), value in any_value()) {
        let compiled = CompiledSchema::compile(schema.clone(), DefaultDraft::Draft202012);
        let Ok(compiled) = compiled else { return Ok(()) };
        let mut out = value.clone();
        coerce(&schema, &mut out);
        let after = compiled.validate(&out);
        if let Err(errors) = &after {
            prop_assert!(!errors.is_empty() && errors.len() <= 20);
        }
        if compiled.validate(&value).is_ok() {
            prop_assert!(after.is_ok(), "{} was valid, {} is not", value, out);
            // Only the spelling of whole numbers may differ.
            prop_assert_eq!(to_canonical(&value), to_canonical(&out));
        }
    }

    #[test]
    fn a_scalar_comes_out_in_its_type_or_as_it_was(types in any_type(), value in any_scalar()) {
        let schema = json!({"type": types});
        let compiled = CompiledSchema::compile(schema.clone(), DefaultDraft::Draft202012).expect("a schema");
        let mut out = value.clone();
        if coerce(&schema, &mut out) {
            prop_assert!(compiled.validate(&out).is_ok());
        } else {
            prop_assert_eq!(out, value);
        }
    }
}
