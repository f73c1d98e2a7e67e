//! A private Nix for tests: a daemon with a store of its own in a temporary folder, and flakes
//! written from text.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gradient_pool::PoolSettings;
use tempfile::TempDir;

/// Where Nix is installed.
pub(crate) fn nix_prefix() -> PathBuf {
    let prefix = std::env::var_os("GRADIENT_NIX_PREFIX").map(PathBuf::from);
    let prefix = prefix.unwrap_or_else(|| PathBuf::from("/opt/gradient-nix"));
    assert!(
        prefix.join("bin/nix-daemon").exists() || prefix.join("bin/nix").exists(),
        "these tests need Nix with its C libraries: none in {} (set GRADIENT_NIX_PREFIX)",
        prefix.display()
    );
    prefix
}

/// A Nix daemon with its own store.
pub(crate) struct NixHost {
    prefix: PathBuf,
    dir: TempDir,
    daemon: Child,
}

impl NixHost {
    pub(crate) fn start() -> NixHost {
        let prefix = nix_prefix();
        let dir = tempfile::Builder::new().prefix("nx").tempdir_in("/tmp").expect("temp dir");
        let conf = dir.path().join("etc");
        std::fs::create_dir_all(&conf).expect("etc");
        std::fs::write(conf.join("nix.conf"), "build-users-group =\nsandbox = false\n")
            .expect("conf");
        // The socket is ours and handed over, so that it answers from the first moment on.
        let listener = UnixListener::bind(dir.path().join("d.sock")).expect("socket");
        let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let log = std::fs::File::create(dir.path().join("daemon.log")).expect("log");
        let daemon = Command::new("/bin/sh")
            .args(["-c", script])
            .arg(prefix.join("bin/nix-daemon"))
            .arg("--store")
            .arg(dir.path().join("root"))
            .env("HOME", dir.path())
            .env("NIX_CONF_DIR", &conf)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .spawn()
            .expect("nix-daemon");
        NixHost { prefix, dir, daemon }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn store_uri(&self) -> String {
        let dir = self.dir.path().display();
        format!("unix://{dir}/d.sock?root={dir}/root")
    }

    /// Where the daemon keeps what it calls `/nix/store`.
    pub(crate) fn real_store(&self) -> PathBuf {
        self.dir.path().join("root/nix/store")
    }

    pub(crate) fn settings(&self, exe: &str, children: usize) -> PoolSettings {
        let mut settings =
            PoolSettings::new(exe.into(), self.store_uri(), self.dir.path().join("cache"));
        settings.children = children;
        settings.nix_lib_dir = Some(self.prefix.join("lib"));
        settings
    }

    /// A locked reference to a flake of this text.
    pub(crate) fn flake(&self, name: &str, text: &str) -> String {
        let folder = self.dir.path().join("flakes").join(name);
        std::fs::create_dir_all(&folder).expect("folder");
        std::fs::write(folder.join("flake.nix"), text).expect("flake.nix");
        let output = Command::new(self.prefix.join("bin/nix"))
            .args(["--extra-experimental-features", "nix-command", "hash", "path"])
            .arg(&folder)
            .env("HOME", self.dir.path())
            .output()
            .expect("nix hash");
        let hash = String::from_utf8(output.stdout).expect("text");
        let hash = hash.trim().replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        assert!(hash.starts_with("sha256-"), "{}", String::from_utf8_lossy(&output.stderr));
        format!("path:{}?narHash={hash}", folder.display())
    }
}

impl Drop for NixHost {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
