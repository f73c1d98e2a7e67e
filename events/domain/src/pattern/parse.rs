//! From text to segments.

use super::{ParsePatternError, Segment};

/// The texts between commas that stand outside quotes, spaces after a comma dropped.
pub(super) fn split_at_commas(text: &str) -> Result<Vec<&str>, ParsePatternError> {
    let mut parts = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                if text[at + 1..].starts_with(',') {
                    return Err(ParsePatternError::ConsecutiveCommas);
                }
                parts.push(text[start..at].trim_start_matches(' '));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim_start_matches(' '));
    Ok(parts)
}

/// A segment under construction.
#[derive(Default)]
struct Partial {
    name: String,
    quoted: bool,
    escaped: bool,
}

impl Partial {
    fn finish(self) -> Result<Segment, ParsePatternError> {
        let special = matches!(self.name.as_str(), "*" | "#" | "!");
        match self.name.as_str() {
            _ if self.quoted && special && !self.escaped => Err(ParsePatternError::BareSpecial),
            _ if self.quoted => Ok(Segment::Name(self.name)),
            "" => Err(ParsePatternError::EmptySegment),
            "*" => Ok(Segment::Star),
            "#" => Ok(Segment::Hash),
            name if name.starts_with('!') => Err(ParsePatternError::BareSpecial),
            _ => Ok(Segment::Name(self.name)),
        }
    }
}

pub(super) fn parse_segments(body: &str) -> Result<Vec<Segment>, ParsePatternError> {
    if body.is_empty() {
        return Err(ParsePatternError::Empty);
    }
    if body.starts_with('.') {
        return Err(ParsePatternError::LeadingPeriod);
    }
    let mut segments = Vec::new();
    let (mut partial, mut in_quotes) = (Partial::default(), false);
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                in_quotes = !in_quotes;
                partial.quoted = true;
            }
            '\\' if in_quotes => {
                partial.name.push(unescape(&mut chars)?);
                partial.escaped = true;
            }
            '.' if !in_quotes => segments.push(std::mem::take(&mut partial).finish()?),
            c if !in_quotes && c.is_whitespace() => return Err(ParsePatternError::Whitespace),
            c => partial.name.push(c),
        }
    }
    if in_quotes {
        return Err(ParsePatternError::UnterminatedQuote);
    }
    segments.push(partial.finish()?);
    Ok(segments)
}

fn unescape(chars: &mut std::str::Chars<'_>) -> Result<char, ParsePatternError> {
    match chars.next() {
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some(c @ ('"' | '\\' | '$')) => Ok(c),
        Some('u') => {
            let (digits, rest) = chars
                .as_str()
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('}'))
                .ok_or(ParsePatternError::UnknownEscape)?;
            *chars = rest.chars();
            u32::from_str_radix(digits, 16)
                .ok()
                .and_then(char::from_u32)
                .ok_or(ParsePatternError::UnknownEscape)
        }
        Some(_) | None => Err(ParsePatternError::UnknownEscape),
    }
}
