//! The wrapper flake: a project whose lock is incomplete or overridden, behind a complete lock.
//!
//! Its only input is the project, and its lock file is the completed lock of the project with one more
//! root on top. The project's tree stays as it is, so its derivations are those of
//! `nix eval --override-input`.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::lock::Lock;
use crate::reference::{tree_attributes, tree_url};
use crate::request::Tree;

/// The name of the project as an input.
const PROJECT: &str = "project";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrapper {
    flake_nix: String,
    flake_lock: String,
}

impl Wrapper {
    pub(crate) fn new(project: &Tree, lock: &Lock) -> Self {
        let flake_nix = format!(
            "{{\n  inputs.{PROJECT}.url = \"{}\";\n  outputs = inputs: inputs.{PROJECT}.outputs;\n}}\n",
            tree_url(project)
        );
        let mut nodes: Map<String, Value> = lock.nodes.clone();
        for node in nodes.values_mut().filter_map(Value::as_object_mut) {
            move_down(node);
        }
        if let Some(root) = nodes.get_mut(&lock.root).and_then(Value::as_object_mut) {
            let attributes = Value::from(tree_attributes(project));
            root.insert("locked".into(), attributes.clone());
            root.insert("original".into(), attributes);
        }
        let mut top = "wrapper".to_owned();
        while nodes.contains_key(&top) {
            top.push('_');
        }
        nodes.insert(top.clone(), json!({ "inputs": { PROJECT: lock.root } }));
        let lock = json!({ "nodes": nodes, "root": top, "version": 7 });
        Self { flake_nix, flake_lock: format!("{lock:#}\n") }
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join("flake.nix"), &self.flake_nix)?;
        std::fs::write(folder.join("flake.lock"), &self.flake_lock)
    }
}

/// Paths from the root now lead through the project.
fn move_down(node: &mut Map<String, Value>) {
    // Nix keeps what the flake asked for beside what an override put in its place, and locks a folder
    // of the flake anew when it finds it without its parent.
    let is_below = |attributes: &Value| {
        let path = attributes["path"].as_str().unwrap_or("/");
        attributes["type"] == "path" && !path.starts_with('/')
    };
    if node.get("parent").is_none_or(Value::is_null)
        && node.get("original").is_some_and(is_below)
        && let Some(locked) = node.get("locked").cloned()
    {
        node.insert("original".into(), locked);
    }
    if let Some(parent) = node.get_mut("parent") {
        prefix(parent);
    }
    if let Some(inputs) = node.get_mut("inputs").and_then(Value::as_object_mut) {
        inputs.values_mut().for_each(prefix);
    }
}

/// A list of names is a path; a text is the key of a node and stays.
fn prefix(path: &mut Value) {
    if let Value::Array(names) = path {
        names.insert(0, PROJECT.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_through_the_project() {
        let nodes = json!({
            "root": {"inputs": {"base": "base", "mid": "mid"}},
            "base": {"locked": {"path": "./base", "type": "path"}, "parent": []},
            "mid": {"inputs": {"base": ["base"]}, "locked": {"type": "git"}, "original": {"type": "path", "path": "./mid"}},
            "wrapper": {},
        });
        let lock = Lock::new(json!({"nodes": nodes, "root": "root"})).expect("a lock");
        let path = "/nix/store/b9d5lnjsb9d5lnjsb9d5lnjsb9d5lnjs-source".parse().expect("a path");
        let nar_hash = "sha256-a+b=".to_owned();
        let tree =
            Tree { path, nar_hash, subdir: "x y".into(), commit: None, last_modified: Some(7) };
        let wrapper = Wrapper::new(&tree, &lock);
        assert!(wrapper.flake_nix.contains("?dir=x%20y&lastModified=7&narHash=sha256-a%2Bb%3D\""));
        let lock: Value = serde_json::from_str(&wrapper.flake_lock).expect("JSON");
        assert_eq!(lock["root"], "wrapper_");
        assert_eq!(lock["nodes"]["wrapper_"]["inputs"]["project"], "root");
        assert_eq!(lock["nodes"]["base"]["parent"], json!(["project"]));
        assert_eq!(lock["nodes"]["mid"]["inputs"]["base"], json!(["project", "base"]));
        assert_eq!(lock["nodes"]["root"]["inputs"]["mid"], "mid");
        assert_eq!(lock["nodes"]["mid"]["original"]["type"], "git", "it was overridden");
        assert_eq!(lock["nodes"]["root"]["locked"], lock["nodes"]["root"]["original"]);
    }
}
