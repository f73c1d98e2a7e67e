//! Samples of what workers say.

use gradient_domain::{AttrPath, Capabilities, Feature, Kind, Requirement, System};
use gradient_events::FailureKind;
use gradient_events::score::{CandidateScore, OfferNumber};
use gradient_events::worker::{
    BuiltOutput, Dependency, DiscoveredDerivation, EvalMessage, EvalResult, Hello, JobUpdate,
    OpenAssignment, WorkerMessage,
};

use super::fixture::{ASSIGNMENT, attr, evaluate, job, outputs, path, requirement};
use super::{Sample, assert_complete, named, variants};

variants!(name_of, ALL, WorkerMessage:
    Hello => WorkerMessage::Hello(_),
    WorkerCapabilities => WorkerMessage::WorkerCapabilities { .. },
    RequestJobList => WorkerMessage::RequestJobList,
    RequestJobChunk => WorkerMessage::RequestJobChunk { .. },
    RequestJob => WorkerMessage::RequestJob { .. },
    AssignJobResponse => WorkerMessage::AssignJobResponse { .. },
    JobUpdate => WorkerMessage::JobUpdate { .. },
    JobCompleted => WorkerMessage::JobCompleted { .. },
    JobFailed => WorkerMessage::JobFailed { .. },
    Draining => WorkerMessage::Draining,
    Goodbye => WorkerMessage::Goodbye,
);

variants!(step_of, STEPS, JobUpdate:
    Fetching => JobUpdate::Fetching,
    FetchResult => JobUpdate::FetchResult { .. },
    EvaluatingFlake => JobUpdate::EvaluatingFlake,
    EvaluatingDerivations => JobUpdate::EvaluatingDerivations,
    EvalResult => JobUpdate::EvalResult(_),
    Building => JobUpdate::Building,
    BuildOutput => JobUpdate::BuildOutput { .. },
);

variants!(kind_of, KINDS, FailureKind:
    Transient => FailureKind::Transient,
    Permanent => FailureKind::Permanent,
    Timeout => FailureKind::Timeout,
    InputsUnavailable => FailureKind::InputsUnavailable,
    Aborted => FailureKind::Aborted,
    Canceled => FailureKind::Canceled,
);

const FAILURES: [FailureKind; 6] = [
    FailureKind::Transient,
    FailureKind::Permanent,
    FailureKind::Timeout,
    FailureKind::InputsUnavailable,
    FailureKind::Aborted,
    FailureKind::Canceled,
];

/// Every message; steps and failures one by one.
pub(super) fn all() -> Vec<Sample<WorkerMessage>> {
    let messages = messages();
    let steps = steps();
    assert_complete(STEPS, &steps, step_of);
    assert_complete(KINDS, &FAILURES, kind_of);
    let updates = named(steps, step_of).into_iter().map(|(step, update)| {
        let job = match update {
            JobUpdate::Building | JobUpdate::BuildOutput { .. } => job(),
            _ => evaluate(),
        };
        let message = WorkerMessage::JobUpdate { job, assignment: ASSIGNMENT, update };
        (format!("job-update-{step}"), message)
    });
    let failures = named(FAILURES.to_vec(), kind_of)
        .into_iter()
        .map(|(kind, failure)| (format!("job-failed-{kind}"), failed(failure)));
    let all: Vec<_> = named(messages, name_of).into_iter().chain(updates).chain(failures).collect();
    assert_complete(ALL, all.iter().map(|(_, message)| message), name_of);
    all
}

