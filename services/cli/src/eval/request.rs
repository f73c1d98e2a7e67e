//! From arguments to what is evaluated.

use std::collections::BTreeMap;

use gradient_domain::flake::{LockPolicy, Override};
use gradient_domain::pattern::{Pattern, PatternSet, Segment};
use gradient_domain::percent;
use gradient_fetch::LockedFlake;
use gradient_pool::{Expression, Extras, Recursion, TextExpression};

use super::args::EvalArgs;
use crate::exit::Failure;

/// Settings of Nix that `--option` may set: those that change what an evaluation sees, not where it
/// stores things or what it may build.
const OPTIONS: [&str; 8] = [
    "access-tokens",
    "allowed-uris",
    "eval-system",
    "extra-experimental-features",
    "max-call-depth",
    "netrc-file",
    "restrict-eval",
    "trace-verbose",
];

/// What is evaluated, before the flake is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) tree: Tree,
    /// The names that lead to the root of what is looked at.
    pub(super) fragment: Vec<String>,
    pub(super) patterns: PatternSet,
    pub(super) recursion: Recursion,
    pub(super) extras: Extras,
    /// Other flakes in the place of inputs.
    pub(super) overrides: Vec<Override>,
    pub(super) lock_policy: LockPolicy,
    pub(super) pure: bool,
    pub(super) options: BTreeMap<String, String>,
}

/// Where attributes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// A flake, by what was typed.
    Flake(String),
    /// An expression.
    Text(String),
}

impl Request {
    pub(super) fn new(args: &EvalArgs) -> Result<Request, Failure> {
        let (reference, fragment) = match args.flake.split_once('#') {
            Some((reference, fragment)) => (reference, Some(names(fragment)?)),
            None => (args.flake.as_str(), None),
        };
        let (tree, as_upstream) = match &args.expr {
            Some(text) => (Tree::Text(text.clone()), args.patterns.is_empty()),
            None => (Tree::Flake(flake_or_here(reference)), fragment.is_some()),
        };
        if fragment.is_some() && !args.patterns.is_empty() {
            return Err(Failure::usage("an attribute after '#' and patterns exclude each other"));
        }
        let recursion = match (args.force_recurse, as_upstream) {
            (true, _) => Recursion::WholeTree,
            (false, true) => Recursion::Tree,
            (false, false) => Recursion::Marked,
        };
        let patterns = match (as_upstream, args.patterns.is_empty()) {
            (true, _) => whole_tree(),
            (false, true) => PatternSet::from_texts(["*"]).map_err(Failure::usage)?,
            (false, false) => PatternSet::from_texts(&args.patterns).map_err(Failure::usage)?,
        };
        let extras = Extras {
            name: true,
            meta: args.meta,
            apply: args.apply.clone(),
            constituents: args.constituents,
            outline: true,
        };
        Ok(Request {
            overrides: crate::overrides::parse(&args.override_input)?,
            lock_policy: match args.strict_lock {
                true => LockPolicy::Strict,
                false => LockPolicy::Complete,
            },
            pure: !args.impure && args.expr.is_none(),
            tree,
            fragment: fragment.unwrap_or_default(),
            patterns,
            recursion,
            extras,
            options: options(&args.option)?,
        })
    }

    /// Where the tree comes from, once a flake is locked.
    pub(super) fn expression(&self, locked: Option<&LockedFlake>) -> Result<Expression, Failure> {
        Ok(match (&self.tree, locked) {
            (Tree::Flake(_), Some(locked)) => Expression::Flake(locked.url.clone()),
            (Tree::Flake(reference), None) => Expression::Flake(reference.clone()),
            (Tree::Text(text), _) => {
                let folder = std::env::current_dir().map_err(Failure::usage)?;
                let folder = folder.to_string_lossy().into_owned();
                Expression::Text(TextExpression { text: text.clone(), folder })
            }
        })
    }
}

/// `#a` is `.#a`.
fn flake_or_here(reference: &str) -> String {
    if reference.is_empty() { ".".to_owned() } else { reference.to_owned() }
}

/// The root and what is below it.
fn whole_tree() -> PatternSet {
    let star = Pattern { exclude: false, segments: vec![Segment::Star] };
    PatternSet { includes: vec![star], excludes: Vec::new() }
}

