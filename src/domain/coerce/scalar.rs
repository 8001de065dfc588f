//! The table of lossless conversions.

use crate::domain::canonical;
use crate::domain::json_scan::{NumberKind, NumberScan, check_number};
use serde_json::{Number, Value};

/// A type word of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonType {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl JsonType {
    const ALL: [JsonType; 7] = [
        JsonType::Null,
        JsonType::Boolean,
        JsonType::Integer,
        JsonType::Number,
        JsonType::String,
        JsonType::Array,
        JsonType::Object,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            JsonType::Null => "null",
            JsonType::Boolean => "boolean",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::String => "string",
            JsonType::Array => "array",
            JsonType::Object => "object",
        }
    }

    fn parse(word: &Value) -> Option<Self> {
        let word = word.as_str()?;
        Self::ALL.into_iter().find(|json_type| json_type.as_str() == word)
    }

    fn is_satisfied_by(self, value: &Value) -> bool {
        match self {
            JsonType::Null => value.is_null(),
            JsonType::Boolean => value.is_boolean(),
            JsonType::Integer => value.as_number().is_some_and(is_integral),
            JsonType::Number => value.is_number(),
            JsonType::String => value.is_string(),
            JsonType::Array => value.is_array(),
            JsonType::Object => value.is_object(),
        }
    }

    /// The value in this type, when the table has a lossless way.
    fn convert(self, value: &Value) -> Option<Value> {
        match (value, self) {
            (Value::String(text), JsonType::Integer) => parse_integer(text).map(Value::Number),
            (Value::String(text), JsonType::Number) => parse_number(text).map(Value::Number),
            (Value::String(text), JsonType::Boolean) => match text.as_str() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                _ => None,
            },
            (Value::Number(number), JsonType::String) => Some(Value::String(canonical::number_text(number))),
            (Value::Bool(flag), JsonType::String) => Some(Value::String(flag.to_string())),
            (
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
                JsonType::Null
                | JsonType::Boolean
                | JsonType::Integer
                | JsonType::Number
                | JsonType::String
                | JsonType::Array
                | JsonType::Object,
            ) => None,
        }
    }
}

/// One `type` keyword: its types in the order they are tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Types {
    order: [Option<JsonType>; 7],
}

impl Types {
    pub(super) fn of(keyword: &Value) -> Self {
        let mut types = Self::default();
        let words = keyword.as_array().map_or(std::slice::from_ref(keyword), Vec::as_slice);
        for (slot, json_type) in types.order.iter_mut().zip(words.iter().filter_map(JsonType::parse)) {
            *slot = Some(json_type);
        }
        types
    }

    fn iter(&self) -> impl Iterator<Item = JsonType> {
        self.order.into_iter().flatten()
    }

    /// An exact match with any of the types; a keyword without a known type asks for nothing.
    fn are_satisfied_by(&self, value: &Value) -> bool {
        self.order[0].is_none() || self.iter().any(|json_type| json_type.is_satisfied_by(value))
    }

    fn convert(&self, value: &Value) -> Option<Value> {
        self.iter().find_map(|json_type| json_type.convert(value))
    }

    fn name_integer(&self) -> bool {
        self.iter().any(|json_type| json_type == JsonType::Integer)
    }
}

/// Brings a scalar to all the declared types, or leaves it as it is; true when it changed.
pub(super) fn coerce(value: &mut Value, declared: &[Types]) -> bool {
    let mut converted: Option<Value> = None;
    for types in declared {
        let current = converted.as_ref().unwrap_or(value);
        if !types.are_satisfied_by(current) {
            match types.convert(current) {
                Some(next) => converted = Some(next),
                None => return false,
            }
        }
    }
    if declared.iter().any(Types::name_integer)
        && let Some(integer) = as_written_integer(converted.as_ref().unwrap_or(value))
    {
        converted = Some(integer);
    }
    match converted {
        // A later conversion may have undone an earlier one: then no spelling fits them all.
        Some(fitting) if declared.iter().all(|types| types.are_satisfied_by(&fitting)) => {
            *value = fitting;
            true
        }
        Some(_) | None => false,
    }
}

fn is_integral(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|double| double.fract() == 0.0)
}

/// `20.0` as `20`. The shortest decimal that means the double is what was written, since a call's decimals have at most 15
/// digits; beyond 2⁵³ the double's own digits would not be.
fn as_written_integer(value: &Value) -> Option<Value> {
    let number = value.as_number().filter(|number| number.is_f64())?;
    let double = number.as_f64().filter(|double| double.fract() == 0.0)?;
    if double == 0.0 {
        return Some(Value::from(0));
    }
    parse_integer(ryu_js::Buffer::new().format(double)).map(Value::Number)
}

fn parse_integer(text: &str) -> Option<Number> {
    match check_number(text.as_bytes()) {
        NumberScan::Exact { kind: NumberKind::Integer, length, negative_zero: false } if length == text.len() => {
            text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from)).ok()
        }
        NumberScan::Exact { .. } | NumberScan::Inexact { .. } | NumberScan::NoNumber { .. } => None,
    }
}

fn parse_number(text: &str) -> Option<Number> {
    match check_number(text.as_bytes()) {
        NumberScan::Exact { kind: NumberKind::Integer, .. } => parse_integer(text),
        NumberScan::Exact { kind: NumberKind::Decimal, length, negative_zero: false } if length == text.len() => {
            text.parse().ok().and_then(Number::from_f64)
        }
        NumberScan::Exact { .. } | NumberScan::Inexact { .. } | NumberScan::NoNumber { .. } => None,
    }
}