fn messages() -> Vec<WorkerMessage> {
    vec![
        WorkerMessage::Hello(Hello {
            name: "builder-1".into(),
            fetch: true,
            eval: true,
            build: false,
            protocol_oldest: 1,
            protocol_newest: 1,
            open_assignments: vec![OpenAssignment { job: job(), assignment: ASSIGNMENT }],
            greeting: 3,
        }),
        WorkerMessage::WorkerCapabilities { capabilities: capabilities() },
        WorkerMessage::WorkerCapabilities { capabilities: Capabilities::default() },
        WorkerMessage::RequestJobList,
        WorkerMessage::RequestJobChunk {
            scores: vec![
                CandidateScore {
                    job: job(),
                    missing_count: 3,
                    missing_nar_size: 5_000_000_000,
                    outputs_present: false,
                },
                CandidateScore {
                    job: evaluate(),
                    missing_count: 0,
                    missing_nar_size: 0,
                    outputs_present: true,
                },
            ],
            up_to: OfferNumber(42),
            is_final: true,
        },
        WorkerMessage::RequestJob { kind: Kind::Build },
        WorkerMessage::RequestJob { kind: Kind::Evaluate },
        WorkerMessage::AssignJobResponse {
            job: job(),
            assignment: ASSIGNMENT,
            accepted: true,
            reason: None,
        },
        WorkerMessage::AssignJobResponse {
            job: job(),
            assignment: ASSIGNMENT,
            accepted: false,
            reason: Some("draining".into()),
        },
        WorkerMessage::JobCompleted { job: job(), assignment: ASSIGNMENT, elapsed_ms: 1_234 },
        WorkerMessage::Draining,
        WorkerMessage::Goodbye,
    ]
}

fn capabilities() -> Capabilities {
    Capabilities {
        architectures: ["i686-linux", "x86_64-linux"].map(|s| System(s.into())).into(),
        system_features: ["big-parallel", "kvm"].map(|f| Feature(f.into())).into(),
        max_concurrent_builds: 4,
        cpu_count: 16,
        ram_total_mb: 64_000,
        cpu_core_score: 1_500,
        zone: Some("rack-2".into()),
        endpoint: Some("10.0.0.7".into()),
    }
}

fn failed(kind: FailureKind) -> WorkerMessage {
    WorkerMessage::JobFailed {
        job: job(),
        assignment: ASSIGNMENT,
        kind,
        error: "builder failed with exit code 1".into(),
        missing_paths: match kind {
            FailureKind::InputsUnavailable => vec![path("lost-1.0")],
            _ => Vec::new(),
        },
        elapsed_ms: 99,
    }
}

fn steps() -> Vec<JobUpdate> {
    vec![
        JobUpdate::Fetching,
        JobUpdate::FetchResult {
            flake_source: path("source"),
            locked_url: "path:/nix/store/source?narHash=sha256-A".into(),
        },
        JobUpdate::EvaluatingFlake,
        JobUpdate::EvaluatingDerivations,
        JobUpdate::EvalResult(found()),
        JobUpdate::EvalResult(EvalResult::default()),
        JobUpdate::Building,
        JobUpdate::BuildOutput {
            outputs: vec![BuiltOutput {
                name: "out".into(),
                path: path("hello-1.0"),
                nar_hash: "sha256:0000000000000000000000000000000000000000000000000000".into(),
                nar_size: 4_096,
            }],
            substituted: false,
            build_time_ms: 700,
        },
    ]
}

fn found() -> EvalResult {
    let whole = DiscoveredDerivation {
        attrs: vec![attr("hello"), AttrPath(vec!["with.dot".into(), String::new()])],
        drv_path: path("hello-1.0.drv"),
        outputs: outputs(),
        dependencies: vec![Dependency {
            drv_path: path("dep.drv"),
            outputs: vec!["out".into(), "lib".into()],
        }],
        requirement: requirement(),
        is_fixed_output: false,
        prefer_local_build: true,
        timeout_secs: Some(3_600),
        max_silent_secs: Some(60),
        pname: Some("hello".into()),
    };
    let bare = DiscoveredDerivation {
        attrs: Vec::new(),
        drv_path: path("dep.drv"),
        outputs: Vec::new(),
        dependencies: Vec::new(),
        requirement: Requirement::new("builtin", []),
        is_fixed_output: true,
        prefer_local_build: false,
        timeout_secs: None,
        max_silent_secs: None,
        pname: None,
    };
    EvalResult {
        derivations: vec![whole, bare],
        warnings: vec![EvalMessage { attr: None, text: "lock file is old".into() }],
        errors: vec![EvalMessage { attr: Some(attr("broken")), text: "evaluation aborted".into() }],
    }
}
