//! Derivations and what they need, read from the local store or the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gradient_daemon::Pool;
use gradient_daemon::nar::SingleFile;
use gradient_domain::derivation::DERIVATION_SIZE_MAX;
use gradient_domain::{Derivation, StorePath};

use crate::cache_client::{CacheClient, CacheError, TRANSFERS_MAX};

/// Derivations whose outputs are remembered.
const REMEMBERED_MAX: usize = 50_000;

/// Known outputs of one derivation, by name.
type Outputs = BTreeMap<String, Option<StorePath>>;

/// Outputs of derivations seen before: a `.drv` never changes.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<BTreeMap<StorePath, Outputs>>);

impl Memory {
    fn get(&self, path: &StorePath) -> Option<Outputs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    fn put(&self, path: StorePath, outputs: Outputs) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(path, outputs);
    }
}

/// Why a derivation or its inputs cannot be known.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be had.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// It is not well-formed.
    #[error("{path}: {source}")]
    Derivation {
        /// The derivation.
        path: StorePath,
        /// What is wrong.
        source: gradient_domain::derivation::ParseDerivationError,
    },
    /// An input's path is only known after its build.
    #[error(
        "output '{output}' of {path} has no known path; content-addressed derivations whose path is not fixed cannot be built"
    )]
    NoPath {
        /// The derivation.
        path: StorePath,
        /// The name of its output.
        output: String,
    },
}

/// Reads a derivation: from the local store if it is there, else from the cache, without adding it
/// to the store.
///
/// # Errors
/// If neither has it or it is not well-formed.
pub async fn derivation(
    pool: &Pool,
    cache: &CacheClient,
    path: &StorePath,
) -> Result<Derivation, InputError> {
    let limit = DERIVATION_SIZE_MAX as u64;
    let text = match local_file(pool, path, limit).await {
        Ok(Some(text)) => text,
        Ok(None) => cache.file(path, limit).await?,
        Err(error) => return Err(CacheError::daemon(path)(error).into()),
    };
    Derivation::parse(&text).map_err(|source| InputError::Derivation { path: path.clone(), source })
}

/// Contents of a file in the local store; `None` if it is not there.
async fn local_file(
    pool: &Pool,
    path: &StorePath,
    limit: u64,
) -> Result<Option<Vec<u8>>, gradient_daemon::Error> {
    let mut connection = pool.get().await?;
    if !connection.is_valid_path(path).await? {
        return Ok(None);
    }
    let nar = connection.nar_from_path(path).await?.read_all(limit + 1024).await?;
    match SingleFile::from_nar(&nar, limit) {
        Ok(text) => Ok(Some(text)),
        Err(fault) => Err(gradient_daemon::Error::Source {
            operation: "read derivation",
            source: std::io::Error::other(fault.to_string()),
        }),
    }
}

/// Every store path that building `derivation` needs: its sources and the outputs it uses of other
/// derivations.
pub(super) async fn inputs(
    pool: &Pool,
    cache: &CacheClient,
    memory: &Memory,
    derivation: &Derivation,
) -> Result<BTreeSet<StorePath>, InputError> {
    let mut inputs = derivation.input_srcs.clone();
    let mut input_drvs = derivation.input_drvs.iter();
    let mut asked = FuturesUnordered::new();
    loop {
        while asked.len() < TRANSFERS_MAX
            && let Some((path, names)) = input_drvs.next()
        {
            asked.push(used_outputs(pool, cache, memory, path, names));
        }
        match asked.next().await {
            Some(used) => inputs.extend(used?),
            None => break,
        }
    }
    Ok(inputs)
}

/// The paths of these outputs of a derivation.
async fn used_outputs(
    pool: &Pool,
    cache: &CacheClient,
    memory: &Memory,
    path: &StorePath,
    names: &BTreeSet<String>,
) -> Result<Vec<StorePath>, InputError> {
    let outputs = outputs_of(pool, cache, memory, path).await?;
    let known = |name: &String| match outputs.get(name) {
        Some(Some(output)) => Ok(output.clone()),
        Some(None) | None => Err(InputError::NoPath { path: path.clone(), output: name.clone() }),
    };
    names.iter().map(known).collect()
}

async fn outputs_of(
    pool: &Pool,
    cache: &CacheClient,
    memory: &Memory,
    path: &StorePath,
) -> Result<Outputs, InputError> {
    if let Some(outputs) = memory.get(path) {
        return Ok(outputs);
    }
    let derivation = derivation(pool, cache, path).await?;
    let outputs = derivation.outputs.into_iter().map(|(name, output)| (name, output.path));
    let outputs: Outputs = outputs.collect();
    memory.put(path.clone(), outputs.clone());
    Ok(outputs)
}
