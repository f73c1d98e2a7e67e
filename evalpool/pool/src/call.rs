//! One call on a borrowed child.

use std::sync::Arc;

use gradient_domain::AttrPath;
use gradient_ipc::discovery::{Call, Crash, Work};
use gradient_ipc::message::{List, Plan, Request, Response, Source};
use gradient_ipc::shard::Recursion;

use crate::pool::Inner;
use crate::transport::{Answer, SpawnError};

/// How a call ended.
pub(crate) enum Outcome {
    Answered(Answer),
    Crashed(Crash),
    Unavailable(SpawnError),
    ShutDown,
}

/// Borrows a child, asks it, and gives it back if it is still of use.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    source: Arc<Source>,
    excludes: Arc<[AttrPath]>,
    recursion: Recursion,
    call: Call,
) -> (Call, Outcome) {
    let mut checkout = match inner.checkout(&source).await {
        Ok(Some(checkout)) => checkout,
        Ok(None) => return (call, Outcome::ShutDown),
        Err(error) => return (call, Outcome::Unavailable(error)),
    };
    // Nix was replaced while this process runs: the cache is named after the other one.
    let source = match inner.nix_version.get() {
        Some(version) if *version == checkout.transport.nix_version => source,
        Some(_) | None => Arc::new(Source { cache: None, ..(*source).clone() }),
    };
    let request = match call.work.clone() {
        Work::Plan(patterns) => {
            Request::Plan(Plan { source: (*source).clone(), patterns, recursion })
        }
        Work::List(shard) => {
            let excludes = excludes.to_vec();
            Request::List(List { source: (*source).clone(), shard, excludes })
        }
    };
    let outcome = match checkout.transport.call(&request, inner.settings.call_limit).await {
        Ok(answer) => {
            // A child that could not open the flake may be in any state: it is not kept.
            if !matches!(answer.response, Response::Err(_)) {
                checkout.transport.warm = Some(source);
                checkout.give_back();
            }
            Outcome::Answered(answer)
        }
        Err(crash) => Outcome::Crashed(crash),
    };
    (call, outcome)
}
