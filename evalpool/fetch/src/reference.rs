//! Flake references: what is allowed, which folder of this machine is meant, and how a tree of the
//! store is written.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gradient_domain::flake::{Commit, HINT, check_reference, is_locked};
use gradient_domain::percent;
use serde_json::{Map, Value};

use crate::error::FetchError;
use crate::request::{Reach, Tree};

/// Longest reference, in bytes.
const REFERENCE_BYTES_MAX: usize = 4 << 10;

/// A reference as Nix gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) url: String,
    /// The folder of a `path:` reference; what lies there may change.
    pub(crate) folder: Option<PathBuf>,
    /// The top of a repository of this machine.
    pub(crate) repository: Option<PathBuf>,
}

impl Located {
    /// Whether the reference means the same for ever.
    pub(crate) fn is_fixed(&self) -> bool {
        is_locked(&self.url)
    }

    /// Whether submodules are asked for.
    pub(crate) fn wants_submodules(&self) -> bool {
        matches!(parameter(&self.url, "submodules").as_deref(), Some("1" | "true"))
    }

    /// Adds a parameter, unless it is there.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if parameter(&self.url, name).is_none() {
            let separator = if self.url.contains('?') { '&' } else { '?' };
            self.url = format!("{}{separator}{name}={}", self.url, percent::encode(value));
        }
        self
    }
}

/// The value of a parameter.
pub(crate) fn parameter(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or(query);
    let values = query.split('&').filter_map(|one| one.split_once('='));
    values.into_iter().find(|(key, _)| *key == name).map(|(_, value)| unpercent(value))
}

/// Reads a reference as a person or the API gives it.
pub(crate) fn locate(url: &str, reach: Reach) -> Result<Located, FetchError> {
    if url.len() > REFERENCE_BYTES_MAX || url.contains(char::is_control) {
        let reason = format!(
            "a flake reference has at most {REFERENCE_BYTES_MAX} bytes and no control characters"
        );
        return Err(FetchError::Refused { reason });
    }
    match reach {
        Reach::Remote => {
            let refused = |error| FetchError::Refused { reason: format!("{error}; {HINT}") };
            check_reference(url).map_err(refused)?;
            Ok(Located { url: url.to_owned(), ..Located::default() })
        }
        Reach::Local | Reach::LocalCommit => local(url),
    }
}

fn local(url: &str) -> Result<Located, FetchError> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    if let Some(folder) = path.strip_prefix("path:") {
        return match folder.starts_with("/nix/store/") {
            true => Ok(Located { url: url.to_owned(), ..Located::default() }),
            false => Ok(plain(existing(&unpercent(folder))?, query)),
        };
    }
    if let Some(folder) = path.strip_prefix("git+file:") {
        let folder = folder.strip_prefix("//").unwrap_or(folder);
        return Ok(repository(existing(&unpercent(folder))?, query));
    }
    if !path.starts_with(['.', '/', '~']) {
        return Ok(Located { url: url.to_owned(), ..Located::default() });
    }
    let asked = existing(path)?;
    let Some(folder) = flake_folder(&asked).map(Path::to_owned) else {
        let reason = format!("there is no flake.nix in '{}' or above it", asked.display());
        return Err(FetchError::Refused { reason });
    };
    match folder.ancestors().find(|ancestor| ancestor.join(".git").exists()) {
        None => Ok(plain(folder, query)),
        Some(top) => {
            let below = folder.strip_prefix(top).unwrap_or(Path::new("")).to_string_lossy();
            let found = repository(top.to_owned(), query);
            Ok(if below.is_empty() { found } else { found.with("dir", &below) })
        }
    }
}

/// The folder of the flake that a folder is in: itself or the closest one above, within the same
/// repository and file system, as Nix looks for it.
fn flake_folder(folder: &Path) -> Option<&Path> {
    let device = |folder: &Path| std::fs::metadata(folder).map(|metadata| metadata.dev()).ok();
    let own = device(folder)?;
    for folder in folder.ancestors().take_while(|folder| device(folder) == Some(own)) {
        if folder.join("flake.nix").is_file() {
            return Some(folder);
        }
        if folder.join(".git").exists() {
            return None;
        }
    }
    None
}

fn existing(folder: &str) -> Result<PathBuf, FetchError> {
    std::fs::canonicalize(folder).map_err(|error| FetchError::Refused {
        reason: format!("there is no flake at '{folder}': {error}"),
    })
}

fn plain(folder: PathBuf, query: &str) -> Located {
    let url = joined("path:", &folder, query);
    Located { url, folder: Some(folder), repository: None }
}

fn repository(top: PathBuf, query: &str) -> Located {
    let url = joined("git+file://", &top, query);
    let is_shallow = top.join(".git/shallow").exists() || top.join("shallow").exists();
    let located = Located { url, folder: None, repository: Some(top) };
    // Nix refuses a shallow clone that is not announced.
    if is_shallow { located.with("shallow", "1") } else { located }
}

fn joined(scheme: &str, folder: &Path, query: &str) -> String {
    let question = if query.is_empty() { "" } else { "?" };
    format!("{scheme}{}{question}{query}", percent::encode(&folder.to_string_lossy()))
}

/// The attributes of a tree as Nix writes them into lock files.
pub(crate) fn tree_attributes(tree: &Tree) -> Map<String, Value> {
    let mut attributes = Map::new();
    let mut add = |name: &str, value: Value| attributes.insert(name.to_owned(), value);
    add("type", "path".into());
    add("path", tree.path.to_string().into());
    add("narHash", tree.nar_hash.clone().into());
    if !tree.subdir.is_empty() {
        add("dir", tree.subdir.clone().into());
    }
    if let Some(seconds) = tree.last_modified {
        add("lastModified", seconds.into());
    }
    if let Some(Commit { rev, rev_count, .. }) = &tree.commit {
        add("rev", rev.clone().into());
        if let Some(count) = rev_count {
            add("revCount", (*count).into());
        }
    }
    attributes
}

