//! What a pool is told, and the environment that its children get.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gradient_domain::store_path::STORE_DIR;
use gradient_ipc::message::real_store_dir;

use crate::cache::KnownPaths;

/// Argument that makes the worker's program an evaluator subprocess.
pub const SUBPROCESS_ARGUMENT: &str = "--eval-subprocess";

/// Folder of the evaluation caches below that of the other caches.
pub const EVAL_CACHE_FOLDER: &str = "eval-cache-v1";

/// Schemes of what expressions of a fleet may fetch, and the store, which holds their inputs.
const REMOTE_URIS: &str = "http: https: ftp: ftps: github: gitlab: sourcehut: git+http: git+https: \
    git+ssh: ssh: hg+http: hg+https: hg+ssh: tarball+http: tarball+https: file+http: file+https: \
    path:/nix/store";

/// Where the paths of a store really are.
#[must_use]
pub fn store_folder(store_uri: &str) -> PathBuf {
    real_store_dir(store_uri).unwrap_or_else(|| STORE_DIR.to_owned()).into()
}

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

/// What even an impure child is not told: where somebody else's store is, and how others configure
/// Nix.
const WITHHELD_PREFIXES: [&str; 3] = ["NIX_", "GRADIENT_", "GC_"];
/// The exceptions.
const HANDED_ON: [&str; 4] =
    ["NIX_PATH", "NIX_CONF_DIR", "NIX_SSL_CERT_FILE", "GRADIENT_NIX_LIB_DIR"];

