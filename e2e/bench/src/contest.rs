//! Runs of several sides in turn, and what they come to.

use serde::Serialize;

use crate::measure::{Run, Spread};

const MIB: f64 = 1024.0 * 1024.0;

/// What one side's command did, checked.
pub(crate) type Contender<'a> = (String, Box<dyn FnMut() -> anyhow::Result<Run> + 'a>);

/// All runs of one piece of work. The first side is ours.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// The figure, such as `P6`.
    pub(crate) id: String,
    /// What was done.
    pub(crate) work: String,
    /// Who did it.
    pub(crate) sides: Vec<Side>,
}

/// One side's runs.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    /// Its name.
    pub(crate) name: String,
    /// Its runs, in order.
    pub(crate) runs: Vec<Run>,
    /// Wall time in seconds.
    pub(crate) wall_secs: Spread,
    /// Processor time in seconds.
    pub(crate) cpu_secs: Spread,
    /// Most memory of all its processes together, in MiB.
    pub(crate) rss_sum_mib: Spread,
    /// Most memory of its largest process, in MiB.
    pub(crate) rss_largest_mib: Spread,
    /// Our wall time by this side's, round by round.
    pub(crate) wall_ratio: Spread,
    /// Our processor time by this side's, round by round.
    pub(crate) cpu_ratio: Spread,
    /// Our memory by this side's, round by round.
    pub(crate) rss_sum_ratio: Spread,
}

/// Lets every side run in every round. The order turns round each time, so that what a run leaves
/// behind in the machine meets both.
pub(crate) fn contest(
    id: &str,
    work: String,
    rounds: usize,
    mut contenders: Vec<Contender<'_>>,
) -> anyhow::Result<Comparison> {
    let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let (name, run) = &mut contenders[index];
            let run = run().map_err(|error| error.context(format!("{id}, {name}")))?;
            eprintln!("{id} round {} {name}: {:.3} s", round + 1, run.wall_secs);
            runs[index].push(run);
        }
    }
    let ours = runs.first().cloned().unwrap_or_default();
    let names = contenders.into_iter().map(|(name, _)| name);
    let sides = names.zip(runs).map(|(name, runs)| Side::new(name, &ours, runs)).collect();
    Ok(Comparison { id: id.to_owned(), work, sides })
}

impl Side {
    fn new(name: String, ours: &[Run], runs: Vec<Run>) -> Side {
        let spread = |value: fn(&Run) -> f64| Spread::of(runs.iter().map(value));
        let ratio = |value: fn(&Run) -> f64| {
            Spread::of(ours.iter().zip(&runs).map(|(ours, its)| value(ours) / value(its)))
        };
        Side {
            name,
            wall_secs: spread(|run| run.wall_secs),
            cpu_secs: spread(|run| run.cpu_secs),
            rss_sum_mib: spread(|run| mib(run.rss_sum_bytes)),
            rss_largest_mib: spread(|run| mib(run.rss_largest_bytes)),
            wall_ratio: ratio(|run| run.wall_secs),
            cpu_ratio: ratio(|run| run.cpu_secs),
            rss_sum_ratio: ratio(|run| mib(run.rss_sum_bytes)),
            runs,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory in MiB, for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