/// The locked reference of a tree.
pub(crate) fn tree_url(tree: &Tree) -> String {
    let attributes = tree_attributes(tree);
    let parameters =
        attributes.iter().filter(|(name, _)| !matches!(name.as_str(), "type" | "path"));
    let parameters = parameters.map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", percent::encode(&value))
    });
    format!("path:{}?{}", tree.path, parameters.collect::<Vec<String>>().join("&"))
}

/// A reference for people: what was asked for, with the commit or the hash that it means now.
pub(crate) fn shown(asked: &str, locked: &Map<String, Value>) -> String {
    let text = |name: &str| locked.get(name).and_then(Value::as_str);
    let fixed = match (text("type"), text("rev"), text("narHash")) {
        (_, _, _) if is_locked(asked) => return asked.to_owned(),
        (Some(forge @ ("github" | "gitlab" | "sourcehut")), Some(rev), _) => {
            let (owner, repo) =
                (text("owner").unwrap_or_default(), text("repo").unwrap_or_default());
            let query = asked.split_once('?').map(|(_, query)| format!("?{query}"));
            return format!("{forge}:{owner}/{repo}/{rev}{}", query.unwrap_or_default());
        }
        (Some("git"), Some(rev), _) => Some(("rev", rev)),
        (Some("tarball" | "path" | "file"), _, Some(hash)) => Some(("narHash", hash)),
        _ => None,
    };
    let asked = Located { url: asked.to_owned(), ..Located::default() };
    match fixed {
        Some((name, value)) => asked.with(name, value).url,
        None => asked.url,
    }
}

/// The reverse of [`percent::encode`]; what is no escape stays.
pub(crate) fn unpercent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_survive() {
        assert_eq!(percent::encode("sha256-a+b/c="), "sha256-a%2Bb/c%3D");
        assert_eq!(percent::encode("sub dir/x&y"), "sub%20dir/x%26y");
        for text in ["sub dir/x&y", "100%", "%zz", "ä?#"] {
            assert_eq!(unpercent(&percent::encode(text)), text);
        }
    }

    #[test]
    fn what_is_shown_names_the_commit() {
        let locked = |json: &str| serde_json::from_str::<Map<String, Value>>(json).expect("JSON");
        let git = locked(r#"{"type":"git","rev":"abc","narHash":"sha256-x="}"#);
        assert_eq!(shown("git+ssh://h/r?dir=a", &git), "git+ssh://h/r?dir=a&rev=abc");
        let github = locked(r#"{"type":"github","owner":"o","repo":"r","rev":"abc"}"#);
        assert_eq!(shown("github:o/r/main?dir=a", &github), "github:o/r/abc?dir=a");
        let tarball = locked(r#"{"type":"tarball","narHash":"sha256-x="}"#);
        assert_eq!(shown("https://h/x.tgz", &tarball), "https://h/x.tgz?narHash=sha256-x%3D");
        // Nix believes the `rev` of a tarball without a look.
        let noted = format!("https://h/x.tgz?rev={}", "0".repeat(40));
        assert!(shown(&noted, &tarball).ends_with("&narHash=sha256-x%3D"));
    }

    #[test]
    fn folders_are_found_and_the_rest_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("there");
        let flake = root.join("a b/sub");
        std::fs::create_dir_all(&flake).expect("made");
        std::fs::write(flake.join("flake.nix"), "").expect("written");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let found = locate(&text(&flake), Reach::Local).expect("found");
        assert_eq!(found.url, format!("path:{}/a%20b/sub", text(&root)));
        assert_eq!(found.folder.as_deref(), Some(flake.as_path()));
        let deep = flake.join("src/deep");
        std::fs::create_dir_all(&deep).expect("made");
        let above = locate(&text(&deep), Reach::Local).expect("above");
        assert_eq!(above.folder, Some(flake.clone()));
        std::fs::create_dir(flake.join("src/.git")).expect("made");
        let another =
            locate(&text(&deep), Reach::Local).expect_err("another repository").to_string();
        assert!(another.contains("flake.nix in '") && another.contains("or above it"), "{another}");
        std::fs::create_dir_all(root.join("a b/.git")).expect("made");
        std::fs::write(root.join("a b/.git/shallow"), "").expect("written");
        let found = locate(&format!("{}?ref=x", text(&flake)), Reach::Local).expect("found");
        let top = format!("git+file://{}/a%20b", text(&root));
        assert_eq!(found.url, format!("{top}?ref=x&shallow=1&dir=sub"));
        let found = locate(&format!("{top}?submodules=1"), Reach::Local).expect("found");
        assert!(found.wants_submodules() && found.repository.is_some());
        for left in ["github:o/r", "file:///x.tgz", "git+https://h/r"] {
            assert_eq!(locate(left, Reach::Local).expect("left").url, left);
        }
        for (refused, reach) in [
            ("path:/etc", Reach::Remote),
            ("git+file:///etc", Reach::Remote),
            ("./does-not-exist", Reach::Local),
            ("path:/does/not/exist", Reach::Local),
            ("/", Reach::Local),
            ("github:o/r\u{7}", Reach::Local),
        ] {
            assert!(matches!(locate(refused, reach), Err(FetchError::Refused { .. })), "{refused}");
        }
    }
}