/// Settings of a pool of evaluator subprocesses.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Program that becomes a subprocess with [`SUBPROCESS_ARGUMENT`]; usually the worker itself.
    pub exe: PathBuf,
    /// Most subprocesses at a time; at least 1.
    pub children: usize,
    /// Resident memory, in bytes, over which a subprocess is replaced after its call.
    pub max_rss_bytes: u64,
    /// Resident memory, in bytes, over which a subprocess is killed in the middle of a call; `None`
    /// bounds it by the memory of the machine only. Less than a subprocess with Nix takes (some 100
    /// MiB) makes every call fail.
    pub kill_rss_bytes: Option<u64>,
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
    /// Whom to ask whether the store knows the derivations of an answer out of a cache; `None` takes
    /// its files for granted.
    pub known_paths: Option<Arc<dyn KnownPaths>>,
    /// Longest time of one call; then the subprocess is killed.
    pub call_limit: Duration,
    /// Longest time from the start of a subprocess to its first byte.
    pub greeting_limit: Duration,
    /// Whether expressions see nothing but locked inputs; a fleet evaluates in no other way. If not,
    /// they also see the parent's environment.
    pub pure: bool,
    /// Whether errors come with everything that Nix says of their way.
    pub show_trace: bool,
    /// Whether what expressions fetch, locked or not, has to come from elsewhere: no file, folder or
    /// repository of this machine but what is in the store. A fleet evaluates in no other way.
    pub remote_only: bool,
    /// Further settings of Nix by name. Neither names nor values may hold line breaks.
    pub options: BTreeMap<String, String>,
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
            kill_rss_bytes: None,
            min_free_ram_bytes: 0,
            store_uri,
            nix_lib_dir: None,
            cache_home,
            eval_cache: None,
            known_paths: None,
            call_limit: Duration::from_secs(30 * 60),
            greeting_limit: Duration::from_secs(15),
            pure: true,
            show_trace: false,
            remote_only: false,
            options: BTreeMap::new(),
        }
    }

    /// The text of `NIX_CONFIG`.
    pub(crate) fn nix_config(&self) -> String {
        let mut config = format!("{NIX_CONFIG}pure-eval = {}\n", self.pure);
        let uris = if self.remote_only { REMOTE_URIS } else { "" };
        config.push_str(&format!("restrict-eval = {}\nallowed-uris = {uris}\n", self.remote_only));
        for (name, value) in &self.options {
            config.push_str(&format!("{name} = {value}\n"));
        }
        config
    }

    /// Whether a child inherits this variable.
    fn hands_on(&self, name: &str) -> bool {
        let withheld = || WITHHELD_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        INHERITED.contains(&name) || !self.pure && (HANDED_ON.contains(&name) || !withheld())
    }

    /// The whole environment of a child.
    pub(crate) fn child_environment(
        &self,
        parent: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> BTreeMap<OsString, OsString> {
        let handed_on = |name: &OsString| name.to_str().is_some_and(|name| self.hands_on(name));
        let home = self.cache_home.clone().into_os_string();
        let mut environment =
            BTreeMap::from([("HOME".into(), home.clone()), ("NIX_PATH".into(), OsString::new())]);
        environment.extend(parent.into_iter().filter(|(name, _)| handed_on(name)));
        let fixed: [(&str, OsString); 10] = [
            ("NIX_CACHE_HOME", home),
            ("NIX_CONFIG", self.nix_config().into()),
            ("NIX_USER_CONF_FILES", "/dev/null".into()),
            ("GC_MARKERS", "1".into()),
            // Fewer collections for some memory, of which never more is touched than is used:
            // they were a fifth to a third of an evaluation's time.
            ("GC_INITIAL_HEAP_SIZE", "256M".into()),
            ("GC_FREE_SPACE_DIVISOR", "2".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
            ("SSH_ASKPASS_REQUIRE", "never".into()),
            ("NO_COLOR", "1".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ];
        environment.extend(fixed.into_iter().map(|(name, value)| (name.into(), value)));
        let batch = || "ssh -o BatchMode=yes".into();
        environment.entry("GIT_SSH_COMMAND".into()).or_insert_with(batch);
        environment
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn secrets_of_the_worker_stay_with_it() {
        let settings = PoolSettings::new("/x".into(), "daemon".into(), "/cache".into());
        let environment = settings.child_environment(parent());
        let get = |name: &str| environment.get(OsStr::new(name)).and_then(|value| value.to_str());
        assert_eq!(get("PATH"), Some("parent's PATH"));
        assert_eq!(get("HOME"), Some("/cache"));
        assert_eq!(get("NIX_CACHE_HOME"), Some("/cache"));
        assert_eq!(get("NIX_USER_CONF_FILES"), Some("/dev/null"));
        assert_eq!(get("NIX_PATH"), Some(""));
        for name in SECRETS {
            assert_eq!(get(name), None, "{name}");
        }
        let inherited = environment
            .iter()
            .filter(|(name, value)| **value == *format!("parent's {}", name.display()));
        assert_eq!(inherited.count(), INHERITED.len());
    }

    #[test]
    fn an_impure_child_sees_the_callers_world() {
        let mut settings = PoolSettings::new("/x".into(), "daemon".into(), "/cache".into());
        assert!(settings.nix_config().contains("pure-eval = true\n"));
        settings.pure = false;
        settings.options.insert("eval-system".into(), "x86_64-linux".into());
        let environment = settings.child_environment(parent());
        let get = |name: &str| environment.get(OsStr::new(name)).and_then(|value| value.to_str());
        assert_eq!(get("HOME"), Some("parent's HOME"));
        assert_eq!(get("NIX_PATH"), Some("parent's NIX_PATH"));
        assert_eq!(get("NIXPKGS_ALLOW_UNFREE"), Some("parent's NIXPKGS_ALLOW_UNFREE"));
        assert_eq!(get("NIX_REMOTE"), None);
        let config = get("NIX_CONFIG").expect("there");
        assert!(config.contains("pure-eval = false\n"), "{config}");
        assert!(config.ends_with("\neval-system = x86_64-linux\n"), "{config}");
    }

    const SECRETS: [&str; 5] = [
        "NIX_REMOTE",
        "GRADIENT_WORKER_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "NIX_STORE",
        "NIXPKGS_ALLOW_UNFREE",
    ];

    fn parent() -> impl Iterator<Item = (OsString, OsString)> {
        let others = ["HOME", "NIX_PATH", "NIX_CONFIG", "NO_COLOR"];
        let names = INHERITED.into_iter().chain(others).chain(SECRETS);
        names.map(|name| (name.into(), format!("parent's {name}").into()))
    }
}
