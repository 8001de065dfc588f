//! Which numbers keep their value: integers of 64 bits, decimals of at most 15 significant digits.

/// Most significant digits a double keeps whatever they are.
const MAX_SIGNIFICANT_DIGITS: usize = 15;

/// Largest distance of the scientific exponent from zero.
const MAX_EXPONENT: i64 = 300;

/// How an exact number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberKind {
    /// Without fraction and exponent.
    Integer,
    /// With one of them.
    Decimal,
}

/// Why a number would not keep its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NumberFault {
    /// Beyond 64 bits.
    #[error("an integer is outside -9223372036854775808 to 18446744073709551615 and cannot be kept exactly")]
    IntegerRange,
    /// Too many digits.
    #[error("a decimal has more than 15 significant digits and cannot be kept exactly")]
    Digits,
    /// Too large or too small.
    #[error("the exponent of a decimal is beyond \u{b1}300 and cannot be kept exactly")]
    Exponent,
}

/// What stands at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberScan {
    /// A JSON number that keeps its value, this many bytes long.
    Exact {
        /// How it is written.
        kind: NumberKind,
        /// Bytes of the number.
        length: usize,
        /// It is minus zero in some spelling.
        negative_zero: bool,
    },
    /// A JSON number that would not keep its value.
    Inexact {
        /// Why.
        fault: NumberFault,
        /// Bytes of the number.
        length: usize,
    },
    /// No JSON number: it breaks off at this byte.
    NoNumber {
        /// The first byte that does not fit.
        at: usize,
    },
}

/// Reads the JSON number that `bytes` begin with.
pub(crate) fn check_number(bytes: &[u8]) -> NumberScan {
    let negative = bytes.first() == Some(&b'-');
    let whole_start = usize::from(negative);
    let whole_end = digits_end(bytes, whole_start);
    let whole = &bytes[whole_start..whole_end];
    match whole {
        [] => return NumberScan::NoNumber { at: whole_end },
        [b'0', _, ..] => return NumberScan::NoNumber { at: whole_start + 1 },
        _ => {}
    }
    let mut end = whole_end;
    let mut fraction: &[u8] = &[];
    if bytes.get(end) == Some(&b'.') {
        let fraction_end = digits_end(bytes, end + 1);
        fraction = &bytes[end + 1..fraction_end];
        end = fraction_end;
        if fraction.is_empty() {
            return NumberScan::NoNumber { at: end };
        }
    }
    let mut exponent = 0;
    let mut has_exponent = false;
    if let Some(b'e' | b'E') = bytes.get(end) {
        has_exponent = true;
        let sign = bytes.get(end + 1);
        let start = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        end = digits_end(bytes, start);
        if end == start {
            return NumberScan::NoNumber { at: end };
        }
        // Far beyond every limit is all that has to be known of a huge exponent.
        exponent = bytes[start..end].iter().fold(0_i64, |e, digit| (e * 10 + i64::from(digit - b'0')).min(1 << 40));
        if sign == Some(&b'-') {
            exponent = -exponent;
        }
    }
    let is_integer = fraction.is_empty() && !has_exponent;
    let fault = if is_integer { integer_fault(negative, whole) } else { decimal_fault(whole, fraction, exponent) };
    if let Some(fault) = fault {
        return NumberScan::Inexact { fault, length: end };
    }
    let kind = if is_integer { NumberKind::Integer } else { NumberKind::Decimal };
    let negative_zero = negative && whole.iter().chain(fraction).all(|digit| *digit == b'0');
    NumberScan::Exact { kind, length: end, negative_zero }
}

fn digits_end(bytes: &[u8], start: usize) -> usize {
    let digits = bytes.get(start..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    start + digits
}

fn integer_fault(negative: bool, digits: &[u8]) -> Option<NumberFault> {
    if digits.len() < 19 {
        return None;
    }
    let magnitude = digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0'))));
    match magnitude {
        Some(magnitude) if !negative || magnitude <= i64::MIN.unsigned_abs() => None,
        _ => Some(NumberFault::IntegerRange),
    }
}

fn decimal_fault(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<NumberFault> {
    let length = whole.len() + fraction.len();
    let digit = |i: usize| if i < whole.len() { whole[i] } else { fraction[i - whole.len()] };
    let scientific = match (0..length).find(|i| digit(*i) != b'0') {
        Some(first) => {
            let last = (first..length).rev().find(|i| digit(*i) != b'0').unwrap_or(first);
            if last - first >= MAX_SIGNIFICANT_DIGITS {
                return Some(NumberFault::Digits);
            }
            exponent + signed(whole.len()) - 1 - signed(first)
        }
        // Zero has no scientific exponent of its own; the written one counts.
        None => exponent,
    };
    (scientific.abs() > MAX_EXPONENT).then_some(NumberFault::Exponent)
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX / 4)
}
