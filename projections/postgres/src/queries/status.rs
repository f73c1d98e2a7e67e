//! The whole at a glance.

use gradient_domain::AssignmentId;
use gradient_projections::view::{Anomaly, BuildState, Counts, Page};
use uuid::Uuid;

use super::{Columns, Paging, Place, QueryError, read};
use crate::database::Database;

/// Sequence in the log up to which the tables are; 0 before the projector ever ran.
///
/// # Errors
/// If the database fails, or the projector has never run in it.
pub async fn position(database: &Database) -> Result<u64, QueryError> {
    let client = database.client().await?;
    let sql = "SELECT coalesce(max(seq), 0) AS seq FROM projection_checkpoint";
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_one(&statement, &[]).await?.number("seq")?)
}

/// What is in the tables.
///
/// # Errors
/// If the database fails.
pub async fn counts(database: &Database) -> Result<Counts, QueryError> {
    let client = database.client().await?;
    let sql = "SELECT (SELECT count(*) FROM evaluation) AS evaluations, \
           (SELECT count(*) FROM evaluation WHERE finished_at IS NULL) AS live_evaluations, \
           (SELECT count(*) FROM pending_job) AS pending_jobs, \
           (SELECT count(*) FROM dispatched_job WHERE finished_at IS NULL) AS open_jobs, \
           (SELECT count(*) FROM dispatched_job) AS dispatched_jobs, \
           (SELECT count(*) FROM worker WHERE presence IN ('connected', 'draining')) AS connected_workers, \
           (SELECT count(*) FROM worker) AS workers, \
           (SELECT count(*) FROM anomaly) AS anomalies";
    let statement = client.prepare_cached(sql).await?;
    let row = client.query_one(&statement, &[]).await?;
    let mut counts = Counts {
        evaluations: row.number("evaluations")?,
        live_evaluations: row.number("live_evaluations")?,
        builds: Default::default(),
        pending_jobs: row.number("pending_jobs")?,
        open_jobs: row.number("open_jobs")?,
        dispatched_jobs: row.number("dispatched_jobs")?,
        connected_workers: row.number("connected_workers")?,
        workers: row.number("workers")?,
        anomalies: row.number("anomalies")?,
    };
    let sql = "SELECT state, count(*) FROM build GROUP BY 1";
    let statement = client.prepare_cached(sql).await?;
    for row in client.query(&statement, &[]).await? {
        let state: BuildState = row.parsed("state")?;
        *counts.builds.of_mut(state) = row.number("count")?;
    }
    Ok(counts)
}

/// What was not as it should be, newest first.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn anomalies(database: &Database, paging: &Paging) -> Result<Page<Anomaly>, QueryError> {
    let Place(sequence, index, ordinal) =
        paging.cursor()?.unwrap_or(Place(i64::MAX, i32::MAX, i32::MAX));
    let client = database.client().await?;
    let sql = "SELECT * FROM anomaly WHERE (log_sequence, log_index, ordinal) < ($1, $2, $3) \
         ORDER BY log_sequence DESC, log_index DESC, ordinal DESC LIMIT $4";
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&sequence, &index, &ordinal, &paging.rows()]).await?;
    let items = read(&rows, |row| {
        let anomaly = Anomaly {
            log_sequence: row.number("log_sequence")?,
            kind: row.parsed("kind")?,
            worker: row.column::<Option<Uuid>>("worker")?.map(Into::into),
            job: row.maybe_parsed("job")?,
            assignment: row
                .column::<Option<i64>>("assignment")?
                .map(|id| AssignmentId(id.max(0).cast_unsigned())),
            reason: row.column("reason")?,
            at: row.time("at")?,
        };
        Ok((Place::of(row)?.to_string(), anomaly))
    })?;
    Ok(paging.page(items))
}
