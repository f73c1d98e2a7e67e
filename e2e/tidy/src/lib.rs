//! What the tidiness tests share: the files of the repository, its crates, and a look at Rust text.
//!
//! The rules themselves are the tests of this crate, one file per subject. Layer: beside the product;
//! it depends on no crate of it.

pub mod krate;
pub mod rust;
pub mod tree;

/// Collects what is wrong and says all of it at once.
#[derive(Debug, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// Adds one.
    pub fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    /// Adds one unless `holds`.
    pub fn check(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.0.push(text());
        }
    }

    /// Fails the test if there is any.
    ///
    /// # Panics
    /// With one line per fault and the advice.
    pub fn finish(self, advice: &str) {
        let list = self.0.join("\n  ");
        assert!(self.0.is_empty(), "{advice}:\n  {list}\n");
    }
}

/// Whether generated and frozen files are written instead of compared: `GRADIENT_BLESS=1`.
#[must_use]
pub fn is_blessing() -> bool {
    std::env::var_os("GRADIENT_BLESS").is_some_and(|value| value == "1")
}
