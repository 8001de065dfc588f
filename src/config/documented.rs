//! The documented defaults as data: for the README's table, its check, and the command line.

/// The text of the built-in layer.
pub(super) const DEFAULTS: &str = include_str!("../config.default.toml");

/// One key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedKey {
    /// The key with its section, such as `server.listen`.
    pub key: String,
    /// The default as TOML writes it; `""` is not set.
    pub default: String,
    /// What it means, with its unit.
    pub doc: String,
}

impl DocumentedKey {
    /// The variable that sets this key.
    pub fn variable(&self) -> String {
        super::layers::variable_of(&self.key)
    }
}

/// Every key, in the order of the file: the comment lines right above a key are its documentation.
pub fn documented_keys() -> Vec<DocumentedKey> {
    let mut keys = Vec::new();
    let mut section = String::new();
    let mut doc: Vec<&str> = Vec::new();
    for line in DEFAULTS.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix('#') {
            doc.push(comment.trim());
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
            doc.clear();
        } else if let Some((name, default)) = line.split_once('=') {
            keys.push(DocumentedKey {
                key: format!("{section}{}", name.trim()),
                default: default.trim().to_owned(),
                doc: doc.join(" "),
            });
            doc.clear();
        } else {
            doc.clear();
        }
    }
    keys
}
