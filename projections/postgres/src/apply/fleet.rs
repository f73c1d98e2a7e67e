//! `worker`, `settings`, `anomaly`, `entry_index`.

use gradient_domain::Kind;
use gradient_projections::change::{
    Anomaly, SettingsReplaced, Touched, WorkerCapabilities, WorkerFigures, WorkerIdle,
    WorkerJoined, WorkerPresence, WorkerRejected,
};

use super::{Statement, bulk, int, json, text};

pub(super) fn settings(rows: &[&SettingsReplaced]) -> Statement {
    let sql = "INSERT INTO settings (id, at, settings) \
         SELECT 1, at, settings FROM unnest($1::int8[], $2::jsonb[]) AS r (at, settings) \
         ON CONFLICT (id) DO UPDATE SET at = EXCLUDED.at, settings = EXCLUDED.settings";
    bulk!(sql, rows, |r| [int(r.at.0), json(&r.settings)])
}

/// The same session again keeps what is known of it, unless it had gone meanwhile.
pub(super) fn joined(rows: &[&WorkerJoined]) -> Statement {
    let sql = "INSERT INTO worker AS w (worker, session, name, can_fetch, can_eval, can_build, protocol, presence, \
           presence_at, joined_at) \
         SELECT worker, session, name, can_fetch, can_eval, can_build, protocol, 'connected', at, at \
         FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bool[], $5::bool[], $6::bool[], \
             $7::int4[], $8::int8[]) \
           AS r (worker, session, name, can_fetch, can_eval, can_build, protocol, at) \
         ON CONFLICT (worker) DO UPDATE SET session = EXCLUDED.session, name = EXCLUDED.name, \
           can_fetch = EXCLUDED.can_fetch, can_eval = EXCLUDED.can_eval, can_build = EXCLUDED.can_build, \
           protocol = EXCLUDED.protocol, rejection = NULL, \
           presence = CASE WHEN w.session = EXCLUDED.session AND w.presence IN ('connected', 'draining') \
             THEN w.presence ELSE EXCLUDED.presence END, \
           presence_at = CASE WHEN w.session = EXCLUDED.session AND w.presence IN ('connected', 'draining') \
             THEN w.presence_at ELSE EXCLUDED.presence_at END, \
           joined_at = CASE WHEN w.session = EXCLUDED.session AND w.presence IN ('connected', 'draining') \
             THEN w.joined_at ELSE EXCLUDED.joined_at END, \
           capabilities = CASE WHEN w.session = EXCLUDED.session AND w.presence IN ('connected', 'draining') \
             THEN w.capabilities END, \
           metrics = CASE WHEN w.session = EXCLUDED.session AND w.presence IN ('connected', 'draining') \
             THEN w.metrics END, \
           metrics_at = CASE WHEN w.session = EXCLUDED.session AND w.presence IN ('connected', 'draining') \
             THEN w.metrics_at END, \
           idle_evaluate_since = CASE WHEN w.session = EXCLUDED.session \
             AND w.presence IN ('connected', 'draining') THEN w.idle_evaluate_since END, \
           idle_build_since = CASE WHEN w.session = EXCLUDED.session \
             AND w.presence IN ('connected', 'draining') THEN w.idle_build_since END";
    bulk!(sql, rows, |r| [
        r.worker.uuid(),
        r.session.uuid(),
        text(&r.name),
        r.fetch,
        r.eval,
        r.build,
        i32::from(r.protocol),
        int(r.at.0),
    ])
}

pub(super) fn rejected(rows: &[&WorkerRejected]) -> Statement {
    let sql = "INSERT INTO worker (worker, session, rejection, name, can_fetch, can_eval, can_build, protocol, \
           presence, presence_at, joined_at) \
         SELECT worker, session, rejection, '', false, false, false, 0, 'refused', at, at \
         FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int8[]) \
           AS r (worker, session, rejection, at) \
         ON CONFLICT (worker) DO UPDATE SET rejection = EXCLUDED.rejection";
    bulk!(sql, rows, |r| [
        r.worker.uuid(),
        r.session.uuid(),
        format!("{} ({})", text(&r.reason), r.code),
        int(r.at.0),
    ])
}

