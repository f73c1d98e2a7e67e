//! Copies of a cache: for other machines, and one that `nix` itself reads.

use std::fs;
use std::io;
use std::path::Path;

use rusqlite::Connection;

use crate::file::{CacheError, EvalCache, remove_files, remove_sides, with_suffix};

/// Why a cache was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The cache does not answer.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The copy cannot be written.
    #[error("the copy cannot be written")]
    Io(#[from] io::Error),
}

/// Writes a copy with Nix's table alone to `target`, in one step: whoever reads it sees the old file
/// or the new one. Nix names its files by its own fingerprint of the flake. Gives the number of
/// attributes.
///
/// # Errors
/// If the cache does not answer or the copy cannot be written.
pub fn export(cache: &EvalCache, target: &Path) -> Result<u64, ExportError> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let copy = with_suffix(target, &format!(".{}.tmp", std::process::id()));
    snapshot(cache, &copy)?;
    let attributes = strip(&copy)?;
    // What Nix keeps beside an older file does not belong to the new one.
    remove_sides(target)?;
    fs::rename(&copy, target)?;
    Ok(attributes)
}

/// Writes a copy as one plain file, as it is now, whoever writes to the cache meanwhile.
///
/// # Errors
/// If the cache does not answer or the copy cannot be written.
pub fn snapshot(cache: &EvalCache, copy: &Path) -> Result<(), ExportError> {
    remove_files(copy)?;
    let name = copy.to_string_lossy().into_owned();
    cache.connection.execute("vacuum into ?", [name]).map_err(CacheError::from)?;
    Ok(())
}

/// Takes our own tables out of a copy.
fn strip(copy: &Path) -> Result<u64, CacheError> {
    let connection = Connection::open(copy)?;
    connection.pragma_update(None, "journal_mode", "delete")?;
    connection.execute_batch(
        "drop table GradientCache; drop table GradientNode; drop table GradientOutline; \
         drop table GradientComplete; drop table GradientWarning; \
         delete from Attributes where parent < 0; vacuum;",
    )?;
    Ok(connection.query_row("select count(*) from Attributes", [], |row| row.get(0))?)
}
