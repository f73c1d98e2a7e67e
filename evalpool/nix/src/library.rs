//! Finding and opening Nix's C libraries.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::ffi::{Api, MINOR_FIRST, MINOR_LAST};

/// Environment variable with the folder of the libraries, at run time and, as a default set by
/// packaging, at build time.
pub const LIB_DIR_VARIABLE: &str = "GRADIENT_NIX_LIB_DIR";

const DEFAULT_DIR: &str = "/opt/gradient-nix/lib";
const LIBRARIES: [&str; 4] = ["libnixutilc", "libnixstorec", "libnixexprc", "libnixflakec"];

/// Why Nix cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A library is nowhere, or cannot be opened.
    #[error("Nix's C library {name} cannot be loaded (searched: {searched}): {reason}")]
    Open {
        /// Name without suffix.
        name: &'static str,
        /// Folders, in order.
        searched: String,
        /// What the loader said.
        reason: String,
    },
    /// A function is missing.
    #[error("Nix's C API has no function {name}; Nix 2.26 to 2.36 is needed")]
    MissingFunction {
        /// Name in the header.
        name: &'static str,
    },
    /// The version is unknown to us.
    #[error("Nix {version} is not supported; the C API of Nix 2.26 to 2.36 is needed")]
    Version {
        /// What the library says it is.
        version: String,
    },
}

/// The opened libraries. They stay open until the process ends.
pub struct Nix {
    pub(crate) api: Api,
    version: String,
}

impl Nix {
    /// Opens the libraries and checks their version. Search order: the folder given, the folder in
    /// `GRADIENT_NIX_LIB_DIR`, the folder compiled in, `/opt/gradient-nix/lib`, the loader's path.
    ///
    /// # Errors
    /// If a library or function is missing or the version is not supported.
    pub fn load(lib_dir: Option<&Path>) -> Result<&'static Nix, LoadError> {
        let folders = search_folders(lib_dir);
        let mut libraries = Vec::new();
        for name in LIBRARIES {
            libraries.push(open(name, &folders)?);
        }
        // SAFETY: these are Nix's C libraries by name; their version is checked below, before any
        // function but `nix_version_get` is called, whose prototype is the same in all versions.
        let api = unsafe { Api::resolve(&libraries) }?;
        // Libraries are never closed: Nix has global state and the table points into them.
        std::mem::forget(libraries);
        // SAFETY: takes nothing and returns a static, null-terminated string.
        let version = unsafe { CStr::from_ptr((api.nix_version_get)()) };
        let version = version.to_string_lossy().into_owned();
        let Some(minor) = supported_minor(&version) else {
            return Err(LoadError::Version { version });
        };
        if let Some(name) = api.missing_optional(minor).first() {
            return Err(LoadError::MissingFunction { name });
        }
        Ok(Box::leak(Box::new(Nix { api, version })))
    }

    /// The version of the loaded Nix, such as `2.26.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The file of the evaluator's library that [`Nix::load`] takes first; `None` if the loader's own
/// path decides.
#[must_use]
pub fn locate(lib_dir: Option<&Path>) -> Option<PathBuf> {
    search_folders(lib_dir).iter().find_map(|folder| find_file(folder, "libnixexprc"))
}

/// The minor version of a Nix 2 that is supported.
pub(crate) fn supported_minor(version: &str) -> Option<u32> {
    let minor = version.strip_prefix("2.")?;
    let digits = minor.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|minor| (MINOR_FIRST..=MINOR_LAST).contains(minor))
}

fn search_folders(explicit: Option<&Path>) -> Vec<PathBuf> {
    if let Some(folder) = explicit {
        return with_multiarch(folder);
    }
    let at_run_time = std::env::var_os(LIB_DIR_VARIABLE).map(PathBuf::from);
    let compiled_in = option_env!("GRADIENT_NIX_LIB_DIR").map(PathBuf::from);
    [at_run_time, compiled_in, Some(PathBuf::from(DEFAULT_DIR))]
        .into_iter()
        .flatten()
        .filter(|folder| !folder.as_os_str().is_empty())
        .flat_map(|folder| with_multiarch(&folder))
        .collect()
}

fn with_multiarch(folder: &Path) -> Vec<PathBuf> {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    vec![folder.to_owned(), folder.join(triple)]
}

fn open(name: &'static str, folders: &[PathBuf]) -> Result<Library, LoadError> {
    let mut candidates: Vec<_> = folders.iter().filter_map(|dir| find_file(dir, name)).collect();
    candidates.push(PathBuf::from(format!("{name}.so")));
    let mut reasons = Vec::new();
    for file in candidates {
        // SAFETY: Nix's libraries run static initialisers only, which need no preparation.
        // Global symbols, because type information and registrations are shared between them.
        match unsafe { Library::open(Some(&file), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return Ok(library),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let searched: Vec<_> = folders.iter().map(|dir| dir.display().to_string()).collect();
    let searched = format!("{}, the loader's path", searched.join(", "));
    Err(LoadError::Open { name, searched, reason: reasons.join("; ") })
}

/// `<name>.so` in this folder, else the first `<name>.so.<version>`.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = folder.join(format!("{name}.so"));
    if plain.exists() {
        return Some(plain);
    }
    let versioned = format!("{name}.so.");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&versioned))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_versions() {
        let rows = [
            ("2.26.3", true),
            ("2.36.0", true),
            ("2.36.0pre20260101_abc", true),
            ("2.28", true),
            ("2.36pre", true),
            ("2.25.4", false),
            ("2.37.0", false),
            ("3.26.0", false),
            ("2", false),
            ("", false),
        ];
        for (version, expected) in rows {
            assert_eq!(supported_minor(version).is_some(), expected, "{version}");
        }
    }

    #[test]
    fn a_folder_without_nix_is_named_in_the_error() {
        let error = Nix::load(Some(Path::new("/nonexistent/nix"))).err();
        if let Some(error) = error {
            let text = error.to_string();
            assert!(text.contains("libnixutilc") && text.contains("/nonexistent/nix"), "{text}");
        }
    }
}
