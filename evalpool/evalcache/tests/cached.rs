//! A tree behind its cache gives what the tree gives, and the second time without being asked.

#[path = "../../ipc/tests/made_up/mod.rs"]
mod made_up;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gradient_domain::pattern::{Pattern, PatternSet, Segment};
use gradient_domain::{AttrPath, StorePath};
use gradient_evalcache::{CachedTree, EvalCache, Folder, Replay, Request, replay};
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::tree::{AttrError, AttrTree, Called, Job, NodeKind, TreeError};
use gradient_ipc::walker;
use made_up::{Tree, Value, any_recursion, any_root, any_set};
use proptest::prelude::*;

const FINGERPRINT: &str = "f00f";

type Found = (BTreeSet<(AttrPath, Result<Job, String>)>, BTreeSet<AttrError>);

/// A made-up tree that owns its values, as an opener needs it.
struct Owned(Arc<Value>);

impl AttrTree for Owned {
    /// The way to a value: names, and nothing where a function was called.
    type Node = Arc<(Arc<Value>, Vec<Option<String>>)>;

    fn root(&mut self) -> Result<Self::Node, TreeError> {
        Ok(Arc::new((self.0.clone(), Vec::new())))
    }

    fn kind(&mut self, node: &Self::Node) -> Result<NodeKind, TreeError> {
        self.at(node, |tree, value| tree.kind(value))
    }

    fn names(&mut self, node: &Self::Node) -> Result<Vec<String>, TreeError> {
        self.at(node, |tree, value| tree.names(value))
    }

    fn size(&mut self, node: &Self::Node) -> usize {
        self.at(node, |tree, value| Ok(tree.size(value))).unwrap_or(0)
    }

    fn has(&mut self, node: &Self::Node, name: &str) -> bool {
        self.at(node, |tree, value| Ok(tree.has(value, name))).unwrap_or(false)
    }

    fn child(&mut self, node: &Self::Node, name: &str) -> Result<Option<Self::Node>, TreeError> {
        let child = self.at(node, |tree, value| Ok(tree.child(value, name)?.is_some()))?;
        let path = [node.1.as_slice(), &[Some(name.to_owned())]].concat();
        Ok(child.then(|| Arc::new((self.0.clone(), path))))
    }

    fn called(&mut self, node: Self::Node) -> Result<Called<Self::Node>, TreeError> {
        if self.at(&node, |tree, value| Ok(matches!(tree.called(value)?, Called::Same(_))))? {
            return Ok(Called::Same(node));
        }
        let path = [node.1.as_slice(), &[None]].concat();
        Ok(Called::Result(Arc::new((self.0.clone(), path))))
    }

    fn recurses(&mut self, node: &Self::Node) -> Result<bool, TreeError> {
        self.at(node, |tree, value| tree.recurses(value))
    }

    fn job(&mut self, node: &Self::Node) -> Result<Job, TreeError> {
        self.at(node, |tree, value| tree.job(value))
    }
}

impl Owned {
    fn at<R>(
        &self,
        node: &<Owned as AttrTree>::Node,
        look: impl for<'a> FnOnce(&mut Tree<'a>, &&'a Value) -> Result<R, TreeError>,
    ) -> Result<R, TreeError> {
        let mut tree = Tree::new(&node.0);
        let mut value = tree.root()?;
        for step in &node.1 {
            value = match step {
                Some(name) => tree.child(&value, name)?.expect("a path that was found"),
                None => tree.called(value)?.into_node(),
            };
        }
        look(&mut tree, &value)
    }
}

fn cached(file: &Path, root: &Arc<Value>) -> CachedTree<Owned> {
    let cache = EvalCache::open(file, FINGERPRINT).expect("a cache");
    let root = root.clone();
    CachedTree::new(Some(cache), move || Ok(Owned(root.clone())), |_| true)
}

