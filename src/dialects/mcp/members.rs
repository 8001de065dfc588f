//! What a tool says of itself beside its name and schemas. A server's list is handed on as it came, and a client that
//! reads it by the specification's types refuses all of it when one member of one tool has another: so each is looked at.

use super::super::checks::{json_type, quoted};
use serde_json::{Map, Value};

/// What is understood of them.
pub(super) struct Members<'a> {
    /// The tool's own, else that of its annotations.
    pub(super) title: Option<&'a str>,
    pub(super) description: Option<&'a str>,
    /// `annotations.readOnlyHint`.
    pub(super) read_only: bool,
}

/// Reads them, or says which one is none.
pub(super) fn read(item: &Map<String, Value>) -> Result<Members<'_>, String> {
    let title = text(item, "title")?;
    let description = text(item, "description")?;
    let annotations = object(item, "annotations")?;
    let read = |name: &str| annotations.map_or(Ok(false), |annotations| flag(annotations, name));
    let read_only = read("readOnlyHint")?;
    for other in ["destructiveHint", "idempotentHint", "openWorldHint"] {
        read(other)?;
    }
    let other_title = annotations.map_or(Ok(None), |annotations| text(annotations, "title"))?;
    object(item, "_meta")?;
    if let Some(execution) = object(item, "execution")? {
        one_of(execution, "taskSupport", &["required", "optional", "forbidden"])?;
    }
    icons(item)?;
    Ok(Members { title: title.or(other_title), description, read_only })
}

fn icons(item: &Map<String, Value>) -> Result<(), String> {
    for icon in list(item, "icons")? {
        let Some(icon) = icon.as_object() else {
            return Err(format!("each of icons must be an object and one is {}", json_type(icon)));
        };
        if text(icon, "src")?.is_none() {
            return Err("one of icons has no src".to_owned());
        }
        text(icon, "mimeType")?;
        one_of(icon, "theme", &["light", "dark"])?;
        if let Some(size) = list(icon, "sizes")?.iter().find(|size| !size.is_string()) {
            return Err(format!("each of sizes must be a string and one is {}", json_type(size)));
        }
    }
    Ok(())
}

fn wrong(member: &str, expected: &str, found: &Value) -> String {
    format!("{member} must be {expected} and is {}", json_type(found))
}

fn text<'a>(of: &'a Map<String, Value>, member: &str) -> Result<Option<&'a str>, String> {
    match of.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(member, "a string", other)),
    }
}

fn one_of(of: &Map<String, Value>, member: &str, words: &[&str]) -> Result<(), String> {
    match text(of, member)? {
        Some(word) if !words.contains(&word) => {
            Err(format!("{member} must be one of {} and is {}", words.join(", "), quoted(word)))
        }
        Some(_) | None => Ok(()),
    }
}

fn flag(of: &Map<String, Value>, member: &str) -> Result<bool, String> {
    match of.get(member) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong(member, "true or false", other)),
    }
}

fn object<'a>(of: &'a Map<String, Value>, member: &str) -> Result<Option<&'a Map<String, Value>>, String> {
    match of.get(member) {
        None => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(other) => Err(wrong(member, "an object", other)),
    }
}

fn list<'a>(of: &'a Map<String, Value>, member: &str) -> Result<&'a [Value], String> {
    match of.get(member) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(wrong(member, "an array", other)),
    }
}
