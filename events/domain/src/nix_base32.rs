//! The base 32 of Nix: its own alphabet, least significant digit last.

const ALPHABET: &[u8; 32] = b"0123456789abcdfghijklmnpqrsvwxyz";

/// Whether a byte is a digit of this base.
#[must_use]
pub fn is_digit(byte: u8) -> bool {
    ALPHABET.contains(&byte)
}

/// Text of `bytes`: 52 digits for a SHA-256, 32 for a store path's 20 bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let digits = (bytes.len() * 8).div_ceil(5);
    (0..digits)
        .rev()
        .map(|n| {
            let (byte, shift) = (n * 5 / 8, n * 5 % 8);
            let low = u16::from(bytes[byte]);
            let high = bytes.get(byte + 1).map_or(0, |b| u16::from(*b));
            char::from(ALPHABET[usize::from(((high << 8 | low) >> shift) & 31)])
        })
        .collect()
}

/// The bytes behind `text`, or `None` if it is not such a text of `N` bytes.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != (N * 8).div_ceil(5) {
        return None;
    }
    let mut bytes = [0u8; N];
    for (n, digit) in text.bytes().rev().enumerate() {
        let value = ALPHABET.iter().position(|a| *a == digit)? as u16;
        let (byte, shift) = (n * 5 / 8, n * 5 % 8);
        let wide = value << shift;
        bytes[byte] |= (wide & 0xff) as u8;
        match bytes.get_mut(byte + 1) {
            Some(next) => *next |= (wide >> 8) as u8,
            None if wide >> 8 != 0 => return None,
            None => {}
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_hash_has_its_known_text() {
        let sha256_of_nothing: [u8; 32] = [
            0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f,
            0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b,
            0x78, 0x52, 0xb8, 0x55,
        ];
        let text = "0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73";
        assert_eq!(encode(&sha256_of_nothing), text);
        assert_eq!(decode(text), Some(sha256_of_nothing));
    }

    #[test]
    fn wrong_digits_and_lengths_are_refused() {
        assert_eq!(decode::<20>("e"), None);
        assert_eq!(decode::<20>(&"e".repeat(32)), None);
        assert_eq!(decode::<1>("zz"), None);
    }
}
