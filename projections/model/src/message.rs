//! `evaluation_message`: warnings and errors, tied to their attribute.

use gradient_domain::EvaluationId;

use crate::Projection;
use crate::change::{Change, EvaluationCounted, Message};
use crate::view::MessageLevel;

pub(crate) fn recorded(projection: &mut Projection<'_>, evaluation: EvaluationId) {
    let (position, at) = (projection.position, projection.entry.at);
    let Some(batch) = projection.entry.input.eval_result() else { return };
    let errors = batch.errors.iter().map(|text| (MessageLevel::Error, text));
    let warnings = batch.warnings.iter().map(|text| (MessageLevel::Warning, text));
    for (ordinal, (level, message)) in (0u32..).zip(errors.chain(warnings)) {
        projection.push(Change::Message(Box::new(Message {
            evaluation,
            position,
            ordinal,
            level,
            attr: message.attr.clone(),
            text: message.text.clone(),
            at,
        })));
    }
    projection.push(Change::EvaluationCounted(EvaluationCounted {
        evaluation,
        errors: batch.errors.len() as u64,
        warnings: batch.warnings.len() as u64,
    }));
}
