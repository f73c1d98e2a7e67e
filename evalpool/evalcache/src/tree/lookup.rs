//! What a walk asks, answered from the file or else from the tree behind it.

use std::cell::RefCell;
use std::rc::Rc;

use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::tree::{AttrTree, Called, Job, NodeKind, TreeError, ValueKind};

use super::CachedTree;
use crate::cursor::Cursor;
use crate::rows::{ABOVE_ROOT, Fact, Row, Step, code, result_of};

/// Attributes of a derivation that `nix` looks at before it builds it.
const LOOKED_AT_BY_NIX: [&str; 2] = ["meta", "outputSpecified"];

impl<T: AttrTree> AttrTree for CachedTree<T>
where
    T::Node: Clone,
{
    type Node = Rc<Cursor<T::Node>>;

    fn root(&mut self) -> Result<Self::Node, TreeError> {
        let row = self.row(Some(ABOVE_ROOT), "");
        let mut root = Rc::new(Cursor { parent: None, row, value: RefCell::new(None) });
        if root.row.is_none() {
            self.force(&root)?;
            self.learn(Vec::new(), Fact::Forced);
        }
        let mut path = AttrPath::default();
        if !self.below.is_empty() {
            // What the way there prints is of the root that it leads to.
            self.begin(&path);
        }
        for name in self.below.clone() {
            path = path.child(&name);
            root = self.child(&root, &name)?.ok_or_else(|| TreeError::not_there(&path))?;
        }
        Ok(root)
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
        let step = || Step::Name(name.to_owned());
        let cursor = |row: Option<Row>, value| Some(at.below(step(), row, value));
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
        path.push(step());
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

    fn called(&mut self, at: Self::Node) -> Result<Called<Self::Node>, TreeError> {
        if let Some(node) = at.node() {
            if node.is_plain == Some(true) {
                return Ok(Called::Same(at));
            }
            if let Some(why) = &node.uncallable {
                return Err(TreeError::repeatable(why.clone()));
            }
        }
        if let Some((parent, name)) = at.row.as_ref().map(|row| result_of(row.id))
            && let Some(row) = self.row(Some(parent), name).filter(|row| row.node.is_some())
        {
            return Ok(Called::Result(at.below(Step::Called, Some(row), None)));
        }
        let value = self.force(&at)?;
        let mut path = at.path();
        match self.inner()?.called(value) {
            Ok(Called::Same(_)) => {
                self.learn(path, Fact::Plain);
                Ok(Called::Same(at))
            }
            Ok(Called::Result(result)) => {
                path.push(Step::Called);
                self.learn(path, Fact::Forced);
                Ok(Called::Result(at.below(Step::Called, None, Some(result))))
            }
            Err(error) => {
                if error.is_repeatable {
                    self.learn(path, Fact::Uncallable(error.message.clone()));
                }
                Err(error)
            }
        }
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
                let drv_path = [path.as_slice(), &[Step::Name("drvPath".to_owned())]].concat();
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
