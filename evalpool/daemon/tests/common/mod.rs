//! A private Nix daemon per test. Without Nix the tests fail and say so; they are never skipped.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gradient_daemon::{ClientOptions, Connection, Pool};
use gradient_domain::StorePath;

const CONFIG: &str = "sandbox = true\nsandbox-paths = /bin/sh=/bin/busybox\n\
    build-users-group =\nsubstitute = false\nexperimental-features = nix-command\n";

fn program(name: &str) -> PathBuf {
    let prefix = std::env::var("GRADIENT_NIX_PREFIX").unwrap_or("/opt/gradient-nix".into());
    let path = Path::new(&prefix).join("bin").join(name);
    assert!(
        path.exists(),
        "{} is missing: run ./setup.sh, or set GRADIENT_NIX_PREFIX to a prefix with Nix",
        path.display()
    );
    path
}

pub(crate) struct Daemon {
    pub(crate) dir: tempfile::TempDir,
    child: Child,
    pub(crate) pool: Pool,
}

impl Daemon {
    pub(crate) async fn start() -> Daemon {
        let dir =
            tempfile::Builder::new().prefix("gd-").tempdir_in("/tmp").expect("temporary folder");
        let socket = dir.path().join("d.sock");
        let child = Command::new(program("nix-daemon"))
            .arg("--store")
            .arg(dir.path().join("root"))
            .env("NIX_DAEMON_SOCKET_PATH", &socket)
            .env("NIX_CONFIG", CONFIG)
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("nix-daemon starts");
        let start = Instant::now();
        while let Err(error) = Connection::open(&socket, &ClientOptions::default()).await {
            assert!(start.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let pool = Pool::new(socket, ClientOptions::default(), 4);
        Daemon { dir, child, pool }
    }

    /// Runs a program of Nix against this store and returns its output.
    pub(crate) fn nix(&self, name: &str, args: &[&str]) -> String {
        let root = self.dir.path().join("root");
        let store = format!("unix://{}?root={}", self.pool.socket().display(), root.display());
        let output = Command::new(program(name))
            .args(args)
            .args(["--store", &store])
            .env("NIX_CONFIG", CONFIG)
            .env("HOME", self.dir.path())
            .output()
            .expect("Nix starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {args:?}: {errors}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Instantiates a derivation named `name` whose builder is this shell script.
    pub(crate) fn instantiate(&self, name: &str, script: &str, more: &str) -> StorePath {
        let expression = format!(
            "derivation {{ name = \"{name}\"; system = \"x86_64-linux\"; builder = \"/bin/sh\"; \
             args = [ \"-c\" ''{script}'' ]; {more} }}"
        );
        let path = self.nix("nix-instantiate", &["-E", &expression]);
        path.parse().expect("a store path")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.pool.close_idle();
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Paths in a store are read-only; root removes them all the same, others need this.
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.dir.path()).status();
    }
}
