//! Builds and their attempts.

use gradient_domain::{AssignmentId, BuildId, EvaluationId, Requirement, StorePath, System};
use gradient_projections::view::{Attempt, BuildDetail, BuildState, BuildSummary, Page, Waiting};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Columns, Paging, QueryError, build_id, read};
use crate::database::{Database, DatabaseError};

/// Columns of a build.
const COLUMNS: &str = "b.*, d.drv_path, d.pname, d.system, d.features, d.is_fixed_output, \
     d.recorded_sequence, coalesce(b.outputs, d.outputs, '[]') AS known_outputs";

/// Most attempts, evaluations and missing inputs shown with a build.
const LISTED_MAX: i64 = 100;
/// Most missing inputs named.
const MISSING_MAX: usize = 20;

/// Builds that an evaluation wants, by id; those of one state if one is given.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn builds_of_evaluation(
    database: &Database,
    evaluation: EvaluationId,
    state: Option<BuildState>,
    paging: &Paging,
) -> Result<Page<BuildSummary>, QueryError> {
    let after: Option<BuildId> = paging.cursor()?;
    let after = after.map_or(-1, |build| i64::from(build.0));
    let client = database.client().await?;
    let sql = format!(
        "SELECT {COLUMNS} FROM evaluation_build w JOIN build b USING (build) \
         JOIN derivation d USING (build) \
         WHERE w.evaluation = $1 AND w.build > $2 AND ($3::text IS NULL OR b.state = $3) \
         ORDER BY w.build LIMIT $4"
    );
    let statement = client.prepare_cached(&sql).await?;
    let state = state.map(BuildState::name);
    let rows =
        client.query(&statement, &[&evaluation.uuid(), &after, &state, &paging.rows()]).await?;
    let items = read(&rows, |row| {
        let summary = summary(row)?;
        Ok((summary.id.to_string(), summary))
    })?;
    Ok(paging.page(items))
}

/// The build of a derivation, if it is known.
///
/// # Errors
/// If the database fails.
pub async fn build_of_derivation(
    database: &Database,
    drv_path: &StorePath,
) -> Result<Option<BuildId>, QueryError> {
    let client = database.client().await?;
    let sql = "SELECT build FROM derivation WHERE drv_path = $1";
    let statement = client.prepare_cached(sql).await?;
    let row = client.query_opt(&statement, &[&drv_path.to_string()]).await?;
    Ok(row.map(|row| row.column("build").map(build_id)).transpose()?)
}

/// One build with its attempts.
///
/// # Errors
/// If the database fails.
pub async fn build(database: &Database, id: BuildId) -> Result<Option<BuildDetail>, QueryError> {
    let client = database.client().await?;
    let number = i64::from(id.0);
    let sql = format!(
        "SELECT {COLUMNS}, p.offer, p.offered_at, \
           (SELECT count(*) FROM derivation_dependency x WHERE x.build = b.build) AS dependencies, \
           (SELECT count(*) FROM derivation_dependency x WHERE x.dependency = b.build) AS dependents \
         FROM build b JOIN derivation d USING (build) LEFT JOIN pending_job p ON p.build = b.build \
         WHERE b.build = $1"
    );
    let statement = client.prepare_cached(&sql).await?;
    let Some(row) = client.query_opt(&statement, &[&number]).await? else {
        return Ok(None);
    };
    let sql = "SELECT a.*, w.name AS worker_name FROM build_attempt a LEFT JOIN worker w USING (worker) \
         WHERE a.build = $1 ORDER BY a.assignment DESC LIMIT $2";
    let statement = client.prepare_cached(sql).await?;
    let attempts = client.query(&statement, &[&number, &LISTED_MAX]).await?;
    let attempts: Vec<Attempt> = attempts.iter().rev().map(attempt).collect::<Result<_, _>>()?;
    let sql = "SELECT w.evaluation, e.finished_at IS NULL AS is_live \
         FROM evaluation_build w JOIN evaluation e USING (evaluation) \
         WHERE w.build = $1 ORDER BY e.log_sequence DESC, e.log_index DESC LIMIT $2";
    let statement = client.prepare_cached(sql).await?;
    let evaluations = client.query(&statement, &[&number, &LISTED_MAX]).await?;
    let is_wanted = evaluations.iter().any(|row| row.get("is_live"));
    let build = summary(&row)?;
    let waiting = waiting(&client, &row, &build, is_wanted, attempts.last()).await?;
    Ok(Some(BuildDetail {
        waiting,
        outputs: row.json("known_outputs")?,
        is_fixed_output: row.column::<Option<bool>>("is_fixed_output")?.unwrap_or_default(),
        dependencies: row.number("dependencies")?,
        dependents: row.number("dependents")?,
        evaluations: evaluations
            .iter()
            .map(|row| row.column::<Uuid>("evaluation").map(EvaluationId::from))
            .collect::<Result<_, _>>()?,
        attempts,
        build,
    }))
}

