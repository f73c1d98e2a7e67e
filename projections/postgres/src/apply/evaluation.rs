//! `evaluation`, `evaluation_build`, `entry_point`, `evaluation_message`.

use gradient_projections::change::{
    EntryPoints, EvaluationAdvanced, EvaluationCounted, EvaluationEnded, EvaluationHandedOut,
    EvaluationRequested, EvaluationRetries, EvaluationSource, EvaluationWaits, EvaluationWants,
    Message,
};

use super::{Statement, bulk, int, json, text};

pub(super) fn requested(rows: &[&EvaluationRequested]) -> Statement {
    let sql = "INSERT INTO evaluation \
         (evaluation, log_sequence, log_index, flake, label, patterns, state, requested_at) \
         SELECT evaluation, log_sequence, log_index, flake, label, patterns, 'queued', at \
         FROM unnest($1::uuid[], $2::int8[], $3::int4[], $4::jsonb[], $5::text[], $6::jsonb[], $7::int8[]) \
           AS r (evaluation, log_sequence, log_index, flake, label, patterns, at) \
         ON CONFLICT DO NOTHING";
    bulk!(sql, rows, |r| [
        r.evaluation.uuid(),
        int(r.position.sequence),
        r.position.index.cast_signed(),
        json(&r.flake),
        text(r.flake.label()),
        json(&r.patterns),
        int(r.at.0),
    ])
}

pub(super) fn advanced(rows: &[&EvaluationAdvanced]) -> Statement {
    let sql = "UPDATE evaluation AS e SET \
           state = r.state, \
           waiting = CASE WHEN r.state = 'queued' AND e.waiting->>'kind' = 'retry' THEN e.waiting END, \
           waiting_since = CASE WHEN r.state = 'queued' AND e.waiting->>'kind' = 'retry' \
             THEN e.waiting_since END, \
           discovered_at = CASE WHEN r.state = 'building' THEN coalesce(e.discovered_at, r.at) \
             ELSE e.discovered_at END \
         FROM unnest($1::uuid[], $2::text[], $3::int8[]) AS r (evaluation, state, at) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [r.evaluation.uuid(), r.state.name(), int(r.at.0)])
}

pub(super) fn waits(rows: &[&EvaluationWaits]) -> Statement {
    let sql = "UPDATE evaluation AS e SET state = r.state, waiting = r.waiting, \
           waiting_since = CASE WHEN e.waiting = r.waiting THEN e.waiting_since ELSE r.at END \
         FROM unnest($1::uuid[], $2::text[], $3::jsonb[], $4::int8[]) \
           AS r (evaluation, state, waiting, at) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [r.evaluation.uuid(), r.state.name(), json(&r.reason), int(r.at.0),])
}

pub(super) fn retries(rows: &[&EvaluationRetries]) -> Statement {
    let sql = "UPDATE evaluation AS e SET errors = 0, warnings = 0, \
           run_sequence = r.log_sequence, run_index = r.log_index, \
           waiting = CASE WHEN e.waiting->>'kind' <> 'retry' THEN e.waiting END, \
           waiting_since = CASE WHEN e.waiting->>'kind' <> 'retry' THEN e.waiting_since END \
         FROM unnest($1::uuid[], $2::int8[], $3::int4[]) AS r (evaluation, log_sequence, log_index) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [
        r.evaluation.uuid(),
        int(r.position.sequence),
        r.position.index.cast_signed(),
    ])
}

pub(super) fn source(rows: &[&EvaluationSource]) -> Statement {
    let sql = "UPDATE evaluation AS e SET flake_source = r.flake_source, locked_url = r.locked_url \
         FROM unnest($1::uuid[], $2::text[], $3::text[]) AS r (evaluation, flake_source, locked_url) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [r.evaluation.uuid(), r.flake_source.to_string(), text(&r.locked_url),])
}

