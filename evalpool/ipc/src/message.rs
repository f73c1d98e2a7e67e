//! Requests and responses. Paths and patterns are lists of segments, never dotted text.

use gradient_domain::pattern::Segment;
use gradient_domain::percent;
use gradient_domain::store_path::STORE_DIR;
use gradient_domain::{AttrPath, StorePath};

use crate::shard::{Recursion, Shard};
use crate::tree::{AttrError, Job};

/// Longest text of one error or warning, in bytes.
pub const TEXT_LEN_MAX: usize = 16 * 1024;

/// Parent to subprocess. Every request but `BuildDone` and `Shutdown` gets one response.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub enum Request {
    /// First request: load Nix and open the store.
    Start(Start),
    /// Are you there? Asked before an idle subprocess is used again.
    Ping,
    /// Split the patterns into shards.
    Plan(Plan),
    /// List the derivations of one shard.
    List(List),
    /// Name the evaluation cache of a locked flake.
    Fingerprint(Fingerprint),
    /// Move what was written to an evaluation cache from its log into its file.
    Checkpoint(CacheFile),
    /// Bring a locked input into the store.
    FetchInput(FetchInput),
    /// Answer to `NeedsBuild`.
    BuildDone(BuildDone),
    /// Exit.
    Shutdown,
}

/// How to load Nix.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Start {
    /// Folder with Nix's C libraries, if the search order is not to decide.
    pub nix_lib_dir: Option<String>,
    /// The store to evaluate with.
    pub store_uri: String,
    /// Whether errors come with everything that Nix says of their way, not with their place only.
    pub show_trace: bool,
    /// The secret of the marks on standard error ([`crate::marks`]); another one for every
    /// subprocess.
    pub nonce: String,
}

/// The tree of attributes that requests are about. A subprocess keeps the last one open.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Source {
    /// Where the tree comes from.
    pub expression: Expression,
    /// The names that lead from there to the root of the tree.
    pub fragment: Vec<String>,
    /// A function, as Nix text, that makes the root of the tree out of what is there.
    pub select: Option<String>,
    /// What to tell of a derivation beside its path.
    pub extras: Extras,
    /// The evaluation cache to read and write, if any.
    pub cache: Option<CacheFile>,
}

impl Source {
    /// The outputs of a locked flake, and nothing else.
    #[must_use]
    pub fn flake(reference: impl Into<String>) -> Source {
        let expression = Expression::Flake(reference.into());
        let extras = Extras::default();
        Source { expression, fragment: Vec::new(), select: None, extras, cache: None }
    }
}

/// Where a tree of attributes comes from.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub enum Expression {
    /// The outputs of a flake, by its locked reference.
    Flake(String),
    /// The value of an expression; if that is a function whose arguments all have defaults, its
    /// result.
    Text(TextExpression),
}

/// An expression that is no flake.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct TextExpression {
    /// Nix text.
    pub text: String,
    /// Folder that relative paths in it start from.
    pub folder: String,
}

/// What to tell of a derivation beside its path.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct Extras {
    /// `name`, which need not be the name of the `.drv` file.
    pub name: bool,
    /// `meta`, as far as it can be JSON.
    pub meta: bool,
    /// The result of this function, as Nix text, applied to the derivation.
    pub apply: Option<String>,
    /// What an aggregate is made of.
    pub constituents: bool,
    /// What its file says in short.
    pub outline: bool,
}

impl Extras {
    /// Whether an evaluation cache keeps all of them.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        let Extras { name: _, meta, apply, constituents, outline: _ } = self;
        !meta && apply.is_none() && !constituents
    }
}

/// The evaluation cache of one flake.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct CacheFile {
    /// The file.
    pub path: String,
    /// The fingerprint that it has to be of.
    pub fingerprint: String,
}

/// What an evaluation cache is named after. The subprocess adds its Nix.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Fingerprint {
    /// Flake reference.
    pub reference: String,
    /// Its complete lock file.
    pub locks: String,
}

/// A locked input to fetch.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct FetchInput {
    /// The locked reference as in a lock file, JSON.
    pub locked: String,
    /// How git reaches a private repository. A subprocess that was told this evaluates nothing.
    pub git_ssh_command: Option<String>,
}

/// What to split.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Plan {
    /// What is evaluated.
    pub source: Source,
    /// The includes.
    pub patterns: Vec<Vec<Segment>>,
    /// How far the walk goes below them.
    pub recursion: Recursion,
}

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct List {
    /// What is evaluated.
    pub source: Source,
    /// The shard.
    pub shard: Shard,
    /// Paths that are left out.
    pub excludes: Vec<AttrPath>,
}

/// How a build went that an import waited for.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct BuildDone {
    /// Text that becomes the error of the import; absent if every output is there.
    pub error: Option<String>,
}

/// Subprocess to parent. `Stats` and `NeedsBuild` may come before the response.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub enum Response {
    /// Answer to `Start`: Nix is loaded, the store open.
    Started(Started),
    /// Answer to `Ping`.
    Pong,
    /// Answer to `Plan`.
    PlanOk(PlanOk),
    /// Answer to `List`.
    ListOk(ListOk),
    /// Answer to `Fingerprint`.
    FingerprintOk(FingerprintOk),
    /// Answer to `Checkpoint`.
    CheckpointOk,
    /// Answer to `FetchInput`.
    FetchOk(FetchOk),
    /// What the running request has used so far.
    Stats(Stats),
    /// An import needs a build; the subprocess waits for `BuildDone`.
    NeedsBuild(NeedsBuild),
    /// The request failed as a whole.
    Err(Failure),
    /// What the request found is longer than a frame. Nothing of it was told; parts of the request may
    /// be asked for.
    TooLong,
}

