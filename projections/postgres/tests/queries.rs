//! What the api asks, on the tables of a real history.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::future::Future;

use common::history::{assignments, drv_path, evaluation, history};
use common::{append, database, project_all};
use gradient_domain::{BuildId, EvaluationId};
use gradient_log::memory::MemoryLog;
use gradient_postgres::Database;
use gradient_postgres::queries::{self, Paging, QueryError};
use gradient_projections::view::{BuildState, Page, Waiting};

/// Every item of a list, page by page.
async fn all<T, F: Future<Output = Result<Page<T>, QueryError>>>(
    ask: impl Fn(Paging) -> F,
) -> Vec<T> {
    let mut items = Vec::new();
    let mut paging = Paging { after: None, limit: 7 };
    loop {
        let page = ask(paging.clone()).await.unwrap();
        assert!(page.items.len() <= 7 && (page.next.is_none() || page.items.len() == 7));
        items.extend(page.items);
        match page.next {
            None => return items,
            next => paging.after = next,
        }
    }
}

async fn tables(name: &str, seed: u64, steps: usize) -> (Database, common::history::World) {
    let world = history(seed, steps);
    let log = MemoryLog::default();
    append(&log, &world.entries, 3).await;
    let database = database(name).await;
    project_all(&database, &log).await;
    (database, world)
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_everything_once() {
    let (database, world) = tables("pages", 4, 1_000).await;
    let db = &database;
    let evaluations = all(|p| async move { queries::evaluations(db, &p).await }).await;
    let ids: Vec<EvaluationId> = evaluations.iter().map(|e| e.id).collect();
    let expected: Vec<_> = world.state.evaluations().iter().rev().map(|e| e.id).collect();
    assert_eq!(ids, expected, "newest first");
    for (shown, known) in evaluations.iter().rev().zip(world.state.evaluations()) {
        assert_eq!(shown.state, known.state);
        assert_eq!(queries::evaluation(db, known.id).await.unwrap().as_ref(), Some(shown));
        let builds =
            all(|p| async move { queries::builds_of_evaluation(db, known.id, None, &p).await })
                .await;
        let ids: BTreeSet<BuildId> = builds.iter().map(|b| b.id).collect();
        assert_eq!(ids.len() as u64, shown.builds.total());
        if !known.state.is_terminal() {
            assert_eq!(ids, known.builds.iter().copied().collect());
        }
        for state in BuildState::ALL {
            let some = all(|p| async move {
                queries::builds_of_evaluation(db, known.id, Some(*state), &p).await
            });
            assert_eq!(some.await.len() as u64, shown.builds.of(*state), "{state}");
        }
        let points = all(|p| async move { queries::entry_points(db, known.id, &p).await }).await;
        assert_eq!(points.len() as u64, shown.entry_points);
        assert!(points.is_sorted_by(|a, b| a.attr < b.attr));
        let messages = all(|p| async move { queries::messages(db, known.id, &p).await }).await;
        assert_eq!(messages.len() as u64, shown.errors + shown.warnings);
    }
    let pending = all(|p| async move { queries::pending_jobs(db, &p).await }).await;
    assert_eq!(pending.len(), world.state.queue().len());
    let dispatched = all(|p| async move { queries::dispatched_jobs(db, false, &p).await }).await;
    assert_eq!(dispatched.len(), assignments(&world.entries));
    assert!(
        dispatched
            .iter()
            .all(|job| job.queued_at <= job.ready_at && job.ready_at <= job.assigned_at)
    );
    assert!(
        dispatched.iter().all(|job| {
            job.total.0 == job.breakdown.iter().map(|rule| rule.points.0).sum::<i64>()
        })
    );
    let open = all(|p| async move { queries::dispatched_jobs(db, true, &p).await }).await;
    assert_eq!(open.len(), world.state.assignments().len());
    let workers = all(|p| async move { queries::workers(db, &p).await }).await;
    let running: usize = workers.iter().map(|worker| worker.running.len()).sum();
    assert_eq!((workers.len(), running), (world.state.workers().len(), open.len()));
    let anomalies = all(|p| async move { queries::anomalies(db, &p).await }).await;
    let counts = queries::counts(db).await.unwrap();
    assert_eq!(counts.anomalies, anomalies.len() as u64);
    assert_eq!(counts.builds.total(), world.state.graph().len() as u64);
    assert_eq!(counts.dispatched_jobs, dispatched.len() as u64);
    assert_eq!(counts.pending_jobs, pending.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_waits_says_why() {
    let mut kinds = BTreeSet::new();
    for (seed, steps) in [(20, 120), (21, 160), (22, 200), (23, 300), (24, 600)] {
        let (database, world) = tables(&format!("waits_{seed}"), seed, steps).await;
        for (id, node) in world.state.graph().iter() {
            let shown = queries::build(&database, id).await.unwrap().unwrap();
            assert_eq!(shown.build.drv_path, node.drv_path);
            let found = queries::build_of_derivation(&database, &node.drv_path).await.unwrap();
            assert_eq!(found, Some(id));
            assert_eq!(shown.build.attempts, shown.attempts.len() as u64);
            let state = shown.build.state;
            let moves = state == BuildState::Building || state.is_success() || state.is_failure();
            assert_eq!(shown.waiting.is_none(), moves, "{state}: {:?}", shown.waiting);
            match shown.waiting {
                Some(Waiting::Dependencies { missing, .. }) => {
                    assert!(missing > 0, "{id} waits for nothing");
                    kinds.insert("dependencies");
                }
                Some(Waiting::Slot { offer, .. }) => {
                    let job = gradient_domain::JobId::Build(id);
                    assert_eq!(offer, world.state.queue().get(job).unwrap().offer.0);
                    kinds.insert("slot");
                }
                Some(Waiting::Backoff { .. }) => drop(kinds.insert("backoff")),
                Some(_) => drop(kinds.insert("other")),
                None => {}
            }
        }
    }
    assert!(kinds.contains("dependencies") && kinds.contains("slot"), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_ids_and_wrong_cursors_are_told() {
    let (database, _) = tables("unknown", 1, 200).await;
    assert_eq!(queries::evaluation(&database, evaluation(250)).await.unwrap(), None);
    assert_eq!(queries::build(&database, BuildId(9_999)).await.unwrap(), None);
    assert_eq!(queries::build_of_derivation(&database, &drv_path(7_777)).await.unwrap(), None);
    let paging = Paging { after: Some("junk".into()), limit: 5 };
    let error = queries::pending_jobs(&database, &paging).await.unwrap_err();
    assert!(matches!(error, QueryError::Cursor { .. }) && error.to_string().contains("junk"));
}
