//! An attribute tree behind its cache: what the file knows is not forced.

mod lookup;

use std::io::Write as _;

use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::tree::{AttrTree, Extra, TreeError};

use crate::cursor::Cursor;
use crate::file::{CacheError, EvalCache, remove};
use crate::rows::{Fact, Learned, Row, Rows, Step, code};

/// Sets up to this size get their names written also where nobody asked for them: for `nix`, which
/// asks every set on the way to a derivation.
const NAMES_UNASKED_MAX: usize = 64;

/// Opens the tree behind the cache, once something has to be forced.
type Opener<T> = Box<dyn FnMut() -> Result<T, TreeError>>;
/// Whether a `.drv` file is still in the store.
type Exists = Box<dyn Fn(&StorePath) -> bool>;

/// A tree with its cache in front.
pub struct CachedTree<T> {
    open: Opener<T>,
    inner: Option<T>,
    rows: Option<Rows>,
    exists: Exists,
    facts: Vec<Learned>,
    /// Where the tree begins in the one that the file is about.
    below: Vec<String>,
    forced: u64,
    /// Why the tree behind the cache cannot be opened.
    broken: Option<TreeError>,
    /// Where the walk is, for a tree that is opened in the middle of one.
    begun: Option<AttrPath>,
}

impl<T: AttrTree> CachedTree<T>
where
    T::Node: Clone,
{
    /// A tree that is opened by `open` when something has to be forced. `exists` says whether a
    /// `.drv` file is still there; one that is not is instantiated again.
    pub fn new(
        cache: Option<EvalCache>,
        open: impl FnMut() -> Result<T, TreeError> + 'static,
        exists: impl Fn(&StorePath) -> bool + 'static,
    ) -> CachedTree<T> {
        CachedTree {
            open: Box::new(open),
            inner: None,
            rows: cache.map(Rows::File),
            exists: Box::new(exists),
            facts: Vec::new(),
            below: Vec::new(),
            forced: 0,
            broken: None,
            begun: None,
        }
    }

    /// As [`CachedTree::new`], with all of the file read into memory at once.
    pub(crate) fn in_memory(
        cache: EvalCache,
        open: impl FnMut() -> Result<T, TreeError> + 'static,
        exists: impl Fn(&StorePath) -> bool + 'static,
    ) -> Result<CachedTree<T>, CacheError> {
        let rows = Some(Rows::in_memory(cache)?);
        Ok(CachedTree { rows, ..Self::new(None, open, exists) })
    }

    /// The part of the tree that begins at this path; a path that leads nowhere is an error of the root.
    #[must_use]
    pub fn below(self, path: Vec<String>) -> CachedTree<T> {
        CachedTree { below: path, ..self }
    }

    /// How often the tree behind the cache was asked.
    #[must_use]
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// Why the tree behind the cache could not be opened, if that was tried. What a walk found then is
    /// no answer: an error of the whole stands where errors of attributes should.
    #[must_use]
    pub fn broken(&self) -> Option<&TreeError> {
        self.broken.as_ref()
    }

    /// Writes what was learned since the last time, in one transaction. A cache that cannot be
    /// written is used no longer; an evaluation never fails for it.
    pub fn flush(&mut self) {
        let facts = std::mem::take(&mut self.facts);
        let Some(rows) = &mut self.rows else {
            return;
        };
        if let Err(error) = rows.file().write(&facts) {
            self.give_up(&error);
        }
    }

    /// Stops using the cache; a damaged one is removed.
    fn give_up(&mut self, error: &CacheError) {
        // Who cannot be told is not.
        let _ =
            writeln!(std::io::stderr(), "note: the evaluation cache is not used any more: {error}");
        let Some(rows) = self.rows.take() else {
            return;
        };
        if error.is_of_no_use() {
            let path = rows.into_file().path().to_owned();
            // If it cannot be removed now, whoever opens it next tries again.
            let _ = remove(&path);
        }
    }

    pub(crate) fn into_cache(self) -> Option<EvalCache> {
        self.rows.map(Rows::into_file)
    }

    fn row(&mut self, parent: Option<i64>, name: &str) -> Option<Row> {
        let found = self.rows.as_ref()?.get(parent?, name);
        found.unwrap_or_else(|error| {
            self.give_up(&error);
            None
        })
    }

    fn learn(&mut self, path: Vec<Step>, fact: Fact) {
        if self.rows.is_none() {
            return;
        }
        if matches!(fact, Fact::Kind(_) | Fact::Plain | Fact::Uncallable(_)) {
            // What a value is says that it can be forced.
            self.facts.pop_if(|(of, known)| *known == Fact::Forced && *of == path);
        }
        self.facts.push((path, fact));
    }

    /// What is known of a derivation beside its path.
    fn extra(&mut self, derivation: Option<i64>) -> Option<Extra> {
        let name = self.row(derivation, "name").and_then(|row| row.value);
        let outline = match self.rows.as_ref()?.outline(derivation?) {
            Ok(outline) => outline,
            Err(error) => {
                self.give_up(&error);
                None
            }
        };
        let is_any = name.is_some() || outline.is_some();
        is_any.then(|| Extra { name, outline, ..Extra::default() })
    }

    /// Notes an error if every evaluation will meet it again, and passes it on.
    fn failed(&mut self, path: Vec<Step>, error: TreeError) -> TreeError {
        if error.is_repeatable {
            self.learn(path, Fact::Failed(error.message.clone()));
        }
        error
    }

    fn inner(&mut self) -> Result<&mut T, TreeError> {
        self.forced += 1;
        let inner = match self.inner.take() {
            Some(inner) => inner,
            None => {
                if let Some(error) = &self.broken {
                    return Err(error.clone());
                }
                // Nothing about an attribute follows from it.
                let opened = (self.open)().map_err(|error| TreeError::passing(error.message));
                let mut inner = opened.inspect_err(|error| self.broken = Some(error.clone()))?;
                if let Some(path) = &self.begun {
                    inner.begin(path);
                }
                inner
            }
        };
        Ok(self.inner.insert(inner))
    }

    /// The value itself.
    fn force(&mut self, at: &Cursor<T::Node>) -> Result<T::Node, TreeError> {
        if let Some(value) = at.value.borrow().as_ref() {
            return Ok(value.clone());
        }
        let value = match &at.parent {
            None => self.inner()?.root()?,
            Some((parent, step)) => {
                let parent = self.force(parent)?;
                match step {
                    Step::Called => self.inner()?.called(parent)?.into_node(),
                    Step::Name(name) => {
                        let child = self.inner()?.child(&parent, name)?;
                        child
                            .ok_or_else(|| TreeError::passing("the attribute is there no longer"))?
                    }
                }
            }
        };
        at.value.replace(Some(value.clone()));
        Ok(value)
    }

    /// Writes the names of a small set that was forced anyway.
    fn learn_names(&mut self, at: &Cursor<T::Node>, value: &T::Node) {
        let is_known = at.row.as_ref().is_some_and(|row| row.code == code::ATTRS);
        if is_known || self.rows.is_none() {
            return;
        }
        let size = self.inner().map_or(0, |inner| inner.size(value));
        if size == 0 || size > NAMES_UNASKED_MAX {
            return;
        }
        let path = at.path();
        if self.facts.iter().any(|(of, fact)| *of == path && matches!(fact, Fact::Names(_))) {
            return;
        }
        if let Ok(names) = self.inner().and_then(|inner| inner.names(value)) {
            self.learn(path, Fact::Names(names));
        }
    }
}
