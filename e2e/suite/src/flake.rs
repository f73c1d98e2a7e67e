//! Flakes that a test writes itself.

/// A folder with a `flake.nix`.
#[derive(Debug)]
pub struct Flake {
    folder: tempfile::TempDir,
}

/// What the builders of the tests' flakes may use: `mk NAME SCRIPT` makes a derivation, and the shell
/// function `pause SECONDS` waits without a program, for nothing is ever read from `/dev/ptmx`.
const LIBRARY: &str = r#"
      pause = "pause() { read -r -t \"$1\" nothing <> /dev/ptmx || :; }\n";
      mk = name: script: derivation {
        inherit name;
        system = "x86_64-linux";
        builder = "/bin/sh";
        args = [ "-euc" (pause + script) ];
      };
"#;

impl Flake {
    /// A flake with this text.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("flake.nix"), text).expect("written");
        Self { folder }
    }

    /// A flake whose outputs are `body`, with `mk` and these definitions in scope.
    #[must_use]
    pub fn of(definitions: &str, body: &str) -> Self {
        Self::new(&format!(
            "{{\n  outputs = {{ self }}:\n    let{LIBRARY}{definitions}\n    in {{\n{body}\n    }};\n}}\n"
        ))
    }

    /// As commands take it.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("path:{}", self.folder.path().display())
    }
}
