//! The subprocess's end of the pipe to the parent. Two threads write to it: the evaluator answers,
//! and while it is at work a ticker tells once a second what it has used so far.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradient_ipc::codec::{self, FrameError};
use gradient_ipc::marks::Marks;
use gradient_ipc::message::Response;

use crate::stats::Meter;

/// Time between two ticks.
const TICK: Duration = Duration::from_secs(1);

/// What both threads share.
struct Shared {
    output: File,
    /// The meter of the request that runs, if one does.
    running: Option<Meter>,
    /// Requests so far.
    requests: u64,
    /// What the end of a request is marked with, once the parent has said.
    marks: Option<Marks>,
    /// Whether the pipe is broken: nobody reads it any more.
    is_broken: bool,
}

/// The output of the subprocess.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Mutex<Shared>>,
    changed: Arc<Condvar>,
}

impl Wire {
    pub(crate) fn new(output: File) -> Wire {
        let shared = Shared { output, running: None, requests: 0, marks: None, is_broken: false };
        Wire { shared: Arc::new(Mutex::new(shared)), changed: Arc::default() }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the version, before any frame.
    pub(crate) fn greet(&self, version: u8) -> Result<(), FrameError> {
        Ok(self.shared().output.write_all(&[version])?)
    }

    /// From now on the end of a request is marked on standard error.
    pub(crate) fn mark_with(&self, marks: Marks) {
        self.shared().marks = Some(marks);
    }

    /// A request begins: from now on ticks are told.
    pub(crate) fn begin(&self, meter: Meter) {
        let mut shared = self.shared();
        shared.requests += 1;
        shared.running = Some(meter);
        self.changed.notify_one();
    }

    /// A request ends without a response.
    pub(crate) fn forget(&self) {
        self.shared().running = None;
    }

    /// Ends the request: marks its end on standard error, then tells the final statistics and the
    /// response. No tick comes after.
    pub(crate) fn answer(&self, response: &Response) -> Result<(), FrameError> {
        let mut shared = self.shared();
        if let Some(marks) = &shared.marks {
            std::io::stderr().write_all(marks.done(shared.requests).as_bytes())?;
        }
        let stats = shared.running.take().map(|meter| Response::Stats(meter.read()));
        if let Some(stats) =
            stats.filter(|_| matches!(response, Response::PlanOk(_) | Response::ListOk(_)))
        {
            codec::write_message(&mut shared.output, &stats)?;
        }
        match codec::write_message(&mut shared.output, response) {
            Err(FrameError::TooLong { .. }) => {
                codec::write_message(&mut shared.output, &Response::TooLong)
            }
            done => done,
        }
    }

    /// Tells ticks until the pipe breaks. For a thread of its own.
    pub(crate) fn tick(self) {
        let mut shared = self.shared();
        while !shared.is_broken {
            let (guard, wait) = match &shared.running {
                None => (self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner), None),
                Some(_) => {
                    let waited = self.changed.wait_timeout(shared, TICK);
                    let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    (guard, Some(timeout))
                }
            };
            shared = guard;
            if !wait.is_some_and(|wait| wait.timed_out()) {
                continue;
            }
            if let Some(stats) = shared.running.as_ref().map(|meter| Response::Stats(meter.read()))
            {
                shared.is_broken = codec::write_message(&mut shared.output, &stats).is_err();
            }
        }
    }
}
