//! What evaluations learned, written to a cache file.

use std::collections::HashMap;

use gradient_domain::derivation::Outline;
use rusqlite::{OptionalExtension, TransactionBehavior, params};

use crate::file::{CacheError, EvalCache};
use crate::rows::{ABOVE_ROOT, Fact, Learned, Node, Step, code, number, result_of};

impl EvalCache {
    /// Writes what one call learned, in one transaction of its own.
    pub(crate) fn write(&mut self, facts: &[Learned]) -> Result<(), CacheError> {
        if facts.is_empty() {
            return Ok(());
        }
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writer = Writer { connection: &begun, ids: HashMap::new() };
        for (path, fact) in facts {
            writer.fact(path, fact)?;
        }
        begun.commit()?;
        Ok(())
    }
}

struct Writer<'a> {
    connection: &'a rusqlite::Connection,
    ids: HashMap<&'a [Step], i64>,
}

impl<'a> Writer<'a> {
    fn fact(&mut self, path: &'a [Step], fact: &'a Fact) -> Result<(), CacheError> {
        if *fact == Fact::Missing {
            return self.missing(path);
        }
        let id = self.row(path)?;
        match fact {
            Fact::Missing => Ok(()),
            Fact::Job { drv_path, context, name, outline, lacks } => {
                self.text(id, "drvPath", drv_path, Some(context))?;
                self.text(id, "type", "derivation", None)?;
                if let Some(name) = name {
                    self.text(id, "name", name, None)?;
                }
                if let Some(outline) = outline {
                    self.outline(id, outline)?;
                }
                lacks.iter().try_for_each(|lacking| self.lacking(id, lacking))
            }
            Fact::Forced => self.node(id, &Node::default()),
            Fact::Kind(kind) => self.node(id, &Node { kind: Some(*kind), ..Node::default() }),
            Fact::Unkind(why) => {
                self.node(id, &Node { unkind: Some(why.clone()), ..Node::default() })
            }
            Fact::Recurses(recurses) => {
                self.node(id, &Node { recurses: Some(*recurses), ..Node::default() })
            }
            Fact::Unsure(why) => {
                self.node(id, &Node { unsure: Some(why.clone()), ..Node::default() })
            }
            Fact::Failed(error) => {
                self.node(id, &Node { error: Some(error.clone()), ..Node::default() })
            }
            Fact::Plain => self.node(id, &Node { is_plain: Some(true), ..Node::default() }),
            Fact::Uncallable(why) => {
                self.node(id, &Node { uncallable: Some(why.clone()), ..Node::default() })
            }
            Fact::Names(names) => {
                for name in names {
                    self.placeholder(id, name)?;
                }
                self.set(id, code::ATTRS)?;
                // To readers of Nix's table every row below a complete set is a name of it.
                let one = "delete from Attributes where parent = ? and type = 3";
                self.connection.prepare_cached(one)?.execute([id])?;
                Ok(())
            }
        }
    }

    /// An attribute that is not there, unless the names of its set are known and say so already.
    fn missing(&mut self, path: &'a [Step]) -> Result<(), CacheError> {
        if let Some((_, above)) = path.split_last() {
            let above = self.row(above)?;
            let one = "select type from Attributes where rowid = ?";
            let mut one = self.connection.prepare_cached(one)?;
            if one.query_row([above], |row| row.get::<_, i64>(0))? == code::ATTRS {
                return Ok(());
            }
        }
        let id = self.row(path)?;
        self.set(id, code::MISSING)
    }

    /// The row of a path; made with all rows above it if it is not there.
    fn row(&mut self, path: &'a [Step]) -> Result<i64, CacheError> {
        if let Some(id) = self.ids.get(path) {
            return Ok(*id);
        }
        let (parent, name) = match path.split_last() {
            None => (ABOVE_ROOT, ""),
            Some((Step::Name(name), above)) => (self.row(above)?, name.as_str()),
            Some((Step::Called, above)) => result_of(self.row(above)?),
        };
        let one = "select rowid from Attributes where parent = ? and name = ?";
        let mut one = self.connection.prepare_cached(one)?;
        let id = match one.query_row((parent, name), |row| row.get(0)).optional()? {
            Some(id) => id,
            None => {
                self.placeholder(parent, name)?;
                self.connection.last_insert_rowid()
            }
        };
        self.ids.insert(path, id);
        Ok(id)
    }

    fn placeholder(&self, parent: i64, name: &str) -> Result<(), CacheError> {
        // Never replaced: another row id would orphan what is below.
        let one = "insert into Attributes(parent, name, type) values (?, ?, 0)
                   on conflict(parent, name) do nothing";
        self.connection.prepare_cached(one)?.execute((parent, name))?;
        Ok(())
    }

    fn set(&self, id: i64, code: i64) -> Result<(), CacheError> {
        let one = "update Attributes set type = ?, value = null, context = null where rowid = ?";
        self.connection.prepare_cached(one)?.execute([code, id])?;
        Ok(())
    }

    /// A text below a derivation.
    fn text(
        &self,
        parent: i64,
        name: &str,
        value: &str,
        context: Option<&str>,
    ) -> Result<(), CacheError> {
        let one = "insert into Attributes(parent, name, type, value, context)
                   values (?, ?, 2, ?, ?)
                   on conflict(parent, name) do update set
                     type = 2, value = excluded.value, context = excluded.context";
        self.connection.prepare_cached(one)?.execute(params![parent, name, value, context])?;
        Ok(())
    }

    /// What a derivation is in short.
    fn outline(&self, derivation: i64, outline: &Outline) -> Result<(), CacheError> {
        let one = "insert into GradientOutline(attribute, outline) values (?, ?)
                   on conflict(attribute) do update set outline = excluded.outline";
        // Strings, lists and maps of strings: there is nothing in it that JSON cannot say.
        let text = serde_json::to_string(outline)
            .map_err(|error| CacheError::Damaged(error.to_string()))?;
        self.connection.prepare_cached(one)?.execute((derivation, text))?;
        Ok(())
    }

    /// An attribute that a derivation does not have.
    fn lacking(&self, parent: i64, name: &str) -> Result<(), CacheError> {
        let one = "insert into Attributes(parent, name, type) values (?, ?, 3)
                   on conflict(parent, name) do nothing";
        self.connection.prepare_cached(one)?.execute((parent, name))?;
        Ok(())
    }

    /// Adds to what is known of a forced value.
    fn node(&self, id: i64, node: &Node) -> Result<(), CacheError> {
        let one = "insert into GradientNode
                     (attribute, kind, unkind, recurses, unsure, error, plain, uncallable)
                   values (?, ?, ?, ?, ?, ?, ?, ?)
                   on conflict(attribute) do update set
                     kind = coalesce(excluded.kind, kind),
                     unkind = coalesce(excluded.unkind, unkind),
                     recurses = coalesce(excluded.recurses, recurses),
                     unsure = coalesce(excluded.unsure, unsure),
                     error = coalesce(excluded.error, error),
                     plain = coalesce(excluded.plain, plain),
                     uncallable = coalesce(excluded.uncallable, uncallable)";
        let Node { kind, unkind, recurses, unsure, error, is_plain, uncallable } = node;
        let values =
            params![id, kind.map(number), unkind, recurses, unsure, error, is_plain, uncallable];
        self.connection.prepare_cached(one)?.execute(values)?;
        Ok(())
    }
}
