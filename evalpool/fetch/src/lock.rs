//! Lock files: reading, comparing, and which inputs a completed lock added.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

/// Largest `flake.lock` that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most inputs that are named.
const NAMES_MAX: usize = 20;

/// What is wrong with a lock file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockFileError {
    #[error("flake.lock is not JSON (are merge markers in it?): {0}")]
    Json(#[from] serde_json::Error),
    #[error("flake.lock holds no nodes")]
    Form,
    #[error("flake.lock has more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("flake.lock cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The graph of locked inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) root: String,
    pub(crate) nodes: Map<String, Value>,
}

impl Lock {
    /// Takes the JSON of a lock file.
    pub(crate) fn new(json: Value) -> Result<Self, LockFileError> {
        let Value::Object(mut json) = json else { return Err(LockFileError::Form) };
        let root = json.get("root").and_then(Value::as_str).unwrap_or("root").to_owned();
        match json.remove("nodes") {
            Some(Value::Object(nodes)) if nodes.get(&root).is_some_and(Value::is_object) => {
                Ok(Self { root, nodes })
            }
            _ => Err(LockFileError::Form),
        }
    }

    /// The lock file of a flake; `None` if there is none.
    pub(crate) fn read(flake: &Path) -> Result<Option<Self>, LockFileError> {
        let file = flake.join("flake.lock");
        match std::fs::metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => return Err(LockFileError::TooLarge),
            Ok(_) => {}
        }
        Self::new(serde_json::from_slice(&std::fs::read(&file)?)?).map(Some)
    }

    fn inputs(&self, node: &str) -> Option<&Map<String, Value>> {
        self.nodes.get(node)?.get("inputs")?.as_object()
    }

    /// Names of the inputs of the flake itself.
    pub(crate) fn root_names(&self) -> impl Iterator<Item = &str> {
        self.inputs(&self.root).into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// Whether an input with this path is locked, followed or not.
    pub(crate) fn has(&self, path: &[String]) -> bool {
        self.node_at(path, &mut 0).is_some()
    }

    /// What is locked for an input of the flake itself, if it is not followed.
    pub(crate) fn node_of(&self, path: &[String]) -> Option<&Value> {
        let (name, parents) = path.split_last()?;
        let parent = self.node_at(parents, &mut 0)?;
        self.nodes.get(self.inputs(parent)?.get(name)?.as_str()?)
    }

    /// The node of an input. `steps` bounds follows that lead in a circle.
    fn node_at(&self, path: &[String], steps: &mut usize) -> Option<&str> {
        let mut at = self.root.as_str();
        for name in path {
            *steps += 1;
            if *steps > self.nodes.len().saturating_mul(4) + 64 {
                return None;
            }
            at = match self.inputs(at)?.get(name)? {
                Value::String(node) => node,
                Value::Array(follows) => {
                    let follows: Option<Vec<String>> =
                        follows.iter().map(|one| one.as_str().map(str::to_owned)).collect();
                    self.node_at(&follows?, steps)?
                }
                _ => return None,
            };
        }
        Some(at)
    }

    /// A path to each node, of the shortest ones.
    pub(crate) fn paths(&self) -> BTreeMap<&str, String> {
        let mut paths = BTreeMap::from([(self.root.as_str(), String::new())]);
        let mut open = VecDeque::from([self.root.as_str()]);
        while let Some(node) = open.pop_front() {
            let at = paths.get(node).cloned().unwrap_or_default();
            for (name, to) in self.inputs(node).into_iter().flatten() {
                let Some(to) = to.as_str().filter(|to| !paths.contains_key(to)) else { continue };
                let separator = if at.is_empty() { "" } else { "/" };
                paths.insert(to, format!("{at}{separator}{name}"));
                open.push_back(to);
            }
        }
        paths
    }

    /// The locked attributes of every input that has a place of its own, in order of nodes.
    pub(crate) fn locked_inputs(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let own = self.nodes.iter().filter(|(name, node)| **name != self.root && !is_folder(node));
        own.filter_map(|(name, node)| Some((name.as_str(), node.get("locked")?.as_object()?)))
    }

    /// The nodes that Nix may fetch from when inputs are overridden, with all attributes it reads.
    pub(crate) fn used(&self, overridden: &[Vec<String>]) -> Vec<(&str, Map<String, Value>)> {
        let cut: Vec<(&str, &str)> =
            overridden.iter().filter_map(|path| self.only_edge(path)).collect();
        let mut seen = BTreeSet::from([self.root.as_str()]);
        let mut open = vec![self.root.as_str()];
        let mut used = Vec::new();
        while let Some(name) = open.pop() {
            let Some(node) = self.nodes.get(name) else { continue };
            if name != self.root && !is_folder(node) {
                // Old lock files have a second part, and Nix believes that more.
                let parts =
                    ["locked", "info"].map(|part| node.get(part).and_then(Value::as_object));
                used.push((name, parts.into_iter().flatten().flatten().map(own).collect()));
            }
            for (input, to) in self.inputs(name).into_iter().flatten() {
                let to = to.as_str().filter(|_| !cut.contains(&(name, input.as_str())));
                open.extend(to.filter(|to| seen.insert(to)));
            }
        }
        used
    }

    /// The last step to an input, as node and name; `None` if other inputs lead over it, too.
    fn only_edge<'a>(&'a self, path: &'a [String]) -> Option<(&'a str, &'a str)> {
        let (name, parents) = path.split_last()?;
        let all = self.nodes.keys().filter_map(|node| self.inputs(node)).flatten();
        let targets: Vec<&str> = all.filter_map(|(_, to)| to.as_str()).collect();
        let ways = |node: &str| targets.iter().filter(|to| **to == node).count();
        let mut at = self.root.as_str();
        let mut is_only = ways(at) == 0;
        for parent in parents {
            at = self.inputs(at)?.get(parent)?.as_str()?;
            is_only &= ways(at) == 1;
        }
        is_only.then_some((at, name.as_str()))
    }
}

