//! What an evaluation comes to, attribute by attribute, and what the examples have to come to.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Cluster;

/// What became of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Its outputs are in the cache.
    Completed,
    /// Its outputs were there already: an interrupted hand-out had come that far.
    Substituted,
    /// Its builder failed.
    FailedPermanent,
    /// It was not built, because the derivation with this name failed.
    DependencyFailed(String),
    /// It could not be evaluated.
    EvaluationError,
    /// It was stopped.
    Aborted,
    /// Nobody wanted it any more.
    Skipped,
    /// Something else, by the product's name.
    Other(String),
}

/// Attribute path and outcome of everything that was found.
pub type Model = BTreeMap<Vec<String>, Outcome>;

/// An evaluation as the api shows it.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The evaluation itself.
    pub summary: Value,
    /// Its attributes.
    pub entry_points: Vec<Value>,
    /// Its texts.
    pub messages: Vec<Value>,
}

/// The attributes below `packages.x86_64-linux`.
#[must_use]
pub fn packages(outcomes: &[(&str, Outcome)]) -> Model {
    let path = |name: &str| ["packages", "x86_64-linux", name].map(str::to_owned).to_vec();
    outcomes.iter().map(|(name, outcome)| (path(name), outcome.clone())).collect()
}

/// What `examples/first-light` comes to: everything builds.
#[must_use]
pub fn first_light() -> Model {
    let names = [
        "base",
        "default",
        "heavy",
        "left",
        "right",
        "slow-lines",
        "step-1",
        "step-2",
        "step-3",
        "step-4",
        "toolkit",
        "top",
        "uses-dev",
    ];
    packages(&names.map(|name| (name, Outcome::Completed)))
}

/// Names of the derivations of `examples/first-light`.
#[must_use]
pub fn first_light_derivations() -> Vec<String> {
    let names = first_light().into_keys().map(|path| match path[2].as_str() {
        "default" => "first-light".to_owned(),
        name => name.to_owned(),
    });
    names.collect()
}

/// What `examples/broken` comes to.
#[must_use]
pub fn broken() -> Model {
    packages(&[
        ("fails", Outcome::FailedPermanent),
        ("good", Outcome::Completed),
        ("needs-fails", Outcome::DependencyFailed("fails".into())),
        ("needs-good", Outcome::Completed),
        ("throws", Outcome::EvaluationError),
    ])
}

impl Evaluation {
    /// Asks the cluster.
    ///
    /// # Panics
    /// If it does not answer.
    #[track_caller]
    #[must_use]
    pub fn read(cluster: &Cluster, id: &str) -> Self {
        let items = |path: &str| {
            let page = cluster.api(&format!("evaluations/{id}/{path}?limit=500"));
            assert_eq!(page["next"], Value::Null, "all on one page");
            page["items"].as_array().expect("a list").clone()
        };
        Self {
            summary: cluster.api(&format!("evaluations/{id}")),
            entry_points: items("entry-points"),
            messages: items("messages"),
        }
    }

    /// The newest one of the cluster.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    #[must_use]
    pub fn newest(cluster: &Cluster) -> Self {
        let page = cluster.api("evaluations?limit=1");
        let id = page["items"][0]["id"].as_str().expect("an evaluation");
        Self::read(cluster, id)
    }

    /// Its state.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn state(&self) -> &str {
        self.summary["state"].as_str().expect("a state")
    }

    /// The attribute with this name at its end.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    #[must_use]
    pub fn entry_point(&self, name: &str) -> &Value {
        let is_it = |point: &&Value| path_of(point).last().is_some_and(|last| last == name);
        self.entry_points.iter().find(is_it).unwrap_or_else(|| panic!("no attribute {name}"))
    }

    /// Path of an output of an attribute.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    #[must_use]
    pub fn output(&self, name: &str, output: &str) -> String {
        let outputs = self.entry_point(name)["outputs"].as_array().expect("a list");
        let found = outputs.iter().find(|made| made["name"] == output);
        let path = found.and_then(|made| made["path"].as_str());
        path.unwrap_or_else(|| panic!("{name} has no output {output}")).to_owned()
    }

    /// What became of each attribute.
    ///
    /// # Panics
    /// If a cause is no build of this evaluation.
    #[must_use]
    pub fn outcomes(&self) -> Model {
        let points = self.entry_points.iter().map(|point| (path_of(point), self.outcome(point)));
        let errors = self.messages.iter().filter(|message| message["level"] == "error");
        let errors = errors.filter_map(|message| {
            // Good enough for the attributes of the tests: none that fails needs quotes.
            let path = message["attr"].as_str()?.split('.').map(str::to_owned).collect();
            Some((path, Outcome::EvaluationError))
        });
        points.chain(errors).collect()
    }

    /// The same after a crash, where a hand-out may find what the interrupted one before it made.
    #[must_use]
    pub fn outcomes_whoever_built(&self) -> Model {
        let mut outcomes = self.outcomes();
        for outcome in outcomes.values_mut().filter(|one| **one == Outcome::Substituted) {
            *outcome = Outcome::Completed;
        }
        outcomes
    }

    fn outcome(&self, point: &Value) -> Outcome {
        match point["state"].as_str().expect("a state") {
            "completed" => Outcome::Completed,
            "substituted" => Outcome::Substituted,
            "failed_permanent" => Outcome::FailedPermanent,
            "aborted" => Outcome::Aborted,
            "skipped" => Outcome::Skipped,
            "dependency_failed" => {
                let mut points = self.entry_points.iter();
                let cause = points.find(|other| other["build"] == point["cause"]);
                let path = cause.and_then(|cause| cause["drv_path"].as_str());
                let path = path.unwrap_or_else(|| panic!("{point} names no cause"));
                Outcome::DependencyFailed(crate::log::name_of(path).to_owned())
            }
            other => Outcome::Other(other.to_owned()),
        }
    }
}

fn path_of(point: &Value) -> Vec<String> {
    let names = point["attr_path"].as_array().expect("attribute paths are lists");
    names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}
