//! Text from outside for a terminal, in pieces: colours pass, all other control sequences are shown
//! instead of obeyed.

/// Longest colour sequence; a longer one is shown.
const SEQUENCE_BYTES_MAX: usize = 64;
/// Ends all colours.
const RESET: &[u8] = b"\x1b[0m";

/// What is known between two pieces.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    /// The start of a character or of a sequence whose rest is in the next piece.
    pending: Vec<u8>,
    is_coloured: bool,
}

/// What stands at the start of some text.
enum Token {
    /// This many bytes may pass.
    Pass(usize),
    /// A colour sequence of this many bytes.
    Colour(usize),
    /// A control character of this many bytes.
    Control(usize),
    /// This many bytes that are no text.
    Junk(usize),
    /// More is needed to know.
    Open,
}

impl Terminal {
    /// The piece as it may be written.
    pub(super) fn show(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.pending);
        text.extend_from_slice(piece);
        let mut shown = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            at += match token(rest) {
                Token::Pass(length) => {
                    shown.extend_from_slice(&rest[..length]);
                    length
                }
                Token::Colour(length) => {
                    self.is_coloured = rest[..length] != *RESET && rest[..length] != *b"\x1b[m";
                    shown.extend_from_slice(&rest[..length]);
                    length
                }
                Token::Control(length) | Token::Junk(length) => {
                    escape(&rest[..length], &mut shown);
                    length
                }
                Token::Open => {
                    self.pending = rest.to_vec();
                    break;
                }
            };
        }
        shown
    }

    /// What is left at the end.
    pub(super) fn end(self) -> Vec<u8> {
        let mut shown = Vec::new();
        escape(&self.pending, &mut shown);
        if self.is_coloured {
            shown.extend_from_slice(RESET);
        }
        shown
    }
}

fn token(text: &[u8]) -> Token {
    match text[0] {
        b'\n' | b'\t' => Token::Pass(1),
        b'\r' => match text.get(1) {
            None => Token::Open,
            Some(b'\n') => Token::Pass(2),
            Some(_) => Token::Control(1),
        },
        0x1b => sequence(text),
        byte if byte.is_ascii_control() => Token::Control(1),
        byte if byte.is_ascii() => {
            let end = text.iter().position(|byte| !byte.is_ascii() || byte.is_ascii_control());
            Token::Pass(end.unwrap_or(text.len()))
        }
        _ => character(text),
    }
}

/// `ESC [ <numbers> m`; of any other sequence the first character alone, which takes its effect.
fn sequence(text: &[u8]) -> Token {
    match text.get(1) {
        None => return Token::Open,
        Some(b'[') => {}
        Some(_) => return Token::Control(1),
    }
    let numbers = text[2..].iter().take_while(|byte| byte.is_ascii_digit() || b";:".contains(byte));
    let end = 2 + numbers.count();
    match text.get(end) {
        _ if end >= SEQUENCE_BYTES_MAX => Token::Control(1),
        None => Token::Open,
        Some(b'm') => Token::Colour(end + 1),
        Some(_) => Token::Control(1),
    }
}

/// A character of more than one byte.
fn character(text: &[u8]) -> Token {
    let text = &text[..text.len().min(4)];
    let length = match std::str::from_utf8(text) {
        Ok(_) => text.len(),
        Err(error) if error.valid_up_to() > 0 => error.valid_up_to(),
        Err(error) => return error.error_len().map_or(Token::Open, Token::Junk),
    };
    let first = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.chars().next());
    match first {
        Some(first) if first.is_control() => Token::Control(first.len_utf8()),
        Some(first) => Token::Pass(first.len_utf8()),
        None => Token::Junk(1),
    }
}

fn escape(bytes: &[u8], shown: &mut Vec<u8>) {
    for piece in bytes.utf8_chunks() {
        for c in piece.valid().chars() {
            if c.is_control() {
                shown.extend(c.escape_default().to_string().bytes());
            } else {
                shown.extend(c.to_string().bytes());
            }
        }
        if !piece.invalid().is_empty() {
            shown.extend(char::REPLACEMENT_CHARACTER.to_string().bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(pieces: &[&[u8]]) -> String {
        let mut terminal = Terminal::default();
        let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| terminal.show(piece)).collect();
        shown.extend(terminal.end());
        String::from_utf8(shown).expect("text")
    }

    #[test]
    fn colours_pass_and_nothing_else_does() {
        for (text, expected) in [
            ("plain\ttext\r\n", "plain\ttext\r\n"),
            ("\x1b[1;31mred\x1b[0m\n", "\x1b[1;31mred\x1b[0m\n"),
            ("\x1b[38:5:9mred", "\x1b[38:5:9mred\x1b[0m"),
            ("\x1b[2Jgone", "\\u{1b}[2Jgone"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\x1b[?25l\x1b[>4;2m", "\\u{1b}[?25l\\u{1b}[>4;2m"),
            ("50 %\r100 %\u{8}", "50 %\\r100 %\\u{8}"),
            ("\u{9b}2J grün ✓", "\\u{9b}2J grün ✓"),
            ("open \x1b[3", "open \\u{1b}[3"),
        ] {
            assert_eq!(show(&[text.as_bytes()]), expected);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(show(&bytes), expected, "byte by byte");
        }
        let long = format!("\x1b[{}m", "1;".repeat(40));
        assert!(show(&[long.as_bytes()]).starts_with("\\u{1b}[1;"));
        assert_eq!(show(&[b"a\xffb\xc3"]), "a\u{fffd}b\u{fffd}");
    }
}
