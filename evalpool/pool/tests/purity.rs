//! What an evaluation may see and do: the flake and its locked inputs, and nothing of the machine,
//! nor of what the evaluator says to its parent.

mod common;
mod heads;
mod host;

use common::{attributes, discover, errors};
use gradient_pool::{Found, Pool};
use heads::assert_errors;
use host::NixHost;

const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");
const PACKAGES: &str = "packages.x86_64-linux.*";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_built_during_an_evaluation() {
    let host = NixHost::start();
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = let
      imported = import (derivation {
        name = "ifd"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo 1 > $out" ];
      });
    in {
      ifd = imported;
      tried = if (builtins.tryEval imported).success then 1 else self.packages.x86_64-linux.other;
      other = derivation { name = "other"; system = "x86_64-linux"; builder = "/bin/sh"; };
    }; }; }"#;
    let flake = host.flake("ifd", text);
    let pool = Pool::new(host.settings(CHILD, 2)).expect("pool");
    let (found, _) = discover(&pool, &flake, PACKAGES).await;
    let words = "'allow-import-from-derivation' is disabled";
    assert_errors(&errors(&found), &[(".ifd", words), (".tried", words)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluation_is_pure() {
    let host = NixHost::start();
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = {
      env = throw "PATH is '${builtins.getEnv "PATH"}'";
      outside = builtins.readFile /etc/passwd;
      time = builtins.currentTime;
    }; }; }"#;
    let flake = host.flake("impure", text);
    let pool = Pool::new(host.settings(CHILD, 2)).expect("pool");
    let (found, _) = discover(&pool, &flake, PACKAGES).await;
    assert_errors(
        &errors(&found),
        &[
            (".env", "PATH is ''"),
            (".outside", "forbidden in pure evaluation mode"),
            (".time", "attribute 'currentTime' missing"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fetchers_of_a_fleet_reach_nothing_of_this_machine() {
    let host = NixHost::start();
    let secret = host.path().join("secret");
    std::fs::create_dir(&secret).expect("a folder");
    std::fs::write(secret.join("token"), "host-secret").expect("written");
    let text = r#"{ outputs = { self }: let
        zero = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        rev = "0123456789012345678901234567890123456789";
        show = path: throw "got ${builtins.readFile path}";
      in { packages.x86_64-linux = {
        file = show (builtins.fetchurl { url = "file://SECRET/token"; sha256 = zero; });
        git = show (builtins.fetchGit { url = "file://SECRET"; inherit rev; });
        gitPath = show (builtins.fetchGit { url = "SECRET"; inherit rev; });
        good = derivation { name = "good"; system = "x86_64-linux"; builder = "/bin/sh"; };
        path = show (builtins.fetchTree { type = "path"; path = "SECRET"; narHash = zero; });
        tarball = show (builtins.fetchTarball { url = "file://SECRET/token"; sha256 = zero; });
        tree = show (builtins.fetchTree { type = "file"; url = "file://SECRET/token"; narHash = zero; });
      }; }; }"#;
    let flake = host.flake("thief", &text.replace("SECRET", &secret.display().to_string()));
    let (folder, hash) = flake.trim_start_matches("path:").split_once('?').expect("locked");
    let added = std::process::Command::new(host::nix_prefix().join("bin/nix"))
        .args(["--extra-experimental-features", "nix-command", "--store", &host.store_uri()])
        .args(["store", "add", "--name", "source", folder])
        .env("HOME", host.path())
        .output()
        .expect("nix");
    let stored = String::from_utf8_lossy(&added.stdout).trim().to_owned();
    let in_store = format!("path:{stored}?{hash}");
    let mut settings = host.settings(CHILD, 1);
    settings.remote_only = true;
    let pool = Pool::new(settings).expect("pool");
    let (found, summary) = discover(&pool, &in_store, PACKAGES).await;
    assert_eq!(attributes(&found), ["packages.x86_64-linux.good good.drv"], "{summary:?}");
    let instantiated = std::fs::read_dir(host.real_store()).expect("a store").flatten();
    let mut names = instantiated.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(names.all(|name| !name.ends_with("-token")), "a file of the machine was copied");
    let errors = errors(&found);
    assert_eq!(errors.len(), 6, "{errors:#?}");
    for error in errors {
        // Neither the contents nor the hash, with which the contents can be had.
        assert!(error.contains(" is forbidden in "), "{error}");
        assert!(!error.contains("host-secret") && !error.contains("got:"), "{error}");
    }
}

/// `forger` prints marks in every form that stood in a version of this program, and warns in
/// between; `honest` comes after it.
const FLAKE: &str = r#"{ outputs = { self }: { packages.x86_64-linux = let
    mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
    rs = builtins.fromJSON "\"\\u001e\"";
    forged = builtins.concatStringsSep "\n" ([ "" ]
      ++ map (n: "${rs}gradient-request-done ${toString n}") (builtins.genList (n: n) 40)
      ++ [ "${rs}gradient-request-done 18446744073709551615"
           "${rs}gradient-attribute packages.x86_64-linux.honest"
           "${rs}" "${rs} done 3" "${rs}00000000000000000000000000000000 done 3"
           "${rs}00000000000000000000000000000000 at packages.x86_64-linux.honest" "" ]);
  in {
    forger = builtins.trace forged (builtins.warn "of the forger" (mk "forger"));
    honest = builtins.warn "of the honest" (mk "honest");
  }; }; }"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_mark_is_text_like_any_other() {
    let host = NixHost::start();
    let flake = host.flake("forged", FLAKE);
    let pool = Pool::new(host.settings(CHILD, 1)).expect("pool");
    let (found, summary) = discover(&pool, &flake, PACKAGES).await;
    summary.expect("evaluated");
    assert_eq!(errors(&found), Vec::<String>::new());
    assert_eq!(attributes(&found).len(), 2);
    let warnings: Vec<String> = found
        .iter()
        .filter_map(|found| match found {
            Found::Warning { path: Some(path), text } => Some(format!("{path}: {text}")),
            Found::Warning { path: None, text } => Some(format!("nowhere: {text}")),
            Found::Attribute { .. } | Found::Error { .. } => None,
        })
        .collect();
    let expected = [
        "packages.x86_64-linux.forger: evaluation warning: of the forger",
        "packages.x86_64-linux.honest: evaluation warning: of the honest",
    ];
    assert_eq!(warnings, expected);
}
