//! What a person types after `gradient eval`.

use std::path::PathBuf;

use clap::Args;

/// Most memory that can be named, in MiB: more than any machine has, and its bytes fit a number.
const MEMORY_MIB_MAX: u64 = 1 << 40;

/// Evaluate a flake or an expression here, without a server, and print its jobs as JSON lines
///
/// The lines have the format of nix-eval-jobs and come as the jobs are found, in no order. With
/// PATTERNs, or with neither PATTERN nor fragment, the rules of the fleet hold: what should be a job
/// and is none is an error, sets are entered if the flake schema puts jobs there or if they say
/// recurseForDerivations. With a fragment or --expr the rule of nix-eval-jobs holds: names start at
/// that value, its sets are entered if they say recurseForDerivations, functions whose arguments all
/// have defaults are called, and what is no derivation is left out.
///
/// Exit codes: 0 everything was evaluated; 1 an attribute or the flake as a whole failed; 2 the input
/// is wrong; 3 something is not there or does not answer; 130 stopped by Ctrl-C. A reader that goes
/// away ends the command with 0.
#[derive(Debug, Args)]
#[command(long_about)]
pub(crate) struct EvalArgs {
    /// Patterns of attributes, such as 'packages.x86_64-linux.*'; everything documented if absent
    #[arg(value_name = "PATTERN")]
    pub(super) patterns: Vec<String>,
    /// The flake: a folder, path:DIR or any flake reference; #ATTRIBUTE after it to start there
    #[arg(long, default_value = ".", value_name = "REF[#ATTRIBUTE]")]
    pub(super) flake: String,
    /// Evaluate this expression instead of a flake; impure
    #[arg(short = 'E', long, value_name = "TEXT", conflicts_with = "flake")]
    pub(super) expr: Option<String>,
    /// Apply this function to the value before anything is looked for in it
    #[arg(long, value_name = "FUNCTION")]
    pub(super) select: Option<String>,
    /// Enter every set; with PATTERNs, what is no derivation is left out below them
    #[arg(long)]
    pub(super) force_recurse: bool,
    /// Allow what is not locked: the environment, files anywhere, the current time
    #[arg(long)]
    pub(super) impure: bool,
    /// Use another flake for an input, or for inputs that a pattern names; may be repeated
    #[arg(long, num_args = 2, value_names = ["INPUT", "REF"])]
    pub(super) override_input: Vec<String>,
    /// Fail unless flake.lock is complete and up to date
    #[arg(long)]
    pub(super) strict_lock: bool,
    /// Tell `meta`
    #[arg(long)]
    pub(super) meta: bool,
    /// Apply this function to every derivation and tell its result, a set, as `extraValue`
    #[arg(long, value_name = "FUNCTION")]
    pub(super) apply: Option<String>,
    /// Tell the derivations that each one needs, with their outputs
    #[arg(long)]
    pub(super) show_input_drvs: bool,
    /// Tell whether outputs and what building them takes are there or in a binary cache
    #[arg(long)]
    pub(super) check_cache_status: bool,
    /// Tell what aggregates (`_hydraAggregate`) are made of, and give those that name their jobs
    /// the jobs as inputs
    #[arg(long)]
    pub(super) constituents: bool,
    /// Keep every derivation from being collected by a symlink in this folder
    #[arg(long, value_name = "DIR")]
    pub(super) gc_roots_dir: Option<PathBuf>,
    /// Write nothing to the store
    #[arg(
        long,
        conflicts_with_all = ["show_input_drvs", "check_cache_status", "constituents", "gc_roots_dir", "store"]
    )]
    pub(super) no_instantiate: bool,
    /// Tell errors with everything that Nix says of their way
    #[arg(long)]
    pub(super) show_trace: bool,
    /// Tell what the evaluation and each of its patterns used, as a last line of JSON on standard error
    #[arg(long)]
    pub(super) stats: bool,
    /// Evaluator processes; one per processor up to 16 if absent
    #[arg(long, value_name = "N")]
    pub(super) workers: Option<usize>,
    /// Recycle an evaluator above this many MiB after a call
    #[arg(
        long,
        default_value_t = 2_048,
        value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..=MEMORY_MIB_MAX)
    )]
    pub(super) max_memory_size: u64,
    /// Kill an evaluator above this many MiB in the middle of a call: the attribute that took them is
    /// an error; if absent, it may take memory until the machine runs short
    #[arg(
        long,
        value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..=MEMORY_MIB_MAX)
    )]
    pub(super) kill_memory_size: Option<u64>,
    /// Store to instantiate into; the machine's daemon, or a store below the data directory
    #[arg(long, value_name = "URI")]
    pub(super) store: Option<String>,
    /// Set a setting of Nix, one of those that concern evaluation; may be repeated
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"])]
    pub(super) option: Vec<String>,
}
