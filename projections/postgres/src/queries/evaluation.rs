//! Evaluations, their attributes and texts.

use std::collections::BTreeMap;

use gradient_domain::{AttrPath, EvaluationId};
use gradient_events::event::EvaluationState;
use gradient_projections::view::{
    BuildCounts, BuildState, EntryPoint, EvaluationSummary, Message, Page, Waiting,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Columns, Paging, Place, QueryError, build_id, read};
use crate::database::{Database, DatabaseError};

/// Columns of an evaluation; what waits for a slot stands in the queue.
const SELECT: &str = "SELECT e.*, p.offer, p.offered_at, \
     (SELECT count(*) FROM entry_point a WHERE a.evaluation = e.evaluation) AS entry_points \
     FROM evaluation e LEFT JOIN pending_job p ON p.evaluation = e.evaluation";

/// One evaluation.
///
/// # Errors
/// If the database fails.
pub async fn evaluation(
    database: &Database,
    id: EvaluationId,
) -> Result<Option<EvaluationSummary>, QueryError> {
    let client = database.client().await?;
    let sql = format!("{SELECT} WHERE e.evaluation = $1");
    let statement = client.prepare_cached(&sql).await?;
    let Some(row) = client.query_opt(&statement, &[&id.uuid()]).await? else {
        return Ok(None);
    };
    let counts = build_counts(&client, &[id.uuid()]).await?;
    Ok(Some(summary(&row, &counts)?))
}

/// Evaluations, newest first.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn evaluations(
    database: &Database,
    paging: &Paging,
) -> Result<Page<EvaluationSummary>, QueryError> {
    let after: Option<EvaluationId> = paging.cursor()?;
    let client = database.client().await?;
    let sql = format!(
        "{SELECT} WHERE $1::uuid IS NULL OR (e.log_sequence, e.log_index) < \
           (SELECT log_sequence, log_index FROM evaluation WHERE evaluation = $1) \
         ORDER BY e.log_sequence DESC, e.log_index DESC LIMIT $2"
    );
    let statement = client.prepare_cached(&sql).await?;
    let rows = client.query(&statement, &[&after.map(EvaluationId::uuid), &paging.rows()]).await?;
    let ids: Vec<Uuid> =
        rows.iter().map(|row| row.column("evaluation")).collect::<Result<_, _>>()?;
    let counts = build_counts(&client, &ids).await?;
    let items = read(&rows, |row| {
        let summary = summary(row, &counts)?;
        Ok((summary.id.to_string(), summary))
    })?;
    Ok(paging.page(items))
}

async fn build_counts(
    client: &deadpool_postgres::Client,
    ids: &[Uuid],
) -> Result<BTreeMap<Uuid, BuildCounts>, DatabaseError> {
    let sql = "SELECT w.evaluation, b.state, count(*) FROM evaluation_build w JOIN build b USING (build) \
         WHERE w.evaluation = ANY ($1) GROUP BY 1, 2";
    let statement = client.prepare_cached(sql).await?;
    let mut counts: BTreeMap<Uuid, BuildCounts> = BTreeMap::new();
    for row in client.query(&statement, &[&ids]).await? {
        let state: BuildState = row.parsed("state")?;
        let counts = counts.entry(row.column("evaluation")?).or_default();
        *counts.of_mut(state) = row.number("count")?;
    }
    Ok(counts)
}

