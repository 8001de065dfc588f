//! From the bytes of a scanned body to a wire type.

use super::error::Problem;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Reads a body that is a JSON object.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let parsed: Result<Object<T>, _> = serde_json::from_slice(body);
    parsed
        .map(|object| object.0)
        .map_err(|error| Problem::invalid_request(named::<T>(body).unwrap_or(sentence(&error))))
}

/// The fault with the member it was found at: read once more, keeping track of where, which only a refusal pays for.
fn named<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let fault = serde_path_to_error::deserialize::<_, Object<T>>(&mut deserializer).err()?;
    let (path, sentence) = (fault.path().to_string(), sentence(fault.inner()));
    Some(if path == "." { sentence } else { format!("{path}: {sentence}") })
}

/// What serde found, without the position, which says little about a body that was read as one line.
fn sentence(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&position).unwrap_or(&text);
    ["u64", "u32", "u16", "u8", "usize"].iter().fold(text.to_owned(), |text, word| {
        text.replace(&format!("expected {word}"), "expected a whole number, not negative")
    })
}

/// A struct that is written as a JSON object. serde alone would also take an array of the members' values.
#[derive(Clone, Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A member of a `PATCH`: absent leaves things as they are, `null` clears them. Wants `#[serde(default)]` beside it.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        name: String,
        #[serde(default, deserialize_with = "present")]
        until: Option<Option<u64>>,
        inner: Option<Object<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code, reason = "only its shape matters here")]
        a: u64,
    }

    fn fault(body: &str) -> String {
        parse::<Sample>(body.as_bytes()).expect_err("refused").detail().to_owned()
    }

    #[test]
    fn an_unknown_member_is_named_and_a_missing_one_too() {
        assert!(fault(r#"{"name":"a","nmae":1}"#).contains("nmae"));
        assert!(fault(r#"{"name":"a","inner":{"a":1,"b":2}}"#).contains("`b`"));
        assert!(fault("{}").contains("name"));
        assert_eq!(fault(r#"{"name":5}"#), "name: invalid type: integer `5`, expected a string");
        let nested = fault(r#"{"name":"a","inner":{"a":-1}}"#);
        assert_eq!(nested, "inner.a: invalid value: integer `-1`, expected a whole number, not negative");
    }

    #[test]
    fn an_array_is_no_object_at_any_level() {
        assert!(fault(r#"["a",null,null]"#).contains("JSON object"));
        assert!(fault(r#"{"name":"a","inner":[1]}"#).contains("JSON object"));
        assert!(fault("\"a\"").contains("JSON object"));
    }

    #[test]
    fn absent_and_null_are_two_things() {
        let until = |body: &str| parse::<Sample>(body.as_bytes()).map(|sample| sample.until).expect("accepted");
        assert_eq!(until(r#"{"name":"a"}"#), None);
        assert_eq!(until(r#"{"name":"a","until":null}"#), Some(None));
        assert_eq!(until(r#"{"name":"a","until":3}"#), Some(Some(3)));
        let named = parse::<Sample>(br#"{"name":"a","inner":{"a":1}}"#).expect("accepted");
        assert!(named.inner.is_some() && named.name == "a");
    }
}
