#!/usr/bin/env bash
# The demo: starts a local cluster, builds both examples, shows what came of them and what each worker
# did, and stops everything. Called by `make demo` after set-up and build.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gradient=$here/target/release/gradient
[ -x "$gradient" ] || gradient=$(command -v gradient) || {
    echo "error: gradient is not built; run \`make build\`" >&2
    exit 1
}

# A folder of its own that others may pass through: PostgreSQL runs as another user.
data=$(mktemp -d "${TMPDIR:-/tmp}/gradient-demo.XXXXXX")
chmod 711 "$data"
cluster=
stop() {
    if [ -n "$cluster" ]; then
        kill -TERM "$cluster" 2>/dev/null || true
        wait "$cluster" || true
        cluster=
    fi
    rm -rf "$data"
}
trap stop EXIT
trap 'exit 130' INT TERM

section() { printf '\n== %s ==\n' "$*"; }
run() {
    printf '\n$ gradient %s\n' "$*"
    "$gradient" --data-dir "$data/cluster" "$@"
}

section "a cluster on this machine: NATS, PostgreSQL, the services, two workers"
"$gradient" --data-dir "$data/cluster" up --http 0 --workers 2 &
cluster=$!
for _ in $(seq 300); do
    [ -f "$data/cluster/cluster.json" ] && break
    kill -0 "$cluster" 2>/dev/null || { wait "$cluster"; exit 1; }
    sleep 0.2
done
[ -f "$data/cluster/cluster.json" ] || { echo "error: the cluster did not start within a minute" >&2; exit 1; }

section "first-light: a dozen derivations, all good"
run submit "path:$here/examples/first-light" --include 'packages.*.*' --watch

section "broken: an attribute throws, a build fails, the good ones are built all the same"
status=0
run submit "path:$here/examples/broken" --include 'packages.*.*' --watch || status=$?
[ "$status" = 1 ] || { echo "error: a failed evaluation must end with exit code 1, not $status" >&2; exit 1; }

failed=$("$gradient" --data-dir "$data/cluster" builds | awk '$2 == "fails" { print $1 }')
section "the log of the build that failed"
run logs "$failed"

section "what each worker did"
run workers
run jobs --all

section "why: the last hand-out, explained from the log"
run explain "$failed"

section "the log, decided again"
run events verify

section "the binary cache, for plain nix"
run cache url
run cache key

section "stopping"
kill -TERM "$cluster"
wait "$cluster"
cluster=
echo "the demo is over: everything it started is stopped, its folder is removed"
