//! Holds the layers, the homes of third-party crates and the house style, by reading the source.
//!
//! Every rule is a plain function of one file's path and text, and is shown to fail by a snippet that breaks it.

#[path = "architecture/negative.rs"]
mod negative;
#[path = "architecture/scan.rs"]
mod scan;

use scan::{Source, functions};
use std::fmt;
use std::path::Path;

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 70;

/// `domain ← dialects ← engine ← { adapters, http } ← app ← main`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Domain,
    Dialects,
    Engine,
    Adapters,
    Http,
    /// `app`, and what only it and its peers may know: `config`, `telemetry`, `cli`, `demo`, `check`.
    App,
    Main,
    /// `lib.rs`: names the modules and nothing in them.
    Map,
}

impl Layer {
    /// The layer of a module of the crate's root.
    fn of_module(name: &str) -> Option<Self> {
        match name {
            "domain" => Some(Layer::Domain),
            "dialects" => Some(Layer::Dialects),
            "engine" => Some(Layer::Engine),
            "adapters" => Some(Layer::Adapters),
            "http" => Some(Layer::Http),
            "app" | "config" | "telemetry" | "cli" | "demo" | "check" => Some(Layer::App),
            "main" => Some(Layer::Main),
            "lib" => Some(Layer::Map),
            _ => None,
        }
    }

    fn may_use(self, other: Layer) -> bool {
        let below: &[Layer] = match self {
            Layer::Domain | Layer::Map => &[],
            Layer::Dialects => &[Layer::Domain],
            Layer::Engine => &[Layer::Domain, Layer::Dialects],
            Layer::Adapters | Layer::Http => &[Layer::Domain, Layer::Dialects, Layer::Engine],
            Layer::App | Layer::Main => {
                &[Layer::Domain, Layer::Dialects, Layer::Engine, Layer::Adapters, Layer::Http, Layer::App]
            }
        };
        self == other || below.contains(&other)
    }
}

/// Where a crate may be named: a file, or everything below a folder.
const HOMES: &[(&str, &[&str])] = &[
    // The programs that are whole by themselves start an actix `System`.
    ("actix", &["engine/actors", "app", "cli", "demo"]),
    ("actix_web", &["http", "demo", "check"]),
    ("actix_http", &["http", "demo"]),
    ("rusqlite", &["adapters/store"]),
    ("tokio_postgres", &["adapters/store"]),
    ("deadpool_postgres", &["adapters/store"]),
    ("redis", &["adapters/bus"]),
    ("hyper", &["adapters/transport"]),
    ("hyper_util", &["adapters/transport"]),
    ("http_body_util", &["adapters/transport"]),
    ("tokio_rustls", &["adapters/transport"]),
    ("rustls", &["adapters/transport"]),
    ("webpki_roots", &["adapters/transport"]),
    ("prometheus", &["adapters/metrics"]),
    ("httparse", &["demo"]),
];

/// Crates that the pure layers do without.
const IMPURE_CRATES: &[&str] = &["tokio", "futures_util", "async_trait", "tracing"];
/// What else the pure layers do without.
const IMPURE_WORDS: &[&str] = &["async", "await", "SystemTime", "Instant", "TcpStream", "UdpSocket"];
const IMPURE_PATHS: &[&str] = &["std::fs", "std::env", "std::process"];

const FORBIDDEN_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
const PRINTING_MACROS: &[&str] = &["println", "print", "eprintln", "eprint"];
const PRINTERS: &[&str] = &["cli", "demo", "main"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    KnownLayer,
    Arrows,
    CrateHome,
    PureLayer,
    NoReexport,
    FileLength,
    FunctionLength,
    NoUnwrap,
    NoStub,
    NoPrint,
}

#[derive(Debug, PartialEq, Eq)]
struct Violation {
    file: String,
    line: usize,
    rule: Rule,
    detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {:?}: {}", self.file, self.line, self.rule, self.detail)
    }
}

impl Source<'_> {
    fn layer(&self) -> Option<Layer> {
        Layer::of_module(self.modules()[0])
    }

    fn violation(&self, line: usize, rule: Rule, detail: impl Into<String>) -> Violation {
        Violation { file: self.path.to_owned(), line, rule, detail: detail.into() }
    }
}

