//! Streams and subjects (protocol page, Streams).

use gradient_domain::WorkerId;

/// Stream of everything that asks the scheduler for something.
pub const COMMANDS: &str = "COMMANDS";
/// Stream of the newest metrics of each worker.
pub const HEARTBEATS: &str = "HEARTBEATS";
/// The log.
pub const EVENTS: &str = "EVENTS";
/// Stream of what workers are told.
pub const DELIVERIES: &str = "DELIVERIES";

/// Commands from the api and the command line.
pub const COMMAND_API: &str = "gradient.cmd.api";
/// Pattern of all commands.
pub const COMMAND_ALL: &str = "gradient.cmd.>";
/// The one subject of the log.
pub const EVENT: &str = "gradient.events";
/// Pattern of all heartbeats.
pub const HEARTBEAT_ALL: &str = "gradient.hb.*";
/// Pattern of all deliveries.
pub const DELIVERY_ALL: &str = "gradient.in.*";
/// Pattern of the core subjects that deliveries are republished to.
pub const LIVE_ALL: &str = "gradient.live.*";
/// Core request/reply: which of these derivations are known whole?
pub const QUERY_KNOWN_DERIVATIONS: &str = "gradient.query.KnownDerivations";

/// Where a worker sends its messages.
#[must_use]
pub fn command(worker: WorkerId) -> String {
    format!("gradient.cmd.worker.{worker}")
}

/// Where a worker sends its metrics.
#[must_use]
pub fn heartbeat(worker: WorkerId) -> String {
    format!("gradient.hb.{worker}")
}

/// Where the scheduler writes what a worker is told.
#[must_use]
pub fn delivery(worker: WorkerId) -> String {
    format!("gradient.in.{worker}")
}

/// Where a worker hears it (core subject, republished).
#[must_use]
pub fn live(worker: WorkerId) -> String {
    format!("gradient.live.{worker}")
}

/// The worker that a command or heartbeat subject names, if it names one.
#[must_use]
pub fn worker_of(subject: &str) -> Option<WorkerId> {
    subject
        .strip_prefix("gradient.cmd.worker.")
        .or_else(|| subject.strip_prefix("gradient.hb."))
        .and_then(|id| id.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_read_back_from_its_own_subjects_only() {
        let worker = WorkerId([3; 16]);
        assert_eq!(worker_of(&command(worker)), Some(worker));
        assert_eq!(worker_of(&heartbeat(worker)), Some(worker));
        assert_eq!(worker_of(COMMAND_API), None);
        assert_eq!(worker_of(&delivery(worker)), None);
    }
}
