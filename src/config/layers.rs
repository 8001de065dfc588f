//! Defaults, file and environment, laid over each other as one flat table of keys.

use super::documented::DEFAULTS;
use super::fault::{ConfigFault, Origin};
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// What every variable of toolgate begins with.
pub(super) const PREFIX: &str = "TOOLGATE_";
/// Variables of the client commands, which are no keys of the configuration.
const CLIENT_PREFIX: &str = "TOOLGATE_CLIENT_";

/// One value and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// Every key of the configuration with the value that weighs most.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) settings: BTreeMap<String, Setting>,
    /// `TOOLGATE_MASTER_KEY`, which is no key of the file.
    pub(super) master_key: Option<String>,
}

/// Lays the layers over each other. A value of the wrong type is a fault and leaves what lies under it.
pub(super) fn merge(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    faults: &mut Vec<ConfigFault>,
) -> Layers {
    let mut layers = Layers { settings: defaults(), master_key: None };
    if let Some(path) = file {
        add_file(&mut layers, path, faults);
    }
    let mut variables: Vec<_> = environment.collect();
    variables.sort();
    for (name, value) in variables {
        add_variable(&mut layers, &name, value, faults);
    }
    layers
}

/// The variable that sets `key`.
pub(super) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

fn defaults() -> BTreeMap<String, Setting> {
    let table: Table = DEFAULTS.parse().expect("a test parses the built-in defaults");
    let mut flat = Vec::new();
    flatten(table, "", &mut flat);
    flat.into_iter().map(|(key, value)| (key, Setting { value, origin: Origin::Default })).collect()
}

/// Writes nested tables as dotted keys. An empty table stays as it is, so that an unknown one is still seen.
fn flatten(table: Table, section: &str, flat: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let key = if section.is_empty() { name } else { format!("{section}.{name}") };
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(inner, &key, flat),
            other => flat.push((key, other)),
        }
    }
}

fn add_file(layers: &mut Layers, path: &Path, faults: &mut Vec<ConfigFault>) {
    let origin = Origin::File(path.to_owned());
    let whole = |message: String| ConfigFault { origin: origin.to_string(), key: String::new(), message };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return faults.push(whole(format!("the file cannot be read: {error}"))),
    };
    let table: Table = match text.parse() {
        Ok(table) => table,
        // Only the place and the reason: the parser's own text would show the line, which may hold a secret.
        Err(error) => return faults.push(whole(syntax_message(&text, &error))),
    };
    let mut flat = Vec::new();
    flatten(table, "", &mut flat);
    for (key, value) in flat {
        add(layers, key, value, &origin, faults);
    }
}

fn syntax_message(text: &str, error: &toml::de::Error) -> String {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.matches('\n').count() + 1);
    let reason = error.message().lines().next().unwrap_or_default();
    format!("line {line} is not TOML: {reason}")
}

fn add_variable(layers: &mut Layers, name: &str, text: String, faults: &mut Vec<ConfigFault>) {
    if name == super::MASTER_KEY_VARIABLE {
        layers.master_key = Some(text);
        return;
    }
    let Some(rest) = name.strip_prefix(PREFIX) else { return };
    if name.starts_with(CLIENT_PREFIX) {
        return;
    }
    let key = rest.to_lowercase().replace("__", ".");
    let origin = Origin::Variable(name.to_owned());
    let known = layers.settings.get(&key).filter(|_| variable_of(&key) == name).map(|setting| setting.value.clone());
    let Some(known) = known else {
        let message = unknown_message(layers, &key, variable_of);
        return faults.push(ConfigFault { origin: origin.to_string(), key: String::new(), message });
    };
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return faults.push(ConfigFault { origin: origin.to_string(), key, message: "this must be UTF-8".to_owned() });
    }
    match parse_variable(&known, text) {
        Some(value) => add(layers, key, value, &origin, faults),
        None => faults.push(ConfigFault { origin: origin.to_string(), key, message: type_message(&known) }),
    }
}

/// Reads the text of a variable as the type that its key has.
fn parse_variable(known: &Value, text: String) -> Option<Value> {
    match known {
        Value::Integer(_) => text.trim().parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.trim().parse().ok().map(Value::Boolean),
        Value::Array(_) if text.trim_start().starts_with('[') => {
            let table: Table = format!("list = {text}").parse().ok()?;
            table.get("list").filter(|_| table.len() == 1).cloned()
        }
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
        }
        Value::String(_) => Some(Value::String(text)),
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

fn add(layers: &mut Layers, key: String, value: Value, origin: &Origin, faults: &mut Vec<ConfigFault>) {
    let Some(known) = layers.settings.get_mut(&key) else {
        if let Value::Table(_) = value
            && layers.settings.keys().any(|known| known.starts_with(&format!("{key}.")))
        {
            return; // an empty section sets nothing
        }
        let message = unknown_message(layers, &key, str::to_owned);
        return faults.push(ConfigFault { origin: origin.to_string(), key, message });
    };
    if known.value.same_type(&value) {
        *known = Setting { value, origin: origin.clone() };
    } else {
        let message = type_message(&known.value);
        faults.push(ConfigFault { origin: origin.to_string(), key, message });
    }
}

fn type_message(known: &Value) -> String {
    let wanted = match known {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "a list of texts",
        Value::String(_) => "a text in quotation marks",
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => "something else",
    };
    format!("this must be {wanted}")
}

fn unknown_message(layers: &Layers, key: &str, spell: impl Fn(&str) -> String) -> String {
    let meant: Vec<String> = nearest(layers.settings.keys(), key).into_iter().map(spell).collect();
    if meant.is_empty() {
        "there is no such key; `config.default.toml` documents all there are".to_owned()
    } else {
        format!("there is no such key; did you mean {}?", meant.join(" or "))
    }
}

/// The known keys that were most likely meant: the one few letters away, else those of the same name elsewhere.
fn nearest<'a>(known: impl Iterator<Item = &'a String> + Clone, key: &str) -> Vec<&'a str> {
    // Section separators are forgotten first: TOOLGATE_SERVER_LISTEN is a usual slip.
    let plain = |text: &str| text.replace('.', "_");
    let name = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    let close = known
        .clone()
        .map(|candidate| (distance(&plain(candidate), &plain(key)), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(4).min(3))
        .min_by_key(|(distance, _)| *distance);
    match close {
        Some((_, candidate)) => vec![candidate],
        None => known.map(String::as_str).filter(|candidate| name(candidate) == name(key)).collect(),
    }
}

/// Levenshtein's distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
