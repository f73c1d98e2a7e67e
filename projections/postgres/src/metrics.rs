//! Metrics of the projector: names with units, no free-text labels.

const ENTRIES: &str = "gradient_projector_entries_total";
const APPLY_SECONDS: &str = "gradient_projector_apply_seconds";
const POSITION: &str = "gradient_projector_position";
const LAG: &str = "gradient_projector_lag_messages";
const FENCED: &str = "gradient_projector_fenced_total";
const RETRIES: &str = "gradient_projector_retries_total";
const STUCK: &str = "gradient_projector_stuck";

#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn applied(entries: usize, position: u64, seconds: f64) {
    metrics::counter!(ENTRIES).increment(entries as u64);
    metrics::histogram!(APPLY_SECONDS).record(seconds);
    metrics::gauge!(POSITION).set(position as f64);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn lag(messages: u64) {
    metrics::gauge!(LAG).set(messages as f64);
}

pub(crate) fn fenced() {
    metrics::counter!(FENCED).increment(1);
}

pub(crate) fn retried() {
    metrics::counter!(RETRIES).increment(1);
}

pub(crate) fn stuck(is_stuck: bool) {
    metrics::gauge!(STUCK).set(if is_stuck { 1.0 } else { 0.0 });
}