/// A mention of a module of the crate's root: its name and the position of the token that begins the path.
struct Mention {
    module: String,
    line: usize,
    starts_at: usize,
}

/// Every `crate::x`, `toolgate::x` and `super::…::x` that ends at the crate's root, also in groups.
fn root_mentions(source: &Source<'_>) -> Vec<Mention> {
    let depth = source.modules().len();
    let mut mentions = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let starts_at = at;
        let word = source.tokens[at].text.as_str();
        let is_start = source.text_before(at) != "::" || source.text_before(at.saturating_sub(1)) == "{";
        let path = match word {
            "crate" | "toolgate" if is_start && source.is_at(at + 1, &["::"]) => Some(at + 2),
            "super" if is_start => {
                let mut supers = 0;
                while source.is_at(at, &["super", "::"]) {
                    (at, supers) = (at + 2, supers + 1);
                }
                (supers == depth).then_some(at)
            }
            _ => None,
        };
        at = at.max(starts_at + 1);
        let Some(path) = path else { continue };
        mentions.extend(first_segments(source, path).into_iter().map(|(module, line)| Mention {
            module,
            line,
            starts_at,
        }));
    }
    mentions
}

/// The first segment of the path at `at`, or of every path of the group there.
fn first_segments(source: &Source<'_>, at: usize) -> Vec<(String, usize)> {
    let Some(first) = source.tokens.get(at) else { return vec![] };
    if first.text != "{" {
        return vec![(first.text.clone(), first.line)];
    }
    let (mut found, mut depth) = (Vec::new(), 0usize);
    for (n, token) in source.tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            _ if depth == 1 && matches!(source.text_before(n), "{" | ",") => {
                found.push((token.text.clone(), token.line));
            }
            _ => {}
        }
    }
    found
}

fn check_layers(source: &Source<'_>) -> Vec<Violation> {
    let Some(own) = source.layer() else {
        let detail = "belongs to no layer; name it in tests/architecture.rs and in the map of lib.rs";
        return vec![source.violation(1, Rule::KnownLayer, detail)];
    };
    let mut found = Vec::new();
    for mention in root_mentions(source) {
        let Some(other) = Layer::of_module(&mention.module) else { continue };
        if !own.may_use(other) {
            let detail = format!("{own:?} must not know {other:?} (`{}`)", mention.module);
            found.push(source.violation(mention.line, Rule::Arrows, detail));
        }
        if own != other && is_reexport(source, mention.starts_at) {
            let detail = format!("`{}` of another layer is exported again", mention.module);
            found.push(source.violation(mention.line, Rule::NoReexport, detail));
        }
    }
    found
}

/// Whether the path at `at` belongs to a `use` with a visibility.
fn is_reexport(source: &Source<'_>, at: usize) -> bool {
    let statement = source.tokens[..at].iter().rposition(|token| token.text == ";" || token.text == "use");
    let Some(use_at) = statement.filter(|n| source.tokens[*n].text == "use") else { return false };
    matches!(source.text_before(use_at), "pub" | ")")
}

/// Lines on which a crate is named, as the start of a path or by `use` or `extern crate`.
fn crate_mentions(source: &Source<'_>, name: &str) -> Vec<usize> {
    let is_mention = |at: usize| {
        let is_start = !matches!(source.text_before(at), "::" | ".") || source.text_before(at - 1) == "use";
        let is_path = source.is_at(at + 1, &["::"]);
        is_start && (is_path || matches!(source.text_before(at), "use" | "crate"))
    };
    let named = source.tokens.iter().enumerate().filter(|(_, token)| token.text == name);
    named.filter(|(at, _)| is_mention(*at)).map(|(_, token)| token.line).collect()
}

fn check_homes(source: &Source<'_>) -> Vec<Violation> {
    let foreign = HOMES.iter().filter(|(_, homes)| !homes.iter().any(|home| source.is_in(home)));
    foreign
        .flat_map(|(name, homes)| {
            let violation = |line| source.violation(line, Rule::CrateHome, format!("`{name}` lives in {homes:?}"));
            crate_mentions(source, name).into_iter().map(violation).collect::<Vec<_>>()
        })
        .collect()
}

