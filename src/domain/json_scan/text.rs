//! JSON strings on raw bytes that are known to be UTF-8.

/// Passes over the string that begins at `start`: the place behind it and whether it has escapes, or where and why it
/// is no JSON string.
pub(super) fn skip_string(body: &[u8], start: usize) -> Result<(usize, bool), (usize, &'static str)> {
    let mut at = start + 1;
    let mut has_escapes = false;
    loop {
        match body.get(at) {
            Some(b'"') => return Ok((at + 1, has_escapes)),
            Some(b'\\') => {
                has_escapes = true;
                at = skip_escape(body, at)?;
            }
            Some(..=0x1F) => return Err((at, "a control character stands unescaped in a string")),
            Some(_) => at += 1,
            None => return Err((at, "the body ends inside a string")),
        }
    }
}

/// Passes over one escape; a high surrogate takes its low one along, since neither is a character alone.
fn skip_escape(body: &[u8], at: usize) -> Result<usize, (usize, &'static str)> {
    match body.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match hex4(body, at + 2) {
            Some(0xD800..=0xDBFF) => match (body.get(at + 6), body.get(at + 7), hex4(body, at + 8)) {
                (Some(b'\\'), Some(b'u'), Some(0xDC00..=0xDFFF)) => Ok(at + 12),
                _ => Err((at, "a surrogate without its pair stands in a string")),
            },
            Some(0xDC00..=0xDFFF) => Err((at, "a surrogate without its pair stands in a string")),
            Some(_) => Ok(at + 6),
            None => Err((at, "\\u wants four hexadecimal digits")),
        },
        Some(_) => Err((at, "an escape that JSON does not know stands in a string")),
        None => Err((at, "the body ends inside a string")),
    }
}

fn hex4(body: &[u8], at: usize) -> Option<u32> {
    let digits = body.get(at..at + 4)?;
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
}

/// The text of a string's inside whose escapes `skip_string` has passed.
pub(super) fn decode(raw: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        if byte != b'\\' {
            decoded.push(byte);
            at += 1;
            continue;
        }
        let escape = raw.get(at + 1).copied().unwrap_or(b'\\');
        at += 2;
        let character = match escape {
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = hex4(raw, at).unwrap_or(0);
                at += 4;
                match (high, hex4(raw, at + 2)) {
                    (0xD800..=0xDBFF, Some(low)) => {
                        at += 6;
                        let code = 0x1_0000 + ((high - 0xD800) << 10) + (low.wrapping_sub(0xDC00) & 0x3FF);
                        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
                    }
                    _ => char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER),
                }
            }
            other => char::from(other),
        };
        decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    decoded
}
