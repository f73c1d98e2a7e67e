//! The programs that a local cluster needs, and what to do about missing ones.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Code, Failure};

/// Where the set-up installs, unless `GRADIENT_NIX_PREFIX` says otherwise.
const PREFIX: &str = "/opt/gradient-nix";

/// Everything that `gradient up` starts.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) server: PathBuf,
    pub(crate) worker: PathBuf,
    pub(crate) nats_server: PathBuf,
    pub(crate) nix: PathBuf,
    pub(crate) postgres_bin_dir: PathBuf,
    pub(crate) busybox: PathBuf,
}

/// A program that was looked for.
pub(crate) struct Looked {
    pub(crate) what: &'static str,
    pub(crate) found: Result<PathBuf, String>,
}

/// The folder of the set-up.
pub(crate) fn prefix() -> PathBuf {
    std::env::var_os("GRADIENT_NIX_PREFIX").map_or_else(|| PREFIX.into(), PathBuf::from)
}

/// Looks for everything; the rows of `gradient up --check`.
pub(crate) fn look() -> Vec<Looked> {
    let setup = "run `make setup`, which installs it";
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let nats =
        gradient_log::jetstream::local::find_program(named("GRADIENT_NATS_SERVER"), &prefix());
    let row = |what, found: Option<PathBuf>, otherwise: &str| Looked {
        what,
        found: found.filter(|path| path.exists()).ok_or_else(|| otherwise.to_owned()),
    };
    vec![
        row("gradient-server", server(), "build it with `make build`"),
        row("gradient-worker", worker(), "build it with `make build`"),
        row("nats-server", nats, &format!("{setup}, or name it in GRADIENT_NATS_SERVER")),
        row("nix", find_nix(), setup),
        row("PostgreSQL", find_postgres(), setup),
        row("busybox", find_in_path("busybox"), setup),
    ]
}

impl Programs {
    /// All programs, or one clear line on the first that is missing.
    pub(crate) fn find() -> Result<Self, Failure> {
        let mut found = look().into_iter().map(|looked| match looked.found {
            Ok(path) => Ok(path),
            Err(otherwise) => {
                let error = anyhow::anyhow!("{} is missing", looked.what);
                Err(Failure::new(Code::Unavailable, error).hint(otherwise))
            }
        });
        let mut next =
            || found.next().unwrap_or_else(|| Err(Failure::usage("a program is not looked for")));
        Ok(Self {
            server: next()?,
            worker: next()?,
            nats_server: next()?,
            nix: next()?,
            postgres_bin_dir: next()?,
            busybox: next()?,
        })
    }
}

/// The worker beside this program; it is the evaluator, too.
pub(crate) fn worker() -> Option<PathBuf> {
    sibling("gradient-worker").filter(|path| path.is_file())
}

/// The services beside this program.
pub(crate) fn server() -> Option<PathBuf> {
    sibling("gradient-server").filter(|path| path.is_file())
}

/// A program beside this one.
fn sibling(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok()?;
    Some(own.parent()?.join(name))
}

pub(crate) fn find_nix() -> Option<PathBuf> {
    let own = prefix().join("bin/nix");
    if own.is_file() { Some(own) } else { find_in_path("nix") }
}

/// [`find_nix`], or what to do without.
pub(crate) fn nix_or_failure() -> Result<PathBuf, Failure> {
    find_nix().ok_or_else(|| {
        Failure::unavailable(anyhow::anyhow!("nix is missing"))
            .hint("run `make setup`, which installs it")
    })
}

fn find_in_path(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The folder with `initdb` and `postgres`: Debian's newest, or the search path.
fn find_postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| version(path));
    let debian = newest.map(|path| path.join("bin"));
    debian
        .filter(|bin| bin.join("initdb").is_file())
        .or_else(|| find_in_path("initdb")?.parent().map(Path::to_owned))
}

/// The version line of a program, for `--check`.
pub(crate) fn version_of(program: &Path) -> anyhow::Result<String> {
    let output = std::process::Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}
