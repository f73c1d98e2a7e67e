//! Histories of the real scheduler, projected into a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::history::{World, history};
use common::{Running, append, database, database_url, project_all, reader, until};
use futures_util::StreamExt;
use gradient_events::{DecodeError, EntryBatch};
use gradient_log::memory::MemoryLog;
use gradient_log::{AppendError, Appended, BoxStream, EventLog, LogIdentity, ReadError};
use gradient_postgres::{
    Database, Digest, ProjectorError, ProjectorSettings, RebuildProgress, digest, rebuild,
};
use rand::prelude::*;

/// Some of everything that can happen, brought to an end or not.
fn worlds() -> Vec<World> {
    let mut worlds: Vec<World> = (0..6).map(|seed| history(seed, 1_000)).collect();
    worlds.iter_mut().take(3).for_each(World::finish);
    worlds
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_the_fold_of_the_log() {
    let mut seen = std::collections::BTreeMap::new();
    for (seed, world) in worlds().iter().enumerate() {
        for (name, count) in world.variety() {
            *seen.entry(name).or_insert(0) += count;
        }
        let url = database_url(&format!("fold_{seed}")).await;
        let database = Database::new(&url).unwrap();
        let log = MemoryLog::default();
        append(&log, &world.entries, 1 + seed).await;
        project_all(&database, &log).await;
        common::compare::tables_show_the_state(&reader(&url).await, world).await;
    }
    // A history in which nothing happens shows nothing.
    assert_eq!(seen.len(), 14, "{seen:?}");
    assert!(seen["assigned"] > 300 && seen["built"] > 100 && seen["finished"] > 10, "{seen:?}");
}

/// The same rows must come out, wherever transactions began and ended.
#[tokio::test(flavor = "multi_thread")]
async fn batches_and_restarts_do_not_matter() {
    let world = &worlds()[4];
    let log = MemoryLog::default();
    let last = append(&log, &world.entries, 2).await;
    let whole = database("whole").await;
    project_all(&whole, &log).await;
    let expected = digest(&whole).await.unwrap();
    assert_eq!(expected.position, last);

    let mut random = StdRng::seed_from_u64(11);
    for round in 0..3 {
        let pieces = database(&format!("pieces_{round}")).await;
        let mut at = 0;
        while at < last {
            let entries_max = random.random_range(1..60);
            let settings = ProjectorSettings { entries_max, wait: Duration::ZERO };
            let mut running = Running::start(&pieces, log.clone(), settings);
            running.reach((at + random.random_range(1..60)).min(last)).await;
            at = *running.position.borrow();
            if random.random() {
                // As a crash would: no time to finish anything.
                running.task.abort();
                let _ = running.task.await;
            } else {
                running.stop().await.unwrap();
            }
        }
        assert_eq!(digest(&pieces).await.unwrap(), expected);
    }
    let rebuilt = database("rebuilt").await;
    let mut steps: Vec<RebuildProgress> = Vec::new();
    let position = rebuild(&log, &rebuilt, |progress| steps.push(progress)).await.unwrap();
    assert_eq!(position, last);
    assert_eq!(digest(&rebuilt).await.unwrap(), expected);
    let end = steps.last().unwrap();
    assert_eq!((end.position, end.entries), (last, world.entries.len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_projectors_do_not_write_twice() {
    let world = &worlds()[3];
    let log = MemoryLog::default();
    let (shared, alone) = (database("shared").await, database("alone").await);
    let settings = ProjectorSettings { entries_max: 7, wait: Duration::ZERO };
    let mut racers: Vec<Running> =
        (0..3).map(|_| Running::start(&shared, log.clone(), settings)).collect();
    let mut last = 0;
    for chunk in world.entries.chunks(100) {
        last = append(&log, chunk, 1).await;
        let reached = racers.iter_mut().map(|racer| Box::pin(racer.reach(last)));
        futures_util::future::select_all(reached).await;
    }
    for racer in &mut racers {
        racer.reach(last).await;
    }
    for racer in racers {
        racer.stop().await.unwrap();
    }
    project_all(&alone, &log).await;
    assert_eq!(digest(&shared).await.unwrap(), digest(&alone).await.unwrap());
}

/// A log that says to be another one, or holds a message that cannot be read.
#[derive(Clone)]
struct OddLog {
    inner: MemoryLog,
    created_ns: i64,
    unreadable: Option<u64>,
}

impl EventLog for OddLog {
    async fn identity(&self) -> Result<LogIdentity, ReadError> {
        Ok(LogIdentity { stream: "odd".into(), created_ns: self.created_ns })
    }

    async fn last_sequence(&self) -> Result<u64, ReadError> {
        self.inner.last_sequence().await
    }

    async fn append(
        &self,
        expected_last: u64,
        id: uuid::Uuid,
        batch: &EntryBatch,
    ) -> Result<u64, AppendError> {
        self.inner.append(expected_last, id, batch).await
    }

    async fn read(&self, first: u64) -> Result<BoxStream<Result<Appended, ReadError>>, ReadError> {
        let unreadable = self.unreadable;
        Ok(Box::pin(self.inner.read(first).await?.map(move |message| {
            let message = message?;
            if unreadable == Some(message.sequence) {
                let source = DecodeError::Checksum { expected: 1, actual: 2 };
                return Err(ReadError::Decode { sequence: message.sequence, source });
            }
            Ok(message)
        })))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_log_are_refused() {
    let world = history(1, 100);
    let mut log = OddLog { inner: MemoryLog::default(), created_ns: 1, unreadable: None };
    append(&log, &world.entries, 5).await;
    let database = database("other_log").await;
    project_all(&database, &log).await;
    let before = digest(&database).await.unwrap();

    log.created_ns = 2;
    let running = Running::start(&database, log.clone(), ProjectorSettings::default());
    let ended = tokio::time::timeout(common::LIMIT, running.task).await.unwrap().unwrap();
    let error = ended.unwrap_err();
    assert!(matches!(error, ProjectorError::OtherLog { have_ns: 1, want_ns: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("another") || error.to_string().contains("right database"));
    assert_eq!(digest(&database).await.unwrap(), before, "nothing was touched");

    let shorter = OddLog { inner: MemoryLog::default(), created_ns: 1, unreadable: None };
    append(&shorter, &world.entries[..10], 5).await;
    let running = Running::start(&database, shorter, ProjectorSettings::default());
    let ended = tokio::time::timeout(common::LIMIT, running.task).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ProjectorError::AheadOfLog { last: 2, .. })), "{ended:?}");

    // A rebuild is the way out: it takes the new log's identity.
    rebuild(&log, &database, |_| ()).await.unwrap();
    project_all(&database, &log).await;
    assert_eq!(digest(&database).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_message_holds_the_projector_at_its_checkpoint() {
    let world = history(2, 200);
    let log = OddLog { inner: MemoryLog::default(), created_ns: 1, unreadable: Some(20) };
    append(&log, &world.entries, 3).await;
    let database = database("unreadable").await;
    let mut running = Running::start(&database, log, ProjectorSettings::default());
    running.reach(19).await;
    let health = running.health.clone();
    until("health says stuck", || async { format!("{health:?}").contains("stuck") }).await;
    let text = format!("{health:?}");
    assert!(text.contains("message 20") && text.contains("checksum"), "{text}");
    assert_eq!(*running.position.borrow(), 19, "what came before is shown");
    let error = running.stop().await.unwrap_err();
    assert!(matches!(error, ProjectorError::Log { position: 19, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_statement_holds_the_projector_until_a_rebuild() {
    let world = &worlds()[0];
    let url = database_url("refused").await;
    let database = Database::new(&url).unwrap();
    database.migrate().await.unwrap();
    let admin = reader(&url).await;
    admin
        .batch_execute(
            "ALTER TABLE evaluation ADD CONSTRAINT odd CHECK (label <> 'github:example/2')",
        )
        .await
        .unwrap();
    let log = MemoryLog::default();
    let last = append(&log, &world.entries, 3).await;
    let mut running = Running::start(&database, log.clone(), ProjectorSettings::default());
    let health = running.health.clone();
    until("health says stuck", || async { format!("{health:?}").contains("stuck") }).await;
    let text = format!("{health:?}");
    assert!(text.contains("odd"), "the reason names the constraint: {text}");
    // Whatever the tables look like, even of another version: they are replaced.
    admin.batch_execute("UPDATE schema_history SET checksum = '1'").await.unwrap();
    let diverged = database.migrate().await.unwrap_err().to_string();
    assert!(diverged.contains("rebuild"), "{diverged}");
    rebuild(&log, &database, |_| ()).await.unwrap();
    until("it goes on", || async { !format!("{health:?}").contains("stuck") }).await;
    running.reach(last).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_under_load_is_not_noticed_by_readers() {
    let world = &worlds()[5];
    let log = MemoryLog::default();
    let (live, still) = (database("live").await, database("still").await);
    let (first, rest) = world.entries.split_at(world.entries.len() / 2);
    let half = append(&log, first, 1).await;
    let settings = ProjectorSettings { entries_max: 20, wait: Duration::from_millis(1) };
    let mut running = Running::start(&live, log.clone(), settings);
    running.reach(half).await;

    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reading = {
        let (live, done) = (live.clone(), done.clone());
        tokio::spawn(async move {
            let (mut looks, mut highest) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let at = gradient_postgres::queries::position(&live).await.expect("readable");
                gradient_postgres::queries::counts(&live).await.expect("readable");
                assert!(at >= highest, "the tables went back from {highest} to {at}");
                (looks, highest) = (looks + 1, at);
            }
            looks
        })
    };
    let writing = {
        let (log, rest) = (log.clone(), rest.to_vec());
        tokio::spawn(async move {
            for chunk in rest.chunks(10) {
                append(&log, chunk, 1).await;
                tokio::task::yield_now().await;
            }
        })
    };
    for _ in 0..3 {
        rebuild(&log, &live, |_| ()).await.unwrap();
    }
    writing.await.unwrap();
    running.reach(log.last_sequence().await.unwrap()).await;
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reading.await.unwrap() > 0, "somebody looked meanwhile");
    running.stop().await.unwrap();
    project_all(&still, &log).await;
    let (live, still): (Digest, Digest) =
        (digest(&live).await.unwrap(), digest(&still).await.unwrap());
    assert_eq!(live, still);
}
