//! Prometheus metrics of a process.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Buckets of everything named `*_seconds`.
const SECONDS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0,
    300.0,
];

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Starts recording; a second call changes nothing.
///
/// # Panics
/// If another recorder was installed in this process.
pub fn install() -> PrometheusHandle {
    HANDLE
        .get_or_init(|| {
            PrometheusBuilder::new()
                .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
                .expect("there are buckets")
                .install_recorder()
                .expect("no other recorder is installed")
        })
        .clone()
}
