//! What everybody wants to know of a derivation.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Derivation;
use crate::capability::System;
use crate::store_path::StorePath;

/// What a derivation is to those who list, schedule or fetch it: what `nix-eval-jobs` prints of each.
/// It follows from the derivation file and is much shorter.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outline {
    /// The system that builds it.
    pub system: System,
    /// By output name; `None` for an output whose place is only known after the build.
    pub outputs: BTreeMap<String, Option<StorePath>>,
    /// `requiredSystemFeatures`, without empty names.
    pub required_system_features: BTreeSet<String>,
}

impl From<&Derivation> for Outline {
    fn from(derivation: &Derivation) -> Outline {
        let outputs = derivation.outputs.iter();
        Outline {
            system: derivation.system.clone(),
            outputs: outputs.map(|(name, output)| (name.clone(), output.path.clone())).collect(),
            required_system_features: derivation.required_features(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_is_short_and_whole() {
        let text = "Derive([(\"dev\",\"/nix/store/0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-n-dev\",\"\",\"\"),\
            (\"out\",\"\",\"r:sha256\",\"\")],[],[],\"x86_64-linux\",\"/bin/sh\",[],\
            [(\"requiredSystemFeatures\",\"kvm  big kvm\")])";
        let derivation = Derivation::parse(text.as_bytes()).expect("parses");
        let outline = Outline::from(&derivation);
        let json = serde_json::to_string(&outline).expect("json");
        assert_eq!(
            json,
            "{\"system\":\"x86_64-linux\",\"outputs\":\
             {\"dev\":\"/nix/store/0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-n-dev\",\"out\":null},\
             \"requiredSystemFeatures\":[\"big\",\"kvm\"]}"
        );
        assert_eq!(serde_json::from_str::<Outline>(&json).expect("read"), outline);
    }
}
