//! The contract suite against every log and inbox.

use std::path::PathBuf;

use gradient_events::subject;
use gradient_log::jetstream::local::{LocalServer, LocalSettings, find_program};
use gradient_log::jetstream::{Broker, ConnectSettings, StreamError, StreamLimits};
use gradient_log::memory::{MemoryInbox, MemoryLog};
use gradient_log::{EventLog, contract};

struct Server {
    server: LocalServer,
    _dir: tempfile::TempDir,
}

const TOKEN: &str = "contract-suite";

async fn server() -> Server {
    let prefix =
        std::env::var_os("GRADIENT_NIX_PREFIX").map_or("/opt/gradient-nix".into(), PathBuf::from);
    let program =
        find_program(std::env::var_os("GRADIENT_NATS_SERVER").map(PathBuf::from), &prefix)
            .expect("nats-server is missing: run `make setup`, or name it in GRADIENT_NATS_SERVER");
    let dir = tempfile::tempdir().expect("a folder");
    let settings = LocalSettings {
        program,
        dir: dir.path().to_owned(),
        token: TOKEN.into(),
        port: None,
        log_file: None,
    };
    Server { server: LocalServer::start(&settings).await.expect("nats-server starts"), _dir: dir }
}

async fn connect(server: &Server) -> Broker {
    let settings = ConnectSettings {
        url: server.server.url(),
        token: Some(TOKEN.into()),
        name: "contract".into(),
    };
    Broker::connect(&settings).await.expect("connects")
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::log(MemoryLog::default()).await;
    contract::inbox(MemoryInbox::default(), subject::COMMAND_API).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jetstream_keeps_the_contract() {
    let server = server().await;
    let broker = connect(&server).await;
    broker.ensure_streams(&StreamLimits::default()).await.expect("streams");
    contract::log(broker.log()).await;
    contract::inbox(broker.inbox(), subject::COMMAND_API).await;
    broker
        .ensure_streams(&StreamLimits::default())
        .await
        .expect("streams that are there are right");
    server.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_another_making_are_refused() {
    let server = server().await;
    let broker = connect(&server).await;
    let other = StreamLimits {
        heartbeat_ttl: std::time::Duration::from_secs(60),
        ..StreamLimits::default()
    };
    broker.ensure_streams(&other).await.expect("streams");
    let refused = broker.ensure_streams(&StreamLimits::default()).await;
    assert!(
        matches!(refused, Err(StreamError::Mismatch { setting: "max_age", .. })),
        "{refused:?}"
    );
    server.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_login_and_an_absent_server_are_clear() {
    let server = server().await;
    let url = server.server.url();
    let wrong =
        ConnectSettings { url: url.clone(), token: Some("wrong".into()), name: "contract".into() };
    let error = Broker::connect(&wrong).await.expect_err("a wrong token is refused");
    assert!(error.to_string().contains(&url), "{error}");
    server.server.stop().await;
    let gone = ConnectSettings { url, token: None, name: "contract".into() };
    Broker::connect(&gone).await.expect_err("nobody answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_survives_kill_and_restart() {
    let server = server().await;
    let broker = connect(&server).await;
    broker.ensure_streams(&StreamLimits::default()).await.expect("streams");
    contract::log(broker.log()).await;
    let identity = broker.log().identity().await.expect("readable");
    let pid = i32::try_from(server.server.pid().expect("running")).expect("a pid");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .expect("killed");
    let Server { server: mut killed, _dir } = server;
    killed.wait().await.expect("ended");
    let prefix =
        std::env::var_os("GRADIENT_NIX_PREFIX").map_or("/opt/gradient-nix".into(), PathBuf::from);
    let settings = LocalSettings {
        program: find_program(std::env::var_os("GRADIENT_NATS_SERVER").map(PathBuf::from), &prefix)
            .expect("nats-server"),
        dir: _dir.path().to_owned(),
        token: TOKEN.into(),
        port: None,
        log_file: None,
    };
    let again = LocalServer::start(&settings).await.expect("starts again");
    let again = Server { server: again, _dir };
    let broker = connect(&again).await;
    assert_eq!(broker.log().identity().await.expect("readable"), identity);
    assert_eq!(broker.log().last_sequence().await.expect("readable"), 3);
    again.server.stop().await;
}
