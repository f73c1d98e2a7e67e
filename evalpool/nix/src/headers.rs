//! Our prototypes beside the installed headers of Nix. With several versions of Nix at hand, this is
//! run once for each, with its prefix in `GRADIENT_NIX_PREFIX`.

use std::path::Path;

use gradient_ipc::tree::ValueKind;

use crate::ffi::{self, Api};
use crate::library::{Nix, supported_minor};

/// The text of the headers of the C API, without comments, and their minor version.
fn headers() -> (String, u32) {
    let prefix = std::env::var("GRADIENT_NIX_PREFIX").unwrap_or("/opt/gradient-nix".into());
    let mut text = String::new();
    let mut open = vec![Path::new(&prefix).join("include/nix")];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(folder).expect("Nix's headers (make setup)");
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                open.push(entry.path());
            } else if name.starts_with("nix_api_") && !name.contains("internal") {
                text.push_str(&std::fs::read_to_string(entry.path()).expect("a header"));
            }
        }
    }
    let nix = Nix::load(None).expect("Nix's C libraries (make setup)");
    (without_comments(&text), supported_minor(nix.version()).expect("a supported version"))
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once("*/").map_or("", |(_, code)| code));
    let code: Vec<&str> = std::iter::once(first).chain(rest).collect();
    let lines = code.join(" ");
    lines
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// How many arguments a declaration has, if it is there.
fn arguments(headers: &str, name: &str) -> Option<usize> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let at = headers.match_indices(name).find(|(at, _)| {
        !headers[..*at].ends_with(is_name)
            && headers[at + name.len()..].trim_start().starts_with('(')
    });
    let list = headers[at?.0 + name.len()..].trim_start().strip_prefix('(')?;
    let (mut depth, mut commas, mut inside) = (1, 0, String::new());
    for c in list.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 1 => commas += 1,
            _ => inside.push(c),
        }
        if depth == 0 {
            break;
        }
    }
    let is_empty = matches!(inside.trim(), "" | "void");
    Some(if is_empty { 0 } else { commas + 1 })
}

#[test]
fn the_table_agrees_with_the_headers() {
    let (text, minor) = headers();
    assert!(Api::FUNCTIONS.len() > 25);
    for (function, count) in Api::FUNCTIONS {
        let declared = arguments(&text, function.name);
        let expected = function.is_in(minor).then_some(*count);
        assert_eq!(declared, expected, "arguments of {} in Nix 2.{minor}", function.name);
    }
}

/// What frees the builder or the state, builds, takes a callback of ours, or throws over the border is
/// not for us.
#[test]
fn what_is_a_trap_is_not_bound() {
    const BANNED: [&str; 7] = [
        "primop",
        "realise",
        "state_free",
        "builder_free",
        "copy_closure",
        "setting_set",
        "register_finalizer",
    ];
    for (function, _) in Api::FUNCTIONS {
        assert!(BANNED.iter().all(|word| !function.name.contains(word)), "{}", function.name);
    }
}

#[test]
fn the_numbers_agree_with_the_headers() {
    let (text, _) = headers();
    let body = text.split_once("NIX_TYPE_THUNK").expect("the types").1;
    let body = body.split_once('}').expect("their end").0;
    let types: Vec<&str> = body.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    // The first one, a thunk, is 0; types of later versions stand at the end.
    let code = |name: &str| types.iter().position(|known| *known == name).map(|at| at + 1);
    let kinds = [
        ("NIX_TYPE_INT", ValueKind::Integer as usize),
        ("NIX_TYPE_FLOAT", ValueKind::Float as usize),
        ("NIX_TYPE_BOOL", ValueKind::Boolean as usize),
        ("NIX_TYPE_STRING", ValueKind::String as usize),
        ("NIX_TYPE_PATH", ValueKind::Path as usize),
        ("NIX_TYPE_NULL", ValueKind::Null as usize),
        ("NIX_TYPE_ATTRS", ffi::TYPE_ATTRS as usize),
        ("NIX_TYPE_LIST", ValueKind::List as usize),
        ("NIX_TYPE_FUNCTION", ValueKind::Function as usize),
        ("NIX_TYPE_EXTERNAL", ValueKind::External as usize),
    ];
    for (name, expected) in kinds {
        assert_eq!(code(name), Some(expected), "{name} among {types:?}");
    }
    assert_eq!(ffi::TYPE_BOOL as usize, ValueKind::Boolean as usize);
    assert_eq!(ffi::TYPE_STRING as usize, ValueKind::String as usize);
    let compact = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, code) in
        [("NIX_OK", ffi::OK), ("NIX_ERR_KEY", ffi::ERR_KEY), ("NIX_ERR_NIX_ERROR", ffi::ERR_NIX)]
    {
        let forms = [format!("{name} = {code}"), format!("#define {name} {code}")];
        assert!(forms.iter().any(|form| compact.contains(form)), "{name} is not {code}");
    }
}

#[test]
fn declarations_are_read_as_they_are_written() {
    let text = without_comments(
        "/* int f(int a); */ int f(const char *, void (*g)(int, int), //x\n int n);\n\
        void g(); void\n h (void); int nf(int);",
    );
    let rows = [("f", Some(3)), ("g", Some(0)), ("h", Some(0)), ("nf", Some(1)), ("n", None)];
    for (name, expected) in rows {
        assert_eq!(arguments(&text, name), expected, "{name}");
    }
}
