//! The flakes that are evaluated: written here, the same on every machine, without network.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use gradient_suite::programs;

const FLAKE: &str = include_str!("nix/flake.nix");
const LIBRARY: &str = include_str!("nix/lib.nix");

/// Packages in one set.
const SET_LEN: usize = 60;
/// Date of every commit: the same files have the same revision everywhere.
const DATE: &str = "2001-01-01T00:00:00Z";
/// Values of the wide set.
pub(crate) const WIDE: usize = 50_000;
/// The one value of the wide set that is a derivation.
pub(crate) const GOOD: &str = "p777";
/// A package of the generated sets, under their root.
pub(crate) const ONE: &str = "s01.p007";
/// Where the generated sets are.
pub(crate) const ROOT: &str = "legacyPackages.x86_64-linux";
/// Where the wide set is.
pub(crate) const WIDE_ROOT: &str = "packages.x86_64-linux";

/// Writes a flake of nested sets with so many packages, which depend on each other.
pub(crate) fn write_packages(folder: &Path, packages: usize) -> anyhow::Result<()> {
    let sets = packages.div_ceil(SET_LEN);
    let mut files = vec![
        ("flake.nix".to_owned(), FLAKE.to_owned()),
        ("lib.nix".to_owned(), LIBRARY.to_owned()),
    ];
    let names: String = (0..sets).map(|set| format!(" \"s{set:02}\"")).collect();
    files.push(("sets.nix".to_owned(), format!("[{names} ]\n")));
    for set in 0..sets {
        let len = SET_LEN.min(packages - set * SET_LEN);
        files.push((format!("sets/s{set:02}.nix"), set_text(set, len)));
    }
    write(folder, files)
}

fn set_text(set: usize, len: usize) -> String {
    let mut text =
        format!("lib: final: previous: {{\n  s{set:02} = {{\n    recurseForDerivations = true;\n");
    for number in 0..len {
        let inputs: String = inputs(set, number)
            .into_iter()
            .map(|(set, number)| format!(" final.s{set:02}.p{number:03}"))
            .collect();
        let minor = (set * 7 + number * 3) % 20;
        let _ = write!(
            text,
            "    p{number:03} = lib.package {{\n      name = \"s{set:02}-p{number:03}\";\n      \
             version = \"{}.{minor}\";\n      inputs = [{inputs} ];\n      \
             config.build.flags.\"level-{}\" = \"{set}-{number}\";\n      \
             config.\"layer-{}\".enable = {};\n      \
             description = \"Package {number} of set {set}\";\n    }};\n",
            number % 4,
            number % 9,
            number % 16,
            number % 2 == 0,
        );
    }
    text.push_str("  };\n}\n");
    text
}

/// What a package needs: of its own set the two of half and a third of its number, so that few are
/// needed by many; of the set before it one of the first.
fn inputs(set: usize, number: usize) -> Vec<(usize, usize)> {
    let mut own = vec![number / 3, number / 2];
    own.dedup();
    own.retain(|input| *input < number);
    let before = set.checked_sub(1).map(|before| (before, number % 5));
    own.into_iter().map(|input| (set, input)).chain(before).collect()
}

/// Writes a flake with one set of [`WIDE`] names, of which one value is good and all others throw.
pub(crate) fn write_wide(folder: &Path) -> anyhow::Result<()> {
    let text = format!(
        r#"{{
  outputs = {{ self }}: {{
    {WIDE_ROOT} =
      builtins.listToAttrs
        (builtins.genList (n: {{ name = "p${{toString n}}"; value = throw "forced p${{toString n}}"; }}) {WIDE})
      // {{
        {GOOD} = derivation {{
          name = "the-good-one";
          system = "x86_64-linux";
          builder = "/bin/sh";
          args = [ "-c" "echo good > $out" ];
        }};
      }};
  }};
}}
"#
    );
    write(folder, vec![("flake.nix".to_owned(), text)])
}

/// Commits the files of a flake. The reference names the revision: Nix keeps what it evaluated only of
/// a flake with a fingerprint, which a `path:` flake does not have.
pub(crate) fn commit(folder: &Path) -> anyhow::Result<String> {
    git(folder, &["-c", "init.defaultBranch=main", "init", "--quiet"])?;
    git(folder, &["add", "--all"])?;
    git(folder, &["commit", "--quiet", "--message", "flake"])?;
    let revision = git(folder, &["rev-parse", "HEAD"])?;
    Ok(format!("git+file://{}?rev={revision}", folder.display()))
}

/// `git`, without anybody's settings.
fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(programs::installed("git"));
    command.env_clear().env("PATH", programs::search_path());
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "bench");
        command.env(format!("GIT_{role}_EMAIL"), "bench@example.org");
        command.env(format!("GIT_{role}_DATE"), DATE);
    }
    let output = command.arg("-C").arg(folder).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "git {arguments:?}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn write(folder: &Path, files: Vec<(String, String)>) -> anyhow::Result<()> {
    for (name, text) in files {
        let path: PathBuf = folder.join(name);
        let parent = path.parent().context("a file has a folder")?;
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
