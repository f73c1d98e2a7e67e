//! The queue and the hand-outs.

use gradient_domain::{AssignmentId, EvaluationId, JobId, Requirement, System};
use gradient_events::score::MilliPoints;
use gradient_projections::view::{DispatchedJob, Page, PendingJob};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Columns, Paging, QueryError, read};
use crate::database::{Database, DatabaseError};

/// What to show for a job: the name of its derivation, or its flake.
pub(super) const LABEL: &str = "coalesce(e.label, regexp_replace(d.drv_path, '^/nix/store/[^-]*-(.*)[.]drv$', '\\1'), j.job) AS label";
/// The tables that it comes from.
pub(super) const LABEL_FROM: &str = "LEFT JOIN derivation d ON d.build = j.build \
     LEFT JOIN evaluation e ON e.evaluation = j.evaluation";

/// Jobs in the queue, in the order of offers.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn pending_jobs(
    database: &Database,
    paging: &Paging,
) -> Result<Page<PendingJob>, QueryError> {
    let after: i64 = paging.cursor()?.unwrap_or(-1);
    let client = database.client().await?;
    let sql = format!(
        "SELECT j.*, {LABEL} FROM pending_job j {LABEL_FROM} WHERE j.offer > $1 ORDER BY j.offer LIMIT $2"
    );
    let statement = client.prepare_cached(&sql).await?;
    let rows = client.query(&statement, &[&after, &paging.rows()]).await?;
    let items = read(&rows, |row| {
        let job = pending(row)?;
        Ok((job.offer.to_string(), job))
    })?;
    Ok(paging.page(items))
}

fn pending(row: &Row) -> Result<PendingJob, DatabaseError> {
    let job: JobId = row.parsed("job")?;
    let system: Option<String> = row.column("system")?;
    let requirement = match system {
        Some(system) => {
            Some(Requirement { system: System(system), features: row.json("features")? })
        }
        None => None,
    };
    Ok(PendingJob {
        job,
        kind: job.kind(),
        label: row.column("label")?,
        offer: row.number("offer")?,
        requirement,
        queued_at: row.time("queued_at")?,
        ready_at: row.time("ready_at")?,
        offered_at: row.time("offered_at")?,
        hand_outs: row.number("hand_outs")?,
        requeue_reason: row.column("requeue_reason")?,
    })
}

/// Hand-outs, newest first; the open ones only, or all.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn dispatched_jobs(
    database: &Database,
    open_only: bool,
    paging: &Paging,
) -> Result<Page<DispatchedJob>, QueryError> {
    let after: Option<AssignmentId> = paging.cursor()?;
    let after = after.map_or(i64::MAX, |assignment| crate::apply::int(assignment.0));
    let client = database.client().await?;
    let open = if open_only { "AND j.finished_at IS NULL" } else { "" };
    let sql = format!(
        "SELECT j.*, w.name AS worker_name, {LABEL} FROM dispatched_job j \
         LEFT JOIN worker w ON w.worker = j.worker {LABEL_FROM} \
         WHERE j.assignment < $1 {open} ORDER BY j.assignment DESC LIMIT $2"
    );
    let statement = client.prepare_cached(&sql).await?;
    let rows = client.query(&statement, &[&after, &paging.rows()]).await?;
    let items = read(&rows, |row| {
        let job = dispatched(row)?;
        Ok((job.assignment.to_string(), job))
    })?;
    Ok(paging.page(items))
}

/// Whether this hand-out runs the evaluation and is not asked to stop.
///
/// # Errors
/// If the database fails.
pub async fn is_running(
    database: &Database,
    evaluation: EvaluationId,
    assignment: AssignmentId,
) -> Result<bool, QueryError> {
    let client = database.client().await?;
    let sql = "SELECT 1 FROM dispatched_job \
         WHERE assignment = $1 AND evaluation = $2 AND finished_at IS NULL AND abort_requested_at IS NULL";
    let statement = client.prepare_cached(sql).await?;
    let assignment = crate::apply::int(assignment.0);
    Ok(client.query_opt(&statement, &[&assignment, &evaluation.uuid()]).await?.is_some())
}

fn dispatched(row: &Row) -> Result<DispatchedJob, DatabaseError> {
    let job: JobId = row.parsed("job")?;
    Ok(DispatchedJob {
        assignment: AssignmentId(row.number("assignment")?),
        job,
        kind: job.kind(),
        label: row.column("label")?,
        worker: row.column::<Uuid>("worker")?.into(),
        worker_name: row.column("worker_name")?,
        session: row.column::<Uuid>("session")?.into(),
        queued_at: row.time("queued_at")?,
        ready_at: row.time("ready_at")?,
        assigned_at: row.time("assigned_at")?,
        accepted_at: row.maybe_time("accepted_at")?,
        abort_requested_at: row.maybe_time("abort_requested_at")?,
        finished_at: row.maybe_time("finished_at")?,
        outcome: row.maybe_parsed("outcome")?,
        reason: row.column("reason")?,
        total: MilliPoints(row.column("total")?),
        breakdown: row.json("breakdown")?,
        considered: row.number("considered")?,
        runners_up: row.json("runners_up")?,
        capabilities_version: row.number("capabilities_version")?,
        log_sequence: row.number("log_sequence")?,
        log_index: row.column::<i32>("log_index")?.cast_unsigned(),
    })
}
