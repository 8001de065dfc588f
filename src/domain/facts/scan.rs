//! What in a text looks like a number, an amount, a date, a time or an id. A best effort: it knows how things are
//! commonly written, not what they mean.

use jiff::civil;
use std::collections::HashMap;

/// The zero of every script whose decimal digits are read.
const ZEROS: [u32; 20] = [
    0x30, 0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20,
    0x1040, 0x17E0, 0x1810, 0xFF10,
];

/// Currency signs that stand for one currency, and the code it has.
const SIGNS: [(char, &str); 8] =
    [('€', "EUR"), ('£', "GBP"), ('₹', "INR"), ('₺', "TRY"), ('₽', "RUB"), ('₩', "KRW"), ('₪', "ILS"), ('₴', "UAH")];

/// Codes that are read also where they stand right at a number: other letters there make an id.
const CODES: [&str; 28] = [
    "AED", "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EGP", "EUR", "GBP", "HUF", "ILS", "INR", "JPY", "KRW",
    "KWD", "MXN", "NOK", "PLN", "RON", "RUB", "SAR", "SEK", "TRY", "UAH", "USD", "ZAR",
];

/// Month names of the languages in question, lower-case, with their number.
pub(super) type Months = HashMap<String, i8>;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    /// A number: every way to read it, and the currency beside it where one is named.
    Number { readings: Vec<String>, currency: Option<String> },
    /// A day, as far as it is given; every way to read it.
    Date(Vec<DayPattern>),
    /// A moment.
    Moment(jiff::Timestamp),
    /// A day and its time.
    Civil(civil::DateTime),
    /// A time of day.
    Time { hour: i8, minute: i8 },
    /// An id: letters and digits, lower-case.
    Id(String),
}

/// A day, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DayPattern {
    pub(super) year: Option<i16>,
    pub(super) month: i8,
    pub(super) day: Option<i8>,
}

impl DayPattern {
    /// Every way in which a day is spoken of: whole, with a short year, without a year, without a day.
    pub(super) fn of(date: civil::Date) -> [Self; 4] {
        let whole = Self { year: Some(date.year()), month: date.month(), day: Some(date.day()) };
        [
            whole,
            Self { year: Some(date.year() % 100), ..whole },
            Self { year: None, ..whole },
            Self { day: None, ..whole },
        ]
    }
}

/// One find.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mark<'a> {
    /// As it stands in the text.
    pub(super) text: &'a str,
    /// What it looks like.
    pub(super) found: Found,
}

/// The ASCII digit of a decimal digit of any script in the table.
pub(super) fn ascii_digit(c: char) -> Option<char> {
    let code = u32::from(c);
    ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&code)).and_then(|zero| char::from_digit(code - zero, 10))
}

/// A stretch of text without blanks, and the same in plain characters.
struct Token<'a> {
    text: &'a str,
    plain: String,
}

/// Everything in a text, in order.
pub(super) fn scan<'a>(text: &'a str, months: &Months) -> Vec<Mark<'a>> {
    let tokens = tokens(text);
    let mut marks = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some((length, pattern)) = spelled_date(&tokens[at..], months) {
            let (first, last) = (tokens[at].text, tokens[at + length - 1].text);
            marks.push(Mark { text: between(text, first, last), found: Found::Date(vec![pattern]) });
            at += length;
            continue;
        }
        let token = &tokens[at];
        if token.plain.contains(|c: char| c.is_ascii_digit()) {
            let code = |beside: Option<&Token<'_>>| beside.and_then(|token| currency_code(&token.plain));
            let beside = code(tokens.get(at + 1)).or_else(|| at.checked_sub(1).and_then(|at| code(tokens.get(at))));
            let half = tokens.get(at + 1).and_then(|token| half_of_day(&token.plain));
            judge(token, beside, half, &mut marks);
        }
        at += 1;
    }
    marks
}

