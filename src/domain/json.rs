//! JSON as text: what a provider said is handed on in the very bytes it came in.

use serde_json::value::RawValue;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// A complete JSON value kept as its text. Cheap to clone; never re-serialised; a tenth of what its tree would take.
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// Checks that `text` is one JSON value and keeps it. No number is looked at, so any number passes.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.to_owned()).map(Self::from)
    }

    /// The JSON text of a value of our own.
    pub fn of(value: &serde_json::Value) -> Self {
        match RawValue::from_string(value.to_string()) {
            Ok(raw) => Self::from(raw),
            Err(_) => unreachable!("a Value prints as JSON"),
        }
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        static EMPTY: LazyLock<JsonText> = LazyLock::new(|| JsonText::of(&serde_json::json!({})));
        EMPTY.clone()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The raw value, for serialisation.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl From<Box<RawValue>> for JsonText {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Arc::from(raw))
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonText {}

/// Shows the length only: arguments and results are never logged.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonText({} bytes)", self.as_str().len())
    }
}
