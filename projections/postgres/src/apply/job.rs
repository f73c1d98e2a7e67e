//! `pending_job`, `dispatched_job`, `build_attempt`.

use gradient_domain::JobId;
use gradient_projections::change::{
    AttemptEnded, AttemptOpened, AttemptOutput, AttemptStarted, DispatchAborting, DispatchAccepted,
    DispatchEnded, Dispatched, JobPending, JobTaken,
};
use uuid::Uuid;

use super::{Statement, bulk, int, json, plain_json, text};

fn build_of(job: JobId) -> Option<i64> {
    match job {
        JobId::Build(build) => Some(i64::from(build.0)),
        JobId::Evaluate(_) => None,
    }
}

fn evaluation_of(job: JobId) -> Option<Uuid> {
    match job {
        JobId::Build(_) => None,
        JobId::Evaluate(evaluation) => Some(evaluation.uuid()),
    }
}

pub(super) fn pending(rows: &[&JobPending]) -> Statement {
    let sql = "INSERT INTO pending_job (job, kind, build, evaluation, offer, system, features, \
           queued_at, ready_at, offered_at, hand_outs, requeue_reason, log_sequence, log_index) \
         SELECT r.job, r.kind, r.build, r.evaluation, r.offer, d.system, d.features, \
           coalesce(b.wanted_at, e.requested_at, r.at), coalesce(b.ready_at, e.requested_at, r.at), \
           r.at, coalesce(b.attempts, e.hand_outs, 0), r.reason, r.log_sequence, r.log_index \
         FROM unnest($1::text[], $2::text[], $3::int8[], $4::uuid[], $5::int8[], $6::text[], \
             $7::int8[], $8::int8[], $9::int4[]) \
           AS r (job, kind, build, evaluation, offer, reason, at, log_sequence, log_index) \
         LEFT JOIN derivation d ON d.build = r.build \
         LEFT JOIN build b ON b.build = r.build \
         LEFT JOIN evaluation e ON e.evaluation = r.evaluation \
         ON CONFLICT (job) DO UPDATE SET offer = EXCLUDED.offer, offered_at = EXCLUDED.offered_at, \
           ready_at = EXCLUDED.ready_at, hand_outs = EXCLUDED.hand_outs, \
           requeue_reason = EXCLUDED.requeue_reason, log_sequence = EXCLUDED.log_sequence, \
           log_index = EXCLUDED.log_index";
    bulk!(sql, rows, |r| [
        r.job.to_string(),
        r.job.kind().to_string(),
        build_of(r.job),
        evaluation_of(r.job),
        int(r.offer.0),
        r.reason.map(|reason| reason.name()),
        int(r.at.0),
        int(r.position.sequence),
        r.position.index.cast_signed(),
    ])
}

pub(super) fn taken(rows: &[&JobTaken]) -> Statement {
    let sql = "DELETE FROM pending_job WHERE job = ANY ($1::text[])";
    bulk!(sql, rows, |r| [r.job.to_string()])
}

pub(super) fn dispatched(rows: &[&Dispatched]) -> Statement {
    let sql = "INSERT INTO dispatched_job (assignment, job, kind, build, evaluation, worker, session, \
           queued_at, ready_at, assigned_at, total, breakdown, considered, runners_up, \
           capabilities_version, log_sequence, log_index) \
         SELECT r.assignment, r.job, r.kind, r.build, r.evaluation, r.worker, r.session, \
           coalesce(b.wanted_at, e.requested_at, r.at), coalesce(b.ready_at, e.requested_at, r.at), \
           r.at, r.total, r.breakdown::json, r.considered, r.runners_up::json, r.capabilities_version, \
           r.log_sequence, r.log_index \
         FROM unnest($1::int8[], $2::text[], $3::text[], $4::int8[], $5::uuid[], $6::uuid[], \
             $7::uuid[], $8::int8[], $9::int8[], $10::text[], $11::int8[], $12::text[], \
             $13::int8[], $14::int8[], $15::int4[]) \
           AS r (assignment, job, kind, build, evaluation, worker, session, at, total, breakdown, \
             considered, runners_up, capabilities_version, log_sequence, log_index) \
         LEFT JOIN build b ON b.build = r.build \
         LEFT JOIN evaluation e ON e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [
        int(r.assignment.0),
        r.job.to_string(),
        r.job.kind().to_string(),
        build_of(r.job),
        evaluation_of(r.job),
        r.worker.uuid(),
        r.session.uuid(),
        int(r.at.0),
        r.total.0,
        plain_json(&r.breakdown),
        i64::from(r.considered),
        plain_json(&r.runners_up),
        i64::from(r.capabilities_version),
        int(r.position.sequence),
        r.position.index.cast_signed(),
    ])
}

