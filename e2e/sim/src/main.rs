//! Repeats a run of the simulator: `cargo run -p gradient-sim -- --seed N --trace`.

use std::process::ExitCode;

use clap::Parser;
use gradient_sim::{Options, Tally, run};

/// Run the simulated fleet
#[derive(Parser)]
struct Arguments {
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Print what happens
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut tally = Tally::default();
    for seed in arguments.seed..arguments.seed + arguments.count {
        match run(seed, Options { trace: arguments.trace }) {
            Ok(run) => tally.merge(&run),
            Err(what) => {
                eprintln!("seed {seed}: {what}");
                return ExitCode::FAILURE;
            }
        }
    }
    for (what, count) in tally.iter() {
        println!("{count:>9}  {what}");
    }
    ExitCode::SUCCESS
}
