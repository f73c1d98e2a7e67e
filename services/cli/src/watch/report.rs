//! What came of an evaluation, attribute by attribute.

use gradient_api::types::{BuildState, EntryPoint, EvaluationSummary, Message, MessageLevel};

use super::span;
use crate::client::Client;
use crate::exit::Failure;
use crate::say;

/// Most attributes and texts that are printed.
const ITEMS_MAX: usize = 1_000;

pub(super) async fn print(client: &Client, over: &EvaluationSummary) -> Result<(), Failure> {
    let id = over.id;
    let took = span(over.requested_at, over.finished_at);
    say::line(format_args!("{} {} after {took}", over.label, over.state.name()));
    let points: Vec<EntryPoint> =
        client.list(&format!("evaluations/{id}/entry-points"), ITEMS_MAX).await?;
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    say::table(&rows);
    let messages: Vec<Message> =
        client.list(&format!("evaluations/{id}/messages"), ITEMS_MAX).await?;
    for message in &messages {
        let level = match message.level {
            MessageLevel::Error => "error",
            MessageLevel::Warning => "warning",
        };
        let attr = message.attr.as_deref().map_or_else(String::new, |attr| format!("{attr}: "));
        say::line(format_args!(
            "  {level}: {attr}{}",
            say::plain(&message.text).replace('\n', "\n    ")
        ));
    }
    if let Some(error) = &over.error {
        say::line(format_args!("  error: {}", say::plain(error).replace('\n', "\n    ")));
    }
    let hidden = over.entry_points.saturating_sub(points.len() as u64);
    if hidden > 0 {
        say::line(format_args!("  and {hidden} more attributes"));
    }
    let builds = &over.builds;
    say::line(format_args!(
        "{} attributes, {} builds: {} succeeded, {} failed; {} errors",
        over.entry_points,
        builds.total(),
        builds.succeeded(),
        builds.failed(),
        over.errors
    ));
    Ok(())
}

fn row(point: &EntryPoint) -> Vec<String> {
    let outputs: Vec<String> = point
        .outputs
        .iter()
        .filter_map(|output| output.path.as_ref())
        .map(ToString::to_string)
        .collect();
    let what = match point.state {
        BuildState::Completed | BuildState::Substituted => outputs.join(" "),
        BuildState::DependencyFailed => point
            .cause
            .map_or_else(String::new, |cause| format!("build {cause} failed, which it needs")),
        _ => {
            let message = point.message.as_deref().map(say::first_line).unwrap_or_default();
            format!("{message} (gradient logs {})", point.build)
        }
    };
    vec![format!("  {}", say::plain(&point.attr)), point.state.name().replace('_', " "), what]
}
