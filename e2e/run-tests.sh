#!/usr/bin/env bash
# The whole test suite. `make test` calls this after the set-up; it also runs by itself on a machine that is set up.
# A service that is missing is a failure, never a skipped test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# As in the Makefile, so that both ways find the same programs.
export GRADIENT_NIX_PREFIX=${GRADIENT_NIX_PREFIX:-/opt/gradient-nix}
export GRADIENT_NIX_LIB_DIR=${GRADIENT_NIX_LIB_DIR:-$GRADIENT_NIX_PREFIX/lib}
export PATH=$GRADIENT_NIX_PREFIX/bin:$PATH

readonly THREADS=4

# --- Is everything there? ----------------------------------------------------------------------------------------

missing=()
for program in cargo git nats-server nix nix-daemon busybox; do
  command -v "$program" >/dev/null || missing+=("$program")
done
has_postgres() {
  command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}
has_postgres || missing+=("PostgreSQL (initdb)")
compgen -G "$GRADIENT_NIX_LIB_DIR/libnixexprc.*" >/dev/null || missing+=("Nix's C API in $GRADIENT_NIX_LIB_DIR")
if ((${#missing[@]} > 0)); then
  printf 'run-tests.sh: error: missing: %s\n' "${missing[@]}" >&2
  printf '  what to do: make setup\n' >&2
  exit 1
fi

# --- Build once, run everything ------------------------------------------------------------------------------------

OUTPUT=$(mktemp -d "${TMPDIR:-/tmp}/gradient-tests.XXXXXX")
trap 'rm -rf "$OUTPUT"' EXIT

# All binaries have to exist before the end-to-end tests start them.
cargo build --workspace --all-targets

# run NAME COMMAND...: shows the output and keeps it to count from; a failure is remembered, the rest still runs.
failed=()
run() {
  local name=$1
  shift
  printf '\n== %s\n' "$*"
  "$@" 2>&1 | tee "$OUTPUT/$name" || failed+=("$name")
}
if cargo nextest --version >/dev/null 2>&1; then
  run nextest cargo nextest run --workspace --color never --test-threads "$THREADS"
else
  run test cargo test --workspace --all-targets --no-fail-fast --color never -- --test-threads "$THREADS"
fi
# Two million inputs, a few seconds once it is built.
run fuzz e2e/fuzz.sh
run doc cargo test --workspace --doc --no-fail-fast --color never -- --test-threads "$THREADS"

# --- One line -------------------------------------------------------------------------------------------------------

# The summaries are "Summary [ 9.9s] 12 tests run: 12 passed (1 slow), 0 skipped" of nextest, and
# "test result: ok. 3 passed; 0 failed; 0 ignored; ..." of each test binary.
read -r ran skipped < <(cat "$OUTPUT"/* | awk '
  /^ *Summary \[/ {
    for (i = 1; i < NF; i++) {
      if ($(i + 1) ~ /^tests?$/ && $(i + 2) == "run:") ran += $i
      if ($(i + 1) == "skipped") skipped += $i
    }
  }
  /^test result: / {
    for (i = 1; i < NF; i++) {
      if ($(i + 1) == "passed;" || $(i + 1) == "failed;") ran += $i
      if ($(i + 1) == "ignored;") skipped += $i
    }
  }
  END { print ran + 0, skipped + 0 }')
printf '\n%d tests ran, %d skipped\n' "$ran" "$skipped"
if ((${#failed[@]} > 0)); then
  printf 'run-tests.sh: error: failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
if ((skipped > 0 || ran == 0)); then
  printf 'run-tests.sh: error: every test has to run\n' >&2
  exit 1
fi
