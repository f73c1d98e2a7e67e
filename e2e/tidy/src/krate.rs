//! Our crates as cargo sees them.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::tree;

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Such as `gradient-log`.
    pub name: String,
    /// Its folder below the root, such as `events/log`.
    pub folder: String,
    /// Its dependencies, each with its kind.
    pub dependencies: Vec<Dependency>,
}

/// A dependency as its crate declares it.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The package.
    pub name: String,
    /// Tests only.
    pub is_dev: bool,
    /// Whether the default features are asked for.
    pub has_default_features: bool,
    /// Features asked for by name.
    pub features: Vec<String>,
}

impl Crate {
    /// Whether its name is one of ours.
    #[must_use]
    pub fn is_ours(name: &str) -> bool {
        name.starts_with("gradient-")
    }
}

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .arg("--offline")
        .current_dir(tree::root())
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?} failed: {said}");
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// All crates of the workspace, sorted by name.
///
/// # Panics
/// If cargo does not answer.
#[must_use]
pub fn all() -> Vec<Crate> {
    let answer = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let answer: Value = serde_json::from_str(&answer).expect("cargo writes JSON");
    let root = format!("{}/", tree::root().display());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = answer["packages"].as_array().expect("a list of packages");
    let mut crates: Vec<Crate> = packages
        .iter()
        .map(|package| {
            let manifest = text(&package["manifest_path"]);
            let folder = manifest.trim_start_matches(&root).trim_end_matches("/Cargo.toml");
            let declared = package["dependencies"].as_array().into_iter().flatten();
            Crate {
                name: text(&package["name"]),
                folder: folder.to_owned(),
                dependencies: declared.map(dependency).collect(),
            }
        })
        .collect();
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    crates
}

fn dependency(value: &Value) -> Dependency {
    let features = value["features"].as_array().into_iter().flatten();
    Dependency {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        is_dev: value["kind"].as_str() == Some("dev"),
        has_default_features: value["uses_default_features"].as_bool().unwrap_or(true),
        features: features.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

/// Everything that a crate sees when it is built alone with its default features: the names of the
/// resolved graph, itself included, without what only its tests use.
#[must_use]
pub fn seen_by(name: &str) -> BTreeSet<String> {
    let tree = ["tree", "--package", name, "--edges", "normal", "--prefix", "none"];
    cargo(&tree).lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
