//! One build on this worker (reference 3.6): inputs down, build through the daemon, outputs up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gradient_daemon::{BuildResult, ClientOptions, Connection, LogEvent, Pool, Trust};
use gradient_domain::{Derivation, StorePath, nix_base32};
use gradient_events::FailureKind;
use tokio_util::sync::CancellationToken;

mod classify;
mod inputs;
mod log;

pub use classify::{classify, classify_refusal};
pub use inputs::{InputError, derivation};
pub use log::{LogLimits, LogSink, LogUpload, LogWriter, start as start_log};

use crate::cache_client::{CacheClient, CacheError, Uploaded};

/// Wall-clock limit of a build in seconds, unless the derivation or the job says otherwise.
pub const TIMEOUT_SECS_DEFAULT: u64 = 14_400;
/// Limit in seconds without a line of log, unless the derivation or the job says otherwise.
pub const MAX_SILENT_SECS_DEFAULT: u64 = 3_600;

/// Time that the daemon has to enforce the wall-clock limit before we do.
const TIMEOUT_GRACE: Duration = Duration::from_secs(60);

/// What to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRequest {
    /// The derivation.
    pub drv_path: StorePath,
    /// Wall-clock limit in seconds, 0 for none; `None` leaves it to the derivation and the default.
    pub timeout_secs: Option<u64>,
    /// Limit in seconds without a line of log, 0 for none; `None` as above.
    pub max_silent_secs: Option<u64>,
    /// Cores per build; 0 is all.
    pub cores: u32,
}

/// Where a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its inputs come into the local store.
    Prefetch,
    /// The builder runs.
    Build,
    /// Its outputs go into the cache.
    Upload,
}

/// One output of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltOutput {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: StorePath,
    /// SHA-256 of its NAR, `sha256:` and base 32.
    pub nar_hash: String,
    /// Size of its NAR in bytes.
    pub nar_size: u64,
}

/// A build that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildOutcome {
    /// What it made, at least one.
    pub outputs: Vec<BuiltOutput>,
    /// Whether nothing was built because all outputs were there.
    pub substituted: bool,
    /// Time in the builder, in milliseconds; 0 if nothing was built.
    pub build_time_ms: u64,
    /// NAR bytes that came from the cache for it.
    pub fetched_bytes: u64,
    /// Time that they took, in milliseconds.
    pub fetch_time_ms: u64,
}

/// A build that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFailure {
    /// In the closed list.
    pub kind: FailureKind,
    /// For people; at most 8 KiB.
    pub message: String,
    /// Inputs that could not be had.
    pub missing_paths: BTreeSet<StorePath>,
}

impl BuildFailure {
    fn new(kind: FailureKind, message: &str) -> Self {
        // The tail of the log that the daemon appends is in the log itself.
        let message = classify::cut(classify::head(message).trim_end_matches(';'));
        BuildFailure { kind, message, missing_paths: BTreeSet::new() }
    }
}

impl From<CacheError> for BuildFailure {
    fn from(error: CacheError) -> Self {
        let missing_paths = error.paths();
        let message = match (&error, missing_paths.first()) {
            (CacheError::NotInCache { .. }, Some(first)) => format!(
                "{} required input path(s) are missing from local store and not available in the \
                 gradient cache; cannot build (first: {first})",
                missing_paths.len()
            ),
            _ => error.in_full(),
        };
        BuildFailure { missing_paths, ..BuildFailure::new(error.failure_kind(), &message) }
    }
}

impl From<InputError> for BuildFailure {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Cache(error) => error.into(),
            InputError::Derivation { .. } | InputError::NoPath { .. } => {
                BuildFailure::new(FailureKind::Permanent, &error.to_string())
            }
        }
    }
}

fn daemon_failure(error: &gradient_daemon::Error) -> BuildFailure {
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {cause}");
    }
    BuildFailure::new(classify_refusal(error), &text)
}

/// Builds with one daemon and one cache.
#[derive(Debug)]
pub struct Builder {
    pool: Pool,
    cache: CacheClient,
    memory: inputs::Memory,
}

/// Limits of one build in seconds; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeLimits {
    timeout_secs: u64,
    max_silent_secs: u64,
}

