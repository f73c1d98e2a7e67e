//! The log in a real NATS server, the tables in a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::PathBuf;

use common::history::history;
use common::{Running, append, database, project_all};
use gradient_log::EventLog;
use gradient_log::jetstream::local::{LocalServer, LocalSettings, find_program};
use gradient_log::jetstream::{Broker, ConnectSettings, StreamLimits};
use gradient_log::memory::MemoryLog;
use gradient_postgres::{ProjectorSettings, digest, rebuild};

async fn server(dir: &std::path::Path) -> (LocalServer, Broker) {
    let prefix =
        std::env::var_os("GRADIENT_NIX_PREFIX").map_or("/opt/gradient-nix".into(), PathBuf::from);
    let program =
        find_program(std::env::var_os("GRADIENT_NATS_SERVER").map(PathBuf::from), &prefix)
            .expect("nats-server is missing: run `make setup`, or name it in GRADIENT_NATS_SERVER");
    let token = "projector-test".to_owned();
    let settings = LocalSettings {
        program,
        dir: dir.to_owned(),
        token: token.clone(),
        port: None,
        log_file: None,
    };
    let server = LocalServer::start(&settings).await.expect("nats-server starts");
    let connect = ConnectSettings { url: server.url(), token: Some(token), name: "test".into() };
    let broker = Broker::connect(&connect).await.expect("connects");
    broker.ensure_streams(&StreamLimits::default()).await.expect("streams");
    (server, broker)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_jetstream_gives_the_same_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (server, broker) = server(dir.path()).await;
    let world = history(5, 1_200);
    let (log, memory) = (broker.log(), MemoryLog::default());
    let (remote, local) = (database("remote").await, database("local").await);
    let mut running = Running::start(&remote, log.clone(), ProjectorSettings::default());
    let last = append(&log, &world.entries, 4).await;
    running.reach(last).await;
    append(&memory, &world.entries, 4).await;
    project_all(&local, &memory).await;
    let expected = digest(&local).await.unwrap();
    assert_eq!(digest(&remote).await.unwrap(), expected);

    rebuild(&log, &remote, |_| ()).await.unwrap();
    assert_eq!(digest(&remote).await.unwrap(), expected);
    let more = history(6, 10);
    let batch = gradient_events::EntryBatch { entries: more.entries[..1].to_vec() };
    let next = log.append(last, uuid::Uuid::now_v7(), &batch).await.unwrap();
    running.reach(next).await;
    running.stop().await.unwrap();
    server.stop().await;
}
