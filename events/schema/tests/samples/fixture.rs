//! The parts that samples are made of. Frozen like the samples.

use gradient_domain::flake::{Commit, FetchOptions, LockPolicy, Override};
use gradient_domain::{
    AssignmentId, AttrPath, BuildId, EvaluationId, JobId, Requirement, SessionId, StorePath,
    WorkerId,
};
use gradient_events::FlakeSource;
use gradient_events::job::Output;

pub(super) const WORKER: WorkerId = WorkerId([0x11; 16]);
pub(super) const SESSION: SessionId = SessionId([0x22; 16]);
pub(super) const BUILD: BuildId = BuildId(0x7b);
pub(super) const OTHER_BUILD: BuildId = BuildId(0x7c);
pub(super) const ASSIGNMENT: AssignmentId = AssignmentId(12);

pub(super) fn evaluation() -> EvaluationId {
    EvaluationId([0x33; 16])
}

pub(super) fn job() -> JobId {
    JobId::Build(BUILD)
}

pub(super) fn evaluate() -> JobId {
    JobId::Evaluate(evaluation())
}

pub(super) fn path(name: &str) -> StorePath {
    StorePath::from_parts(&[0x5a; 20], name).expect("a valid name")
}

pub(super) fn requirement() -> Requirement {
    Requirement::new("x86_64-linux", ["kvm".to_owned(), "big-parallel".to_owned()])
}

pub(super) fn attr(name: &str) -> AttrPath {
    ["packages", "x86_64-linux", name].into_iter().collect()
}

pub(super) fn outputs() -> Vec<Output> {
    vec![
        Output { name: "out".into(), path: Some(path("hello-1.0")) },
        Output { name: "dev".into(), path: None },
    ]
}

pub(super) fn store_source() -> FlakeSource {
    FlakeSource::Store {
        path: path("source"),
        nar_hash: "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into(),
        subdir: "nix".into(),
        label: "path:./examples/first-light".into(),
        commit: Some(Box::new(Commit {
            rev: "58ea48b59af2a7d0940305131b1228305c11ba86".into(),
            rev_count: Some(12),
            last_modified: Some(1_790_000_000),
        })),
    }
}

pub(super) fn fetch_options() -> Box<FetchOptions> {
    let overrides =
        vec![Override { input: "nixpkgs/lib".into(), reference: "github:example/lib/main".into() }];
    Box::new(FetchOptions { overrides, lock_policy: LockPolicy::Strict, has_ssh_key: true })
}
