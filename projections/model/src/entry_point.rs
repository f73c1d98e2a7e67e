//! `entry_point`: the attributes that an evaluation found, and the build of each.

use std::collections::BTreeMap;

use gradient_domain::{BuildId, EvaluationId};

use crate::Projection;
use crate::change::{Change, EntryPoints};

pub(crate) fn recorded(
    projection: &mut Projection<'_>,
    evaluation: EvaluationId,
    builds: &[BuildId],
) {
    let Some(batch) = projection.entry.input.eval_result() else { return };
    let mut points = BTreeMap::new();
    for (derivation, build) in batch.derivations.iter().zip(builds) {
        points.extend(derivation.attrs.iter().map(|attr| (attr.clone(), *build)));
    }
    if !points.is_empty() {
        let points = points.into_iter().collect();
        projection.push(Change::EntryPoints(EntryPoints { evaluation, points }));
    }
}
