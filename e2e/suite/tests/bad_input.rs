//! Bad input: one line that says what, at most one that says what to do, an exit code that is not 0,
//! and nothing half-written. None of these needs a cluster; `refusals.rs` has those that do.

use std::net::TcpListener;
use std::path::Path;

use gradient_suite::cluster::gradient;
use gradient_suite::run::Running;
use gradient_suite::{Flake, Said};

/// A folder of one test with a data directory in it that is not there.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn data(&self) -> std::path::PathBuf {
        self.0.path().join("d")
    }

    fn gradient(&self, arguments: &[&str]) -> Said {
        self.gradient_with(arguments, &[])
    }

    fn gradient_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Said {
        let mut command = gradient(arguments);
        command.env("GRADIENT_DATA_DIR", self.data()).env("HOME", self.0.path());
        command.envs(environment.iter().copied());
        Running::start(&mut command).end()
    }

    /// A data directory that says it is of some version.
    fn with_version(&self, version: &str) {
        std::fs::create_dir(self.data()).expect("made");
        std::fs::write(self.data().join("version"), version).expect("written");
    }
}

/// What is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A port that nobody listens on any more.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn commands_without_a_cluster_say_so() {
    let place = Place::new();
    let flake = Flake::of("", r#"packages.x86_64-linux.a = mk "a" "echo a > $out";"#);
    let flake = flake.reference();
    let evaluation = "01a2288a-feac-738c-af6a-ee55b4e5bd60";
    let commands: &[&[&str]] = &[
        &["submit", &flake, "--include", "packages.*.*"],
        &["watch", evaluation],
        &["jobs"],
        &["workers"],
        &["builds"],
        &["logs", "00000001"],
        &["cancel", evaluation],
        &["explain", "00000001"],
        &["events", "tail", "--no-follow"],
        &["events", "show", "1"],
        &["events", "at", "1"],
        &["events", "verify"],
        &["projections", "rebuild"],
        &["projections", "digest"],
        &["cache", "url"],
        &["cache", "key"],
    ];
    for command in commands {
        let lines = place.gradient(command).refused(3, "no data directory of Gradient at");
        assert!(lines.contains("hint: ") && lines.contains("gradient up"), "{lines}");
    }
    assert!(!place.data().exists(), "a command made a data directory");
    place.with_version("gradient-data 1\n");
    for command in commands {
        place.gradient(command).refused(3, "no cluster runs on");
    }
}

#[test]
fn a_closed_port_is_no_cluster() {
    let place = Place::new();
    let url = format!("http://127.0.0.1:{}", closed_port());
    let remote = [("GRADIENT_URL", url.as_str()), ("GRADIENT_TOKEN", "0123456789abcdef")];
    for command in [&["jobs"][..], &["workers"], &["builds"], &["cache", "key"]] {
        let lines = place.gradient_with(command, &remote).refused(3, "does not answer");
        assert!(lines.contains(&url), "{lines}");
    }
    // What reads the log itself needs the address of the log.
    place.gradient_with(&["events", "verify"], &remote).refused(2, "needs the NATS server");
    let nats = format!("nats://127.0.0.1:{}", closed_port());
    let log = [remote[0], remote[1], ("GRADIENT_NATS_URL", nats.as_str())];
    place.gradient_with(&["events", "verify"], &log).refused(3, &nats["nats://".len()..]);
}

#[test]
fn an_occupied_port_is_told_before_anything_is_made() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let lines = place.gradient(&["up", "--http", &port]).refused(3, &format!("port {port}"));
    assert!(lines.contains("hint: ") && lines.contains("--http"), "{lines}");
    assert_eq!(names(place.0.path()), [""; 0], "nothing was made");
}

#[test]
fn a_data_directory_of_another_version_is_left_alone() {
    let place = Place::new();
    place.with_version("gradient-data 99\n");
    let lines = place.gradient(&["up", "--http", "0"]).refused(2, "gradient-data 99");
    assert!(lines.contains("hint: "), "{lines}");
    place.gradient(&["jobs"]).refused(2, "gradient-data 99");
    assert_eq!(names(&place.data()), ["version"]);
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("made");
    std::fs::write(place.data().join("thesis.txt"), "do not touch").expect("written");
    let lines = place.gradient(&["up", "--http", "0"]).refused(2, "not a data directory");
    assert!(lines.contains("hint: "), "{lines}");
    assert_eq!(names(&place.data()), ["thesis.txt"]);
}

#[test]
fn a_local_evaluation_refuses_what_is_no_flake() {
    let place = Place::new();
    let empty = place.0.path().join("empty");
    std::fs::create_dir(&empty).expect("made");
    let missing = format!("path:{}", place.0.path().join("missing").display());
    let eval = |pattern: &str, flake: &str| place.gradient(&["eval", pattern, "--flake", flake]);
    eval("packages.*.*", &missing).refused(2, "no flake at");
    eval("packages..*", &missing).refused(2, "Evaluation wildcard");
    let said = eval("packages.*.*", &format!("path:{}", empty.display()));
    assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
    assert!(said.stderr.contains("flake.nix") && !said.stderr.contains("panicked"), "{said:?}");
}
