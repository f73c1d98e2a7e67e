//! The database is killed, restarted, of another version, or left behind.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::history::history;
use common::{Running, append, own_server, project_all, until};
use gradient_log::memory::MemoryLog;
use gradient_postgres::local::{LocalPostgres, LocalPostgresError, LocalPostgresSettings};
use gradient_postgres::{Database, ProjectorSettings, digest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn kill_9(pid: u32) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_database_heals() {
    let (settings, mut server) = own_server("killed").await;
    let database = Database::new(server.url()).unwrap();
    let world = history(3, 1_000);
    let log = MemoryLog::default();
    let mut running = Running::start(
        &database,
        log.clone(),
        ProjectorSettings { entries_max: 10, wait: Duration::ZERO },
    );
    let thirds: Vec<_> = world.entries.chunks(world.entries.len() / 3 + 1).collect();
    let mut last = append(&log, thirds[0], 1).await;
    running.reach(last).await;
    for third in &thirds[1..] {
        kill_9(server.pid());
        last = append(&log, third, 1).await;
        let health = running.health.clone();
        until("health tells", || async { format!("{health:?}").contains("Err") }).await;
        server.wait().await;
        server = LocalPostgres::start(&settings).await.expect("it starts again after a crash");
        running.reach(last).await;
    }
    running.stop().await.unwrap();
    let found = digest(&database).await.unwrap();
    assert_eq!(found.position, last);
    let admin = common::client(server.url()).await;
    admin.batch_execute("CREATE DATABASE again").await.unwrap();
    let again = Database::new(&server.url().replace("dbname=gradient", "dbname=again")).unwrap();
    project_all(&again, &log).await;
    assert_eq!(digest(&again).await.unwrap(), found);
    server.stop().await;
    assert!(!settings.dir.join("data/postmaster.pid").exists(), "a clean stop");
    std::fs::remove_dir_all(&settings.dir).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_another_version_and_missing_programs_are_clear() {
    let (mut settings, server) = own_server("version").await;
    let version = server.version().to_owned();
    server.stop().await;
    let file = settings.dir.join("data/PG_VERSION");
    std::fs::write(&file, "9\n").unwrap();
    let error = LocalPostgres::start(&settings).await.unwrap_err();
    assert!(matches!(error, LocalPostgresError::OtherVersion { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("PostgreSQL 9") && text.contains(&version), "{text}");
    settings.bin_dir = Some("/nowhere".into());
    let error = LocalPostgres::start(&settings).await.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL is missing") && error.contains("/nowhere"), "{error}");
    std::fs::remove_dir_all(&settings.dir).unwrap();
}

/// As root the server runs as another user, who cannot come into a closed folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_parent_folder_is_named() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(closed.path(), mode).unwrap();
    let settings = LocalPostgresSettings {
        bin_dir: common::bin_dir(),
        dir: closed.path().join("data"),
        socket_dir: None,
        log_file: None,
        durable: false,
    };
    let error = LocalPostgres::start(&settings).await.unwrap_err().to_string();
    assert!(error.contains(&format!("may not enter {}", closed.path().display())), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_do_not_share_a_directory() {
    let (settings, server) = own_server("twice").await;
    let error = LocalPostgres::start(&settings).await.unwrap_err().to_string();
    assert!(error.contains("postmaster.pid") || error.contains("lock file"), "{error}");
    server.stop().await;
    std::fs::remove_dir_all(&settings.dir).unwrap();
}

/// Set for the other process of the test below.
const HOLDER: &str = "GRADIENT_TEST_HOLDS_A_SERVER";

/// Not a test by itself: holds a server until it is killed, in the other process of the test below.
#[tokio::test(flavor = "multi_thread")]
async fn holds_a_server() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let (_, server) = own_server("held").await;
    println!("pid={}", server.pid());
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_does_not_outlive_a_killed_parent() {
    use std::io::BufRead;
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_server", "--nocapture"])
        .env(HOLDER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(holder.stdout.take().unwrap()).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("pid=").map(|(_, pid)| pid.trim().to_owned()))
        .expect("the holder says the pid of its server");
    let process = std::path::Path::new("/proc").join(&pid);
    assert!(process.exists(), "the server runs");
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("the server ended", || async { !process.exists() }).await;
}