fn own((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// Whether a node is a folder of another one and needs no fetching.
fn is_folder(node: &Value) -> bool {
    let has_parent = node.get("parent").is_some_and(|parent| !parent.is_null());
    let path = node.get("locked").and_then(|locked| locked.get("path")?.as_str());
    has_parent && node.get("info").is_none() && path.is_some_and(|path| !path.starts_with('/'))
}

/// Paths of inputs that two locks lock differently, leaving out what is below `overridden`.
pub(crate) fn differing(old: Option<&Lock>, new: &Lock, overridden: &[Vec<String>]) -> Vec<String> {
    let mut walk =
        Walk { old, new, overridden, path: Vec::new(), seen: BTreeSet::new(), found: Vec::new() };
    walk.inputs(old.map(|old| old.root.clone()), &new.root);
    walk.found
}

struct Walk<'a> {
    old: Option<&'a Lock>,
    new: &'a Lock,
    overridden: &'a [Vec<String>],
    path: Vec<String>,
    /// Pairs of nodes that were compared; a graph of many paths is walked once.
    seen: BTreeSet<(Option<String>, String)>,
    found: Vec<String>,
}

impl Walk<'_> {
    fn inputs(&mut self, old: Option<String>, new: &str) {
        if !self.seen.insert((old.clone(), new.to_owned())) {
            return;
        }
        let (old_lock, new_lock) = (self.old, self.new);
        let before = old.as_deref().and_then(|old| old_lock?.inputs(old));
        let after = new_lock.inputs(new);
        let names = before.into_iter().chain(after).flatten().map(|(name, _)| name.as_str());
        for name in names.collect::<BTreeSet<&str>>() {
            self.path.push(name.to_owned());
            if !self.overridden.contains(&self.path) {
                let before = before.and_then(|inputs| inputs.get(name));
                let after = after.and_then(|inputs| inputs.get(name));
                self.input(before, after);
            }
            self.path.pop();
        }
    }

    fn input(&mut self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (Some(Value::String(before)), Some(Value::String(after))) => {
                let part = |lock: Option<&Lock>, node: &str, name: &str| {
                    lock.and_then(|lock| lock.nodes.get(node)?.get(name)).cloned()
                };
                let is_same =
                    |name: &str| part(self.old, before, name) == part(Some(self.new), after, name);
                if ["original", "locked", "flake"].into_iter().all(is_same) {
                    self.inputs(Some(before.clone()), &after.clone());
                } else {
                    self.add();
                }
            }
            (Some(before), Some(after)) if before == after => {}
            _ => self.add(),
        }
    }

    fn add(&mut self) {
        self.found.push(self.path.join("/"));
    }
}

