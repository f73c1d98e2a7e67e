//! Many evaluations in one worker of a real cluster, and what grew or stayed behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use gradient_suite::cluster::Part;
use gradient_suite::{Cluster, Flake, process};

use crate::measure::{Spread, status};

/// Evaluations after which nothing has to grow any more.
const WARM_UP: usize = 20;
/// Samples of which the middle counts, at the end of the warm-up and at the end.
const WINDOW: usize = 5;
/// Growth that fails the soak, in percent.
const GROWTH_MAX: f64 = 5.0;
/// Connections that a pool may open after the warm-up. A leak is about one per evaluation.
const CONNECTIONS_SPARE: usize = 4;
/// How long what ends by itself may take to.
const QUIET_LIMIT: Duration = Duration::from_secs(60);
const QUIET_PAUSE: Duration = Duration::from_millis(200);
/// Every so many evaluations one has an attribute that throws.
const BROKEN_EVERY: usize = 5;
/// Derivations that all evaluations share; each has one more of its own.
const SHARED: usize = 40;
const MIB: f64 = 1024.0 * 1024.0;

/// Evaluate many times in one worker; fails if it grows or leaves something behind
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Evaluations, one after another
    #[arg(long, default_value_t = 200, value_name = "N")]
    evaluations: usize,
}

/// What a worker holds at one moment.
struct Sample {
    rss_mib: f64,
    files: usize,
    sockets: usize,
    threads: usize,
    /// Processes below it, without the connections of its daemon, which come and go.
    children: usize,
    zombies: usize,
    /// Temporary files and folders.
    left: BTreeSet<PathBuf>,
}

pub(crate) fn run(args: &SoakArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.evaluations >= WARM_UP + WINDOW,
        "at least {} evaluations are needed to see growth",
        WARM_UP + WINDOW
    );
    let cluster = Cluster::start_with(1);
    let worker = cluster.part(Part::Worker(1)).context("the worker runs")?.pid;
    let mark = format!("soak-{}", std::process::id());
    let quiet = sample(&cluster, worker, &mark)?;
    println!(
        "evaluation | memory MiB | files | sockets | threads | children | zombies | temporary"
    );
    show(0, &quiet);
    let mut samples = Vec::new();
    for number in 0..args.evaluations {
        let is_broken = number % BROKEN_EVERY == BROKEN_EVERY - 1;
        let flake = flake(&mark, number, is_broken);
        let said = cluster.submit(&flake.reference()).end().with_code(i32::from(is_broken));
        anyhow::ensure!(said.stdout.contains("succeeded"), "nothing was built: {}", said.stdout);
        let now = cluster.part(Part::Worker(1)).map(|worker| worker.pid);
        anyhow::ensure!(now == Some(worker), "the worker was started again: {worker}, {now:?}");
        let sample = sample(&cluster, worker, &mark)?;
        show(number + 1, &sample);
        samples.push(sample);
    }
    let faults = verdict(&cluster, worker, &mark, &quiet, &samples)?;
    cluster.finish();
    anyhow::ensure!(faults.is_empty(), "{}", faults.join("; "));
    println!("nothing grew, nothing is left");
    Ok(())
}

/// A flake that was not evaluated before: most of it is the same, one derivation is new.
fn flake(mark: &str, number: usize, is_broken: bool) -> Flake {
    let definitions = format!(
        r#"
      shared = builtins.listToAttrs (builtins.genList
        (n: {{ name = "shared-${{toString n}}"; value = mk "{mark}-${{toString n}}" "echo ${{toString n}} > $out"; }})
        {SHARED});
"#
    );
    let broken = if is_broken { "bad = throw \"as it should\";" } else { "" };
    let body = format!(
        "packages.x86_64-linux = shared // {{ own = mk \"{mark}-own-{number}\" \
         \"echo ${{shared.shared-0}} > $out\"; {broken} }};"
    );
    Flake::of(&definitions, &body)
}

