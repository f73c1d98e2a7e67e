//! `gradient submit`: a flake goes in.

mod source;

use clap::Args;
use gradient_api::types::{SubmitEvaluation, SubmitFlake, Submitted};
use gradient_domain::pattern::PatternSet;
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::Failure;
use crate::say;
use crate::watch;
use source::{Packed, Target};

/// Header of an upload that describes the path.
const METADATA_HEADER: &str = "gradient-path-info";

/// Submit a flake: evaluate it and build what the patterns match
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The flake: path:DIR, a folder, github:OWNER/NAME, git+https://...
    flake: String,
    /// Attributes to build, such as 'packages.*.*' or checks.x86_64-linux.hello; a leading ! excludes
    #[arg(long = "include", required = true, value_name = "PATTERN")]
    include: Vec<String>,
    /// Show progress until it is over; exit code 1 if it fails
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(found: &Found, args: SubmitArgs) -> Result<(), Failure> {
    PatternSet::from_texts(&args.include).map_err(|error| {
        Failure::usage(error).hint("patterns look like 'packages.*.*', 'checks.x86_64-linux.hello' or '!packages.x86_64-linux.big'")
    })?;
    let target = source::target(&args.flake)?;
    let client = Client::new(found)?;
    let flake = match target {
        Target::Remote(url) => SubmitFlake::Reference { url },
        Target::Local(tree) => {
            let subdir = tree.subdir.clone();
            let packed = tokio::task::spawn_blocking(move || tree.pack()).await;
            let packed =
                packed.map_err(|error| Failure::unavailable(anyhow::Error::from(error)))??;
            let flake = SubmitFlake::Store {
                path: packed.path.clone(),
                nar_hash: packed.nar_hash_sri.clone(),
                subdir,
                label: args.flake,
            };
            upload(&client, packed).await?;
            flake
        }
    };
    let body = SubmitEvaluation { flake, patterns: args.include };
    let request = client.request(Method::POST, "api/v1/evaluations").json(&body);
    let submitted: Submitted =
        client.send(request).await?.json().await.map_err(Failure::unavailable)?;
    if args.watch {
        return watch::follow(&client, submitted.evaluation, args.json, watch::Known::Fresh).await;
    }
    if args.json {
        say::json(&json!({ "evaluation": submitted.evaluation }))?;
    } else {
        say::line(submitted.evaluation);
    }
    Ok(())
}

/// Puts a packed source into the cache, unless it is there.
async fn upload(client: &Client, packed: Packed) -> Result<(), Failure> {
    let name = packed.path.base_name().to_owned();
    let request = client.request(Method::POST, "cache/missing").json(&json!([name]));
    let answer: Value = client.send(request).await?.json().await.map_err(Failure::unavailable)?;
    if answer["missing"].as_array().is_some_and(Vec::is_empty) {
        return Ok(());
    }
    let hash = packed.nar_hash.trim_start_matches("sha256:");
    let metadata = json!({
        "nar_hash": packed.nar_hash,
        "nar_size": packed.nar_size,
        "references": [],
        "ca": format!("fixed:r:sha256:{hash}"),
    });
    let body = Body::wrap_stream(ReaderStream::new(tokio::fs::File::from_std(packed.file)));
    let request = client
        .request(Method::POST, &format!("cache/upload/{name}"))
        .header(METADATA_HEADER, metadata.to_string())
        .header(reqwest::header::CONTENT_LENGTH, packed.file_size)
        .body(body);
    client.send(request).await.map(drop)
}