pub(super) fn counted(rows: &[&EvaluationCounted]) -> Statement {
    let sql = "UPDATE evaluation AS e SET errors = e.errors + r.errors, \
           warnings = e.warnings + r.warnings \
         FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS r (evaluation, errors, warnings) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [r.evaluation.uuid(), int(r.errors), int(r.warnings)])
}

pub(super) fn handed_out(rows: &[&EvaluationHandedOut]) -> Statement {
    let sql = "UPDATE evaluation AS e SET hand_outs = e.hand_outs + 1, \
           started_at = coalesce(e.started_at, r.at) \
         FROM unnest($1::uuid[], $2::int8[]) AS r (evaluation, at) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [r.evaluation.uuid(), int(r.at.0)])
}

pub(super) fn ended(rows: &[&EvaluationEnded]) -> Statement {
    let sql = "UPDATE evaluation AS e SET state = r.state, error = r.error, finished_at = r.at, \
           waiting = NULL, waiting_since = NULL \
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::int8[]) AS r (evaluation, state, error, at) \
         WHERE e.evaluation = r.evaluation";
    bulk!(sql, rows, |r| [
        r.evaluation.uuid(),
        r.state.name(),
        r.error.as_deref().map(text),
        int(r.at.0),
    ])
}

/// The walk of the scheduler: a build that is done needs nothing below it, and what the evaluation
/// wants already was walked before.
pub(super) fn wants(rows: &[&EvaluationWants]) -> Vec<Statement> {
    let sql = "WITH RECURSIVE wanted (build) AS ( \
           SELECT unnest($2::int8[]) \
           UNION \
           SELECT d.dependency FROM wanted w \
           JOIN build b ON b.build = w.build AND b.state NOT IN ('completed', 'substituted') \
           JOIN derivation_dependency d ON d.build = w.build \
           WHERE NOT EXISTS (SELECT FROM evaluation_build e \
                             WHERE e.evaluation = $1 AND e.build = d.dependency)) \
         INSERT INTO evaluation_build (evaluation, build) SELECT $1, build FROM wanted \
         ON CONFLICT DO NOTHING";
    let statement = |row: &&EvaluationWants| {
        let builds: Vec<i64> = row.builds.iter().map(|build| i64::from(build.0)).collect();
        Statement { sql, columns: vec![Box::new(row.evaluation.uuid()), Box::new(builds)] }
    };
    rows.iter().map(statement).collect()
}

pub(super) fn entry_points(rows: &[&EntryPoints]) -> Statement {
    let sql = "INSERT INTO entry_point (evaluation, attr_digest, attr_path, attr, build) \
         SELECT DISTINCT ON (evaluation, attr_path) \
           evaluation, md5(attr_path::text)::uuid, attr_path, attr, build \
         FROM unnest($1::uuid[], $2::jsonb[], $3::text[], $4::int8[]) \
           WITH ORDINALITY AS r (evaluation, attr_path, attr, build, n) \
         ORDER BY evaluation, attr_path, n DESC \
         ON CONFLICT (evaluation, attr_digest) DO UPDATE SET build = EXCLUDED.build";
    let points: Vec<_> = rows
        .iter()
        .flat_map(|row| row.points.iter().map(|(attr, build)| (row.evaluation, attr, *build)))
        .collect();
    bulk!(sql, points, |point| [
        point.0.uuid(),
        json(point.1),
        text(&point.1.to_string()),
        i64::from(point.2.0),
    ])
}

pub(super) fn messages(rows: &[&Message]) -> Statement {
    let sql = "INSERT INTO evaluation_message \
         (evaluation, log_sequence, log_index, ordinal, level, attr_path, text, at) \
         SELECT * FROM unnest($1::uuid[], $2::int8[], $3::int4[], $4::int4[], $5::text[], $6::jsonb[], \
           $7::text[], $8::int8[])";
    bulk!(sql, rows, |r| [
        r.evaluation.uuid(),
        int(r.position.sequence),
        r.position.index.cast_signed(),
        r.ordinal.cast_signed(),
        r.level.name(),
        r.attr.as_ref().map(json),
        text(&r.text),
        int(r.at.0),
    ])
}
