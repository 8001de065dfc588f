//! Arguments that are repeated in headers: `x-mcp-header` of the specification, and how a header holds any text.

use super::super::checks::quoted;
use crate::domain::json::JsonText;
use crate::domain::tool::HeaderParam;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;

const ANNOTATION: &str = "x-mcp-header";
const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Numbers beyond this are rounded by somebody on the way: 2^53 - 1.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The annotated properties of an input schema, or a sentence saying which annotation breaks the rules: a tool with such
/// a one has to be left out.
pub(super) fn declared(schema: &Value) -> Result<Vec<HeaderParam>, String> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    collect(schema, &mut path, &mut found)?;
    if count(schema) != found.len() {
        return Err(format!(
            "{ANNOTATION} stands where no chain of properties leads to it, so there is no one value to send"
        ));
    }
    let mut names = HashSet::new();
    match found.iter().find(|param| !names.insert(param.name.to_ascii_lowercase())) {
        Some(twice) => Err(format!("{ANNOTATION} {} stands twice", quoted(&twice.name))),
        None => Ok(found),
    }
}

/// Follows `properties` and nothing else.
fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<HeaderParam>) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(annotation) = property.get(ANNOTATION) {
            let name = header_name(annotation)?;
            check_type(property, &name)?;
            found.push(HeaderParam { path: path.clone(), name });
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn header_name(annotation: &Value) -> Result<String, String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    match annotation {
        Value::String(name) if !name.is_empty() && name.bytes().all(is_token) => Ok(name.clone()),
        other => Err(format!("{ANNOTATION} must be a part of a header's name and is {}", quoted(&other.to_string()))),
    }
}

fn check_type(property: &Value, name: &str) -> Result<(), String> {
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(()),
        Some(_) | None => Err(format!("{ANNOTATION} {} wants a string, integer or boolean", quoted(name))),
    }
}

/// How many annotations stand anywhere in a schema. What only looks like one (a property of that name, wherever names of
/// properties are members; a value inside `default`, `const`, `enum` or `examples`) is none.
fn count(schema: &Value) -> usize {
    let members = |map: &Map<String, Value>| map.values().map(count).sum::<usize>();
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                (ANNOTATION, _) => 1,
                (
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                    | "dependentRequired" | "dependencies",
                    Value::Object(map),
                ) => members(map),
                ("default" | "const" | "enum" | "examples", _) => 0,
                (_, value) => count(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The headers of a call: one for each annotated argument that is there and not null.
pub(super) fn headers(params: &[HeaderParam], arguments: Option<&JsonText>) -> Vec<(Cow<'static, str>, String)> {
    if params.is_empty() {
        return Vec::new();
    }
    let arguments: Value = arguments.and_then(|text| serde_json::from_str(text.as_str()).ok()).unwrap_or_default();
    let header = |param: &HeaderParam| {
        let value = param.path.iter().try_fold(&arguments, |value, name| value.get(name))?;
        Some((Cow::Owned(format!("mcp-param-{}", param.name.to_ascii_lowercase())), text_of(value)?))
    };
    params.iter().filter_map(header).collect()
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(encoded(text)),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) if number.as_i64().is_none_or(|n| n.unsigned_abs() > MAX_SAFE_INTEGER.unsigned_abs()) => {
            None
        }
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text as a header holds it: as it is where it can be, else as base64 between two marks. Tabs and no text at all may
/// be written as they are, but not everybody on the way keeps them.
pub fn encoded(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.bytes().all(|b| matches!(b, b' '..=b'~'))
        && text.trim_matches(' ') == text
        && !(text.starts_with(OPEN) && text.ends_with(CLOSE));
    if is_plain { text.to_owned() } else { [OPEN, &STANDARD.encode(text), CLOSE].concat() }
}

/// The text a header holds; `None` when what stands between the marks is no base64 of a text.
pub fn decoded(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) {
        None => Some(Cow::Borrowed(value)),
        Some(base64) => String::from_utf8(STANDARD.decode(base64).ok()?).ok().map(Cow::Owned),
    }
}
