//! What a job needs and what a worker offers (spec, Capabilities).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A Nix system such as `x86_64-linux`; free-form text (spec, Capabilities).
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[rkyv(derive(PartialEq, Eq, PartialOrd, Ord))]
#[serde(transparent)]
pub struct System(pub String);

impl System {
    /// The system of fetches that the builder of Nix itself performs.
    pub const BUILTIN: &'static str = "builtin";

    /// A builtin build skips the system check (spec, Capabilities).
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        self.0 == Self::BUILTIN
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Nix system feature such as `kvm` or `big-parallel`.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[rkyv(derive(PartialEq, Eq, PartialOrd, Ord))]
#[serde(transparent)]
pub struct Feature(pub String);

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What kind of slot a job takes; the `kind` of `RequestJob`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[rkyv(derive(PartialEq, Eq, PartialOrd, Ord))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Evaluate a flake.
    Evaluate,
    /// Build a derivation.
    Build,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Evaluate => "evaluate",
            Kind::Build => "build",
        })
    }
}

/// What a build needs of a worker.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Requirement {
    /// The system of the derivation.
    pub system: System,
    /// Every feature that the derivation requires; a set, empty names ignored
    /// (reference 10, row 22).
    pub features: BTreeSet<Feature>,
}

impl Requirement {
    /// A requirement from names as they stand in a derivation.
    pub fn new<S: Into<String>>(system: S, features: impl IntoIterator<Item = String>) -> Self {
        Self {
            system: System(system.into()),
            features: features.into_iter().filter(|f| !f.is_empty()).map(Feature).collect(),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.system)?;
        for feature in &self.features {
            write!(f, " +{feature}")?;
        }
        Ok(())
    }
}

/// What a worker offers: the fields of `WorkerCapabilities` (spec, Capabilities).
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Capabilities {
    /// Nix systems that the worker builds.
    pub architectures: BTreeSet<System>,
    /// Nix system features that the worker has.
    pub system_features: BTreeSet<Feature>,
    /// Build slots; 0 for a worker that does not build.
    pub max_concurrent_builds: u32,
    /// Logical processors, at least 1.
    pub cpu_count: u32,
    /// Total memory in MiB, at least 1.
    pub ram_total_mb: u64,
    /// Relative single-core speed (reference 1.4).
    pub cpu_core_score: u32,
    /// Locality label; `None` is the one implicit zone.
    pub zone: Option<String>,
    /// Address listed for this worker in a cluster roster, not interpreted.
    pub endpoint: Option<String>,
}

impl Capabilities {
    /// Whether a build with this requirement can match a worker that offers `self`:
    /// the system is listed (or `builtin`) and every feature is offered (spec, Capabilities).
    #[must_use]
    pub fn satisfies(&self, need: &Requirement) -> bool {
        (need.system.is_builtin() || self.architectures.contains(&need.system))
            && need.features.is_subset(&self.system_features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(systems: &[&str], features: &[&str]) -> Capabilities {
        Capabilities {
            architectures: systems.iter().map(|s| System((*s).into())).collect(),
            system_features: features.iter().map(|f| Feature((*f).into())).collect(),
            ..Capabilities::default()
        }
    }

    #[test]
    fn matching_table() {
        let worker = offers(&["x86_64-linux", "i686-linux"], &["kvm", "big-parallel"]);
        let bare = offers(&[], &[]);
        let rows: [(&str, &[&str], bool, bool); 8] = [
            ("x86_64-linux", &[], true, false),
            ("i686-linux", &["kvm"], true, false),
            ("x86_64-linux", &["kvm", "big-parallel"], true, false),
            ("x86_64-linux", &["nixos-test"], false, false),
            ("aarch64-linux", &[], false, false),
            ("builtin", &[], true, true),
            ("builtin", &["kvm"], true, false),
            ("x86_64-linux", &["", "kvm", "kvm"], true, false),
        ];
        for (system, features, fits, fits_bare) in rows {
            let need = Requirement::new(system, features.iter().map(ToString::to_string));
            assert_eq!(worker.satisfies(&need), fits, "{need}");
            assert_eq!(bare.satisfies(&need), fits_bare, "{need} on a bare worker");
        }
    }
}
