//! `derivation`, `derivation_dependency`, `build`, `build_attempt`.

use gradient_domain::{AssignmentId, BuildId, JobId, StorePath, Timestamp, WorkerId};
use gradient_events::Event;
use gradient_events::FailureKind;
use gradient_events::worker::{DiscoveredDerivation, EvalResult, JobUpdate, WorkerMessage};

use crate::Projection;
use crate::change::{
    AttemptOpened, AttemptOutput, AttemptStarted, BuildAssigned, BuildEnded, BuildQueued,
    BuildReady, BuildStarted, BuildSucceeded, BuildThawed, Change, DependenciesRecorded,
    DerivationMentioned, DerivationRecorded,
};
use crate::pending_job;
use crate::view::BuildState;

/// New ids, first to last. Their paths are those mentions of the batch whose ids are new; the event
/// that names the ids of all mentions follows in the same entry.
pub(crate) fn created(projection: &mut Projection<'_>, first: BuildId, count: u32) {
    let (entry, at) = (projection.entry, projection.entry.at);
    let Some(batch) = entry.input.eval_result() else { return };
    let new = first.0..first.0.saturating_add(count);
    let mut paths = std::collections::BTreeMap::new();
    for event in &entry.events {
        if let Event::DerivationsRecorded { builds, dependencies, .. } = event {
            let mentions = mentions(batch, builds, dependencies);
            paths.extend(mentions.filter(|(build, _)| new.contains(&build.0)));
        }
    }
    for (build, path) in paths {
        let drv_path = path.clone();
        projection.push(Change::DerivationMentioned(DerivationMentioned { build, drv_path, at }));
    }
}

fn mentions<'a>(
    batch: &'a EvalResult,
    builds: &'a [BuildId],
    dependencies: &'a [Vec<BuildId>],
) -> impl Iterator<Item = (BuildId, &'a StorePath)> {
    let parallel = batch.derivations.iter().zip(builds).zip(dependencies);
    parallel.flat_map(|((derivation, build), edges)| {
        let own = std::iter::once((*build, &derivation.drv_path));
        let paths = derivation.dependencies.iter().map(|dependency| &dependency.drv_path);
        own.chain(edges.iter().copied().zip(paths))
    })
}

pub(crate) fn recorded(
    projection: &mut Projection<'_>,
    builds: &[BuildId],
    dependencies: &[Vec<BuildId>],
) {
    let position = projection.position;
    let Some(batch) = projection.entry.input.eval_result() else { return };
    for ((derivation, build), edges) in batch.derivations.iter().zip(builds).zip(dependencies) {
        let build = *build;
        projection.push(Change::DerivationRecorded(Box::new(record(build, position, derivation))));
        if !edges.is_empty() {
            let dependencies = edges
                .iter()
                .zip(&derivation.dependencies)
                .map(|(edge, dependency)| (*edge, dependency.outputs.clone()))
                .collect();
            let edges = DependenciesRecorded { build, position, dependencies };
            projection.push(Change::DependenciesRecorded(edges));
        }
    }
}

fn record(
    build: BuildId,
    position: crate::Position,
    derivation: &DiscoveredDerivation,
) -> DerivationRecorded {
    DerivationRecorded {
        build,
        position,
        requirement: derivation.requirement.clone(),
        outputs: derivation.outputs.clone(),
        is_fixed_output: derivation.is_fixed_output,
        prefer_local_build: derivation.prefer_local_build,
        pname: derivation.pname.clone(),
    }
}

pub(crate) fn ready(projection: &mut Projection<'_>, builds: &[BuildId]) {
    let at = projection.entry.at;
    for build in builds {
        projection.push(Change::BuildReady(BuildReady { build: *build, at }));
    }
}

/// A build that comes (back) into the queue without having become ready just now.
pub(crate) fn queued(projection: &mut Projection<'_>, build: BuildId) {
    projection.push(Change::BuildQueued(BuildQueued { build }));
}

