//! What a worker holds at one moment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gradient_suite::{Cluster, process};

use crate::measure::status;

/// Above the lines of [`Sample::show`].
pub(super) const HEAD: &str = "evaluation | memory MiB | own MiB | of files MiB | files | sockets | threads | children | \
     daemons | zombies | temporary";
const MIB: f64 = 1024.0 * 1024.0;

/// What a worker holds at one moment.
pub(super) struct Sample {
    /// Resident memory: the two below and what is shared.
    pub(super) rss_mib: f64,
    /// Heaps and stacks.
    pub(super) own_mib: f64,
    /// Pages of programs and libraries that were touched so far.
    of_files_mib: f64,
    pub(super) files: usize,
    pub(super) sockets: usize,
    pub(super) threads: usize,
    /// Processes below it that are no daemons.
    pub(super) children: usize,
    /// The daemon, and one process for each connection to it: they come and go.
    pub(super) daemons: usize,
    /// Of it, of what is below it, and of what takes over orphans.
    pub(super) zombies: usize,
    /// Temporary files and folders.
    pub(super) left: BTreeSet<PathBuf>,
}

impl Sample {
    /// Looks at the worker; `mark` is in the name of each derivation.
    pub(super) fn of(cluster: &Cluster, worker: i32, mark: &str) -> anyhow::Result<Sample> {
        let status = status(worker).context("the worker is gone")?;
        #[expect(clippy::cast_precision_loss, reason = "memory in MiB, for people")]
        let mib = |name: &str| status.get(name).copied().unwrap_or(0) as f64 / MIB;
        let folder = |name: &str| std::fs::read_dir(format!("/proc/{worker}/{name}"));
        let targets: Vec<PathBuf> =
            folder("fd")?.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        let is_socket = |one: &&PathBuf| one.to_string_lossy().starts_with("socket:");
        let sockets = targets.iter().filter(is_socket).count();
        let below = process::descendants(worker);
        let daemons = below.iter().filter(|one| one.program() == "nix-daemon").count();
        let mut parents: Vec<i32> = below.iter().map(|one| one.pid).collect();
        parents.extend([worker, cluster.pid()]);
        Ok(Sample {
            rss_mib: mib("VmRSS"),
            own_mib: mib("RssAnon"),
            of_files_mib: mib("RssFile"),
            files: targets.len() - sockets,
            sockets,
            threads: folder("task")?.count(),
            children: below.len() - daemons,
            daemons,
            zombies: process::zombies().iter().filter(|one| parents.contains(&one.parent)).count(),
            left: left(cluster, mark),
        })
    }

    /// One line.
    pub(super) fn show(&self, number: usize) {
        println!(
            "{number} | {:.1} | {:.1} | {:.1} | {} | {} | {} | {} | {} | {} | {}",
            self.rss_mib,
            self.own_mib,
            self.of_files_mib,
            self.files,
            self.sockets,
            self.threads,
            self.children,
            self.daemons,
            self.zombies,
            self.left.len()
        );
    }
}

/// What the cluster and its builds put into folders for a while: everything in the worker's folder but
/// stores and caches, of those what is still on its way, everything in the folder for temporary files,
/// and in the machine's own what has the name of one of the builds.
fn left(cluster: &Cluster, mark: &str) -> BTreeSet<PathBuf> {
    let worker = cluster.data().join("workers/1");
    let kept = [worker.join("store/root"), worker.join("eval-cache")];
    let name = |path: &Path| {
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let is_on_its_way = |path: &PathBuf| {
        let name = name(path);
        let ends = [".lock", ".chroot", ".tmp"];
        name.starts_with('.')
            || name.starts_with("tmp")
            || ends.iter().any(|end| name.ends_with(end))
    };
    let mut found = below(&worker, &kept);
    found.extend(below(&kept[1], &[]).into_iter().filter(is_on_its_way));
    found.extend(entries(&kept[0].join("nix/store")).into_iter().filter(is_on_its_way));
    found.extend(below(&cluster.temporary(), &[]));
    let temporary = entries(&std::env::temp_dir()).into_iter();
    found.extend(temporary.filter(|path| name(path).contains(mark)));
    found.into_iter().collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Everything below a folder, without what is below some others.
fn below(folder: &Path, without: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(folder) {
        if path.is_dir() && !path.is_symlink() && !without.contains(&path) {
            found.extend(below(&path, without));
        }
        found.push(path);
    }
    found
}
