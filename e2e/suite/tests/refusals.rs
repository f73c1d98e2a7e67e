//! Bad input to a cluster that runs, and to servers beside it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use gradient_suite::model::Evaluation;
use gradient_suite::run::Running;
use gradient_suite::wait::{LIMIT, until};
use gradient_suite::{Cluster, Flake, Said, http, programs};
use serde_json::Value;

/// How many evaluations the cluster knows.
fn evaluations(cluster: &Cluster) -> usize {
    cluster.api("evaluations?limit=100")["items"].as_array().map_or(0, Vec::len)
}

#[test]
fn wrong_submissions_and_ids_are_refused() {
    let cluster = Cluster::start_with(1);
    let submit = |flake: &str, pattern: &str| {
        cluster.gradient(&["submit", flake, "--include", pattern, "--watch"])
    };
    let missing = cluster.folder().join("missing");
    let empty = cluster.folder().join("empty");
    std::fs::create_dir(&empty).expect("made");
    submit(&format!("path:{}", missing.display()), "packages.*.*").refused(2, "no flake at");
    submit(&missing.display().to_string(), "packages.*.*").refused(2, "no flake at");
    submit(&format!("path:{}", empty.display()), "packages.*.*").refused(2, "no flake.nix in");
    submit("nixpkgs", "packages.*.*").refused(2, "no flake reference");
    let flake = programs::example("broken");
    for malformed in ["", ".", "packages..x", "packages.", r#"packages."x"#] {
        submit(&flake, malformed).refused(2, "Evaluation wildcard");
    }
    submit(&flake, "!packages.*").refused(2, "Exclusion patterns");
    assert_eq!(evaluations(&cluster), 0, "nothing of it was submitted");

    let unknown = "01a2288a-feac-738c-af6a-ee55b4e5bd60";
    cluster.gradient(&["builds", unknown]).refused(4, unknown);
    cluster.gradient(&["cancel", unknown]).refused(4, unknown);
    cluster.gradient(&["logs", "0000beef"]).refused(4, "0000beef");
    cluster.gradient(&["cancel", "0000beef"]).refused(4, "0000beef");
    cluster.gradient(&["builds"]).refused(4, "no evaluation");
    let _ = cluster.gradient(&["explain", "0000beef"]).with_code(4);
    let _ = cluster.gradient(&["events", "show", "4000000000"]).with_code(4);
    cluster.gradient(&["cancel", "nonsense"]).refused(2, "neither an evaluation nor a build");
    let said = cluster.gradient(&["watch", "nonsense"]).with_code(2);
    assert!(said.stderr.contains("error: "), "{}", said.stderr);
    cluster.finish();
}

#[test]
fn an_unknown_evaluation_cannot_be_watched() {
    let cluster = Cluster::start_with(1);
    let unknown = "01a2288a-feac-738c-af6a-ee55b4e5bd60";
    let said = cluster.gradient(&["watch", unknown]).with_code(4);
    let last = said.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains(unknown), "{}", said.stderr);
    cluster.finish();
}

