//! What of a provider's free text no evidence supports: a best-effort scan [S1], never a proof of the rest.

use super::scan::{DayPattern, Found, Mark, Months, parts, scan};
use super::speech::Speech;
use super::{facts, values};
use crate::domain::evidence::{EvidenceBody, EvidenceSet};
use jiff::civil;
use jiff::tz::TimeZone;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Most finds that are listed.
const MOST_LISTED: usize = 100;
/// So much of a text is scanned, in bytes: far more than anyone reads to a user, and little enough to cost nobody else
/// anything.
const MOST_SCANNED: usize = 64 << 10;

/// The numbers, amounts, dates, times and ids of a text that nothing in the evidence says, as they stand in the text,
/// each once, in order; at most 100, out of the first 64 KiB.
pub fn unsupported(text: &str, evidence: &EvidenceSet, speech: &Speech) -> Vec<String> {
    let months = months_of(speech);
    let marks = scan(&text[..text.floor_char_boundary(MOST_SCANNED)], &months);
    if marks.is_empty() {
        return Vec::new();
    }
    let support = Support::of(evidence, speech, &months);
    let mut seen = HashSet::new();
    let unsupported = marks.iter().filter(|mark| !support.has(&mark.found)).map(|mark: &Mark<'_>| mark.text);
    unsupported.filter(|text| seen.insert(*text)).take(MOST_LISTED).map(str::to_owned).collect()
}

/// English month names, and those of the caller's language.
fn months_of(speech: &Speech) -> Months {
    static ENGLISH: LazyLock<Months> = LazyLock::new(|| {
        let mut months = named_months(&Speech::english());
        months.insert("sept".to_owned(), 9);
        months
    });
    let mut months = ENGLISH.clone();
    if speech.words().language != "en" {
        months.extend(named_months(speech));
    }
    months
}

/// The words that stand in the date of one month and of no other.
fn named_months(speech: &Speech) -> Months {
    let mut months = Months::new();
    for month in 1..=12 {
        let date = civil::date(2026, month, 15);
        for text in [speech.date(date), speech.long_date(date)].into_iter().flatten() {
            for word in text.split(|c: char| !c.is_alphabetic() && c != '\u{301}').filter(|word| !word.is_empty()) {
                let known = months.entry(word.to_lowercase()).or_insert(month);
                if *known != month {
                    *known = 0;
                }
            }
        }
    }
    months.retain(|_, month| *month != 0);
    months
}

/// Everything the evidence says, as it is looked up.
#[derive(Default)]
struct Support {
    numbers: HashSet<String>,
    /// The currencies an amount is known in.
    amounts: HashMap<String, HashSet<String>>,
    ids: HashSet<String>,
    days: HashSet<DayPattern>,
    moments: HashSet<i64>,
    times: HashSet<(i8, i8)>,
}

impl Support {
    fn of(evidence: &EvidenceSet, speech: &Speech, months: &Months) -> Self {
        let mut support = Self::default();
        for item in evidence.items() {
            support.add_item(&item.body, speech, months);
        }
        // What was told to the caller, in their language or in English, may be said again.
        for text in facts(evidence, speech).into_iter().chain(facts(evidence, &Speech::english())) {
            support.add_text(&text, speech, months);
        }
        support
    }

    fn add_item(&mut self, body: &EvidenceBody, speech: &Speech, months: &Months) {
        let add = |text: Option<&str>| {
            if let Some(text) = text {
                self.add_text(text, speech, months);
            }
        };
        match body {
            EvidenceBody::Entity { type_name, key, label } => {
                [Some(type_name.as_str()), Some(key), label.as_deref()].into_iter().for_each(add);
            }
            EvidenceBody::Value { field, value, value_type, as_of, display, .. } => {
                let known = values::read(value_type, value);
                let plain = match &known {
                    values::Known::Money(amount, currency) => format!("{amount} {currency}"),
                    _ => value.as_str().to_owned(),
                };
                [Some(field.as_str()), Some(&plain), as_of.as_deref(), display.as_deref()].into_iter().for_each(add);
            }
            EvidenceBody::Reference { type_name, value, url } => {
                [Some(type_name.as_str()), Some(value), url.as_deref()].into_iter().for_each(add);
            }
            EvidenceBody::Completeness { scope, returned, total, .. } => {
                [Some(scope.as_str()), Some(returned), total.as_deref()].into_iter().for_each(add);
            }
            EvidenceBody::Action(action) => {
                let ids = [Some(action.action.as_str()), Some(&action.operation_id), Some(&action.request_fingerprint)];
                ids.into_iter().chain([action.recorded_at.as_deref()]).for_each(add);
            }
        }
    }

    fn add_text(&mut self, text: &str, speech: &Speech, months: &Months) {
        for mark in scan(text, months) {
            self.add(mark.found, speech);
        }
    }

    fn add(&mut self, found: Found, speech: &Speech) {
        match found {
            Found::Number { readings, currency } => {
                for reading in readings {
                    if let Some(currency) = &currency {
                        self.amounts.entry(reading.clone()).or_default().insert(currency.clone());
                    }
                    self.numbers.insert(reading);
                }
            }
            Found::Date(patterns) => {
                for pattern in patterns {
                    let whole = pattern.year.zip(pattern.day);
                    let date = whole.and_then(|(year, day)| civil::Date::new(year, pattern.month, day).ok());
                    self.days.extend(date.into_iter().flat_map(DayPattern::of));
                    self.days.insert(pattern);
                }
            }
            Found::Moment(at) => {
                self.moments.insert(at.as_second());
                for timezone in [TimeZone::UTC, speech.timezone().clone()] {
                    self.add_civil(at.to_zoned_datetime(timezone).datetime());
                }
            }
            Found::Civil(at) => self.add_civil(at),
            Found::Time { hour, minute } => {
                self.times.insert((hour, minute));
            }
            Found::Id(id) => {
                self.add_id_parts(&id);
                self.ids.insert(id);
            }
        }
    }

    fn add_civil(&mut self, at: civil::DateTime) {
        self.days.extend(DayPattern::of(at.date()));
        self.times.insert((at.hour(), at.minute()));
    }

    /// "order 1042" speaks of ORD-1042. The parts of a UUID or a hash are no numbers of their own.
    fn add_id_parts(&mut self, id: &str) {
        if id.len() >= 32 {
            return;
        }
        for part in parts(id) {
            if part.bytes().all(|b| b.is_ascii_digit()) {
                let digits = part.trim_start_matches('0');
                self.numbers.insert(if digits.is_empty() { "0" } else { digits }.to_owned());
            }
            self.ids.insert(part.to_owned());
        }
    }

    fn has(&self, found: &Found) -> bool {
        match found {
            Found::Number { readings, currency } => {
                readings.iter().any(|reading| self.has_number(reading, currency.as_ref()))
            }
            Found::Date(patterns) => patterns.iter().any(|pattern| self.days.contains(pattern)),
            Found::Moment(at) => self.moments.contains(&at.as_second()),
            Found::Civil(at) => {
                self.days.contains(&DayPattern::of(at.date())[0]) && self.has_time(at.hour(), at.minute())
            }
            Found::Time { hour, minute } => self.has_time(*hour, *minute),
            Found::Id(id) => self.has_id(id),
        }
    }

    /// An amount has to be one of its currency, where the evidence knows the number as an amount at all.
    fn has_number(&self, reading: &str, currency: Option<&String>) -> bool {
        match currency.and_then(|code| self.amounts.get(reading).map(|known| known.contains(code))) {
            Some(known) => known,
            None => self.numbers.contains(reading),
        }
    }

    /// Half a day later, too: who writes 4:09 may mean 16:09.
    fn has_time(&self, hour: i8, minute: i8) -> bool {
        self.times.contains(&(hour, minute)) || (hour < 12 && self.times.contains(&(hour + 12, minute)))
    }

    /// The whole id, or every part of it that has a digit: "total:12", "ORD-1,ORD-2", "2-3".
    fn has_id(&self, id: &str) -> bool {
        let has_digit = |piece: &&str| piece.contains(|c: char| c.is_ascii_digit());
        self.ids.contains(id)
            || id.split([',', ':', ';', '=', '&', '~']).filter(has_digit).all(|piece| self.has_piece(piece))
    }

    fn has_piece(&self, piece: &str) -> bool {
        if self.ids.contains(piece) {
            return true;
        }
        let is_known = |part: &str| {
            scan(part, &Months::new()).iter().all(|mark| match &mark.found {
                // Looked for already, or else a part of an id: that is known only as a whole.
                Found::Id(_) => false,
                other => self.has(other),
            })
        };
        if piece.contains(char::is_alphabetic) { is_known(piece) } else { piece.split(['-', '/']).all(is_known) }
    }
}
