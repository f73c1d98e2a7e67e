//! Derivation files (ATerm), parsed without Nix (reference 5.12).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::capability::{Requirement, System};
use crate::store_path::StorePath;

mod aterm;
mod outline;
mod write;

pub use aterm::ParseDerivationError;
pub use outline::Outline;

/// Largest derivation file that is read, in bytes.
pub const DERIVATION_SIZE_MAX: usize = 16 << 20;

/// Variable that holds the structured attributes of a derivation as JSON.
const STRUCTURED: &str = "__json";

/// One output of a derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where it goes. `None` for a content-addressed output that is only known after the build.
    pub path: Option<StorePath>,
    /// `sha256`, `r:sha256` (recursive) and the like; empty for an input-addressed output.
    pub hash_algo: String,
    /// The fixed hash in base 16; empty when it is not fixed.
    pub hash: String,
}

/// One derivation, as its `.drv` file says it. Whatever Nix allows to be other than UTF-8 is kept
/// as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// By output name; at least one.
    pub outputs: BTreeMap<String, Output>,
    /// Derivations whose outputs it needs, with the names of those outputs.
    pub input_drvs: BTreeMap<StorePath, BTreeSet<String>>,
    /// Store paths that it needs and nobody builds.
    pub input_srcs: BTreeSet<StorePath>,
    /// The system that builds it, taken as it is; `builtin` is a fetch by Nix itself.
    pub system: System,
    /// The program that is run.
    pub builder: Vec<u8>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// Its environment.
    pub env: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Derivation {
    /// Parses the bytes of a `.drv` file.
    ///
    /// # Errors
    /// If the file is over [`DERIVATION_SIZE_MAX`], is no well-formed `Derive(...)`, names the same
    /// thing twice, or holds a path outside the store. The error names the byte offset.
    pub fn parse(text: &[u8]) -> Result<Self, ParseDerivationError> {
        aterm::parse(text)
    }

    /// A variable of the environment, if it is there and is UTF-8.
    #[must_use]
    pub fn env_text(&self, name: &str) -> Option<&str> {
        self.env.get(name.as_bytes()).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The attributes that scheduling reads. Structured attributes (`__json`) are parsed here, so
    /// take this once when several are needed.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        let structured =
            self.env.get(STRUCTURED.as_bytes()).and_then(|json| serde_json::from_slice(json).ok());
        Attributes { derivation: self, structured }
    }

    /// What a worker must have to build it.
    #[must_use]
    pub fn requirement(&self) -> Requirement {
        Requirement::new(self.system.0.clone(), self.required_features())
    }

    /// `requiredSystemFeatures`, as a set without empty names.
    #[must_use]
    pub fn required_features(&self) -> BTreeSet<String> {
        self.attributes().required_features()
    }

    /// `preferLocalBuild`; false when unset.
    #[must_use]
    pub fn prefer_local_build(&self) -> bool {
        self.attributes().flag("preferLocalBuild", false)
    }

    /// `allowSubstitutes`; true when unset.
    #[must_use]
    pub fn allow_substitutes(&self) -> bool {
        self.attributes().flag("allowSubstitutes", true)
    }

    /// `timeout`: wall-clock limit of the build in seconds, if it has its own.
    #[must_use]
    pub fn timeout_secs(&self) -> Option<u64> {
        self.attributes().number("timeout")
    }

    /// `maxSilent`: limit in seconds without a line of log, if it has its own.
    #[must_use]
    pub fn max_silent_secs(&self) -> Option<u64> {
        self.attributes().number("maxSilent")
    }

    /// Whether the hash of an output is known before the build.
    #[must_use]
    pub fn is_fixed_output(&self) -> bool {
        self.outputs.values().any(|output| !output.hash.is_empty())
    }

    /// `pname`, if it is set and not empty.
    #[must_use]
    pub fn pname(&self) -> Option<String> {
        self.attributes().text("pname").filter(|p| !p.is_empty())
    }

    /// Paths of the outputs that are known before the build, by output name.
    pub fn output_paths(&self) -> impl Iterator<Item = (&str, &StorePath)> {
        self.outputs
            .iter()
            .filter_map(|(name, output)| Some((name.as_str(), output.path.as_ref()?)))
    }
}

/// Attributes of a derivation: from its structured attributes if it has any that parse, and then
/// only from there; else from its environment.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    derivation: &'a Derivation,
    structured: Option<Value>,
}

