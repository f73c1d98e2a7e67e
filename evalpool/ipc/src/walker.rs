//! The walk over a flake's outputs.
//!
//! **Which values are jobs.** Derivations are. What else a pattern meets is treated so:
//! - the end of a pattern's literal path that exists and is no derivation is an error naming its
//!   type (whoever writes a name means a job);
//! - under a wildcard, opaque values (options, modules) are skipped by `*`, and other sets are
//!   namespaces: `*` at the end looks one level into them, `#` does not;
//! - under a wildcard, a value *where the flake schema puts a job* ([`expects_job`]) that can hold
//!   none - no set at all, an empty set, or a set made to be called or printed - is an error, as
//!   it is to `nix flake check`. Everywhere else, `legacyPackages` above all, it is skipped.
//!   Under `checks` a plain set counts too where the pattern does not look into it.
//!
//! The rule looks at the path and the value only, never at how a walk came there, so every way of
//! sharding an evaluation gives the same result. `recurseForDerivations` has no say in a fleet's
//! evaluation, where recursion follows the pattern; a local one goes by it ([`Recursion`]). A walk
//! that goes by nix-eval-jobs' rule also calls functions whose arguments all have defaults.

use std::collections::BTreeSet;

use gradient_domain::AttrPath;
use gradient_domain::attr_path::DEPTH_MAX;
use gradient_domain::pattern::Segment;

use crate::message::{Item, ListOk, PlanOk, bounded};
use crate::shard::{Recursion, Shard};
use crate::tree::{AttrError, AttrTree, Called, NodeKind, TreeError};

/// Attributes of sets that stand for a value, not for a collection.
const VALUE_MARKS: [(&str, &str); 3] = [
    ("__functor", "a set that is called like a function"),
    ("__toString", "a set that is printed as a string"),
    ("outPath", "a set that stands for a path"),
];

/// The attribute by which a set says whether it holds jobs.
pub const RECURSION_MARK: &str = "recurseForDerivations";

/// Whether the flake schema wants a derivation at this path.
#[must_use]
pub fn expects_job(path: &AttrPath) -> bool {
    let names = &path.0;
    match names.first().map(String::as_str) {
        Some("packages" | "checks" | "devShells") => names.len() == 3,
        Some("formatter") => names.len() == 2,
        Some("hydraJobs") => {
            names.len() >= 2 && names.last().is_some_and(|name| name != RECURSION_MARK)
        }
        Some(_) | None => false,
    }
}

/// Whether the flake schema wants a set of jobs, or of such sets, at this path.
#[must_use]
pub fn expects_namespace(path: &AttrPath) -> bool {
    let names = &path.0;
    match names.first().map(String::as_str) {
        Some("packages" | "checks" | "devShells" | "legacyPackages") => names.len() <= 2,
        Some("formatter") => names.len() == 1,
        Some("hydraJobs") => true,
        Some(_) | None => names.is_empty(),
    }
}

/// Splits patterns at their first wildcards, forcing nothing but the sets on the way there, and for
/// a `*` that goes on, its children.
///
/// # Errors
/// If the flake as a whole cannot be evaluated.
pub fn plan<T: AttrTree>(
    tree: &mut T,
    patterns: &[Vec<Segment>],
    recursion: Recursion,
) -> Result<PlanOk, TreeError> {
    let root = root(tree, recursion)?;
    let excludes = BTreeSet::new();
    let mut walk = Walk { tree, excludes: &excludes, recursion, found: ListOk::default() };
    let mut shards = Vec::new();
    for pattern in patterns {
        walk.plan(&root, pattern, &mut shards);
    }
    let mut errors = walk.found.errors;
    errors.sort();
    errors.dedup();
    shards.sort();
    shards.dedup();
    Ok(PlanOk { shards, errors })
}

/// Lists the derivations of one shard.
///
/// # Errors
/// If the flake as a whole cannot be evaluated.
pub fn list<T: AttrTree>(
    tree: &mut T,
    shard: &Shard,
    excludes: &BTreeSet<AttrPath>,
) -> Result<ListOk, TreeError> {
    let recursion = shard.recursion;
    let root = root(tree, recursion)?;
    let mut walk = Walk { tree, excludes, recursion, found: ListOk::default() };
    if shard.pattern.is_empty() {
        walk.emit_named(&AttrPath::default(), &root);
    }
    walk.list(&AttrPath::default(), &root, &shard.pattern, shard.only.as_deref());
    let mut found = walk.found;
    found.items.sort();
    found.items.dedup();
    found.deferred.sort();
    found.errors.sort();
    found.errors.dedup();
    Ok(found)
}

