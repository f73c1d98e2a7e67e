//! The scheduler's shell: input → decide → append → deliver. It owns the clock, the connection and the
//! memory of what was sent; every decision is the core's.
//!
//! Layer: service. It must not see SQL.

mod catch_up;
mod deliver;
mod feed;
mod input;
mod metrics;
mod presence;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gradient_domain::{AssignmentId, JobId, Timestamp};
use gradient_events::Settings;
use gradient_log::jetstream::{Broker, StreamLimits};
use gradient_runtime::health::Health;
use gradient_runtime::shutdown::CancellationToken;

use crate::turn::Scheduler;

/// Mints the token that lets one hand-out write to the cache; called at delivery, never logged.
pub type MintToken = Arc<dyn Fn(JobId, AssignmentId) -> String + Send + Sync>;

/// Settings of the shell.
#[derive(Clone)]
pub struct SchedulerSettings {
    /// What the core decides by.
    pub core: Settings,
    /// A worker silent for this long is lost; zero turns the check off
    /// (`proto.workerHeartbeatTimeoutSecs`).
    pub heartbeat_timeout: Duration,
    /// Mints upload tokens.
    pub mint_token: MintToken,
    /// Settings of the streams, for making one again that was deleted.
    pub streams: StreamLimits,
}

/// Runs the scheduler until `stop`.
///
/// # Errors
/// If the log cannot be read or written any more, or holds what this build cannot believe.
pub async fn run(
    broker: Broker,
    settings: SchedulerSettings,
    health: Health,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let streams = settings.streams.clone();
    let mut scheduler = Scheduler::recover(broker.clone(), settings, health)
        .await
        .context("the scheduler could not read its log")?;
    let mut feed = feed::start(&broker, scheduler.first_command(), streams, stop.clone())
        .await
        .context("the scheduler could not read its inputs")?;
    tracing::info!(log = scheduler.last_sequence(), "scheduler runs");
    let mut incoming = Vec::new();
    loop {
        let some = tokio::select! {
            () = stop.cancelled() => break,
            count = feed.recv_many(&mut incoming, feed::BATCH_MAX) => count > 0,
        };
        anyhow::ensure!(some, "the inputs ended");
        scheduler.turn(incoming.drain(..)).await?;
    }
    tracing::info!(log = scheduler.last_sequence(), "scheduler stopped");
    Ok(())
}

/// The shell's clock.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

/// Whether a scoring policy of this name exists.
#[must_use]
pub fn policy_exists(name: &str) -> bool {
    gradient_scheduler_core::policy::Policy::named(name).name() == name
}
