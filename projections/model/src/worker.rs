//! `worker` and `settings`.

use gradient_domain::{Kind, SessionId, WorkerId};
use gradient_events::{Input, WorkerMessage};

use crate::Projection;
use crate::change::{
    Change, SettingsReplaced, WorkerCapabilities, WorkerFigures, WorkerIdle, WorkerJoined,
    WorkerPresence, WorkerRejected,
};
use crate::view::Presence;

pub(crate) fn settings(projection: &mut Projection<'_>) {
    let at = projection.entry.at;
    if let Input::Started { settings, .. } = &projection.entry.input {
        let settings = settings.clone();
        projection.push(Change::SettingsReplaced(SettingsReplaced { at, settings }));
    }
}

pub(crate) fn joined(
    projection: &mut Projection<'_>,
    worker: WorkerId,
    session: SessionId,
    protocol: u16,
) {
    let at = projection.entry.at;
    if let Input::Worker { message: WorkerMessage::Hello(hello), .. } = &projection.entry.input {
        let (fetch, eval, build) = (hello.fetch, hello.eval, hello.build);
        let name = hello.name.clone();
        let change = WorkerJoined { worker, session, name, fetch, eval, build, protocol, at };
        projection.push(Change::WorkerJoined(Box::new(change)));
    }
}

pub(crate) fn rejected(
    projection: &mut Projection<'_>,
    worker: WorkerId,
    session: SessionId,
    code: u16,
    reason: &str,
) {
    let (at, reason) = (projection.entry.at, reason.to_owned());
    let change = WorkerRejected { worker, session, code, reason, at };
    projection.push(Change::WorkerRejected(Box::new(change)));
}

pub(crate) fn capabilities(projection: &mut Projection<'_>, worker: WorkerId, version: u32) {
    if let Input::Worker { message: WorkerMessage::WorkerCapabilities { capabilities }, .. } =
        &projection.entry.input
    {
        let capabilities = capabilities.clone();
        let change = WorkerCapabilities { worker, version, capabilities };
        projection.push(Change::WorkerCapabilities(Box::new(change)));
    }
}

pub(crate) fn metrics(projection: &mut Projection<'_>, worker: WorkerId) {
    let at = projection.entry.at;
    if let Input::Metrics { metrics, .. } = &projection.entry.input {
        let metrics = metrics.clone();
        let change = WorkerFigures { worker, metrics, at };
        projection.push(Change::WorkerFigures(Box::new(change)));
    }
}

pub(crate) fn idle(projection: &mut Projection<'_>, worker: WorkerId, kind: Kind) {
    let since = Some(projection.entry.at);
    projection.push(Change::WorkerIdle(WorkerIdle { worker, kind, since }));
}

pub(crate) fn busy(projection: &mut Projection<'_>, worker: WorkerId, kind: Kind) {
    projection.push(Change::WorkerIdle(WorkerIdle { worker, kind, since: None }));
}

pub(crate) fn presence(projection: &mut Projection<'_>, worker: WorkerId, presence: Presence) {
    let at = projection.entry.at;
    projection.push(Change::WorkerPresence(WorkerPresence { worker, presence, at }));
}
