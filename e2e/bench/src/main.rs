#![doc = include_str!("../README.md")]

mod contest;
mod evaluations;
mod flake;
mod measure;
mod report;
mod sides;
mod soak;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure Gradient from outside
#[derive(Debug, Parser)]
#[command(name = "gradient-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Evaluations(evaluations::EvaluationsArgs),
    Soak(soak::SoakArgs),
    /// Write the flake that is evaluated, to look at it or to profile with it
    Flake {
        /// An empty folder
        folder: PathBuf,
        /// Packages
        #[arg(long, default_value_t = 3_000, value_name = "N")]
        packages: usize,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Evaluations(args) => evaluations::run(args),
        Command::Soak(args) => soak::run(&args),
        Command::Flake { folder, packages } => flake::write_packages(&folder, packages),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
