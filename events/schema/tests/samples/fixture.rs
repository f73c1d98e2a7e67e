//! The parts that samples are made of. Frozen like the samples.

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
    }
}
