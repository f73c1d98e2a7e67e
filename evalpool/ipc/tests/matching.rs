//! What patterns match, what they force, and what they put off: tables over a made-up flake.

mod made_up;

use std::collections::BTreeSet;

use gradient_domain::pattern::{Pattern, Segment};
use gradient_ipc::message::{ListOk, PlanOk};
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::walker;
use made_up::{Tree, Value};

fn set<const N: usize>(children: [(&str, Value); N]) -> Value {
    Value::Set(children.map(|(name, value)| (name.to_owned(), value)).into())
}

fn opaque<const N: usize>(children: [(&str, Value); N]) -> Value {
    Value::Opaque(children.map(|(name, value)| (name.to_owned(), value)).into())
}

fn drv() -> Value {
    Value::Derivation([("out".to_owned(), Value::Throws)].into())
}

fn flake() -> Value {
    let nested =
        || set([("inner", drv()), ("deeper", set([("never", drv())])), ("n", Value::Plain)]);
    let system = || set([("hello", drv()), ("cowsay", drv()), ("nested", nested())]);
    let host = || {
        let build = set([("toplevel", drv())]);
        opaque([("config", set([("system", set([("build", build)]))]))])
    };
    set([
        ("packages", set([("aarch64-linux", system()), ("x86_64-linux", system())])),
        ("nixosConfigurations", set([("alpha", host()), ("beta", host())])),
        ("checks", set([("x86_64-linux", set([("bad", Value::Throws), ("int", Value::Plain)]))])),
        (
            "lib",
            set([
                ("broken", Value::BrokenDerivation),
                ("f", Value::Plain),
                ("throws", Value::Throws),
            ]),
        ),
    ])
}

fn segments(text: &str) -> Vec<Segment> {
    text.parse::<Pattern>().expect(text).segments
}

fn shard_text(shard: &Shard) -> String {
    let pattern = Pattern { exclude: false, segments: shard.pattern.clone() };
    match &shard.only {
        Some(names) => format!("{pattern} [{}]", names.join(" ")),
        None => pattern.to_string(),
    }
}

/// Everything that a pattern finds, deferred sets included, in one process.
fn found(root: &Value, text: &str) -> (Vec<String>, Vec<String>) {
    let mut shards = vec![Shard::whole(segments(text), Recursion::Pattern)];
    let (mut items, mut errors) = (Vec::new(), Vec::new());
    while let Some(shard) = shards.pop() {
        let listed = walker::list(&mut Tree::new(root), &shard, &BTreeSet::new()).expect("root");
        for item in listed.items {
            match item.result {
                Ok(_) => items.push(item.attr.to_string()),
                Err(message) => errors.push(format!("{}: {message}", item.attr)),
            }
        }
        let error = |e: gradient_ipc::tree::AttrError| format!("{}: {}", e.attr, e.message);
        errors.extend(listed.errors.into_iter().map(error));
        shards.extend(listed.deferred);
    }
    items.sort();
    (items, errors)
}

#[test]
fn what_patterns_match() {
    let root = flake();
    let both = |name: &str| {
        ["aarch64-linux", "x86_64-linux"].map(|system| format!("packages.{system}.{name}"))
    };
    let everywhere: Vec<_> = {
        let mut all: Vec<_> = both("hello").into_iter().chain(both("cowsay")).collect();
        all.sort();
        all
    };
    let hosts = ["alpha", "beta"]
        .map(|host| format!("nixosConfigurations.{host}.config.system.build.toplevel"));
    let here = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("packages.x86_64-linux.{name}")).collect()
    };
    let rows: [(&str, Vec<String>); 14] = [
        ("packages.x86_64-linux.*", here(&["cowsay", "hello", "nested.inner"])),
        ("packages.x86_64-linux.#", here(&["cowsay", "hello"])),
        ("packages.*", everywhere.clone()),
        ("packages.*.*", everywhere.clone()),
        ("packages.#.#", everywhere),
        ("packages.*.hello", both("hello").into()),
        ("packages.*.nested.*", {
            let mut inner: Vec<_> =
                both("nested.deeper.never").into_iter().chain(both("nested.inner")).collect();
            inner.sort();
            inner
        }),
        ("packages.x86_64-linux.nested.inner", here(&["nested.inner"])),
        ("packages.x86_64-linux.missing", vec![]),
        ("missing.*.x", vec![]),
        ("nixosConfigurations.#.config.system.build.toplevel", hosts.into()),
        ("nixosConfigurations.*.config.system.build.toplevel", vec![]),
        ("nixosConfigurations.*", vec![]),
        ("packages.x86_64-linux.hello.nothing", vec![]),
    ];
    for (text, expected) in rows {
        assert_eq!(found(&root, text), (expected, vec![]), "{text}");
    }
}