pub(crate) fn assigned(
    projection: &mut Projection<'_>,
    build: BuildId,
    assignment: AssignmentId,
    worker: WorkerId,
) {
    let at = projection.entry.at;
    projection.push(Change::BuildAssigned(BuildAssigned { build, assignment }));
    projection.push(Change::AttemptOpened(AttemptOpened { assignment, build, worker, at }));
}

pub(crate) fn started(projection: &mut Projection<'_>, build: BuildId, assignment: AssignmentId) {
    let at = projection.entry.at;
    projection.push(Change::BuildStarted(BuildStarted { build, at }));
    projection.push(Change::AttemptStarted(AttemptStarted { assignment, build, at }));
}

/// What the input says that a hand-out made, if it says that.
pub(crate) fn output(projection: &mut Projection<'_>, assignment: AssignmentId) {
    let Some(WorkerMessage::JobUpdate {
        job: JobId::Build(build),
        update: JobUpdate::BuildOutput { outputs, substituted, build_time_ms },
        ..
    }) = projection.entry.input.message()
    else {
        return;
    };
    let change = AttemptOutput {
        assignment,
        build: *build,
        outputs: outputs.clone(),
        substituted: *substituted,
        build_time_ms: *build_time_ms,
    };
    projection.push(Change::AttemptOutput(Box::new(change)));
}

pub(crate) fn succeeded(projection: &mut Projection<'_>, build: BuildId, substituted: bool) {
    let at = projection.entry.at;
    projection.push(Change::BuildSucceeded(BuildSucceeded { build, substituted, at }));
}

pub(crate) fn failed(
    projection: &mut Projection<'_>,
    build: BuildId,
    kind: FailureKind,
    retry_at_ms: Option<u64>,
    message: &str,
) {
    let state = match (retry_at_ms, kind) {
        (Some(_), _) => BuildState::FailedTransient,
        (None, FailureKind::Timeout) => BuildState::FailedTimeout,
        (
            None,
            FailureKind::Transient
            | FailureKind::Permanent
            | FailureKind::InputsUnavailable
            | FailureKind::Aborted
            | FailureKind::Canceled,
        ) => BuildState::FailedPermanent,
    };
    let end = End {
        message: Some(message.to_owned()),
        retry_at: retry_at_ms.map(Timestamp),
        ..End::default()
    };
    ended(projection, build, state, end);
}

pub(crate) fn dependency_failed(
    projection: &mut Projection<'_>,
    builds: &[BuildId],
    cause: BuildId,
) {
    for build in builds {
        let end = End { cause: Some(cause), ..End::default() };
        ended(projection, *build, BuildState::DependencyFailed, end);
        pending_job::taken(projection, JobId::Build(*build));
    }
}

pub(crate) fn aborted(projection: &mut Projection<'_>, build: BuildId, reason: &str) {
    let end = End { message: Some(reason.to_owned()), ..End::default() };
    ended(projection, build, BuildState::Aborted, end);
    pending_job::taken(projection, JobId::Build(build));
}

pub(crate) fn skipped(projection: &mut Projection<'_>, builds: &[BuildId]) {
    for build in builds {
        ended(projection, *build, BuildState::Skipped, End::default());
        pending_job::taken(projection, JobId::Build(*build));
    }
}

pub(crate) fn thawed(projection: &mut Projection<'_>, builds: &[BuildId]) {
    let at = projection.entry.at;
    for build in builds {
        projection.push(Change::BuildThawed(BuildThawed { build: *build, at }));
    }
}

#[derive(Default)]
struct End {
    message: Option<String>,
    cause: Option<BuildId>,
    retry_at: Option<Timestamp>,
}

fn ended(projection: &mut Projection<'_>, build: BuildId, state: BuildState, end: End) {
    let at = projection.entry.at;
    let End { message, cause, retry_at } = end;
    let change = BuildEnded { build, state, message, cause, retry_at, at };
    projection.push(Change::BuildEnded(Box::new(change)));
}
