//! Patterns of file names, as `fnmatch` knows them: `*`, `?`, `[...]`, and a backslash before what
//! is meant as it stands.

/// Whether the whole text fits the pattern.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last star does not fit: the star takes one more.
    let mut retry = None;
    while t < text.len() {
        match step(&pattern[p..], text[t]) {
            Step::Star => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Step::Fits(used) => {
                p += used;
                t += 1;
            }
            Step::Differs => {
                let Some((after, taken)) = retry else { return false };
                retry = Some((after, taken + 1));
                (p, t) = (after, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

enum Step {
    Star,
    /// One character, by so many of the pattern.
    Fits(usize),
    Differs,
}

fn step(pattern: &[char], c: char) -> Step {
    let plain = |wanted: char, used| if wanted == c { Step::Fits(used) } else { Step::Differs };
    match pattern {
        [] => Step::Differs,
        ['*', ..] => Step::Star,
        ['?', ..] => Step::Fits(1),
        ['\\', escaped, ..] => plain(*escaped, 2),
        ['[', rest @ ..] => match class(rest, c) {
            Some((true, used)) => Step::Fits(used + 1),
            Some((false, _)) => Step::Differs,
            None => plain('[', 1),
        },
        [wanted, ..] => plain(*wanted, 1),
    }
}

/// Whether a character is in a class `[...]`, and how long the class is; `None` if it has no end.
fn class(text: &[char], c: char) -> Option<(bool, usize)> {
    let negated = matches!(text.first(), Some('!' | '^'));
    let mut at = usize::from(negated);
    let (first, mut hit) = (at, false);
    loop {
        match text.get(at..)? {
            [']', ..] if at > first => return Some((hit != negated, at + 1)),
            [low, '-', high, ..] if *high != ']' => {
                hit |= (*low..=*high).contains(&c);
                at += 3;
            }
            [one, ..] => {
                hit |= *one == c;
                at += 1;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn names_fit_as_the_shell_has_it() {
        let rows = [
            ("*", "", true),
            ("*", "a.b", true),
            ("packages.*", "packages.a.b", true),
            ("packages.*", "package.a", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*d", "abcbxd", true),
            ("*b*d", "abcbx", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a-", "[a-", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a**b", "ab", true),
            ("", "", true),
            ("", "a", false),
            ("\u{e4}?", "\u{e4}\u{f6}", true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
        // No pattern takes longer than its length times the text's.
        assert!(!fits(&"*a".repeat(30), &"a".repeat(29)));
    }
}
