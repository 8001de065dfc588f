//! What every dialect's manifest is held to once its own rules are met: names of the catalog, and sentences that a
//! tool's author can act on.

use crate::domain::manifest::{SyncFault, SyncReason};
use crate::domain::naming::{MAX_TOOL_NAME, RESERVED_TOOL_PREFIX, fold, is_reserved};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Most characters of a provider's text that a sentence repeats.
const MAX_QUOTED: usize = 128;

/// A provider's text inside a sentence: in quotes, without control characters, cut when it is long.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_QUOTED).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// What kind of JSON value this is, for sentences.
pub(super) const fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The value of a JSON text, or the text itself as a string when it holds what no `Value` can, such as `1e400`: for a
/// hash, which has to move when the text does.
pub(super) fn value_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The catalog name of a tool: the endpoint's prefix and the provider's own name, which the caller has checked by its
/// dialect's rule. No name is ever cut or changed to make it fit.
pub(super) fn catalog_name(prefix: Option<&str>, own_name: &str) -> Result<String, SyncFault> {
    let name = format!("{}{own_name}", prefix.unwrap_or_default());
    let length = name.chars().count();
    if length > MAX_TOOL_NAME {
        let whole = match prefix {
            Some(_) => format!("with the endpoint's prefix the name {}", quoted(&name)),
            None => "the name".to_owned(),
        };
        return Err(SyncFault::new(
            SyncReason::BadName,
            format!("tool {}: {whole} has {length} characters; {MAX_TOOL_NAME} are allowed", quoted(own_name)),
        ));
    }
    if is_reserved(&name) {
        return Err(SyncFault::new(
            SyncReason::ReservedName,
            format!(
                "tool {}: the name {} begins with {RESERVED_TOOL_PREFIX}, which is the gateway's own",
                quoted(own_name),
                quoted(&name)
            ),
        ));
    }
    Ok(name)
}

/// The names of one manifest so far, in the form in which names clash.
#[derive(Default)]
pub(super) struct TakenNames(HashMap<String, String>);

impl TakenNames {
    /// Takes a catalog name for a tool, unless an earlier tool of the manifest has it.
    pub(super) fn take(&mut self, name: &str) -> Result<(), SyncFault> {
        match self.0.insert(fold(name), name.to_owned()) {
            None => Ok(()),
            Some(first) => {
                let message = if first == name {
                    format!("tool {}: the manifest declares this name twice", quoted(name))
                } else {
                    format!(
                        "tool {}: the manifest also declares {}; names that differ only by case or by '.', '-', '_' clash",
                        quoted(name),
                        quoted(&first)
                    )
                };
                self.0.insert(fold(name), first);
                Err(SyncFault::new(SyncReason::DuplicateName, message))
            }
        }
    }
}

/// A JSON object's known members. serde would also fill a struct from an array of values: that is no object.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    if json.trim_ascii_start().starts_with(b"{") { serde_json::from_slice(json).ok() } else { None }
}

/// Keeps a member that is there, also when it is `null`, for `deserialize_with`.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
