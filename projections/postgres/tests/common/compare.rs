//! The tables against the state of the scheduler: two folds of one log say the same.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, EvaluationId, JobId};
use gradient_events::FailureKind;
use gradient_scheduler_core::graph::BuildState;
use tokio_postgres::Client;
use uuid::Uuid;

use super::history::{World, assignments, hand_outs_of, states};

pub async fn tables_show_the_state(client: &Client, world: &World) {
    evaluations(client, world).await;
    builds(client, world).await;
    queue(client, world).await;
    hand_outs(client, world).await;
    workers(client, world).await;
}

async fn evaluations(client: &Client, world: &World) {
    let rows = client
        .query("SELECT evaluation, state, errors, hand_outs, waiting IS NOT NULL, finished_at IS NOT NULL FROM evaluation ORDER BY log_sequence, log_index", &[])
        .await
        .unwrap();
    let found: BTreeMap<EvaluationId, String> =
        rows.iter().map(|row| (row.get::<_, Uuid>(0).into(), row.get(1))).collect();
    let expected: BTreeMap<EvaluationId, String> =
        states(world).into_iter().map(|(id, state)| (id, state.name().to_owned())).collect();
    assert_eq!(found, expected, "states of evaluations");
    for (row, known) in rows.iter().zip(world.state.evaluations()) {
        assert_eq!(EvaluationId::from(row.get::<_, Uuid>(0)), known.id, "order of evaluations");
        assert_eq!(row.get::<_, i64>(2), i64::from(known.errors), "errors of {}", known.id);
        let handed_out = hand_outs_of(&world.entries, JobId::Evaluate(known.id));
        assert_eq!(row.get::<_, i64>(3), handed_out, "hand-outs of {}", known.id);
        let waits = known.waiting.is_some() || known.backoff_until.is_some();
        assert_eq!(row.get::<_, bool>(4), waits, "waiting of {}", known.id);
        assert_eq!(row.get::<_, bool>(5), known.state.is_terminal(), "end of {}", known.id);
    }
    // The scheduler forgets what an ended evaluation wanted; the tables keep it.
    for known in world.state.evaluations().iter().filter(|known| !known.state.is_terminal()) {
        let rows = client
            .query("SELECT build FROM evaluation_build WHERE evaluation = $1", &[&known.id.uuid()])
            .await
            .unwrap();
        let found: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let expected: BTreeSet<i64> = known.builds.iter().map(|build| i64::from(build.0)).collect();
        assert_eq!(found, expected, "builds that {} wants", known.id);
    }
}

async fn builds(client: &Client, world: &World) {
    let rows = client
        .query("SELECT b.build, b.state, b.cause, b.assignment, d.drv_path, d.recorded_sequence IS NOT NULL, b.retry_at, b.failures FROM build b JOIN derivation d USING (build) ORDER BY 1", &[])
        .await
        .unwrap();
    assert_eq!(rows.len(), world.state.graph().len(), "every derivation has a build");
    for (row, (id, node)) in rows.iter().zip(world.state.graph().iter()) {
        assert_eq!(row.get::<_, i64>(0), i64::from(id.0));
        let state: String = row.get(1);
        let expected: &[&str] = match &node.state {
            BuildState::Created => &["created"],
            BuildState::Queued => &["queued"],
            BuildState::Assigned { .. } => &["assigned", "building"],
            BuildState::Backoff { .. } => &["failed_transient"],
            BuildState::Succeeded { substituted: true, .. } => &["substituted"],
            BuildState::Succeeded { substituted: false, .. } => &["completed"],
            BuildState::Failed { kind: FailureKind::Timeout } => &["failed_timeout"],
            BuildState::Failed { .. } => &["failed_permanent"],
            BuildState::DependencyFailed { .. } => &["dependency_failed"],
            BuildState::Aborted => &["aborted"],
            BuildState::Skipped => &["skipped"],
        };
        assert!(expected.contains(&state.as_str()), "build {id} is {state}, not {expected:?}");
        let assignment = row.get::<_, Option<i64>>(3).map(|id| AssignmentId(id.cast_unsigned()));
        assert_eq!(assignment, node.state.assignment(), "hand-out of build {id} ({state})");
        if let BuildState::DependencyFailed { cause } = &node.state {
            assert_eq!(row.get::<_, Option<i64>>(2), Some(i64::from(cause.0)), "cause of {id}");
        }
        assert_eq!(row.get::<_, String>(4), node.drv_path.to_string());
        assert_eq!(row.get::<_, bool>(5), node.recipe.is_some(), "record of build {id}");
        assert_eq!(row.get::<_, i64>(7), i64::from(node.failures), "failures of build {id}");
    }
    let edges: i64 =
        client.query_one("SELECT count(*) FROM derivation_dependency", &[]).await.unwrap().get(0);
    let recipes = world.state.graph().iter().filter_map(|(_, node)| node.recipe.as_ref());
    let known: usize = recipes.map(|recipe| recipe.dependencies.len()).sum();
    assert_eq!(edges, i64::try_from(known).unwrap(), "edges");
}