/// Some names, for people.
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("'{name}'")).collect();
    match names.len().checked_sub(NAMES_MAX) {
        Some(more @ 1..) => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lock(nodes: Value) -> Lock {
        Lock::new(json!({"nodes": nodes, "root": "root", "version": 7})).expect("a lock")
    }

    #[test]
    fn differences_are_named_by_path() {
        let old = lock(json!({
            "root": {"inputs": {"a": "a", "b": ["a"], "gone": "gone"}},
            "a": {"locked": {"rev": "1"}, "original": {"ref": "x"}, "inputs": {"c": "c", "self": "a"}},
            "c": {"locked": {"rev": "1"}, "original": {"ref": "x"}},
            "gone": {"locked": {"rev": "1"}},
        }));
        let mut nodes = old.nodes.clone();
        nodes["c"]["original"]["ref"] = "y".into();
        nodes["root"] = json!({"inputs": {"a": "a", "b": ["c"], "new": "c"}});
        let new = Lock { root: "root".into(), nodes };
        assert_eq!(differing(Some(&old), &new, &[]), ["a/c", "b", "gone", "new"]);
        let overridden = [vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()]];
        assert_eq!(differing(Some(&old), &new, &overridden), ["gone", "new"]);
        assert_eq!(differing(None, &new, &[]), ["a", "b", "new"]);
        assert!(differing(Some(&old), &old, &[]).is_empty());
    }

    #[test]
    fn what_nix_may_fetch_from_a_lock_is_all_but_overrides_and_folders() {
        let file = lock(json!({
            "root": {"inputs": {"a": "a", "b": "b", "child": "child", "far": ["a", "c"]}},
            "a": {"locked": {"type": "github"}, "inputs": {"c": "c"}},
            "b": {"locked": {"type": "github"}, "info": {"type": "path", "path": "/b"}},
            "c": {"locked": {"type": "path", "path": "/c"}, "parent": ["a"]},
            "child": {"locked": {"type": "path", "path": "./child"}, "parent": []},
            "unused": {"locked": {"type": "path", "path": "/unused"}},
        }));
        let used = |overridden: &[&str]| {
            let path = |text: &&str| text.split('/').map(str::to_owned).collect();
            let used = file.used(&overridden.iter().map(path).collect::<Vec<Vec<String>>>());
            let place =
                |(name, node): (&str, Map<String, Value>)| format!("{name} {}", node["type"]);
            used.into_iter()
                .map(place)
                .collect::<BTreeSet<String>>()
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(used(&[]), [r#"a "github""#, r#"b "path""#, r#"c "path""#]);
        assert_eq!(used(&["a"]), [r#"b "path""#]);
        assert_eq!(used(&["a/c", "b"]), [r#"a "github""#]);
        // Another way to the same node is not cut.
        let mut nodes = file.nodes.clone();
        nodes["root"]["inputs"]["b"] = "a".into();
        let names = |path: &str| {
            let path = path.split('/').map(str::to_owned).collect();
            let file = Lock { root: "root".into(), nodes: nodes.clone() };
            file.used(&[path]).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("a/c"), ["a", "c"]);
        assert_eq!(names("a"), ["a", "c"]);
    }

    #[test]
    fn nodes_are_named_by_their_shortest_path() {
        let file = lock(json!({
            "root": {"inputs": {"a": "a", "z": "b_2"}},
            "a": {"inputs": {"b": "b", "c": "b_2", "up": "root", "f": ["z"]}},
            "b": {"inputs": {"deep": "d"}}, "b_2": {}, "d": {}, "unused": {},
        }));
        let paths: Vec<(&str, String)> = file.paths().into_iter().collect();
        let expected = [("a", "a"), ("b", "a/b"), ("b_2", "z"), ("d", "a/b/deep"), ("root", "")];
        assert_eq!(paths, expected.map(|(node, path)| (node, path.to_owned())));
        let path = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<String>>();
        assert!(file.node_of(&path("a/b")).is_some() && file.node_of(&path("a/f")).is_none());
    }

    #[test]
    fn follows_that_lead_in_a_circle_end() {
        let path = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<String>>();
        let circle = lock(json!({
            "root": {"inputs": {"a": ["b"], "b": ["a"], "c": "c"}}, "c": {"inputs": {"d": ["c"]}},
        }));
        assert!(!circle.has(&path("a")) && circle.has(&path("c/d/d")));
        assert_eq!(circle.root_names().collect::<Vec<&str>>(), ["a", "b", "c"]);
    }

    #[test]
    fn broken_files_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(Lock::read(dir.path()).expect("none").is_none());
        for text in ["<<<<<<< ours\n{}", "[]", "{\"nodes\": {}}", "{\"nodes\": 3, \"root\": \"r\"}"]
        {
            std::fs::write(dir.path().join("flake.lock"), text).expect("written");
            let error = Lock::read(dir.path()).expect_err(text).to_string();
            assert!(error.contains("flake.lock"), "{error}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        assert_eq!(listed(&names[..2]), "'0', '1'");
        assert!(listed(&names).ends_with("'19' and 5 more"));
    }
}