/// The stretch of `text` from one of its parts to another.
fn between<'a>(text: &'a str, first: &str, last: &str) -> &'a str {
    let offset = |part: &str| (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.get(offset(first)..offset(last) + last.len()).unwrap_or(text)
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start: Option<usize> = None;
    let mut chars = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map_or(' ', |(_, next)| *next);
        // A group of digits may be set apart by a blank that does not break the line.
        let groups = matches!(c, '\u{a0}' | '\u{202f}' | '\u{2009}')
            && ascii_digit(before).is_some()
            && ascii_digit(after).is_some();
        if is_part(c) || groups {
            start.get_or_insert(at);
        } else if let Some(start) = start.take() {
            push(&mut tokens, &text[start..at]);
        }
        before = c;
    }
    if let Some(start) = start {
        push(&mut tokens, &text[start..]);
    }
    tokens
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || is_invisible(c) || is_currency_sign(c) || "-_./:,'’+#@%&=~−–٫٬،".contains(c)
}

/// Marks of direction, which the locale library puts around numbers.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2066}'..='\u{2069}')
}

const fn is_currency_sign(c: char) -> bool {
    matches!(c, '$' | '£' | '¥' | '\u{20a0}'..='\u{20c0}')
}

fn push<'a>(tokens: &mut Vec<Token<'a>>, text: &'a str) {
    let is_edge = |c: char| is_invisible(c) || "-_./:,'’+#@&=~−–٫٬،".contains(c);
    let text = text.trim_matches(is_edge);
    if text.is_empty() {
        return;
    }
    let plain = text.chars().filter(|c| !is_invisible(*c)).map(plain_char).collect();
    tokens.push(Token { text, plain });
}

fn plain_char(c: char) -> char {
    match c {
        '٫' => '.',
        '٬' => '\'',
        '،' => ',',
        '’' | '\u{a0}' | '\u{202f}' | '\u{2009}' => '\'',
        '−' | '–' => '-',
        other => ascii_digit(other).unwrap_or(other),
    }
}

fn currency_code(plain: &str) -> Option<String> {
    let is_code = plain.len() == 3 && plain.bytes().all(|b| b.is_ascii_uppercase());
    let of_sign = || SIGNS.iter().find(|(sign, _)| plain.chars().eq([*sign])).map(|(_, code)| (*code).to_owned());
    if is_code { Some(plain.to_owned()) } else { of_sign() }
}

/// Whether a word says which half of the day a time is in: true for the second.
fn half_of_day(plain: &str) -> Option<bool> {
    match plain.to_ascii_lowercase().replace('.', "").as_str() {
        "am" => Some(false),
        "pm" => Some(true),
        _ => None,
    }
}

/// Judges a token that has a digit: as a whole, or else its parts.
fn judge<'a>(token: &Token<'a>, beside: Option<String>, half: Option<bool>, marks: &mut Vec<Mark<'a>>) {
    let mut add = |found: Found| marks.push(Mark { text: token.text, found });
    let plain = token.plain.as_str();
    if let Some(found) = moment(plain).or_else(|| written_date(plain)).or_else(|| time_of_day(plain, half)) {
        add(found);
    } else if let Some((readings, own)) = number(plain) {
        add(Found::Number { readings, currency: own.or(beside) });
    } else {
        add(Found::Id(plain.to_lowercase()));
    }
}

/// The parts of an id-like text that may be looked up one by one.
pub(super) fn parts(plain: &str) -> impl Iterator<Item = &str> {
    plain.split([',', ':', ';', '=', '&', '/', '-', '#', '@', '~']).filter(|part| !part.is_empty())
}

fn moment(plain: &str) -> Option<Found> {
    if !matches!(plain.as_bytes().get(10), Some(b'T' | b't')) {
        return None;
    }
    plain.parse().ok().map(Found::Moment).or_else(|| plain.parse().ok().map(Found::Civil))
}

/// `2026-09-01`, `1/9/2026`, `01.09.2026`, in every order that gives a day.
fn written_date(plain: &str) -> Option<Found> {
    let separator = plain.chars().find(|c| matches!(c, '-' | '/' | '.'))?;
    let parts: Vec<&str> = plain.split(separator).collect();
    let [first, second, third] = parts.as_slice() else { return None };
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !parts.iter().all(digits) || first.len() > 4 || second.len() > 2 || third.len() > 4 {
        return None;
    }
    let short_year = separator == '/' && third.len() == 2;
    let (year_first, year_last) = (first.len() == 4, third.len() == 4 || short_year);
    let mut patterns = Vec::new();
    let mut add = |year: &str, month: &str, day: &str| {
        let (Ok(year), Ok(month), Ok(day)) = (year.parse(), month.parse::<i8>(), day.parse::<i8>()) else { return };
        if (1..=12).contains(&month) && (1..=31).contains(&day) {
            patterns.push(DayPattern { year: Some(year), month, day: Some(day) });
        }
    };
    if year_first {
        add(first, second, third);
    } else if year_last {
        add(third, second, first);
        add(third, first, second);
    }
    (!patterns.is_empty()).then_some(Found::Date(patterns))
}