/// Walks a whole request, one list after the other, and gives how often the tree was asked.
fn walk<T: AttrTree>(tree: &mut T, request: &Request, mut flush: impl FnMut(&mut T)) -> Found {
    let excludes: BTreeSet<_> = request.patterns.excludes.iter().cloned().collect();
    let includes = request.patterns.includes.iter();
    let patterns: Vec<_> = includes.map(|include| include.segments.clone()).collect();
    let planned = walker::plan(tree, &patterns, request.recursion).expect("root");
    flush(tree);
    let mut shards = planned.shards;
    let mut found = Found::default();
    while let Some(shard) = shards.pop() {
        let listed = walker::list(tree, &shard, &excludes).expect("root");
        flush(tree);
        found.0.extend(listed.items.into_iter().map(|item| (item.attr, item.result)));
        found.1.extend(listed.errors);
        shards.extend(listed.deferred);
    }
    found.1.extend(planned.errors.into_iter().filter(|error| !excludes.contains(&error.attr)));
    found
}

fn request(patterns: PatternSet, recursion: Recursion) -> Request {
    Request::new(patterns, recursion)
}

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("cache.sqlite")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_second_walk_forces_nothing_and_finds_the_same(
        root in any_root(),
        first in any_set(),
        second in any_set(),
        recursion in any_recursion(),
        other in any_recursion(),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = Arc::new(root);
        let rounds =
            [(first.clone(), recursion), (second, other), (first.clone(), other), (first, recursion)];
        for (patterns, recursion) in rounds {
            let request = request(patterns, recursion);
            let plain = walk(&mut Owned(root.clone()), &request, |_| {});
            let mut once = cached(&file(&dir), &root);
            prop_assert_eq!(&plain, &walk(&mut once, &request, CachedTree::flush));
            drop(once);
            let mut twice = cached(&file(&dir), &root);
            prop_assert_eq!(&plain, &walk(&mut twice, &request, CachedTree::flush));
            prop_assert_eq!(twice.forced(), 0);
            drop(twice);
            let cache = EvalCache::open(&file(&dir), FINGERPRINT).expect("a cache");
            prop_assert!(cache.complete(&request, &[(None, "w".into())], |_| true).expect("noted"));
            let cache = EvalCache::open(&file(&dir), FINGERPRINT).expect("a cache");
            let Replay::Complete(known) = replay(cache, &request, |_| true).expect("an answer") else {
                panic!("the cache does not know what it was told");
            };
            let jobs: Vec<_> = plain
                .0
                .iter()
                .filter_map(|(path, result)| Some((path.clone(), result.clone().ok()?)))
                .collect();
            prop_assert_eq!(known.jobs, jobs);
            let failed = plain.0.iter().filter_map(|(path, result)| {
                Some(AttrError { attr: path.clone(), message: result.clone().err()? })
            });
            let errors: BTreeSet<_> = plain.1.iter().cloned().chain(failed).collect();
            prop_assert_eq!(known.errors, errors.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(known.warnings, vec![(None, "w".to_owned())]);
        }
    }
}

fn packages(count: usize) -> Arc<Value> {
    let derivation = |n: usize| (format!("p{n:03}"), Value::Derivation(Default::default()));
    let set = Value::Set((0..count).map(derivation).collect());
    let system = Value::Set([("x".to_owned(), set)].into());
    Arc::new(Value::Set([("packages".to_owned(), system)].into()))
}

fn all() -> Request {
    request("packages.x.*".parse().expect("patterns"), Recursion::Pattern)
}

/// Fills a cache; gives what it answers then.
fn filled(file: &Path, root: &Arc<Value>) -> Found {
    let mut tree = cached(file, root);
    let found = walk(&mut tree, &all(), CachedTree::flush);
    drop(tree);
    let cache = EvalCache::open(file, FINGERPRINT).expect("a cache");
    assert!(cache.complete(&all(), &[], |_| true).expect("noted"));
    found
}

fn is_complete(file: &Path) -> bool {
    let cache = EvalCache::open(file, FINGERPRINT).expect("a cache");
    matches!(replay(cache, &all(), |_| true).expect("an answer"), Replay::Complete(_))
}

