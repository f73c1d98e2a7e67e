//! The tree of a walk over a cache alone.

use gradient_ipc::tree::{AttrTree, Job, NodeKind, TreeError};

/// Nothing is behind this: whatever a cache does not know cannot be had.
pub struct NoTree;

impl AttrTree for NoTree {
    type Node = ();

    fn root(&mut self) -> Result<(), TreeError> {
        Err(unknown())
    }

    fn kind(&mut self, _node: &()) -> Result<NodeKind, TreeError> {
        Err(unknown())
    }

    fn names(&mut self, _node: &()) -> Result<Vec<String>, TreeError> {
        Err(unknown())
    }

    fn size(&mut self, _node: &()) -> usize {
        0
    }

    fn has(&mut self, _node: &(), _name: &str) -> bool {
        false
    }

    fn child(&mut self, _node: &(), _name: &str) -> Result<Option<()>, TreeError> {
        Err(unknown())
    }

    fn recurses(&mut self, _node: &()) -> Result<bool, TreeError> {
        Err(unknown())
    }

    fn job(&mut self, _node: &()) -> Result<Job, TreeError> {
        Err(unknown())
    }
}

fn unknown() -> TreeError {
    TreeError::passing("the evaluation cache does not know this")
}
