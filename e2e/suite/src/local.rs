//! `gradient eval`: evaluations without a server, in a store of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::programs;
use crate::run::{Running, Said};

/// A folder with a store, and the flakes that are evaluated into it.
#[derive(Debug)]
pub struct Local {
    folder: TempDir,
}

/// Nothing of the machine's own configuration, no network, and builders without a sandbox: what
/// these tests build is theirs.
const NIX_CONFIG: &str = "experimental-features = nix-command flakes\nsubstituters =\n\
    build-users-group =\nsandbox = false\n";

/// Nix text for flakes: `mk NAME EXTRA` is a derivation with these further attributes. Each of its
/// outputs holds its name.
pub const MK: &str = r#"mk = name: extra: derivation ({
        inherit name; system = "x86_64-linux"; builder = "/bin/sh";
        args = [ "-c" "for o in \${outputs:-out}; do eval echo ${name} '>' \\$$o; done" ];
      } // extra);"#;

impl Local {
    /// An empty store.
    ///
    /// # Panics
    /// If there is no room for it.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("ge").tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("etc")).expect("a folder");
        Self { folder }
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The store as Nix's programs name it.
    #[must_use]
    pub fn store_uri(&self) -> String {
        format!("local?root={}", self.path().join("root").display())
    }

    /// A flake of these files, by their names.
    ///
    /// # Panics
    /// If they cannot be written.
    #[must_use]
    pub fn flake(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.path().join("flakes").join(name);
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
            std::fs::write(path, text).expect("written");
        }
        folder
    }

    /// A flake that the tests of the evaluator pool have.
    ///
    /// # Panics
    /// If there is none of this name.
    #[must_use]
    pub fn shared(&self, name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evalpool/pool/tests/flakes");
        let text = std::fs::read_to_string(folder.join(format!("{name}.nix"))).expect(name);
        let flake = self.flake(name, &[("flake.nix", &text)]);
        let files = folder.join(format!("{name}.files"));
        if files.exists() {
            let copied = Command::new("cp").arg("-rT").arg(files).arg(&flake).status();
            assert!(copied.expect("cp").success());
        }
        flake
    }

    /// A program with the environment of these tests.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("PATH", programs::search_path())
            .env("HOME", self.path())
            .env("TMPDIR", self.path())
            .env("NIX_CONF_DIR", self.path().join("etc"))
            .env("NIX_CONFIG", NIX_CONFIG)
            .env_remove("NIX_REMOTE")
            .env_remove("NIX_PATH");
        command
    }

    /// `gradient eval` with these arguments, without a store of its own.
    #[must_use]
    pub fn eval_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&programs::own("gradient"));
        command.arg("--data-dir").arg(self.path().join("data")).arg("eval").args(arguments);
        command
    }

    /// `gradient eval` of a flake into the store, to its end.
    #[must_use]
    pub fn eval(&self, flake: &Path, arguments: &[&str]) -> Said {
        self.eval_of(&flake.display().to_string(), arguments)
    }

    /// `gradient eval` of a reference into the store, to its end.
    #[must_use]
    pub fn eval_of(&self, reference: &str, arguments: &[&str]) -> Said {
        let uri = self.store_uri();
        let mut command = self.eval_command(&["--store", &uri, "--flake", reference]);
        Running::start(command.args(arguments)).end()
    }

    /// Runs requests through one evaluator of the hidden harness; gives their responses, which `shutdown`
    /// alone has none of.
    ///
    /// # Panics
    /// If it does not answer each of them.
    #[must_use]
    pub fn drive(&self, requests: &[Value]) -> Vec<Value> {
        self.drive_with(requests, &[])
    }

    /// As [`Local::drive`], with these options of the worker.
    ///
    /// # Panics
    /// If it does not answer each of them.
    #[must_use]
    pub fn drive_with(&self, requests: &[Value], options: &[&str]) -> Vec<Value> {
        let file = self.path().join("requests.jsonl");
        let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
        std::fs::write(&file, lines).expect("written");
        let mut command = self.command(&programs::own("gradient-worker"));
        command
            .arg("--eval-driver")
            .arg(&file)
            .arg("--base-dir")
            .arg(self.path().join("worker"))
            .arg("--nix-bin")
            .arg(programs::installed("nix"))
            .args(["--server-url", "nats://127.0.0.1:1"])
            .args(options)
            .env("NIX_REMOTE", self.store_uri());
        let said = Running::start(&mut command).end().ok();
        let responses = said.json_lines();
        assert_eq!(responses.len(), requests.len(), "one response each: {}", said.stderr);
        responses
    }

    /// Runs one of Nix's programs on the store.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn nix(&self, name: &str, arguments: &[&str]) -> Said {
        let mut command = self.command(&programs::installed(name));
        Running::start(command.args(arguments).args(["--store", &self.store_uri()])).end().ok()
    }
}

/// The lines, by their path.
///
/// # Panics
/// If two lines are about the same attribute.
#[must_use]
pub fn sorted(said: &Said) -> Vec<Value> {
    let mut lines = said.json_lines();
    lines.sort_by_key(|line| line["attrPath"].to_string());
    for pair in lines.windows(2) {
        assert_ne!(pair[0]["attrPath"], pair[1]["attrPath"], "told twice");
    }
    lines
}

/// The line about an attribute.
///
/// # Panics
/// If there is none.
#[track_caller]
#[must_use]
pub fn line<'a>(lines: &'a [Value], attr: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["attr"] == attr);
    found.unwrap_or_else(|| panic!("no {attr} in {lines:#?}"))
}