fn check_purity(source: &Source<'_>) -> Vec<Violation> {
    if !matches!(source.layer(), Some(Layer::Domain | Layer::Dialects)) {
        return vec![];
    }
    let crates =
        IMPURE_CRATES.iter().flat_map(|name| crate_mentions(source, name).into_iter().map(|line| (*name, line)));
    let mut found: Vec<(&str, usize)> = crates.collect();
    for (at, token) in source.tokens.iter().enumerate() {
        let word = IMPURE_WORDS.iter().find(|word| token.text == **word);
        let path = IMPURE_PATHS.iter().find(|path| {
            let (first, second) = path.split_once("::").expect("two segments");
            source.is_at(at, &[first, "::", second])
        });
        found.extend(word.or(path).map(|name| (*name, token.line)));
    }
    let violation = |(name, line)| source.violation(line, Rule::PureLayer, format!("`{name}` in a pure layer"));
    found.into_iter().map(violation).collect()
}

fn check_lengths(source: &Source<'_>) -> Vec<Violation> {
    let reason = |line: &str| line.trim().strip_prefix("// long: ").is_some_and(|reason| !reason.trim().is_empty());
    if source.text.lines().any(reason) {
        return vec![];
    }
    let mut found = Vec::new();
    let lines = source.text.lines().count();
    if lines > MAX_FILE_LINES {
        found.push(source.violation(1, Rule::FileLength, format!("{lines} lines, at most {MAX_FILE_LINES}")));
    }
    for (name, line, length) in functions(&source.code) {
        if length > MAX_FUNCTION_LINES {
            let detail = format!("`{name}` has {length} lines, at most {MAX_FUNCTION_LINES}");
            found.push(source.violation(line, Rule::FunctionLength, detail));
        }
    }
    found
}

fn check_words(source: &Source<'_>) -> Vec<Violation> {
    let may_print = PRINTERS.iter().any(|home| source.is_in(home));
    let mut found = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        let word = token.text.as_str();
        if matches!(word, "unwrap" | "unwrap_err") && source.text_before(at) == "." && source.is_at(at + 1, &["(", ")"])
        {
            found.push(source.violation(token.line, Rule::NoUnwrap, format!("`{word}()`; say why it cannot be")));
        }
        if !source.is_at(at + 1, &["!"]) {
            continue;
        }
        if FORBIDDEN_MACROS.contains(&word) {
            found.push(source.violation(token.line, Rule::NoStub, format!("`{word}!`")));
        }
        if PRINTING_MACROS.contains(&word) && !may_print {
            found.push(source.violation(token.line, Rule::NoPrint, format!("`{word}!` outside of {PRINTERS:?}")));
        }
    }
    found
}

fn check(path: &str, text: &str) -> Vec<Violation> {
    let source = Source::new(path, text);
    assert_eq!(source.live.len(), text.chars().count(), "{path}: the scan lost its place");
    [check_layers, check_homes, check_purity, check_lengths, check_words]
        .into_iter()
        .flat_map(|rule| rule(&source))
        .collect()
}

fn read_sources(folder: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the source tree") {
        let entry = entry.expect("an entry of the source tree");
        let path = format!("{prefix}{}", entry.file_name().to_str().expect("a UTF-8 name"));
        if entry.path().is_dir() {
            read_sources(&entry.path(), &format!("{path}/"), found);
        } else if path.ends_with(".rs") {
            found.push((path, std::fs::read_to_string(entry.path()).expect("UTF-8 text")));
        }
    }
}

#[test]
fn the_source_keeps_every_rule() {
    let mut sources = Vec::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    for expected in ["lib.rs", "main.rs", "domain/mod.rs", "engine/ports.rs", "adapters/transport/mod.rs"] {
        assert!(sources.iter().any(|(path, _)| path == expected), "src/{expected} was not read");
    }
    let violations: Vec<_> = sources.iter().flat_map(|(path, text)| check(path, text)).collect();
    let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} rules are broken:\n{}", lines.len(), lines.join("\n"));
}
