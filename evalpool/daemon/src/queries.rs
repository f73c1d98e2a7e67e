//! Questions about paths, and roots that keep them.

use std::collections::BTreeSet;

use gradient_domain::StorePath;

use crate::connection::Connection;
use crate::error::{Error, during};
use crate::path_info::PathInfo;
use crate::wire::Encoder;

const IS_VALID_PATH: u64 = 1;
const ADD_TEMP_ROOT: u64 = 11;
const ADD_INDIRECT_ROOT: u64 = 12;
const QUERY_PATH_INFO: u64 = 26;
const QUERY_VALID_PATHS: u64 = 31;
const QUERY_MISSING: u64 = 40;

/// What building some derivations would take.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Missing {
    /// Derivations that would be built.
    pub will_build: BTreeSet<StorePath>,
    /// Paths that would be downloaded.
    pub will_substitute: BTreeSet<StorePath>,
    /// Paths that nobody knows.
    pub unknown: BTreeSet<StorePath>,
    /// Bytes to download.
    pub download_bytes: u64,
    /// NAR bytes of the paths to download.
    pub nar_bytes: u64,
}

/// Something that can be had: a path as it is, or outputs of a derivation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DerivedPath {
    /// A store path, from wherever it comes.
    Opaque(StorePath),
    /// Outputs of a derivation, by their names.
    Built(StorePath, BTreeSet<String>),
}

impl std::fmt::Display for DerivedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DerivedPath::Opaque(path) => path.fmt(f),
            DerivedPath::Built(drv, outputs) => {
                let outputs: Vec<_> = outputs.iter().map(String::as_str).collect();
                write!(f, "{drv}!{}", outputs.join(","))
            }
        }
    }
}

impl Connection {
    /// Whether a path is valid.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn is_valid_path(&mut self, path: &StorePath) -> Result<bool, Error> {
        const OPERATION: &str = "is valid path";
        let request = Encoder::operation(IS_VALID_PATH).path(path);
        self.begin(OPERATION, request, &mut |_| {}).await?;
        let is_valid = self.from.flag().await.map_err(during(OPERATION))?;
        self.end();
        Ok(is_valid)
    }

    /// Those of `paths` that are valid, without downloading any.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn query_valid_paths(
        &mut self,
        paths: &BTreeSet<StorePath>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        const OPERATION: &str = "query valid paths";
        if paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        let request = Encoder::operation(QUERY_VALID_PATHS).paths(paths).flag(false);
        self.begin(OPERATION, request, &mut |_| {}).await?;
        let valid = self.from.paths().await.map_err(during(OPERATION))?;
        self.end();
        Ok(valid)
    }

    /// Metadata of a path, or `None` if it is not valid.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn query_path_info(&mut self, path: &StorePath) -> Result<Option<PathInfo>, Error> {
        const OPERATION: &str = "query path info";
        let lost = during(OPERATION);
        let request = Encoder::operation(QUERY_PATH_INFO).path(path);
        self.begin(OPERATION, request, &mut |_| {}).await?;
        let info = match self.from.flag().await.map_err(&lost)? {
            true => Some(PathInfo::decode(&mut self.from).await.map_err(&lost)?),
            false => None,
        };
        self.end();
        Ok(info)
    }

    /// Keeps a path from being collected as long as this connection lives. The path need not be
    /// valid yet.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn add_temp_root(&mut self, path: &StorePath) -> Result<(), Error> {
        let request = Encoder::operation(ADD_TEMP_ROOT).path(path);
        self.simple("add temporary root", request).await
    }

    /// Registers a symlink to a store path as a root that outlives the connection.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn add_indirect_root(&mut self, link: &std::path::Path) -> Result<(), Error> {
        use std::os::unix::ffi::OsStrExt as _;
        let request = Encoder::operation(ADD_INDIRECT_ROOT).bytes(link.as_os_str().as_bytes());
        self.simple("add indirect root", request).await
    }

    /// What building all outputs of the derivations would take.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn query_missing(
        &mut self,
        derivations: &BTreeSet<StorePath>,
    ) -> Result<Missing, Error> {
        self.missing(derivations.iter().map(|drv| format!("{drv}!*")).collect()).await
    }

    /// What it would take to have all of these.
    ///
    /// # Errors
    /// If the connection breaks or the daemon refuses.
    pub async fn query_missing_paths(
        &mut self,
        wanted: &BTreeSet<DerivedPath>,
    ) -> Result<Missing, Error> {
        self.missing(wanted.iter().map(DerivedPath::to_string).collect()).await
    }

    async fn missing(&mut self, wanted: Vec<String>) -> Result<Missing, Error> {
        const OPERATION: &str = "query missing";
        let lost = during(OPERATION);
        let request = Encoder::operation(QUERY_MISSING).list(&wanted);
        self.begin(OPERATION, request, &mut |_| {}).await?;
        let missing = Missing {
            will_build: self.from.paths().await.map_err(&lost)?,
            will_substitute: self.from.paths().await.map_err(&lost)?,
            unknown: self.from.paths().await.map_err(&lost)?,
            download_bytes: self.from.number().await.map_err(&lost)?,
            nar_bytes: self.from.number().await.map_err(&lost)?,
        };
        self.end();
        Ok(missing)
    }

    /// An operation that answers 1.
    async fn simple(&mut self, operation: &'static str, request: Encoder) -> Result<(), Error> {
        self.begin(operation, request, &mut |_| {}).await?;
        self.from.number().await.map_err(during(operation))?;
        self.end();
        Ok(())
    }
}
