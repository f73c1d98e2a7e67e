//! Tables for the pattern grammar.

use super::*;

fn name(text: &str) -> Segment {
    Segment::Name(text.to_owned())
}

fn set(text: &str) -> Result<PatternSet, ParsePatternError> {
    text.parse()
}

#[test]
fn texts_become_segments() {
    let rows: [(&str, Vec<Segment>); 12] = [
        ("packages.x86_64-linux.*", vec![name("packages"), name("x86_64-linux"), Segment::Star]),
        ("a.*.*", vec![name("a"), Segment::Star]),
        ("a.*.*.*.b", vec![name("a"), Segment::Star, name("b")]),
        ("a.#.#", vec![name("a"), Segment::Hash, Segment::Hash]),
        ("a.**", vec![name("a"), name("**")]),
        ("a.py*", vec![name("a"), name("py*")]),
        ("a.\"tool-1.2\"", vec![name("a"), name("tool-1.2")]),
        ("a.\"with space\"", vec![name("a"), name("with space")]),
        ("a.py\"th.on\"", vec![name("a"), name("pyth.on")]),
        ("a.\"q\\\"\\\\\\$\\n\"", vec![name("a"), name("q\"\\$\n")]),
        ("a.\"\\u{2a}\"", vec![name("a"), name("*")]),
        ("a.\"\"", vec![name("a"), name("")]),
    ];
    for (text, segments) in rows {
        let parsed: Pattern = text.parse().expect(text);
        assert_eq!(parsed, Pattern { exclude: false, segments }, "{text}");
        assert_eq!(parsed.to_string().parse(), Ok(parsed), "{text}");
    }
}

#[test]
fn what_is_no_pattern_is_refused_with_its_reason() {
    use ParsePatternError as E;
    let rows = [
        ("", E::Empty),
        (" a", E::Whitespace),
        ("a ", E::Whitespace),
        ("a b", E::Whitespace),
        ("a ,b", E::Whitespace),
        ("a\tb", E::Whitespace),
        ("a,,b", E::ConsecutiveCommas),
        ("a,", E::Empty),
        (",a", E::Empty),
        ("a, ,b", E::Empty),
        (".a", E::LeadingPeriod),
        ("!.a", E::LeadingPeriod),
        ("a..b", E::EmptySegment),
        ("a.", E::EmptySegment),
        ("!", E::BareSpecial),
        ("#", E::BareSpecial),
        ("a.\"*\"", E::BareSpecial),
        ("\"#\"", E::BareSpecial),
        ("a.\"!\"", E::BareSpecial),
        ("a.!b", E::BareSpecial),
        ("!!a", E::BareSpecial),
        ("a,!b.*", E::WildcardInExclusion),
        ("a,!b.#.c", E::WildcardInExclusion),
        ("!a", E::NothingIncluded),
        ("a.\"b", E::UnterminatedQuote),
        ("a.\"\\q\"", E::UnknownEscape),
        ("a.\"\\u{d800}\"", E::UnknownEscape),
    ];
    for (text, reason) in rows {
        assert_eq!(set(text), Err(reason), "{text:?}");
    }
}

#[test]
fn a_set_splits_at_commas_outside_quotes() {
    let parsed =
        set("packages.*, checks.\"a,b\",!packages.x86_64-linux.\"tool-1.2\"").expect("set");
    assert_eq!(parsed.includes.len(), 2);
    assert_eq!(parsed.includes[1].segments, [name("checks"), name("a,b")]);
    let excluded: AttrPath = ["packages", "x86_64-linux", "tool-1.2"].into_iter().collect();
    assert_eq!(parsed.excludes, [excluded]);
    assert_eq!(parsed.to_string().parse(), Ok(parsed));
}

#[test]
fn a_bare_star_means_the_documented_roots() {
    let parsed = set("*").expect("set");
    let texts: Vec<_> = parsed.includes.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), ROOTS.len());
    assert_eq!(texts[0], "checks.*");
    assert!(parsed.unknown_root().is_none());
    let other = set("packages.*,lib.x").expect("set");
    assert_eq!(other.unknown_root().map(ToString::to_string).as_deref(), Some("lib.x"));
}

#[test]
fn reach_is_judged_by_names() {
    let path = |names: &[&str]| names.iter().copied().collect::<AttrPath>();
    let rows: [(&str, &[&str], bool); 8] = [
        ("a.*", &["a", "b"], true),
        ("a.*", &["a", "b", "c"], true),
        ("a.*", &["a", "b", "c", "d"], false),
        ("a.#", &["a", "b", "c"], false),
        ("a.*.c", &["a", "b", "c"], true),
        ("a.*.c", &["a", "b", "x"], false),
        ("a.b", &["a", "b"], true),
        ("a.b", &["a"], false),
    ];
    for (text, names, reached) in rows {
        let pattern: Pattern = text.parse().expect(text);
        assert_eq!(pattern.reaches(&path(names)), reached, "{text} {names:?}");
    }
}
