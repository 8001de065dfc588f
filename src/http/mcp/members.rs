//! JSON objects as text: members are looked at, replaced and left out, and everything else stays as it came.

use crate::http::conditional::to_json;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The members of one object, in their order.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Members<'a> {
    /// The members of an object; `None` when the text is none.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of a member.
    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref())
    }

    /// Whether a member is there and is exactly this text.
    pub(super) fn is(&self, name: &str, json: &str) -> bool {
        self.get(name).is_some_and(|value| value.get() == json)
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a value in the place of a member, or at the end.
    pub(super) fn set(&mut self, name: &'static str, json: String) {
        let value = RawValue::from_string(json).expect("our own texts, and those that were read, are JSON");
        match self.0.iter_mut().find(|(found, _)| found == name) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((Cow::Borrowed(name), Cow::Owned(value))),
        }
    }

    /// Takes a member out.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(found, _)| found != name);
    }

    /// Keeps only these members.
    pub(super) fn keep(&mut self, names: &[&str]) {
        self.0.retain(|(found, _)| names.contains(&found.as_ref()));
    }

    /// The object as text.
    pub(super) fn to_text(&self) -> String {
        let length: usize = self.0.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum();
        let mut text = String::with_capacity(length + 2);
        text.push('{');
        for (name, value) in &self.0 {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&quoted(name));
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name, Cow::Borrowed(value)));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    String::from_utf8(to_json(&text)).expect("JSON is UTF-8")
}

/// The same JSON without the space between its tokens.
pub(super) fn compact(json: &str) -> Cow<'_, str> {
    let is_space = |c: char| matches!(c, ' ' | '\n' | '\r' | '\t');
    if !json.contains(is_space) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if !in_string && is_space(c) {
            continue;
        }
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
        text.push(c);
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_touched_stays_as_it_came() {
        let text = r#"{"a":1.50,"b" : {"name":"inner"} ,"\u006eame":"x","z":12345678901234567890123}"#;
        let mut members = Members::of(text).expect("an object");
        assert!(members.is("name", r#""x""#));
        members.set("name", quoted("y"));
        members.remove("a");
        members.set("c", "[]".to_owned());
        let expected = r#"{"b":{"name":"inner"},"name":"y","z":12345678901234567890123,"c":[]}"#;
        assert_eq!(members.to_text(), expected);
        assert!(Members::of("[1]").is_none() && Members::of("1").is_none());
        assert_eq!(Members::of(" {} ").expect("an object").to_text(), "{}");
    }

    #[test]
    fn space_in_strings_is_no_space() {
        assert_eq!(compact("{ \"a\\\" b\" :\t[ 1,\n 2 ] }"), "{\"a\\\" b\":[1,2]}");
        assert_eq!(compact(r#"{"a\\": "\\" }"#), r#"{"a\\":"\\"}"#);
    }

    proptest! {
        #[test]
        fn compacting_changes_no_value(text in "[ -~]{0,30}", number in any::<u64>()) {
            let value = serde_json::json!({ text.clone(): [text, number, { "x": null }] });
            let pretty = serde_json::to_string_pretty(&value).expect("JSON");
            prop_assert_eq!(compact(&pretty).into_owned(), value.to_string());
        }
    }
}
