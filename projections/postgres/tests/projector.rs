//! Histories of the real scheduler, projected into a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::history::{assignments, history};
use common::{Running, append, database, database_url, project_all, reader, until};
use gradient_log::EventLog;
use gradient_log::memory::MemoryLog;
use gradient_postgres::{Database, ProjectorSettings, digest};

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_the_fold_of_the_log() {
    for seed in 0..6 {
        let world = history(seed, 900);
        let name = format!("fold_{seed}");
        let url = database_url(&name).await;
        let database = Database::new(&url).unwrap();
        let log = MemoryLog::default();
        append(&log, &world.entries, 3).await;
        project_all(&database, &log).await;
        common::compare::tables_show_the_state(&reader(&url).await, &world).await;
    }
}
