//! Canonical JSON: RFC 8785, except that an integer beyond ±2⁵³ is written with all its digits.
//!
//! The RFC would round such an integer to a double, and two different calls would share a fingerprint.

#[cfg(test)]
mod tests;

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::fmt::Write;

/// The canonical text of a value.
pub fn to_canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// SHA-256 of the canonical text, 64 lower-case hex digits.
pub fn sha256_hex(value: &Value) -> String {
    hex::encode(Sha256::digest(to_canonical(value).as_bytes()))
}

/// The canonical text of a number.
pub(crate) fn number_text(number: &Number) -> String {
    let mut text = String::new();
    write_number(&mut text, number);
    text
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by(|(a, _), (b, _)| compare_names(a, b));
            out.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, name);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

/// By UTF-16 code units: differs from the order of the UTF-8 bytes only beyond U+FFFF.
fn compare_names(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

fn write_number(out: &mut String, number: &Number) {
    const CANNOT_FAIL: &str = "writing to a String cannot fail";
    if let Some(integer) = number.as_i64() {
        write!(out, "{integer}").expect(CANNOT_FAIL);
    } else if let Some(integer) = number.as_u64() {
        write!(out, "{integer}").expect(CANNOT_FAIL);
    } else if let Some(double) = number.as_f64() {
        out.push_str(ryu_js::Buffer::new().format(double));
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0C => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            control => {
                out.push_str("\\u00");
                out.push(char::from(b'0' + (control >> 4)));
                out.push(char::from_digit(u32::from(control & 0xF), 16).unwrap_or('0'));
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}
