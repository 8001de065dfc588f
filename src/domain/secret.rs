//! A value that must never be printed: keys, signing secrets, credentials.

use std::fmt;
use subtle::ConstantTimeEq;

/// Text that `Debug` hides. It has no `Display`; whoever needs the value says [`Secret::reveal`].
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for a signature, a header, or the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Compared in constant time.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}
