//! Metrics of the scheduler: names with units, no free-text labels.

use gradient_domain::{Kind, Timestamp};
use gradient_scheduler_core::State;

const ENTRIES: &str = "gradient_entries_total";
const NO_OPS: &str = "gradient_inputs_without_effect_total";
const ASSIGNMENTS: &str = "gradient_assignments_total";
const LOST_WORKERS: &str = "gradient_workers_lost_total";
const CONFLICTS: &str = "gradient_append_conflicts_total";
const APPEND_SECONDS: &str = "gradient_append_seconds";
const DELIVERIES: &str = "gradient_deliveries_total";
const PENDING: &str = "gradient_pending_jobs";
const OLDEST_PENDING: &str = "gradient_oldest_pending_seconds";
const IDLE_SLOTS: &str = "gradient_idle_slots";
const WORKERS: &str = "gradient_workers";
const SWEEP_FOUND: &str = "gradient_sweep_found";

pub(crate) fn entry(events: &[gradient_events::Event]) {
    metrics::counter!(ENTRIES).increment(1);
    for event in events {
        if let gradient_events::Event::JobAssigned { .. } = event {
            metrics::counter!(ASSIGNMENTS).increment(1);
        } else if let gradient_events::Event::WorkerLost { .. } = event {
            metrics::counter!(LOST_WORKERS).increment(1);
        }
    }
}

pub(crate) fn no_op() {
    metrics::counter!(NO_OPS).increment(1);
}

pub(crate) fn conflict() {
    metrics::counter!(CONFLICTS).increment(1);
}

pub(crate) fn appended(seconds: f64) {
    metrics::histogram!(APPEND_SECONDS).record(seconds);
}

pub(crate) fn delivered() {
    metrics::counter!(DELIVERIES).increment(1);
}

/// Gauges of the state, once per tick.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn state(state: &State, now: Timestamp) {
    let oldest =
        state.queue().classes().filter_map(|class| class.waiting.first()).map(|(at, _)| *at).min();
    let oldest_ms = oldest.map_or(0, |at| now.since_ms(at));
    metrics::gauge!(PENDING).set(state.queue().len() as f64);
    metrics::gauge!(OLDEST_PENDING).set(oldest_ms as f64 / 1_000.0);
    let here = state.workers().values().filter(|worker| worker.presence.is_here());
    metrics::gauge!(WORKERS).set(here.clone().count() as f64);
    for kind in [Kind::Evaluate, Kind::Build] {
        let idle = here.clone().filter(|worker| worker.idle.contains_key(&kind)).count();
        metrics::gauge!(IDLE_SLOTS, "kind" => kind.to_string()).set(idle as f64);
    }
    metrics::gauge!(SWEEP_FOUND).set(state.sweep_found() as f64);
}
