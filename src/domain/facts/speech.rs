//! In whose language facts are told: the locale, its words, and the locale library's formatters for it.
//!
//! Dates are told in the Gregorian calendar whatever the locale's own is: that is what the evidence is written in.

use super::scan::ascii_digit;
use super::words::{self, ENGLISH, Words};
use icu_calendar::Gregorian;
use icu_datetime::FixedCalendarDateTimeFormatter;
use icu_datetime::fieldsets::{YMD, YMDT};
use icu_datetime::input::{Date, DateTime, Time};
use icu_decimal::DecimalFormatter;
use icu_decimal::input::Decimal;
use icu_experimental::dimension::currency::CurrencyType;
use icu_experimental::dimension::currency::formatter::CurrencyFormatter;
use icu_locale_core::{Locale, locale};
use jiff::civil;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::cell::{OnceCell, RefCell};
use std::fmt::Write;

/// Numbers that are longer when written out are shown as the provider wrote them.
const LONGEST_NUMBER: usize = 64;

/// Whether a text is a well-formed BCP 47 language tag, as a manifest declares its languages.
pub fn is_language_tag(text: &str) -> bool {
    !text.contains('_') && Locale::try_from_str(text).is_ok()
}

/// How facts are told to one caller.
///
/// Its formatters are made when they are first needed: an answer may hold thousands of values.
#[derive(Debug)]
pub struct Speech {
    locale: Locale,
    words: &'static Words,
    timezone: TimeZone,
    decimals: OnceCell<Option<DecimalFormatter>>,
    dates: OnceCell<Option<FixedCalendarDateTimeFormatter<Gregorian, YMD>>>,
    times: OnceCell<Option<FixedCalendarDateTimeFormatter<Gregorian, YMDT>>>,
    seconds: OnceCell<Option<FixedCalendarDateTimeFormatter<Gregorian, YMDT>>>,
    /// That of the currency before: most answers have one only.
    currency: RefCell<Option<(CurrencyType, CurrencyFormatter<DecimalFormatter>)>>,
}

impl Speech {
    /// The caller's locale when the provider's languages have it or its language; else the provider's first language;
    /// else English. A timezone nobody knows counts as UTC.
    pub fn choose(caller: Option<&str>, languages: &[String], timezone: Option<&str>) -> Self {
        let offered: Vec<Locale> = languages.iter().filter_map(|tag| Locale::try_from_str(tag).ok()).collect();
        let wanted = caller.and_then(|tag| Locale::try_from_str(tag).ok());
        let locale = wanted
            .filter(|wanted| offered.iter().any(|offer| offer.id.language == wanted.id.language))
            .or_else(|| offered.into_iter().next())
            .unwrap_or(locale!("en"));
        let words = words::of_language(locale.id.language.as_str()).unwrap_or(ENGLISH);
        let timezone = timezone.and_then(|name| TimeZoneDatabase::bundled().get(name).ok()).unwrap_or(TimeZone::UTC);
        Self::new(locale, words, timezone)
    }

    /// English and UTC.
    pub(super) fn english() -> Self {
        Self::new(locale!("en"), ENGLISH, TimeZone::UTC)
    }

    fn new(locale: Locale, words: &'static Words, timezone: TimeZone) -> Self {
        Self {
            locale,
            words,
            timezone,
            decimals: OnceCell::new(),
            dates: OnceCell::new(),
            times: OnceCell::new(),
            seconds: OnceCell::new(),
            currency: RefCell::new(None),
        }
    }