#[test]
fn eight_writers_lose_nothing() {
    let root = packages(400);
    for _ in 0..10 {
        let dir = tempfile::tempdir().expect("a folder");
        let path = file(&dir);
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let (root, path) = (&root, &path);
                scope.spawn(move || {
                    let mut tree = cached(path, root);
                    let names: Vec<String> = (0..400).map(|n| format!("p{n:03}")).collect();
                    for batch in names.chunks(10).skip(writer).step_by(8) {
                        let set = ["packages", "x"].into_iter().collect();
                        let shard = Shard::of_set(&set, batch.to_vec(), Recursion::Pattern);
                        walker::list(&mut tree, &shard, &BTreeSet::new()).expect("root");
                        tree.flush();
                    }
                });
            }
        });
        // Everybody wrote their part and nobody the names; one more walk adds those.
        let mut tree = cached(&path, &root);
        let mut names_only = tree.root().expect("root");
        for name in ["packages", "x"] {
            names_only = tree.child(&names_only, name).expect("there").expect("there");
        }
        assert_eq!(tree.kind(&names_only), Ok(NodeKind::Set));
        assert_eq!(tree.names(&names_only).expect("names").len(), 400);
        tree.flush();
        drop(tree);
        let mut third = cached(&path, &root);
        let found = walk(&mut third, &all(), CachedTree::flush);
        assert_eq!((found.0.len(), third.forced()), (400, 0));
    }
}

#[test]
fn a_file_of_no_use_is_a_miss_and_heals() {
    let root = packages(40);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    let right = filled(&path, &root);
    let good = std::fs::read(&path).expect("the file");
    let old = {
        let connection = EvalCache::open(&path, FINGERPRINT).expect("a cache");
        drop(connection);
        let other = dir.path().join("old.sqlite");
        std::fs::copy(&path, &other).expect("copied");
        other
    };
    let mut faults: Vec<(String, Vec<u8>)> = vec![
        ("empty".into(), Vec::new()),
        ("text".into(), b"this is no database, however long it is".repeat(100)),
        ("foreign".into(), include_bytes!("fixtures/foreign.sqlite").to_vec()),
    ];
    for part in 1..16 {
        let len = good.len() * part / 16;
        faults.push((format!("cut at {len}"), good[..len].to_vec()));
    }
    for page in 0..good.len() / 4096 {
        let mut zeroed = good.clone();
        zeroed[page * 4096..(page + 1) * 4096].fill(0);
        faults.push((format!("page {page} of zeros"), zeroed));
        let mut noise = good.clone();
        noise[page * 4096..(page + 1) * 4096].fill(0xa5);
        faults.push((format!("page {page} of noise"), noise));
    }
    for (what, bytes) in faults {
        gradient_evalcache::remove(&path).expect("removed");
        std::fs::write(&path, bytes).expect("written");
        let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache, whatever the file was");
        if let Ok(Replay::Complete(known)) = replay(cache, &all(), |_| true) {
            // An index that this answer did not need.
            let jobs = right.0.iter().filter_map(|(path, job)| Some((path, job.as_ref().ok()?)));
            let jobs: Vec<_> = jobs.map(|(path, job)| (path.clone(), job.clone())).collect();
            assert_eq!(known.jobs, jobs, "{what} gives a wrong answer");
        }
        let well = EvalCache::open(&path, FINGERPRINT).expect("a cache").check().is_ok();
        if !well {
            gradient_evalcache::remove(&path).expect("removed");
        }
        let mut tree = cached(&path, &root);
        assert_eq!(walk(&mut tree, &all(), CachedTree::flush), right, "{what}");
        drop(tree);
        assert_eq!(filled(&path, &root), right, "{what}");
        assert!(is_complete(&path), "{what} does not heal");
    }
    // Of another flake.
    let other = EvalCache::open(&old, "beef").expect("made anew");
    assert!(matches!(replay(other, &all(), |_| true), Ok(Replay::Incomplete)));
}

