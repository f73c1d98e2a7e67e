//! Jobs that may be handed out, by what they need.
//!
//! Jobs of one class need the same of a worker, so that a class is looked at or skipped as a whole.
//! Within a class jobs stand in the order of their waiting, and again in the order of their offers.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{JobId, Kind, Requirement, Timestamp};
use gradient_events::score::OfferNumber;

use crate::worker::Worker;

/// A class of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// What the jobs of a class need.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A worker that evaluates and, if the source is not in the cache, fetches.
    Evaluate {
        /// Whether the source has to be fetched.
        fetch: bool,
    },
    /// A worker that builds and fits.
    Build(Requirement),
}

impl Need {
    /// Which kind of slot.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Need::Evaluate { .. } => Kind::Evaluate,
            Need::Build(_) => Kind::Build,
        }
    }

    /// Whether a worker can run such jobs.
    #[must_use]
    pub fn fits(&self, worker: &Worker) -> bool {
        match self {
            Need::Evaluate { fetch } => worker.eval && (!fetch || worker.fetch),
            Need::Build(requirement) => {
                worker.build
                    && worker.capabilities.as_ref().is_some_and(|c| c.satisfies(requirement))
            }
        }
    }

    /// Whether a worker can run such jobs and takes new ones.
    #[must_use]
    pub fn is_met_by(&self, worker: &Worker) -> bool {
        worker.takes(self.kind()) && self.fits(worker)
    }
}

/// One class with its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What they need.
    pub need: Need,
    /// By how long they wait, longest first.
    pub waiting: BTreeSet<(Timestamp, JobId)>,
    /// By offer.
    pub offers: BTreeMap<OfferNumber, JobId>,
}

/// A job in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its class.
    pub class: ClassId,
    /// Its place in the order of offers.
    pub offer: OfferNumber,
    /// Since when it could have run; kept over hand-outs (reference 10, row 16).
    pub ready_at: Timestamp,
}

/// All jobs that may be handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    class_ids: BTreeMap<Need, ClassId>,
    classes: Vec<Class>,
    jobs: BTreeMap<JobId, Pending>,
}

impl Queue {
    /// Number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether no job waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// A job's place.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<&Pending> {
        self.jobs.get(&job)
    }

    /// All jobs, by id.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Pending)> {
        self.jobs.iter().map(|(job, pending)| (*job, pending))
    }

    /// A class.
    #[must_use]
    pub fn class(&self, id: ClassId) -> &Class {
        &self.classes[id.0 as usize]
    }

    /// All classes that have jobs.
    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| !class.waiting.is_empty())
    }

    /// Every class there ever was.
    pub fn all_classes(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        (0..).map(ClassId).zip(&self.classes)
    }

    /// Classes with jobs of a kind that a worker can take, in order.
    pub fn classes_for<'a>(
        &'a self,
        worker: &'a Worker,
        kind: Kind,
    ) -> impl Iterator<Item = &'a Class> {
        let classes = worker.takes(kind).then_some(&worker.classes).into_iter().flatten();
        let classes = classes.map(|id| self.class(*id));
        classes.filter(move |class| class.need.kind() == kind && !class.waiting.is_empty())
    }

    pub(crate) fn intern(&mut self, need: Need) -> ClassId {
        let next = ClassId(u32::try_from(self.classes.len()).expect("fewer than 2^32 classes"));
        let id = *self.class_ids.entry(need.clone()).or_insert(next);
        if id == next {
            self.classes.push(Class { need, waiting: BTreeSet::new(), offers: BTreeMap::new() });
        }
        id
    }

    pub(crate) fn insert(&mut self, job: JobId, pending: Pending) {
        let before = self.jobs.insert(job, pending);
        assert!(before.is_none(), "{job} was queued twice");
        let class = &mut self.classes[pending.class.0 as usize];
        class.waiting.insert((pending.ready_at, job));
        class.offers.insert(pending.offer, job);
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<Pending> {
        let pending = self.jobs.remove(&job)?;
        let class = &mut self.classes[pending.class.0 as usize];
        class.waiting.remove(&(pending.ready_at, job));
        class.offers.remove(&pending.offer);
        Some(pending)
    }
}