/// The names of a fragment. It may be percent-encoded, as in a URL; names with dots stand in quotes.
fn names(fragment: &str) -> Result<Vec<String>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("'#{fragment}' is no attribute: {why}"))
    };
    let decoded = percent::decode(fragment).ok_or_else(|| wrong(&"a broken %-escape"))?;
    let text = decoded.strip_prefix('.').unwrap_or(&decoded);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let pattern: Pattern = text.parse().map_err(|error| wrong(&error))?;
    match pattern.exact_path() {
        Some(path) if !pattern.exclude => Ok(path.0),
        Some(_) | None => Err(wrong(&"wildcards are patterns, which stand alone")),
    }
}

/// The settings of `--option`, checked.
fn options(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut options = BTreeMap::new();
    for pair in given.chunks_exact(2) {
        let (name, value) = (&pair[0], &pair[1]);
        if !OPTIONS.contains(&name.as_str()) {
            let known = OPTIONS.join(", ");
            return Err(Failure::usage(format!("--option takes {known}; not '{name}'")));
        }
        if value.contains(['\n', '\r']) {
            return Err(Failure::usage(format!("the value of --option {name} has a line break")));
        }
        options.insert(name.clone(), value.clone());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EvalArgs,
    }

    fn request(words: &[&str]) -> Result<Request, String> {
        let line = Line::try_parse_from(std::iter::once(&"eval").chain(words))
            .map_err(|error| error.to_string())?;
        Request::new(&line.args).map_err(|failure| failure.to_string())
    }

    fn recursion(words: &[&str]) -> Recursion {
        request(words).expect("right").recursion
    }

    #[test]
    fn the_rule_follows_from_what_is_asked_for() {
        assert_eq!(recursion(&[]), Recursion::Marked);
        assert_eq!(recursion(&["packages.*"]), Recursion::Marked);
        assert_eq!(recursion(&["--flake", ".#packages"]), Recursion::Tree);
        assert_eq!(recursion(&["--flake", "/f#"]), Recursion::Tree);
        assert_eq!(recursion(&["-E", "{ }"]), Recursion::Tree);
        assert_eq!(recursion(&["-E", "{ }", "a.*"]), Recursion::Marked);
        assert_eq!(recursion(&["-E", "{ }", "--force-recurse"]), Recursion::WholeTree);
        assert_eq!(recursion(&["a.*", "--force-recurse"]), Recursion::WholeTree);
        let all = request(&[]).expect("right").patterns.includes;
        assert_eq!(all.len(), gradient_domain::pattern::ROOTS.len());
        assert_eq!(request(&["--flake", "#a"]).map(|r| r.tree), Ok(Tree::Flake(".".into())));
    }

    #[test]
    fn expressions_and_impure_flakes_are_impure() {
        let pure = |words: &[&str]| request(words).expect("right").pure;
        assert!(pure(&[]) && pure(&["--flake", ".#a"]));
        assert!(!pure(&["--impure"]) && !pure(&["-E", "1"]));
    }

    #[test]
    fn fragments_are_lists_of_names() {
        let fragment = |text: &str| names(text).map_err(|failure| failure.to_string());
        let list = |names: &[&str]| Ok(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(fragment("a.b-c"), list(&["a", "b-c"]));
        assert_eq!(fragment(".a"), list(&["a"]));
        assert_eq!(fragment("a.\"b.c\".\"\".\"x y\""), list(&["a", "b.c", "", "x y"]));
        assert_eq!(fragment("a.%22b.c%22"), list(&["a", "b.c"]));
        assert_eq!(fragment("a.\"\\u{2a}\".\"\\u{23}\""), list(&["a", "*", "#"]));
        assert_eq!(fragment(""), list(&[]));
        for wrong in ["a.*", "!a", "a..b", "a%2", "a%zz", "a b", "\"a"] {
            assert!(fragment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = [
            &["--flake", "x#a", "packages.*"][..],
            &["--flake", "x", "--expr", "1"],
            &["--no-instantiate", "--show-input-drvs"],
            &["--no-instantiate", "--check-cache-status"],
            &["--no-instantiate", "--constituents"],
            &["--no-instantiate", "--gc-roots-dir", "x"],
            &["--option", "max-jobs", "9"],
            &["--option", "eval-system", "a\nmax-jobs = 9"],
            &["!a"],
            &["--max-memory-size", "0"],
            &["--max-memory-size", "17592186044416"],
            &["--kill-memory-size", "0"],
            &["--kill-memory-size", "17592186044416"],
        ];
        for words in refused {
            assert!(request(words).is_err(), "{words:?}");
        }
        let words = ["--option", "eval-system", "riscv64-linux", "--option", "restrict-eval", "1"];
        assert_eq!(request(&words).expect("right").options.len(), 2);
    }
}
