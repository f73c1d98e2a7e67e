//! Changes as bulk statements: one per kind, rows as arrays.

mod build;
mod evaluation;
mod fleet;
mod job;

use gradient_projections::Change;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::ToSql;

use crate::plan::Group;

pub(crate) type Column = Box<dyn ToSql + Sync + Send>;

/// A statement with the arrays of its rows.
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) columns: Vec<Column>,
}

/// The statements of a group: one, but for walks, which are one each.
pub(crate) fn statements(group: &Group) -> Vec<Statement> {
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
    let Some(first) = group.changes.first() else { return Vec::new() };
    let statement = match first {
        Change::SettingsReplaced(_) => fleet::settings(rows!(SettingsReplaced)),
        Change::EvaluationRequested(_) => evaluation::requested(boxed!(EvaluationRequested)),
        Change::EvaluationAdvanced(_) => evaluation::advanced(rows!(EvaluationAdvanced)),
        Change::EvaluationWaits(_) => evaluation::waits(boxed!(EvaluationWaits)),
        Change::EvaluationRetries(_) => evaluation::retries(rows!(EvaluationRetries)),
        Change::EvaluationSource(_) => evaluation::source(boxed!(EvaluationSource)),
        Change::EvaluationCounted(_) => evaluation::counted(rows!(EvaluationCounted)),
        Change::EvaluationHandedOut(_) => evaluation::handed_out(rows!(EvaluationHandedOut)),
        Change::EvaluationEnded(_) => evaluation::ended(boxed!(EvaluationEnded)),
        Change::EvaluationWants(_) => return evaluation::wants(rows!(EvaluationWants)),
        Change::EntryPoints(_) => evaluation::entry_points(rows!(EntryPoints)),
        Change::Message(_) => evaluation::messages(boxed!(Message)),
        Change::DerivationMentioned(_) => build::mentioned(rows!(DerivationMentioned)),
        Change::DerivationRecorded(_) => build::recorded(boxed!(DerivationRecorded)),
        Change::DependenciesRecorded(_) => build::dependencies(rows!(DependenciesRecorded)),
        Change::BuildReady(_) => build::ready(rows!(BuildReady)),
        Change::BuildQueued(_) => build::queued(rows!(BuildQueued)),
        Change::BuildAssigned(_) => build::assigned(rows!(BuildAssigned)),
        Change::BuildReleased(_) => build::released(rows!(BuildReleased)),
        Change::BuildStarted(_) => build::started(rows!(BuildStarted)),
        Change::BuildSucceeded(_) => build::succeeded(rows!(BuildSucceeded)),
        Change::BuildEnded(_) => build::ended(boxed!(BuildEnded)),
        Change::BuildThawed(_) => build::thawed(rows!(BuildThawed)),
        Change::AttemptOpened(_) => job::attempt_opened(rows!(AttemptOpened)),
        Change::AttemptStarted(_) => job::attempt_started(rows!(AttemptStarted)),
        Change::AttemptOutput(_) => job::attempt_output(boxed!(AttemptOutput)),
        Change::AttemptEnded(_) => job::attempt_ended(boxed!(AttemptEnded)),
        Change::JobPending(_) => job::pending(rows!(JobPending)),
        Change::JobTaken(_) => job::taken(rows!(JobTaken)),
        Change::Dispatched(_) => job::dispatched(boxed!(Dispatched)),
        Change::DispatchAccepted(_) => job::accepted(rows!(DispatchAccepted)),
        Change::DispatchAborting(_) => job::aborting(rows!(DispatchAborting)),
        Change::DispatchEnded(_) => job::ended(boxed!(DispatchEnded)),
        Change::WorkerJoined(_) => fleet::joined(boxed!(WorkerJoined)),
        Change::WorkerRejected(_) => fleet::rejected(boxed!(WorkerRejected)),
        Change::WorkerCapabilities(_) => fleet::capabilities(boxed!(WorkerCapabilities)),
        Change::WorkerFigures(_) => fleet::figures(boxed!(WorkerFigures)),
        Change::WorkerIdle(_) => fleet::idle(rows!(WorkerIdle)),
        Change::WorkerPresence(_) => fleet::presence(rows!(WorkerPresence)),
        Change::Anomaly(_) => fleet::anomalies(boxed!(Anomaly)),
        Change::Touched(_) => fleet::touched(rows!(Touched)),
    };
    vec![statement]
}

/// A statement over rows, each column an array made of them.
macro_rules! bulk {
    ($sql:expr, $rows:expr, |$row:ident| [$($column:expr),+ $(,)?]) => {
        Statement {
            sql: $sql,
            columns: vec![$(Box::new($rows.iter().map(|$row| $column).collect::<Vec<_>>())),+],
        }
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

/// JSON as text, of values that hold numbers and names of ours alone.
fn plain_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("values of the log are JSON")
}

fn clean(value: &mut Value) {
    match value {
        Value::String(found) if found.contains('\0') => *found = text(found),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
