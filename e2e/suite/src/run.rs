//! Commands: what they said and how they ended.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process;
use crate::wait::{LIMIT, until};

/// A command that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    files: tempfile::TempDir,
    is_over: bool,
}

/// What a command said, and how it ended.
#[derive(Clone, Debug)]
pub struct Said {
    /// What was run.
    pub name: String,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its results.
    pub stdout: String,
    /// Its progress and errors.
    pub stderr: String,
}

impl Running {
    /// Starts a command. Its output goes to files, so that it never waits for a reader.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let files = tempfile::tempdir().expect("a temporary folder");
        let file = |name| std::fs::File::create(files.path().join(name)).expect("a file");
        let program = Path::new(command.get_program()).file_name().unwrap_or_default();
        let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
        let words: Vec<String> =
            std::iter::once(program.to_string_lossy().into_owned()).chain(arguments).collect();
        let name = words.join(" ");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name, child, files, is_over: false }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    /// Whether it ended.
    ///
    /// # Panics
    /// If the system does not tell.
    pub fn is_over(&mut self) -> bool {
        self.is_over = self.is_over || self.child.try_wait().expect("it can be asked").is_some();
        self.is_over
    }

    /// What it said until now.
    #[must_use]
    pub fn so_far(&self) -> Said {
        let read = |name| {
            let bytes = std::fs::read(self.files.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Said { name: self.name.clone(), code: None, stdout: read("out"), stderr: read("err") }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it takes longer than `limit`.
    #[track_caller]
    pub fn end_within(mut self, limit: Duration) -> Said {
        let what = format!("the end of `{}`", self.name);
        let status = until(&what, limit, || self.child.try_wait().expect("it can be asked"));
        self.is_over = true;
        Said { code: status.code(), ..self.so_far() }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it takes longer than [`LIMIT`].
    #[track_caller]
    pub fn end(self) -> Said {
        self.end_within(LIMIT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Said {
    /// The same, with that exit code.
    ///
    /// # Panics
    /// If it ended otherwise.
    #[track_caller]
    #[must_use]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "exit code of `{}`\n--- stdout\n{}--- stderr\n{}",
            self.name,
            self.stdout,
            self.stderr
        );
        assert!(!self.stderr.contains("panicked"), "`{}` panicked: {}", self.name, self.stderr);
        self
    }

    /// The same, with exit code 0.
    ///
    /// # Panics
    /// If it ended otherwise.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> Self {
        self.with_code(0)
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// If it is something else.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout);
        value.unwrap_or_else(|error| panic!("`{}`: {error} in {:?}", self.name, self.stdout))
    }

    /// Standard output as one JSON value per line.
    ///
    /// # Panics
    /// If it is something else.
    #[track_caller]
    #[must_use]
    pub fn json_lines(&self) -> Vec<Value> {
        let value = |line| serde_json::from_str(line);
        let values: Result<Vec<Value>, _> = self.stdout.lines().map(value).collect();
        values.unwrap_or_else(|error| panic!("`{}`: {error} in {:?}", self.name, self.stdout))
    }

    /// Requires a refusal: this exit code, nothing on standard output, and on standard error one
    /// line `error: ...` with `words` in it and at most one line `hint: ...`. Returns both lines.
    ///
    /// # Panics
    /// If it ended otherwise.
    #[track_caller]
    pub fn refused(self, code: i32, words: &str) -> String {
        let said = self.with_code(code);
        let lines: Vec<&str> = said.stderr.lines().collect();
        let is_clear = match lines.as_slice() {
            [error] => error.starts_with("error: "),
            [error, hint] => error.starts_with("error: ") && hint.starts_with("hint: "),
            _ => false,
        };
        assert!(is_clear, "`{}` is not one clear line:\n{}", said.name, said.stderr);
        assert!(lines[0].contains(words), "`{}`: no '{words}' in {}", said.name, lines[0]);
        assert_eq!(said.stdout, "", "`{}` printed a result", said.name);
        said.stderr
    }
}
