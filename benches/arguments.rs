//! What do the checks of a call's arguments cost? Each step against parsing the same body with serde_json alone.

mod support;

use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Duration;
use support::{best_ns, report};
use toolgate::domain::canonical::sha256_hex;
use toolgate::domain::json::JsonText;
use toolgate::domain::json_scan::scan;
use toolgate::domain::schema::{CompiledSchema, DefaultDraft};

const FOR: Duration = Duration::from_millis(500);

fn main() {
    let body = r#"{"tool":"orders-search","args":{"customer":"ACME GmbH","limit":"20","open":"true","since":"2026-01-01","tags":["a","b","c"],"price":{"min":"1.50","max":99}},"request_id":"r-1"}"#;
    let schema = json!({
        "type": "object",
        "properties": {
            "customer": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "open": {"type": "boolean"},
            "since": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "price": {"type": "object", "properties": {"min": {"type": "number"}, "max": {"type": "number"}}}
        },
        "required": ["customer"],
        "additionalProperties": false
    });
    let draft = DefaultDraft::Draft7;
    let arguments = serde_json::from_str::<Value>(body).expect("JSON")["args"].clone();
    let schema = JsonText::of(&schema);
    let compiled = CompiledSchema::compile_text(&schema, draft).expect("a good schema");
    let mut coerced = arguments.clone();
    compiled.coerce(&mut coerced);

    let parse = best_ns(FOR, || drop(black_box(serde_json::from_str::<Value>(black_box(body)))));
    report("serde_json parse of the body", parse, None);
    let against = Some(("parse", parse));
    report("scan of the raw bytes", best_ns(FOR, || drop(black_box(scan(black_box(body.as_bytes()))))), against);
    let copy = best_ns(FOR, || drop(black_box(arguments.clone())));
    let coercing = best_ns(FOR, || {
        let mut arguments = arguments.clone();
        black_box(compiled.coerce(&mut arguments));
    });
    report("coercion of four scalars", (coercing - copy).max(0.0), against);
    let mut exact = coerced.clone();
    let idle = best_ns(FOR, || {
        black_box(compiled.coerce(&mut exact));
    });
    report("coercion that finds nothing to do", idle, against);
    report("validation of a valid call", best_ns(FOR, || drop(black_box(compiled.validate(&coerced)))), against);
    let wrong = json!({"limit": 0, "surplus": 1});
    report("validation of a wrong call", best_ns(FOR, || drop(black_box(compiled.validate(&wrong)))), against);
    report("canonical hash of the arguments", best_ns(FOR, || drop(black_box(sha256_hex(&coerced)))), against);
    let compile = best_ns(FOR, || drop(black_box(CompiledSchema::compile_text(&schema, draft))));
    report("parsing and compiling the schema (once a tool)", compile, against);
}