async fn queue(client: &Client, world: &World) {
    let sql = "SELECT p.job, p.offer, p.ready_at, p.system IS NOT NULL, p.hand_outs, \
         (SELECT count(*) FROM dispatched_job d WHERE d.job = p.job) FROM pending_job p";
    let rows = client.query(sql, &[]).await.unwrap();
    let found: BTreeMap<JobId, (i64, i64)> = rows
        .iter()
        .map(|row| (row.get::<_, &str>(0).parse().unwrap(), (row.get(1), row.get(2))))
        .collect();
    let expected: BTreeMap<JobId, (i64, i64)> = world
        .state
        .queue()
        .iter()
        .map(|(job, p)| (job, (p.offer.0.cast_signed(), p.ready_at.0.cast_signed())))
        .collect();
    assert_eq!(found, expected, "jobs in the queue");
    for row in &rows {
        let job: JobId = row.get::<_, &str>(0).parse().unwrap();
        assert_eq!(row.get::<_, bool>(3), matches!(job, JobId::Build(_)), "requirement of {job}");
        assert_eq!(row.get::<_, i64>(4), row.get::<_, i64>(5), "earlier hand-outs of {job}");
    }
}

async fn hand_outs(client: &Client, world: &World) {
    let count: i64 =
        client.query_one("SELECT count(*) FROM dispatched_job", &[]).await.unwrap().get(0);
    assert_eq!(
        count,
        i64::try_from(assignments(&world.entries)).unwrap(),
        "one row per JobAssigned"
    );
    let rows = client
        .query("SELECT assignment, job, worker FROM dispatched_job WHERE finished_at IS NULL", &[])
        .await
        .unwrap();
    let found: BTreeMap<AssignmentId, (JobId, Uuid)> = rows
        .iter()
        .map(|row| {
            let job = row.get::<_, &str>(1).parse().unwrap();
            (AssignmentId(row.get::<_, i64>(0).cast_unsigned()), (job, row.get(2)))
        })
        .collect();
    let expected: BTreeMap<AssignmentId, (JobId, Uuid)> = world
        .state
        .assignments()
        .iter()
        .map(|(id, open)| (*id, (open.job, open.worker.uuid())))
        .collect();
    assert_eq!(found, expected, "open hand-outs");
    let attempts: i64 = client
        .query_one("SELECT count(*) FROM build_attempt a JOIN dispatched_job d USING (assignment) WHERE a.finished_at IS NOT DISTINCT FROM d.finished_at AND a.outcome IS NOT DISTINCT FROM d.outcome", &[])
        .await
        .unwrap()
        .get(0);
    let builds: i64 = client
        .query_one("SELECT count(*) FROM dispatched_job WHERE kind = 'build'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(attempts, builds, "an attempt per hand-out of a build, ended alike");
}

async fn workers(client: &Client, world: &World) {
    let rows = client
        .query("SELECT worker, presence, session, capabilities IS NOT NULL, capabilities_version, idle_build_since, idle_evaluate_since, metrics IS NOT NULL FROM worker ORDER BY worker", &[])
        .await
        .unwrap();
    assert_eq!(rows.len(), world.state.workers().len(), "workers");
    for (row, (id, known)) in rows.iter().zip(world.state.workers()) {
        assert_eq!(row.get::<_, Uuid>(0), id.uuid());
        let presence = format!("{:?}", known.presence).to_lowercase();
        assert_eq!(row.get::<_, String>(1), presence, "presence of {id}");
        assert_eq!(row.get::<_, Uuid>(2), known.session.uuid(), "session of {id}");
        assert_eq!(row.get::<_, bool>(3), known.capabilities.is_some(), "capabilities of {id}");
        assert_eq!(row.get::<_, i64>(4), i64::from(known.capabilities_version));
        for (column, kind) in
            [(5, gradient_domain::Kind::Build), (6, gradient_domain::Kind::Evaluate)]
        {
            let since = known.idle.get(&kind).map(|at| at.0.cast_signed());
            assert_eq!(row.get::<_, Option<i64>>(column), since, "idle {kind} slot of {id}");
        }
        assert_eq!(row.get::<_, bool>(7), known.metrics.is_some(), "metrics of {id}");
    }
}
