//! A cluster of one test: `gradient up` on a data directory of its own.

mod temporary;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::log::Log;
use crate::process::{self, Process};
use crate::programs;
use crate::run::{Running, Said};
use crate::wait::{LIMIT, until, until_true};

/// How long a stop may take before the test fails; the product promises half of it.
pub const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Lines of each log that a failing test prints.
const TAIL: usize = 40;
/// Longest folder for temporary files that leaves room for the sockets below.
const TEMP_MAX: usize = 32;

/// A cluster. End a test with [`Cluster::finish`].
#[derive(Debug)]
pub struct Cluster {
    data: PathBuf,
    workers: u32,
    up: Option<Running>,
    finished: bool,
    variables: Vec<(&'static str, OsString)>,
    folder: tempfile::TempDir,
    /// Held while the cluster is there: one at a time.
    _turn: std::fs::File,
}

/// A child of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// nats-server.
    Nats,
    /// PostgreSQL's first process.
    Postgres,
    /// gradient-server.
    Server,
    /// The gradient-worker with this number.
    Worker(u32),
}

impl Cluster {
    /// A cluster with two workers, all of them connected.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(2)
    }

    /// A cluster with so many workers.
    #[must_use]
    pub fn start_with(workers: u32) -> Self {
        let mut cluster = Self::prepare(workers);
        cluster.up();
        cluster
    }

    /// A data directory that is not there yet, and nothing started.
    ///
    /// # Panics
    /// If there is no room for temporary files.
    #[must_use]
    pub fn prepare(workers: u32) -> Self {
        let turn = take_turn();
        let temp = std::env::temp_dir();
        let is_short = temp.as_os_str().len() <= TEMP_MAX;
        let temp = if is_short { temp } else { PathBuf::from("/tmp") };
        let folder = tempfile::Builder::new().prefix("gs-").tempdir_in(temp);
        let folder = folder.expect("a temporary folder");
        // PostgreSQL runs as another user and has to get through.
        let pass = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), pass).expect("the folder is ours");
        let data = folder.path().join("d");
        let variables = vec![("PATH", programs::search_path())];
        Self { data, workers, up: None, finished: false, variables, folder, _turn: turn }
    }

    /// Puts a shell script before every program of that name, for the cluster that is started next.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn put_before(&mut self, name: &str, script: &str) {
        let folder = self.folder.path().join("bin");
        std::fs::create_dir_all(&folder).expect("made");
        let program = folder.join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).expect("the file is ours");
        let rest = programs::search_path();
        let folders = std::iter::once(folder).chain(std::env::split_paths(&rest));
        self.set("PATH", std::env::join_paths(folders).expect("folders without a colon"));
    }

    /// Starts it and waits until all workers are connected.
    ///
    /// # Panics
    /// If it does not become ready.
    #[track_caller]
    pub fn up(&mut self) {
        let count = self.workers.to_string();
        let mut command = self.command(&["up", "--http", "0", "--workers", &count]);
        command.envs(self.variables.iter().cloned());
        let mut up = Running::start(&mut command);
        until_true("the cluster is ready", LIMIT, || {
            assert!(!up.is_over(), "`gradient up` ended while starting:\n{}", up.so_far().stderr);
            self.data.join("cluster.json").is_file()
        });
        self.up = Some(up);
        until_true("all workers are connected", LIMIT, || {
            self.connected_workers() == self.workers as usize
        });
    }

    fn connected_workers(&self) -> usize {
        let said = self.gradient(&["workers", "--json"]);
        if said.code != Some(0) {
            return 0;
        }
        let workers = said.json();
        let list = workers.as_array().expect("a list");
        list.iter().filter(|worker| worker["presence"] == "connected").count()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A folder of the test, removed with the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `gradient --data-dir ... ARGUMENTS`, not started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gradient(arguments);
        command.env("GRADIENT_DATA_DIR", &self.data).envs(self.temporary_variable());
        command
    }

    /// Runs `gradient ARGUMENTS` on this cluster.
    #[track_caller]
    pub fn gradient(&self, arguments: &[&str]) -> Said {
        self.spawn(arguments).end()
    }

    /// Starts `gradient ARGUMENTS` on this cluster.
    #[must_use]
    pub fn spawn(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }

    /// `gradient submit FLAKE --include 'packages.*.*' --watch`, started.
    #[must_use]
    pub fn submit(&self, flake: &str) -> Running {
        self.spawn(&["submit", flake, "--include", "packages.*.*", "--watch"])
    }

    /// Submits without waiting; the evaluation.
    #[track_caller]
    #[must_use]
    pub fn submit_only(&self, flake: &str) -> String {
        let said = self.gradient(&["submit", flake, "--include", "packages.*.*"]).ok();
        said.stdout.trim().to_owned()
    }

    /// The log as it is now.
    #[track_caller]
    #[must_use]
    pub fn log(&self) -> Log {
        Log::parse(&self.gradient(&["events", "tail", "--json", "--no-follow"]).ok().stdout)
    }

    /// The log, once it is reachable; for the time after a crash.
    fn log_if_any(&self) -> Option<Log> {
        let said = self.gradient(&["events", "tail", "--json", "--no-follow"]);
        (said.code == Some(0)).then(|| Log::parse(&said.stdout))
    }

    /// Waits until the log shows something.
    #[track_caller]
    pub fn until_log(&self, what: &str, mut shows: impl FnMut(&Log) -> bool) -> Log {
        until(what, LIMIT, || self.log_if_any().filter(|log| shows(log)))
    }

    /// A value of `cluster.json`.
    ///
    /// # Panics
    /// If no cluster runs.
    #[must_use]
    pub fn address(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.data.join("cluster.json")).expect("it runs");
        let values: Value = serde_json::from_str(&text).expect("JSON");
        values[name].as_str().expect("a text").to_owned()
    }

    /// The users' token.
    ///
    /// # Panics
    /// If there is none yet.
    #[must_use]
    pub fn token(&self) -> String {
        let text = std::fs::read_to_string(self.data.join("secrets/api-token"));
        text.expect("a token").trim().to_owned()
    }

    /// Asks the api for `api/v1/PATH`.
    #[track_caller]
    #[must_use]
    pub fn api(&self, path: &str) -> Value {
        let path = format!("api/v1/{path}");
        crate::http::get(&self.address("http_url"), &path, Some(&self.token())).json()
    }

    /// Runs a query that has one value.
    #[track_caller]
    #[must_use]
    pub fn sql(&self, query: &str) -> String {
        let mut command = Command::new(programs::psql());
        command.arg(self.address("database_url")).args(["-XAtc", query]);
        Running::start(&mut command).end().ok().stdout.trim().to_owned()
    }

    /// The process of `gradient up`.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.up.as_ref().expect("it runs").pid()
    }

    /// What `gradient up` said.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn up_said(&self) -> Said {
        self.up.as_ref().expect("it runs").so_far()
    }

    /// A part of it that runs, if it does at the moment.
    #[must_use]
    pub fn part(&self, part: Part) -> Option<Process> {
        let children = process::all().into_iter().filter(|child| child.parent == self.pid());
        let (program, argument) = match part {
            Part::Nats => ("nats-server", String::new()),
            Part::Postgres => ("postgres", String::new()),
            Part::Server => ("gradient-server", String::new()),
            Part::Worker(number) => ("gradient-worker", format!("--name worker-{number} ")),
        };
        let is_it =
            |child: &Process| child.program() == program && child.command_line.contains(&argument);
        children.into_iter().find(is_it)
    }

    /// Kills a part with SIGKILL and waits until another one runs in its place.
    ///
    /// # Panics
    /// If it does not run, or none follows.
    #[track_caller]
    pub fn kill(&self, part: Part) {
        let before = self.part(part).unwrap_or_else(|| panic!("{part:?} runs")).pid;
        process::signal(before, Signal::SIGKILL);
        until_true(&format!("another {part:?} after the kill"), LIMIT, || {
            self.part(part).is_some_and(|now| now.pid != before)
        });
    }

    /// A process below a worker whose arguments hold `words`: a builder, by its script.
    #[must_use]
    pub fn builder(&self, worker: u32, words: &str) -> Option<Process> {
        let worker = self.part(Part::Worker(worker))?;
        let below = process::descendants(worker.pid);
        below.into_iter().find(|one| one.command_line.contains(words))
    }

    /// Stops it with a signal and requires a clean end: in time, exit code 0, no process left, no
    /// address left behind.
    ///
    /// # Panics
    /// If it does not end like that.
    #[track_caller]
    pub fn stop(&mut self, signal: Signal) -> Said {
        let up = self.up.take().expect("it runs");
        up.signal(signal);
        let said = up.end_within(STOP_LIMIT).ok();
        let left = process::touching(&self.data);
        assert_eq!(left, [], "left after `gradient up` ended");
        assert!(!self.data.join("cluster.json").exists(), "cluster.json is left");
        said
    }

    /// Ends `gradient up` with SIGKILL and waits until everything that it started is gone.
    ///
    /// # Panics
    /// If something stays.
    #[track_caller]
    pub fn kill_up(&mut self) {
        let up = self.up.take().expect("it runs");
        up.signal(Signal::SIGKILL);
        assert_eq!(up.end().code, None, "a signal ended it");
        until("everything is gone after the end of `gradient up`", LIMIT, || {
            process::touching(&self.data).is_empty().then_some(())
        });
    }

    /// The end of a test: stops the cluster if it runs, as [`Cluster::stop`] does.
    ///
    /// # Panics
    /// If it does not end as it should.
    #[track_caller]
    pub fn finish(mut self) {
        if self.up.is_some() {
            let said = self.stop(Signal::SIGTERM);
            assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        }
        self.finished = true;
    }

    fn print_logs(&self) {
        let mut files: Vec<PathBuf> = Vec::new();
        for folder in ["logs", "postgres"] {
            let entries = std::fs::read_dir(self.data.join(folder)).into_iter().flatten().flatten();
            files.extend(entries.map(|entry| entry.path()));
        }
        files.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
        files.sort();
        for file in files {
            let text =
                String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(TAIL)..];
            eprintln!("=== {}\n{}", file.display(), last.join("\n"));
        }
        if let Some(up) = &self.up {
            eprintln!("=== gradient up\n{}", up.so_far().stderr);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.print_logs();
        if let Some(up) = self.up.take() {
            process::signal(up.pid(), Signal::SIGTERM);
            let mut up = up;
            let limit = std::time::Instant::now() + STOP_LIMIT;
            while !up.is_over() && std::time::Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        for left in process::touching(&self.data) {
            process::signal(left.pid, Signal::SIGKILL);
        }
        assert!(std::thread::panicking(), "a test ends with Cluster::finish");
    }
}

/// `gradient ARGUMENTS` without anything of the caller's environment that it would listen to.
#[must_use]
pub fn gradient(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::own("gradient"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_setup = name.starts_with("GRADIENT_NIX_") || name == "GRADIENT_NATS_SERVER";
        if (name.starts_with("GRADIENT_") && !is_setup) || name.starts_with("NIX_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("PATH", programs::search_path());
    command
}

/// Waits until no other test of this build has a cluster.
fn take_turn() -> std::fs::File {
    let test = std::env::current_exe().expect("the test knows its own program");
    let path = test.with_file_name("gradient-suite.lock");
    let options = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let file = options.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.lock().expect("a lock");
    file
}
