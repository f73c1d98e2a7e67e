//! What a pool is told, and the environment that its children get.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Argument that makes the worker's program an evaluator subprocess.
pub const SUBPROCESS_ARGUMENT: &str = "--eval-subprocess";

/// Folder of the evaluation caches below that of the other caches.
pub const EVAL_CACHE_FOLDER: &str = "eval-cache-v1";

/// Variables that a child inherits. Nothing else of the parent's environment reaches it: the code
/// that it evaluates is the users', the tokens in the environment are the worker's.
const INHERITED: [&str; 16] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "GRADIENT_NIX_LIB_DIR",
    "TMPDIR",
    "TZDIR",
    "LOCALE_ARCHIVE",
    "NIX_CONF_DIR",
    "NIX_SSL_CERT_FILE",
    "SSL_CERT_FILE",
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Settings of the evaluator; on 2.26 there is no other way to reach them than this text.
/// `max-jobs` and `builders` travel on to the daemon: nothing is built during an evaluation.
const NIX_CONFIG: &str = "\
experimental-features = nix-command flakes
pure-eval = true
allow-import-from-derivation = false
max-jobs = 0
builders =
accept-flake-config = false
flake-registry =
eval-cache = false
show-trace = true
max-call-depth = 10000
warn-dirty = false
";

/// Settings of a pool of evaluator subprocesses.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Program that becomes a subprocess with [`SUBPROCESS_ARGUMENT`]; usually the worker itself.
    pub exe: PathBuf,
    /// Most subprocesses at a time; at least 1.
    pub children: usize,
    /// Resident memory, in bytes, over which a subprocess is replaced after its call.
    pub max_rss_bytes: u64,
    /// Memory of the machine, in bytes, that stays free; 0 is a tenth, from 128 MiB to 1 GiB.
    pub min_free_ram_bytes: u64,
    /// Store to evaluate with: `daemon`, `unix://SOCKET`, `unix://SOCKET?root=DIR`.
    pub store_uri: String,
    /// Folder with Nix's C libraries, if the search order is not to decide.
    pub nix_lib_dir: Option<PathBuf>,
    /// Folder for Nix's fetcher caches and as the children's home.
    pub cache_home: PathBuf,
    /// Folder of the evaluation caches; `None` keeps nothing.
    pub eval_cache: Option<PathBuf>,
    /// Longest time of one call; then the subprocess is killed.
    pub call_limit: Duration,
    /// Longest time from the start of a subprocess to its first byte.
    pub greeting_limit: Duration,
}

impl PoolSettings {
    /// Settings with the defaults: one child per core up to 16, 2 GiB each, 30 minutes per call.
    #[must_use]
    pub fn new(exe: PathBuf, store_uri: String, cache_home: PathBuf) -> PoolSettings {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        PoolSettings {
            exe,
            children: cores.min(16),
            max_rss_bytes: 2 * 1024 * 1024 * 1024,
            min_free_ram_bytes: 0,
            store_uri,
            nix_lib_dir: None,
            cache_home,
            eval_cache: None,
            call_limit: Duration::from_secs(30 * 60),
            greeting_limit: Duration::from_secs(15),
        }
    }

    /// The whole environment of a child.
    pub(crate) fn child_environment(
        &self,
        parent: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let mut environment: Vec<_> =
            INHERITED.into_iter().filter_map(|name| Some((name, parent(name)?))).collect();
        let home = self.cache_home.clone().into_os_string();
        environment.extend([
            ("HOME", home.clone()),
            ("NIX_CACHE_HOME", home),
            ("NIX_CONFIG", NIX_CONFIG.into()),
            ("NIX_USER_CONF_FILES", "/dev/null".into()),
            ("NIX_PATH", OsString::new()),
            ("GC_MARKERS", "1".into()),
            // Fewer collections for some memory, of which never more is touched than is used:
            // they were a fifth to a third of an evaluation's time.
            ("GC_INITIAL_HEAP_SIZE", "256M".into()),
            ("GC_FREE_SPACE_DIVISOR", "2".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
            ("GIT_SSH_COMMAND", "ssh -o BatchMode=yes".into()),
            ("SSH_ASKPASS_REQUIRE", "never".into()),
            ("NO_COLOR", "1".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ]);
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_worker_stay_with_it() {
        let settings = PoolSettings::new("/x".into(), "daemon".into(), "/cache".into());
        let parent = |name: &str| Some(OsString::from(format!("parent's {name}")));
        let environment = settings.child_environment(parent);
        let get =
            |name: &str| environment.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.to_str());
        assert_eq!(get("PATH"), Some("parent's PATH"));
        assert_eq!(get("HOME"), Some("/cache"));
        assert_eq!(get("NIX_CACHE_HOME"), Some("/cache"));
        assert_eq!(get("NIX_USER_CONF_FILES"), Some("/dev/null"));
        assert_eq!(get("NIX_PATH"), Some(""));
        for name in ["NIX_REMOTE", "GRADIENT_WORKER_TOKEN", "AWS_SECRET_ACCESS_KEY", "NIX_STORE"] {
            assert_eq!(get(name), None, "{name}");
        }
        let inherited = environment
            .iter()
            .filter(|(name, value)| value.to_str() == Some(&format!("parent's {name}")));
        assert_eq!(inherited.count(), INHERITED.len());
    }
}
