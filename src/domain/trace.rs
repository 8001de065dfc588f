//! W3C trace context: which trace a request belongs to, taken from whoever called and handed on to providers.

/// Length of a version-00 `traceparent`: `00-{32}-{16}-{2}`.
const HEADER_LENGTH: usize = 55;

/// The only flag toolgate knows; the others are not handed on, as the specification asks.
const SAMPLED: u8 = 0x01;

/// One step of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The whole trace: never all zero.
    pub trace_id: [u8; 16],
    /// This step of it: never all zero.
    pub span_id: [u8; 8],
    /// The caller records its part.
    pub sampled: bool,
}

impl TraceContext {
    /// A trace that begins here. Not sampled: toolgate records no spans, and does not ask providers to.
    pub fn new(random: [u8; 24]) -> Self {
        let (trace, span) = random.split_at(16);
        let mut context = Self { trace_id: [0; 16], span_id: [0; 8], sampled: false };
        context.trace_id.copy_from_slice(trace);
        context.span_id.copy_from_slice(span);
        context.trace_id = never_zero(context.trace_id);
        context.span_id = never_zero(context.span_id);
        context
    }

    /// Reads a `traceparent` of version 00: exact length, lower-case hex, no id of zeros. Anything else is `None`: the
    /// header is then ignored, as the specification asks, never an error.
    pub fn parse(traceparent: &str) -> Option<Self> {
        if traceparent.len() != HEADER_LENGTH {
            return None;
        }
        let mut parts = traceparent.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != "00" || parts.next().is_some() {
            return None;
        }
        let trace_id = lower_hex::<16>(trace)?;
        let span_id = lower_hex::<8>(span)?;
        let [flags] = lower_hex::<1>(flags)?;
        let zero = trace_id == [0; 16] || span_id == [0; 8];
        (!zero).then_some(Self { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }

    /// Toolgate's own step of the trace a request came with, or of a new one.
    pub fn continue_from(traceparent: Option<&str>, random: [u8; 24]) -> Self {
        let fresh = Self::new(random);
        match traceparent.and_then(Self::parse) {
            Some(parent) => parent.child(fresh.span_id),
            None => fresh,
        }
    }

    /// The next step of the same trace.
    pub fn child(&self, random: [u8; 8]) -> Self {
        Self { span_id: never_zero(random), ..*self }
    }

    /// The `traceparent` to send.
    pub fn to_header(&self) -> String {
        let mut header = String::with_capacity(HEADER_LENGTH);
        header.push_str("00-");
        push_hex(&mut header, self.trace_id);
        header.push('-');
        push_hex(&mut header, self.span_id);
        header.push_str(if self.sampled { "-01" } else { "-00" });
        header
    }

    /// The trace id as it stands in answers and logs: 32 lower-case hex digits.
    pub fn trace_id_hex(&self) -> String {
        let mut text = String::with_capacity(32);
        push_hex(&mut text, self.trace_id);
        text
    }
}

/// An id of zeros means "none" on the wire, so random zeros become one.
fn never_zero<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    bytes
}

fn lower_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Every request writes some: by a table of digits, where the machinery of `write!` would cost ten times as much.
fn push_hex<const N: usize>(text: &mut String, bytes: [u8; N]) {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 0xf)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_specification_is_read_and_written() {
        let context = TraceContext::parse(EXAMPLE).expect("a good header");
        assert!(context.sampled);
        assert_eq!(context.trace_id_hex(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.to_header(), EXAMPLE);
    }

    #[test]
    fn anything_else_than_version_00_to_the_letter_is_ignored() {
        for bad in [
            "",
            "00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7a-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn other_flags_are_not_handed_on() {
        let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff");
        assert_eq!(context.map(|c| c.to_header()).as_deref(), Some(EXAMPLE));
    }

    #[test]
    fn a_good_header_is_continued_under_a_span_of_ours() {
        let context = TraceContext::continue_from(Some(EXAMPLE), [7; 24]);
        assert_eq!(context.to_header(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01");
    }

    #[test]
    fn without_a_good_header_a_new_trace_begins() {
        for header in [None, Some("nonsense")] {
            let context = TraceContext::continue_from(header, [7; 24]);
            assert_eq!(context.to_header(), "00-07070707070707070707070707070707-0707070707070707-00");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_randomness_the_header_is_readable(random in prop::array::uniform24(prop_oneof![Just(0u8), any::<u8>()])) {
            let context = TraceContext::new(random);
            prop_assert_eq!(TraceContext::parse(&context.to_header()), Some(context));
            let child = context.child([0; 8]);
            prop_assert_eq!(child.trace_id, context.trace_id);
            prop_assert_eq!(TraceContext::parse(&child.to_header()), Some(child));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,60}") {
            let parsed = TraceContext::parse(&text);
            prop_assert!(parsed.is_none_or(|context| context.trace_id != [0; 16]));
        }
    }
}
