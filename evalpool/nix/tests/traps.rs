//! What goes wrong with the C API when one is not careful, one trap after the other. One test: an
//! evaluator belongs to one thread of one process.
//!
//! | Trap | Guard | Test |
//! |---|---|---|
//! | a freed builder leaves the state with a dangling reference | never freed; the function is not bound | here: sources are copied; `headers`: what is a trap |
//! | without its settings loaded, a state is read-only | loaded first thing | here: sources are copied |
//! | getters abort on another type, indices have no bounds | `Value` asks for the type and the size | here: values of other types; `headers`: the numbers |
//! | no context, or a setting that cannot be read, throws into Rust | contexts are made first; settings travel in `NIX_CONFIG` | `headers`: what is a trap |
//! | a failing attribute stays pinned | a child is replaced when it has grown | `gradient-pool`: a child over its limit |
//! | every value is pinned | `Value` gives back what it holds | here: values are let go |
//! | what is no error of Nix has no message of Nix | read by code | here: a value that is too large |
//! | attributes come in no order | sorted | here: names are sorted |
//! | callbacks of primops get a wrong state | no such function is bound | `headers`: what is a trap |
//! | a value that failed stays failed | a child that could not open a flake is not kept | here: errors are read |
//! | `tryEval` does not catch what the store says | it is an error of the attribute | `gradient-pool`: nothing is built |

use std::path::Path;

use gradient_ipc::tree::ValueKind;
use gradient_nix::{Evaluator, Nix};

/// As much as the subprocess gives its evaluator.
const STACK_SIZE: usize = 256 * 1024 * 1024;

#[test]
fn the_traps_of_the_c_api_are_closed() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().to_owned();
    let evaluating = std::thread::Builder::new().stack_size(STACK_SIZE).spawn(move || {
        let nix = Nix::load(None).expect("Nix with its C libraries (make setup)");
        let store = format!("local?root={}", root.display());
        let evaluator = Evaluator::open(nix, &store, false).expect("an evaluator");
        sources_are_copied_and_derivations_written(evaluator, &root);
        values_of_other_types_are_told_apart(evaluator);
        names_are_sorted_and_odd_ones_survive(evaluator);
        nothing_is_forced_by_looking(evaluator);
        errors_are_read_and_do_not_stick(evaluator);
        a_value_that_is_too_large_is_an_error(evaluator);
        values_are_let_go(evaluator);
    });
    evaluating.expect("a thread").join().expect("no trap");
}

