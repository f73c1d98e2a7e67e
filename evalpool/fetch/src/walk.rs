//! What Nix would read to complete a lock, looked at before it does. The flake of somebody else, and each
//! flake that it asks for, could name folders of this machine, and Nix copies what it locks.
//!
//! Nix follows a lock file as long as it fits. What it would lock anew comes into the store here, one flake
//! after the other, and is looked at first.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use gradient_domain::flake::{LockPolicy, Override};
use gradient_domain::text::nix_string;
use serde_json::{Map, Value};

use crate::asked::{Given, by_input, given, is_written_as, read};
use crate::error::FetchError;
use crate::fetcher::problem;
use crate::inputs::{check_node, is_local, not_everywhere};
use crate::lock::Lock;
use crate::reference::Located;
use crate::session::Session;

/// Most flakes that are looked at.
const FLAKES_MAX: usize = 1_000;

/// From references as they are written, texts or attributes, to what Nix takes them for, with the text.
const PARSE: &str = "map (r: let a = if builtins.isString r then builtins.parseFlakeRef r else r; \
    in { attributes = a; url = if builtins.isString r then r else builtins.flakeRefToString a; }) \
    (builtins.fromJSON ";

/// A flake that Nix would read.
struct Flake {
    /// The path of the input that it is; empty for the first one.
    at: String,
    /// Where its tree lies.
    root: PathBuf,
    /// Its folder in it.
    folder: PathBuf,
    /// Whether its lock file counts.
    is_locked: bool,
}

/// A reference that Nix may read.
struct Wanted {
    /// The input that it is for.
    path: String,
    /// A text or attributes.
    written: Value,
    /// Whether it is an override of the request.
    is_asked_for: bool,
    /// Whether more is read of it than its files.
    is_flake: bool,
}

struct Walk<'a> {
    session: &'a Session<'a>,
    policy: LockPolicy,
    /// By path, what takes the place of what the flakes themselves ask for.
    replaced: BTreeMap<String, Given>,
    open: Vec<Flake>,
}

/// Refuses a flake before Nix reads anything of this machine for it.
pub(crate) async fn check(
    session: &Session<'_>,
    root: &Path,
    folder: &Path,
    overrides: &[Override],
    policy: LockPolicy,
) -> Result<(), FetchError> {
    let asked_for = |one: &Override| {
        let written = Value::from(one.reference.clone());
        (one.input.clone(), Given::Reference { written, is_asked_for: true })
    };
    let first = Flake {
        at: String::new(),
        root: root.to_owned(),
        folder: folder.to_owned(),
        is_locked: true,
    };
    let replaced = overrides.iter().map(asked_for).collect();
    let mut walk = Walk { session, policy, replaced, open: vec![first] };
    let mut looked_at = 0;
    while let Some(flake) = walk.open.pop() {
        looked_at += 1;
        if looked_at > FLAKES_MAX {
            let reason = format!("more than {FLAKES_MAX} inputs are not locked");
            return Err(FetchError::Refused { reason });
        }
        walk.flake(&flake).await?;
    }
    Ok(())
}

