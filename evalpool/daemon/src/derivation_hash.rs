//! The hash that the output paths of a derivation follow from, computed without Nix.
//!
//! It is a SHA-256 over the derivation in which each input derivation is named by its own such hash
//! instead of its path. So it does not change when an input changes only in how it makes an output
//! whose content is fixed.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::store_path::ParseStorePathError;
use gradient_domain::{Derivation, StorePath};
use sha2::{Digest as _, Sha256};

use crate::path_info::hex;
use crate::store_path_of;

/// Most derivations that one hash may be made of.
pub const DERIVATIONS_MAX: usize = 1_000_000;

/// Why there is no hash.
#[derive(Debug, thiserror::Error)]
pub enum HashError<E> {
    /// A derivation cannot be read.
    #[error("{drv_path} cannot be read")]
    Read {
        /// Which.
        drv_path: StorePath,
        /// Why.
        source: E,
    },
    /// A derivation needs an output that its input does not have.
    #[error("{drv_path} has no output '{output}'")]
    NoOutput {
        /// The input.
        drv_path: StorePath,
        /// The output.
        output: String,
    },
    /// A path would have a name that Nix does not allow.
    #[error(transparent)]
    Name(#[from] ParseStorePathError),
    /// Derivations that need each other, or more than [`DERIVATIONS_MAX`].
    #[error("the inputs of {drv_path} have no end")]
    Endless {
        /// Where it was noticed.
        drv_path: StorePath,
    },
}

/// What stands for a derivation where it is an input.
#[derive(Clone, Debug)]
enum InputHash {
    /// One hash for all outputs.
    Whole([u8; 32]),
    /// One for each output: their contents are fixed.
    Fixed(BTreeMap<String, [u8; 32]>),
    /// None: its output paths are only known after its build.
    Deferred,
}

/// Hashes derivations; remembers those of inputs.
#[derive(Debug)]
pub struct Hasher<R> {
    read: R,
    known: BTreeMap<StorePath, InputHash>,
}

impl<E, R: FnMut(&StorePath) -> Result<Derivation, E>> Hasher<R> {
    /// A hasher that reads input derivations so.
    pub fn new(read: R) -> Self {
        Hasher { read, known: BTreeMap::new() }
    }

    /// Gives a derivation the output paths that follow from its contents, in its outputs and in the
    /// variables named after them. `false` if it has none before its build: nothing is changed then.
    ///
    /// # Errors
    /// If an input cannot be read or does not fit.
    pub fn set_output_paths(
        &mut self,
        name: &str,
        derivation: &mut Derivation,
    ) -> Result<bool, HashError<E>> {
        if derivation.outputs.values().any(|output| !output.hash_algo.is_empty()) {
            return Ok(false);
        }
        self.learn(derivation)?;
        let Some(hash) = self.hash(derivation, true)? else {
            return Ok(false);
        };
        for (output, told) in &mut derivation.outputs {
            let path = store_path_of::output(&hash, name, output)?;
            if let Some(value) = derivation.env.get_mut(output.as_bytes()) {
                *value = path.to_string().into_bytes();
            }
            told.path = Some(path);
        }
        Ok(true)
    }

    /// Knows all inputs of a derivation afterwards. Without recursion: chains are long.
    fn learn(&mut self, derivation: &Derivation) -> Result<(), HashError<E>> {
        let mut open: Vec<(StorePath, Option<Derivation>)> =
            derivation.input_drvs.keys().map(|drv| (drv.clone(), None)).collect();
        let mut waiting = BTreeSet::new();
        while let Some((drv_path, read)) = open.pop() {
            if let Some(derivation) = read {
                let hash = self.input_hash(&derivation)?;
                waiting.remove(&drv_path);
                self.known.insert(drv_path, hash);
                continue;
            }
            if self.known.contains_key(&drv_path) {
                continue;
            }
            if !waiting.insert(drv_path.clone()) || self.known.len() > DERIVATIONS_MAX {
                return Err(HashError::Endless { drv_path });
            }
            let derivation = match (self.read)(&drv_path) {
                Ok(derivation) => derivation,
                Err(source) => return Err(HashError::Read { drv_path, source }),
            };
            let inputs: Vec<_> = derivation.input_drvs.keys().cloned().collect();
            open.push((drv_path, Some(derivation)));
            open.extend(inputs.into_iter().map(|input| (input, None)));
        }
        Ok(())
    }

    fn input_hash(&self, derivation: &Derivation) -> Result<InputHash, HashError<E>> {
        let mut fixed = BTreeMap::new();
        for (name, output) in &derivation.outputs {
            if let (false, Some(path)) = (output.hash.is_empty(), &output.path) {
                let text = format!("fixed:out:{}:{}:{path}", output.hash_algo, output.hash);
                fixed.insert(name.clone(), Sha256::digest(text).into());
            } else if !output.hash_algo.is_empty() {
                return Ok(InputHash::Deferred);
            }
        }
        if !fixed.is_empty() {
            return Ok(InputHash::Fixed(fixed));
        }
        Ok(self.hash(derivation, false)?.map_or(InputHash::Deferred, InputHash::Whole))
    }

    /// The hash of a derivation whose inputs are known; `None` if one of them has none.
    fn hash(
        &self,
        derivation: &Derivation,
        masked: bool,
    ) -> Result<Option<[u8; 32]>, HashError<E>> {
        let mut inputs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (drv_path, outputs) in &derivation.input_drvs {
            for output in outputs {
                let hash = match self.known.get(drv_path) {
                    Some(InputHash::Whole(hash)) => hash,
                    Some(InputHash::Fixed(hashes)) => hashes.get(output).ok_or_else(|| {
                        HashError::NoOutput { drv_path: drv_path.clone(), output: output.clone() }
                    })?,
                    Some(InputHash::Deferred) | None => return Ok(None),
                };
                inputs.entry(hex(hash)).or_default().insert(output.clone());
            }
        }
        let text = derivation.to_hashed_bytes(&inputs, masked);
        Ok(Some(Sha256::digest(text).into()))
    }
}
