//! Rust source as the rules read it: without comments, literals and test code, cut into words and signs.

/// One file under `src`, ready for the rules.
pub(super) struct Source<'a> {
    /// Relative to `src`, with `/`.
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    /// Without the contents of comments and literals.
    pub(super) code: Vec<char>,
    /// Like `code`, without test code.
    pub(super) live: Vec<char>,
    pub(super) tokens: Vec<Token>,
}

/// A word or a single sign of `live`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a str, text: &'a str) -> Self {
        let code = without_comments_and_literals(text);
        let live = if is_test_file(path) { blank(&code) } else { without_test_items(&code) };
        let tokens = tokens(&live);
        Self { path, text, code, live, tokens }
    }

    /// The modules that lead to this file: `engine/actors/mod.rs` is `engine`, `actors`.
    pub(super) fn modules(&self) -> Vec<&str> {
        let stem = self.path.strip_suffix(".rs").unwrap_or(self.path);
        stem.strip_suffix("/mod").unwrap_or(stem).split('/').collect()
    }

    /// Whether this is `home.rs` or below `home/`.
    pub(super) fn is_in(&self, home: &str) -> bool {
        self.path.strip_prefix(home).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    /// Whether the tokens from `at` on are these.
    pub(super) fn is_at(&self, at: usize, texts: &[&str]) -> bool {
        texts.iter().enumerate().all(|(n, text)| self.tokens.get(at + n).is_some_and(|token| token.text == *text))
    }

    pub(super) fn text_before(&self, at: usize) -> &str {
        at.checked_sub(1).map_or("", |before| &self.tokens[before].text)
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn blank(code: &[char]) -> Vec<char> {
    code.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }).collect()
}

/// Puts spaces for comments and for what is inside of string and character literals; lines stay where they are.
fn without_comments_and_literals(text: &str) -> Vec<char> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = chars.clone();
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            'r' if !follows_word(&chars, at) => raw_string_end(&chars, at).unwrap_or(at + 1),
            // `br"…"`, `cr"…"`; `b"…"` and `c"…"` are met at their quote.
            'b' | 'c' if !follows_word(&chars, at) && chars.get(at + 1) == Some(&'r') => {
                raw_string_end(&chars, at + 1).unwrap_or(at + 1)
            }
            '"' => string_end(&chars, at),
            '\'' => character_end(&chars, at).unwrap_or(at + 1),
            _ => at + 1,
        };
        if end > at + 1 {
            for c in &mut out[at..end] {
                if *c != '\n' {
                    *c = ' ';
                }
            }
        }
        at = end;
    }
    out
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && is_word(chars[at - 1])
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| at + n)
}

fn comment_end(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start + 2, 1);
    while at < chars.len() && depth > 0 {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (at, depth) = (at + 2, depth + 1),
            ('*', Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at.min(chars.len())
}

fn raw_string_end(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    let found = chars[open + 1..].windows(close.len()).position(|window| window == close);
    Some(found.map_or(chars.len(), |n| open + 1 + n + close.len()))
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `None` for a lifetime.
fn character_end(chars: &[char], start: usize) -> Option<usize> {
    if chars.get(start + 1) == Some(&'\\') {
        let rest = chars.get(start + 3..)?;
        return rest.iter().position(|c| *c == '\'').map(|n| start + 3 + n + 1);
    }
    (chars.get(start + 2) == Some(&'\'')).then_some(start + 3)
}

/// Puts spaces for every item, field, variant or arm behind `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn without_test_items(code: &[char]) -> Vec<char> {
    let mut out = code.to_vec();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        let attribute: Vec<char> = attribute.chars().collect();
        for start in 0..code.len() {
            if code[start..].starts_with(&attribute) {
                let end = item_end(code, start);
                for c in &mut out[start..end] {
                    if *c != '\n' {
                        *c = ' ';
                    }
                }
            }
        }
    }
    out
}

/// Where the item that begins with an attribute at `start` ends: behind its block, its `;` or its `,`.
fn item_end(code: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0usize);
    while at < code.len() {
        match code[at] {
            '(' | '[' | '<' => depth += 1,
            // Not the end of `->` and `=>`.
            '>' if at > 0 && matches!(code[at - 1], '-' | '=') => {}
            ')' | ']' | '>' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return block_end(code, at),
            ';' | ',' if depth == 0 => return at + 1,
            '}' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    code.len()
}

/// Behind the `}` that closes the `{` at `open`.
fn block_end(code: &[char], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code.iter().enumerate().skip(open) {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn tokens(code: &[char]) -> Vec<Token> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < code.len() {
        let length = code[at..].iter().take_while(|c| is_word(**c)).count().max(1);
        match code[at] {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            ':' if code.get(at + 1) == Some(&':') => {
                found.push(Token { text: "::".to_owned(), line });
                at += 2;
                continue;
            }
            _ => found.push(Token { text: code[at..at + length].iter().collect(), line }),
        }
        at += length;
    }
    found
}

/// Name, line and number of lines of every function with a body.
pub(super) fn functions(code: &[char]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for at in 0..code.len() {
        if !code[at..].starts_with(&['f', 'n', ' ']) || follows_word(code, at) {
            continue;
        }
        let name: String = code[at + 3..].iter().take_while(|c| is_word(**c)).collect();
        let Some(open) = body_start(code, at).filter(|_| !name.is_empty()) else { continue };
        let lines = code[at..block_end(code, open)].iter().filter(|c| **c == '\n').count() + 1;
        let line = code[..at].iter().filter(|c| **c == '\n').count() + 1;
        found.push((name, line, lines));
    }
    found
}

/// The `{` of a function's body; `None` when it is only declared.
fn body_start(code: &[char], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in code.iter().enumerate().skip(at) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}
