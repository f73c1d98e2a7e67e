//! Samples of log records: every input with an event, and every event with an input.

use gradient_domain::Timestamp;
use gradient_events::entry::{Cause, Entry, EntryBatch, Input, Settings};
use gradient_events::event::Event;

use super::fixture::{SESSION, WORKER};
use super::{Sample, assert_complete, commands, event, heartbeats, named, variants, worker};

variants!(input_of, INPUTS, Input:
    Started => Input::Started { .. },
    Worker => Input::Worker { .. },
    Metrics => Input::Metrics { .. },
    WorkerSilent => Input::WorkerSilent { .. },
    Command => Input::Command { .. },
    Unreadable => Input::Unreadable { .. },
    Tick => Input::Tick,
    Sweep => Input::Sweep,
);

variants!(cause_of, CAUSES, Cause:
    Internal => Cause::Internal,
    Command => Cause::Command(_),
);

/// One entry per input, one per event, and one message of several entries.
pub(super) fn all() -> Vec<Sample<EntryBatch>> {
    let inputs = named(inputs(), input_of).into_iter().map(|(name, input)| {
        let events = vec![Event::InputRefused { reason: "a sample".into() }];
        (format!("input-{name}"), batch(vec![entry(input, events)]))
    });
    let events = event::all().into_iter().map(|(name, event)| {
        (format!("event-{name}"), batch(vec![entry(Input::Tick, vec![event])]))
    });
    let several = batch(vec![
        entry(
            Input::Started { settings: settings(), commands_restarted: false },
            vec![Event::SettingsReplaced],
        ),
        entry(Input::Tick, event::all().into_iter().map(|(_, event)| event).take(3).collect()),
    ]);
    let all: Vec<_> =
        inputs.chain(events).chain([("several-entries".to_owned(), several)]).collect();
    let entries = || all.iter().flat_map(|(_, batch)| &batch.entries);
    assert_complete(INPUTS, entries().map(|entry| &entry.input), input_of);
    assert_complete(CAUSES, entries().map(|entry| &entry.cause), cause_of);
    all
}

fn batch(entries: Vec<Entry>) -> EntryBatch {
    EntryBatch { entries }
}

fn entry(input: Input, events: Vec<Event>) -> Entry {
    let cause = match &input {
        Input::Worker { .. } | Input::Command { .. } | Input::Unreadable { .. } => {
            Cause::Command(77)
        }
        Input::Started { .. }
        | Input::Metrics { .. }
        | Input::WorkerSilent { .. }
        | Input::Tick
        | Input::Sweep => Cause::Internal,
    };
    Entry { at: Timestamp(1_700_000_000_123), cause, input, events }
}

fn inputs() -> Vec<Input> {
    let (_, heartbeat) = heartbeats().swap_remove(0);
    let mut inputs = vec![
        Input::Started { settings: settings(), commands_restarted: false },
        Input::Metrics { worker: WORKER, metrics: heartbeat.metrics },
        Input::WorkerSilent { worker: WORKER },
        Input::Unreadable {
            subject: "gradient.cmd.api".into(),
            reason: "checksum of the body is 00000000, the header says ffffffff".into(),
        },
        Input::Tick,
        Input::Sweep,
    ];
    inputs.extend(commands().into_iter().map(|(_, command)| Input::Command { command }));
    // Every message has a golden file of its own; here it matters that one is carried whole.
    let carried = ["hello", "job-update-eval-result"];
    let said = worker::all().into_iter().filter(|(name, _)| carried.contains(&name.as_str()));
    inputs.extend(said.map(|(_, message)| Input::Worker {
        worker: WORKER,
        session: SESSION,
        message,
    }));
    inputs
}

/// Written out, so that another default does not change a golden file.
fn settings() -> Settings {
    Settings {
        policy: "simple".into(),
        build_max_attempts: 3,
        build_retry_backoff_ms: 30_000,
        build_max_losses: 10,
        evaluation_max_hand_outs: 10,
        accept_timeout_ms: 30_000,
        idle_slot_ms: 25_000,
        abort_timeout_ms: 300_000,
        build_timeout_secs: 14_400,
        build_max_silent_secs: 3_600,
        unbuildable_timeout_ms: 300_000,
    }
}