/// A builder that is freed, or whose settings were never loaded, leaves the state read-only: paths
/// are hashed and never copied.
fn sources_are_copied_and_derivations_written(evaluator: &'static Evaluator, root: &Path) {
    std::fs::write(root.join("source.txt"), "text").expect("written");
    // Whatever was freed by mistake is overwritten now.
    let filler: Vec<Vec<u8>> = (0..20_000).map(|n| vec![0xff; n % 512]).collect();
    std::hint::black_box(&filler);
    let text = r#"derivation { name = "d"; system = "x"; builder = "b"; src = ./source.txt; }"#;
    let value = evaluator.evaluate(text, &root.display().to_string()).expect("evaluated");
    for name in ["drvPath", "src"] {
        let path = value.attribute(name).expect("forced").expect("there");
        let path = match path.string().expect("text") {
            Some(path) => path,
            None => continue,
        };
        let path = path.parse().expect("a store path");
        assert!(evaluator.has(&path), "{path} was hashed and never written");
    }
    let copied = evaluator.evaluate(r#""${./source.txt}""#, &root.display().to_string());
    let copied = copied.expect("copied").string().expect("text").expect("a string");
    assert!(evaluator.has(&copied.parse().expect("a store path")), "{copied} was not copied");
}

/// The getters of Nix abort the process when the type is wrong.
fn values_of_other_types_are_told_apart(evaluator: &'static Evaluator) {
    let rows = [
        ("1", ValueKind::Integer),
        ("1.5", ValueKind::Float),
        ("true", ValueKind::Boolean),
        ("\"s\"", ValueKind::String),
        ("/x", ValueKind::Path),
        ("null", ValueKind::Null),
        ("[ 1 ]", ValueKind::List),
        ("x: x", ValueKind::Function),
    ];
    for (text, kind) in rows {
        let value = evaluator.evaluate(text, "/").expect(text);
        assert_eq!(value.value_kind(), kind, "{text}");
        assert_eq!(value.string().expect(text).is_some(), kind == ValueKind::String, "{text}");
        assert_eq!(value.boolean().is_some(), kind == ValueKind::Boolean, "{text}");
        assert!(!value.is_set() && !value.has("a") && value.size() == 0, "{text}");
        assert_eq!(value.names().expect(text), Vec::<String>::new());
        assert!(value.attribute("a").expect(text).is_none(), "{text}");
        let set = evaluator.evaluate("{ }", "/").expect("a set");
        let called = value.call(&set);
        assert_eq!(called.is_ok(), kind == ValueKind::Function, "{text}");
    }
    let set = evaluator.evaluate("{ a = 1; }", "/").expect("a set");
    assert!(set.string().expect("no string").is_none() && set.boolean().is_none());
}

/// Nix keeps attributes in the order of its symbols, which is that of their first appearance.
fn names_are_sorted_and_odd_ones_survive(evaluator: &'static Evaluator) {
    let text = r#"{ zz9 = 1; yy8 = 2; "a b" = 3; "" = 4; "*" = 5; "ä" = 6; "x.y" = 7; }"#;
    let value = evaluator.evaluate(text, "/").expect("evaluated");
    assert_eq!(value.names().expect("names"), ["", "*", "a b", "x.y", "yy8", "zz9", "ä"]);
    for name in value.names().expect("names") {
        assert!(value.has(&name) && value.attribute(&name).expect("forced").is_some(), "{name}");
    }
    // A name cannot hold a null byte; asking for one is no crash.
    assert!(!value.has("a\0b") && value.attribute("a\0b").expect("no crash").is_none());
    assert!(evaluator.evaluate("1 # \0", "/").is_err());
}

fn nothing_is_forced_by_looking(evaluator: &'static Evaluator) {
    let value = evaluator.evaluate(r#"{ a = throw "a"; b = abort "b"; c = 1; }"#, "/");
    let value = value.expect("evaluated");
    assert_eq!(value.names().expect("names").len(), 3);
    assert!(value.has("a") && value.has("b") && value.size() == 3);
    assert!(value.attribute("c").expect("forced").is_some());
}

/// An error stays in its context until the next call, which must not find it there; and what failed
/// fails again with the same words.
fn errors_are_read_and_do_not_stick(evaluator: &'static Evaluator) {
    let value = evaluator.evaluate(r#"{ bad = throw "boom"; good = 1; }"#, "/").expect("a set");
    for _ in 0..3 {
        let error = value.attribute("bad").err().expect("it throws");
        assert!(error.message.contains("boom") && error.is_repeatable, "{error}");
        assert!(value.attribute("good").expect("forced").is_some());
        assert!(value.attribute("absent").expect("no error").is_none());
    }
    let deep = "let f = n: 1 + f (n + 1); in f 0";
    let error = evaluator.evaluate(deep, "/").err().expect("too deep");
    assert!(!error.is_repeatable, "a limit is no fact of the flake: {error}");
}

/// What is no error of Nix but of C++ has another code, and no message of Nix.
fn a_value_that_is_too_large_is_an_error(evaluator: &'static Evaluator) {
    let text = "{ huge = builtins.length (builtins.genList (n: n) 100000000000000); good = 1; }";
    let value = evaluator.evaluate(text, "/").expect("a set");
    for _ in 0..2 {
        let error = value.attribute("huge").err().expect("nobody has so much");
        assert_eq!(
            error.message,
            "out of memory: a value is larger than can be had (std::bad_alloc)"
        );
        assert!(!error.is_repeatable, "another machine may have it: {error}");
        assert!(value.attribute("good").expect("forced").is_some());
    }
}

/// Every value that the API hands out is pinned until it is given back.
fn values_are_let_go(evaluator: &'static Evaluator) {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
        let pages = statm.split_whitespace().nth(1).expect("a field");
        pages.parse::<u64>().expect("a number") * 4096
    };
    let churn = |rounds: usize| {
        for _ in 0..rounds {
            let text = "{ big = builtins.genList (n: { inherit n; }) 20000; }";
            let value = evaluator.evaluate(text, "/").expect("evaluated");
            let copy = value.attribute("big").expect("forced").expect("there").clone();
            assert_eq!(copy.value_kind(), ValueKind::List);
        }
    };
    churn(100);
    let before = resident();
    churn(3_000);
    let grown = resident().saturating_sub(before) >> 20;
    // A pinned list is more than half a megabyte, so all of them would be two gigabytes. The heap
    // that Nix sets aside at its start may be touched for the first time meanwhile: 384 MiB.
    assert!(grown < 700, "{grown} MiB are still held");
}