pub(super) fn accepted(rows: &[&DispatchAccepted]) -> Statement {
    let sql = "UPDATE dispatched_job AS j SET accepted_at = r.at \
         FROM unnest($1::int8[], $2::int8[]) AS r (assignment, at) \
         WHERE j.assignment = r.assignment";
    bulk!(sql, rows, |r| [int(r.assignment.0), int(r.at.0)])
}

pub(super) fn aborting(rows: &[&DispatchAborting]) -> Statement {
    let sql = "UPDATE dispatched_job AS j SET abort_requested_at = r.at, abort_cause = r.cause \
         FROM unnest($1::int8[], $2::text[], $3::int8[]) AS r (assignment, cause, at) \
         WHERE j.assignment = r.assignment";
    bulk!(sql, rows, |r| [int(r.assignment.0), r.cause.text(), int(r.at.0)])
}

pub(super) fn ended(rows: &[&DispatchEnded]) -> Statement {
    let sql = "UPDATE dispatched_job AS j SET finished_at = r.at, outcome = r.outcome, \
           reason = r.reason \
         FROM unnest($1::int8[], $2::text[], $3::text[], $4::int8[]) \
           AS r (assignment, outcome, reason, at) \
         WHERE j.assignment = r.assignment";
    bulk!(sql, rows, |r| [
        int(r.assignment.0),
        r.outcome.name(),
        r.reason.as_deref().map(text),
        int(r.at.0),
    ])
}

pub(super) fn attempt_opened(rows: &[&AttemptOpened]) -> Statement {
    let sql = "INSERT INTO build_attempt (assignment, build, worker, assigned_at) \
         SELECT * FROM unnest($1::int8[], $2::int8[], $3::uuid[], $4::int8[])";
    bulk!(sql, rows, |r| [int(r.assignment.0), i64::from(r.build.0), r.worker.uuid(), int(r.at.0),])
}

pub(super) fn attempt_started(rows: &[&AttemptStarted]) -> Statement {
    let sql = "UPDATE build_attempt AS a SET started_at = r.at \
         FROM unnest($1::int8[], $2::int8[]) AS r (assignment, at) \
         WHERE a.assignment = r.assignment";
    bulk!(sql, rows, |r| [int(r.assignment.0), int(r.at.0)])
}

pub(super) fn attempt_output(rows: &[&AttemptOutput]) -> Statement {
    let sql = "UPDATE build_attempt AS a SET outputs = r.outputs, substituted = r.substituted, \
           build_time_ms = r.build_time_ms \
         FROM unnest($1::int8[], $2::jsonb[], $3::bool[], $4::int8[]) \
           AS r (assignment, outputs, substituted, build_time_ms) \
         WHERE a.assignment = r.assignment";
    bulk!(sql, rows, |r| [
        int(r.assignment.0),
        json(&r.outputs),
        r.substituted,
        int(r.build_time_ms),
    ])
}

pub(super) fn attempt_ended(rows: &[&AttemptEnded]) -> Statement {
    let sql = "UPDATE build_attempt AS a SET finished_at = r.at, outcome = r.outcome, \
           failure = r.failure, message = r.message, missing_paths = r.missing_paths, \
           elapsed_ms = r.elapsed_ms \
         FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::int8[], $7::int8[]) \
           AS r (assignment, outcome, failure, message, missing_paths, elapsed_ms, at) \
         WHERE a.assignment = r.assignment";
    bulk!(sql, rows, |r| [
        int(r.assignment.0),
        r.outcome.name(),
        r.failure.map(|kind| kind.name()),
        r.message.as_deref().map(text),
        json(&r.missing_paths),
        r.elapsed_ms.map(int),
        int(r.at.0),
    ])
}