    pub(super) const fn words(&self) -> &'static Words {
        self.words
    }

    /// The language of the facts, for tests and whoever has to say it.
    pub fn language(&self) -> String {
        self.locale.to_string()
    }

    pub(super) const fn timezone(&self) -> &TimeZone {
        &self.timezone
    }

    /// A number, all its digits kept; `None` when it is none or is beyond what can be shown so.
    pub(super) fn number(&self, text: &str) -> Option<String> {
        let new = || DecimalFormatter::try_new((&self.locale).into(), Default::default()).ok();
        Some(self.decimals.get_or_init(new).as_ref()?.format(&decimal(text)?).to_string())
    }

    /// An amount of money, all its digits kept: where the currency's own way to write would round, it is not followed.
    pub(super) fn money(&self, amount: &str, currency: &str) -> Option<String> {
        let value = decimal(amount)?;
        match CurrencyType::try_from_str(currency).ok().and_then(|code| self.currency_text(&value, code)) {
            Some(text) if keeps_digits(&text, &value) => Some(text),
            Some(_) | None => Some(format!("{}\u{a0}{}", self.number(amount)?, currency.to_ascii_uppercase())),
        }
    }

    fn currency_text(&self, value: &Decimal, code: CurrencyType) -> Option<String> {
        let mut kept = self.currency.borrow_mut();
        if kept.as_ref().is_none_or(|(known, _)| *known != code) {
            let formatter = CurrencyFormatter::try_new_symbol((&self.locale).into(), code, Default::default()).ok()?;
            *kept = Some((code, formatter));
        }
        kept.as_ref().map(|(_, formatter)| formatter.format_fixed_decimal(value).to_string())
    }

    /// A day.
    pub(super) fn date(&self, date: civil::Date) -> Option<String> {
        let new = || FixedCalendarDateTimeFormatter::try_new((&self.locale).into(), YMD::medium()).ok();
        Some(self.dates.get_or_init(new).as_ref()?.format(&gregorian(date)?).to_string())
    }

    /// A day with its month spelled out.
    pub(super) fn long_date(&self, date: civil::Date) -> Option<String> {
        let formatter = FixedCalendarDateTimeFormatter::try_new((&self.locale).into(), YMD::long()).ok()?;
        Some(formatter.format(&gregorian(date)?).to_string())
    }

    /// A day and the time of it, to the second where there are seconds.
    pub(super) fn civil_time(&self, at: civil::DateTime) -> Option<String> {
        let unsigned = |number: i8| u8::try_from(number).ok();
        let time = Time::try_new(unsigned(at.hour())?, unsigned(at.minute())?, unsigned(at.second())?, 0).ok()?;
        let (kept, fields) = if at.second() == 0 {
            (&self.times, YMD::medium().with_time_hm())
        } else {
            (&self.seconds, YMD::medium().with_time_hms())
        };
        let new = || FixedCalendarDateTimeFormatter::try_new((&self.locale).into(), fields).ok();
        let formatter = kept.get_or_init(new).as_ref()?;
        Some(formatter.format(&DateTime { date: gregorian(at.date())?, time }).to_string())
    }

    /// A moment, in the caller's timezone, which is named.
    pub(super) fn moment(&self, at: jiff::Timestamp) -> Option<String> {
        let zoned = at.to_zoned_datetime(self.timezone.clone());
        let mut text = self.civil_time(zoned.datetime())?;
        match self.timezone.iana_name() {
            Some(name) if name != "UTC" => write!(text, " ({name})").ok()?,
            Some(_) | None => text.push_str(" UTC"),
        }
        Some(text)
    }
}

fn gregorian(date: civil::Date) -> Option<Date<Gregorian>> {
    let (month, day) = (u8::try_from(date.month()).ok()?, u8::try_from(date.day()).ok()?);
    Date::try_new_gregorian(date.year().into(), month, day).ok()
}

/// A JSON number as the library takes it, unless it would be endless when written out.
fn decimal(text: &str) -> Option<Decimal> {
    let number = Decimal::try_from_str(text).ok()?;
    let digits = number.absolute.magnitude_range();
    (text.len() <= LONGEST_NUMBER && usize::from(digits.end().abs_diff(*digits.start())) < LONGEST_NUMBER)
        .then_some(number)
}

/// Whether a formatted text shows every digit of a number, and only zeros behind them.
fn keeps_digits(text: &str, number: &Decimal) -> bool {
    let digits = |text: &str| text.chars().filter_map(ascii_digit).collect::<String>();
    let plain = number.absolute.to_string();
    let written = match plain.split_once('.') {
        Some((whole, fraction)) => format!("{whole}{}", fraction.trim_end_matches('0')),
        None => plain,
    };
    digits(text).strip_prefix(&written).is_some_and(|rest| rest.bytes().all(|b| b == b'0'))
}