#[test]
fn what_is_an_error() {
    let root = flake();
    let rows: [(&str, &[&str]); 7] = [
        (
            "checks.*",
            &[
                "checks.x86_64-linux.bad: boom",
                "checks.x86_64-linux.int: not a derivation (a string)",
            ],
        ),
        ("lib.*", &["lib.broken: broken", "lib.throws: boom"]),
        ("lib.f", &["lib.f: not a derivation (a string)"]),
        (
            "packages.x86_64-linux.nested",
            &["packages.x86_64-linux.nested: not a derivation (a set)"],
        ),
        ("nixosConfigurations.alpha", &["nixosConfigurations.alpha: not a derivation (a set)"]),
        (
            "packages.x86_64-linux.hello.*",
            &["packages.x86_64-linux.hello: is a derivation, not a set of derivations"],
        ),
        ("lib.throws.x", &["lib.throws: boom"]),
    ];
    for (text, expected) in rows {
        assert_eq!(found(&root, text).1, expected, "{text}");
    }
}

#[test]
fn a_plan_splits_at_the_first_wildcard_and_forces_only_the_way() {
    let root = flake();
    let rows: [(&str, &[&str], &[&str]); 7] = [
        ("packages.x86_64-linux.hello", &["packages.x86_64-linux.hello"], &[]),
        (
            "packages.x86_64-linux.*",
            &["packages.x86_64-linux.* [cowsay hello nested]"],
            &["packages", "x86_64-linux"],
        ),
        (
            "checks.x86_64-linux.#",
            &["checks.x86_64-linux.# [bad int]"],
            &["checks", "x86_64-linux"],
        ),
        (
            "packages.#.hello",
            &["packages.aarch64-linux.hello", "packages.x86_64-linux.hello"],
            &["packages"],
        ),
        (
            "packages.*.*.x.*",
            &["packages.aarch64-linux.x.*", "packages.x86_64-linux.x.*"],
            &["packages", "aarch64-linux", "x86_64-linux"],
        ),
        ("nixosConfigurations.*.config", &[], &["nixosConfigurations", "alpha", "beta"]),
        ("missing.*", &[], &["missing"]),
    ];
    for (text, shards, forced) in rows {
        let mut tree = Tree::new(&root);
        let planned = walker::plan(&mut tree, &[segments(text)], Recursion::Pattern).expect("root");
        let PlanOk { shards: planned, errors } = planned;
        assert_eq!(planned.iter().map(shard_text).collect::<Vec<_>>(), shards, "{text}");
        assert_eq!(errors, [], "{text}");
        assert_eq!(tree.forced, forced, "{text}");
    }
}

#[test]
fn a_nested_set_is_put_off_and_its_children_stay_unforced() {
    let root = flake();
    let mut tree = Tree::new(&root);
    let only = Some(vec!["hello".to_owned(), "nested".to_owned(), "vanished".to_owned()]);
    let shard =
        Shard { only, ..Shard::whole(segments("packages.x86_64-linux.*"), Recursion::Pattern) };
    let listed: ListOk = walker::list(&mut tree, &shard, &BTreeSet::new()).expect("root");
    assert_eq!(listed.items.len(), 1);
    let deferred: Vec<_> = listed.deferred.iter().map(shard_text).collect();
    assert_eq!(deferred, ["packages.x86_64-linux.nested.# [deeper inner n]"]);
    assert_eq!(tree.forced, ["packages", "x86_64-linux", "hello", "nested", "vanished"]);
    let mut tree = Tree::new(&root);
    let listed = walker::list(&mut tree, &listed.deferred[0], &BTreeSet::new()).expect("root");
    assert_eq!((listed.items.len(), listed.deferred.len()), (1, 0));
}

