//! The figures P6, P7 and P8 (docs/testing.md).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::contest::{Comparison, Contender, contest};
use crate::flake::{self, GOOD, ONE, ROOT, WIDE, WIDE_ROOT};
use crate::measure::{self, Run};
use crate::report::{self, Machine, Report};
use crate::sides::{Limits, PEER_VARIABLE, Place, Programs, derivations, names_told, only_one};

/// Memory in which the stores lie, so that no disk takes part.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Compare evaluations with nix-eval-jobs and nix
#[derive(Debug, Args)]
pub(crate) struct EvaluationsArgs {
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Packages of the generated flake
    #[arg(long, default_value_t = 3_000, value_name = "N")]
    packages: usize,
    /// Memory limit of each evaluating process, for all sides
    #[arg(long, default_value_t = 4_096, value_name = "MIB")]
    max_memory_size: u64,
    /// Only these figures
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<Figure>,
    /// Folder for flakes and stores; memory if there is such a folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the figures to a file, every run included
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Cold evaluation
    P6,
    /// Repeated evaluation
    P7,
    /// Laziness
    P8,
}

/// So that Nix does not write what it evaluated: with it a cold run of one value takes longer.
const NOTHING_KEPT: [&str; 3] = ["--option", "eval-cache", "false"];

/// Set derivations that the first run found; every other one has to find the same.
type Expected = RefCell<Option<BTreeMap<String, String>>>;

struct Bench {
    args: EvaluationsArgs,
    programs: Programs,
    folder: tempfile::TempDir,
    places: Cell<usize>,
    expected: Expected,
    /// Reference of the flake with many packages.
    packages: String,
    /// Reference of the flake with the wide set.
    wide: String,
}