#[test]
fn a_changed_answer_is_noticed() {
    let root = packages(4);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    let right = filled(&path, &root);
    let text = std::fs::read(&path).expect("the file");
    // One letter of one stored path, in a page that stays well-formed.
    let (_, job) = right.0.first().expect("a job");
    let wanted = job.clone().expect("a derivation").drv_path.base_name().to_owned();
    let at = text
        .windows(wanted.len())
        .position(|window| window == wanted.as_bytes())
        .expect("a stored path");
    let mut changed = text;
    changed[at] = b'1';
    gradient_evalcache::remove(&path).expect("removed");
    std::fs::write(&path, changed).expect("written");
    assert!(!is_complete(&path), "a wrong answer was given");
    assert!(!path.exists() || !is_complete(&path));
    filled(&path, &root);
    assert!(is_complete(&path));
}

#[test]
fn what_another_value_would_be_leads_nobody_astray() {
    let root = packages(4);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    let right = filled(&path, &root);
    // One bit of a number that stands in no index: a derivation is a set now, of unknown names.
    let cache = rusqlite::Connection::open(&path).expect("a file");
    let one = "update GradientNode set kind = 20 where attribute =
                 (select max(attribute) from GradientNode where kind = 22)";
    assert_eq!(cache.execute(one, []).expect("changed"), 1);
    drop(cache);
    assert!(!is_complete(&path));
    let found = walk(&mut cached(&path, &root), &all(), CachedTree::flush);
    assert_eq!(found, right);
}

#[test]
fn a_derivation_that_is_gone_is_instantiated_again() {
    let root = packages(4);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    filled(&path, &root);
    let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache");
    assert!(matches!(replay(cache, &all(), |_: &StorePath| false), Ok(Replay::Incomplete)));
    let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache");
    let owned = root.clone();
    let mut tree = CachedTree::new(Some(cache), move || Ok(Owned(owned.clone())), |_| false);
    assert_eq!(walk(&mut tree, &all(), CachedTree::flush).0.len(), 4);
    assert!(tree.forced() >= 4, "each was asked for again");
}

/// As [`Owned`], on a bad day.
struct Flaky(Owned);

impl AttrTree for Flaky {
    type Node = <Owned as AttrTree>::Node;

    fn root(&mut self) -> Result<Self::Node, TreeError> {
        self.0.root()
    }

    fn kind(&mut self, node: &Self::Node) -> Result<NodeKind, TreeError> {
        self.0.kind(node)
    }

    fn names(&mut self, node: &Self::Node) -> Result<Vec<String>, TreeError> {
        self.0.names(node)
    }

    fn size(&mut self, node: &Self::Node) -> usize {
        self.0.size(node)
    }

    fn has(&mut self, node: &Self::Node, name: &str) -> bool {
        self.0.has(node, name)
    }

    fn child(&mut self, node: &Self::Node, name: &str) -> Result<Option<Self::Node>, TreeError> {
        self.0.child(node, name)
    }

    fn recurses(&mut self, node: &Self::Node) -> Result<bool, TreeError> {
        self.0.recurses(node)
    }

    fn job(&mut self, _node: &Self::Node) -> Result<Job, TreeError> {
        Err(TreeError::passing("disk full"))
    }
}

#[test]
fn what_may_pass_is_not_kept() {
    let root = packages(3);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache");
    let owned = root.clone();
    let open = move || Ok(Flaky(Owned(owned.clone())));
    let mut tree = CachedTree::new(Some(cache), open, |_| true);
    let found = walk(&mut tree, &all(), CachedTree::flush);
    assert!(found.0.iter().all(|(_, result)| *result == Err("disk full".into())));
    drop(tree);
    let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache");
    assert!(!cache.complete(&all(), &[], |_| true).expect("an answer"), "it is not complete");
    assert!(!is_complete(&path));
    assert!(filled(&path, &root).0.iter().all(|(_, result)| result.is_ok()));
}

