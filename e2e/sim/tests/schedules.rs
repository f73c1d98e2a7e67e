//! Seeded schedules: every invariant after every message, and a floor on what was reached.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gradient_sim::{Options, Tally, run};

/// Schedules of one run of the tests (testing page: at least 10,000).
const SCHEDULES: u64 = 10_000;

/// What that many schedules must reach, at least.
const FLOOR: [(&str, u64); 24] = [
    ("assigned", 50_000),
    ("declined", 1_000),
    ("abandoned", 2_000),
    ("report dropped", 2_000),
    ("requeued", 2_000),
    ("job completed", 20_000),
    ("job failed", 2_000),
    ("build succeeded", 20_000),
    ("build to be retried", 1_000),
    ("build failed", 1_000),
    ("dependency failed", 1_000),
    ("build aborted", 100),
    ("builds skipped", 500),
    ("builds thawed", 500),
    ("abort requested", 500),
    ("worker lost", 1_000),
    ("worker left", 2_000),
    ("worker rejected", 500),
    ("evaluation parked", 500),
    ("evaluation completed", 2_000),
    ("evaluation failed", 2_000),
    ("evaluation aborted", 500),
    ("append lost", 1_000),
    ("delivery lost", 1_000),
];

#[test]
fn seeds_that_once_failed() {
    for line in include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let seed =
            line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a seed");
        if let Err(what) = run(seed, Options::default()) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..50 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()), "seed {seed}");
    }
}

#[test]
fn ten_thousand_schedules_keep_every_invariant() {
    let (next, total) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut tally = Tally::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SCHEDULES {
                        break;
                    }
                    match run(seed, Options::default()) {
                        Ok(run) => tally.merge(&run),
                        Err(what) => panic!("seed {seed}: {what}; see it with `cargo run -p gradient-sim -- --seed {seed} --trace`"),
                    }
                }
                total.lock().expect("no thread panicked").merge(&tally);
            });
        }
    });
    let total = total.into_inner().expect("no thread panicked");
    for (what, floor) in FLOOR {
        assert!(
            total.get(what) >= floor,
            "'{what}' was reached {} times, the floor is {floor}",
            total.get(what)
        );
    }
}