pub(super) fn capabilities(rows: &[&WorkerCapabilities]) -> Statement {
    let sql = "UPDATE worker AS w SET capabilities = r.capabilities, capabilities_version = r.version \
         FROM unnest($1::uuid[], $2::jsonb[], $3::int8[]) AS r (worker, capabilities, version) \
         WHERE w.worker = r.worker";
    bulk!(sql, rows, |r| [r.worker.uuid(), json(&r.capabilities), i64::from(r.version),])
}

pub(super) fn figures(rows: &[&WorkerFigures]) -> Statement {
    let sql = "UPDATE worker AS w SET metrics = r.metrics, metrics_at = r.at \
         FROM unnest($1::uuid[], $2::jsonb[], $3::int8[]) AS r (worker, metrics, at) \
         WHERE w.worker = r.worker";
    bulk!(sql, rows, |r| [r.worker.uuid(), json(&r.metrics), int(r.at.0)])
}

/// Both kinds of slot of a worker may come together; its row is updated once.
pub(super) fn idle(rows: &[&WorkerIdle]) -> Statement {
    let sql = "UPDATE worker AS w SET \
           idle_evaluate_since = CASE WHEN r.of_evaluate THEN r.evaluate_since \
             ELSE w.idle_evaluate_since END, \
           idle_build_since = CASE WHEN r.of_build THEN r.build_since ELSE w.idle_build_since END \
         FROM (SELECT worker, bool_or(is_build) AS of_build, bool_or(NOT is_build) AS of_evaluate, \
             max(since) FILTER (WHERE is_build) AS build_since, \
             max(since) FILTER (WHERE NOT is_build) AS evaluate_since \
           FROM unnest($1::uuid[], $2::bool[], $3::int8[]) AS r (worker, is_build, since) \
           GROUP BY worker) AS r \
         WHERE w.worker = r.worker";
    bulk!(sql, rows, |r| [
        r.worker.uuid(),
        r.kind == Kind::Build,
        r.since.map(|since| int(since.0)),
    ])
}

pub(super) fn presence(rows: &[&WorkerPresence]) -> Statement {
    let sql = "UPDATE worker AS w SET presence = r.presence, presence_at = r.at, \
           idle_evaluate_since = NULL, idle_build_since = NULL \
         FROM unnest($1::uuid[], $2::text[], $3::int8[]) AS r (worker, presence, at) \
         WHERE w.worker = r.worker";
    bulk!(sql, rows, |r| [r.worker.uuid(), r.presence.name(), int(r.at.0)])
}

pub(super) fn anomalies(rows: &[&Anomaly]) -> Statement {
    let sql = "INSERT INTO anomaly (log_sequence, log_index, ordinal, kind, worker, job, assignment, \
           reason, at) \
         SELECT * FROM unnest($1::int8[], $2::int4[], $3::int4[], $4::text[], $5::uuid[], $6::text[], \
           $7::int8[], $8::text[], $9::int8[])";
    bulk!(sql, rows, |r| [
        int(r.position.sequence),
        r.position.index.cast_signed(),
        r.ordinal.cast_signed(),
        r.kind.name(),
        r.worker.map(|worker| worker.uuid()),
        r.job.map(|job| job.to_string()),
        r.assignment.map(|assignment| int(assignment.0)),
        text(&r.reason),
        int(r.at.0),
    ])
}

pub(super) fn touched(rows: &[&Touched]) -> Statement {
    let sql = "INSERT INTO entry_index (subject, log_sequence, log_index) \
         SELECT * FROM unnest($1::text[], $2::int8[], $3::int4[])";
    bulk!(sql, rows, |r| [
        r.subject.to_string(),
        int(r.position.sequence),
        r.position.index.cast_signed(),
    ])
}
