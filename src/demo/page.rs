//! How the tour looks: at most 100 columns, colours only on a terminal.

use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Widest line.
const WIDTH: usize = 100;

/// What everything but a title stands behind.
const INDENT: &str = "   ";

/// Most lines of an answer that are shown.
const MAX_ANSWER_LINES: usize = 40;

/// The colours of the tour, as the numbers of SGR.
#[derive(Clone, Copy)]
enum Ink {
    Bold,
    Dim,
    Command,
    Good,
    Bad,
}

impl Ink {
    const fn code(self) -> &'static str {
        match self {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Command => "36",
            Ink::Good => "32",
            Ink::Bad => "31",
        }
    }
}

/// Where the tour is written.
pub(super) struct Page {
    out: Box<dyn Write>,
    coloured: bool,
    after_gap: bool,
}

impl Page {
    /// Standard output.
    pub(super) fn stdout() -> Self {
        let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { out: Box::new(io::stdout()), coloured, after_gap: true }
    }

    /// A step's title with a rule behind it.
    pub(super) fn title(&mut self, number: usize, title: &str) {
        let head = format!("{number}. {title} ");
        let rule = "─".repeat(WIDTH.saturating_sub(head.chars().count()));
        self.gap();
        let text = format!("{}{}", self.ink(Ink::Bold, &head), self.ink(Ink::Dim, &rule));
        self.line(&text);
    }

    /// Running text, wrapped.
    pub(super) fn prose(&mut self, text: &str) {
        for line in wrapped(text, WIDTH - INDENT.len()) {
            self.line(&format!("{INDENT}{line}"));
        }
    }

    /// A command a reader can repeat.
    pub(super) fn command(&mut self, text: &str) {
        self.gap();
        for line in text.lines() {
            let line = self.ink(Ink::Command, line);
            self.line(&format!("{INDENT}{line}"));
        }
    }

    /// What came back: the status line, the headers that matter here, and the body.
    pub(super) fn answer(&mut self, status: &str, headers: &[(&str, &str)], body: Option<&Value>) {
        self.gap();
        let head = self.ink(Ink::Bold, status);
        self.line(&format!("{INDENT}{head}"));
        for (name, value) in headers {
            for line in folded(&format!("{name}: {value}"), WIDTH - INDENT.len()) {
                let line = self.ink(Ink::Dim, &line);
                self.line(&format!("{INDENT}{line}"));
            }
        }
        let Some(body) = body else { return };
        let text = layout(body, WIDTH - INDENT.len());
        let lines: Vec<String> = text.lines().flat_map(|line| folded(line, WIDTH - INDENT.len())).collect();
        for line in lines.iter().take(MAX_ANSWER_LINES) {
            self.line(&format!("{INDENT}{line}"));
        }
        if let Some(hidden) = lines.len().checked_sub(MAX_ANSWER_LINES).filter(|hidden| *hidden > 0) {
            self.line(&format!("{INDENT}… and {hidden} more lines"));
        }
        self.gap();
    }

    /// Whether something is as it should be.
    pub(super) fn check(&mut self, ok: bool, what: &str) {
        let mark = if ok { self.ink(Ink::Good, "✓") } else { self.ink(Ink::Bad, "✗") };
        for (at, line) in wrapped(what, WIDTH - INDENT.len() - 2).iter().enumerate() {
            let lead = if at == 0 { mark.as_str() } else { " " };
            self.line(&format!("{INDENT}{lead} {line}"));
        }
    }

    /// An empty line, unless there is one already.
    pub(super) fn gap(&mut self) {
        if !self.after_gap {
            self.line("");
        }
    }

    /// A line as it is.
    pub(super) fn line(&mut self, text: &str) {
        // Whoever stops reading (`| head`) has seen enough: the steps and the exit code do not depend on it.
        let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
        self.after_gap = text.is_empty();
    }

    fn ink(&self, ink: Ink, text: &str) -> String {
        if self.coloured { format!("\u{1b}[{}m{text}\u{1b}[0m", ink.code()) } else { text.to_owned() }
    }
}