impl TimeLimits {
    fn of(request: &BuildRequest, derivation: &Derivation) -> Self {
        let own = |given: Option<u64>, own: Option<u64>, default| given.or(own).unwrap_or(default);
        TimeLimits {
            timeout_secs: own(
                request.timeout_secs,
                derivation.timeout_secs(),
                TIMEOUT_SECS_DEFAULT,
            ),
            max_silent_secs: own(
                request.max_silent_secs,
                derivation.max_silent_secs(),
                MAX_SILENT_SECS_DEFAULT,
            ),
        }
    }
}

impl Builder {
    /// A builder over this daemon and this cache.
    #[must_use]
    pub fn new(pool: Pool, cache: CacheClient) -> Self {
        Builder { pool, cache, memory: inputs::Memory::default() }
    }

    /// Builds, unless everything is there already. The outputs are valid in the local store
    /// afterwards; [`Builder::upload`] brings them into the cache.
    ///
    /// When `cancel` is cancelled the builder is killed and the failure is
    /// [`FailureKind::Aborted`]; a worker that stops by itself reports it as `Canceled`.
    ///
    /// # Errors
    /// A failure of the closed list.
    pub async fn build(
        &self,
        request: &BuildRequest,
        log: &mut dyn LogSink,
        stage: &(dyn Fn(Stage) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<BuildOutcome, BuildFailure> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                let message = format!("build aborted by server: {}", request.drv_path);
                Err(BuildFailure::new(FailureKind::Aborted, &message))
            }
            result = self.run(request, log, stage) => result,
        }
    }

    /// Uploads the outputs and whatever they refer to, as far as the cache lacks it.
    ///
    /// # Errors
    /// A failure of the closed list; `Aborted` as in [`Builder::build`].
    pub async fn upload(
        &self,
        outcome: &BuildOutcome,
        token: &str,
        stage: &(dyn Fn(Stage) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<Uploaded, BuildFailure> {
        stage(Stage::Upload);
        let paths = outcome.outputs.iter().map(|output| output.path.clone()).collect();
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                Err(BuildFailure::new(FailureKind::Aborted, "upload aborted by server"))
            }
            result = self.cache.upload_closure(&self.pool, &paths, token) => {
                // Whatever hinders an upload says nothing of the build.
                result.map_err(|error| {
                    BuildFailure { kind: FailureKind::Transient, ..error.into() }
                })
            }
        }
    }

    async fn run(
        &self,
        request: &BuildRequest,
        log: &mut dyn LogSink,
        stage: &(dyn Fn(Stage) + Send + Sync),
    ) -> Result<BuildOutcome, BuildFailure> {
        stage(Stage::Prefetch);
        let path = &request.drv_path;
        let derivation = derivation(&self.pool, &self.cache, path).await?;
        let outputs = known_outputs(path, &derivation)?;
        let limits = TimeLimits::of(request, &derivation);
        let options = ClientOptions {
            cores: request.cores,
            timeout_secs: limits.timeout_secs,
            max_silent_secs: limits.max_silent_secs,
            ..ClientOptions::default()
        };
        let opened = self.pool.dedicated(&options).await;
        let mut connection = opened.map_err(|error| daemon_failure(&error))?;
        for (_, output) in &outputs {
            let kept = connection.add_temp_root(output).await;
            kept.map_err(|error| daemon_failure(&error))?;
        }
        if let Some(built) = self.look(&mut connection, &outputs).await? {
            return Ok(BuildOutcome {
                outputs: built,
                substituted: true,
                build_time_ms: 0,
                fetched_bytes: 0,
                fetch_time_ms: 0,
            });
        }
        let inputs = inputs::inputs(&self.pool, &self.cache, &self.memory, &derivation).await?;
        let mut wanted = inputs.clone();
        let is_trusted = connection.trust() == Trust::Trusted;
        if !is_trusted {
            wanted.insert(path.clone());
        }
        let fetched = self.cache.ensure_closure(&self.pool, &wanted, Some(&mut connection)).await?;
        stage(Stage::Build);
        let started = Instant::now();
        let work = async {
            match is_trusted {
                true => build_one(&mut connection, path, &derivation, &inputs, log).await,
                false => build_from_store(&mut connection, path, log).await,
            }
        };
        let result = within(limits.timeout_secs, work).await?;
        judge(&result, limits)?;
        let build_time_ms = as_ms(started.elapsed());
        match self.look(&mut connection, &outputs).await? {
            Some(outputs) => Ok(BuildOutcome {
                outputs,
                substituted: false,
                build_time_ms,
                fetched_bytes: fetched.nar_bytes,
                fetch_time_ms: as_ms(fetched.elapsed),
            }),
            None => Err(BuildFailure::new(
                FailureKind::Permanent,
                "the build succeeded but not all of its outputs are in the store",
            )),
        }
    }

    /// The outputs, if all are valid.
    async fn look(
        &self,
        connection: &mut Connection,
        outputs: &[(String, StorePath)],
    ) -> Result<Option<Vec<BuiltOutput>>, BuildFailure> {
        let mut built = Vec::with_capacity(outputs.len());
        for (name, path) in outputs {
            let info = connection.query_path_info(path).await;
            let Some(info) = info.map_err(|error| daemon_failure(&error))? else {
                return Ok(None);
            };
            built.push(BuiltOutput {
                name: name.clone(),
                path: path.clone(),
                nar_hash: format!("sha256:{}", nix_base32::encode(&info.nar_hash)),
                nar_size: info.nar_size,
            });
        }
        Ok(Some(built))
    }
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn known_outputs(
    path: &StorePath,
    derivation: &Derivation,
) -> Result<Vec<(String, StorePath)>, BuildFailure> {
    let known = derivation.outputs.iter().map(|(name, output)| match &output.path {
        Some(output) => Ok((name.clone(), output.clone())),
        None => Err(InputError::NoPath { path: path.clone(), output: name.clone() }.into()),
    });
    known.collect()
}