async fn waiting(
    client: &deadpool_postgres::Client,
    row: &Row,
    build: &BuildSummary,
    is_wanted: bool,
    last: Option<&Attempt>,
) -> Result<Option<Waiting>, DatabaseError> {
    let offered_at = row.maybe_time("offered_at")?;
    let waiting = match build.state {
        BuildState::Created if build.requirement.is_none() => Waiting::NotRecorded,
        BuildState::Created if !is_wanted => Waiting::Unwanted,
        BuildState::Created => missing(client, build.id).await?,
        BuildState::Queued => Waiting::Slot {
            offer: row.column::<Option<i64>>("offer")?.unwrap_or_default().max(0).cast_unsigned(),
            since: offered_at.unwrap_or(build.wanted_at),
        },
        BuildState::Assigned => {
            Waiting::Worker { since: last.map_or(build.wanted_at, |last| last.assigned_at) }
        }
        BuildState::FailedTransient => {
            Waiting::Backoff { until: build.retry_at.unwrap_or(build.wanted_at) }
        }
        BuildState::Building
        | BuildState::Completed
        | BuildState::Substituted
        | BuildState::FailedPermanent
        | BuildState::FailedTimeout
        | BuildState::DependencyFailed
        | BuildState::Aborted
        | BuildState::Skipped => return Ok(None),
    };
    Ok(Some(waiting))
}

async fn missing(
    client: &deadpool_postgres::Client,
    build: BuildId,
) -> Result<Waiting, DatabaseError> {
    let sql = "SELECT x.dependency FROM derivation_dependency x JOIN build b ON b.build = x.dependency \
         WHERE x.build = $1 AND b.state NOT IN ('completed', 'substituted') ORDER BY 1";
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&i64::from(build.0)]).await?;
    let builds: Vec<BuildId> =
        rows.iter().map(|row| row.column("dependency").map(build_id)).collect::<Result<_, _>>()?;
    let named = builds.iter().copied().take(MISSING_MAX).collect();
    Ok(Waiting::Dependencies { missing: builds.len() as u64, builds: named })
}

fn summary(row: &Row) -> Result<BuildSummary, DatabaseError> {
    let system: Option<String> = row.column("system")?;
    let requirement = match system {
        Some(system) => {
            Some(Requirement { system: System(system), features: row.json("features")? })
        }
        None => None,
    };
    Ok(BuildSummary {
        id: build_id(row.column("build")?),
        drv_path: row.parsed("drv_path")?,
        pname: row.column("pname")?,
        requirement,
        state: row.parsed("state")?,
        attempts: row.number("attempts")?,
        failures: row.number("failures")?,
        wanted_at: row.time("wanted_at")?,
        ready_at: row.maybe_time("ready_at")?,
        started_at: row.maybe_time("started_at")?,
        finished_at: row.maybe_time("finished_at")?,
        retry_at: row.maybe_time("retry_at")?,
        message: row.column("message")?,
        cause: row.column::<Option<i64>>("cause")?.map(build_id),
    })
}

fn attempt(row: &Row) -> Result<Attempt, DatabaseError> {
    let number = |name| -> Result<Option<u64>, DatabaseError> {
        Ok(row.column::<Option<i64>>(name)?.map(|n| n.max(0).cast_unsigned()))
    };
    Ok(Attempt {
        assignment: AssignmentId(row.number("assignment")?),
        worker: row.column::<Uuid>("worker")?.into(),
        worker_name: row.column("worker_name")?,
        assigned_at: row.time("assigned_at")?,
        started_at: row.maybe_time("started_at")?,
        finished_at: row.maybe_time("finished_at")?,
        outcome: row.maybe_parsed("outcome")?,
        failure: row.column("failure")?,
        message: row.column("message")?,
        missing_paths: row.json("missing_paths")?,
        substituted: row.column("substituted")?,
        build_time_ms: number("build_time_ms")?,
        elapsed_ms: number("elapsed_ms")?,
    })
}