#[test]
fn an_excluded_path_is_left_out_and_not_forced_where_it_needs_not_be() {
    let root = flake();
    let excludes: BTreeSet<_> = ["checks.x86_64-linux.bad", "packages.x86_64-linux.nested"]
        .iter()
        .filter_map(|text| text.parse::<Pattern>().ok()?.exact_path())
        .collect();
    let mut tree = Tree::new(&root);
    let shard = Shard::whole(segments("checks.x86_64-linux.#"), Recursion::Pattern);
    let listed = walker::list(&mut tree, &shard, &excludes).expect("root");
    assert_eq!(listed.errors.len(), 1);
    assert!(!tree.forced.contains(&"bad".to_owned()));
    // An exclusion is one path: what lies below it stays.
    let shard = Shard::whole(segments("packages.x86_64-linux.*"), Recursion::Pattern);
    let listed = walker::list(&mut Tree::new(&root), &shard, &excludes).expect("root");
    assert_eq!(listed.deferred.len(), 1);
}

/// Everything that a whole tree holds by this rule, in one process.
fn whole_tree(root: &Value, pattern: &str, recursion: Recursion) -> (Vec<String>, Vec<String>) {
    let mut shards = vec![Shard::whole(segments(pattern), recursion)];
    let (mut jobs, mut errors) = (Vec::new(), Vec::new());
    while let Some(shard) = shards.pop() {
        let found = walker::list(&mut Tree::new(root), &shard, &BTreeSet::new()).expect("root");
        jobs.extend(found.items.into_iter().map(|item| item.attr.to_string()));
        errors.extend(found.errors.iter().map(|e| format!("{}: {}", e.attr, e.message)));
        shards.extend(found.deferred);
    }
    jobs.sort();
    errors.sort();
    (jobs, errors)
}

#[test]
fn functions_are_called_by_the_rule_of_a_tree_only() {
    let function = |value| Value::Function(Box::new(value));
    let root = set([
        ("job", function(drv())),
        ("throws", function(Value::Throws)),
        ("marked", function(set([("recurseForDerivations", Value::Plain), ("inner", drv())]))),
        ("unmarked", function(set([("inner", drv())]))),
    ]);
    let jobs = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let boom = vec!["throws: boom".to_owned()];
    assert_eq!(
        whole_tree(&root, "*", Recursion::Tree),
        (jobs(&["job", "marked.inner"]), boom.clone())
    );
    let all = jobs(&["job", "marked.inner", "unmarked.inner"]);
    assert_eq!(whole_tree(&root, "*", Recursion::WholeTree), (all, boom));
    assert_eq!(whole_tree(&root, "*", Recursion::Marked), (vec![], vec![]));
}

#[test]
fn the_root_of_a_tree_is_entered_unless_it_says_otherwise() {
    let root = |mark| set([("recurseForDerivations", mark), ("job", drv())]);
    let job = vec!["job".to_owned()];
    let (yes, no) = (root(Value::Plain), root(Value::Throws));
    assert_eq!(whole_tree(&yes, "*", Recursion::Tree), (job.clone(), vec![]));
    let failed = vec!["recurseForDerivations: boom".to_owned()];
    assert_eq!(whole_tree(&no, "*", Recursion::Tree), (vec![], vec![": boom".to_owned()]));
    assert_eq!(whole_tree(&no, "*", Recursion::WholeTree), (job, failed));
}

#[test]
fn a_check_in_a_set_that_is_not_entered_is_an_error() {
    let inner = || ("inner", drv());
    let checks = set([
        ("marked", set([("recurseForDerivations", Value::Plain), inner()])),
        ("unmarked", set([inner()])),
    ]);
    let root = set([("checks", set([("x86_64-linux", checks)]))]);
    assert_eq!(
        whole_tree(&root, "checks.*", Recursion::Marked),
        (
            vec!["checks.x86_64-linux.marked.inner".to_owned()],
            vec!["checks.x86_64-linux.unmarked: not a derivation (a set)".to_owned()]
        )
    );
}
