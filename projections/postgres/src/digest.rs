//! Digests of the tables: equal folds have equal digests, whatever the order of rows on disk.

use std::collections::BTreeMap;

use crate::database::{Database, DatabaseError};

/// What is in the tables, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Sequence of the last message applied.
    pub position: u64,
    /// Rows and digest of each table.
    pub tables: BTreeMap<String, TableDigest>,
    /// Digest of all tables together.
    pub total: String,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDigest {
    /// Its rows.
    pub rows: u64,
    /// Its digest, hexadecimal.
    pub digest: String,
}

/// Digests every table of the read models, all of the same moment.
///
/// # Errors
/// If the database fails.
pub async fn digest(database: &Database) -> Result<Digest, DatabaseError> {
    let mut client = database.client().await?;
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let sql = "SELECT table_name::text FROM information_schema.tables \
         WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' \
           AND table_name NOT IN ('schema_history', 'projection_checkpoint') ORDER BY 1";
    let names = transaction.query(sql, &[]).await?;
    let mut tables = BTreeMap::new();
    for name in names {
        let name: String = name.try_get(0)?;
        // A sum does not mind the order; two hashes of each row make 128 bits.
        let sql = format!(
            "SELECT count(*), md5(coalesce(sum(hashtextextended(t::text, 1)::numeric), 0)::text || '/' || \
             coalesce(sum(hashtextextended(t::text, 2)::numeric), 0)::text || '/' || count(*)) \
             FROM {name} AS t"
        );
        let row = transaction.query_one(&sql, &[]).await?;
        let rows = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or_default();
        tables.insert(name, TableDigest { rows, digest: row.try_get(1)? });
    }
    let all: Vec<String> =
        tables.iter().map(|(name, table)| format!("{name} {}", table.digest)).collect();
    let row = transaction
        .query_one(
            "SELECT md5($1), coalesce((SELECT max(seq) FROM projection_checkpoint), 0)",
            &[&all.join("\n")],
        )
        .await?;
    let position = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default();
    Ok(Digest { position, tables, total: row.try_get(0)? })
}
