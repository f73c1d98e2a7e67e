//! `gradient eval-cache`: the evaluation caches of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use gradient_evalcache::{EvalCache, Finding, Folder, Kept};
use gradient_pool::settings::EVAL_CACHE_FOLDER;
use serde_json::{Value, json};

use crate::exit::{Code, Failure};
use crate::say;
use crate::up::programs;

/// Show, check and remove the evaluation caches of this machine
///
/// `gradient eval` keeps what it found of a locked flake below the data directory, workers below their
/// base directory (name it with --dir). A cache that is removed or damaged costs one evaluation.
#[derive(Debug, Args)]
pub(crate) struct EvalCacheArgs {
    /// Folder of the caches; that of `gradient eval` if absent
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: EvalCacheCommand,
}

#[derive(Debug, Subcommand)]
enum EvalCacheCommand {
    /// List the caches, the one used last first
    Ls,
    /// Look at every page of every cache; exit code 1 if one is of no use
    Check,
    /// Remove caches: all of them, or those that were not used for some days
    Purge {
        /// Only what was not used for so many days
        #[arg(long, value_name = "DAYS")]
        unused_days: Option<u64>,
        /// Only caches whose fingerprint begins so
        #[arg(value_name = "FINGERPRINT")]
        fingerprint: Option<String>,
    },
    /// Copy the cache of a flake to where `nix` looks for its own, so that `nix build` evaluates nothing
    Export {
        /// The flake, as it was given to `gradient eval`
        #[arg(value_name = "REF")]
        flake: String,
        /// The store that it was evaluated into, as it was given to `gradient eval`
        #[arg(long, value_name = "URI")]
        store: Option<String>,
    },
}

/// Where `gradient eval` keeps its caches.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("eval-cache").join(EVAL_CACHE_FOLDER)
}

pub(crate) async fn run(data_dir: &Path, args: EvalCacheArgs) -> Result<(), Failure> {
    let folder = Folder::new(args.dir.unwrap_or_else(|| folder(data_dir)));
    match args.command {
        EvalCacheCommand::Ls => list(&folder, args.json),
        EvalCacheCommand::Check => check(&folder, args.json),
        EvalCacheCommand::Purge { unused_days, fingerprint } => {
            purge(&folder, unused_days, fingerprint.as_deref().unwrap_or_default(), args.json)
        }
        EvalCacheCommand::Export { flake, store } => {
            export(data_dir, &folder, &flake, store.as_deref(), args.json).await
        }
    }
}

fn unused_ms(kept: &Kept) -> u64 {
    let unused = SystemTime::now().duration_since(kept.used_at).unwrap_or_default();
    u64::try_from(unused.as_millis()).unwrap_or(u64::MAX)
}

fn line(kept: &Kept) -> Value {
    json!({
        "fingerprint": kept.fingerprint,
        "path": kept.path,
        "bytes": kept.bytes,
        "unused_ms": unused_ms(kept),
    })
}

fn list(folder: &Folder, as_json: bool) -> Result<(), Failure> {
    let caches = folder.list().map_err(Failure::unavailable)?;
    if as_json {
        for kept in &caches {
            say::json(&line(kept))?;
        }
        return Ok(());
    }
    let mut rows = vec![["FINGERPRINT", "SIZE", "UNUSED FOR"].map(str::to_owned).to_vec()];
    rows.extend(caches.iter().map(|kept| {
        let size = format!("{} KiB", kept.bytes.div_ceil(1024));
        vec![kept.fingerprint.clone(), size, say::duration(unused_ms(kept))]
    }));
    say::table(&rows);
    Ok(())
}

fn check(folder: &Folder, as_json: bool) -> Result<(), Failure> {
    let mut useless = 0;
    for kept in folder.list().map_err(Failure::unavailable)? {
        let finding = folder.check(&kept.fingerprint).map_err(Failure::unavailable)?;
        let (is_well, text, attributes, requests) = match finding {
            Finding::Well { attributes, requests } => {
                (true, format!("well, {attributes} attributes"), Some(attributes), requests)
            }
            Finding::Useless(why) => (false, format!("of no use: {why}"), None, Vec::new()),
        };
        useless += usize::from(!is_well);
        if as_json {
            let mut line = line(&kept);
            line["is_well"] = json!(is_well);
            line["attributes"] = json!(attributes);
            line["complete"] = json!(requests);
            line["message"] = json!(text);
            say::json(&line)?;
        } else {
            say::line(format_args!("{}  {}", kept.fingerprint, say::plain(&text)));
            for request in requests {
                say::line(format_args!("  complete: {}", say::plain(&request)));
            }
        }
    }
    match useless {
        0 => Ok(()),
        count => {
            let error = anyhow::anyhow!("{count} of the caches are of no use");
            let hint =
                "the next evaluation makes them anew; `gradient eval-cache purge` removes them";
            Err(Failure::new(Code::Failed, error).hint(hint))
        }
    }
}