/// Only the lines go on; phases and the daemon's own messages do not.
fn lines(log: &mut dyn LogSink) -> impl FnMut(LogEvent) + Send {
    |event| match event {
        LogEvent::Line(line) => log.line(&line),
        LogEvent::Phase(_) | LogEvent::Message(_) => {}
    }
}

/// Builds exactly this derivation; the daemon trusts us.
async fn build_one(
    connection: &mut Connection,
    path: &StorePath,
    derivation: &Derivation,
    inputs: &BTreeSet<StorePath>,
    log: &mut dyn LogSink,
) -> Result<BuildResult, BuildFailure> {
    let result = connection.build_derivation(path, derivation, inputs, &mut lines(log)).await;
    result.map_err(|error| daemon_failure(&error))
}

/// Builds a derivation that is in the store with its closure. The daemon would also build what is
/// missing of its inputs, so that is ruled out first.
async fn build_from_store(
    connection: &mut Connection,
    path: &StorePath,
    log: &mut dyn LogSink,
) -> Result<BuildResult, BuildFailure> {
    let only = BTreeSet::from([path.clone()]);
    let missing = connection.query_missing(&only).await.map_err(|error| daemon_failure(&error))?;
    let mut others = missing.will_build;
    others.extend(missing.unknown);
    others.extend(missing.will_substitute);
    others.remove(path);
    if !others.is_empty() {
        return Err(CacheError::NotInCache { paths: others }.into());
    }
    let result = connection.build_path_with_results(path, &mut lines(log)).await;
    result.map_err(|error| daemon_failure(&error))
}

/// The daemon enforces the limit; should it hang, we do a little later, by dropping the connection.
async fn within<T>(
    timeout_secs: u64,
    work: impl Future<Output = Result<T, BuildFailure>>,
) -> Result<T, BuildFailure> {
    if timeout_secs == 0 {
        return work.await;
    }
    let limit = Duration::from_secs(timeout_secs).saturating_add(TIMEOUT_GRACE);
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(BuildFailure::new(FailureKind::Timeout, &exceeded(timeout_secs))),
    }
}

fn exceeded(timeout_secs: u64) -> String {
    format!("build exceeded wall-clock timeout of {timeout_secs}s")
}

fn judge(result: &BuildResult, limits: TimeLimits) -> Result<(), BuildFailure> {
    let Some(kind) = classify(result.status, &result.message) else {
        return Ok(());
    };
    let message = match kind {
        FailureKind::Timeout if result.message.contains("silence") => {
            format!("build produced no output for {}s (maxSilent exceeded)", limits.max_silent_secs)
        }
        FailureKind::Timeout => exceeded(limits.timeout_secs),
        _ if result.message.is_empty() => format!("the build ended as {:?}", result.status),
        _ => result.message.clone(),
    };
    Err(BuildFailure::new(kind, &message))
}
