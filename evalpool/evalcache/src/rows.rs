//! Rows of a cache file, read and written.

use std::collections::{BTreeMap, HashMap};

use gradient_domain::derivation::Outline;
use gradient_ipc::tree::{NodeKind, ValueKind};
use rusqlite::OptionalExtension;

use crate::file::{CacheError, EvalCache};

/// Most rows that are held in memory, long texts counted as several: some hundred bytes each.
const ROWS_MAX: i64 = 1_000_000;

/// Parent of the root's row.
pub(crate) const ABOVE_ROOT: i64 = 0;

/// One step on the way from the root to a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// To an attribute of a set.
    Name(String),
    /// From a function to what it gives when it is called.
    Called,
}

/// Parent and name of the row of what the function of a row gives. No reader of Nix's table looks below
/// a negative row, and no name can be in its way.
pub(crate) fn result_of(function: i64) -> (i64, &'static str) {
    (-function, "")
}

/// Type codes of Nix's table.
pub(crate) mod code {
    pub(crate) const ATTRS: i64 = 1;
    pub(crate) const STRING: i64 = 2;
    pub(crate) const MISSING: i64 = 3;
}

/// Numbers of the kinds of sets in `GradientNode`; those of other values are [`ValueKind`]'s.
const KIND_SET: u8 = 20;
const KIND_OPAQUE: u8 = 21;
const KIND_DERIVATION: u8 = 22;

/// One attribute, as the file knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) code: i64,
    /// The text of a string.
    pub(crate) value: Option<String>,
    /// What was learned when it was forced; absent if it never was.
    pub(crate) node: Option<Node>,
}

/// What is known of a value that was forced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Option<NodeKind>,
    /// Why it does not say what it is.
    pub(crate) unkind: Option<String>,
    pub(crate) recurses: Option<bool>,
    /// Why it does not say whether it holds jobs.
    pub(crate) unsure: Option<String>,
    /// Why it cannot be forced.
    pub(crate) error: Option<String>,
    /// Set if it cannot be called and so is itself where functions are called.
    pub(crate) is_plain: Option<bool>,
    /// Why it cannot be called.
    pub(crate) uncallable: Option<String>,
}

/// Something that an evaluation learned of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// Its parent has no such attribute.
    Missing,
    /// It can be forced.
    Forced,
    /// It can be forced and is this.
    Kind(NodeKind),
    /// It can be forced and does not say what it is, for this reason.
    Unkind(String),
    /// It is a set of these attributes.
    Names(Vec<String>),
    /// Whether it says that it holds jobs.
    Recurses(bool),
    /// It does not say whether it holds jobs, for this reason.
    Unsure(String),
    /// It is a derivation that was instantiated.
    Job {
        /// The path of its `.drv` file.
        drv_path: String,
        /// The context of that path in Nix's form.
        context: String,
        /// Its name, if that is known.
        name: Option<String>,
        /// What it is in short, if that is known.
        outline: Option<Outline>,
        /// Which of the attributes that `nix` looks at it does not have.
        lacks: Vec<&'static str>,
    },
    /// It cannot be forced.
    Failed(String),
    /// It is no function.
    Plain,
    /// It is a function that cannot be called, for this reason.
    Uncallable(String),
}

/// Where something was learned, and what.
pub(crate) type Learned = (Vec<Step>, Fact);

/// Where rows are read from: the file as it is now, or a copy of it in memory.
pub(crate) enum Rows {
    File(EvalCache),
    Memory { file: EvalCache, rows: HashMap<i64, BTreeMap<String, Row>>, outlines: Outlines },
}

/// Outlines as the file has them, by the row of their derivation.
type Outlines = HashMap<i64, String>;

impl Rows {
    /// A copy of all rows, for a walk over all of them; the file itself if they are too many.
    pub(crate) fn in_memory(file: EvalCache) -> Result<Rows, CacheError> {
        let size: i64 = file.connection.query_row(
            "select (select count(*) from Attributes)
                  + (select coalesce(sum(length(error)), 0) / 256 from GradientNode)",
            [],
            |row| row.get(0),
        )?;
        if size > ROWS_MAX {
            return Ok(Rows::File(file));
        }
        let mut rows: HashMap<i64, BTreeMap<String, Row>> = HashMap::new();
        {
            let mut all = file.connection.prepare(&select("1"))?;
            let mut found = all.query([])?;
            while let Some(row) = found.next()? {
                rows.entry(row.get(0)?).or_default().insert(row.get(1)?, read(row)?);
            }
        }
        let outlines = {
            let mut all =
                file.connection.prepare("select attribute, outline from GradientOutline")?;
            let found = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            found.collect::<Result<_, _>>()?
        };
        Ok(Rows::Memory { file, rows, outlines })
    }