#[test]
fn a_tree_that_cannot_be_opened_says_so_and_leaves_nothing() {
    let root = packages(2);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    filled(&path, &root);
    let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache");
    let mut opened = 0;
    let open = move || {
        opened += 1;
        assert_eq!(opened, 1, "it is tried once");
        Err::<Owned, _>(TreeError::repeatable("the input is gone"))
    };
    let mut tree = CachedTree::new(Some(cache), open, |_| true);
    let other = request("packages.x.p000.inner".parse().expect("patterns"), all().recursion);
    let _ = walk(&mut tree, &other, CachedTree::flush);
    assert_eq!(tree.broken().map(|error| error.message.as_str()), Some("the input is gone"));
    drop(tree);
    let mut tree = cached(&path, &root);
    assert_eq!(walk(&mut tree, &other, CachedTree::flush).1, BTreeSet::new());
}

#[test]
fn warnings_are_kept_by_attribute_and_told_to_whoever_asks_for_it() {
    let root = packages(3);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    let attr = |name: &str| Some(["packages", "x", name].into_iter().collect::<AttrPath>());
    let open = || EvalCache::open(&path, FINGERPRINT).expect("a cache");
    let one = request("packages.x.p000".parse().expect("patterns"), all().recursion);
    let mut tree = cached(&path, &root);
    let _ = walk(&mut tree, &one, CachedTree::flush);
    drop(tree);
    let told = [
        (attr("p000"), "warning: a".to_owned()),
        (None, "warning: unable to download 'x'; retrying in 3 ms".to_owned()),
    ];
    assert!(open().complete(&one, &told, |_| true).expect("noted"));
    // p000 is known by now and warns no more.
    let mut tree = cached(&path, &root);
    let _ = walk(&mut tree, &all(), CachedTree::flush);
    drop(tree);
    let more = [(attr("p001"), "warning: b".to_owned()), (None, "warning: all".to_owned())];
    assert!(open().complete(&all(), &more, |_| true).expect("noted"));
    let warnings = |request: &Request| match replay(open(), request, |_| true) {
        Ok(Replay::Complete(known)) => known.warnings.into_iter().map(|(_, text)| text).collect(),
        other => panic!("{other:?}"),
    };
    let mut all_of_them: Vec<String> = warnings(&all());
    all_of_them.sort();
    assert_eq!(all_of_them, ["warning: a", "warning: all", "warning: b"]);
    let mut of_one: Vec<String> = warnings(&one);
    of_one.sort();
    assert_eq!(of_one, ["warning: a", "warning: all"]);
}

#[test]
fn a_folder_is_listed_checked_swept_and_purged() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = Folder::new(dir.path());
    let name = |n: char| n.to_string().repeat(64);
    for n in ['a', 'b', 'c'] {
        let path = folder.file(&name(n));
        drop(EvalCache::open(&path, &name(n)).expect("a cache"));
    }
    std::fs::write(dir.path().join("notes.txt"), "not ours").expect("written");
    gradient_evalcache::remove(&folder.file(&name('b'))).expect("removed");
    std::fs::write(folder.file(&name('b')), "damaged").expect("written");
    let listed: Vec<_> =
        folder.list().expect("a list").into_iter().map(|k| k.fingerprint).collect();
    assert_eq!(listed.len(), 3);
    assert!(matches!(
        folder.check(&name('a')).expect("checked"),
        gradient_evalcache::Finding::Well { attributes: 0, .. }
    ));
    assert!(matches!(
        folder.check(&name('b')).expect("checked"),
        gradient_evalcache::Finding::Useless(_)
    ));
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(24 * 60 * 60);
    assert_eq!(folder.sweep(now, day, u64::MAX).expect("swept"), []);
    let later = now + 2 * day;
    folder.touch(&name('c'));
    assert_eq!(folder.sweep(later, day, u64::MAX).expect("swept").len(), 3);
    drop(EvalCache::open(&folder.file(&name('a')), &name('a')).expect("a cache"));
    assert_eq!(folder.sweep(now, day, 1).expect("swept").len(), 1, "too large");
    drop(EvalCache::open(&folder.file(&name('a')), &name('a')).expect("a cache"));
    assert_eq!(folder.purge(|_| true).expect("purged").len(), 1);
    assert_eq!(folder.list().expect("a list"), []);
    assert!(dir.path().join("notes.txt").exists());
}

