//! Other flakes in the place of inputs.

use crate::exit::Failure;

/// What `--override-input` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Override {
    /// The names of the input, such as `nixpkgs` or `tools/nixpkgs`.
    pub(super) input: String,
    /// The flake in its place.
    pub(super) reference: String,
}

/// Pairs of an input and a reference.
pub(super) fn parse(given: &[String]) -> Result<Vec<Override>, Failure> {
    let one = |pair: &[String]| {
        let (input, reference) = (pair[0].clone(), pair[1].clone());
        let is_path = input.split('/').all(|name| !name.is_empty());
        if !is_path || reference.is_empty() {
            let text =
                format!("--override-input '{input}' '{reference}' names no input or no flake");
            return Err(Failure::usage(text));
        }
        Ok(Override { input, reference })
    };
    given.chunks_exact(2).map(one).collect()
}

/// Refuses what locking cannot do.
pub(super) fn check(overrides: &[Override]) -> Result<(), Failure> {
    match overrides.first() {
        None => Ok(()),
        Some(Override { input, reference }) => Err(Failure::usage(format!(
            "input '{input}' cannot be replaced by '{reference}': this version locks flakes as they are"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_pairs_of_an_input_and_a_flake() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let parsed = parse(&words(&["tools/nixpkgs", "path:/x"])).expect("right");
        let expected = Override { input: "tools/nixpkgs".into(), reference: "path:/x".into() };
        assert_eq!(parsed, [expected]);
        assert!(check(&parsed).is_err() && check(&[]).is_ok());
        for wrong in [["", "path:/x"], ["a//b", "path:/x"], ["a", ""]] {
            assert!(parse(&words(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
