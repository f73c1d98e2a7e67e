//! `gradient submit`: a flake goes in.

mod git;
mod source;

use std::path::{Path, PathBuf};

use clap::Args;
use gradient_api::types::{SubmitEvaluation, SubmitFlake, Submitted};
use gradient_domain::flake::{Commit, HINT, LockPolicy, Override, check_reference};
use gradient_domain::pattern::PatternSet;
use gradient_domain::{SshKey, is_trusted_way};
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::Failure;
use crate::say;
use crate::watch;
use source::{Packed, Target, Tree};

/// Header of an upload that describes the path.
const METADATA_HEADER: &str = "gradient-path-info";

/// Submit a flake: evaluate it and build what the patterns match
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The flake: path:DIR, a folder, git+file:DIR (its commit), github:OWNER/NAME, git+https://...
    flake: String,
    /// Attributes to build, such as 'packages.*.*' or checks.x86_64-linux.hello; a leading ! excludes
    #[arg(long = "include", required = true, value_name = "PATTERN")]
    include: Vec<String>,
    /// Replace an input of the flake; a name, such as nixpkgs or tools/nixpkgs, or a pattern
    #[arg(long, num_args = 2, value_names = ["INPUT", "REF"], action = clap::ArgAction::Append)]
    override_input: Vec<String>,
    /// Fail unless flake.lock is complete and up to date
    #[arg(long)]
    strict_lock: bool,
    /// File of a private key for git+ssh: sources and inputs; deleted when the evaluation is over
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
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
    let overrides = overrides(&args.override_input)?;
    let ssh_key = args.ssh_key.as_deref().map(|file| read_key(file, &found.url)).transpose()?;
    let target = source::target(&args.flake)?;
    let client = Client::new(found)?;
    let flake = match target {
        Target::Remote(url) => SubmitFlake::Reference { url },
        Target::Local(tree) => submit_tree(&client, tree, args.flake, None).await?,
        Target::Repository(url) => {
            let checkout = git::Checkout::fetch(&url).await?;
            submit_tree(&client, checkout.tree(), args.flake, checkout.commit()).await?
        }
    };
    let lock_policy = match args.strict_lock {
        true => LockPolicy::Strict,
        false => LockPolicy::Complete,
    };
    let body = SubmitEvaluation { flake, patterns: args.include, overrides, lock_policy, ssh_key };
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

/// Overrides whose flakes every worker can fetch.
fn overrides(given: &[String]) -> Result<Vec<Override>, Failure> {
    let overrides = crate::overrides::parse(given)?;
    for one in &overrides {
        check_reference(&one.reference).map_err(|error| Failure::usage(error).hint(HINT))?;
    }
    Ok(overrides)
}

/// The key, if nobody can read it on its way to the server at this address.
fn read_key(file: &Path, url: &str) -> Result<SshKey, Failure> {
    if !is_trusted_way(url) {
        return Err(Failure::usage(format!("a key is not sent to {url} without TLS"))
            .hint("give an https:// address of the server, or a tunnel to it on localhost"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("the key '{}' cannot be read: {error}", file.display()))
    })?;
    SshKey::new(text).map_err(Failure::usage)
}

/// Packs a tree and puts it into the cache; how it is submitted then.
async fn submit_tree(
    client: &Client,
    tree: Tree,
    label: String,
    commit: Option<Commit>,
) -> Result<SubmitFlake, Failure> {
    let subdir = tree.subdir.clone();
    let packed = tokio::task::spawn_blocking(move || tree.pack()).await;
    let packed = packed.map_err(|error| Failure::unavailable(anyhow::Error::from(error)))??;
    let (path, nar_hash) = (packed.path.clone(), packed.nar_hash_sri.clone());
    upload(client, packed).await?;
    Ok(SubmitFlake::Store { path, nar_hash, subdir, label, commit: commit.map(Box::new) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_over_loopback_or_tls() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("key");
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----\n";
        std::fs::write(&file, key).expect("written");
        for url in ["http://127.0.0.1:8080", "https://ci.example"] {
            assert!(read_key(&file, url).is_ok(), "{url}");
        }
        let refused = read_key(&file, "http://ci.example").expect_err("refused");
        assert!(refused.hint.is_some() && refused.error.to_string().contains("without TLS"));
    }
}
