//! Manifest items.

use serde_json::{Value, json};

/// A topology tool without arguments.
pub(crate) fn topology(name: &str, kind: &str) -> Value {
    topology_with(name, kind, &json!({ "type": "object" }))
}

pub(crate) fn topology_with(name: &str, kind: &str, input_schema: &Value) -> Value {
    json!({
        "id": format!("topology:{name}"),
        "title": format!("Title of {name}"),
        "description": format!("Does what {name} says"),
        "kind": kind,
        "input_schema": input_schema,
    })
}

/// The item with one member set.
pub(crate) fn having(mut item: Value, member: &str, value: Value) -> Value {
    item[member] = value;
    item
}

pub(crate) fn median(name: &str, risk: &str) -> Value {
    median_with(name, risk, &json!({}))
}

pub(crate) fn median_with(name: &str, risk: &str, properties: &Value) -> Value {
    json!({
        "name": name,
        "description": format!("Does what {name} says"),
        "risk": risk,
        "inputSchema": { "type": "object", "properties": properties, "additionalProperties": false },
    })
}

pub(crate) fn median_manifest(tools: &[Value]) -> Value {
    json!({ "version": 1, "tools": tools })
}
