//! The tree that a walk sees: a flake's outputs through the C API, or a made-up one in tests.

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

/// What a forced value is to the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A set whose `type` is `"derivation"`.
    Derivation,
    /// A set that carries `type` or `_type` and is no derivation (an option, a module).
    Opaque,
    /// Any other set.
    Set,
    /// No set; the words for its type, such as `a function`.
    Value(&'static str),
}

/// A tree of lazily evaluated attributes.
pub trait AttrTree {
    /// A forced value.
    type Node;

    /// The outputs of the flake.
    ///
    /// # Errors
    /// If the flake cannot be evaluated at all.
    fn root(&mut self) -> Result<Self::Node, String>;

    /// What the value is. Forces `type`, if there is one, and nothing else.
    ///
    /// # Errors
    /// If `type` throws.
    fn kind(&mut self, node: &Self::Node) -> Result<NodeKind, String>;

    /// The sorted names of a set, none of them forced; empty for other values.
    ///
    /// # Errors
    /// If a name is no UTF-8.
    fn names(&mut self, node: &Self::Node) -> Result<Vec<String>, String>;

    /// One child of a set, forced; `None` if there is none or the value is no set.
    ///
    /// # Errors
    /// If the child throws.
    fn child(&mut self, node: &Self::Node, name: &str) -> Result<Option<Self::Node>, String>;

    /// Where the derivation was instantiated.
    ///
    /// # Errors
    /// If instantiating throws, or the value only pretends to be a derivation.
    fn drv_path(&mut self, node: &Self::Node) -> Result<StorePath, String>;
}
