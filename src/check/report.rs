//! The lines: one a rule.

use serde_json::{Value, json};
use std::fmt;

/// Longest account of what came, in characters.
const LONGEST_ACCOUNT: usize = 400;

/// A rule of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// A few words that name it.
    pub(super) name: &'static str,
    /// What a good provider does.
    pub(super) expected: &'static str,
    /// Where the wire contract says so.
    pub(super) section: &'static str,
}

impl Rule {
    pub(super) const fn new(section: &'static str, name: &'static str, expected: &'static str) -> Self {
        Self { name, expected, section }
    }
}

/// What was found about a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It holds.
    Ok,
    /// It is broken.
    Fail,
    /// It could not be looked at, or was not to be.
    Skip,
}

impl Mark {
    /// The word of a line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mark::Ok => "ok",
            Mark::Fail => "FAIL",
            Mark::Skip => "skip",
        }
    }
}

/// One rule and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What was found.
    pub mark: Mark,
    /// The rule in a few words.
    pub rule: &'static str,
    /// What a good provider does.
    pub expected: &'static str,
    /// What this one did, or why nothing was asked of it.
    pub came: String,
    /// Where the wire contract says so.
    pub section: &'static str,
}

impl Line {
    /// The line for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "mark": self.mark.as_str(),
            "rule": self.rule,
            "expected": self.expected,
            "came": self.came,
            "section": self.section,
        })
    }
}

/// The line for people.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mark, rule, expected, came, section } = self;
        let mark = mark.as_str();
        write!(f, "{mark:<4}  {section:<6}  {rule}: expected {expected}; came {came}")
    }
}

/// How many lines of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rules that hold.
    pub ok: usize,
    /// Rules that are broken.
    pub failed: usize,
    /// Rules that were not looked at.
    pub skipped: usize,
}

/// Where the lines go.
pub(super) struct Report<'a> {
    sink: &'a mut dyn FnMut(&Line),
    summary: Summary,
}

impl<'a> Report<'a> {
    pub(super) const fn new(sink: &'a mut dyn FnMut(&Line)) -> Self {
        Self { sink, summary: Summary { ok: 0, failed: 0, skipped: 0 } }
    }

    pub(super) const fn summary(&self) -> Summary {
        self.summary
    }

    pub(super) fn ok(&mut self, rule: Rule, came: impl Into<String>) {
        self.line(Mark::Ok, rule, came.into());
    }

    pub(super) fn fail(&mut self, rule: Rule, came: impl Into<String>) {
        self.line(Mark::Fail, rule, came.into());
    }

    pub(super) fn skip(&mut self, rule: Rule, why: impl Into<String>) {
        self.line(Mark::Skip, rule, format!("nothing: {}", why.into()));
    }

    pub(super) fn skip_all(&mut self, rules: &[Rule], why: &str) {
        rules.iter().for_each(|rule| self.skip(*rule, why));
    }

    /// Judges a rule; answers whether it holds.
    pub(super) fn judge(&mut self, rule: Rule, holds: bool, came: impl Into<String>) -> bool {
        self.line(if holds { Mark::Ok } else { Mark::Fail }, rule, came.into());
        holds
    }

    fn line(&mut self, mark: Mark, rule: Rule, came: String) {
        match mark {
            Mark::Ok => self.summary.ok += 1,
            Mark::Fail => self.summary.failed += 1,
            Mark::Skip => self.summary.skipped += 1,
        }
        let came = shortened(&came, LONGEST_ACCOUNT);
        (self.sink)(&Line { mark, rule: rule.name, expected: rule.expected, came, section: rule.section });
    }
}

/// At most this many characters on one line, without control characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == most {
            shown.push('…');
            break;
        }
        if c.is_control() { shown.extend(c.escape_debug()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule::new("§4", "the status", "HTTP 200");

    #[test]
    fn a_line_says_all_of_it_and_touches_no_terminal() {
        let mut lines = Vec::new();
        let mut sink = |line: &Line| lines.push(line.clone());
        let mut report = Report::new(&mut sink);
        assert!(report.judge(RULE, true, "HTTP 200"));
        assert!(!report.judge(RULE, false, "HTTP 500, \u{1b}[2J\n"));
        report.skip(RULE, "not asked for");
        assert_eq!(report.summary(), Summary { ok: 1, failed: 1, skipped: 1 });
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(text[0], "ok    §4      the status: expected HTTP 200; came HTTP 200");
        assert_eq!(text[1], "FAIL  §4      the status: expected HTTP 200; came HTTP 500, \\u{1b}[2J\\n");
        assert_eq!(text[2], "skip  §4      the status: expected HTTP 200; came nothing: not asked for");
        assert_eq!(lines[0].to_json()["mark"], "ok");
    }

    #[test]
    fn a_long_account_is_cut() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äöü…");
    }
}