/// A request as a reader repeats it in a shell.
pub(super) fn curl(method: &str, url: &str, headers: &[(String, String)], body: Option<&Value>) -> String {
    let url = if url.contains(['?', '&']) { quoted(url) } else { url.to_owned() };
    let mut text = match method {
        "GET" => format!("curl -i {url}"),
        "POST" if body.is_some() => format!("curl -i {url}"),
        other => format!("curl -i -X {other} {url}"),
    };
    for (name, value) in headers {
        let _ = write!(text, " \\\n  -H {}", quoted(&format!("{name}: {value}")));
    }
    if let Some(body) = body {
        let data = quoted(&layout(body, WIDTH - INDENT.len() - "  -d ''".len()).replace('\n', "\n  "));
        let _ = write!(text, " \\\n  -H 'Content-Type: application/json' \\\n  -d {data}");
    }
    text
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words in lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// A line in lines of at most `width` characters; those after the first stand further in.
fn folded(line: &str, width: usize) -> Vec<String> {
    let count = line.chars().count();
    if count <= width {
        return vec![line.to_owned()];
    }
    let lead = line.chars().take_while(|c| *c == ' ').count() + 4;
    // A space to break at, or, in a long word, the very end of the line.
    let head: Vec<char> = line.chars().take(width).collect();
    let end = head.iter().rposition(|c| *c == ' ').filter(|end| *end > lead).unwrap_or(width);
    let (first, rest) = line.split_at(line.char_indices().nth(end).map_or(line.len(), |(at, _)| at));
    let mut lines = vec![first.to_owned()];
    lines.extend(folded(&format!("{}{}", " ".repeat(lead.min(width / 2)), rest.trim_start()), width));
    lines
}

/// JSON for people: what fits on a line stays on one, the rest is opened.
fn layout(value: &Value, width: usize) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0, 0, width);
    text
}

fn write_value(text: &mut String, value: &Value, depth: usize, lead: usize, width: usize) {
    let flat = one_line(value);
    let opens = match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    // One place is kept for the comma after it.
    if !opens || 2 * depth + lead + flat.chars().count() < width {
        text.push_str(&flat);
        return;
    }
    let pad = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match value {
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                let _ = write!(text, "{}\n{pad}", if at == 0 { "" } else { "," });
                write_value(text, item, depth + 1, 0, width);
            }
            let _ = write!(text, "\n{end}]");
        }
        Value::Object(members) => {
            text.push('{');
            for (at, (name, member)) in members.iter().enumerate() {
                let name = format!("{}: ", Value::from(name.as_str()));
                let _ = write!(text, "{}\n{pad}{name}", if at == 0 { "" } else { "," });
                write_value(text, member, depth + 1, name.chars().count(), width);
            }
            let _ = write!(text, "\n{end}}}");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// JSON on one line, with a space after commas and colons.
fn one_line(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(one_line).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, member)| format!("{}: {}", Value::from(name.as_str()), one_line(member)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn json_that_fits_stays_on_one_line_and_the_rest_is_opened() {
        let value = json!({ "id": "1", "deep": { "list": [1, 2, 3] }, "text": "x".repeat(20) });
        assert_eq!(layout(&json!({}), 10), "{}");
        assert_eq!(layout(&value, 200).lines().count(), 1);
        let narrow = layout(&value, 40);
        assert_eq!(narrow.lines().nth(2), Some("  \"deep\": { \"list\": [1, 2, 3] },"));
        assert_eq!(serde_json::from_str::<Value>(&narrow).expect("still JSON"), value);
    }

    #[test]
    fn a_curl_command_survives_a_quote() {
        let text = curl("POST", "http://h/p", &[("X-Auth".into(), "k".into())], Some(&json!({ "name": "Ann's" })));
        assert!(text.contains(r#"-d '{ "name": "Ann'\''s" }'"#), "{text}");
        assert!(text.starts_with("curl -i http://h/p \\\n  -H 'X-Auth: k' \\\n"), "{text}");
        assert_eq!(curl("GET", "http://h/p?a=b", &[], None), "curl -i 'http://h/p?a=b'");
    }

    proptest! {
        #[test]
        fn laid_out_lines_are_the_same_json(words in prop::collection::vec(".{0,30}", 0..8), width in 10usize..120) {
            let value = json!({ "words": words, "again": [words.clone(), [words]] });
            let text = layout(&value, width);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("still JSON"), value);
        }

        #[test]
        fn folded_lines_keep_their_characters_and_their_width(line in " {0,12}[a-zé]{1,5}[a-zé ]{0,300}") {
            let squeezed = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            let lines = folded(&line, 40);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= 40));
            prop_assert_eq!(squeezed(&lines.concat()), squeezed(&line));
        }

        #[test]
        fn prose_keeps_its_words_and_its_width(text in "([a-z]{1,12} ){0,40}") {
            let lines = wrapped(&text, 30);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= 30));
            prop_assert_eq!(lines.join(" "), text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}
