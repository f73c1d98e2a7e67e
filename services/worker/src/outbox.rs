//! Reports of ends, kept on disk until the inbox has acknowledged them: a worker that dies with a
//! finished build still says so after its restart (protocol page, Worker → server).
//!
//! The folder is read once, at the start; which ends are open is known in memory from then on.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use gradient_domain::{AssignmentId, JobId};
use gradient_events::worker::OpenAssignment;
use gradient_events::{FromWorker, Wire, WorkerMessage};

/// A folder with one file per unacknowledged end. Clones share it.
#[derive(Clone, Debug)]
pub struct Outbox {
    dir: PathBuf,
    unacknowledged: Arc<Mutex<BTreeMap<AssignmentId, JobId>>>,
    /// Reports of an earlier run, until they are taken.
    earlier: Arc<Mutex<Vec<WorkerMessage>>>,
}

impl Outbox {
    /// Opens the folder, made if it is missing, and reads what an earlier run could not report. A file
    /// that cannot be read is put aside.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn open(base_dir: &Path) -> anyhow::Result<Self> {
        let dir = base_dir.join("outbox");
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let reports = read(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let open = reports.iter().map(|(open, _)| (open.assignment, open.job)).collect();
        let earlier = reports.into_iter().map(|(_, report)| report).collect();
        Ok(Self {
            dir,
            unacknowledged: Arc::new(Mutex::new(open)),
            earlier: Arc::new(Mutex::new(earlier)),
        })
    }

    /// Keeps the end of a hand-out; it is on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written. It counts as unacknowledged nevertheless.
    pub fn keep(&self, end: OpenAssignment, report: &FromWorker) -> io::Result<()> {
        let assignment = end.assignment;
        self.open_ends().insert(assignment, end.job);
        let aside = self.dir.join(format!("{assignment}.new"));
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(&report.to_body())?;
        file.sync_all()?;
        std::fs::rename(&aside, self.file(assignment))?;
        std::fs::File::open(&self.dir)?.sync_all()
    }

    /// Forgets an acknowledged end.
    pub fn forget(&self, assignment: AssignmentId) {
        self.open_ends().remove(&assignment);
        if let Err(error) = std::fs::remove_file(self.file(assignment))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%assignment, %error, "an acknowledged report cannot be removed");
        }
    }

    /// Whether the end of this hand-out is on its way.
    #[must_use]
    pub fn holds(&self, assignment: AssignmentId) -> bool {
        self.open_ends().contains_key(&assignment)
    }

    /// The hand-outs whose ends are on their way.
    #[must_use]
    pub fn open_assignments(&self) -> Vec<OpenAssignment> {
        let ends = self.open_ends();
        ends.iter().map(|(&assignment, &job)| OpenAssignment { job, assignment }).collect()
    }

    /// The reports that an earlier run left, once.
    #[must_use]
    pub fn take_earlier(&self) -> Vec<WorkerMessage> {
        std::mem::take(&mut self.earlier.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn open_ends(&self) -> MutexGuard<'_, BTreeMap<AssignmentId, JobId>> {
        self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, assignment: AssignmentId) -> PathBuf {
        self.dir.join(format!("{assignment}.report"))
    }
}

/// Whatever the folder holds, oldest hand-out first.
fn read(dir: &Path) -> io::Result<Vec<(OpenAssignment, WorkerMessage)>> {
    let mut reports = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "report") {
            continue;
        }
        match FromWorker::from_body(FromWorker::SCHEMA, &std::fs::read(&path)?) {
            Ok(FromWorker { message, .. }) => {
                reports.extend(ended(&message).map(|open| (open, message)));
            }
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "an unreadable report is put aside");
                std::fs::rename(&path, path.with_extension("unreadable"))?;
            }
        }
    }
    reports.sort_by_key(|(open, _)| open.assignment);
    Ok(reports)
}

/// The hand-out whose end a message reports.
#[must_use]
pub fn ended(message: &WorkerMessage) -> Option<OpenAssignment> {
    match message {
        WorkerMessage::JobCompleted { job, assignment, .. }
        | WorkerMessage::JobFailed { job, assignment, .. } => {
            Some(OpenAssignment { job: *job, assignment: *assignment })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use gradient_domain::{BuildId, JobId, SessionId};

    use super::*;

    #[test]
    fn ends_survive_until_they_are_acknowledged() {
        let dir = tempfile::tempdir().expect("a folder");
        let outbox = Outbox::open(dir.path()).expect("opened");
        let (job, assignment) = (JobId::Build(BuildId(3)), AssignmentId(7));
        let message = WorkerMessage::JobCompleted { job, assignment, elapsed_ms: 5 };
        let report = FromWorker { session: SessionId([1; 16]), message: message.clone() };
        let end = OpenAssignment { job, assignment };
        outbox.keep(end, &report).expect("kept");
        assert!(outbox.holds(assignment) && outbox.clone().open_assignments() == [end]);
        std::fs::write(dir.path().join("outbox/a9.report"), "junk").expect("written");

        let again = Outbox::open(dir.path()).expect("opened");
        assert_eq!(again.open_assignments(), [end]);
        assert_eq!(again.take_earlier(), [message]);
        assert_eq!(again.take_earlier(), [], "they are said once");
        let shared = again.clone();
        shared.forget(assignment);
        shared.forget(assignment);
        assert!(!again.holds(assignment));
        let left = Outbox::open(dir.path()).expect("opened").take_earlier();
        assert_eq!(left, []);
        assert!(dir.path().join("outbox/a9.unreadable").is_file(), "junk is put aside, not lost");
    }
}
