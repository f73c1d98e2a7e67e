//! `pending_job`: one row per job in the queue.

use gradient_domain::{BuildId, JobId};
use gradient_events::event::RequeueReason;
use gradient_events::score::OfferNumber;

use crate::change::{Change, JobPending, JobTaken};
use crate::{Projection, build, evaluation};

pub(crate) fn ready(projection: &mut Projection<'_>, builds: &[BuildId], first: OfferNumber) {
    for (build, offer) in builds.iter().zip(first.0..) {
        pending(projection, JobId::Build(*build), OfferNumber(offer), None);
    }
}

pub(crate) fn queued(projection: &mut Projection<'_>, job: JobId, offer: OfferNumber) {
    match job {
        JobId::Build(build) => build::queued(projection, build),
        JobId::Evaluate(id) => evaluation::retries(projection, id),
    }
    pending(projection, job, offer, None);
}

/// A job without an offer waits for its backoff; it is not in the queue.
pub(crate) fn requeued(
    projection: &mut Projection<'_>,
    job: JobId,
    reason: RequeueReason,
    offer: Option<OfferNumber>,
) {
    let Some(offer) = offer else { return };
    match job {
        JobId::Build(build) => build::queued(projection, build),
        JobId::Evaluate(id) => evaluation::retries(projection, id),
    }
    pending(projection, job, offer, Some(reason));
}

pub(crate) fn taken(projection: &mut Projection<'_>, job: JobId) {
    projection.push(Change::JobTaken(JobTaken { job }));
}

fn pending(
    projection: &mut Projection<'_>,
    job: JobId,
    offer: OfferNumber,
    reason: Option<RequeueReason>,
) {
    let (at, position) = (projection.entry.at, projection.position);
    projection.push(Change::JobPending(JobPending { job, offer, reason, at, position }));
}