#[test]
fn patterns_that_match_nothing() {
    let cluster = Cluster::start_with(1);
    let flake = Flake::of("", r#"packages.x86_64-linux.there = mk "there" "echo > $out";"#);
    let submit = |pattern: &str| {
        cluster.gradient(&["submit", &flake.reference(), "--include", pattern, "--watch"])
    };
    let explicit = "packages.x86_64-linux.missing";
    let said = submit(explicit).with_code(1);
    let wanted = format!("'{explicit}' matched no derivations");
    assert!(said.stdout.contains(&wanted), "{}", said.stdout);
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!((evaluation.state(), evaluation.entry_points.len()), ("failed", 0));

    // A wildcard that matches nothing is a warning: the flake may have nothing of that kind.
    let said = submit("checks.*.*").ok();
    assert!(said.stdout.contains("matched no derivations"), "{}", said.stdout);
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!((evaluation.state(), evaluation.entry_points.len()), ("completed", 0));
    let levels: Vec<&Value> = evaluation.messages.iter().map(|text| &text["level"]).collect();
    assert_eq!(levels, ["warning"]);

    // A flake that is no flake at all fails as a whole and says why.
    let torn = Flake::new("{ outputs = { self }: {");
    let said = cluster.submit(&torn.reference()).end().with_code(1);
    assert!(said.stdout.contains("error: ") && said.stdout.contains("flake.nix"), "{said:?}");
    assert_eq!(Evaluation::newest(&cluster).state(), "failed");
    cluster.finish();
}

#[test]
fn a_wrong_token_and_a_second_cluster_are_refused() {
    let cluster = Cluster::start_with(1);
    let url = cluster.address("http_url");
    for token in [None, Some("wrong")] {
        assert_eq!(http::get(&url, "api/v1/evaluations", token).status, 401);
        let mut command = cluster.command(&["jobs"]);
        command.env("GRADIENT_URL", &url);
        if let Some(token) = token {
            command.env("GRADIENT_TOKEN", token);
        }
        let lines = Running::start(&mut command).end().refused(2, "token");
        assert!(lines.contains("hint: "), "{lines}");
    }
    assert_eq!(http::get(&url, "healthz", None).status, 200);

    let before = cluster.address("nats_url");
    let lines = cluster.gradient(&["up", "--http", "0"]).refused(3, "runs on");
    assert!(lines.contains("hint: "), "{lines}");
    assert_eq!(cluster.address("nats_url"), before);
    let _ = cluster.submit(&programs::example("broken")).end().with_code(1);
    cluster.finish();
}

/// `gradient-server` on a NATS server, as somebody runs it by hand.
fn server(folder: &std::path::Path, nats: &str) -> Said {
    let secret = folder.join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").expect("written");
    let mut command = Command::new(programs::own("gradient-server"));
    command.args(["--http", "127.0.0.1:0", "--nats-url", nats, "--database-url", "host=/nowhere"]);
    command.arg("--cache-dir").arg(folder.join("cache"));
    command.arg("--ready-file").arg(folder.join("ready"));
    command.arg("--upload-secret-file").arg(&secret).arg("--api-token-file").arg(&secret);
    command.env("GRADIENT_LOG_LEVEL", "error");
    let said = Running::start(&mut command).end_within(Duration::from_secs(120));
    assert!(!folder.join("ready").exists(), "it never was ready");
    said
}

#[test]
fn an_old_nats_server_is_refused_with_its_version() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // It greets as version 2.9.10 does and answers every PING; it ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || greet(stream, port));
        }
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = server(folder.path(), &format!("nats://127.0.0.1:{port}"));
    let line = said.refused(1, "2.9.10");
    assert!(line.contains("2.10") || line.contains("2.11"), "what would do: {line}");
}

fn greet(mut stream: std::net::TcpStream, port: u16) {
    let info = format!(
        r#"INFO {{"server_id":"OLD","server_name":"old","version":"2.9.10","proto":1,"go":"go1.19","host":"127.0.0.1","port":{port},"headers":true,"max_payload":1048576,"jetstream":true,"client_id":1}}"#
    );
    let mut buffer = [0; 4096];
    if stream.write_all(format!("{info}\r\n").as_bytes()).is_err() {
        return;
    }
    while let Ok(read) = stream.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let answered = !text.contains("PING") || stream.write_all(b"PONG\r\n").is_ok();
        if read == 0 || !answered {
            return;
        }
    }
}

#[test]
fn a_nats_server_without_jetstream_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ports = folder.path().join("ports");
    std::fs::create_dir(&ports).expect("made");
    let mut command = Command::new(programs::installed("nats-server"));
    command.args(["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"]).arg(&ports);
    let _nats = Running::start(&mut command);
    let port = until("the port of nats-server", LIMIT, || {
        let file = std::fs::read_dir(&ports).ok()?.flatten().next()?;
        let text: Value = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
        text["nats"][0].as_str()?.rsplit_once(':')?.1.parse::<u16>().ok()
    });
    let said = server(folder.path(), &format!("nats://127.0.0.1:{port}"));
    said.refused(1, "JetStream");
}
