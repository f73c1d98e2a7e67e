//! Reports of ends, kept on disk until the inbox has acknowledged them: a worker that dies with a
//! finished build still says so after its restart (protocol page, Worker → server).

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gradient_domain::AssignmentId;
use gradient_events::worker::OpenAssignment;
use gradient_events::{FromWorker, Wire, WorkerMessage};

/// A folder with one file per unacknowledged end.
#[derive(Clone, Debug)]
pub struct Outbox {
    dir: PathBuf,
}

impl Outbox {
    /// Opens the folder, made if it is missing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(base_dir: &Path) -> anyhow::Result<Self> {
        let dir = base_dir.join("outbox");
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Keeps the end of a hand-out; it is on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, assignment: AssignmentId, report: &FromWorker) -> std::io::Result<()> {
        let aside = self.dir.join(format!("{assignment}.new"));
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(&report.to_body())?;
        file.sync_all()?;
        std::fs::rename(&aside, self.file(assignment))?;
        std::fs::File::open(&self.dir)?.sync_all()
    }

    /// Forgets an acknowledged end.
    pub fn forget(&self, assignment: AssignmentId) {
        if let Err(error) = std::fs::remove_file(self.file(assignment))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%assignment, %error, "an acknowledged report cannot be removed");
        }
    }

    /// Ends that an earlier run could not report. A file that cannot be read is put aside.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn kept(&self) -> anyhow::Result<Vec<(OpenAssignment, WorkerMessage)>> {
        let mut kept = Vec::new();
        let folder = std::fs::read_dir(&self.dir);
        for file in folder.with_context(|| format!("cannot read {}", self.dir.display()))? {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != "report") {
                continue;
            }
            let body =
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            match FromWorker::from_body(FromWorker::SCHEMA, &body) {
                Ok(FromWorker { message, .. }) => {
                    kept.extend(ended(&message).map(|open| (open, message)));
                }
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "an unreadable report is put aside");
                    std::fs::rename(&path, path.with_extension("unreadable"))?;
                }
            }
        }
        kept.sort_by_key(|(open, _)| open.assignment);
        Ok(kept)
    }

    fn file(&self, assignment: AssignmentId) -> PathBuf {
        self.dir.join(format!("{assignment}.report"))
    }
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
        outbox.keep(assignment, &report).expect("kept");
        std::fs::write(dir.path().join("outbox/a9.report"), "junk").expect("written");

        let again = Outbox::open(dir.path()).expect("opened");
        assert_eq!(again.kept().expect("read"), [(OpenAssignment { job, assignment }, message)]);
        again.forget(assignment);
        again.forget(assignment);
        assert_eq!(again.kept().expect("read"), []);
        assert!(dir.path().join("outbox/a9.unreadable").is_file(), "junk is put aside, not lost");
    }
}
