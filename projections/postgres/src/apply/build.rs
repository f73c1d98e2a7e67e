//! `derivation`, `derivation_dependency`, `build`.

use gradient_projections::change::{
    BuildAssigned, BuildEnded, BuildQueued, BuildReady, BuildReleased, BuildStarted,
    BuildSucceeded, BuildThawed, DependenciesRecorded, DerivationMentioned, DerivationRecorded,
};

use super::{Statement, bulk, int, json, text};

pub(super) fn mentioned(rows: &[&DerivationMentioned]) -> Statement {
    let sql = "WITH r AS (SELECT * FROM unnest($1::int8[], $2::text[], $3::int8[]) \
             AS r (build, drv_path, at)), \
           known AS (INSERT INTO derivation (build, drv_path) SELECT build, drv_path FROM r) \
         INSERT INTO build (build, state, created_at, wanted_at) \
         SELECT build, 'created', at, at FROM r";
    bulk!(sql, rows, |r| [i64::from(r.build.0), r.drv_path.to_string(), int(r.at.0)])
}

pub(super) fn recorded(rows: &[&DerivationRecorded]) -> Statement {
    let sql = "UPDATE derivation AS d SET recorded_sequence = r.log_sequence, \
           recorded_index = r.log_index, system = r.system, features = r.features, \
           outputs = r.outputs, is_fixed_output = r.is_fixed_output, \
           prefer_local_build = r.prefer_local_build, pname = r.pname \
         FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::text[], $5::jsonb[], $6::jsonb[], \
             $7::bool[], $8::bool[], $9::text[]) \
           AS r (build, log_sequence, log_index, system, features, outputs, is_fixed_output, \
             prefer_local_build, pname) \
         WHERE d.build = r.build AND d.recorded_sequence IS NULL";
    bulk!(sql, rows, |r| [
        i64::from(r.build.0),
        int(r.position.sequence),
        r.position.index.cast_signed(),
        text(&r.requirement.system.0),
        json(&r.requirement.features),
        json(&r.outputs),
        r.is_fixed_output,
        r.prefer_local_build,
        r.pname.as_deref().map(text),
    ])
}

pub(super) fn dependencies(rows: &[&DependenciesRecorded]) -> Statement {
    let sql = "INSERT INTO derivation_dependency (build, dependency, outputs) \
         SELECT r.build, r.dependency, r.outputs \
         FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::int8[], $5::jsonb[]) \
           AS r (build, log_sequence, log_index, dependency, outputs) \
         JOIN derivation d ON d.build = r.build AND d.recorded_sequence = r.log_sequence \
           AND d.recorded_index = r.log_index \
         ON CONFLICT DO NOTHING";
    let edges: Vec<_> = rows
        .iter()
        .flat_map(|row| row.dependencies.iter().map(move |(build, outputs)| (row, *build, outputs)))
        .collect();
    bulk!(sql, edges, |edge| [
        i64::from(edge.0.build.0),
        int(edge.0.position.sequence),
        edge.0.position.index.cast_signed(),
        i64::from(edge.1.0),
        json(edge.2),
    ])
}

pub(super) fn ready(rows: &[&BuildReady]) -> Statement {
    let sql = "UPDATE build AS b SET state = 'queued', ready_at = r.at \
         FROM unnest($1::int8[], $2::int8[]) AS r (build, at) WHERE b.build = r.build";
    bulk!(sql, rows, |r| [i64::from(r.build.0), int(r.at.0)])
}

pub(super) fn queued(rows: &[&BuildQueued]) -> Statement {
    let sql = "UPDATE build SET state = 'queued', retry_at = NULL WHERE build = ANY ($1::int8[])";
    bulk!(sql, rows, |r| [i64::from(r.build.0)])
}

pub(super) fn assigned(rows: &[&BuildAssigned]) -> Statement {
    let sql = "UPDATE build AS b SET state = 'assigned', assignment = r.assignment, \
           attempts = b.attempts + 1, started_at = NULL \
         FROM unnest($1::int8[], $2::int8[]) AS r (build, assignment) WHERE b.build = r.build";
    bulk!(sql, rows, |r| [i64::from(r.build.0), int(r.assignment.0)])
}

pub(super) fn released(rows: &[&BuildReleased]) -> Statement {
    let sql = "UPDATE build AS b SET state = 'created', assignment = NULL \
         FROM unnest($1::int8[], $2::int8[]) AS r (build, assignment) \
         WHERE b.build = r.build AND b.assignment = r.assignment";
    bulk!(sql, rows, |r| [i64::from(r.build.0), int(r.assignment.0)])
}

pub(super) fn started(rows: &[&BuildStarted]) -> Statement {
    let sql = "UPDATE build AS b SET state = 'building', started_at = r.at \
         FROM unnest($1::int8[], $2::int8[]) AS r (build, at) WHERE b.build = r.build";
    bulk!(sql, rows, |r| [i64::from(r.build.0), int(r.at.0)])
}

pub(super) fn succeeded(rows: &[&BuildSucceeded]) -> Statement {
    let sql = "UPDATE build AS b SET \
           state = CASE WHEN r.substituted THEN 'substituted' ELSE 'completed' END, \
           outputs = coalesce( \
             (SELECT a.outputs FROM build_attempt a WHERE a.assignment = b.assignment), \
             (SELECT d.outputs FROM derivation d WHERE d.build = b.build)), \
           assignment = NULL, failures = 0, finished_at = r.at, retry_at = NULL, message = NULL, \
           cause = NULL \
         FROM unnest($1::int8[], $2::bool[], $3::int8[]) AS r (build, substituted, at) \
         WHERE b.build = r.build";
    bulk!(sql, rows, |r| [i64::from(r.build.0), r.substituted, int(r.at.0)])
}

/// A failure that another try may mend is no end.
pub(super) fn ended(rows: &[&BuildEnded]) -> Statement {
    let sql = "UPDATE build AS b SET state = r.state, assignment = NULL, message = r.message, \
           cause = r.cause, retry_at = r.retry_at, \
           failures = b.failures + CASE WHEN r.retry_at IS NULL THEN 0 ELSE 1 END, \
           finished_at = CASE WHEN r.retry_at IS NULL THEN r.at END \
         FROM unnest($1::int8[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::int8[]) \
           AS r (build, state, message, cause, retry_at, at) \
         WHERE b.build = r.build";
    bulk!(sql, rows, |r| [
        i64::from(r.build.0),
        r.state.name(),
        r.message.as_deref().map(text),
        r.cause.map(|cause| i64::from(cause.0)),
        r.retry_at.map(|at| int(at.0)),
        int(r.at.0),
    ])
}

pub(super) fn thawed(rows: &[&BuildThawed]) -> Statement {
    let sql = "UPDATE build AS b SET state = 'created', failures = 0, wanted_at = r.at, \
           ready_at = NULL, started_at = NULL, finished_at = NULL, retry_at = NULL, message = NULL, \
           cause = NULL \
         FROM unnest($1::int8[], $2::int8[]) AS r (build, at) WHERE b.build = r.build";
    bulk!(sql, rows, |r| [i64::from(r.build.0), int(r.at.0)])
}
