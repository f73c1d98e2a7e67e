//! Workers and what they run.

use std::collections::BTreeMap;

use gradient_domain::{AssignmentId, WorkerId};
use gradient_projections::view::{Page, RunningJob, Worker};
use tokio_postgres::Row;
use uuid::Uuid;

use super::job::{LABEL, LABEL_FROM};
use super::{Columns, Paging, QueryError, read};
use crate::database::{Database, DatabaseError};

/// Workers by id, those that are gone included.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn workers(database: &Database, paging: &Paging) -> Result<Page<Worker>, QueryError> {
    let after: Option<WorkerId> = paging.cursor()?;
    let client = database.client().await?;
    let sql = "SELECT * FROM worker WHERE $1::uuid IS NULL OR worker > $1 ORDER BY worker LIMIT $2";
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&after.map(WorkerId::uuid), &paging.rows()]).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.column("worker")).collect::<Result<_, _>>()?;
    let mut running = running(&client, &ids).await?;
    let mut items = read(&rows, |row| {
        let worker = worker(row)?;
        Ok((worker.id.to_string(), worker))
    })?;
    for (_, worker) in &mut items {
        worker.running = running.remove(&worker.id).unwrap_or_default();
    }
    Ok(paging.page(items))
}

async fn running(
    client: &deadpool_postgres::Client,
    ids: &[Uuid],
) -> Result<BTreeMap<WorkerId, Vec<RunningJob>>, DatabaseError> {
    let sql = format!(
        "SELECT j.*, {LABEL} FROM dispatched_job j {LABEL_FROM} \
         WHERE j.worker = ANY ($1) AND j.finished_at IS NULL ORDER BY j.assignment"
    );
    let statement = client.prepare_cached(&sql).await?;
    let mut running: BTreeMap<WorkerId, Vec<RunningJob>> = BTreeMap::new();
    for row in client.query(&statement, &[&ids]).await? {
        let worker: WorkerId = row.column::<Uuid>("worker")?.into();
        running.entry(worker).or_default().push(RunningJob {
            assignment: AssignmentId(row.number("assignment")?),
            job: row.parsed("job")?,
            label: row.column("label")?,
            assigned_at: row.time("assigned_at")?,
            accepted: row.maybe_time("accepted_at")?.is_some(),
        });
    }
    Ok(running)
}

fn worker(row: &Row) -> Result<Worker, DatabaseError> {
    Ok(Worker {
        id: row.column::<Uuid>("worker")?.into(),
        name: row.column("name")?,
        session: row.column::<Uuid>("session")?.into(),
        presence: row.parsed("presence")?,
        fetch: row.column("can_fetch")?,
        eval: row.column("can_eval")?,
        build: row.column("can_build")?,
        protocol: row.column::<i32>("protocol")?.cast_unsigned(),
        capabilities: row.maybe_json("capabilities")?,
        capabilities_version: row.number("capabilities_version")?,
        metrics: row.maybe_json("metrics")?,
        metrics_at: row.maybe_time("metrics_at")?,
        joined_at: row.time("joined_at")?,
        presence_at: row.time("presence_at")?,
        idle_evaluate_since: row.maybe_time("idle_evaluate_since")?,
        idle_build_since: row.maybe_time("idle_build_since")?,
        rejection: row.column("rejection")?,
        running: Vec::new(),
    })
}
