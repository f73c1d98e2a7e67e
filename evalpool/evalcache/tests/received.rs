//! Files that came from elsewhere: what is taken, and what is not even run.

use std::path::Path;

use gradient_domain::pattern::PatternSet;
use gradient_evalcache::{EvalCache, Finding, Folder, Request, inspect, snapshot};
use gradient_ipc::shard::Recursion;
use rusqlite::Connection;

fn fingerprint() -> String {
    "a".repeat(64)
}

/// A file that answers one request.
fn complete(path: &Path) {
    let open = || EvalCache::open(path, &fingerprint()).expect("a cache");
    let patterns = PatternSet { includes: Vec::new(), excludes: Vec::new() };
    let request = Request::new(patterns, Recursion::Pattern);
    assert!(open().complete(&request, &[], |_| true).expect("noted"));
}

#[test]
fn a_file_that_declares_anything_else_is_useless() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("one.sqlite");
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n)
        select i as schema, i as fingerprint from n where i < 0";
    let rows = [
        String::new(),
        format!("create view More as {endless}"),
        // Asked for the fingerprint, this one would count for ever.
        format!("drop table GradientCache; create view GradientCache as {endless}"),
        "create trigger T after insert on Attributes begin delete from Attributes; end".into(),
        "drop table GradientNode; create table GradientNode(a check (abs(a) > 0))".into(),
        "create index I on Attributes(abs(type))".into(),
        "drop table GradientComplete".into(),
    ];
    for harm in rows {
        gradient_evalcache::remove(&path).expect("removed");
        complete(&path);
        Connection::open(&path).expect("opens").execute_batch(&harm).expect("harmed");
        let found = inspect(&path, &fingerprint()).expect("looked at");
        match &found {
            Finding::Well { requests, .. } => assert!(harm.is_empty() && requests.len() == 1),
            Finding::Useless(_) => assert!(!harm.is_empty(), "{found:?}"),
        }
    }
}

#[test]
fn a_staged_file_takes_the_place_of_the_old_one_and_its_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = Folder::new(dir.path().join("kept"));
    let place = folder.file(&fingerprint());
    let old = EvalCache::open(&place, &fingerprint()).expect("a cache");
    let log = place.with_extension("sqlite-wal");
    assert!(log.exists(), "it is written to");

    let other = dir.path().join("other.sqlite");
    let fresh = EvalCache::open(&other, &fingerprint()).expect("a cache");
    let copy = dir.path().join("copy");
    snapshot(&fresh, &copy).expect("copied");
    let refused = folder.stage(&fingerprint(), &copy).expect("looked at");
    assert!(matches!(refused, Finding::Useless(_)), "it answers nothing");
    drop(fresh);

    complete(&other);
    let fresh = EvalCache::open(&other, &fingerprint()).expect("a cache");
    snapshot(&fresh, &copy).expect("copied");
    folder.stage(&fingerprint(), &copy).expect("staged");
    assert!(!log.exists() && !copy.exists());
    drop(old);
    assert!(
        matches!(folder.check(&fingerprint()), Ok(Finding::Well { requests, .. }) if requests.len() == 1)
    );
}