    pub(crate) fn file(&mut self) -> &mut EvalCache {
        match self {
            Rows::File(file) | Rows::Memory { file, .. } => file,
        }
    }

    pub(crate) fn into_file(self) -> EvalCache {
        match self {
            Rows::File(file) | Rows::Memory { file, .. } => file,
        }
    }

    pub(crate) fn get(&self, parent: i64, name: &str) -> Result<Option<Row>, CacheError> {
        match self {
            Rows::File(file) => {
                let one = select("a.parent = ? and a.name = ?");
                let mut one = file.connection.prepare_cached(&one)?;
                Ok(one.query_row((parent, name), read).optional()?)
            }
            Rows::Memory { rows, .. } => {
                Ok(rows.get(&parent).and_then(|children| children.get(name)).cloned())
            }
        }
    }

    /// What a derivation is in short, if that is known.
    pub(crate) fn outline(&self, derivation: i64) -> Result<Option<Outline>, CacheError> {
        let text = match self {
            Rows::File(file) => {
                let one = "select outline from GradientOutline where attribute = ?";
                let mut one = file.connection.prepare_cached(one)?;
                one.query_row([derivation], |row| row.get(0)).optional()?
            }
            Rows::Memory { outlines, .. } => outlines.get(&derivation).cloned(),
        };
        let damaged = |error: serde_json::Error| CacheError::Damaged(error.to_string());
        text.map(|text: String| serde_json::from_str(&text).map_err(damaged)).transpose()
    }

    /// The sorted names of a set whose names are known.
    pub(crate) fn names(&self, parent: i64) -> Result<Vec<String>, CacheError> {
        match self {
            Rows::File(file) => {
                let all =
                    "select name from Attributes where parent = ? and type != 3 order by name";
                let mut all = file.connection.prepare_cached(all)?;
                let names = all.query_map([parent], |row| row.get(0))?;
                Ok(names.collect::<Result<_, _>>()?)
            }
            Rows::Memory { rows, .. } => {
                let children = rows.get(&parent).into_iter().flatten();
                let there = children.filter(|(_, row)| row.code != code::MISSING);
                Ok(there.map(|(name, _)| name.clone()).collect())
            }
        }
    }
}

fn select(condition: &str) -> String {
    format!(
        "select a.parent, a.name, a.rowid, a.type, a.value, n.attribute, n.kind, n.recurses, n.error,
                n.unsure, n.unkind, n.plain, n.uncallable
         from Attributes a left join GradientNode n on n.attribute = a.rowid where {condition}"
    )
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let is_node: Option<i64> = row.get(5)?;
    let kind: Option<u8> = row.get(6)?;
    let (recurses, error) = (row.get(7)?, row.get(8)?);
    let unsure = row.get(9)?;
    let unkind = row.get(10)?;
    let kind = kind.and_then(kind_of);
    let (is_plain, uncallable) = (row.get(11)?, row.get(12)?);
    let node =
        is_node.map(|_| Node { kind, unkind, recurses, unsure, error, is_plain, uncallable });
    Ok(Row { id: row.get(2)?, code: row.get(3)?, value: row.get(4)?, node })
}

pub(crate) fn number(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::Set => KIND_SET,
        NodeKind::Opaque => KIND_OPAQUE,
        NodeKind::Derivation => KIND_DERIVATION,
        NodeKind::Value(value) => value as u8,
    }
}

fn kind_of(number: u8) -> Option<NodeKind> {
    match number {
        KIND_SET => Some(NodeKind::Set),
        KIND_OPAQUE => Some(NodeKind::Opaque),
        KIND_DERIVATION => Some(NodeKind::Derivation),
        _ => ValueKind::ALL.into_iter().find(|value| *value as u8 == number).map(NodeKind::Value),
    }
}