fn root<T: AttrTree>(tree: &mut T, recursion: Recursion) -> Result<T::Node, TreeError> {
    let root = tree.root()?;
    if recursion.is_strict() { Ok(root) } else { tree.called(root).map(Called::into_node) }
}

struct Walk<'a, T> {
    tree: &'a mut T,
    excludes: &'a BTreeSet<AttrPath>,
    recursion: Recursion,
    found: ListOk,
}

impl<T: AttrTree> Walk<'_, T> {
    fn plan(&mut self, root: &T::Node, pattern: &[Segment], shards: &mut Vec<Shard>) {
        let Some(at) = pattern.iter().position(Segment::is_wildcard) else {
            shards.push(Shard::whole(pattern.to_vec(), self.recursion));
            return;
        };
        let (prefix, tail) = (&pattern[..at], &pattern[at + 1..]);
        let mut path = AttrPath::default();
        let mut inner = None;
        for segment in prefix {
            let Segment::Name(name) = segment else { return };
            path = path.child(name);
            let node = inner.as_ref().unwrap_or(root);
            inner = match self.child(&path, node, name) {
                Some(child) => Some(child),
                None => return,
            };
        }
        let node = inner.as_ref().unwrap_or(root);
        if !self.recursion.is_strict() && prefix.is_empty() {
            // The whole tree may be one derivation.
            if self.kind(&path, node) == Some(NodeKind::Derivation) {
                shards.push(Shard::whole(Vec::new(), self.recursion));
                return;
            }
        }
        let Some(names) = self.names_under_wildcard(&path, node) else {
            return;
        };
        if tail.is_empty() {
            if !names.is_empty() {
                let whole = Shard::whole(pattern.to_vec(), self.recursion);
                shards.push(Shard { only: Some(names), ..whole });
            }
            return;
        }
        for name in names {
            if pattern[at] == Segment::Star && !self.is_open(&path.child(&name), node, &name) {
                continue;
            }
            let mut pattern = prefix.to_vec();
            pattern.push(Segment::Name(name));
            pattern.extend_from_slice(tail);
            shards.push(Shard::whole(pattern, self.recursion));
        }
    }

    fn list(
        &mut self,
        path: &AttrPath,
        node: &T::Node,
        pattern: &[Segment],
        only: Option<&[String]>,
    ) {
        let Some((segment, rest)) = pattern.split_first() else {
            return;
        };
        if let Segment::Name(name) = segment {
            let path = path.child(name);
            if rest.is_empty() && self.excludes.contains(&path) {
                return;
            }
            let Some(child) = self.child(&path, node, name) else {
                return;
            };
            match rest {
                [] => self.emit_named(&path, &child),
                rest => self.list(&path, &child, rest, only),
            }
            return;
        }
        let names = match only {
            Some(names) => names.to_vec(),
            None => match self.names_under_wildcard(path, node) {
                Some(names) => names,
                None => return,
            },
        };
        let star = *segment == Segment::Star;
        for name in names {
            let path = path.child(&name);
            if rest.is_empty() && !star && self.excludes.contains(&path) {
                continue;
            }
            let Some(child) = self.child(&path, node, &name) else {
                continue;
            };
            if rest.is_empty() {
                self.emit_child(&path, &child, star);
            } else if !star || self.kind(&path, &child).is_some_and(|k| k != NodeKind::Opaque) {
                self.list(&path, &child, rest, None);
            }
        }
    }

    /// A child, forced; `None` if there is none, or after noting its error.
    fn child(&mut self, path: &AttrPath, node: &T::Node, name: &str) -> Option<T::Node> {
        self.tree.begin(path);
        let child = match self.tree.child(node, name) {
            Ok(child) => child?,
            Err(error) => return self.error(path, error.message),
        };
        if self.recursion.is_strict() {
            return Some(child);
        }
        match self.tree.called(child) {
            Ok(called) => Some(called.into_node()),
            Err(error) => self.error(path, error.message),
        }
    }

    fn kind(&mut self, path: &AttrPath, node: &T::Node) -> Option<NodeKind> {
        match self.tree.kind(node) {
            Ok(kind) => Some(kind),
            Err(error) => self.error(path, error.message),
        }
    }

    /// Whether `*` goes on into this child.
    fn is_open(&mut self, path: &AttrPath, node: &T::Node, name: &str) -> bool {
        let Some(child) = self.child(path, node, name) else {
            return false;
        };
        self.kind(path, &child).is_some_and(|kind| kind != NodeKind::Opaque)
    }

    /// The names that a wildcard over this value stands for. The attributes of a derivation are
    /// not walked: that a package stands where a set of packages should is one error.
    fn names_under_wildcard(&mut self, path: &AttrPath, node: &T::Node) -> Option<Vec<String>> {
        if self.kind(path, node)? == NodeKind::Derivation {
            let message = "is a derivation, not a set of derivations".to_owned();
            return self.error(path, message);
        }
        let names = self.names(path, node)?;
        // The root of a tree is entered unless it says that it shall not be.
        let says = self.recursion == Recursion::Tree && path.is_empty();
        if says && names.iter().any(|name| name == RECURSION_MARK) {
            return self.goes_into(path, node)?.then_some(names);
        }
        Some(names)
    }

    fn names(&mut self, path: &AttrPath, node: &T::Node) -> Option<Vec<String>> {
        match self.tree.names(node) {
            Ok(names) => Some(names),
            Err(error) => self.error(path, error.message),
        }
    }

    fn emit_named(&mut self, path: &AttrPath, node: &T::Node) {
        match self.kind(path, node) {
            None => {}
            Some(NodeKind::Derivation) => self.item(path, node),
            Some(NodeKind::Opaque | NodeKind::Set) => self.not_a_derivation(path, "a set"),
            Some(NodeKind::Value(value)) => self.not_a_derivation(path, value.words()),
        }
    }

    fn emit_child(&mut self, path: &AttrPath, node: &T::Node, star: bool) {
        let strict = self.recursion.is_strict();
        match self.kind(path, node) {
            None => {}
            Some(NodeKind::Derivation) => self.item(path, node),
            Some(NodeKind::Value(value)) if strict && expects_job(path) => {
                self.not_a_derivation(path, value.words());
            }
            Some(NodeKind::Value(_)) => {}
            Some(NodeKind::Opaque) if strict => {}
            Some(NodeKind::Opaque | NodeKind::Set) => self.enter(path, node, star),
        }
    }

    /// A set under a wildcard at the end of a pattern: its children are left for another call, if
    /// the walk goes on into it.
    fn enter(&mut self, path: &AttrPath, node: &T::Node, star: bool) {
        let Some(names) = self.names(path, node) else {
            return;
        };
        let is_job = self.recursion.is_strict() && expects_job(path);
        if let Some(words) = value_words(&names).filter(|_| is_job) {
            return self.not_a_derivation(path, words);
        }
        let enters = match star && !names.is_empty() {
            true => self.goes_into(path, node),
            false => Some(false),
        };
        match enters {
            Some(true) => {}
            // A check that nobody looks into is a check lost.
            Some(false) if is_job && path.0.first().is_some_and(|root| root == "checks") => {
                return self.not_a_derivation(path, "a set");
            }
            Some(false) | None => return,
        }
        if path.0.len() >= DEPTH_MAX {
            self.error::<()>(path, format!("depth limit of {DEPTH_MAX} names reached"));
            return;
        }
        self.found.deferred.push(Shard::of_set(path, names, self.recursion));
    }

    /// Whether the walk goes on into a set; `None` after noting that the set does not say.
    fn goes_into(&mut self, path: &AttrPath, node: &T::Node) -> Option<bool> {
        match self.recursion {
            Recursion::Pattern | Recursion::WholeTree => return Some(true),
            Recursion::Marked if expects_namespace(path) => return Some(true),
            Recursion::Marked | Recursion::Tree => {}
        }
        match self.tree.recurses(node) {
            Ok(marked) => Some(marked),
            Err(error) => self.error(path, error.message),
        }
    }

    fn item(&mut self, path: &AttrPath, node: &T::Node) {
        if self.excludes.contains(path) {
            return;
        }
        let result = self.tree.job(node).map_err(|error| bounded(error.message));
        self.found.items.push(Item { attr: path.clone(), result });
    }

    fn not_a_derivation(&mut self, path: &AttrPath, words: &str) {
        self.error::<()>(path, format!("not a derivation ({words})"));
    }

    fn error<R>(&mut self, path: &AttrPath, message: String) -> Option<R> {
        if !self.excludes.contains(path) {
            let message = bounded(message);
            self.found.errors.push(AttrError { attr: path.clone(), message });
        }
        None
    }
}

/// What a set with these names is, if it cannot be a collection of jobs.
fn value_words(names: &[String]) -> Option<&'static str> {
    if names.is_empty() {
        return Some("an empty set");
    }
    let marked = |mark: &str| names.iter().any(|name| name == mark);
    VALUE_MARKS.iter().find(|(mark, _)| marked(mark)).map(|(_, words)| *words)
}