/// `16:09`, `4:09pm`, `16:09:30`.
fn time_of_day(plain: &str, half: Option<bool>) -> Option<Found> {
    let lower = plain.to_ascii_lowercase();
    let (clock, half) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
        (Some(clock), _) => (clock, Some(false)),
        (_, Some(clock)) => (clock, Some(true)),
        (None, None) => (lower.as_str(), half),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(|p| matches!(p.len(), 1 | 2)) || parts[1].len() != 2 {
        return None;
    }
    let (hour, minute): (i8, i8) = (parts[0].parse().ok()?, parts[1].parse().ok()?);
    if !(0..24).contains(&hour) || !(0..60).contains(&minute) {
        return None;
    }
    let hour = match half {
        Some(true) if hour < 12 => hour + 12,
        Some(false) if hour == 12 => 0,
        Some(_) | None => hour,
    };
    Some(Found::Time { hour, minute })
}

/// `15 January 2026`, `January 15th, 2026`, `15. Januar`, `Jan 2026`: how many tokens, and what they say.
fn spelled_date(tokens: &[Token<'_>], months: &Months) -> Option<(usize, DayPattern)> {
    let month = |at: usize| {
        let word = tokens.get(at)?.plain.to_lowercase();
        months.get(word.trim_end_matches('.')).copied()
    };
    let number = |at: usize| {
        let plain = tokens.get(at)?.plain.as_str();
        let digits = plain.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '.' || c == 'º');
        digits.parse::<i16>().ok()
    };
    let day = |at: usize| number(at).and_then(|n| i8::try_from(n).ok()).filter(|day| (1..=31).contains(day));
    let year = |at: usize| number(at).filter(|year| (1000..=9999).contains(year));
    // Between day, month and year some languages put a word: "15 de enero de 2026".
    let link = |at: usize| {
        let is_link = |token: &Token<'_>| matches!(token.plain.to_lowercase().as_str(), "de" | "del" | "of");
        usize::from(tokens.get(at).is_some_and(is_link))
    };
    if let Some(day) = day(0) {
        let at = 1 + link(1);
        let month = month(at)?;
        let year_at = at + 1 + link(at + 1);
        let year = year(year_at);
        return Some((if year.is_some() { year_at + 1 } else { at + 1 }, DayPattern { year, month, day: Some(day) }));
    }
    let month = month(0)?;
    if let Some(year) = year(1 + link(1)) {
        return Some((2 + link(1), DayPattern { year: Some(year), month, day: None }));
    }
    let day = day(1)?;
    let year = year(2);
    Some((if year.is_some() { 3 } else { 2 }, DayPattern { year, month, day: Some(day) }))
}

/// Every way to read a number, with or without a currency or a unit beside it.
fn number(plain: &str) -> Option<(Vec<String>, Option<String>)> {
    let is_digit_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '\'');
    let start = plain.find(|c: char| c.is_ascii_digit())?;
    let end = plain.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (prefix, core, suffix) = (&plain[..start], plain.get(start..end)?, plain.get(end..)?);
    if !core.chars().all(is_digit_part) {
        return None;
    }
    let attached = |text: &str| currency_code(text).filter(|code| CODES.contains(&code.as_str()));
    let is_currency = |text: &str| text.is_empty() || text.chars().any(is_currency_sign) || attached(text).is_some();
    // Behind a number any unit may stand; before it only a currency: "A5" is an id.
    if !is_currency(prefix)
        || !suffix.chars().all(|c| c.is_alphabetic() || is_currency_sign(c) || matches!(c, '%' | '.'))
    {
        return None;
    }
    let currency = attached(prefix).or_else(|| attached(suffix));
    let readings = readings(core);
    (!readings.is_empty()).then_some((readings, currency))
}

