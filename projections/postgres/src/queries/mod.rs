//! What the api asks. Every list is a page with a limit and a cursor.

mod build;
mod evaluation;
mod job;
mod status;
mod worker;

pub use build::{build, build_of_derivation, builds_of_evaluation};
pub use evaluation::{entry_points, evaluation, evaluations, messages};
pub use job::{dispatched_jobs, is_running, pending_jobs};
pub use status::{anomalies, counts, position};
pub use worker::workers;

use std::str::FromStr;

use gradient_domain::Timestamp;
use gradient_projections::view::{PAGE_MAX, Page};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::FromSqlOwned;

use crate::database::DatabaseError;

/// Which part of a list.
#[derive(Clone, Debug)]
pub struct Paging {
    /// `next` of the page before.
    pub after: Option<String>,
    /// Most items; more than 500 are 500.
    pub limit: u32,
}

impl Default for Paging {
    fn default() -> Self {
        Self { after: None, limit: 100 }
    }
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The cursor is none that a page of this list gave.
    #[error("'{cursor}' is no cursor of this list; take `next` of the page before")]
    Cursor {
        /// What was given.
        cursor: String,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<tokio_postgres::Error> for QueryError {
    fn from(error: tokio_postgres::Error) -> Self {
        QueryError::Database(error.into())
    }
}

impl Paging {
    /// Rows to ask for: one more than the page holds tells whether another page follows.
    fn rows(&self) -> i64 {
        i64::from(self.limit.clamp(1, PAGE_MAX)) + 1
    }

    /// The cursor as a value.
    fn cursor<T: FromStr>(&self) -> Result<Option<T>, QueryError> {
        let parse = |cursor: &String| {
            cursor
                .parse()
                .map_err(|_| QueryError::Cursor { cursor: cursor.chars().take(80).collect() })
        };
        self.after.as_ref().map(parse).transpose()
    }

    /// Makes the page of rows and their cursors.
    fn page<T>(&self, mut rows: Vec<(String, T)>) -> Page<T> {
        let limit = self.limit.clamp(1, PAGE_MAX) as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().map(|(cursor, _)| cursor.clone()).filter(|_| has_more);
        Page { items: rows.into_iter().map(|(_, item)| item).collect(), next }
    }
}

/// Reading of columns as typed values.
trait Columns {
    fn column<T: FromSqlOwned>(&self, name: &'static str) -> Result<T, DatabaseError>;
    fn number(&self, name: &'static str) -> Result<u64, DatabaseError>;
    fn time(&self, name: &'static str) -> Result<Timestamp, DatabaseError>;
    fn maybe_time(&self, name: &'static str) -> Result<Option<Timestamp>, DatabaseError>;
    fn parsed<T: FromStr>(&self, name: &'static str) -> Result<T, DatabaseError>;
    fn maybe_parsed<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, DatabaseError>;
    fn json<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, DatabaseError>;
    fn maybe_json<T: DeserializeOwned>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, DatabaseError>;
}

fn unreadable(column: &'static str, value: &str) -> DatabaseError {
    DatabaseError::Value { column, value: value.chars().take(200).collect() }
}

impl Columns for Row {
    fn column<T: FromSqlOwned>(&self, name: &'static str) -> Result<T, DatabaseError> {
        Ok(self.try_get(name)?)
    }

    fn number(&self, name: &'static str) -> Result<u64, DatabaseError> {
        let number: i64 = self.column(name)?;
        u64::try_from(number).map_err(|_| unreadable(name, &number.to_string()))
    }

    fn time(&self, name: &'static str) -> Result<Timestamp, DatabaseError> {
        self.number(name).map(Timestamp)
    }

    fn maybe_time(&self, name: &'static str) -> Result<Option<Timestamp>, DatabaseError> {
        let at: Option<i64> = self.column(name)?;
        Ok(at.map(|at| Timestamp(at.max(0).cast_unsigned())))
    }

    fn parsed<T: FromStr>(&self, name: &'static str) -> Result<T, DatabaseError> {
        let text: String = self.column(name)?;
        text.parse().map_err(|_| unreadable(name, &text))
    }

    fn maybe_parsed<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, DatabaseError> {
        let text: Option<String> = self.column(name)?;
        text.map(|text| text.parse().map_err(|_| unreadable(name, &text))).transpose()
    }

    fn json<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, DatabaseError> {
        let value: serde_json::Value = self.column(name)?;
        serde_json::from_value(value).map_err(|error| unreadable(name, &error.to_string()))
    }

    fn maybe_json<T: DeserializeOwned>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, DatabaseError> {
        let value: Option<serde_json::Value> = self.column(name)?;
        value
            .map(|value| {
                serde_json::from_value(value).map_err(|error| unreadable(name, &error.to_string()))
            })
            .transpose()
    }
}

/// A build id from a column.
fn build_id(number: i64) -> gradient_domain::BuildId {
    gradient_domain::BuildId(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Reads rows into items with their cursors.
fn read<T>(
    rows: &[Row],
    item: impl Fn(&Row) -> Result<(String, T), DatabaseError>,
) -> Result<Vec<(String, T)>, DatabaseError> {
    rows.iter().map(item).collect()
}

/// Place of a row in the log: entry and ordinal.
struct Place(i64, i32, i32);

impl Place {
    fn of(row: &Row) -> Result<Self, DatabaseError> {
        Ok(Self(row.column("log_sequence")?, row.column("log_index")?, row.column("ordinal")?))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.0, self.1, self.2)
    }
}

impl std::str::FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(());
        let place = Self(
            next()?.parse().map_err(drop)?,
            next()?.parse().map_err(drop)?,
            next()?.parse().map_err(drop)?,
        );
        if parts.next().is_some() { Err(()) } else { Ok(place) }
    }
}
