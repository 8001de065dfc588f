//! What a schema may cost: its text, its depth, its nodes, its patterns and its references.

use super::{SchemaFault, message};
use jsonschema::Draft;
use serde_json::Value;

/// Largest schema, as compact JSON.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Deepest nesting of JSON values; the schema itself is at depth 1.
pub const MAX_SCHEMA_DEPTH: usize = 32;

/// Most JSON values in a schema.
pub const MAX_SCHEMA_NODES: usize = 2_000;

/// Largest repetition count of a pattern: a string of 64 KiB is long enough for an argument.
const MAX_REPETITION: u64 = 65_536;

/// Compiled size allowed to all patterns of a schema together, and to one of them.
const ALL_PATTERNS_BYTES: usize = 8 * 1024 * 1024;
pub(super) const ONE_PATTERN_BYTES: usize = 2 * 1024 * 1024;

/// Estimates of what the compiled schema keeps in memory: its tree, and the validator made of it.
const BASE_WEIGHT_BYTES: usize = 1024;
const NODE_WEIGHT_BYTES: usize = 640;
/// The texts stand in both.
const TEXT_COPIES: usize = 2;
const PATTERN_WEIGHT_BYTES: usize = 16 * 1024;

/// Keywords whose value is a reference.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// How large a schema is that is within the limits.
#[derive(Debug, Default)]
pub(super) struct SchemaSize {
    text_bytes: usize,
    pub(super) nodes: usize,
    patterns: usize,
    /// References of every kind.
    pub(super) references: u64,
    /// It has `$dynamicRef` or `$recursiveRef`.
    pub(super) has_dynamic_references: bool,
    /// It has `anyOf` or `oneOf`.
    pub(super) has_alternatives: bool,
}

impl SchemaSize {
    pub(super) fn measure(schema: &Value) -> Result<Self, SchemaFault> {
        let mut size = Self::default();
        size.count(schema, 1)?;
        let mut bytes = ByteCount(0);
        // Nothing but the count can fail: a Value always prints as JSON.
        if serde_json::to_writer(&mut bytes, schema).is_err() {
            return Err(SchemaFault(format!("the schema is larger than {MAX_SCHEMA_BYTES} bytes as compact JSON")));
        }
        size.text_bytes = bytes.0;
        Ok(size)
    }

    fn count(&mut self, value: &Value, depth: usize) -> Result<(), SchemaFault> {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(SchemaFault(format!("the schema nests deeper than {MAX_SCHEMA_DEPTH} levels")));
        }
        self.nodes += 1;
        if self.nodes > MAX_SCHEMA_NODES {
            return Err(SchemaFault(format!("the schema has more than {MAX_SCHEMA_NODES} nodes")));
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.count_keyword(name, member)?;
                    self.count(member, depth + 1)?;
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.count(item, depth + 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn count_keyword(&mut self, keyword: &str, value: &Value) -> Result<(), SchemaFault> {
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => self.count_pattern(pattern),
            ("patternProperties", Value::Object(patterns)) => {
                patterns.keys().try_for_each(|pattern| self.count_pattern(pattern))
            }
            ("$ref", Value::String(_)) => {
                self.references += 1;
                Ok(())
            }
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                self.references += 1;
                self.has_dynamic_references = true;
                Ok(())
            }
            ("anyOf" | "oneOf", Value::Array(_)) => {
                self.has_alternatives = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count_pattern(&mut self, pattern: &str) -> Result<(), SchemaFault> {
        self.patterns += 1;
        if largest_repetition(pattern) > MAX_REPETITION {
            return Err(SchemaFault(format!(
                "the pattern {} repeats something more than {MAX_REPETITION} times",
                message::quoted(pattern)
            )));
        }
        Ok(())
    }

    /// How large one compiled pattern may get, so that many of them stay within one budget.
    pub(super) fn pattern_size_limit_bytes(&self) -> usize {
        (ALL_PATTERNS_BYTES / self.patterns.max(1)).min(ONE_PATTERN_BYTES)
    }

    pub(super) fn weight_bytes(&self) -> u32 {
        let (nodes, patterns) = (NODE_WEIGHT_BYTES * self.nodes, PATTERN_WEIGHT_BYTES * self.patterns);
        let bytes = BASE_WEIGHT_BYTES + nodes + patterns + TEXT_COPIES * self.text_bytes;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// The largest number in `{n}`, `{n,}` or `{n,m}` of a pattern.
fn largest_repetition(pattern: &str) -> u64 {
    let mut largest = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find(['\\', '{']) {
        let skipped = if rest.as_bytes()[at] == b'{' { 1 } else { 2 };
        let bounds_start = rest.get(at + skipped..);
        // What an escape takes along may be wider than a byte; then the search goes on right behind the backslash.
        rest = bounds_start.unwrap_or(&rest[at + 1..]);
        if skipped == 1 {
            let bounds = rest.split('}').next().unwrap_or_default();
            for bound in bounds.split(',').filter(|bound| bound.bytes().all(|b| b.is_ascii_digit())) {
                largest = largest.max(if bound.is_empty() { 0 } else { bound.parse().unwrap_or(u64::MAX) });
            }
        }
    }
    largest
}

/// Keywords whose value is data, whatever it looks like.
const DATA: [&str; 5] = ["enum", "const", "default", "examples", "example"];

/// Refuses two things the validator would take. A reference to a published metaschema would be answered from its own
/// store, but inside the document only means that too is outside; and a `$schema` further in that nobody knows would be
/// passed over.
pub(super) fn check_references(schema: &Value) -> Result<(), SchemaFault> {
    match schema {
        Value::Object(members) => members.iter().try_for_each(|(name, member)| match member {
            Value::String(text) => check_reference(name, text),
            Value::Object(_) | Value::Array(_) if DATA.contains(&name.as_str()) => Ok(()),
            Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {
                check_references(member)
            }
        }),
        Value::Array(items) => items.iter().try_for_each(check_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn check_reference(keyword: &str, text: &str) -> Result<(), SchemaFault> {
    if REFERENCES.contains(&keyword) && leads_to_metaschema(text) {
        return Err(SchemaFault(message::outside_reference(text)));
    }
    if keyword == "$schema" && Draft::from_schema_uri(text) == Draft::Unknown {
        return Err(SchemaFault(message::unknown_draft(text)));
    }
    Ok(())
}

fn leads_to_metaschema(reference: &str) -> bool {
    let lower = reference.to_ascii_lowercase();
    lower.starts_with("http://json-schema.org/") || lower.starts_with("https://json-schema.org/")
}

/// Counts what is written and fails beyond the limit.
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > MAX_SCHEMA_BYTES { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_repetition_of_a_pattern_is_found() {
        for (pattern, largest) in [
            ("^.{0,404600}$", 404_600),
            ("a{3}b{2,}", 3),
            (r"a\{99999\}", 0),
            (r"\\{7}", 7),
            ("{", 0),
            ("\\é{5}", 5),
            ("x{1,99999999999999999999999}", u64::MAX),
            ("\\", 0),
            (r"\p{L}{4}", 4),
        ] {
            assert_eq!(largest_repetition(pattern), largest, "{pattern}");
        }
    }
}