fn sample(cluster: &Cluster, worker: i32, mark: &str) -> anyhow::Result<Sample> {
    let status = status(worker).context("the worker is gone")?;
    #[expect(clippy::cast_precision_loss, reason = "memory in MiB, for people")]
    let rss_mib = status.get("VmRSS").copied().unwrap_or(0) as f64 / MIB;
    let folder = |name: &str| std::fs::read_dir(format!("/proc/{worker}/{name}"));
    let targets: Vec<PathBuf> =
        folder("fd")?.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    let sockets = targets.iter().filter(|one| one.to_string_lossy().starts_with("socket:")).count();
    let below = process::descendants(worker);
    let mut parents: Vec<i32> = below.iter().map(|one| one.pid).collect();
    parents.extend([worker, cluster.pid()]);
    Ok(Sample {
        rss_mib,
        files: targets.len() - sockets,
        sockets,
        threads: folder("task")?.count(),
        children: below.iter().filter(|one| one.program() != "nix-daemon").count(),
        zombies: process::zombies().iter().filter(|one| parents.contains(&one.parent)).count(),
        left: left(cluster.data(), mark),
    })
}

/// What the worker and its builds put into folders for a while: everything in its folder but stores
/// and caches, of those what is still on its way, and the builders' folders.
fn left(data: &Path, mark: &str) -> BTreeSet<PathBuf> {
    let worker = data.join("workers/1");
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

fn show(number: usize, sample: &Sample) {
    println!(
        "{number} | {:.1} | {} | {} | {} | {} | {} | {}",
        sample.rss_mib,
        sample.files,
        sample.sockets,
        sample.threads,
        sample.children,
        sample.zombies,
        sample.left.len()
    );
}

/// What is wrong, once what ends by itself had its time.
fn verdict(
    cluster: &Cluster,
    worker: i32,
    mark: &str,
    quiet: &Sample,
    samples: &[Sample],
) -> anyhow::Result<Vec<String>> {
    let memory =
        |samples: &[Sample]| Spread::of(samples.iter().map(|sample| sample.rss_mib)).median;
    let (early, late) =
        (memory(&samples[WARM_UP - WINDOW..WARM_UP]), memory(&samples[samples.len() - WINDOW..]));
    let growth = (late / early - 1.0) * 100.0;
    println!(
        "memory of the worker: {early:.1} MiB after {WARM_UP} evaluations, {late:.1} MiB after {}: \
         {growth:+.1} %",
        samples.len()
    );
    let begin = Instant::now();
    let mut faults = loop {
        let now = sample(cluster, worker, mark)?;
        let faults = left_behind(quiet, &samples[..WARM_UP], &now);
        if faults.is_empty() || begin.elapsed() > QUIET_LIMIT {
            show(samples.len(), &now);
            break faults;
        }
        std::thread::sleep(QUIET_PAUSE);
    };
    if growth >= GROWTH_MAX {
        faults.push(format!("the memory of the worker grew by {growth:.1} %"));
    }
    Ok(faults)
}

/// What is there now and was not before the first evaluation, or, of what a worker keeps on purpose,
/// not in the warm-up.
fn left_behind(quiet: &Sample, warm_up: &[Sample], now: &Sample) -> Vec<String> {
    let most = |count: fn(&Sample) -> usize| {
        warm_up.iter().chain([quiet]).map(count).max().unwrap_or_default()
    };
    let mut faults = Vec::new();
    let mut check = |what: &str, now: usize, most: usize| {
        if now > most {
            faults.push(format!("{what}: {now}, at most {most} are right"));
        }
    };
    check("children", now.children, quiet.children);
    check("zombies", now.zombies, 0);
    check("open files", now.files, most(|sample| sample.files));
    check("open sockets", now.sockets, most(|sample| sample.sockets) + CONNECTIONS_SPARE);
    check("threads", now.threads, most(|sample| sample.threads));
    let known: BTreeSet<&PathBuf> = warm_up[..1].iter().flat_map(|one| &one.left).collect();
    let new: Vec<&PathBuf> = now.left.iter().filter(|path| !known.contains(path)).collect();
    if !new.is_empty() {
        faults.push(format!("{} temporary files, such as {}", new.len(), new[0].display()));
    }
    faults
}
