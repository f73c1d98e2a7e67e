//! Locked inputs into the store, so that evaluation needs no network.

use std::collections::BTreeSet;

use base64::Engine as _;
use gradient_daemon::store_path_of;
use gradient_domain::StorePath;
use gradient_domain::flake::HINT;
use gradient_domain::text::cut;
use gradient_domain::text::nix_string;
use serde_json::{Map, Value};

use crate::error::{FetchError, Retry};
use crate::lock::Lock;
use crate::missing::Missing;
use crate::reference::unpercent;
use crate::session::Session;
use crate::valid;

/// How addresses of other machines begin.
const REMOTE: [&str; 3] = ["https://", "http://", "ssh://"];

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

pub(crate) fn check_node(name: &str, locked: &Map<String, Value>) -> Result<(), FetchError> {
    if is_remote(locked) {
        return Ok(());
    }
    let text = |name: &str| locked.get(name).and_then(Value::as_str);
    let place = text("url").or(text("path")).or(text("type")).unwrap_or("something unknown");
    Err(not_everywhere(name, place))
}

pub(crate) fn not_everywhere(name: &str, place: &str) -> FetchError {
    let (name, place) = (name.escape_debug(), place.escape_debug());
    let reason = format!(
        "input '{name}' is '{place}', which is not the same on every machine; {HINT}, or override it"
    );
    FetchError::Refused { reason }
}

/// Whether a text in `flake.nix` names a place of this machine. A folder of the flake is none.
pub(crate) fn is_local(text: &str) -> bool {
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

/// Inputs that are not whole in the store, each once: by their files where these are not there, and by
/// what the store says of them where they are. A stop may have left some of them.
async fn missing<'a>(
    session: &Session<'_>,
    lock: &'a Lock,
) -> Result<Vec<(&'a str, &'a Map<String, Value>)>, FetchError> {
    let store_dir = &session.fetcher.store_dir;
    let is_there = |path: &StorePath| store_dir.join(path.base_name()).symlink_metadata().is_ok();
    let there: BTreeSet<StorePath> = paths(lock).into_iter().filter(is_there).collect();
    let mut seen = valid::of(session, there).await?;
    let inputs = lock.locked_inputs().filter(|(_, locked)| match store_path(locked) {
        Some(path) => seen.insert(path),
        None => true,
    });
    Ok(inputs.collect())
}

/// Fetches what is missing: all at once, or one by one if that fails. What cannot be had is the result, as
/// an evaluation may do without it.
pub(crate) async fn prefetch(
    session: &Session<'_>,
    url: &str,
    lock: &Lock,
) -> Result<Vec<Missing>, FetchError> {
    if missing(session, lock).await?.is_empty() {
        return Ok(Vec::new());
    }
    let all = ["flake", "archive", "--json", "--no-write-lock-file", "--", url];
    let mut is_down = match session.nix_until(&all, session.share_of(2)).await {
        Err(error) => {
            tracing::info!(%error, "inputs are fetched one by one");
            error.retry() == Retry::Backoff
        }
        Ok(_) => return Ok(Vec::new()),
    };
    let names = lock.paths();
    let open: Vec<_> = missing(session, lock).await?.into_iter().take(SINGLE_MAX).collect();
    let mut failed = Vec::new();
    for (n, (name, locked)) in open.iter().enumerate() {
        let json = Value::from((*locked).clone()).to_string();
        let tree =
            format!("(builtins.fetchTree (builtins.fromJSON {})).outPath", nix_string(&json));
        // One that hangs leaves their time to the others, and something to the evaluation.
        let until = session.share_of(open.len() - n + 1);
        // Where the network is down for one, it is not waited for again and again.
        let attempts = if is_down { "1" } else { "5" };
        let arguments =
            ["eval", "--raw", "--option", "download-attempts", attempts, "--expr", &tree];
        match session.nix_until(&arguments, until).await {
            Ok(_) => {}
            Err(error @ (FetchError::Program { .. } | FetchError::File { .. })) => {
                return Err(error);
            }
            Err(error) => {
                is_down |= error.retry() == Retry::Backoff;
                let input = names.get(name).map_or_else(|| (*name).to_owned(), String::clone);
                failed.push(Missing::new(input, locked, said(&error), error.retry()));
            }
        }
    }
    Ok(failed)
}

/// The last error of what Nix said, with what git said before it; all if there is none.
fn cause(said: &str) -> String {
    let lines = said.lines().map(str::trim_start);
    let last = lines.clone().enumerate().filter(|(_, line)| line.starts_with("error: ")).last();
    let Some((last, _)) = last else { return said.trim().to_owned() };
    let of_git = lines.clone().take(last).filter(|line| line.starts_with("fatal: "));
    let lines: Vec<&str> = of_git.chain(lines.clone().skip(last)).collect();
    lines.join("\n").trim().trim_start_matches("error: ").to_owned()
}

/// What is wrong with an input; which flake asks for it is clear.
fn said(error: &FetchError) -> String {
    let text = match error {
        FetchError::Reference { said, .. } | FetchError::Passing { said, .. } => cause(said),
        FetchError::Timeout { limit_secs, .. } => format!("it takes longer than {limit_secs} s"),
        FetchError::Refused { .. }
        | FetchError::Lock { .. }
        | FetchError::NotLocked { .. }
        | FetchError::TooLarge { .. }
        | FetchError::Answer { .. }
        | FetchError::Program { .. }
        | FetchError::File { .. } => error.to_string(),
    };
    cut(text, WARNING_BYTES_MAX)
}

/// What is said about inputs that cannot be had: of the first ones why, of the others how many.
pub(crate) fn told(missing: &[Missing]) -> Vec<String> {
    let mut told: Vec<String> = missing.iter().take(WARNINGS_MAX).map(Missing::told).collect();
    let more = missing.len().saturating_sub(WARNINGS_MAX);
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
    fn of_all_that_nix_says_the_cause_is_told() {
        for (said, expected) in [
            ("error: no", "no"),
            (
                "warning: a\nerror:\n  … while x\n\n  error: no (error: b)\nend",
                "no (error: b)\nend",
            ),
            ("fatal: no way\nerror:\n  … while x\n  error: no rev", "fatal: no way\nerror: no rev"),
            ("nothing known ", "nothing known"),
        ] {
            assert_eq!(cause(said), expected);
        }
    }

    #[test]
    fn what_is_said_about_many_inputs_is_short() {
        let error = FetchError::said("r", &"e".repeat(100_000));
        let one = |n: i32| Missing::new(n.to_string(), &Map::new(), said(&error), Retry::Never);
        let told = told(&(0..300).map(one).collect::<Vec<Missing>>());
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
