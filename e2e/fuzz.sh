#!/usr/bin/env bash
# Fuzzes the frames between worker and evaluator. Needs neither cargo-fuzz nor a nightly compiler: coverage is counted
# without a sanitizer. With cargo-fuzz at hand: cd evalpool/ipc && cargo fuzz run frames fuzz/seeds/frames
# Usage: e2e/fuzz.sh [RUNS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly RUNS=${1:-2000000}
readonly FUZZ=evalpool/ipc/fuzz
readonly TARGET=${CARGO_TARGET_DIR:-target}/fuzz

# The flags that cargo-fuzz gives for `--sanitizer none`.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"
# The versions of the workspace; cargo adds what only the fuzzer needs.
cp Cargo.lock "$FUZZ/Cargo.lock"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --manifest-path "$FUZZ/Cargo.toml" --target "$host" --target-dir "$TARGET"

corpus=$(mktemp -d "${TMPDIR:-/tmp}/gradient-fuzz.XXXXXX")
trap 'rm -rf "$corpus"' EXIT
"$TARGET/$host/release/frames" -runs="$RUNS" -max_len=4096 -print_final_stats=1 -artifact_prefix="$corpus/" \
  "$corpus" "$FUZZ/seeds/frames" 2>&1 | tail -12
