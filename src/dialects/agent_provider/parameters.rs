//! What `parameters` may say: a JSON Schema object that is closed at every object, with no parameter named like a member
//! of the context.

use super::super::checks::{json_type, quoted};
use crate::domain::schema::{self, name_matches};
use crate::domain::tool::Dialect;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Members of the context: a parameter of such a name could pass for what the gateway says of a call [S1].
const CONTEXT_FIELDS: [&str; 7] = ["workspace", "conversation", "turn", "subject", "locale", "timezone", "now"];

/// Keywords that hold one schema.
const ONE: [&str; 10] = [
    "items",
    "additionalItems",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "contentSchema",
];

/// Keywords that hold a list of schemas; `items` of older drafts is one of them.
const LIST: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];

/// Keywords that hold schemas by name.
const BY_NAME: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Checks a schema; the error goes on after the words "parameters ".
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let members =
        schema.as_object().ok_or_else(|| format!("must be a JSON Schema object and is {}", json_type(schema)))?;
    // Size, depth and metaschema first: what follows walks through the schema, and its own faults say more.
    schema::check(schema, Dialect::AgentProvider.default_draft()).map_err(|fault| format!("is refused: {fault}"))?;
    if members.get("type").and_then(Value::as_str) != Some("object") {
        return Err("must have the type \"object\"".to_owned());
    }
    closed_throughout(schema, members)?;
    check_names(members)
}

/// Every subschema where subschemas stand, and whatever a reference makes one elsewhere.
fn closed_throughout(schema: &Value, members: &Map<String, Value>) -> Result<(), String> {
    let mut walk = Walk::default();
    walk.closed(members)?;
    let mut seen = HashSet::new();
    while let Some(reference) = walk.references.pop() {
        let target = reference.strip_prefix('#').and_then(|pointer| schema.pointer(pointer)).and_then(Value::as_object);
        if let Some(target) = target.filter(|_| seen.insert(reference)) {
            walk.path = vec![reference];
            walk.closed(target)?;
        }
    }
    Ok(())
}

fn check_names(members: &Map<String, Value>) -> Result<(), String> {
    let object = |keyword: &str| members.get(keyword).and_then(Value::as_object);
    let is_taken = |field: &&&str| {
        object("properties").is_some_and(|properties| properties.contains_key(**field))
            || object("patternProperties")
                .is_some_and(|patterns| patterns.keys().any(|pattern| name_matches(pattern, field)))
    };
    match CONTEXT_FIELDS.iter().find(is_taken) {
        Some(field) => Err(format!(
            "may not have a parameter {}, which is a member of the context of every call; give it another name",
            quoted(field)
        )),
        None => Ok(()),
    }
}

/// A walk through a schema.
#[derive(Default)]
struct Walk<'a> {
    /// Where it stands.
    path: Vec<&'a str>,
    /// References it came by.
    references: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    /// Refuses an object that takes members it does not name.
    fn closed(&mut self, members: &'a Map<String, Value>) -> Result<(), String> {
        if is_object(members) && members.get("additionalProperties") != Some(&Value::Bool(false)) {
            let place = if self.path.is_empty() { "the top level".to_owned() } else { quoted(&self.path.join("/")) };
            return Err(format!("must be closed at every object: add additionalProperties:false at {place}"));
        }
        for (keyword, value) in members {
            self.path.push(keyword);
            match value {
                Value::Object(inner) if ONE.contains(&keyword.as_str()) => self.closed(inner)?,
                Value::Object(inner) if BY_NAME.contains(&keyword.as_str()) => {
                    for (name, schema) in inner {
                        if let Value::Object(schema) = schema {
                            self.path.push(name);
                            self.closed(schema)?;
                            self.path.pop();
                        }
                    }
                }
                Value::Array(schemas) if LIST.contains(&keyword.as_str()) => {
                    schemas.iter().filter_map(Value::as_object).try_for_each(|schema| self.closed(schema))?;
                }
                Value::String(reference) if matches!(keyword.as_str(), "$ref" | "$dynamicRef") => {
                    self.references.push(reference);
                }
                Value::Object(_)
                | Value::Array(_)
                | Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_) => {}
            }
            self.path.pop();
        }
        Ok(())
    }
}

/// Whether a schema speaks of objects.
fn is_object(members: &Map<String, Value>) -> bool {
    let by_type = match members.get("type") {
        Some(Value::String(word)) => word == "object",
        Some(Value::Array(words)) => words.iter().any(|word| word == "object"),
        Some(_) | None => false,
    };
    let speaks = ["properties", "patternProperties", "additionalProperties", "unevaluatedProperties"];
    by_type || speaks.iter().any(|keyword| members.contains_key(*keyword))
}
