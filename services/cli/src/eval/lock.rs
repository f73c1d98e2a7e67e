//! The locked reference of a flake.

use anyhow::Context as _;

use super::store::Store;
use crate::exit::{Code, Failure};
use crate::up::programs;

/// The locked reference of a flake, by the `nix` of the set-up.
pub(super) fn lock(flake: &str, store: &Store) -> Result<String, Failure> {
    let nix = programs::find_nix().ok_or_else(|| {
        Failure::unavailable(anyhow::anyhow!("nix is missing"))
            .hint("run `make setup`, which installs it")
    })?;
    let flake = match flake.strip_prefix("path:") {
        Some(folder) => format!("path:{}", absolute(folder)?),
        None if flake.starts_with('.') => absolute(flake)?,
        None => flake.to_owned(),
    };
    let output = std::process::Command::new(nix)
        .args(["--extra-experimental-features", "nix-command flakes", "--store", &store.uri])
        .args(["--option", "flake-registry", "", "--option", "warn-dirty", "false"])
        .args(["flake", "metadata", "--json", "--no-write-lock-file", "--", &flake])
        .env("NO_COLOR", "1")
        .output()
        .context("nix cannot be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::new(
            Code::Failed,
            anyhow::anyhow!("locking flake reference '{flake}' failed: {said}"),
        ));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("Nix's answer is not understood")?;
    let url = metadata["url"].as_str().context("Nix's answer names no locked reference")?;
    Ok(url.to_owned())
}

fn absolute(folder: &str) -> Result<String, Failure> {
    let path = std::fs::canonicalize(folder)
        .map_err(|error| Failure::usage(format!("there is no flake at '{folder}': {error}")))?;
    Ok(path.to_string_lossy().into_owned())
}
