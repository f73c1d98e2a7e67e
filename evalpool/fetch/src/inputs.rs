//! Locked inputs into the store, so that evaluation needs no network.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use gradient_daemon::store_path_of;
use gradient_domain::StorePath;
use gradient_domain::flake::{HINT, Override};
use gradient_domain::text::cut;
use gradient_domain::text::nix_string;
use serde_json::{Map, Value};

use crate::error::{FetchError, Retry};
use crate::literals;
use crate::lock::Lock;
use crate::reference::unpercent;
use crate::session::Session;

/// How addresses of other machines begin.
const REMOTE: [&str; 3] = ["https://", "http://", "ssh://"];

/// Largest `flake.nix` of somebody else, in bytes.
const FLAKE_BYTES_MAX: u64 = 1 << 20;

/// Most inputs that are fetched one by one after fetching all at once failed.
const SINGLE_MAX: usize = 1_000;

/// Most inputs of which it is told why they cannot be had.
const WARNINGS_MAX: usize = 20;
/// Longest warning about one of them, in bytes.
const WARNING_BYTES_MAX: usize = 1_000;

/// The store path of a locked input; `None` if its lock names no hash.
fn store_path(locked: &Map<String, Value>) -> Option<StorePath> {
    let hash = locked.get("narHash")?.as_str()?.strip_prefix("sha256-")?;
    let hash = base64::engine::general_purpose::STANDARD.decode(hash).ok()?;
    store_path_of::source(&hash.try_into().ok()?, &BTreeSet::new(), "source").ok()
}

/// Paths of all inputs that have a place of their own.
pub(crate) fn paths(lock: &Lock) -> Vec<StorePath> {
    lock.locked_inputs().filter_map(|(_, locked)| store_path(locked)).collect()
}

/// Refuses inputs that lie on the machine that fetches: the flake of somebody else could read its
/// files by them. A folder of the flake itself is none of them.
pub(crate) fn check_remote(lock: &Lock) -> Result<(), FetchError> {
    lock.locked_inputs().try_for_each(|(name, locked)| check_node(name, locked))
}

/// The same before Nix has read anything: by the lock file and by what `flake.nix` writes down, but for
/// what is overridden.
pub(crate) fn check_asked(
    folder: &Path,
    old: Option<&Lock>,
    overrides: &[Override],
) -> Result<(), FetchError> {
    let paths: Vec<Vec<String>> =
        overrides.iter().map(|one| one.input.split('/').map(str::to_owned).collect()).collect();
    let used = old.map(|old| old.used(&paths)).unwrap_or_default();
    used.iter().try_for_each(|(name, locked)| check_node(name, locked))?;
    let file = folder.join("flake.nix");
    let failed = |source| FetchError::File { path: file.clone(), source };
    if std::fs::metadata(&file).map_err(failed)?.len() > FLAKE_BYTES_MAX {
        let reason = format!("flake.nix has more than {FLAKE_BYTES_MAX} bytes");
        return Err(FetchError::Refused { reason });
    }
    let text = std::fs::read(&file).map_err(failed)?;
    let asked = literals::inputs(&String::from_utf8_lossy(&text));
    let local = asked.iter().find(|asked| {
        is_local(&asked.text) && !overrides.iter().any(|one| one.input == asked.input)
    });
    local.map_or(Ok(()), |asked| Err(not_everywhere(&asked.input, &asked.text)))
}

fn check_node(name: &str, locked: &Map<String, Value>) -> Result<(), FetchError> {
    if is_remote(locked) {
        return Ok(());
    }
    let text = |name: &str| locked.get(name).and_then(Value::as_str);
    let place = text("url").or(text("path")).or(text("type")).unwrap_or("something unknown");
    Err(not_everywhere(name, place))
}

fn not_everywhere(name: &str, place: &str) -> FetchError {
    let (name, place) = (name.escape_debug(), place.escape_debug());
    let reason = format!(
        "input '{name}' is '{place}', which is not the same on every machine; {HINT}, or override it"
    );
    FetchError::Refused { reason }
}

/// Whether a text in `flake.nix` names a place of this machine. A folder of the flake is none.
fn is_local(text: &str) -> bool {
    let text = unpercent(text.trim()).to_ascii_lowercase();
    let Some((scheme, rest)) = text.split_once(':') else { return text.starts_with(['/', '~']) };
    match scheme {
        "path" => rest.starts_with('/'),
        "file" => true,
        scheme => scheme.ends_with("+file") || scheme.starts_with(['/', '~']),
    }
}

fn is_remote(locked: &Map<String, Value>) -> bool {
    let text = |name: &str| locked.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "github" | "gitlab" | "sourcehut" => true,
        "git" | "hg" | "tarball" | "file" => {
            REMOTE.iter().any(|scheme| text("url").starts_with(scheme))
        }
        _ => false,
    }
}

