//! Output paths computed here are those that Nix computes.

mod common;

use std::path::PathBuf;

use common::Daemon;
use gradient_daemon::derivation_hash::{HashError, Hasher};
use gradient_domain::{Derivation, StorePath};

fn file(daemon: &Daemon, path: &StorePath) -> PathBuf {
    daemon.dir.path().join("root/nix/store").join(path.base_name())
}

fn read(daemon: &Daemon, path: &StorePath) -> std::io::Result<Derivation> {
    let text = std::fs::read(file(daemon, path))?;
    let derivation = Derivation::parse(&text).expect("Nix writes what we read");
    assert_eq!(derivation.to_bytes(), text, "{path} is written as Nix writes it");
    Ok(derivation)
}

const GRAPH: &str = r#"
  let
    mk = name: extra: derivation ({
      inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "\"\\\t\r\n$" ];
    } // extra);
    fixed = url: mk "fixed" {
      inherit url; outputHashMode = "recursive"; outputHashAlgo = "sha256";
      outputHash = "0000000000000000000000000000000000000000000000000000";
    };
    flat = mk "flat" {
      outputHashMode = "flat"; outputHashAlgo = "sha512"; outputHash = "@zeros@";
    };
    multi = mk "multi" { outputs = [ "bin" "dev" "out" ]; src = fixed "a"; };
    chain = n: mk "chain-${toString n}" { below = if n == 0 then flat else chain (n - 1); };
    left = mk "left" { m = multi.dev; f = builtins.toFile "x" "y"; };
    right = mk "right" { m = multi.bin; o = multi; c = chain 30; };
  in
  [ (mk "top" { inherit left right; s = fixed "b"; }) multi ]
"#;

#[tokio::test]
async fn the_paths_of_real_derivations_are_found_again() {
    let daemon = Daemon::start().await;
    let text = GRAPH.replace("@zeros@", &"0".repeat(128));
    let printed = daemon.nix("nix-instantiate", &["-E", &text]);
    let tops: Vec<StorePath> = printed
        .lines()
        .map(|line| line.split('!').next().unwrap_or(line).parse().expect("a path"))
        .collect();
    assert_eq!(tops.len(), 2);
    let mut hasher = Hasher::new(|path: &StorePath| read(&daemon, path));
    let (mut open, mut seen) = (tops, 0);
    while let Some(path) = open.pop() {
        let real = read(&daemon, &path).expect("it is there");
        let mut blank = real.clone();
        if blank.is_fixed_output() {
            assert!(!hasher.set_output_paths("x", &mut blank).expect("read"));
            assert_eq!(blank, real);
            continue;
        }
        for (name, output) in &mut blank.outputs {
            output.path = None;
            blank.env.insert(name.clone().into_bytes(), b"/other".to_vec());
        }
        let name = path.name().strip_suffix(".drv").expect("a derivation");
        assert!(hasher.set_output_paths(name, &mut blank).expect("read"));
        assert_eq!(blank, real, "{path}");
        seen += 1;
        open.extend(real.input_drvs.into_keys().filter(|input| !input.name().starts_with("chain")));
    }
    assert!(seen >= 5, "{seen}");
}

#[tokio::test]
async fn a_changed_derivation_is_written_and_builds() {
    let daemon = Daemon::start().await;
    let below = daemon.instantiate("below", "echo below > $out", "");
    let top = daemon.instantiate("top", "echo top > $out", "");
    let mut changed = read(&daemon, &top).expect("there");
    changed.input_drvs.insert(below.clone(), ["out".to_owned()].into());
    let before = changed.outputs.clone();
    let mut hasher = Hasher::new(|path: &StorePath| read(&daemon, path));
    assert!(hasher.set_output_paths("top", &mut changed).expect("read"));
    assert_ne!(changed.outputs, before);
    let mut connection = daemon.pool.get().await.expect("a connection");
    let written = connection.add_derivation("top", &changed).await.expect("written");
    assert_ne!(written, top);
    assert_eq!(connection.add_derivation("top", &changed).await.expect("there"), written);
    assert_eq!(read(&daemon, &written).expect("there"), changed);
    // Nix computes the paths of what it is about to build again, and refuses others.
    let output = daemon.nix("nix-store", &["--realise", &written.to_string()]);
    let expected = changed.outputs["out"].path.as_ref().expect("known").to_string();
    assert!(output.ends_with(expected.trim_start_matches('/')), "{output}");
    let mut elsewhere = changed.clone();
    let other = StorePath::from_parts(&[7; 20], "top").expect("valid");
    elsewhere.input_srcs.insert(other);
    let refused = connection.add_derivation("top", &elsewhere).await;
    assert!(refused.is_err(), "a reference that is not there");
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_told() {
    let daemon = Daemon::start().await;
    let fixed = "outputHashMode = \"flat\"; outputHashAlgo = \"sha256\"; outputHash = \
                 \"0000000000000000000000000000000000000000000000000000\";";
    let below = daemon.instantiate("below", "", fixed);
    let top = daemon.instantiate("top", "", "");
    let mut derivation = read(&daemon, &top).expect("there");
    derivation.input_drvs.insert(below, ["dev".to_owned()].into());
    let mut hasher = Hasher::new(|path: &StorePath| read(&daemon, path));
    let error = hasher.set_output_paths("top", &mut derivation).expect_err("no such output");
    assert!(matches!(error, HashError::NoOutput { ref output, .. } if output == "dev"));
    let gone = StorePath::from_parts(&[7; 20], "gone.drv").expect("valid");
    derivation.input_drvs = [(gone, ["out".to_owned()].into())].into();
    let error = hasher.set_output_paths("top", &mut derivation).expect_err("not there");
    assert!(matches!(error, HashError::Read { .. }), "{error}");
    let mut endless = Hasher::new(|_: &StorePath| Ok::<_, std::io::Error>(derivation.clone()));
    let mut looped = read(&daemon, &top).expect("there");
    looped.input_drvs = derivation.input_drvs.clone();
    let error = endless.set_output_paths("top", &mut looped).expect_err("a circle");
    assert!(matches!(error, HashError::Endless { .. }), "{error}");
}
