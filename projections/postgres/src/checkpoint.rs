//! The checkpoint: how far the tables are, of which log; also the fence between projectors.

use gradient_log::LogIdentity;
use tokio_postgres::GenericClient;

use crate::database::DatabaseError;

/// Name of the one projection there is.
pub(crate) const PROJECTION: &str = "fleet";

/// How far the tables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) log: LogIdentity,
    /// Sequence of the last message applied.
    pub(crate) sequence: u64,
}

/// Reads the checkpoint; a first start writes one at 0.
pub(crate) async fn load(
    client: &impl GenericClient,
    log: &LogIdentity,
) -> Result<Checkpoint, DatabaseError> {
    client
        .execute(
            "INSERT INTO projection_checkpoint (projection, stream, created_ns, seq) \
             VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING",
            &[&PROJECTION, &log.stream, &log.created_ns],
        )
        .await?;
    let row = client
        .query_one(
            "SELECT stream, created_ns, seq FROM projection_checkpoint WHERE projection = $1",
            &[&PROJECTION],
        )
        .await?;
    let log = LogIdentity { stream: row.try_get(0)?, created_ns: row.try_get(1)? };
    let sequence = u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or_default();
    Ok(Checkpoint { log, sequence })
}

/// The fence: moves the checkpoint if it still is where it was read. False: somebody else moved it.
pub(crate) async fn advance(
    client: &impl GenericClient,
    from: &Checkpoint,
    to: u64,
) -> Result<bool, DatabaseError> {
    let (from_seq, to_seq) = (crate::apply::int(from.sequence), crate::apply::int(to));
    let moved = client
        .execute(
            "UPDATE projection_checkpoint SET seq = $5 \
             WHERE projection = $1 AND stream = $2 AND created_ns = $3 AND seq = $4",
            &[&PROJECTION, &from.log.stream, &from.log.created_ns, &from_seq, &to_seq],
        )
        .await?;
    Ok(moved == 1)
}
