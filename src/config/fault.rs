//! Mistakes in a configuration, as their author reads them.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("built-in defaults"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Variable(name) => f.write_str(name),
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file or variable it stands in.
    pub origin: String,
    /// The key concerned; empty when it is the file as a whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.message)
        } else {
            write!(f, "{}: {}: {}", self.origin, self.key, self.message)
        }
    }
}

/// Every mistake of a configuration; `Display` gives a line to each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigFaults(Vec<ConfigFault>);

impl ConfigFaults {
    /// At least one mistake.
    pub(super) fn new(faults: Vec<ConfigFault>) -> Self {
        Self(faults)
    }

    /// The mistakes, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigFault> {
        self.0.iter()
    }
}