#[test]
fn an_exported_copy_has_nixs_table_alone() {
    let root = packages(4);
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(&dir);
    filled(&path, &root);
    let cache = EvalCache::open(&path, FINGERPRINT).expect("a cache");
    let target = dir.path().join("eval-cache-v5/x.sqlite");
    let attributes = gradient_evalcache::export(&cache, &target).expect("exported");
    // The root, packages, x, and each of four with type, drvPath and what nix looks for.
    assert_eq!(attributes, 3 + 4 * 5);
    let text = std::fs::read(&target).expect("the copy");
    let has = |needle: &str| text.windows(needle.len()).any(|part| part == needle.as_bytes());
    assert!(has("CREATE TABLE Attributes") && !has("GradientNode"));
    let again = gradient_evalcache::export(&cache, &target).expect("exported over it");
    assert_eq!(again, attributes);
}

#[test]
fn a_part_of_the_tree_is_kept_where_it_stands() {
    let dir = tempfile::tempdir().expect("a folder");
    let job = || Value::Derivation(BTreeMap::new());
    let set = |entries: Vec<(&str, Value)>| {
        Value::Set(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let jobs = set(vec![("one", job()), ("two", Value::Function(Box::new(job())))]);
    let root = Arc::new(set(vec![("jobs", jobs), ("broken", Value::Throws)]));
    let fragment = AttrPath(vec!["jobs".into()]);
    let request = Request { fragment, ..Request::new(whole(), Recursion::Tree) };
    let part = || cached(&file(&dir), &root).below(request.fragment.0.clone());
    let first = walk(&mut part(), &request, CachedTree::flush);
    let names: Vec<String> = first.0.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(names, ["one", "two"]);
    let mut again = part();
    assert_eq!(walk(&mut again, &request, CachedTree::flush), first);
    assert_eq!(again.forced(), 0);
    drop(again);

    let open = || EvalCache::open(&file(&dir), FINGERPRINT).expect("a cache");
    assert!(open().complete(&request, &[], |_| true).expect("noted"));
    assert!(open().answers(&request).expect("asked"));
    let of_all = Request { fragment: AttrPath::default(), ..request.clone() };
    assert!(!open().answers(&of_all).expect("asked"), "the whole tree was not asked for");
    let Replay::Complete(known) = replay(open(), &request, |_| true).expect("an answer") else {
        panic!("the cache does not know what it was told");
    };
    assert_eq!(known.jobs.len(), 2);

    // What does not call functions sees the function.
    let strict = Request::new("jobs.*".parse().expect("a pattern"), Recursion::Pattern);
    let plain = walk(&mut Owned(root.clone()), &strict, |_| {});
    assert_eq!(walk(&mut cached(&file(&dir), &root), &strict, CachedTree::flush), plain);
    assert_eq!(plain.0.len(), 1);

    for (way, words) in [("nowhere", "attribute 'nowhere' is not there"), ("broken", "boom")] {
        let below = || cached(&file(&dir), &root).below(vec![way.to_owned()]);
        let mut first = below();
        assert_eq!(first.root().err().map(|error| error.message).as_deref(), Some(words));
        first.flush();
        let mut again = below();
        assert_eq!(again.root().err().map(|error| error.message).as_deref(), Some(words));
        assert_eq!(again.forced(), 0);
    }
}

/// The one pattern of a local evaluation of a whole tree.
fn whole() -> PatternSet {
    let include = Pattern { exclude: false, segments: vec![Segment::Star] };
    PatternSet { includes: vec![include], excludes: Vec::new() }
}
