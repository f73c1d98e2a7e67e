//! What has to hold for the log of every test, whatever was killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Cluster;
use crate::log::{Event, Input, Log, Message, Step};
use crate::wait::{LIMIT, until, until_true};

/// `JobAssigned` stands before the first report of each assignment, and no assignment is made twice.
///
/// # Panics
/// With the first one that does not fit.
#[track_caller]
pub fn assigned_before_reported(log: &Log) {
    let mut assigned = BTreeSet::new();
    let mut reports = 0;
    for entry in &log.0 {
        if let Input::Worker { message, .. } = &entry.input
            && let Some(assignment) = reported(message)
        {
            reports += 1;
            let at = format!("{}.{}", entry.sequence, entry.index);
            assert!(assigned.contains(assignment), "{at} reports {assignment} before its claim");
        }
        for event in &entry.events {
            if let Event::JobAssigned { assignment, .. } = event {
                assert!(assigned.insert(assignment.as_str()), "{assignment} is claimed twice");
            }
        }
    }
    assert!(!assigned.is_empty() && reports >= assigned.len(), "the log shows too little");
}

fn reported(message: &Message) -> Option<&str> {
    match message {
        Message::AssignJobResponse { assignment }
        | Message::JobUpdate { assignment, .. }
        | Message::JobCompleted { assignment }
        | Message::JobFailed { assignment } => Some(assignment),
        Message::Hello { .. } | Message::Other => None,
    }
}

/// Each of these derivations succeeded once. Its last hand-out finished; each one before it was
/// visibly given up, or reported a failure that is to be tried again.
///
/// # Panics
/// With the first one that does not fit.
#[track_caller]
pub fn built_once_or_visibly_interrupted(log: &Log, names: &[String]) {
    let (mut succeeded, mut again) = (BTreeMap::new(), BTreeMap::new());
    for event in log.events() {
        match event {
            Event::BuildSucceeded { build, .. } => {
                *succeeded.entry(build.clone()).or_insert(0) += 1;
            }
            Event::JobRequeued { job, .. } => *again.entry(job.clone()).or_insert(0) += 1,
            Event::BuildFailed { build, retry_at_ms: Some(_), .. } => {
                *again.entry(format!("build:{build}")).or_insert(0) += 1;
            }
            Event::SweepFound { what } => panic!("the sweep found {what}"),
            _ => {}
        }
    }
    for name in names {
        let build = log.build(name);
        assert_eq!(succeeded.get(&build), Some(&1), "successes of {name}");
        let hand_outs = log.hand_outs_of(name);
        let interruptions = again.get(&format!("build:{build}")).copied().unwrap_or(0);
        assert_eq!(hand_outs.len(), interruptions + 1, "{name}: {hand_outs:?}");
        assert_eq!(hand_outs.last().and_then(|last| last.end), Some("finished"), "{name}");
        assert!(hand_outs.iter().all(|one| one.end.is_some()), "{name}: {hand_outs:?}");
    }
}

/// Each of these derivations, and nothing else, was handed out once and built once: no hand-out was
/// given up, nothing came from elsewhere.
///
/// # Panics
/// With the first one that does not fit.
#[track_caller]
pub fn built_exactly_once(log: &Log, names: &[String]) {
    built_once_or_visibly_interrupted(log, names);
    let wanted: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(log.succeeded(), wanted, "what was built");
    let hand_outs = log.hand_outs();
    let builds = hand_outs.iter().filter(|one| one.job.starts_with("build:")).count();
    assert_eq!(builds, names.len(), "hand-outs of builds");
    let mut made = 0;
    for (_, message) in log.messages() {
        if let Message::JobUpdate { update: Step::BuildOutput { substituted, .. }, .. } = message {
            assert!(!substituted, "an output was there before it was built");
            made += 1;
        }
    }
    assert_eq!(made, names.len(), "reports of outputs");
}

impl Cluster {
    /// What has to hold at the end of a run: order of the log, one row per hand-out, the log decided
    /// again without deviation, tables equal to those folded anew.
    ///
    /// # Panics
    /// With what does not hold.
    #[track_caller]
    pub fn check_everything(&self) {
        let log = self.log();
        assigned_before_reported(&log);
        self.check_hand_out_rows();
        self.check_verify();
        self.check_rebuild();
    }

    /// `select count(*) from dispatched_job` is the number of `JobAssigned` in the log.
    ///
    /// # Panics
    /// If the tables do not get there.
    #[track_caller]
    pub fn check_hand_out_rows(&self) {
        let assigned = self.log().hand_outs().len();
        assert!(assigned > 0, "nothing was handed out");
        let wanted = assigned.to_string();
        // The tables follow the log; they may be a moment behind.
        until_true(&format!("{wanted} rows in dispatched_job"), Duration::from_secs(20), || {
            self.sql("select count(*) from dispatched_job") == wanted
        });
        assert_eq!(self.log().hand_outs().len(), assigned, "all is quiet meanwhile");
    }

    /// `gradient events verify` finds no deviation.
    ///
    /// # Panics
    /// If it does.
    #[track_caller]
    pub fn check_verify(&self) {
        let said = self.gradient(&["events", "verify", "--json"]).ok().json();
        assert_eq!(said["deviations"], serde_json::json!([]), "{said}");
        assert!(said["entries"].as_u64().is_some_and(|entries| entries > 0), "{said}");
    }

    /// The tables are the same before and after they were folded anew, compared at one position of
    /// the log: workers go on reporting figures meanwhile.
    ///
    /// # Panics
    /// If they differ.
    #[track_caller]
    pub fn check_rebuild(&self) {
        let (before, after) = until("two digests at one position", LIMIT, || {
            let before = digest(&self.gradient(&["projections", "digest"]).ok().stdout);
            let after = digest(&self.gradient(&["projections", "rebuild"]).ok().stdout);
            (before.position == after.position).then_some((before, after))
        });
        assert!(before.tables.len() > 10, "{before:?}");
        assert_eq!(before, after, "tables before and after they were folded anew");
    }
}

/// Digests of all tables at a position of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The position.
    pub position: u64,
    /// A line per table.
    pub tables: Vec<String>,
}

/// Reads what `gradient projections digest` and `rebuild` print.
///
/// # Panics
/// If it is not understood.
#[must_use]
pub fn digest(text: &str) -> Digest {
    let lines = text.lines().filter(|line| !line.starts_with("rebuilt up to"));
    let tables: Vec<String> = lines.map(str::to_owned).collect();
    let total = tables.iter().find(|line| line.starts_with("total "));
    let position = total.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
    Digest { position: position.unwrap_or_else(|| panic!("no position in {text}")), tables }
}