fn summary(
    row: &Row,
    counts: &BTreeMap<Uuid, BuildCounts>,
) -> Result<EvaluationSummary, DatabaseError> {
    let id: Uuid = row.column("evaluation")?;
    let name: String = row.column("state")?;
    let state: EvaluationState = serde_json::from_value(serde_json::Value::String(name.clone()))
        .map_err(|_| super::unreadable("state", &name))?;
    let mut waiting: Option<Waiting> = row.maybe_json("waiting")?;
    let mut waiting_since = row.maybe_time("waiting_since")?;
    if let (None, Some(offer), Some(since)) =
        (&waiting, row.column::<Option<i64>>("offer")?, row.maybe_time("offered_at")?)
    {
        waiting = Some(Waiting::Slot { offer: offer.max(0).cast_unsigned(), since });
        waiting_since = Some(since);
    }
    Ok(EvaluationSummary {
        id: id.into(),
        flake: row.json("flake")?,
        label: row.column("label")?,
        patterns: row.json("patterns")?,
        state,
        waiting,
        waiting_since,
        requested_at: row.time("requested_at")?,
        started_at: row.maybe_time("started_at")?,
        discovered_at: row.maybe_time("discovered_at")?,
        finished_at: row.maybe_time("finished_at")?,
        error: row.column("error")?,
        flake_source: row.maybe_parsed("flake_source")?,
        locked_url: row.column("locked_url")?,
        errors: row.number("errors")?,
        warnings: row.number("warnings")?,
        hand_outs: row.number("hand_outs")?,
        entry_points: row.number("entry_points")?,
        builds: counts.get(&id).copied().unwrap_or_default(),
    })
}

/// Attributes of an evaluation and how their builds stand, by name.
///
/// # Errors
/// If the database fails.
pub async fn entry_points(
    database: &Database,
    evaluation: EvaluationId,
    paging: &Paging,
) -> Result<Page<EntryPoint>, QueryError> {
    let client = database.client().await?;
    let sql = "SELECT a.attr, a.attr_path, a.build, d.drv_path, coalesce(d.system, '') AS system, \
           b.state, b.message, b.cause, coalesce(b.outputs, d.outputs, '[]') AS outputs \
         FROM entry_point a JOIN build b USING (build) JOIN derivation d USING (build) \
         WHERE a.evaluation = $1 AND ($2::text IS NULL OR a.attr > $2) ORDER BY a.attr LIMIT $3";
    let statement = client.prepare_cached(sql).await?;
    let rows =
        client.query(&statement, &[&evaluation.uuid(), &paging.after, &paging.rows()]).await?;
    let items = read(&rows, |row| {
        let attr: String = row.column("attr")?;
        let point = EntryPoint {
            attr: attr.clone(),
            attr_path: row.json("attr_path")?,
            build: build_id(row.column("build")?),
            drv_path: row.parsed("drv_path")?,
            system: row.column("system")?,
            state: row.parsed("state")?,
            message: row.column("message")?,
            cause: row.column::<Option<i64>>("cause")?.map(build_id),
            outputs: row.json("outputs")?,
        };
        Ok((attr, point))
    })?;
    Ok(paging.page(items))
}

/// Texts of the latest run of an evaluation, oldest first.
///
/// # Errors
/// If the cursor is none, or the database fails.
pub async fn messages(
    database: &Database,
    evaluation: EvaluationId,
    paging: &Paging,
) -> Result<Page<Message>, QueryError> {
    let Place(sequence, index, ordinal) = paging.cursor()?.unwrap_or(Place(-1, -1, -1));
    let client = database.client().await?;
    let sql = "SELECT log_sequence, log_index, ordinal, level, attr_path, text, at \
         FROM evaluation_message \
         WHERE evaluation = $1 AND (log_sequence, log_index, ordinal) > ($2, $3, $4) \
           AND (log_sequence, log_index) > \
             (SELECT run_sequence, run_index FROM evaluation WHERE evaluation = $1) \
         ORDER BY log_sequence, log_index, ordinal LIMIT $5";
    let statement = client.prepare_cached(sql).await?;
    let rows = client
        .query(&statement, &[&evaluation.uuid(), &sequence, &index, &ordinal, &paging.rows()])
        .await?;
    let items = read(&rows, |row| {
        let attr: Option<AttrPath> = row.maybe_json("attr_path")?;
        let message = Message {
            level: row.parsed("level")?,
            attr: attr.map(|attr| attr.to_string()),
            text: row.column("text")?,
            at: row.time("at")?,
        };
        Ok((Place::of(row)?.to_string(), message))
    })?;
    Ok(paging.page(items))
}