fn readings(core: &str) -> Vec<String> {
    let mut readings = Vec::new();
    for (point, group) in [('.', ','), (',', '.')] {
        let (whole, fraction) = match core.rsplit_once(point) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (core, None),
        };
        let groups: Vec<&str> = whole.split([group, '\'']).collect();
        let grouped = groups.iter().skip(1).all(|g| matches!(g.len(), 2 | 3)) && !groups[0].is_empty();
        let ends_well = groups.len() == 1 || groups.last().is_some_and(|last| last.len() == 3);
        let is_fraction = fraction.is_none_or(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()));
        if grouped && ends_well && is_fraction && !whole.contains(point) {
            let reading = canonical(&groups.concat(), fraction.unwrap_or_default());
            if !readings.contains(&reading) {
                readings.push(reading);
            }
        }
    }
    readings
}

/// Digits without leading zeros, and a fraction without trailing ones.
fn canonical(whole: &str, fraction: &str) -> String {
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Found> {
        let months = Months::from([("january".to_owned(), 1), ("enero".to_owned(), 1), ("يناير".to_owned(), 1)]);
        scan(text, &months).into_iter().map(|mark| mark.found).collect()
    }

    fn number(readings: &[&str], currency: Option<&str>) -> Found {
        Found::Number {
            readings: readings.iter().map(|text| (*text).to_owned()).collect(),
            currency: currency.map(str::to_owned),
        }
    }

    #[test]
    fn numbers_are_read_in_every_common_way() {
        for (text, expected) in [
            ("12", number(&["12"], None)),
            ("1,234.50", number(&["1234.5"], None)),
            ("1.234,50", number(&["1234.5"], None)),
            ("1'234.50", number(&["1234.5"], None)),
            ("1\u{202f}234,50", number(&["1234.5"], None)),
            ("12,34,567.8", number(&["1234567.8"], None)),
            ("1,234", number(&["1234", "1.234"], None)),
            ("١٬٢٣٤٫٥", number(&["1234.5"], None)),
            ("€12.50", number(&["12.5"], Some("EUR"))),
            ("12.50 EUR", number(&["12.5"], Some("EUR"))),
            ("EUR 12.50", number(&["12.5"], Some("EUR"))),
            ("US$12.50", number(&["12.5"], None)),
            ("-007", number(&["7"], None)),
            ("20%", number(&["20"], None)),
            ("5kg", number(&["5"], None)),
        ] {
            let all = found(text);
            assert_eq!(all.len(), 1, "{text}: {all:?}");
            let (Found::Number { readings, currency }, Found::Number { readings: expected, currency: of }) =
                (&all[0], &expected)
            else {
                panic!("{text}: {all:?}")
            };
            assert!(expected.iter().all(|reading| readings.contains(reading)), "{text}: {readings:?}");
            assert_eq!(currency, of, "{text}");
        }
    }

    #[test]
    fn dates_times_and_ids_are_told_apart() {
        let day = |year, month, day| Found::Date(vec![DayPattern { year, month, day }]);
        for (text, expected) in [
            ("2026-01-15", day(Some(2026), 1, Some(15))),
            ("15 January 2026", day(Some(2026), 1, Some(15))),
            ("January 15th, 2026", day(Some(2026), 1, Some(15))),
            ("15 de enero de 2026", day(Some(2026), 1, Some(15))),
            ("١٥ يناير ٢٠٢٦", day(Some(2026), 1, Some(15))),
            ("January 2026", day(Some(2026), 1, None)),
            ("15.01.2026", day(Some(2026), 1, Some(15))),
            ("16:09", Found::Time { hour: 16, minute: 9 }),
            ("4:09 pm", Found::Time { hour: 16, minute: 9 }),
            ("ORD-1042", Found::Id("ord-1042".to_owned())),
            ("#A5.", Found::Id("a5".to_owned())),
        ] {
            assert_eq!(found(text), [expected], "{text}");
        }
        let Found::Date(both) = &found("1/2/2026")[0] else { panic!("a date") };
        assert_eq!(both.len(), 2);
        assert!(found("no number here, at all - may be").is_empty());
    }
}
