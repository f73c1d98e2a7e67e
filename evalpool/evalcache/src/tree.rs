//! An attribute tree behind its cache: what the file knows is not forced.

use std::cell::RefCell;
use std::rc::Rc;

use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::tree::{AttrTree, Extra, Job, NodeKind, TreeError, ValueKind};

use crate::file::{CacheError, EvalCache, remove};
use crate::rows::{ABOVE_ROOT, Fact, Row, Rows, code};

/// Sets up to this size get their names written also where nobody asked for them: for `nix`, which
/// asks every set on the way to a derivation.
const NAMES_UNASKED_MAX: usize = 64;
/// Attributes of a derivation that `nix` looks at before it builds it.
const LOOKED_AT_BY_NIX: [&str; 2] = ["meta", "outputSpecified"];

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
    facts: Vec<(Vec<String>, Fact)>,
    forced: u64,
    /// Why the tree behind the cache cannot be opened.
    broken: Option<TreeError>,
    /// Where the walk is, for a tree that is opened in the middle of one.
    begun: Option<AttrPath>,
}

/// A value of a cached tree. Forced only when that is needed.
pub struct Cursor<N> {
    parent: Option<Rc<Cursor<N>>>,
    name: String,
    row: Option<Row>,
    value: RefCell<Option<N>>,
}

impl<N> Cursor<N> {
    fn path(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(parent) = &at.parent {
            names.push(at.name.clone());
            at = parent;
        }
        names.reverse();
        names
    }

    fn node(&self) -> Option<&crate::rows::Node> {
        self.row.as_ref()?.node.as_ref()
    }
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
        eprintln!("note: the evaluation cache is not used any more: {error}");
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

