//! The tree that a walk sees: a flake's outputs through the C API, the evaluation cache in front of
//! them, or a made-up one in tests.

use std::fmt;

use gradient_domain::derivation::Outline;
use gradient_domain::{AttrPath, StorePath};

/// An attribute that could not be evaluated.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct AttrError {
    /// Where.
    pub attr: AttrPath,
    /// Nix's message, without the path.
    pub message: String,
}

/// Why a value cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError {
    /// For a person, without the path.
    pub message: String,
    /// Whether every evaluation of this flake by this Nix says the same, so that the evaluation
    /// cache may keep it. Not so for what the network, the disk, the store, a limit or an import
    /// from derivation did.
    pub is_repeatable: bool,
}

impl TreeError {
    /// An error that follows from the flake alone.
    #[must_use]
    pub fn repeatable(message: impl Into<String>) -> TreeError {
        TreeError { message: message.into(), is_repeatable: true }
    }

    /// A path to the root of a tree leads nowhere.
    #[must_use]
    pub fn not_there(path: &AttrPath) -> TreeError {
        TreeError::repeatable(format!("attribute '{path}' is not there"))
    }

    /// An error that another try may not have.
    #[must_use]
    pub fn passing(message: impl Into<String>) -> TreeError {
        TreeError { message: message.into(), is_repeatable: false }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a value is that is no set. The numbers stand in evaluation caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueKind {
    /// A whole number.
    Integer = 1,
    /// A number with a fraction.
    Float = 2,
    /// True or false.
    Boolean = 3,
    /// Text.
    String = 4,
    /// A path.
    Path = 5,
    /// Null.
    Null = 6,
    /// A list.
    List = 8,
    /// A function.
    Function = 9,
    /// A value of a plugin.
    External = 10,
    /// Something that this list does not know.
    Other = 11,
}

impl ValueKind {
    /// All of them.
    pub const ALL: [ValueKind; 10] = [
        ValueKind::Integer,
        ValueKind::Float,
        ValueKind::Boolean,
        ValueKind::String,
        ValueKind::Path,
        ValueKind::Null,
        ValueKind::List,
        ValueKind::Function,
        ValueKind::External,
        ValueKind::Other,
    ];

    /// Words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            ValueKind::Integer => "an integer",
            ValueKind::Float => "a float",
            ValueKind::Boolean => "a Boolean",
            ValueKind::String => "a string",
            ValueKind::Path => "a path",
            ValueKind::Null => "null",
            ValueKind::List => "a list",
            ValueKind::Function => "a function",
            ValueKind::External => "an external value",
            ValueKind::Other => "a value of unknown type",
        }
    }
}

/// What a forced value is to the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A set whose `type` is `"derivation"`.
    Derivation,
    /// A set that carries `type` or `_type` and is no derivation (an option, a module).
    Opaque,
    /// Any other set.
    Set,
    /// No set.
    Value(ValueKind),
}

/// A derivation that was instantiated.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct Job {
    /// Its `.drv` file.
    pub drv_path: StorePath,
    /// What else was asked for, if anything was.
    pub extra: Option<Extra>,
}

/// What a local evaluation tells of a derivation beside its path.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Extra {
    /// `name`; absent if it was not asked for.
    pub name: Option<String>,
    /// `meta` as JSON; absent if it was not asked for.
    pub meta: Option<String>,
    /// The result of the function to apply, as JSON; absent if there was none.
    pub applied: Option<String>,
    /// What an aggregate is made of, as JSON; absent if it was not asked for or it is none.
    pub constituents: Option<String>,
    /// What its file says in short; absent if it was not asked for or the file is not at hand.
    pub outline: Option<Outline>,
}

/// What calling a value gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called<N> {
    /// It cannot be called: the value itself.
    Same(N),
    /// A result.
    Result(N),
}

impl<N> Called<N> {
    /// Whichever it is.
    #[must_use]
    pub fn into_node(self) -> N {
        match self {
            Called::Same(node) | Called::Result(node) => node,
        }
    }
}

/// A tree of lazily evaluated attributes.
pub trait AttrTree {
    /// A forced value.
    type Node;

    /// The outputs of the flake.
    ///
    /// # Errors
    /// If the flake cannot be evaluated at all.
    fn root(&mut self) -> Result<Self::Node, TreeError>;

    /// Told before a walk looks at the value at this path, so that what the evaluator prints from
    /// now on can be told of it.
    fn begin(&mut self, path: &AttrPath) {
        let _ = path;
    }

    /// What the value is. Forces `type`, if there is one, and nothing else.
    ///
    /// # Errors
    /// If `type` throws.
    fn kind(&mut self, node: &Self::Node) -> Result<NodeKind, TreeError>;

    /// The sorted names of a set, none of them forced; empty for other values.
    ///
    /// # Errors
    /// If a name is no UTF-8.
    fn names(&mut self, node: &Self::Node) -> Result<Vec<String>, TreeError>;

    /// How many names a set has, nothing forced; 0 for other values.
    fn size(&mut self, node: &Self::Node) -> usize;

    /// Whether a set has this name, nothing forced; `false` for other values.
    fn has(&mut self, node: &Self::Node, name: &str) -> bool;

    /// One child of a set, forced; `None` if there is none or the value is no set.
    ///
    /// # Errors
    /// If the child throws.
    fn child(&mut self, node: &Self::Node, name: &str) -> Result<Option<Self::Node>, TreeError>;

    /// The value, or, if it is a function whose arguments all have defaults, its result.
    ///
    /// # Errors
    /// If the function throws, or an argument has no default.
    fn called(&mut self, node: Self::Node) -> Result<Called<Self::Node>, TreeError> {
        Ok(Called::Same(node))
    }

    /// Whether a set says by `recurseForDerivations` that it holds jobs. Forces that attribute and
    /// nothing else.
    ///
    /// # Errors
    /// If the attribute throws or is no Boolean.
    fn recurses(&mut self, node: &Self::Node) -> Result<bool, TreeError>;

    /// Where the derivation was instantiated, and what was asked for beside.
    ///
    /// # Errors
    /// If instantiating throws, or the value only pretends to be a derivation.
    fn job(&mut self, node: &Self::Node) -> Result<Job, TreeError>;
}
