//! What an `inputSchema` may say: a closed, flat object of scalars, and not a word more.

use super::super::checks::quoted;
use crate::domain::schema;
use crate::domain::tool::Dialect;
use serde_json::{Map, Value};

/// Longest schema as compact JSON, in UTF-16 units.
const MAX_UTF16_UNITS: usize = 8_000;

/// Most properties.
const MAX_PROPERTIES: usize = 20;

/// The members of the schema; there are no others.
const SCHEMA_MEMBERS: [&str; 4] = ["type", "properties", "required", "additionalProperties"];

/// The members of a property; there are no others.
const PROPERTY_MEMBERS: [&str; 3] = ["type", "description", "enum"];

/// Checks a schema; the error goes on after the words "inputSchema ".
pub(super) fn check_input_schema(schema: &Value) -> Result<(), String> {
    let members = schema.as_object().ok_or("must be an object")?;
    only_known(members, &SCHEMA_MEMBERS)?;
    if members.get("type").and_then(Value::as_str) != Some("object") {
        return Err("must have the type \"object\"".to_owned());
    }
    if members.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err("must have additionalProperties:false".to_owned());
    }
    let properties =
        members.get("properties").and_then(Value::as_object).ok_or("must have properties, which is an object")?;
    if properties.len() > MAX_PROPERTIES {
        return Err(format!("has {} properties; {MAX_PROPERTIES} are allowed", properties.len()));
    }
    for (name, property) in properties {
        check_property(property).map_err(|what| format!("property {} {what}", quoted(name)))?;
    }
    if let Some(required) = members.get("required") {
        check_required(required, properties)?;
    }
    let length = schema.to_string().encode_utf16().count();
    if length > MAX_UTF16_UNITS {
        return Err(format!("has {length} UTF-16 units as compact JSON; {MAX_UTF16_UNITS} are allowed"));
    }
    schema::check(schema, Dialect::Median.default_draft()).map_err(|fault| format!("is refused: {fault}"))
}

fn only_known(members: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match members.keys().find(|member| !known.contains(&member.as_str())) {
        Some(unknown) => Err(format!("may not have the member {}", quoted(unknown))),
        None => Ok(()),
    }
}

fn check_property(property: &Value) -> Result<(), String> {
    let members = property.as_object().ok_or("must be an object")?;
    only_known(members, &PROPERTY_MEMBERS)?;
    let scalar = members
        .get("type")
        .and_then(Value::as_str)
        .and_then(Scalar::parse)
        .ok_or("must have the type string, number, integer or boolean")?;
    if members.get("description").is_some_and(|description| !description.is_string()) {
        return Err("must have a string as description, or none".to_owned());
    }
    match members.get("enum") {
        None => Ok(()),
        Some(Value::Array(values)) if !values.is_empty() && values.iter().all(|value| scalar.holds(value)) => Ok(()),
        Some(_) => Err("must have as enum a list of values of its type, or none".to_owned()),
    }
}

fn check_required(required: &Value, properties: &Map<String, Value>) -> Result<(), String> {
    let names = required.as_array().ok_or("must have a list as required, or none")?;
    for name in names {
        let name = name.as_str().ok_or("must have only names in required")?;
        if !properties.contains_key(name) {
            return Err(format!("requires {}, which is none of its properties", quoted(name)));
        }
    }
    Ok(())
}

/// The types a property may have.
#[derive(Clone, Copy)]
enum Scalar {
    String,
    Number,
    Integer,
    Boolean,
}

impl Scalar {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "string" => Some(Scalar::String),
            "number" => Some(Scalar::Number),
            "integer" => Some(Scalar::Integer),
            "boolean" => Some(Scalar::Boolean),
            _ => None,
        }
    }

    fn holds(self, value: &Value) -> bool {
        match self {
            Scalar::String => value.is_string(),
            Scalar::Number => value.is_number(),
            Scalar::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            Scalar::Boolean => value.is_boolean(),
        }
    }
}
