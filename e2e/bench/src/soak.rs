//! Many evaluations in one worker of a real cluster, and what grew or stayed behind.

mod sample;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use gradient_suite::cluster::Part;
use gradient_suite::{Cluster, Flake};

use crate::measure::Spread;
use sample::Sample;

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

/// Evaluate many times in one worker; fails if it grows or leaves something behind
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Evaluations, one after another
    #[arg(long, default_value_t = 200, value_name = "N")]
    evaluations: usize,
}

pub(crate) fn run(args: &SoakArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.evaluations >= WARM_UP + WINDOW,
        "at least {} evaluations are needed to see growth",
        WARM_UP + WINDOW
    );
    let mut cluster = Cluster::prepare(1);
    cluster.own_temporary_folder();
    cluster.up();
    let worker = cluster.part(Part::Worker(1)).context("the worker runs")?.pid;
    let mark = format!("soak-{}", std::process::id());
    let quiet = Sample::of(&cluster, worker, &mark)?;
    println!("{}", sample::HEAD);
    quiet.show(0);
    let mut samples = Vec::new();
    for number in 0..args.evaluations {
        let is_broken = number % BROKEN_EVERY == BROKEN_EVERY - 1;
        let flake = flake(&mark, number, is_broken);
        let said = cluster.submit(&flake.reference()).end().with_code(i32::from(is_broken));
        anyhow::ensure!(said.stdout.contains("succeeded"), "nothing was built: {}", said.stdout);
        let now = cluster.part(Part::Worker(1)).map(|worker| worker.pid);
        anyhow::ensure!(now == Some(worker), "the worker was started again: {worker}, {now:?}");
        let sample = Sample::of(&cluster, worker, &mark)?;
        sample.show(number + 1);
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

/// What is wrong, once what ends by itself had its time.
fn verdict(
    cluster: &Cluster,
    worker: i32,
    mark: &str,
    quiet: &Sample,
    samples: &[Sample],
) -> anyhow::Result<Vec<String>> {
    let (warm_up, last) = (&samples[WARM_UP - WINDOW..WARM_UP], &samples[samples.len() - WINDOW..]);
    let middle =
        |samples: &[Sample], mib: fn(&Sample) -> f64| Spread::of(samples.iter().map(mib)).median;
    let [early, late] = [warm_up, last].map(|window| middle(window, |one| one.rss_mib));
    let [own_early, own_late] = [warm_up, last].map(|window| middle(window, |one| one.own_mib));
    let growth = (late / early - 1.0) * 100.0;
    println!(
        "memory of the worker: {early:.1} MiB ({own_early:.1} of heaps and stacks) after {WARM_UP} \
         evaluations, {late:.1} MiB ({own_late:.1}) after {}: {growth:+.1} %",
        samples.len()
    );
    let begin = Instant::now();
    let mut faults = loop {
        let now = Sample::of(cluster, worker, mark)?;
        let faults = left_behind(quiet, &samples[..WARM_UP], &now);
        if faults.is_empty() || begin.elapsed() > QUIET_LIMIT {
            now.show(samples.len());
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
    check("daemons", now.daemons, most(|sample| sample.daemons) + CONNECTIONS_SPARE);
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
