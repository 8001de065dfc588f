//! Values of evidence: what each type may be written as, and how it is told.
//!
//! The source names the member `value_type` and no words for it; these are this project's own: `number`, `integer`,
//! `decimal`, `percent`; `money` as `{"amount","currency"}`, `"12.50 EUR"` or `"EUR 12.50"`; `date`; `datetime`
//! (also `date-time`, `timestamp`); `boolean`; anything else is told as it is written. A value that does not fit its type
//! is told as it is written too: what it says is the provider's, only the form is ours.

use super::speech::Speech;
use crate::domain::json::JsonText;
use jiff::civil;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A value as far as it is understood.
#[derive(Debug, PartialEq)]
pub(super) enum Known {
    /// A number, as it was written.
    Number(String),
    /// A number of hundredths, as it was written.
    Percent(String),
    /// An amount, as it was written, and its currency code.
    Money(String, String),
    /// A day.
    Date(civil::Date),
    /// A moment.
    Moment(jiff::Timestamp),
    /// A day and a time of no known timezone.
    Civil(civil::DateTime),
    /// Yes or no.
    Boolean(bool),
    /// Anything else.
    Text(String),
}

/// Reads a value by its type.
pub(super) fn read(value_type: &str, value: &JsonText) -> Known {
    let text = text_of(value);
    let known = match value_type {
        "number" | "integer" | "decimal" => is_number(&text).then(|| Known::Number(text.clone())),
        "percent" => is_number(&text).then(|| Known::Percent(text.clone())),
        "money" => money(value, &text).map(|(amount, currency)| Known::Money(amount, currency)),
        "date" => date(&text).map(Known::Date).or_else(|| time(&text)),
        "datetime" | "date-time" | "timestamp" => time(&text),
        "boolean" => text.parse().ok().map(Known::Boolean),
        _ => None,
    };
    known.unwrap_or(Known::Text(text))
}

/// Tells a value.
pub(super) fn tell(known: &Known, speech: &Speech) -> String {
    match known {
        Known::Number(text) => speech.number(text).unwrap_or_else(|| text.clone()),
        Known::Percent(text) => format!("{}\u{a0}%", speech.number(text).unwrap_or_else(|| text.clone())),
        Known::Money(amount, currency) => {
            speech.money(amount, currency).unwrap_or_else(|| format!("{amount}\u{a0}{currency}"))
        }
        Known::Date(date) => speech.date(*date).unwrap_or_else(|| date.to_string()),
        Known::Moment(at) => speech.moment(*at).unwrap_or_else(|| at.to_string()),
        Known::Civil(at) => speech.civil_time(*at).unwrap_or_else(|| at.to_string()),
        Known::Boolean(true) => speech.words().yes.to_owned(),
        Known::Boolean(false) => speech.words().no.to_owned(),
        Known::Text(text) => text.clone(),
    }
}

/// A time member of evidence, such as `as_of`: a moment, a day, or whatever else it says.
pub(super) fn read_time(text: &str) -> Known {
    date(text).map(Known::Date).or_else(|| time(text)).unwrap_or_else(|| Known::Text(text.to_owned()))
}

/// The characters of a JSON string, or the text of any other value.
fn text_of(value: &JsonText) -> String {
    serde_json::from_str::<String>(value.as_str()).unwrap_or_else(|_| value.as_str().to_owned())
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// `2026-09-01`, a day that exists.
pub(super) fn date(text: &str) -> Option<civil::Date> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, b)| if matches!(at, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    if shaped { text.parse().ok() } else { None }
}

fn time(text: &str) -> Option<Known> {
    // jiff takes more than RFC 3339; what has no day and hour in its usual place is told as it is written.
    if !matches!(text.as_bytes().get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    text.parse().ok().map(Known::Moment).or_else(|| text.parse().ok().map(Known::Civil))
}

fn money(value: &JsonText, text: &str) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Amount<'a> {
        #[serde(borrow)]
        amount: &'a RawValue,
        currency: String,
    }

    let is_currency = |code: &str| code.len() == 3 && code.bytes().all(|b| b.is_ascii_alphabetic());
    let (amount, currency) = match serde_json::from_str::<Amount<'_>>(value.as_str()) {
        Ok(given) => (text_of(&JsonText::from(given.amount.to_owned())), given.currency),
        Err(_) => {
            let (first, second) = text.split_once(' ')?;
            if is_currency(first) {
                (second.to_owned(), first.to_owned())
            } else {
                (first.to_owned(), second.to_owned())
            }
        }
    };
    (is_number(&amount) && is_currency(&currency)).then_some((amount, currency))
}
