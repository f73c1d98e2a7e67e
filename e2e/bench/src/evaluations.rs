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

/// Set derivations that the first run found; every other one has to find the same.
type Expected = RefCell<Option<BTreeMap<String, String>>>;

struct Bench {
    args: EvaluationsArgs,
    programs: Programs,
    folder: tempfile::TempDir,
    places: Cell<usize>,
    expected: Expected,
    packages: PathBuf,
    wide: PathBuf,
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
        let flake = reference(&self.packages);
        let (flake, limits) = (flake.as_str(), self.limits(processes));
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
        let flake = reference(&self.packages);
        let (flake, limits) = (flake.as_str(), self.limits(1));
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
        let (ours, nixs) = (self.place()?, self.place()?);
        let (name, work) = (format!("{ROOT}.{ONE}"), "one derivation again".to_owned());
        self.one("P7", work, [&ours, &nixs], &self.packages, &name, true)
    }

    /// P8: the names of a wide set.
    fn wide_names(&self) -> anyhow::Result<Comparison> {
        let (ours, nixs) = (self.place()?, self.place()?);
        let locked = ours.lock(&self.programs, &self.wide)?;
        let all = format!("{locked}#{WIDE_ROOT}");
        let pattern = format!("{WIDE_ROOT}.#");
        let (locked, all, ours, nixs) = (locked.as_str(), all.as_str(), &ours, &nixs);
        let ours_names = move || {
            let command = ours.names(&self.programs, locked, &pattern)?;
            let run = measure::run(command, &ours.files())?;
            let told = names_told(&run)?;
            anyhow::ensure!(told == WIDE, "{told} names");
            Ok(run)
        };
        let nixs_names = move || {
            let arguments = ["eval", "--json", "--apply", "builtins.attrNames", all];
            let run = measure::run(nixs.nix(&self.programs, &arguments), &nixs.files())?;
            let names: Vec<String> =
                serde_json::from_str(&run.stdout).with_context(|| run.stderr.clone())?;
            anyhow::ensure!(names.len() == WIDE, "{} names", names.len());
            Ok(run)
        };
        let contenders: Vec<Contender<'_>> = vec![
            ("an evaluator of gradient: plan".into(), Box::new(ours_names)),
            ("nix eval --apply attrNames".into(), Box::new(nixs_names)),
        ];
        contest("P8", format!("names of a set of {WIDE}"), self.args.runs, contenders)
    }

    /// P8: one value of a wide set, of which all others throw.
    fn wide_value(&self) -> anyhow::Result<Comparison> {
        let (ours, nixs) = (self.place()?, self.place()?);
        let (name, work) = (format!("{WIDE_ROOT}.{GOOD}"), format!("one value of a set of {WIDE}"));
        self.one("P8", work, [&ours, &nixs], &self.wide, &name, false)
    }

    /// One value by both sides, with or without what Nix keeps of evaluations.
    fn one(
        &self,
        id: &str,
        work: String,
        places: [&Place; 2],
        folder: &Path,
        name: &str,
        has_cache: bool,
    ) -> anyhow::Result<Comparison> {
        let [ours, nixs] = places;
        let flake = reference(folder);
        let (value, limits) = (format!("{flake}#{name}.drvPath"), self.limits(1));
        let path = RefCell::new(None);
        let is_same = |found: String| {
            let mut path = path.borrow_mut();
            let wanted = path.get_or_insert_with(|| found.clone());
            anyhow::ensure!(*wanted == found, "{found} is not {wanted}");
            Ok(())
        };
        let ours_one = || {
            let command = ours.ours(&self.programs, &flake, name, limits);
            let run = measure::run(command, &ours.files())?;
            is_same(only_one(&run)?)?;
            Ok(run)
        };
        let nixs_one = || {
            let cache = if has_cache { "true" } else { "false" };
            let arguments = ["eval", "--raw", "--option", "eval-cache", cache, &value];
            let run = measure::run(nixs.nix(&self.programs, &arguments), &nixs.files())?;
            anyhow::ensure!(run.code == Some(0), "{}", run.stderr);
            is_same(run.stdout.clone())?;
            Ok(run)
        };
        ours_one()?;
        nixs_one()?;
        let nixs_name = if has_cache { "nix eval, its cache" } else { "nix eval, no cache" };
        let contenders: Vec<Contender<'_>> = vec![
            ("gradient eval".into(), Box::new(ours_one)),
            (nixs_name.into(), Box::new(nixs_one)),
        ];
        contest(id, work, self.args.runs, contenders)
    }
}

fn reference(folder: &Path) -> String {
    format!("path:{}", folder.display())
}
