//! What is told of derivations beside their paths, however long it is.

mod common;
mod host;

use common::{attributes, collect, discover, errors};
use gradient_pool::{Evaluation, Extras, Found, Pool, Source};
use host::NixHost;

const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");
const PACKAGES: &str = "packages.x86_64-linux.*";
const MIB: usize = 1024 * 1024;

/// A flake whose packages come with what is told of them.
fn flake(host: &NixHost, name: &str, packages: &str) -> String {
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = let
        mk = name: meta:
          derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; } // { inherit meta; };
        double = n: text: if n == 0 then text else double (n - 1) (text + text);
        mib = double 16 "0123456789abcdef";
        times = n: builtins.concatStringsSep "" (builtins.genList (_: mib) n);
      in PACKAGES; }; }"#;
    host.flake(name, &text.replace("PACKAGES", packages))
}

/// What an evaluation with `meta` finds: the same jobs as without.
async fn with_meta(host: &NixHost, flake: &str) -> Vec<Found> {
    let mut settings = host.settings(CHILD, 1);
    settings.eval_cache = Some(host.path().join("eval-caches"));
    let extras = Extras { meta: true, ..Extras::default() };
    let source = Source { extras, ..Source::flake(flake) };
    let patterns = PACKAGES.parse().expect("patterns");
    let evaluation = Evaluation { source, ..Evaluation::of_flake(flake, patterns) };
    let pool = Pool::new(settings).expect("pool");
    let (found, summary) = collect(&pool, &evaluation).await;
    assert_eq!(summary.expect("evaluated").crashes, 0);
    let (plain, _) = discover(&pool, flake, PACKAGES).await;
    assert_eq!(attributes(&found), attributes(&plain), "what is told is no matter of the jobs");
    found
}

/// The length of what is told of each derivation, all of which are there.
fn lengths(host: &NixHost, found: &[Found]) -> Vec<(String, usize)> {
    let line = |found: &Found| match found {
        Found::Attribute { path, drv_path, extra } => {
            assert!(host.real_store().join(drv_path.base_name()).exists(), "{drv_path}");
            let meta = extra.as_ref().and_then(|extra| extra.meta.as_ref()).expect("meta");
            Some((path.0.last().expect("a name").clone(), meta.len()))
        }
        Found::Error { .. } | Found::Warning { .. } => None,
    };
    found.iter().filter_map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_is_left_out_and_named() {
    let host = NixHost::start();
    let text = r#"{
      long = mk "long" { text = times 8; n = 1; };
      endless = mk "endless" { a = 1; b = times 17; c = "c"; };
    }"#;
    let found = with_meta(&host, &flake(&host, "long", text)).await;
    assert_eq!(errors(&found), Vec::<String>::new());
    let expected = [
        ("endless".to_owned(), r#"{"a":1,"c":"c"}"#.len()),
        ("long".to_owned(), 8 * MIB + r#"{"n":1,"text":""}"#.len()),
    ];
    assert_eq!(lengths(&host, &found), expected);
    let warnings: Vec<_> = found
        .iter()
        .filter_map(|found| match found {
            Found::Warning { path: Some(path), text } => Some(format!("{path}: {text}")),
            Found::Warning { path: None, text } => Some(text.clone()),
            Found::Attribute { .. } | Found::Error { .. } => None,
        })
        .collect();
    let left_out = "packages.x86_64-linux.endless: evaluation warning: \
        meta is longer than 16777216 bytes and told without 'b', which has 17825794";
    assert_eq!(warnings, [left_out]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_into_one_frame_comes_in_several() {
    let host = NixHost::start();
    // Batches of 8 names, of which each tells 10 MiB: a frame holds 64.
    let text = r#"builtins.listToAttrs (builtins.genList (n: rec {
      name = "p${toString n}"; value = mk name { text = times 10; };
    }) 32)"#;
    let found = with_meta(&host, &flake(&host, "many", text)).await;
    assert_eq!(errors(&found), Vec::<String>::new());
    assert_eq!(attributes(&found).len(), 32);
    for (name, length) in lengths(&host, &found) {
        assert_eq!(length, 10 * MIB + r#"{"text":""}"#.len(), "{name}");
    }
}