impl Walk<'_> {
    /// Looks at one flake, and notes the flakes that Nix would read for it.
    async fn flake(&mut self, flake: &Flake) -> Result<(), FetchError> {
        let lock = Lock::read(&flake.folder).map_err(|error| self.session.broken(&error))?;
        let lock = lock.filter(|_| flake.is_locked);
        if let Some(lock) = &lock {
            let used = lock.used(&self.replaced_below(&flake.at));
            used.iter().try_for_each(|(name, locked)| check_node(name, locked))?;
        }
        let literals = read(&flake.folder)?;
        for literal in &literals {
            let path = joined(&flake.at, &literal.input);
            if literal.attribute != "follows"
                && is_local(&literal.text)
                && !self.replaced.contains_key(&path)
            {
                return Err(not_everywhere(&path, &literal.text));
            }
        }
        let written = by_input(literals);
        for (input, attributes) in written.iter().filter(|(input, _)| input.contains('/')) {
            if let Some(given) = given(attributes) {
                // What stands further above counts.
                self.replaced.entry(joined(&flake.at, input)).or_insert(given);
            }
        }
        let wanted = self.wanted(flake, lock.as_ref(), &written);
        for (one, parsed, is_locked) in self.unlocked(lock.as_ref(), flake, wanted).await? {
            self.look_into(flake, one, &parsed, is_locked).await?;
        }
        Ok(())
    }

    /// References that Nix may read for a flake: those of its inputs, or what takes their place, and of
    /// locked inputs what takes the place of theirs.
    fn wanted(
        &self,
        flake: &Flake,
        lock: Option<&Lock>,
        written: &BTreeMap<String, Map<String, Value>>,
    ) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let mut add = |path: String, given: Given, is_flake: bool| match given {
            Given::Follows => {}
            Given::Reference { written, is_asked_for } => {
                wanted.push(Wanted { path, written, is_asked_for, is_flake });
            }
        };
        for (input, attributes) in written.iter().filter(|(input, _)| !input.contains('/')) {
            let path = joined(&flake.at, input);
            let is_flake = attributes.get("flake") != Some(&Value::from(false));
            let below = format!("{path}/");
            let below = self.replaced.iter().filter(|(one, _)| one.starts_with(&below));
            for (one, given) in below {
                if lock.is_some_and(|lock| node(lock, flake, one).is_some()) {
                    add(one.clone(), given.clone(), true);
                }
            }
            if let Some(given) = self.replaced.get(&path).cloned().or_else(|| given(attributes)) {
                add(path, given, is_flake);
            }
        }
        wanted
    }

    /// Of these the ones that Nix locks anew, with what Nix takes them for, and whether the lock files of
    /// what they name count.
    async fn unlocked(
        &self,
        lock: Option<&Lock>,
        flake: &Flake,
        wanted: Vec<Wanted>,
    ) -> Result<Vec<(Wanted, Parsed, bool)>, FetchError> {
        let mut open = Vec::new();
        for one in wanted {
            let node = lock.and_then(|lock| node(lock, flake, &one.path));
            let has_lost = self.has_lost_a_follow(node, &one.path);
            let is_locked = node.is_some_and(|node| is_written_as(node, &one.written));
            if one.is_asked_for || !is_locked || has_lost {
                let original = node.and_then(|node| node.get("original")?.as_object());
                open.push((one, original, has_lost));
            }
        }
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let written = open.iter().map(|(one, ..)| one.written.clone());
        let expression = format!("{PARSE}{})", nix_string(&Value::from_iter(written).to_string()));
        let answer = self.session.nix(&["eval", "--json", "--expr", &expression]).await?;
        let parsed: Vec<Parsed> = self.session.parse(&answer)?;
        let open = open.into_iter().zip(parsed);
        let unlocked = open.filter_map(|((one, original, has_lost), parsed)| {
            let is_same = original == Some(&parsed.attributes);
            let is_unlocked = one.is_asked_for || !is_same || has_lost;
            // Below a locked input Nix goes by the lock above, which is not here.
            is_unlocked.then_some((one, parsed, !(is_same && has_lost)))
        });
        Ok(unlocked.collect())
    }

    /// Whether an input of a locked input followed another one by a flake that says so no more: Nix reads
    /// the locked input then.
    fn has_lost_a_follow(&self, node: Option<&Value>, path: &str) -> bool {
        let inputs = node.and_then(|node| node.get("inputs")?.as_object());
        inputs.into_iter().flatten().any(|(name, to)| {
            to.is_array() && !self.replaced.contains_key(&format!("{path}/{name}"))
        })
    }

    /// Brings an input into the store that Nix would lock, to be looked at.
    async fn look_into(
        &mut self,
        above: &Flake,
        Wanted { path, is_flake, .. }: Wanted,
        input: &Parsed,
        is_locked: bool,
    ) -> Result<(), FetchError> {
        let text = |name: &str| input.attributes.get(name).and_then(Value::as_str);
        let kind = text("type").unwrap_or_default();
        if let Some(below) = text("path").filter(|below| kind == "path" && !below.starts_with('/'))
        {
            let folder = plain(&above.folder.join(below).join(text("dir").unwrap_or_default()));
            if !folder.starts_with(&above.root) {
                return Err(not_everywhere(&path, below));
            }
            if is_flake && folder.join("flake.nix").is_file() {
                self.open.push(Flake { at: path, root: above.root.clone(), folder, is_locked });
            }
            return Ok(());
        }
        // The word of a registry, of which there is none, is Nix's to refuse.
        if kind == "indirect" {
            return Ok(());
        }
        check_node(&path, &input.attributes)?;
        if !is_flake {
            return Ok(());
        }
        let located = Located { url: input.url.clone(), ..Located::default() };
        let tree = match self.session.source(&input.url, &located).await {
            Ok(found) => found.tree,
            // Under this policy nothing may be locked anew, whether it can be had or not.
            Err(FetchError::Reference { .. } | FetchError::Passing { .. })
                if self.policy == LockPolicy::Strict && !self.is_asked_for(&path) =>
            {
                let has_lock = above.folder.join("flake.lock").exists();
                return Err(FetchError::NotLocked { problem: problem(has_lock, &[path]) });
            }
            Err(error) => return Err(error),
        };
        let root = self.session.fetcher.store_dir.join(tree.path.base_name());
        let folder = root.join(&tree.subdir);
        if folder.join("flake.nix").is_file() {
            self.open.push(Flake { at: path, root, folder, is_locked });
        }
        Ok(())
    }

    /// Whether an input, or one above it, is overridden by the request.
    fn is_asked_for(&self, path: &str) -> bool {
        let starts = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let above = starts.filter_map(|at| self.replaced.get(&path[..at]));
        above.into_iter().any(|given| matches!(given, Given::Reference { is_asked_for: true, .. }))
    }

    /// The paths below an input that something else takes the place of, from there.
    fn replaced_below(&self, at: &str) -> Vec<Vec<String>> {
        let below = self.replaced.keys().filter_map(|path| match at {
            "" => Some(path.as_str()),
            at => path.strip_prefix(at)?.strip_prefix('/'),
        });
        below.map(|path| path.split('/').map(str::to_owned).collect()).collect()
    }
}

/// What Nix takes a reference for.
#[derive(Clone, Debug, serde::Deserialize)]
struct Parsed {
    attributes: Map<String, Value>,
    url: String,
}

/// What a lock file locks for an input, by its path from the first flake.
fn node<'a>(lock: &'a Lock, flake: &Flake, path: &str) -> Option<&'a Value> {
    let path = match flake.at.as_str() {
        "" => path,
        at => path.strip_prefix(at)?.strip_prefix('/')?,
    };
    lock.node_of(&path.split('/').map(str::to_owned).collect::<Vec<String>>())
}

/// The path of an input of the input at a path.
fn joined(at: &str, input: &str) -> String {
    if at.is_empty() { input.to_owned() } else { format!("{at}/{input}") }
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stay_below_their_tree() {
        for (path, expected) in
            [("/t/a/../b/./c", "/t/b/c"), ("/t/../../etc", "/etc"), ("/t/a/..", "/t")]
        {
            assert_eq!(plain(Path::new(path)), Path::new(expected));
        }
    }
}