fn purge(
    folder: &Folder,
    unused_days: Option<u64>,
    begin: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let age = Duration::from_secs(unused_days.unwrap_or(0).saturating_mul(24 * 60 * 60));
    let is_old = |kept: &Kept| u128::from(unused_ms(kept)) >= age.as_millis();
    let removed = folder.purge(|kept| kept.fingerprint.starts_with(begin) && is_old(kept));
    let removed = removed.map_err(Failure::unavailable)?;
    let bytes: u64 = removed.iter().map(|kept| kept.bytes).sum();
    if as_json {
        for kept in &removed {
            say::json(&line(kept))?;
        }
        return Ok(());
    }
    say::line(format_args!("{} caches removed, {} KiB", removed.len(), bytes.div_ceil(1024)));
    Ok(())
}

async fn export(
    data_dir: &Path,
    folder: &Folder,
    flake: &str,
    store: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let cache = crate::eval::cache_of(data_dir, flake, store).await?;
    let path = folder.file(cache.fingerprint());
    let opened = EvalCache::open_existing(&path, cache.fingerprint());
    let Some(opened) = opened.map_err(Failure::unavailable)? else {
        let error = anyhow::anyhow!("there is no cache of '{}'", say::plain(flake));
        return Err(Failure::new(Code::NotFound, error).hint("`gradient eval` makes it"));
    };
    let target = nix_cache_file(flake)?;
    let attributes = gradient_evalcache::export(&opened, &target).map_err(Failure::unavailable)?;
    if as_json {
        return Ok(say::json(&json!({ "path": target, "attributes": attributes }))?);
    }
    say::line(format_args!("{attributes} attributes to {}", target.display()));
    Ok(())
}

/// Where `nix` looks for its own cache of a flake.
fn nix_cache_file(flake: &str) -> Result<PathBuf, Failure> {
    let nix = programs::find_nix().ok_or_else(|| {
        Failure::unavailable(anyhow::anyhow!("nix is missing"))
            .hint("run `make setup`, which installs it")
    })?;
    let said = |arguments: &[&str]| -> Result<Vec<u8>, Failure> {
        let output =
            Command::new(&nix).args(arguments).output().context("nix cannot be started")?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::new(Code::Failed, anyhow::anyhow!("nix says: {}", say::plain(&said))))
    };
    let version = String::from_utf8_lossy(&said(&["--version"])?).into_owned();
    let features = "nix-command flakes";
    let metadata = said(&[
        "--extra-experimental-features",
        features,
        "flake",
        "metadata",
        "--json",
        "--no-write-lock-file",
        "--",
        flake,
    ])?;
    let metadata: Value =
        serde_json::from_slice(&metadata).context("Nix's answer is not understood")?;
    let Some(fingerprint) = metadata["fingerprint"].as_str() else {
        let error = anyhow::anyhow!("'{flake}' is not locked, so `nix` keeps no cache of it");
        return Err(Failure::new(Code::Failed, error));
    };
    let is_hex = fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fingerprint.is_empty() || !is_hex {
        return Err(anyhow::anyhow!("Nix's answer is not understood").into());
    }
    let folder = nix_cache_home().context("there is no home folder; set NIX_CACHE_HOME")?;
    Ok(folder.join(nix_cache_folder(&version)).join(format!("{fingerprint}.sqlite")))
}

fn nix_cache_home() -> Option<PathBuf> {
    let named =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("NIX_CACHE_HOME")
        .or_else(|| Some(named("XDG_CACHE_HOME")?.join("nix")))
        .or_else(|| Some(named("HOME")?.join(".cache/nix")))
}

/// The name of the folder changed with Nix 2.31.
fn nix_cache_folder(version: &str) -> &'static str {
    let minor = version
        .split_whitespace()
        .find_map(|word| word.strip_prefix("2."))
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok());
    match minor {
        Some(minor) if minor < 31 => "eval-cache-v5",
        Some(_) | None => "eval-cache-v6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nix_keeps_its_caches_by_version() {
        let rows = [
            ("nix (Nix) 2.26.3", "eval-cache-v5"),
            ("nix (Nix) 2.30.1", "eval-cache-v5"),
            ("nix (Nix) 2.31.0pre20250101_abc", "eval-cache-v6"),
            ("nix (Determinate Nix 3.1.0) 2.27.1", "eval-cache-v5"),
            ("something else", "eval-cache-v6"),
        ];
        for (version, folder) in rows {
            assert_eq!(nix_cache_folder(version), folder, "{version}");
        }
    }
}
