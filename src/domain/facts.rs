//! Facts: sentences told from validated evidence only, and what a provider's free text says beyond it.
//!
//! **Invariant:** a fact holds nothing that is not in the evidence but the words of one table. **Invariant:** nothing of
//! a provider's free text ever becomes a fact; it is handed on apart, with what no evidence supports listed.

mod scan;
mod speech;
mod support;
#[cfg(test)]
mod tests;
mod values;
mod words;

pub use speech::{Speech, is_language_tag};
pub use support::unsupported;

use super::evidence::{Action, ActionOutcome, Evidence, EvidenceBody, EvidenceSet};
use words::fill;

/// Most characters of a provider's text in a fact.
const LONGEST_PART: usize = 500;

/// Most characters of it where the same text may stand in many facts.
const LONGEST_SUBJECT: usize = 64;

/// One sentence an item of evidence, in the provider's order.
pub fn facts(evidence: &EvidenceSet, speech: &Speech) -> Vec<String> {
    evidence.items().iter().map(|item| fact(item, evidence, speech)).collect()
}

fn fact(item: &Evidence, evidence: &EvidenceSet, speech: &Speech) -> String {
    let words = speech.words();
    match &item.body {
        EvidenceBody::Entity { type_name, key, label } => {
            let (type_name, key) = (one_line(type_name), one_line(key));
            let what = match label {
                Some(label) => format!("{type_name} {} ({key})", one_line(label)),
                None => format!("{type_name} {key}"),
            };
            fill(words.found, &[("what", &what)])
        }
        EvidenceBody::Value { of, field, value, value_type, as_of, .. } => {
            let owner = evidence.get(of).map_or_else(|| one_line(of), |owner| subject(owner, evidence));
            let (field, value) = (one_line(field), one_line(&values::tell(&values::read(value_type, value), speech)));
            let parts = [("field", field.as_str()), ("what", &owner), ("value", &value)];
            match as_of {
                None => fill(words.value, &parts),
                Some(time) => {
                    let time = one_line(&values::tell(&values::read_time(time), speech));
                    fill(words.value_as_of, &[parts[0], parts[1], parts[2], ("time", &time)])
                }
            }
        }
        EvidenceBody::Reference { type_name, value, url } => {
            let value = match url {
                None => one_line(value),
                Some(url) => format!("{} ({})", one_line(value), one_line(url)),
            };
            fill(words.reference, &[("type", &one_line(type_name)), ("value", &value)])
        }
        EvidenceBody::Completeness { scope, complete, returned, total } => {
            let number = |text: &str| speech.number(text).unwrap_or_else(|| one_line(text));
            let (scope, returned) = (one_line(scope), number(returned));
            let parts = [("scope", scope.as_str()), ("returned", &returned)];
            match (complete, total.as_deref().map(number)) {
                (true, None) => fill(words.complete, &parts),
                (false, None) => fill(words.partial, &parts),
                (true, Some(total)) => fill(words.complete_of, &[parts[0], parts[1], ("total", &total)]),
                (false, Some(total)) => fill(words.partial_of, &[parts[0], parts[1], ("total", &total)]),
            }
        }
        EvidenceBody::Action(action) => action_fact(action, speech),
    }
}

fn action_fact(action: &Action, speech: &Speech) -> String {
    let words = speech.words();
    let template = match action.outcome {
        ActionOutcome::Applied => words.applied,
        ActionOutcome::Rejected => words.rejected,
        ActionOutcome::Pending => words.pending,
    };
    let time = action.recorded_at.as_deref().map(|time| one_line(&values::tell(&values::read_time(time), speech)));
    fill(template, &[("action", &one_line(&action.action)), ("time", time.as_deref().unwrap_or_default())])
}

/// What an item is about, in short: it may stand in the sentence of every other item.
fn subject(item: &Evidence, evidence: &EvidenceSet) -> String {
    let short = |text: &str| cut(text, LONGEST_SUBJECT);
    match &item.body {
        EvidenceBody::Entity { type_name, key, .. } => format!("{} {}", short(type_name), short(key)),
        EvidenceBody::Reference { type_name, value, .. } => format!("{} {}", short(type_name), short(value)),
        EvidenceBody::Completeness { scope, .. } => short(scope),
        EvidenceBody::Action(action) => short(&action.action),
        // A value of a value: the owner's owner is told as long as it is no value itself, so that a ring ends.
        EvidenceBody::Value { of, field, .. } => match evidence.get(of) {
            Some(owner) if !matches!(owner.body, EvidenceBody::Value { .. }) => {
                format!("{} / {}", subject(owner, evidence), short(field))
            }
            Some(_) | None => short(field),
        },
    }
}

/// A provider's text inside a sentence.
fn one_line(text: &str) -> String {
    cut(text, LONGEST_PART)
}

/// A text on one line, without control characters, cut when it is very long.
fn cut(text: &str, longest: usize) -> String {
    let mut line: String =
        text.chars().take(longest).map(|c| if c.is_control() || is_unseen(c) { ' ' } else { c }).collect();
    if text.chars().nth(longest).is_some() {
        line.push('…');
    }
    line
}

/// Characters that would turn the direction of what stands behind them, break the line, or say something that people do
/// not see and models read. The joiners stay: Persian, Hindi and emoji are spelt with them.
const fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    )
}
