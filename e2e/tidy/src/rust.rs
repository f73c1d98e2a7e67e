//! A look at Rust text that is good enough for rules of size and words.

use std::ops::Range;

/// The text with the contents of comments, strings and characters blanked out; lines stay in place.
#[must_use]
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' | b'b' | b'c' if !is_word_before(bytes, at) => match raw_string_end(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => match char_end(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(code).expect("whole characters are blanked out")
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut at) = (0_usize, at);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// End of a string whose quote was before `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// End of `r"…"`, `r#"…"#`, `br"…"` and so on, if one starts here.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let prefix = bytes[at..].iter().take_while(|b| b"rbc".contains(b)).count();
    if !bytes[at..at + prefix].contains(&b'r') {
        return None;
    }
    let start = at + prefix;
    let hashes = bytes[start..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(start + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let body = start + hashes + 1;
    let length = bytes[body..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |n| body + n + close.len()))
}

/// End of a character, or `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes[at + 3..].iter().position(|b| *b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let text = std::str::from_utf8(bytes.get(at + 1..)?).ok()?;
    let width = text.chars().next()?.len_utf8();
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
}

/// Positions of `word` in code, standing alone.
#[must_use]
pub fn words(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let alone = |at: &usize| {
        !is_word_before(bytes, *at) && !bytes.get(at + word.len()).is_some_and(|b| is_word(*b))
    };
    code.match_indices(word).map(|(at, _)| at).filter(alone).collect()
}

/// Number of the line of a position, from 1.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first line.
    pub line: usize,
    /// Lines from its signature to its closing brace.
    pub lines: usize,
}

/// All functions of code as [`code_only`] leaves it.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    words(code, "fn").into_iter().filter_map(|at| function(code, at)).collect()
}

fn function(code: &str, at: usize) -> Option<Function> {
    let after = code[at + 2..].trim_start();
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() {
        return None;
    }
    let body = body_of(code, at)?;
    let line = line_of(code, at);
    Some(Function { name, line, lines: line_of(code, body.end - 1) - line + 1 })
}

/// The braces that follow `from`, before any `;` outside of brackets.
fn body_of(code: &str, from: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let (mut open, mut start, mut depth) = (0_i32, None, 0_i32);
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match (byte, start) {
            (b'(' | b'[', None) => open += 1,
            (b')' | b']', None) => open -= 1,
            (b';', None) if open == 0 => return None,
            (b'{', None) if open == 0 => (start, depth) = (Some(at), 1),
            (b'{', Some(_)) => depth += 1,
            (b'}', Some(start)) => {
                depth -= 1;
                if depth == 0 {
                    return Some(start..at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether a position is in the body of a `while`, `loop` or `for`.
#[must_use]
pub fn is_in_loop(code: &str, at: usize) -> bool {
    let is_loop = |open: usize| {
        let head = code[..open].rsplit([';', '{', '}']).next().unwrap_or_default();
        ["while", "loop", "for"].iter().any(|word| !words(head, word).is_empty())
    };
    let mut open_braces = Vec::new();
    for (position, byte) in code.bytes().enumerate().take(at) {
        match byte {
            b'{' => open_braces.push(position),
            b'}' => {
                open_braces.pop();
            }
            _ => {}
        }
    }
    open_braces.into_iter().any(is_loop)
}

/// Names of the variants of `pub enum <name>`.
#[must_use]
pub fn variants(text: &str, name: &str) -> Vec<String> {
    let code = code_only(text);
    let head = format!("pub enum {name} ");
    let Some(body) = code.find(&head).and_then(|at| body_of(&code, at)) else {
        return Vec::new();
    };
    let mut depth = 0_i32;
    let mut variants = Vec::new();
    for line in code[body.start + 1..body.end - 1].lines() {
        let word: String = line.trim().chars().take_while(|c| c.is_alphanumeric()).collect();
        if depth == 0 && word.starts_with(|c: char| c.is_ascii_uppercase()) {
            variants.push(word);
        }
        let count = |set: &[char]| i32::try_from(line.matches(set).count()).unwrap_or(i32::MAX);
        depth += count(&['{', '(', '[']) - count(&['}', ')', ']']);
    }
    variants
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"
// fn comment() { }
fn first<'a>(x: &'a str) -> [u8; 2] {
    let open = '{'; let quote = '\''; /* } /* } */ */
    let raw = r#"} " fn no() {"#;
    [0; 2]
}
trait T { fn declared(&self); }
fn second() { let f: fn(u8) = |_| {}; f(0) }
"##;

    #[test]
    fn functions_are_found_with_their_lines() {
        let code = code_only(TEXT);
        assert_eq!(code.lines().count(), TEXT.lines().count());
        let found = functions(&code);
        let row = |name: &str, line, lines| Function { name: name.into(), line, lines };
        assert_eq!(found, [row("first", 3, 5), row("second", 9, 1)]);
    }

    #[test]
    fn words_stand_alone() {
        let code = code_only("ab a.b ab_c \"ab\" // ab\nab");
        assert_eq!(words(&code, "ab").len(), 2);
    }

    #[test]
    fn loops_are_told_from_straight_lines() {
        let code = "fn f() { a; while x() { b; } c; for y in z { if w { d } } }";
        let in_loop = |name: &str| is_in_loop(code, code.find(name).expect("there"));
        assert!(in_loop("b;") && in_loop("d }"));
        assert!(!in_loop("a;") && !in_loop("c;"));
    }

    #[test]
    fn variants_are_found() {
        let text = "pub enum E {\n    /// One { of\n    One,\n    #[x(y)]\n    Two {\n        A: u8,\n    },\n    Three(B),\n}\n";
        assert_eq!(variants(text, "E"), ["One", "Two", "Three"]);
    }
}
