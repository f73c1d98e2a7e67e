//! `gradient cache`: what plain Nix needs to read the cache.

use clap::{Args, Subcommand};
use reqwest::Method;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::Failure;
use crate::say;

/// Show how to read the binary cache with plain Nix
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Print its address, for --from and substituters
    Url,
    /// Print its public key, for trusted-public-keys
    Key,
}

pub(crate) async fn run(found: &Found, args: CacheArgs) -> Result<(), Failure> {
    match args.command {
        CacheCommand::Url => say::line(format_args!("{}/cache", found.url)),
        CacheCommand::Key => {
            let client = Client::new(found)?;
            let response = client.send(client.request(Method::GET, "cache/public-key")).await?;
            let key = response.text().await.map_err(Failure::unavailable)?;
            say::line(key.trim());
        }
    }
    Ok(())
}
