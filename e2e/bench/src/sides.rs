//! The programs that are compared, where each run of them has its store, and their command lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use gradient_suite::programs;
use serde_json::Value;

use crate::measure::Run;

/// Variable with the path of nix-eval-jobs.
pub(crate) const PEER_VARIABLE: &str = "NIX_EVAL_JOBS";
/// Settings that all sides read: nothing from the network, and a store that has no other users.
const NIX_CONF: &str = "experimental-features = nix-command flakes\nbuild-users-group =\n\
                        substituters =\nflake-registry =\nwarn-dirty = false\n";

/// The programs.
pub(crate) struct Programs {
    gradient: PathBuf,
    worker: PathBuf,
    nix: PathBuf,
    /// nix-eval-jobs, if somebody said where it is.
    pub(crate) peer: Option<PathBuf>,
}

impl Programs {
    /// Ours beside this program, Nix of the set-up, the peer of [`PEER_VARIABLE`].
    pub(crate) fn find() -> anyhow::Result<Programs> {
        let peer = std::env::var_os(PEER_VARIABLE).filter(|path| !path.is_empty());
        let peer = peer.map(PathBuf::from);
        if let Some(peer) = peer.as_ref().filter(|peer| !peer.is_file()) {
            anyhow::bail!("{PEER_VARIABLE} names no file: {}", peer.display());
        }
        Ok(Programs {
            gradient: programs::own("gradient"),
            worker: programs::own("gradient-worker"),
            nix: programs::installed("nix"),
            peer,
        })
    }

