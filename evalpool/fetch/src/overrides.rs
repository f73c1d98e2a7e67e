//! Overrides of inputs. A name may hold `*` and `?`, which stand for inputs of the flake itself.

use std::collections::BTreeMap;

use gradient_domain::flake::Override;

use crate::lock::Lock;

/// Bytes before the first wildcard.
fn literal_prefix(pattern: &str) -> usize {
    pattern.find(['*', '?']).unwrap_or(pattern.len())
}

/// What each input is replaced with. A literal name beats a pattern; of patterns the longest literal
/// prefix wins; of equals with different references none.
pub(crate) fn expand(
    overrides: &[Override],
    lock: Option<&Lock>,
    warnings: &mut Vec<String>,
) -> Vec<Override> {
    let mut chosen: BTreeMap<String, Vec<&Override>> = BTreeMap::new();
    for one in overrides.iter().filter(|one| !one.is_pattern()) {
        chosen.entry(one.input.clone()).or_default().push(one);
    }
    let patterns: Vec<&Override> = overrides.iter().filter(|one| one.is_pattern()).collect();
    let names: Vec<&str> = lock.into_iter().flat_map(Lock::root_names).collect();
    for name in &names {
        if chosen.contains_key(*name) {
            continue;
        }
        let matching = patterns.iter().filter(|one| matches(&one.input, name));
        let matching: Vec<&Override> = matching.copied().collect();
        let longest = matching.iter().map(|one| literal_prefix(&one.input)).max();
        let best = matching.into_iter().filter(|one| Some(literal_prefix(&one.input)) == longest);
        let best: Vec<&Override> = best.collect();
        if !best.is_empty() {
            chosen.insert((*name).to_owned(), best);
        }
    }
    for pattern in patterns {
        if !names.iter().any(|name| matches(&pattern.input, name)) {
            warnings.push(format!("override '{}' matches no input of flake.lock", pattern.input));
        }
    }
    let unique = |(input, all): (String, Vec<&Override>)| {
        let reference = &all.first()?.reference;
        if all.iter().all(|one| one.reference == *reference) {
            return Some(Override { input, reference: reference.clone() });
        }
        warnings.push(format!("input '{input}' is overridden in different ways; none is taken"));
        None
    };
    chosen.into_iter().filter_map(unique).collect()
}

/// Whether a name matches a pattern: `*` stands for any text, `?` for one character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and up to where it reaches so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, reach)) => {
                    star = Some((at, reach + 1));
                    p = at + 1;
                    n = reach + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(input: &str, reference: &str) -> Override {
        Override { input: input.into(), reference: reference.into() }
    }

    fn lock(names: &[&str]) -> Lock {
        let inputs: serde_json::Map<String, serde_json::Value> =
            names.iter().map(|name| ((*name).to_owned(), (*name).into())).collect();
        let json = serde_json::json!({"nodes": {"root": {"inputs": inputs}}, "root": "root"});
        Lock::new(json).expect("a lock")
    }

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "nixpkgs", true),
            ("nix*", "nixpkgs", true),
            ("nix*", "unix", false),
            ("*pkgs", "nixpkgs", true),
            ("n?xpkgs", "nixpkgs", true),
            ("n?xpkgs", "nxpkgs", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("a**", "a", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_closest_override_wins() {
        let lock = lock(&["nixpkgs", "nixpkgs-old", "home", "tool"]);
        for (given, expected, warned) in [
            (
                vec![over("nixpkgs", "l"), over("nix*", "p")],
                vec![("nixpkgs", "l"), ("nixpkgs-old", "p")],
                "",
            ),
            (
                vec![over("nix*", "a"), over("nixpkgs-*", "b")],
                vec![("nixpkgs", "a"), ("nixpkgs-old", "b")],
                "",
            ),
            (
                vec![over("h*", "a"), over("h?me", "b")],
                vec![],
                "'home' is overridden in different ways",
            ),
            (vec![over("h*", "a"), over("h?me", "a")], vec![("home", "a")], ""),
            (
                vec![over("tool", "a"), over("tool", "b")],
                vec![],
                "'tool' is overridden in different ways",
            ),
            (vec![over("x*", "a")], vec![], "'x*' matches no input"),
            (vec![over("a/b", "n")], vec![("a/b", "n")], ""),
        ] {
            let mut warnings = Vec::new();
            let expanded = expand(&given, Some(&lock), &mut warnings);
            let expected: Vec<Override> = expected.iter().map(|(i, r)| over(i, r)).collect();
            assert_eq!(expanded, expected, "{given:?}");
            let warnings = warnings.join("\n");
            assert!(
                warnings.is_empty() == warned.is_empty() && warnings.contains(warned),
                "{warnings}"
            );
        }
        let mut warnings = Vec::new();
        assert_eq!(expand(&[over("a", "x")], None, &mut warnings), [over("a", "x")]);
        assert!(warnings.is_empty());
    }
}