    fn learn(&mut self, path: Vec<String>, fact: Fact) {
        if self.rows.is_none() {
            return;
        }
        if matches!(fact, Fact::Kind(_)) {
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
    fn failed(&mut self, path: Vec<String>, error: TreeError) -> TreeError {
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
            Some(parent) => {
                let parent = self.force(parent)?;
                let child = self.inner()?.child(&parent, &at.name)?;
                child.ok_or_else(|| TreeError::passing("the attribute is there no longer"))?
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

impl<T: AttrTree> AttrTree for CachedTree<T>
where
    T::Node: Clone,
{
    type Node = Rc<Cursor<T::Node>>;

    fn root(&mut self) -> Result<Self::Node, TreeError> {
        let row = self.row(Some(ABOVE_ROOT), "");
        let root = Cursor { parent: None, name: String::new(), row, value: RefCell::new(None) };
        if root.row.is_none() {
            self.force(&root)?;
            self.learn(Vec::new(), Fact::Forced);
        }
        Ok(Rc::new(root))
    }

    fn begin(&mut self, path: &AttrPath) {
        match &mut self.inner {
            Some(inner) => inner.begin(path),
            None => self.begun = Some(path.clone()),
        }
    }

    fn kind(&mut self, at: &Self::Node) -> Result<NodeKind, TreeError> {
        if let Some(node) = at.node() {
            match (node.kind, &node.unkind) {
                (Some(kind), _) => return Ok(kind),
                (None, Some(why)) => return Err(TreeError::repeatable(why.clone())),
                (None, None) => {}
            }
        }
        if at.row.as_ref().is_some_and(|row| row.code == code::STRING) {
            return Ok(NodeKind::Value(ValueKind::String));
        }
        let value = self.force(at)?;
        match self.inner()?.kind(&value) {
            Ok(kind) => {
                self.learn(at.path(), Fact::Kind(kind));
                Ok(kind)
            }
            Err(error) => {
                // Whoever does not ask what it is goes through it.
                if error.is_repeatable {
                    self.learn(at.path(), Fact::Unkind(error.message.clone()));
                }
                Err(error)
            }
        }
    }

    fn names(&mut self, at: &Self::Node) -> Result<Vec<String>, TreeError> {
        if let Some(row) = at.row.as_ref().filter(|row| row.code == code::ATTRS)
            && let Some(rows) = &self.rows
        {
            match rows.names(row.id) {
                Ok(names) => return Ok(names),
                Err(error) => self.give_up(&error),
            }
        }
        if matches!(self.kind(at)?, NodeKind::Value(_)) {
            return Ok(Vec::new());
        }
        let value = self.force(at)?;
        let names = self.inner()?.names(&value)?;
        self.learn(at.path(), Fact::Names(names.clone()));
        Ok(names)
    }

    fn size(&mut self, at: &Self::Node) -> usize {
        let value = self.force(at);
        value.and_then(|value| Ok(self.inner()?.size(&value))).unwrap_or(0)
    }

    fn has(&mut self, at: &Self::Node, name: &str) -> bool {
        let value = self.force(at);
        value.and_then(|value| Ok(self.inner()?.has(&value, name))).unwrap_or(false)
    }

    fn child(&mut self, at: &Self::Node, name: &str) -> Result<Option<Self::Node>, TreeError> {
        let row = self.row(at.row.as_ref().map(|row| row.id), name);
        let cursor = |row: Option<Row>, value| {
            let (parent, name) = (Some(at.clone()), name.to_owned());
            Some(Rc::new(Cursor { parent, name, row, value: RefCell::new(value) }))
        };
        match (&row, at.row.as_ref().map(|row| row.code)) {
            // All names of the set are known, and this is none of them; or it is no set.
            (None, Some(code::ATTRS | code::STRING)) => return Ok(None),
            (Some(Row { code: code::MISSING, .. }), _) => return Ok(None),
            // Written beside the path of a derivation.
            (Some(Row { code: code::STRING, .. }), _) => return Ok(cursor(row, None)),
            (Some(Row { node: Some(node), .. }), _) => match &node.error {
                Some(error) => return Err(TreeError::repeatable(error.clone())),
                None => return Ok(cursor(row, None)),
            },
            (Some(_) | None, _) => {}
        }
        let parent = self.force(at)?;
        self.learn_names(at, &parent);
        let mut path = at.path();
        path.push(name.to_owned());
        match self.inner()?.child(&parent, name) {
            Ok(None) => {
                self.learn(path, Fact::Missing);
                Ok(None)
            }
            Ok(Some(value)) => {
                self.learn(path, Fact::Forced);
                Ok(cursor(row, Some(value)))
            }
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// Nothing of a called function is kept: a cache is only used where none is called.
    fn called(&mut self, at: Self::Node) -> Result<Self::Node, TreeError> {
        let value = self.force(&at)?;
        let value = RefCell::new(Some(self.inner()?.called(value)?));
        let (parent, name) = (at.parent.clone(), at.name.clone());
        Ok(Rc::new(Cursor { parent, name, row: at.row.clone(), value }))
    }

    fn recurses(&mut self, at: &Self::Node) -> Result<bool, TreeError> {
        if let Some(node) = at.node() {
            match (node.recurses, &node.unsure) {
                (Some(recurses), _) => return Ok(recurses),
                (None, Some(why)) => return Err(TreeError::repeatable(why.clone())),
                (None, None) => {}
            }
        }
        let value = self.force(at)?;
        let recurses = self.inner()?.recurses(&value);
        match &recurses {
            Ok(recurses) => self.learn(at.path(), Fact::Recurses(*recurses)),
            // The set itself is fine.
            Err(error) if error.is_repeatable => {
                self.learn(at.path(), Fact::Unsure(error.message.clone()));
            }
            Err(_) => {}
        }
        recurses
    }

    fn job(&mut self, at: &Self::Node) -> Result<Job, TreeError> {
        let id = at.row.as_ref().map(|row| row.id);
        if let Some(row) = self.row(id, "drvPath") {
            let known = row.value.as_deref().and_then(|text| text.parse::<StorePath>().ok());
            if let Some(known) = known.filter(|path| path.is_derivation() && (self.exists)(path)) {
                return Ok(Job { drv_path: known, extra: self.extra(id) });
            }
            if let Some(error) = row.node.and_then(|node| node.error) {
                return Err(TreeError::repeatable(error));
            }
        }
        let value = self.force(at)?;
        let path = at.path();
        let job = match self.inner()?.job(&value) {
            Ok(job) => job,
            Err(error) => {
                let drv_path = [path.as_slice(), &["drvPath".to_owned()]].concat();
                return Err(self.failed(drv_path, error));
            }
        };
        let inner = self.inner()?;
        let lacks = LOOKED_AT_BY_NIX.into_iter().filter(|name| !inner.has(&value, name)).collect();
        let fact = Fact::Job {
            drv_path: job.drv_path.to_string(),
            context: format!("={}", job.drv_path.base_name()),
            name: job.extra.as_ref().and_then(|extra| extra.name.clone()),
            outline: job.extra.as_ref().and_then(|extra| extra.outline.clone()),
            lacks,
        };
        self.learn(path, fact);
        Ok(job)
    }
}
