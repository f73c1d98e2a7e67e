//! The private daemon as a process: restarted when it dies, gone when it shall be or when whoever
//! started it is gone.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{nix_bin_dir, short_folder};
use gradient_daemon::{ClientOptions, Connection};
use gradient_worker::daemon_process::{DaemonProcess, DaemonSettings};

/// Tells this program that it is the process to be killed.
const HELPER: &str = "GRADIENT_TEST_DAEMON_DIR";

/// Processes whose command line holds this text.
fn processes(text: &str) -> Vec<i32> {
    let all = procfs::process::all_processes().expect("/proc").flatten();
    let named = all.filter(|process| {
        process.cmdline().is_ok_and(|line| line.iter().any(|word| word.contains(text)))
    });
    named.map(|process| process.pid).filter(|pid| *pid != std::process::id() as i32).collect()
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(15), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn it_is_started_again_and_stopped_whole() {
    let dir = short_folder();
    let root = dir.path().join("root").display().to_string();
    let settings = DaemonSettings::new(nix_bin_dir(), dir.path());
    let daemon = DaemonProcess::start(settings).await.expect("starts");
    let open = || async { Connection::open(&daemon.socket(), &ClientOptions::default()).await };
    let connection = open().await.expect("opens");
    assert!(connection.nix_version().starts_with('2'));

    for pid in processes(&root) {
        Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kills");
    }
    eventually("it is not started again", || daemon.restarts() > 0).await;
    let start = Instant::now();
    while open().await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(15), "it does not answer again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let connection = open().await.expect("opens");
    daemon.stop().await;
    drop(connection);
    eventually("a process is left behind", || processes(&root).is_empty()).await;
}

#[tokio::test]
async fn it_does_not_outlive_its_owner() {
    if let Some(dir) = std::env::var_os(HELPER) {
        let settings = DaemonSettings::new(nix_bin_dir(), dir);
        let _daemon = DaemonProcess::start(settings).await.expect("starts");
        std::future::pending::<()>().await;
    }
    let dir = short_folder();
    let root = dir.path().join("root").display().to_string();
    let mut helper = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "it_does_not_outlive_its_owner"])
        .env(HELPER, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let socket = dir.path().join("d.sock");
    eventually("the daemon never came", || socket.exists()).await;
    assert!(!processes(&root).is_empty());
    helper.kill().expect("kills");
    helper.wait().expect("ends");
    eventually("the daemon outlives its owner", || processes(&root).is_empty()).await;
}

#[tokio::test]
async fn dropping_it_kills_it() {
    let dir = short_folder();
    let root = dir.path().join("root").display().to_string();
    let settings = DaemonSettings::new(nix_bin_dir(), dir.path());
    let daemon = DaemonProcess::start(settings).await.expect("starts");
    assert!(!processes(&root).is_empty());
    drop(daemon);
    eventually("a process is left behind", || processes(&root).is_empty()).await;
}
