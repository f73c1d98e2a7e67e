//! The log as `gradient events tail --json` prints it: typed as far as the tests look at it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// An entry with its position.
#[derive(Clone, Debug, Deserialize)]
pub struct Logged {
    /// Of the message.
    pub sequence: u64,
    /// In the message.
    pub index: usize,
    /// What came in.
    pub input: Input,
    /// What was decided.
    pub events: Vec<Event>,
}

/// A fact that came in.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "input")]
pub enum Input {
    /// A scheduler took over.
    Started {},
    /// A worker spoke.
    Worker {
        /// Who.
        worker: String,
        /// What it said.
        message: Message,
    },
    /// Any other.
    #[serde(other)]
    Other,
}

/// What a worker says.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
pub enum Message {
    /// A session begins.
    Hello {
        /// Name for people.
        name: String,
    },
    /// It takes a job or not.
    AssignJobResponse {
        /// Which hand-out.
        assignment: String,
    },
    /// A step of a job.
    JobUpdate {
        /// Which hand-out.
        assignment: String,
        /// The step.
        update: Step,
    },
    /// A job is done.
    JobCompleted {
        /// Which hand-out.
        assignment: String,
    },
    /// A job failed.
    JobFailed {
        /// Which hand-out.
        assignment: String,
    },
    /// Any other.
    #[serde(other)]
    Other,
}

/// A step of a job.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "step")]
pub enum Step {
    /// Derivations were found.
    EvalResult {
        /// Which.
        derivations: Vec<Discovered>,
    },
    /// Outputs were made.
    BuildOutput {
        /// Which.
        outputs: Vec<Made>,
        /// Nothing was built.
        substituted: bool,
    },
    /// Any other.
    #[serde(other)]
    Other,
}

/// A derivation of an evaluation.
#[derive(Clone, Debug, Deserialize)]
pub struct Discovered {
    /// Its file.
    pub drv_path: String,
}

/// An output that was made.
#[derive(Clone, Debug, Deserialize)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
}

/// A decision.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event")]
#[expect(missing_docs, reason = "the words of the product, explained on its protocol page")]
pub enum Event {
    DerivationsRecorded {
        builds: Vec<String>,
    },
    EvaluationRequested {
        evaluation: String,
    },
    EvaluationAdvanced {
        evaluation: String,
        state: String,
    },
    EvaluationFinished {
        evaluation: String,
        verdict: String,
    },
    EvaluationAborted {
        evaluation: String,
    },
    JobAssigned {
        job: String,
        assignment: String,
        worker: String,
    },
    AssignmentDeclined {
        assignment: String,
    },
    AssignmentAbandoned {
        assignment: String,
        reason: String,
    },
    JobFinished {
        assignment: String,
    },
    JobRequeued {
        job: String,
        reason: String,
    },
    BuildSucceeded {
        build: String,
        substituted: bool,
    },
    BuildFailed {
        build: String,
        kind: String,
        retry_at_ms: Option<u64>,
        message: String,
    },
    DependencyFailed {
        builds: Vec<String>,
        cause: String,
    },
    BuildAborted {
        build: String,
    },
    SweepFound {
        what: String,
    },
    #[serde(other)]
    Other,
}

/// A hand-out and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOut {
    /// Its id.
    pub assignment: String,
    /// Of what.
    pub job: String,
    /// To whom, by name.
    pub worker: String,
    /// How it ended: `finished`, `declined`, `abandoned`; `None` while it is open.
    pub end: Option<&'static str>,
}

/// The whole log.
#[derive(Clone, Debug)]
pub struct Log(pub Vec<Logged>);

impl Log {
    /// Reads the output of `gradient events tail --json`.
    ///
    /// # Panics
    /// If a line is not understood.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let entry = |line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in entry {line}"))
        };
        Self(text.lines().map(entry).collect())
    }

    /// Every decision, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter().flat_map(|entry| &entry.events)
    }

    /// Every message of a worker, in order.
    pub fn messages(&self) -> impl Iterator<Item = (&str, &Message)> {
        self.0.iter().filter_map(|entry| match &entry.input {
            Input::Worker { worker, message } => Some((worker.as_str(), message)),
            Input::Started {} | Input::Other => None,
        })
    }

    /// The name of each worker.
    #[must_use]
    pub fn worker_names(&self) -> BTreeMap<&str, &str> {
        let mut names = BTreeMap::new();
        for (worker, message) in self.messages() {
            if let Message::Hello { name } = message {
                names.insert(worker, name.as_str());
            }
        }
        names
    }

    /// Each build with the name of its derivation, without `.drv`.
    #[must_use]
    pub fn builds(&self) -> BTreeMap<String, String> {
        let mut named = BTreeMap::new();
        for entry in &self.0 {
            let Input::Worker { message: Message::JobUpdate { update, .. }, .. } = &entry.input
            else {
                continue;
            };
            let Step::EvalResult { derivations } = update else { continue };
            let recorded = entry.events.iter().find_map(|event| match event {
                Event::DerivationsRecorded { builds } => Some(builds),
                _ => None,
            });
            for (build, derivation) in recorded.into_iter().flatten().zip(derivations) {
                named.insert(build.clone(), name_of(&derivation.drv_path).to_owned());
            }
        }
        named
    }

    /// The build of a derivation with this name.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    #[must_use]
    pub fn build(&self, name: &str) -> String {
        let found = self.builds().into_iter().find(|(_, named)| named == name);
        found.unwrap_or_else(|| panic!("the log knows no derivation {name}")).0
    }

    /// Every hand-out, in order.
    #[must_use]
    pub fn hand_outs(&self) -> Vec<HandOut> {
        let names = self.worker_names();
        let mut found: Vec<HandOut> = Vec::new();
        for event in self.events() {
            let (ended, how) = match event {
                Event::JobAssigned { job, assignment, worker } => {
                    found.push(HandOut {
                        assignment: assignment.clone(),
                        job: job.clone(),
                        worker: names.get(worker.as_str()).unwrap_or(&"").to_string(),
                        end: None,
                    });
                    continue;
                }
                Event::JobFinished { assignment } => (assignment, "finished"),
                Event::AssignmentDeclined { assignment } => (assignment, "declined"),
                Event::AssignmentAbandoned { assignment, .. } => (assignment, "abandoned"),
                _ => continue,
            };
            let open = found.iter_mut().find(|one| one.assignment == *ended);
            let open = open.unwrap_or_else(|| panic!("{ended} ended and was never handed out"));
            assert_eq!(open.end, None, "{ended} ended twice, now {how}");
            open.end = Some(how);
        }
        found
    }

    /// The hand-outs of the derivation with this name.
    #[must_use]
    pub fn hand_outs_of(&self, name: &str) -> Vec<HandOut> {
        let job = format!("build:{}", self.build(name));
        self.hand_outs().into_iter().filter(|one| one.job == job).collect()
    }

    /// Names of the derivations that were built.
    #[must_use]
    pub fn succeeded(&self) -> BTreeSet<String> {
        let names = self.builds();
        let built = self.events().filter_map(|event| match event {
            Event::BuildSucceeded { build, .. } => Some(names[build].clone()),
            _ => None,
        });
        built.collect()
    }

    /// How often a scheduler took over.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.0.iter().filter(|entry| matches!(entry.input, Input::Started {})).count()
    }
}

/// The name of a store path, without `.drv`.
#[must_use]
pub fn name_of(path: &str) -> &str {
    let base = path.rsplit('/').next().unwrap_or(path);
    let name = base.split_once('-').map_or(base, |(_, name)| name);
    name.trim_end_matches(".drv")
}
