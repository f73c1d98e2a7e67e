//! `gradient cancel`.

use clap::Args;
use gradient_domain::{BuildId, EvaluationId};
use reqwest::Method;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::Failure;
use crate::say;

/// Stop an evaluation or one build
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The id of an evaluation or a build
    id: String,
}

pub(crate) async fn run(found: &Found, args: CancelArgs) -> Result<(), Failure> {
    let evaluation = args.id.trim_start_matches("eval:").parse::<EvaluationId>();
    let path = match (evaluation, args.id.parse::<BuildId>()) {
        (Ok(evaluation), _) => format!("api/v1/evaluations/{evaluation}/cancel"),
        (Err(_), Ok(build)) => format!("api/v1/builds/{build}/cancel"),
        (Err(_), Err(_)) => {
            return Err(Failure::usage(format!(
                "'{}' is neither an evaluation nor a build",
                args.id
            )));
        }
    };
    let client = Client::new(found)?;
    client.send(client.request(Method::POST, &path)).await?;
    say::line(format_args!("asked to stop {}", args.id));
    Ok(())
}