/// What was loaded.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Started {
    /// Version of the loaded Nix.
    pub nix_version: String,
}

/// The name of an evaluation cache.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct FingerprintOk {
    /// Hexadecimal; absent if the flake is not locked, so that nothing can be kept of it.
    pub fingerprint: Option<String>,
}

/// An input that is in the store.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct FetchOk {
    /// Where.
    pub store_path: StorePath,
}

/// What an import needs.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct NeedsBuild {
    /// Derivation paths with their outputs, `<drv>^<outputs>`.
    pub derived_paths: Vec<String>,
}

/// Why a request failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Failure {
    /// The reason, for a person.
    pub message: String,
}

impl Request {
    /// The name of the call, for errors.
    #[must_use]
    pub fn call(&self) -> &'static str {
        match self {
            Request::Start(_) => "start",
            Request::Ping => "ping",
            Request::Plan(_) => "plan",
            Request::List(_) => "list",
            Request::Fingerprint(_) => "fingerprint",
            Request::Checkpoint(_) => "checkpoint",
            Request::FetchInput(_) => "fetch_input",
            Request::BuildDone(_) => "build_done",
            Request::Shutdown => "shutdown",
        }
    }
}

impl Response {
    /// The name of the variant, for errors about a response nobody asked for.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Response::Started(_) => "started",
            Response::Pong => "pong",
            Response::PlanOk(_) => "plan_ok",
            Response::ListOk(_) => "list_ok",
            Response::FingerprintOk(_) => "fingerprint_ok",
            Response::CheckpointOk => "checkpoint_ok",
            Response::FetchOk(_) => "fetch_ok",
            Response::Stats(_) => "stats",
            Response::NeedsBuild(_) => "needs_build",
            Response::Err(_) => "err",
            Response::TooLong => "too_long",
        }
    }
}

/// The shards of an evaluation.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct PlanOk {
    /// What to list.
    pub shards: Vec<Shard>,
    /// Sets on the way to the first wildcards that could not be evaluated.
    pub errors: Vec<AttrError>,
}

/// What one shard holds.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct ListOk {
    /// The derivations, sorted by path.
    pub items: Vec<Item>,
    /// Nested sets whose children nobody has forced yet.
    pub deferred: Vec<Shard>,
    /// Warnings of the subprocess itself; those of Nix come over standard error.
    pub warnings: Vec<String>,
    /// Attributes that could not be evaluated.
    pub errors: Vec<AttrError>,
}

/// A derivation that was found.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct Item {
    /// Where.
    pub attr: AttrPath,
    /// What it is, or why it is none.
    pub result: Result<Job, String>,
}

/// What one request used. A number that this Nix does not offer is absent, never zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct Stats {
    /// Wall time of the request so far, in microseconds.
    pub wall_us: u64,
    /// CPU time of the evaluator's thread in this request, in microseconds.
    pub cpu_us: u64,
    /// Bytes allocated in this request.
    pub alloc_bytes: Option<u64>,
    /// Size of the garbage-collected heap now, in bytes.
    pub heap_bytes: Option<u64>,
    /// Time spent collecting garbage in this request, in milliseconds.
    pub gc_ms: Option<u64>,
    /// Highest resident memory of the process so far, in bytes.
    pub rss_peak_bytes: Option<u64>,
}

/// Folder that a private store (`...?root=DIR`) keeps its paths in; `None` for the plain store.
#[must_use]
pub fn real_store_dir(store_uri: &str) -> Option<String> {
    let (_, query) = store_uri.split_once('?')?;
    let root = query.split('&').find_map(|pair| pair.strip_prefix("root="))?;
    let root = percent::decode(root)?;
    Some(format!("{}{STORE_DIR}", root.trim_end_matches('/'))).filter(|dir| dir != STORE_DIR)
}

/// A text with the names that everybody knows for paths of a private store.
#[must_use]
pub fn with_store_names(text: &str, real_store_dir: Option<&str>) -> String {
    match real_store_dir {
        Some(real) => text.replace(real, STORE_DIR),
        None => text.to_owned(),
    }
}

/// Cuts a text at [`TEXT_LEN_MAX`], on a character boundary, and says so.
#[must_use]
pub fn bounded(mut text: String) -> String {
    if text.len() > TEXT_LEN_MAX {
        let end = (0..=TEXT_LEN_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" [...]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_store_shows_the_common_names() {
        let real = real_store_dir("unix:///tmp/x/d.sock?root=/tmp/x/root");
        assert_eq!(real.as_deref(), Some("/tmp/x/root/nix/store"));
        let text = "at /tmp/x/root/nix/store/abc-source/flake.nix:1:2";
        let shown = with_store_names(text, real.as_deref());
        assert_eq!(shown, "at /nix/store/abc-source/flake.nix:1:2");
        assert_eq!(real_store_dir("unix:///run/d.sock"), None);
        assert_eq!(real_store_dir("unix:///run/d.sock?root=/"), None);
        assert_eq!(with_store_names(text, None), text);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let cut = bounded("\u{e4}".repeat(TEXT_LEN_MAX));
        assert!(cut.len() <= TEXT_LEN_MAX + 6 && cut.ends_with(" [...]"));
        assert_eq!(bounded("short".into()), "short");
    }
}
