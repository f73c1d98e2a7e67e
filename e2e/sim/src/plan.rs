//! What the simulated flakes hold: a graph of derivations whose true outcomes are known in advance.

use std::collections::BTreeSet;

use gradient_domain::{AttrPath, Requirement, StorePath};
use gradient_events::job::Output;
use gradient_events::worker::{Dependency, DiscoveredDerivation};

use crate::rng::Rng;

/// How a derivation behaves when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Succeeds.
    Good,
    /// Its builder fails, always.
    Bad,
    /// Fails for reasons outside of it so many times, then succeeds.
    Flaky(u32),
}

/// One derivation of the plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// As an evaluation reports it (without attributes).
    pub derivation: DiscoveredDerivation,
    /// Positions of its inputs in the plan.
    pub inputs: Vec<usize>,
    /// How it behaves.
    pub behaviour: Behaviour,
    /// How long it builds, in milliseconds.
    pub build_ms: u64,
}

/// One flake: roots in the shared graph, and whether an attribute of it throws.
#[derive(Clone, Debug)]
pub struct Flake {
    /// Positions of the derivations that attributes name.
    pub roots: Vec<usize>,
    /// Whether it reports an error of an attribute.
    pub throws: bool,
}

/// Everything that will be asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The shared graph, inputs before dependents.
    pub graph: Vec<Planned>,
    /// The flakes.
    pub flakes: Vec<Flake>,
}

/// A store path of the simulated world.
#[must_use]
pub fn path(number: usize, suffix: &str) -> StorePath {
    let mut hash = [0; 20];
    hash[..8].copy_from_slice(&(number as u64).to_be_bytes());
    hash[8..16].copy_from_slice(&(suffix.len() as u64).to_be_bytes());
    StorePath::from_parts(&hash, &format!("n{number}{suffix}")).expect("a plain name")
}

impl Plan {
    /// A random plan.
    #[must_use]
    pub fn random(rng: &mut Rng) -> Self {
        let size = 1 + usize::try_from(rng.below(24)).expect("small");
        let graph: Vec<Planned> = (0..size).map(|number| planned(rng, number)).collect();
        let flakes = (0..=rng.below(3))
            .map(|_| {
                let count = 1 + rng.below(4);
                let mut pick = || usize::try_from(rng.below(size as u64)).expect("small");
                let roots: BTreeSet<usize> = (0..count).map(|_| pick()).collect();
                Flake { roots: roots.into_iter().collect(), throws: rng.chance(150) }
            })
            .collect();
        Self { graph, flakes }
    }

    /// The closure of some derivations, inputs first.
    #[must_use]
    pub fn closure(&self, roots: &[usize]) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let mut stack = roots.to_vec();
        while let Some(number) = stack.pop() {
            if seen.insert(number) {
                stack.extend(&self.graph[number].inputs);
            }
        }
        seen.into_iter().collect()
    }

    /// What an evaluation of a flake reports of one derivation.
    #[must_use]
    pub fn discovered(&self, flake: &Flake, number: usize) -> DiscoveredDerivation {
        let mut derivation = self.graph[number].derivation.clone();
        if flake.roots.contains(&number) {
            derivation
                .attrs
                .push(["packages", "sim", &format!("n{number}")].into_iter().collect::<AttrPath>());
        }
        derivation
    }

    /// Whether every build of a flake can succeed.
    #[must_use]
    pub fn is_good(&self, flake: &Flake) -> bool {
        let good = |number: &usize| self.graph[*number].behaviour != Behaviour::Bad;
        !flake.throws && self.closure(&flake.roots).iter().all(good)
    }

    /// The plan's number of a derivation.
    #[must_use]
    pub fn find(&self, drv_path: &StorePath) -> usize {
        let is_it = |planned: &Planned| planned.derivation.drv_path == *drv_path;
        self.graph.iter().position(is_it).expect("only planned derivations are built")
    }
}

fn planned(rng: &mut Rng, number: usize) -> Planned {
    let inputs: BTreeSet<usize> = (0..rng.below(4).min(number as u64))
        .map(|_| usize::try_from(rng.below(number as u64)).expect("small"))
        .collect();
    let requirement = match rng.below(20) {
        0..=14 => Requirement::new("x86_64-linux", []),
        15 | 16 => Requirement::new("x86_64-linux", ["big-parallel".to_owned()]),
        17 | 18 => Requirement::new("aarch64-linux", []),
        _ => Requirement::new("builtin", []),
    };
    let behaviour = match rng.below(20) {
        0 | 1 => Behaviour::Bad,
        2 | 3 => Behaviour::Flaky(1 + u32::try_from(rng.below(2)).expect("small")),
        _ => Behaviour::Good,
    };
    let dependencies = inputs
        .iter()
        .map(|input| Dependency { drv_path: path(*input, ".drv"), outputs: vec!["out".into()] })
        .collect();
    Planned {
        derivation: DiscoveredDerivation {
            attrs: Vec::new(),
            drv_path: path(number, ".drv"),
            outputs: vec![Output { name: "out".into(), path: Some(path(number, "")) }],
            dependencies,
            requirement,
            is_fixed_output: false,
            prefer_local_build: false,
            timeout_secs: None,
            max_silent_secs: None,
            pname: None,
        },
        inputs: inputs.into_iter().collect(),
        behaviour,
        build_ms: 50 + rng.below(20_000),
    }
}
