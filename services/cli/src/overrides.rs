//! Other flakes in the place of inputs, as they are typed.

use gradient_domain::flake::{Override, check_overrides};

use crate::exit::Failure;

/// Pairs of an input and a reference.
pub(crate) fn parse(given: &[String]) -> Result<Vec<Override>, Failure> {
    let pairs = given.as_chunks::<2>().0.iter();
    let overrides: Vec<Override> = pairs
        .map(|[input, reference]| Override { input: input.clone(), reference: reference.clone() })
        .collect();
    check_overrides(&overrides).map_err(Failure::usage)?;
    Ok(overrides)
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
        for wrong in [["", "path:/x"], ["a//b", "path:/x"], ["a", ""]] {
            assert!(parse(&words(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
