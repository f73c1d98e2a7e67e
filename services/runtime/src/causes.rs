//! Errors as a line for people.

use std::error::Error;

/// An error with all its causes, in one line.
#[must_use]
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_cause_is_named() {
        let inner = anyhow::anyhow!("no file").context("no key");
        let error: Box<dyn std::error::Error> = inner.context("no cache").into();
        assert_eq!(super::causes(error.as_ref()), "no cache: no key: no file");
    }
}
