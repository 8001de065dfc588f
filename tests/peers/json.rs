//! JSON as it was said: numbers are texts and strings are UTF-16, so nothing is lost that a value of some type would
//! round, merge or refuse.

use std::fmt;

/// One value. The members of objects are in the order of their names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Digit for digit.
    Number(String),
    /// Code units, so that half a surrogate pair stays what it is.
    Text(Vec<u16>),
    List(Vec<Json>),
    /// Members of the same name all stay, in their order.
    Object(Vec<(Vec<u16>, Json)>),
}

impl Json {
    /// Reads a whole text.
    pub(crate) fn parse(text: &str) -> Result<Json, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value()?;
        reader.skip_space();
        if reader.at == text.len() { Ok(value) } else { Err(reader.unexpected()) }
    }

    pub(crate) fn text(text: &str) -> Json {
        Json::Text(text.encode_utf16().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().find(|(found, _)| is(found, name)).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Json> {
        let Json::Object(members) = self else { return None };
        let at = members.iter().position(|(found, _)| is(found, name))?;
        Some(members.remove(at).1)
    }

    pub(crate) fn set(&mut self, name: &str, value: Json) {
        self.remove(name);
        if let Json::Object(members) = self {
            members.push((name.encode_utf16().collect(), value));
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }

    pub(crate) fn items(&self) -> &[Json] {
        if let Json::List(items) = self { items } else { &[] }
    }

    pub(crate) fn members(&self) -> &[(Vec<u16>, Json)] {
        if let Json::Object(members) = self { members } else { &[] }
    }

    /// A text without halves of surrogate pairs.
    pub(crate) fn as_text(&self) -> Option<String> {
        if let Json::Text(units) = self { String::from_utf16(units).ok() } else { None }
    }
}

/// JSON again, in ASCII.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(digits) => f.write_str(digits),
            Json::Text(units) => quoted(f, units),
            Json::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    quoted(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn is(units: &[u16], name: &str) -> bool {
    units.iter().copied().eq(name.encode_utf16())
}

fn quoted(f: &mut fmt::Formatter<'_>, units: &[u16]) -> fmt::Result {
    f.write_str("\"")?;
    for unit in units {
        match u8::try_from(*unit) {
            Ok(byte @ (b'"' | b'\\')) => write!(f, "\\{}", char::from(byte))?,
            Ok(byte @ b' '..=b'~') => write!(f, "{}", char::from(byte))?,
            Ok(_) | Err(_) => write!(f, "\\u{unit:04x}")?,
        }
    }
    f.write_str("\"")
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn unexpected(&self) -> String {
        format!("not JSON at byte {} of {}", self.at, self.text.len())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: &str) -> Result<(), String> {
        if self.text[self.at..].starts_with(wanted) {
            self.at += wanted.len();
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn value(&mut self) -> Result<Json, String> {
        self.skip_space();
        match self.peek() {
            Some(b'n') => self.take("null").map(|()| Json::Null),
            Some(b't') => self.take("true").map(|()| Json::Bool(true)),
            Some(b'f') => self.take("false").map(|()| Json::Bool(false)),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'[') => self.list(),
            Some(b'{') => self.object(),
            Some(b'-' | b'0'..=b'9') => Ok(Json::Number(self.number())),
            Some(_) | None => Err(self.unexpected()),
        }
    }

    fn number(&mut self) -> String {
        let begin = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        self.text[begin..self.at].to_owned()
    }

    /// Goes on to the next item; false at the end of the list or object.
    fn next_item(&mut self, is_first: bool, end: &str) -> Result<bool, String> {
        self.skip_space();
        if self.take(end).is_ok() {
            return Ok(false);
        }
        if !is_first {
            self.take(",")?;
        }
        Ok(true)
    }

    fn list(&mut self) -> Result<Json, String> {
        self.take("[")?;
        let mut items = Vec::new();
        while self.next_item(items.is_empty(), "]")? {
            items.push(self.value()?);
        }
        Ok(Json::List(items))
    }

    fn object(&mut self) -> Result<Json, String> {
        self.take("{")?;
        let mut members = Vec::new();
        while self.next_item(members.is_empty(), "}")? {
            self.skip_space();
            let name = self.string()?;
            self.skip_space();
            self.take(":")?;
            members.push((name, self.value()?));
        }
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Json::Object(members))
    }

    fn string(&mut self) -> Result<Vec<u16>, String> {
        self.take("\"")?;
        let mut units = Vec::new();
        loop {
            let c = self.text[self.at..].chars().next().ok_or_else(|| self.unexpected())?;
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(units),
                '\\' => units.push(self.escaped()?),
                c => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            }
        }
    }

    fn escaped(&mut self) -> Result<u16, String> {
        let c = self.peek().ok_or_else(|| self.unexpected())?;
        self.at += 1;
        Ok(u16::from(match c {
            b'"' | b'\\' | b'/' => c,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.unexpected())?;
                let unit = u16::from_str_radix(digits, 16).map_err(|_| self.unexpected())?;
                self.at += 4;
                return Ok(unit);
            }
            _ => return Err(self.unexpected()),
        }))
    }
}

#[test]
fn json_is_compared_by_what_was_said() {
    let same = |a: &str, b: &str| Json::parse(a).expect("JSON") == Json::parse(b).expect("JSON");
    assert!(same(r#"{"a":1,"b":["é",null]}"#, r#" { "b" : ["\u00E9", null ] , "a":1 } "#));
    assert!(same(r#""🦀\/""#, r#""\ud83e\udd80/""#));
    for (a, b) in [
        ("1", "1.0"),
        ("9007199254740992", "9007199254740993"),
        ("-0", "0"),
        (r#"{"a":1}"#, r#"{"a":1,"a":1}"#),
        (r#"{"a":null}"#, "{}"),
        ("[]", "{}"),
        (r#""e\u0301""#, r#""\u00e9""#),
        (r#""\ud800""#, r#""\ufffd""#),
    ] {
        assert!(!same(a, b), "{a} {b}");
        assert!(same(a, &Json::parse(a).expect("JSON").to_string()), "{a}");
    }
    for wrong in ["", "[1", "{\"a\"}", "[1 2]", "nul", "\"\\x\"", "1 2"] {
        assert!(Json::parse(wrong).is_err(), "{wrong}");
    }
}
