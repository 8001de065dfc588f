//! Answers for people: a list as a table, an item as a record.

use serde_json::{Map, Value};
use std::io::Write as _;

/// Widest cell of a table but the last one of a row.
const WIDEST_CELL: usize = 60;

/// Values longer than this are opened over several lines in a record.
const LONGEST_INLINE: usize = 80;

/// How an answer is printed.
pub(super) enum View {
    /// A table of these columns; a dot leads into an object.
    Table(&'static [&'static str]),
    /// Every member with its name.
    Record,
    /// There is nothing to print but that it is done.
    Done(String),
}

/// The text of an answer, with its last line end.
pub(super) fn render(body: &Value, view: &View) -> String {
    match view {
        View::Done(sentence) => format!("{}\n", printable(sentence)),
        View::Record => match body {
            Value::Object(members) => record(members),
            other => format!("{other:#}\n"),
        },
        View::Table(columns) => {
            let items = body.as_array().or_else(|| body["items"].as_array());
            let mut text = table(columns, items.map(Vec::as_slice).unwrap_or_default());
            if let Some(cursor) = body["next_cursor"].as_str() {
                text.push_str(&format!("more: --cursor {}\n", printable(cursor)));
            }
            text
        }
    }
}

/// Writes to standard output. Whoever reads it may have had enough, which is no fault.
pub(super) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written {
        std::process::exit(i32::from(error.kind() != std::io::ErrorKind::BrokenPipe));
    }
}

/// Text of others that cannot move the cursor or colour the screen.
pub(super) fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect()
}

fn table(columns: &[&str], items: &[Value]) -> String {
    if items.is_empty() {
        return "none\n".to_owned();
    }
    let mut rows = vec![columns.iter().map(|column| column.replace(['_', '.'], " ").to_uppercase()).collect()];
    rows.extend(items.iter().map(|item| columns.iter().map(|column| cell(item, column)).collect::<Vec<_>>()));
    let widths: Vec<usize> =
        (0..columns.len()).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(item: &Value, column: &str) -> String {
    let value = column.split('.').fold(item, |value, member| &value[member]);
    let text = inline(value);
    match text.char_indices().nth(WIDEST_CELL) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => printable(text),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).map(printable).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn record(members: &Map<String, Value>) -> String {
    let width = members.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in members {
        let mut shown = inline(value);
        if shown.chars().count() > LONGEST_INLINE && (value.is_object() || value.is_array()) {
            let pad = format!("\n{}", " ".repeat(width + 2));
            shown = format!("{value:#}").replace('\n', &pad);
        }
        text.push_str(&format!("{:<width$}  {shown}\n", printable(name)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_is_an_aligned_table() {
        let body = json!({ "next_cursor": "abc", "items": [
            { "name": "shop", "state": "connected", "reason": null },
            { "name": "crm-production", "state": "sync_failed", "reason": { "code": "timeout" } },
        ]});
        let expected = "NAME            STATE        REASON CODE\n\
                        shop            connected    -\n\
                        crm-production  sync_failed  timeout\n\
                        more: --cursor abc\n";
        assert_eq!(render(&body, &View::Table(&["name", "state", "reason.code"])), expected);
        assert_eq!(render(&json!({ "items": [] }), &View::Table(&["name"])), "none\n");
    }

    #[test]
    fn an_item_is_a_record() {
        let body = json!({ "id": "1", "groups": ["a", "b"], "limits": {}, "expires_at": null });
        let expected = "id          1\ngroups      a, b\nlimits      {}\nexpires_at  -\n";
        assert_eq!(render(&body, &View::Record), expected);
    }

    #[test]
    fn a_hostile_description_cannot_touch_the_terminal() {
        let body = json!([{ "name": "x\u{1b}[2J\u{7}\r\n" }]);
        let text = render(&body, &View::Table(&["name"]));
        assert_eq!(text, "NAME\nx\\u{1b}[2J\\u{7}\\r\\n\n");
    }
}