pub(crate) fn run(args: EvaluationsArgs) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let memory = PathBuf::from(MEMORY_FOLDER);
    let base = args.folder.clone().or_else(|| memory.is_dir().then_some(memory));
    let base = base.unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("gradient-bench-").tempdir_in(&base)?;
    let (packages, wide) = (folder.path().join("packages"), folder.path().join("wide"));
    flake::write_packages(&packages, args.packages)?;
    flake::write_wide(&wide)?;
    let (packages, wide) = (flake::commit(&packages)?, flake::commit(&wide)?);
    let mut machine = Machine::here(programs.nix_version()?, base.display().to_string());
    let (places, expected) = (Cell::default(), Expected::default());
    let bench = Bench { args, programs, folder, places, expected, packages, wide };
    let mut comparisons = Vec::new();
    if bench.wants(Figure::P6) {
        for processes in [1, 2] {
            comparisons.push(bench.cold(processes)?);
        }
    }
    if bench.wants(Figure::P7) {
        comparisons.push(bench.repeated()?);
        comparisons.push(bench.one_repeated()?);
    }
    if bench.wants(Figure::P8) {
        comparisons.push(bench.wide_names()?);
        comparisons.push(bench.wide_value()?);
    }
    machine.load[1] = report::load();
    let report = Report { machine, notes: bench.notes(), comparisons };
    println!("{}", report.table());
    if let Some(file) = &bench.args.json {
        std::fs::write(file, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

impl Bench {
    fn wants(&self, figure: Figure) -> bool {
        self.args.only.is_empty() || self.args.only.contains(&figure)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Every run found the same derivations; a run that does not ends the benchmark."
                .to_owned(),
            "Memory counts pages that processes share once for each of them.".to_owned(),
        ];
        if self.programs.peer.is_none() {
            notes.push(format!(
                "nix-eval-jobs is NOT compared: {PEER_VARIABLE} does not say where it is \
                 (docs/testing.md)."
            ));
        }
        notes
    }

    fn limits(&self, processes: usize) -> Limits {
        Limits { processes, memory_mib: self.args.max_memory_size }
    }

    fn place(&self) -> anyhow::Result<Place> {
        let number = self.places.get();
        self.places.set(number + 1);
        Place::new(&self.programs, self.folder.path().join(format!("place-{number}")))
    }

    fn checked(&self, run: Run) -> anyhow::Result<Run> {
        let found = derivations(&run)?;
        anyhow::ensure!(
            found.len() == self.args.packages,
            "{} derivations, not {}",
            found.len(),
            self.args.packages
        );
        let mut expected = self.expected.borrow_mut();
        let wanted = expected.get_or_insert_with(|| found.clone());
        let other = found.iter().find(|(name, path)| wanted.get(*name) != Some(*path));
        anyhow::ensure!(other.is_none(), "another derivation than before: {other:?}");
        Ok(run)
    }

    fn ours(&self, place: &Place, flake: &str, limits: Limits) -> anyhow::Result<Run> {
        let pattern = format!("{ROOT}.*");
        let command = place.ours(&self.programs, flake, &pattern, limits);
        self.checked(measure::run(command, &place.files())?)
    }

    fn peer(&self, peer: &Path, place: &Place, flake: &str, limits: Limits) -> anyhow::Result<Run> {
        let command = place.peer(peer, flake, ROOT, limits);
        self.checked(measure::run(command, &place.files())?)
    }

    /// P6.
    fn cold(&self, processes: usize) -> anyhow::Result<Comparison> {
        let (flake, limits) = (self.packages.as_str(), self.limits(processes));
        let mut contenders: Vec<Contender<'_>> = vec![(
            "gradient eval".into(),
            Box::new(move || self.ours(&self.place()?, flake, limits)),
        )];
        if let Some(peer) = self.programs.peer.as_deref() {
            contenders.push((
                "nix-eval-jobs".into(),
                Box::new(move || self.peer(peer, &self.place()?, flake, limits)),
            ));
        }
        let work = format!(
            "cold evaluation, {} derivations, processes: {processes}, limit {} MiB each",
            self.args.packages, limits.memory_mib
        );
        contest("P6", work, self.args.runs, contenders)
    }

    /// P7: everything again, in the same store and with the same caches.
    fn repeated(&self) -> anyhow::Result<Comparison> {
        let (ours, peers, nixs) = (self.place()?, self.place()?, self.place()?);
        let (flake, limits) = (self.packages.as_str(), self.limits(1));
        let all = format!("{flake}#{ROOT}");
        let search = ["search", "--json", &all, "^"];
        self.ours(&ours, flake, limits)?;
        let ours = &ours;
        let mut contenders: Vec<Contender<'_>> =
            vec![("gradient eval, again".into(), Box::new(move || self.ours(ours, flake, limits)))];
        if let Some(peer) = self.programs.peer.as_deref() {
            self.peer(peer, &peers, flake, limits)?;
            let peers = &peers;
            contenders.push((
                "nix-eval-jobs, cold".into(),
                Box::new(move || self.peer(peer, &self.place()?, flake, limits)),
            ));
            contenders.push((
                "nix-eval-jobs, again".into(),
                Box::new(move || self.peer(peer, peers, flake, limits)),
            ));
        }
        self.search(&nixs, &search)?;
        nixs.is_kept(&self.programs, &search)?;
        contenders.push((
            "nix search, again: names only".into(),
            Box::new(|| self.search(&nixs, &search)),
        ));
        let work = format!("{} derivations again, processes: 1", self.args.packages);
        contest("P7", work, self.args.runs, contenders)
    }

    fn search(&self, place: &Place, arguments: &[&str]) -> anyhow::Result<Run> {
        let run = measure::run(place.nix(&self.programs, arguments), &place.files())?;
        let found: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(&run.stdout).with_context(|| run.stderr.clone())?;
        anyhow::ensure!(found.len() == self.args.packages, "{} names", found.len());
        Ok(run)
    }

    /// P7: one value again, beside Nix's own cache.
    fn one_repeated(&self) -> anyhow::Result<Comparison> {
        let (ours, nixs, path) = (self.place()?, self.place()?, RefCell::default());
        let name = format!("{ROOT}.{ONE}");
        let value = format!("{}#{name}", self.packages);
        let arguments = ["path-info", "--derivation", &value];
        let ours_one = || self.ours_one(&ours, &self.packages, &name, &path);
        let nixs_one = || self.nixs_one(&nixs, &arguments, &path);
        ours_one()?;
        nixs_one()?;
        nixs.is_kept(&self.programs, &arguments)?;
        let contenders: Vec<Contender<'_>> = vec![
            ("gradient eval, again".into(), Box::new(ours_one)),
            ("nix path-info --derivation, again".into(), Box::new(nixs_one)),
        ];
        contest("P7", "one derivation again".into(), self.args.runs, contenders)
    }

    /// P8: the names of a wide set, of which nothing is kept.
    fn wide_names(&self) -> anyhow::Result<Comparison> {
        let all = format!("{}#{WIDE_ROOT}", self.wide);
        let pattern = format!("{WIDE_ROOT}.#");
        let ours_names = || {
            let place = self.place()?;
            let command = place.names(&self.programs, &self.wide, &pattern)?;
            let run = measure::run(command, &place.files())?;
            let told = names_told(&run)?;
            anyhow::ensure!(told == WIDE, "{told} names");
            Ok(run)
        };
        let names = ["eval", "--json", "--apply", "builtins.attrNames", &all];
        let nixs_names = |options: &[&str]| {
            let place = self.place()?;
            let mut command = place.nix(&self.programs, &names);
            command.args(options);
            let run = measure::run(command, &place.files())?;
            let names: Vec<String> =
                serde_json::from_str(&run.stdout).with_context(|| run.stderr.clone())?;
            anyhow::ensure!(names.len() == WIDE, "{} names", names.len());
            Ok(run)
        };
        let contenders: Vec<Contender<'_>> = vec![
            ("an evaluator of gradient: plan".into(), Box::new(ours_names)),
            ("nix eval --apply attrNames".into(), Box::new(|| nixs_names(&[]))),
            (
                "nix eval --apply attrNames, eval-cache off".into(),
                Box::new(|| nixs_names(&NOTHING_KEPT)),
            ),
        ];
        contest("P8", format!("names of a set of {WIDE}, cold"), self.args.runs, contenders)
    }

    /// P8: one value of a wide set, of which all others throw and nothing is kept.
    fn wide_value(&self) -> anyhow::Result<Comparison> {
        let (name, path) = (format!("{WIDE_ROOT}.{GOOD}"), RefCell::default());
        let value = format!("{}#{name}.drvPath", self.wide);
        let arguments = ["eval", "--raw", &value];
        let nothing_kept = [&arguments[..], &NOTHING_KEPT].concat();
        let ours_one = || self.ours_one(&self.place()?, &self.wide, &name, &path);
        let nixs_one = |arguments| self.nixs_one(&self.place()?, arguments, &path);
        let contenders: Vec<Contender<'_>> = vec![
            ("gradient eval".into(), Box::new(ours_one)),
            ("nix eval".into(), Box::new(|| nixs_one(&arguments))),
            ("nix eval, eval-cache off".into(), Box::new(|| nixs_one(&nothing_kept))),
        ];
        contest("P8", format!("one value of a set of {WIDE}, cold"), self.args.runs, contenders)
    }

    /// One derivation by us.
    fn ours_one(
        &self,
        place: &Place,
        flake: &str,
        name: &str,
        path: &OnePath,
    ) -> anyhow::Result<Run> {
        let command = place.ours(&self.programs, flake, name, self.limits(1));
        let run = measure::run(command, &place.files())?;
        is_same(path, only_one(&run)?)?;
        Ok(run)
    }

    /// One derivation by a command of `nix` that prints its path.
    fn nixs_one(&self, place: &Place, arguments: &[&str], path: &OnePath) -> anyhow::Result<Run> {
        let run = measure::run(place.nix(&self.programs, arguments), &place.files())?;
        anyhow::ensure!(run.code == Some(0), "{}", run.stderr);
        is_same(path, run.stdout.trim().to_owned())?;
        Ok(run)
    }
}

/// The one derivation that the first run found.
type OnePath = RefCell<Option<String>>;

fn is_same(path: &OnePath, found: String) -> anyhow::Result<()> {
    let mut path = path.borrow_mut();
    let wanted = path.get_or_insert_with(|| found.clone());
    anyhow::ensure!(*wanted == found, "{found} is not {wanted}");
    Ok(())
}
