//! Samples of what workers are told.

use gradient_events::job::{BuildJob, EvaluateJob, Job};
use gradient_events::score::OfferNumber;
use gradient_events::server::{JobCandidate, RequiredPath, ServerMessage};
use gradient_events::worker::OpenAssignment;

use super::fixture::{
    ASSIGNMENT, BUILD, SESSION, evaluate, evaluation, job, outputs, path, requirement, store_source,
};
use super::{Sample, assert_complete, named, variants};

variants!(name_of, ALL, ServerMessage:
    Welcome => ServerMessage::Welcome { .. },
    Reject => ServerMessage::Reject { .. },
    JobListChunk => ServerMessage::JobListChunk { .. },
    JobOffer => ServerMessage::JobOffer { .. },
    AssignJob => ServerMessage::AssignJob { .. },
    AbortJob => ServerMessage::AbortJob { .. },
    Draining => ServerMessage::Draining,
);

variants!(job_of, JOBS, Job:
    Evaluate => Job::Evaluate(_),
    Build => Job::Build(_),
);

/// Every message; every kind of job.
pub(super) fn all() -> Vec<Sample<ServerMessage>> {
    let jobs = [
        Job::Build(BuildJob {
            build: BUILD,
            drv_path: path("hello-1.0.drv"),
            outputs: outputs(),
            requirement: requirement(),
            is_fixed_output: false,
            timeout_secs: 14_400,
            max_silent_secs: 0,
        }),
        Job::Evaluate(EvaluateJob {
            evaluation: evaluation(),
            flake: store_source(),
            patterns: vec!["packages.*.*".into()],
            fetch: super::fixture::fetch_options(),
        }),
    ];
    assert_complete(JOBS, &jobs, job_of);
    let mut values = messages();
    values.extend(jobs.map(|job| ServerMessage::AssignJob {
        job_id: match &job {
            Job::Build(build) => gradient_domain::JobId::Build(build.build),
            Job::Evaluate(_) => evaluate(),
        },
        assignment_id: ASSIGNMENT,
        job,
        upload_token: "eyJqb2IiOiJidWlsZCJ9.c2lnbmF0dXJl".into(),
    }));
    assert_complete(ALL, &values, name_of);
    named(values, name_of)
}

fn messages() -> Vec<ServerMessage> {
    let build = JobCandidate {
        job_id: job(),
        required_paths: vec![
            RequiredPath { path: path("dep-1.0"), nar_size: Some(4_096) },
            RequiredPath { path: path("other-1.0"), nar_size: None },
        ],
        drv_paths: vec![path("hello-1.0.drv")],
        output_paths: vec![path("hello-1.0")],
        requirement: Some(requirement()),
    };
    let evaluation = JobCandidate {
        job_id: evaluate(),
        required_paths: Vec::new(),
        drv_paths: Vec::new(),
        output_paths: Vec::new(),
        requirement: None,
    };
    vec![
        ServerMessage::Welcome {
            session: SESSION,
            protocol: 1,
            fetch: true,
            eval: true,
            build: false,
            open_assignments: vec![OpenAssignment { job: job(), assignment: ASSIGNMENT }],
            greeting: 3,
        },
        ServerMessage::Reject {
            session: SESSION,
            code: 409,
            reason: "another session took over".into(),
        },
        ServerMessage::JobListChunk {
            candidates: vec![build.clone(), evaluation],
            up_to: OfferNumber(42),
            is_final: false,
        },
        ServerMessage::JobListChunk {
            candidates: Vec::new(),
            up_to: OfferNumber(0),
            is_final: true,
        },
        ServerMessage::JobOffer { candidates: vec![build], up_to: OfferNumber(43) },
        ServerMessage::AbortJob {
            job_id: job(),
            assignment_id: ASSIGNMENT,
            reason: "canceled by a user".into(),
        },
        ServerMessage::Draining,
    ]
}
