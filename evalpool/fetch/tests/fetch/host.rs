//! A private store for tests, flakes written from texts, and what Nix itself says about them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gradient_fetch::{FetchError, Fetcher, LockedFlake, Reach, Request, Source};
use tempfile::TempDir;

/// Where Nix is installed.
fn nix_prefix() -> PathBuf {
    let prefix = std::env::var_os("GRADIENT_NIX_PREFIX").map(PathBuf::from);
    let prefix = prefix.unwrap_or_else(|| PathBuf::from("/opt/gradient-nix"));
    let nix = prefix.join("bin/nix");
    assert!(nix.exists(), "these tests need {} (set GRADIENT_NIX_PREFIX)", nix.display());
    prefix
}

pub(crate) struct Host {
    dir: TempDir,
    pub(crate) fetcher: Fetcher,
}

impl Host {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("gf").tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("there");
        let store = root.join("store");
        let fetcher = Fetcher::new(
            nix_prefix().join("bin/nix"),
            format!("local?root={}", store.display()),
            store.join("nix/store"),
            root.join("cache"),
        );
        Self { dir, fetcher }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("there")
    }

    /// Writes files below a folder; a name and a text each.
    pub(crate) fn folder(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.path().join(name);
        for (file, text) in files {
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, text).expect("written");
        }
        folder
    }

    /// A program from the text of a script.
    pub(crate) fn program(&self, folder: &str, name: &str, script: &str) -> PathBuf {
        let program = self.folder(folder, &[(name, &format!("#!/bin/sh\n{script}\n"))]).join(name);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("executable");
        program
    }

    /// Puts a script before `nix`.
    pub(crate) fn before_nix(&mut self, script: &str) {
        let script = format!("{script}\nexec {} \"$@\"", self.fetcher.nix.display());
        self.fetcher.nix = self.program("bin", "nix", &script);
    }

    /// A file that has a line for each run of `nix` from now on.
    pub(crate) fn counted(&mut self) -> PathBuf {
        let count = self.path().join("runs");
        self.before_nix(&format!("echo \"$*\" >> {}", count.display()));
        count
    }

    /// Where a file of the store really is.
    pub(crate) fn real(&self, path: &str) -> PathBuf {
        self.path().join("store").join(path.trim_start_matches('/'))
    }

    /// What lies in the store.
    pub(crate) fn paths(&self) -> BTreeSet<OsString> {
        let store = std::fs::read_dir(&self.fetcher.store_dir).expect("a store");
        store.map(|entry| entry.expect("an entry").file_name()).collect()
    }

    pub(crate) async fn fetch(&self, request: &Request) -> Result<LockedFlake, FetchError> {
        self.fetcher.fetch(request).await
    }

    /// What `nix eval` says, with the arguments after its options.
    pub(crate) fn nix(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(nix_prefix().join("bin/nix"))
            .args(["--extra-experimental-features", "nix-command flakes"])
            .args(["--store", &self.fetcher.store_uri, "--option", "flake-registry", ""])
            .args(arguments)
            .env("NIX_CACHE_HOME", self.path().join("nix-cache"))
            .env("HOME", self.path())
            .env("NO_COLOR", "1")
            .output()
            .expect("nix");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    /// Derivations of the packages as pure evaluation of a fetched flake finds them.
    pub(crate) fn derivations(&self, flake: &LockedFlake) -> Result<String, String> {
        let expression = format!(
            "builtins.mapAttrs (_: p: p.drvPath) (builtins.getFlake \"{}\").outputs.packages.x86_64-linux",
            flake.url
        );
        self.nix(&["eval", "--json", "--expr", &expression])
    }

    /// The same as the `nix` command finds them for a reference.
    pub(crate) fn expected(&self, reference: &str, options: &[&str]) -> String {
        let attribute = format!("{reference}#packages.x86_64-linux");
        let all = "builtins.mapAttrs (_: p: p.drvPath)";
        let mut arguments =
            vec!["eval", "--json", "--no-write-lock-file", &attribute, "--apply", all];
        arguments.extend(options);
        self.nix(&arguments).expect("nix evaluates it")
    }
}

/// A request for a reference of this machine.
pub(crate) fn local(reference: impl Into<String>) -> Request {
    Request::new(Source::Reference(reference.into()), Reach::Local)
}

pub(crate) fn path_reference(folder: &Path) -> String {
    format!("path:{}", folder.display())
}

/// Runs git in a folder, without the user's settings.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "protocol.file.allow=always",
        ])
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