    /// `nix --version`.
    pub(crate) fn nix_version(&self) -> anyhow::Result<String> {
        let output = Command::new(&self.nix).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// How much a side may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Evaluating processes.
    pub(crate) processes: usize,
    /// Resident memory over which one of them is replaced, in MiB.
    pub(crate) memory_mib: u64,
}

/// A store, caches and a home for the runs of one side. Nothing of it is removed before the whole
/// benchmark ends: file systems are slow to create files for some seconds after many were removed.
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    /// A place with an empty store, which is there already: several processes at once cannot make it.
    pub(crate) fn new(programs: &Programs, folder: PathBuf) -> anyhow::Result<Place> {
        for name in ["conf", "home", "tmp", "run"] {
            let path = folder.join(name);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        std::fs::write(folder.join("conf/nix.conf"), NIX_CONF)?;
        let place = Place { folder };
        let said = place.nix(programs, &["store", "info"]).output()?;
        anyhow::ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        Ok(place)
    }

    /// Where a run of this place puts its output.
    pub(crate) fn files(&self) -> PathBuf {
        self.folder.join("run")
    }

    fn store(&self) -> String {
        format!("local?root={}", self.folder.join("store").display())
    }

    fn nix_cache(&self) -> PathBuf {
        self.folder.join("home/cache")
    }

    fn command(&self, program: &Path) -> Command {
        let home = self.folder.join("home");
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", programs::search_path())
            .env("NIX_CONF_DIR", self.folder.join("conf"))
            .env("NIX_USER_CONF_FILES", "/dev/null")
            .env("NIX_CACHE_HOME", self.nix_cache())
            .env("HOME", home)
            .env("TMPDIR", self.folder.join("tmp"))
            .env("NO_COLOR", "1")
            .current_dir(&self.folder);
        for name in ["GRADIENT_NIX_PREFIX", "GRADIENT_NIX_LIB_DIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    /// `nix` on this store.
    pub(crate) fn nix(&self, programs: &Programs, arguments: &[&str]) -> Command {
        let mut command = self.command(&programs.nix);
        command.args(["--store", &self.store()]).args(arguments);
        command
    }

    /// Fails unless `nix` keeps evaluations here, and finds with these arguments all that it needs
    /// among them. Not every command looks there: `nix eval` evaluates even what is kept.
    pub(crate) fn is_kept(&self, programs: &Programs, arguments: &[&str]) -> anyhow::Result<()> {
        let names_in = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let is_cache = |path: &Path| path.display().to_string().contains("/eval-cache-v");
        let folders = names_in(&self.nix_cache()).into_iter().filter(|path| is_cache(path));
        let mut files = folders.flat_map(|folder| names_in(&folder));
        let is_there = files.any(|file| file.extension().is_some_and(|end| end == "sqlite"));
        anyhow::ensure!(is_there, "nix keeps no evaluations in {}", self.nix_cache().display());
        let file = self.files().join("statistics");
        let mut command = self.nix(programs, arguments);
        command.env("NIX_SHOW_STATS", "1").env("NIX_SHOW_STATS_PATH", &file);
        let said = command.output()?;
        anyhow::ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let statistics: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
        let calls = statistics["nrFunctionCalls"].as_u64().context("Nix counts no calls")?;
        anyhow::ensure!(calls == 0, "nix {arguments:?} evaluated again: {calls} calls");
        Ok(())
    }

    /// `gradient eval`: what a pattern finds.
    pub(crate) fn ours(
        &self,
        programs: &Programs,
        flake: &str,
        pattern: &str,
        limits: Limits,
    ) -> Command {
        let mut command = self.command(&programs.gradient);
        command
            .arg("--data-dir")
            .arg(self.folder.join("data"))
            .args(["eval", "--flake", flake, "--store", &self.store()])
            .args(["--workers", &limits.processes.to_string()])
            .args(["--max-memory-size", &limits.memory_mib.to_string()])
            .arg(pattern);
        command
    }

    /// nix-eval-jobs: everything below a set.
    pub(crate) fn peer(&self, peer: &Path, flake: &str, root: &str, limits: Limits) -> Command {
        let mut command = self.command(peer);
        command
            .args(["--flake", &format!("{flake}#{root}")])
            .args(["--option", "store", &self.store()])
            .args(["--workers", &limits.processes.to_string()])
            .args(["--max-memory-size", &limits.memory_mib.to_string()]);
        command
    }

    /// One of our evaluators, asked for the names that a pattern stands for; no value is forced.
    pub(crate) fn names(
        &self,
        programs: &Programs,
        flake: &str,
        pattern: &str,
    ) -> anyhow::Result<Command> {
        let file = self.folder.join("requests");
        let plan = serde_json::json!({ "op": "plan", "repository": flake, "wildcards": [pattern] });
        std::fs::write(&file, format!("{plan}\n"))?;
        let mut command = self.command(&programs.worker);
        command.env("NIX_REMOTE", self.store());
        command.arg("--base-dir").arg(self.folder.join("data")).arg("--eval-driver").arg(file);
        Ok(command)
    }
}

/// The derivations of JSON lines, by the last two names of their attributes: the sides count from
/// different roots. An error in the output is an error here.
pub(crate) fn derivations(run: &Run) -> anyhow::Result<BTreeMap<String, String>> {
    anyhow::ensure!(run.code == Some(0), "exit code {:?}: {}", run.code, run.stderr);
    let mut found = BTreeMap::new();
    for line in run.stdout.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let names: Vec<&str> =
            value["attrPath"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let name = names[names.len().saturating_sub(2)..].join(".");
        let path = value["drvPath"].as_str().with_context(|| format!("no derivation: {line}"))?;
        let before = found.insert(name.clone(), path.to_owned());
        anyhow::ensure!(before.is_none(), "{name} is told twice");
    }
    Ok(found)
}

/// How many names an answer to [`Place::names`] holds.
pub(crate) fn names_told(run: &Run) -> anyhow::Result<usize> {
    let answer: Value = serde_json::from_str(&run.stdout).with_context(|| run.stderr.clone())?;
    let shards = answer["shards"].as_array().context("no plan")?;
    Ok(shards.iter().filter_map(|shard| shard["only"].as_array()).map(Vec::len).sum())
}

/// The one derivation in JSON lines.
pub(crate) fn only_one(run: &Run) -> anyhow::Result<String> {
    let found: Vec<String> = derivations(run)?.into_values().collect();
    let [one] = found.as_slice() else { anyhow::bail!("{} derivations, not one", found.len()) };
    Ok(one.clone())
}
