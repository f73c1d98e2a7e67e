//! Jobs and workers as they were after a message.

use gradient_domain::JobId;
use gradient_scheduler_core::State;
use gradient_scheduler_core::assignment::Phase;
use serde::Serialize;

use crate::exit::Failure;
use crate::say;

#[derive(Serialize)]
struct Snapshot {
    sequence: u64,
    at_ms: u64,
    pending: Vec<Pending>,
    dispatched: Vec<Dispatched>,
    workers: Vec<Worker>,
}

#[derive(Serialize)]
struct Pending {
    job: JobId,
    offer: u64,
    ready_at_ms: u64,
}

#[derive(Serialize)]
struct Dispatched {
    assignment: String,
    job: JobId,
    worker: String,
    phase: &'static str,
    assigned_at_ms: u64,
}

#[derive(Serialize)]
struct Worker {
    id: String,
    name: String,
    presence: String,
    running: usize,
}

pub(super) fn print(state: &State, sequence: u64, json: bool) -> Result<(), Failure> {
    let snapshot = snapshot(state, sequence);
    if json {
        say::json(&snapshot)?;
        return Ok(());
    }
    say::line(format_args!(
        "after message {sequence}: {} pending, {} dispatched",
        snapshot.pending.len(),
        snapshot.dispatched.len()
    ));
    for pending in &snapshot.pending {
        say::line(format_args!("  pending     {}  offer {}", pending.job, pending.offer));
    }
    for dispatched in &snapshot.dispatched {
        say::line(format_args!(
            "  dispatched  {}  {} on {} ({})",
            dispatched.job, dispatched.assignment, dispatched.worker, dispatched.phase
        ));
    }
    for worker in &snapshot.workers {
        say::line(format_args!(
            "  worker      {}  {} ({} running)",
            worker.name, worker.presence, worker.running
        ));
    }
    Ok(())
}

fn snapshot(state: &State, sequence: u64) -> Snapshot {
    let name = |id| state.workers().get(&id).map_or_else(String::new, |worker| worker.name.clone());
    let pending = state.queue().iter().map(|(job, pending)| Pending {
        job,
        offer: pending.offer.0,
        ready_at_ms: pending.ready_at.0,
    });
    let dispatched = state.assignments().iter().map(|(id, open)| Dispatched {
        assignment: id.to_string(),
        job: open.job,
        worker: name(open.worker),
        phase: match open.phase {
            Phase::Claimed => "claimed",
            Phase::Accepted => "accepted",
            Phase::Aborting { .. } => "aborting",
        },
        assigned_at_ms: open.at.0,
    });
    let workers = state.workers().iter().map(|(id, worker)| Worker {
        id: id.to_string(),
        name: worker.name.clone(),
        presence: format!("{:?}", worker.presence).to_lowercase(),
        running: worker.assignments.len(),
    });
    Snapshot {
        sequence,
        at_ms: state.now().0,
        pending: pending.collect(),
        dispatched: dispatched.collect(),
        workers: workers.collect(),
    }
}
