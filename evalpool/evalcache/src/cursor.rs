//! A place in a cached tree.

use std::cell::RefCell;
use std::rc::Rc;

use crate::rows::{Node, Row, Step};

/// A value of a cached tree. Forced only when that is needed.
pub struct Cursor<N> {
    /// Absent at the root.
    pub(crate) parent: Option<(Rc<Cursor<N>>, Step)>,
    pub(crate) row: Option<Row>,
    pub(crate) value: RefCell<Option<N>>,
}

impl<N> Cursor<N> {
    pub(crate) fn path(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = self;
        while let Some((parent, step)) = &at.parent {
            steps.push(step.clone());
            at = parent;
        }
        steps.reverse();
        steps
    }

    pub(crate) fn below(
        self: &Rc<Self>,
        step: Step,
        row: Option<Row>,
        value: Option<N>,
    ) -> Rc<Self> {
        Rc::new(Cursor { parent: Some((self.clone(), step)), row, value: RefCell::new(value) })
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.row.as_ref()?.node.as_ref()
    }
}