impl Attributes<'_> {
    /// `requiredSystemFeatures`, as a set without empty names.
    #[must_use]
    pub fn required_features(&self) -> BTreeSet<String> {
        const NAME: &str = "requiredSystemFeatures";
        let keep = |feature: &str| (!feature.is_empty()).then(|| feature.to_owned());
        match &self.structured {
            Some(json) => match json.get(NAME) {
                Some(Value::Array(list)) => {
                    list.iter().filter_map(|item| item.as_str().and_then(keep)).collect()
                }
                _ => BTreeSet::new(),
            },
            None => self
                .derivation
                .env_text(NAME)
                .unwrap_or_default()
                .split_ascii_whitespace()
                .filter_map(keep)
                .collect(),
        }
    }

    /// A text attribute.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        match &self.structured {
            Some(json) => json.get(name)?.as_str().map(str::to_owned),
            None => self.derivation.env_text(name).map(str::to_owned),
        }
    }

    /// A yes or no: `1` or `true`, in structured attributes also a bool or a number other than 0.
    #[must_use]
    pub fn flag(&self, name: &str, default: bool) -> bool {
        let is_true = |text: &str| text == "1" || text == "true";
        match &self.structured {
            Some(json) => match json.get(name) {
                Some(Value::Bool(flag)) => *flag,
                Some(Value::String(text)) => is_true(text),
                Some(Value::Number(number)) => number.as_f64() != Some(0.0),
                _ => default,
            },
            None => self.derivation.env_text(name).map_or(default, is_true),
        }
    }

    /// A whole number that is not negative, in structured attributes also as text.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match &self.structured {
            Some(json) => match json.get(name)? {
                Value::Number(number) => number.as_u64(),
                Value::String(text) => text.trim().parse().ok(),
                _ => None,
            },
            None => self.derivation.env_text(name)?.trim().parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0mdqa9w1p6cmli6976v4wi0sw9r4p5pr";

    fn plain(env: &str) -> String {
        format!(
            "Derive([(\"dev\",\"/nix/store/{HASH}-a-dev\",\"\",\"\"),(\"out\",\"/nix/store/{HASH}-a\",\"\",\"\")],\
             [(\"/nix/store/{HASH}-b.drv\",[\"lib\",\"out\"])],[\"/nix/store/{HASH}-src\"],\
             \"x86_64-linux\",\"/bin/sh\",[\"-c\",\"echo \\\"hi\\\"\\n\\t\\\\\"],[{env}])"
        )
    }

    fn with_env(env: &str) -> Derivation {
        Derivation::parse(plain(env).as_bytes()).expect("parses")
    }

    #[test]
    fn a_plain_derivation_is_read_whole() {
        let drv = with_env("(\"name\",\"a\"),(\"pname\",\"tool\")");
        assert_eq!(drv.outputs.keys().collect::<Vec<_>>(), ["dev", "out"]);
        assert_eq!(drv.output_paths().map(|(_, p)| p.name()).collect::<Vec<_>>(), ["a-dev", "a"]);
        let (input, wanted) = drv.input_drvs.first_key_value().expect("one");
        assert_eq!(input.name(), "b.drv");
        assert_eq!(wanted.iter().collect::<Vec<_>>(), ["lib", "out"]);
        assert_eq!(drv.input_srcs.first().map(StorePath::name), Some("src"));
        assert_eq!(drv.system.0, "x86_64-linux");
        assert_eq!(drv.builder, b"/bin/sh");
        assert_eq!(drv.args, [b"-c".to_vec(), b"echo \"hi\"\n\t\\".to_vec()]);
        assert_eq!(drv.pname().as_deref(), Some("tool"));
        assert!(!drv.is_fixed_output());
        let text = plain("(\"name\",\"a\"),(\"pname\",\"tool\")");
        assert_eq!(String::from_utf8_lossy(&drv.to_bytes()), text);
    }

    #[test]
    fn other_bytes_than_utf8_survive() {
        let mut text = plain("(\"x\",\"?\")").into_bytes();
        let at = text.iter().rposition(|b| *b == b'?').expect("there");
        text[at] = 0xff;
        let drv = Derivation::parse(&text).expect("parses");
        assert_eq!(drv.env[&b"x".to_vec()], [0xff]);
        assert_eq!(drv.to_bytes(), text);
        assert_eq!(drv.env_text("x"), None);
    }

    #[test]
    fn attributes_come_from_the_environment() {
        let rows = [
            ("", (vec![], false, true, None, None)),
            (
                "(\"allowSubstitutes\",\"\"),(\"maxSilent\",\"7\"),(\"preferLocalBuild\",\"1\"),\
                 (\"requiredSystemFeatures\",\" kvm  big-parallel kvm\"),(\"timeout\",\"60\")",
                (vec!["big-parallel", "kvm"], true, false, Some(60), Some(7)),
            ),
            (
                "(\"allowSubstitutes\",\"true\"),(\"maxSilent\",\"soon\"),(\"timeout\",\"-1\")",
                (vec![], false, true, None, None),
            ),
        ];
        for (env, expected) in rows {
            let drv = with_env(env);
            let features = drv.required_features();
            let got = (
                features.iter().map(String::as_str).collect(),
                drv.prefer_local_build(),
                drv.allow_substitutes(),
                drv.timeout_secs(),
                drv.max_silent_secs(),
            );
            assert_eq!(got, expected, "{env}");
        }
    }

    #[test]
    fn structured_attributes_hide_the_environment() {
        let json = "{\\\"requiredSystemFeatures\\\":[\\\"kvm\\\",\\\"\\\"],\\\"preferLocalBuild\\\":true,\
                    \\\"allowSubstitutes\\\":0,\\\"timeout\\\":\\\"30\\\",\\\"pname\\\":\\\"s\\\"}";
        let drv =
            with_env(&format!("(\"__json\",\"{json}\"),(\"maxSilent\",\"9\"),(\"timeout\",\"1\")"));
        assert_eq!(drv.required_features().iter().collect::<Vec<_>>(), ["kvm"]);
        assert!(drv.prefer_local_build() && !drv.allow_substitutes());
        assert_eq!((drv.timeout_secs(), drv.max_silent_secs()), (Some(30), None));
        assert_eq!(drv.pname().as_deref(), Some("s"));
        let broken = with_env("(\"__json\",\"{\"),(\"timeout\",\"1\")");
        assert_eq!(broken.timeout_secs(), Some(1));
    }

    #[test]
    fn fixed_and_deferred_outputs() {
        let fixed = plain("").replacen("\"\",\"\")]", "\"r:sha256\",\"00ff\")]", 1);
        let drv = Derivation::parse(fixed.as_bytes()).expect("parses");
        assert!(drv.is_fixed_output());
        assert_eq!(drv.outputs["out"].hash_algo, "r:sha256");
        let deferred = plain("").replacen(&format!("\"/nix/store/{HASH}-a\""), "\"\"", 1);
        let drv = Derivation::parse(deferred.as_bytes()).expect("parses");
        assert_eq!(drv.outputs["out"].path, None);
        assert_eq!(drv.output_paths().count(), 1);
    }

    #[test]
    fn faults_name_their_offset() {
        let whole = plain("(\"a\",\"1\")");
        let rows = [
            (String::new(), 0, "expected 'Derive('"),
            ("DrvWithVersion(\"xp-dyn-drv\",".into(), 0, "dynamic derivations"),
            ("Derive([],[],[],".into(), 9, "without outputs"),
            (format!("{whole} "), whole.len(), "more text after the end of the derivation"),
            (whole[..whole.len() - 4].into(), whole.len() - 4, "inside a string"),
            (whole.replacen("/nix/store", "/tmp", 1), 15, "/nix/store"),
            (whole.replace("b.drv", "b"), 0, "no .drv file"),
            (plain("(\"a\",\"1\"),(\"a\",\"2\")"), 0, "twice"),
        ];
        for (text, at, words) in rows {
            match Derivation::parse(text.as_bytes()) {
                Err(ParseDerivationError::Syntax { offset, reason }) => {
                    assert!(reason.contains(words), "{reason}");
                    assert!(at == 0 || offset == at, "{offset} for {reason}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let huge = vec![b' '; DERIVATION_SIZE_MAX + 1];
        assert_eq!(
            Derivation::parse(&huge),
            Err(ParseDerivationError::TooLarge { size: huge.len() })
        );
    }

    #[test]
    fn no_prefix_of_a_derivation_parses() {
        let whole = plain("(\"a\",\"1\")");
        for end in 0..whole.len() {
            assert!(Derivation::parse(&whole.as_bytes()[..end]).is_err(), "{end}");
        }
    }
}
