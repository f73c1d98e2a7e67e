//! Percent-encoding of texts in URLs.

/// Escapes every byte that is neither a letter, a digit, nor one of `-._~/`.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The text that was escaped; `None` for a broken escape or what is no UTF-8 then.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_reads_back() {
        for text in ["", "/a/b-c.d_e~f", "a b&c?d#e%f+g=h", "\u{e4}\n", "100%"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(encode("am&x %41"), "am%26x%20%2541");
        for broken in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