/// Inputs that are not in the store, each once.
fn missing<'a>(lock: &'a Lock, store_dir: &Path) -> Vec<(&'a str, &'a Map<String, Value>)> {
    let mut seen = BTreeSet::new();
    let inputs = lock.locked_inputs().filter(|(_, locked)| match store_path(locked) {
        Some(path) => {
            let is_there = store_dir.join(path.base_name()).symlink_metadata().is_ok();
            !is_there && seen.insert(path)
        }
        None => true,
    });
    inputs.collect()
}

/// Fetches what is missing: all at once, or one by one if that fails. What is gone is a warning, as an
/// evaluation may do without it; what another attempt may bring is an error.
pub(crate) async fn prefetch(
    session: &Session<'_>,
    url: &str,
    lock: &Lock,
    warnings: &mut Vec<String>,
) -> Result<(), FetchError> {
    let store_dir = &session.fetcher.store_dir;
    if missing(lock, store_dir).is_empty() {
        return Ok(());
    }
    let all = session.nix(&["flake", "archive", "--json", "--no-write-lock-file", "--", url]).await;
    match all {
        Err(error @ FetchError::Timeout { .. }) => return Err(error),
        Err(error) => tracing::info!(%error, "inputs are fetched one by one"),
        Ok(_) => return Ok(()),
    }
    let mut failed = Vec::new();
    for (name, locked) in missing(lock, store_dir).into_iter().take(SINGLE_MAX) {
        let locked = Value::from(locked.clone()).to_string();
        let tree =
            format!("(builtins.fetchTree (builtins.fromJSON {})).outPath", nix_string(&locked));
        match session.nix(&["eval", "--raw", "--expr", &tree]).await {
            Ok(_) => {}
            Err(error @ FetchError::Timeout { .. }) => return Err(error),
            // An evaluation without it would fail for good.
            Err(error) if error.retry() == Retry::Backoff => return Err(error),
            Err(error) => failed.push((name.to_owned(), error.to_string())),
        }
    }
    warnings.extend(told(failed));
    Ok(())
}

/// What is said about inputs that cannot be had: of the first ones why, of the others how many.
fn told(failed: Vec<(String, String)>) -> Vec<String> {
    let more = failed.len().saturating_sub(WARNINGS_MAX);
    let failed = failed.into_iter().take(WARNINGS_MAX);
    let warning = |(name, error)| format!("input '{name}' cannot be fetched: {error}");
    let mut told: Vec<String> = failed.map(|one| cut(warning(one), WARNING_BYTES_MAX)).collect();
    if more > 0 {
        told.push(format!("{more} more inputs cannot be fetched"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(nix_string(r#"{"a":"\n${x}"}"#), r#""{\"a\":\"\\n\${x}\"}""#);
    }

    #[test]
    fn what_is_said_about_many_inputs_is_short() {
        let failed: Vec<_> = (0..300).map(|n| (n.to_string(), "e".repeat(100_000))).collect();
        let told = told(failed);
        assert_eq!(told.last().map(String::as_str), Some("280 more inputs cannot be fetched"));
        assert!(told.concat().len() < 30_000 && told[0].starts_with("input '0'"));
    }

    #[test]
    fn inputs_of_this_machine_are_told_from_others() {
        for (json, remote) in [
            (r#"{"type":"github","owner":"o","repo":"r"}"#, true),
            (r#"{"type":"git","url":"ssh://git@host/x"}"#, true),
            (r#"{"type":"tarball","url":"https://host/x.tar.gz"}"#, true),
            (r#"{"type":"git","url":"file:///etc"}"#, false),
            (r#"{"type":"git","url":"/etc"}"#, false),
            (r#"{"type":"tarball","url":"file:///x.tar"}"#, false),
            (r#"{"type":"path","path":"/etc"}"#, false),
            (r#"{"type":"path","path":"/nix/store/x"}"#, false),
            ("{}", false),
        ] {
            let locked = serde_json::from_str(json).expect("JSON");
            assert_eq!(is_remote(&locked), remote, "{json}");
        }
    }

    #[test]
    fn places_of_this_machine_are_told_from_others() {
        for (text, local) in [
            ("path:/etc", true),
            ("path:%2Fetc", true),
            ("path:///etc", true),
            ("PATH:/etc", true),
            ("/etc", true),
            ("/etc?x=a:b", true),
            ("~/x", true),
            ("git+file:///etc", true),
            ("git+file:/etc", true),
            ("tarball+file:///x.tar", true),
            ("file:///x.tar", true),
            ("path:./dep", false),
            ("./dep", false),
            ("nixpkgs/nixos-unstable", false),
            ("github:o/r", false),
            ("https://host/x.tar.gz", false),
        ] {
            assert_eq!(is_local(text), local, "{text}");
        }
    }

    #[test]
    fn the_path_of_an_input_follows_from_its_hash() {
        let hash = "sha256-FV1nyfXAADQTyDZmve5vuMyjE/ewdnyWhCunQBpgS0E=";
        let locked = serde_json::json!({"narHash": hash, "type": "git"});
        let path = store_path(locked.as_object().expect("attributes")).expect("a path");
        assert_eq!(path.to_string(), "/nix/store/cs601lyhmcr3v3q0zfy0x4gm9i44g524-source");
    }
}
