//! Connections and migrations.

use std::time::Duration;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};

/// The schema that readers see.
pub const SCHEMA: &str = "gradient";

/// Most connections of one process.
const CONNECTIONS_MAX: usize = 8;
/// How long a connection may take to come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Who migrates holds this advisory lock, so that processes that start together do so in turn.
const MIGRATION_LOCK: i64 = 0x6772_6164_0001;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Why the database does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The address is malformed.
    #[error(
        "the database address is malformed (expected such as 'host=/run/gradient user=gradient dbname=gradient')"
    )]
    Address(#[source] tokio_postgres::Error),
    /// No connection.
    #[error("the database cannot be reached")]
    Connection(#[source] PoolError),
    /// A statement failed.
    #[error("the database refused a statement")]
    Sql(#[from] tokio_postgres::Error),
    /// The tables are not those of this build.
    #[error(
        "the tables cannot be brought to this build's version; a rebuild makes them anew from the log"
    )]
    Migration(#[source] refinery::Error),
    /// A value in a table is none that this build knows.
    #[error("column {column} holds '{value}', which this build cannot read")]
    Value {
        /// Where.
        column: &'static str,
        /// What.
        value: String,
    },
}

impl From<PoolError> for DatabaseError {
    fn from(error: PoolError) -> Self {
        DatabaseError::Connection(error)
    }
}

impl DatabaseError {
    /// Whether trying again may help: the server was away, restarted, or full.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            DatabaseError::Connection(PoolError::Backend(error)) | DatabaseError::Sql(error) => {
                is_transient(error)
            }
            DatabaseError::Connection(PoolError::Timeout(_)) => true,
            DatabaseError::Connection(_)
            | DatabaseError::Address(_)
            | DatabaseError::Value { .. } => false,
            DatabaseError::Migration(error) => {
                let mut source = std::error::Error::source(error);
                while let Some(error) = source {
                    if error.downcast_ref::<tokio_postgres::Error>().is_some_and(is_transient) {
                        return true;
                    }
                    source = error.source();
                }
                false
            }
        }
    }
}

fn is_transient(error: &tokio_postgres::Error) -> bool {
    let io = std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    let code = error.code().map(SqlState::code).unwrap_or_default();
    // Classes: connection, resources, operator intervention (shutdown, crash, starting up); then lost
    // races for locks, and tables that are not there yet or that a rebuild is replacing.
    error.is_closed()
        || io
        || ["08", "53", "57"].iter().any(|class| code.starts_with(class))
        || ["40001", "40P01", "55P03", "42P01"].contains(&code)
}

/// The database, with a pool of connections that look at one schema.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    config: Config,
    schema: String,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Database {
    /// A database by its address, such as `host=/run/gradient user=gradient dbname=gradient` or a
    /// `postgresql://` URL. Connects when it is first used.
    ///
    /// # Errors
    /// If the address is malformed.
    pub fn new(address: &str) -> Result<Self, DatabaseError> {
        let mut config: Config = address.parse().map_err(DatabaseError::Address)?;
        config.connect_timeout(CONNECT_TIMEOUT);
        if config.get_application_name().is_none() {
            config.application_name("gradient");
        }
        Self::in_schema(config, SCHEMA)
    }

    fn in_schema(config: Config, schema: &str) -> Result<Self, DatabaseError> {
        let mut own = config.clone();
        let options = config.get_options().unwrap_or_default();
        own.options(format!("{options} -c search_path={schema}").trim_start());
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(own, NoTls, manager))
            .max_size(CONNECTIONS_MAX)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .expect("a runtime is given with the timeouts");
        Ok(Self { pool, config, schema: schema.to_owned() })
    }

    /// The same database, another schema.
    pub(crate) fn beside(&self, schema: &str) -> Result<Self, DatabaseError> {
        Self::in_schema(self.config.clone(), schema)
    }

    pub(crate) async fn client(&self) -> Result<Object, DatabaseError> {
        Ok(self.pool.get().await?)
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// If it does not.
    pub async fn ping(&self) -> Result<(), DatabaseError> {
        self.client().await?.simple_query("SELECT 1").await?;
        Ok(())
    }

    /// Creates the tables, or brings those of an older build to this one's version.
    ///
    /// # Errors
    /// If they belong to a newer build, or the database does not allow it.
    pub async fn migrate(&self) -> Result<(), DatabaseError> {
        // Out of the pool: the lock ends with the connection, whatever becomes of this call.
        let mut client = Object::take(self.client().await?);
        client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await?;
        self.create_schema(&client).await?;
        let mut runner = embedded::migrations::runner();
        runner.set_migration_table_name("schema_history");
        runner.run_async(&mut *client).await.map_err(DatabaseError::Migration)?;
        Ok(())
    }

    /// Creates the schema, if it is missing.
    pub(crate) async fn create_schema(
        &self,
        client: &tokio_postgres::Client,
    ) -> Result<(), DatabaseError> {
        let sql = format!("CREATE SCHEMA IF NOT EXISTS {}", self.schema);
        Ok(client.batch_execute(&sql).await?)
    }
}
