//! The evaluator subprocess alone, for tests and for running a pool without a worker.

fn main() {
    gradient_nix::subprocess::run()
}
