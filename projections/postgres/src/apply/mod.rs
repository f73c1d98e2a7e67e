//! Changes as bulk statements: one per kind, rows as arrays.

mod build;
mod evaluation;
mod fleet;
mod job;

use deadpool_postgres::Transaction;
use gradient_projections::Change;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::ToSql;

use crate::database::DatabaseError;
use crate::plan::Group;

/// A transaction that changes are written in.
pub(crate) struct Sink<'a> {
    transaction: &'a Transaction<'a>,
}

type Column = Box<dyn ToSql + Sync + Send>;

impl<'a> Sink<'a> {
    pub(crate) fn new(transaction: &'a Transaction<'a>) -> Self {
        Self { transaction }
    }

    async fn run(&self, sql: &'static str, columns: Vec<Column>) -> Result<(), DatabaseError> {
        let statement = self.transaction.prepare_cached(sql).await?;
        let columns: Vec<&(dyn ToSql + Sync)> =
            columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
        self.transaction.execute(&statement, &columns).await?;
        Ok(())
    }

    /// Writes one group.
    pub(crate) async fn apply(&self, group: &Group) -> Result<(), DatabaseError> {
        macro_rules! boxed {
            ($kind:ident) => {
                &group
                    .changes
                    .iter()
                    .filter_map(|change| match change {
                        Change::$kind(row) => Some(&**row),
                        _ => None,
                    })
                    .collect::<Vec<_>>()
            };
        }
        macro_rules! rows {
            ($kind:ident) => {
                &group
                    .changes
                    .iter()
                    .filter_map(|change| match change {
                        Change::$kind(row) => Some(row),
                        _ => None,
                    })
                    .collect::<Vec<_>>()
            };
        }
        let Some(first) = group.changes.first() else { return Ok(()) };
        match first {
            Change::SettingsReplaced(_) => fleet::settings(self, rows!(SettingsReplaced)).await,
            Change::EvaluationRequested(_) => {
                evaluation::requested(self, boxed!(EvaluationRequested)).await
            }
            Change::EvaluationAdvanced(_) => {
                evaluation::advanced(self, rows!(EvaluationAdvanced)).await
            }
            Change::EvaluationWaits(_) => evaluation::waits(self, boxed!(EvaluationWaits)).await,
            Change::EvaluationRetries(_) => {
                evaluation::retries(self, rows!(EvaluationRetries)).await
            }
            Change::EvaluationSource(_) => evaluation::source(self, boxed!(EvaluationSource)).await,
            Change::EvaluationCounted(_) => {
                evaluation::counted(self, rows!(EvaluationCounted)).await
            }
            Change::EvaluationHandedOut(_) => {
                evaluation::handed_out(self, rows!(EvaluationHandedOut)).await
            }
            Change::EvaluationEnded(_) => evaluation::ended(self, boxed!(EvaluationEnded)).await,
            Change::EvaluationWants(_) => evaluation::wants(self, rows!(EvaluationWants)).await,
            Change::EntryPoints(_) => evaluation::entry_points(self, rows!(EntryPoints)).await,
            Change::Message(_) => evaluation::messages(self, boxed!(Message)).await,
            Change::DerivationMentioned(_) => {
                build::mentioned(self, rows!(DerivationMentioned)).await
            }
            Change::DerivationRecorded(_) => {
                build::recorded(self, boxed!(DerivationRecorded)).await
            }
            Change::DependenciesRecorded(_) => {
                build::dependencies(self, rows!(DependenciesRecorded)).await
            }
            Change::BuildReady(_) => build::ready(self, rows!(BuildReady)).await,
            Change::BuildQueued(_) => build::queued(self, rows!(BuildQueued)).await,
            Change::BuildAssigned(_) => build::assigned(self, rows!(BuildAssigned)).await,
            Change::BuildReleased(_) => build::released(self, rows!(BuildReleased)).await,
            Change::BuildStarted(_) => build::started(self, rows!(BuildStarted)).await,
            Change::BuildSucceeded(_) => build::succeeded(self, rows!(BuildSucceeded)).await,
            Change::BuildEnded(_) => build::ended(self, boxed!(BuildEnded)).await,
            Change::BuildThawed(_) => build::thawed(self, rows!(BuildThawed)).await,
            Change::AttemptOpened(_) => job::attempt_opened(self, rows!(AttemptOpened)).await,
            Change::AttemptStarted(_) => job::attempt_started(self, rows!(AttemptStarted)).await,
            Change::AttemptOutput(_) => job::attempt_output(self, boxed!(AttemptOutput)).await,
            Change::AttemptEnded(_) => job::attempt_ended(self, boxed!(AttemptEnded)).await,
            Change::JobPending(_) => job::pending(self, rows!(JobPending)).await,
            Change::JobTaken(_) => job::taken(self, rows!(JobTaken)).await,
            Change::Dispatched(_) => job::dispatched(self, boxed!(Dispatched)).await,
            Change::DispatchAccepted(_) => job::accepted(self, rows!(DispatchAccepted)).await,
            Change::DispatchAborting(_) => job::aborting(self, rows!(DispatchAborting)).await,
            Change::DispatchEnded(_) => job::ended(self, boxed!(DispatchEnded)).await,
            Change::WorkerJoined(_) => fleet::joined(self, boxed!(WorkerJoined)).await,
            Change::WorkerRejected(_) => fleet::rejected(self, boxed!(WorkerRejected)).await,
            Change::WorkerCapabilities(_) => {
                fleet::capabilities(self, boxed!(WorkerCapabilities)).await
            }
            Change::WorkerFigures(_) => fleet::figures(self, boxed!(WorkerFigures)).await,
            Change::WorkerIdle(_) => fleet::idle(self, rows!(WorkerIdle)).await,
            Change::WorkerPresence(_) => fleet::presence(self, rows!(WorkerPresence)).await,
            Change::Anomaly(_) => fleet::anomalies(self, boxed!(Anomaly)).await,
            Change::Touched(_) => fleet::touched(self, rows!(Touched)).await,
        }
    }
}

/// Runs a statement over rows, each column an array made of them.
macro_rules! bulk {
    ($sink:expr, $sql:expr, $rows:expr, |$row:pat_param| [$($column:expr),+ $(,)?]) => {
        $sink
            .run($sql, vec![$(Box::new($rows.iter().map(|$row| $column).collect::<Vec<_>>())),+])
            .await
    };
}
use bulk;

/// A number of the log as the database holds it.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Text as the database takes it: it knows no NUL.
fn text(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

/// JSON as the database takes it: it knows no NUL.
fn json(value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).expect("values of the log are JSON");
    clean(&mut value);
    value
}

fn clean(value: &mut Value) {
    match value {
        Value::String(found) if found.contains('\0') => *found = text(found),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
