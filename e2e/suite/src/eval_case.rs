//! Flakes that others stumbled over, and what has to come of them: by `gradient eval`, by the harness
//! of the evaluator, and by an evaluation of a fleet.

/// A flake, what is asked of it, and what has to come of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the flake among those of the evaluator pool's tests.
    pub flake: &'static str,
    /// Patterns and flags of `gradient eval`; everything documented if empty.
    pub arguments: &'static [&'static str],
    /// `attr name` of the derivations, sorted, with `.` for `packages.x86_64-linux.`.
    pub jobs: &'static [&'static str],
    /// The end of `attr`, and words of the error, sorted.
    pub errors: &'static [(&'static str, &'static str)],
}

/// The names of N03 below `packages.x86_64-linux`, and those of their derivations; sorted.
pub const ODD_NAMES: [(&str, &str); 13] = [
    ("-leading-dash", "job-9"),
    ("1st", "job-13"),
    ("back\\slash", "job-3"),
    ("caret^out", "job-8"),
    ("dollar${x}", "job-4"),
    ("hash#tag", "job-7"),
    ("line\nbreak", "job-10"),
    ("or", "job-12"),
    ("quo\"te", "job-2"),
    ("star*", "job-6"),
    ("sub/dir/../up", "job-5"),
    ("user@host:22", "job-11"),
    ("with space", "job-1"),
];

/// The flakes of R11 that are none, and what is said of them.
pub const NO_FLAKES: [(&str, &str); 6] = [
    ("R11-none", "lacks attribute 'outputs'"),
    ("R11-notfn", "expected a function but got an integer"),
    ("R11-throws", "outputs boom"),
    ("R11-missing-arg", "tools"),
    ("R11-syntax", "syntax error, unexpected ';'"),
    ("R11-computed", "must be an attribute set"),
];

/// What `.` stands for in [`Case::jobs`].
pub const SYSTEM: &str = "packages.x86_64-linux.";

impl Case {
    /// The patterns.
    #[must_use]
    pub fn patterns(&self) -> Vec<&'static str> {
        match self.arguments {
            [] => vec!["*"],
            arguments => arguments.to_vec(),
        }
    }
}

/// Cases with one right result, whoever evaluates.
pub const CASES: &[Case] = &[
    Case {
        flake: "N01",
        arguments: &[],
        jobs: &[".\"tool-1.2\" tool-dotted", ".plain plain"],
        errors: &[],
    },
    Case {
        flake: "N01",
        arguments: &["packages.x86_64-linux.\"tool-1.2\""],
        jobs: &[".\"tool-1.2\" tool-dotted"],
        errors: &[],
    },
    Case {
        flake: "N01",
        arguments: &["packages.*.*"],
        jobs: &[".\"tool-1.2\" tool-dotted", ".plain plain"],
        errors: &[],
    },
    Case {
        flake: "N01",
        arguments: &["packages.*.*", "!packages.x86_64-linux.\"tool-1.2\""],
        jobs: &[".plain plain"],
        errors: &[],
    },
    Case {
        flake: "R04",
        arguments: &[],
        jobs: &[".functorDrv callable-drv", ".ok ok"],
        errors: &[
            (".fn", "not a derivation (a function)"),
            (".functorSet", "not a derivation (a set that is called like a function)"),
        ],
    },
    Case {
        flake: "R05",
        arguments: &[],
        jobs: &[".real real"],
        errors: &[
            (".drvPathIsOut", "does not end in .drv"),
            (".drvPathIsText", "'not-a-path' is not a store path"),
            (".fakeType", "without drvPath"),
            (".justString", "not a derivation (a string)"),
            (".onlyOutPath", "a set that stands for a path"),
            (".toStringSet", "a set that is printed as a string"),
        ],
    },
    Case {
        flake: "R06",
        arguments: &[],
        jobs: &["checks.x86_64-linux.good good-check"],
        errors: &[
            (".empty", "an empty set"),
            (".fn", "a function"),
            (".int", "an integer"),
            (".list", "a list"),
            (".nul", "null"),
            (".path", "a path"),
            (".set", "a set"),
            (".str", "a string"),
        ],
    },
    Case {
        flake: "R07",
        arguments: &[],
        jobs: &[
            "checks.app no-system-level",
            "packages.aarch64-darwin.linuxInDarwin wrong-folder",
            "packages.aarch64-linux.app app-arm",
            "packages.riscv64-none.app app-odd",
            "packages.x86_64-linux one-level-too-high",
        ],
        errors: &[],
    },
    Case {
        flake: "R08",
        arguments: &["packages.x86_64-linux.p777"],
        jobs: &[".p777 the-good-one"],
        errors: &[],
    },
    Case { flake: "R11-empty", arguments: &[], jobs: &[], errors: &[] },
    Case {
        flake: "R11-empty",
        arguments: &["packages.x86_64-linux.hello"],
        jobs: &[],
        errors: &[(".hello", "matched no derivations in the flake")],
    },
    Case {
        flake: "R12",
        arguments: &[],
        jobs: &[
            ".alias app",
            ".app app",
            ".default app",
            "checks.x86_64-linux.app app",
            "hydraJobs.app.x86_64-linux app",
        ],
        errors: &[],
    },
    Case { flake: "R13", arguments: &[], jobs: &[".app app"], errors: &[] },
    Case {
        flake: "R13",
        arguments: &["packages.x86_64-linux.app.tests.unit"],
        jobs: &[".app.tests.unit unit"],
        errors: &[],
    },
    Case {
        flake: "X01",
        arguments: &[],
        jobs: &[".a-good a-good", ".z-good z-good"],
        errors: &[
            (".b-throw", "unfree: licence not accepted\nat /nix/store/"),
            (".c-abort", "hard stop"),
            (".d-assert", "is not equal to"),
            (".e-missing", "attribute 'nope' missing\nat /nix/store/"),
            (".f-type", "cannot add a string to an integer"),
            (".g-broken", "marked as broken, refusing to evaluate"),
        ],
    },
    Case {
        flake: "X02",
        arguments: &[],
        jobs: &[".a-good a-good", ".z-good z-good"],
        errors: &[
            (".b-blackhole", "infinite recursion encountered"),
            (".c-overflow", "stack overflow; max-call-depth exceeded"),
            (".d-json", "stack overflow (possible infinite recursion)"),
        ],
    },
    Case {
        flake: "X04",
        arguments: &[],
        jobs: &[".good good"],
        errors: &[
            (".badArg", "arg boom"),
            (".badEnv", "env boom"),
            (".badName", "name boom"),
            (".badOutputs", "empty list"),
            (".badSystem", "system boom"),
            (".dupOutputs", "duplicate derivation output 'out'"),
            (".emptyName", "name must not be empty"),
            (".illegalName", "illegal character ' '"),
            (".noBuilder", "'builder' missing"),
            (".nullSystem", "'system' missing"),
        ],
    },
    Case {
        flake: "D01",
        arguments: &[],
        jobs: &[".justDev lib", ".lib lib", ".user user"],
        errors: &[],
    },
    Case {
        flake: "F05",
        arguments: &["*", "!packages.x86_64-linux.modified"],
        jobs: &[".env e--", ".good good", ".rev r-none"],
        errors: &[
            (".sys", "attribute 'currentSystem' missing"),
            (".time", "attribute 'currentTime' missing"),
        ],
    },
    Case {
        flake: "D03",
        arguments: &[],
        jobs: &[
            ".caseful caseful",
            ".doubled doubled",
            ".emptyList empty-list",
            ".emptyString empty-string",
            ".list list",
            ".newline newline",
            ".none none",
            ".string string",
            ".unknown unknown",
        ],
        errors: &[],
    },
    Case {
        flake: "D04",
        arguments: &[],
        jobs: &[".usesIt uses-it", ".viaBuiltin fetched.txt"],
        errors: &[],
    },
    Case {
        flake: "D05",
        arguments: &[],
        jobs: &[".emptyHash empty-hash", ".right right", ".wrong wrong"],
        errors: &[(".badHash", "invalid SRI hash 'not-base64'")],
    },
    Case { flake: "D09", arguments: &[], jobs: &[".app app"], errors: &[] },
    Case {
        flake: "D10",
        arguments: &[],
        jobs: &[
            ".dotStart .hidden",
            ".dotted x.drv.txt",
            ".env env",
            concat!(
                ".long nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
                "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
                "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
                "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
            ),
            ".punctuation a+b-._?=c",
        ],
        errors: &[(".tooLong", "must be no longer than 211 characters")],
    },
    Case {
        flake: "D11",
        arguments: &[],
        jobs: &[".chain link-400", ".diamond diamond", ".fanIn fan-in"],
        errors: &[],
    },
    Case {
        flake: "F03",
        arguments: &[],
        jobs: &[".dirlist dirlist", ".good good"],
        errors: &[
            (".absolute", "forbidden in pure evaluation mode"),
            (".home", "can not be resolved in pure mode"),
            (".parent", "forbidden in pure evaluation mode"),
        ],
    },
    Case {
        flake: "X06",
        arguments: &[],
        jobs: &[".both both", ".quiet quiet", ".traced traced", ".warned warned"],
        errors: &[],
    },
];

/// Cases whose result follows from the pattern: a fleet does not look at marks in sets.
pub const BY_PATTERN: &[Case] = &[
    Case {
        flake: "R01",
        arguments: &["legacyPackages.*.*"],
        jobs: &["legacyPackages.x86_64-linux.top top"],
        errors: &[],
    },
    Case {
        flake: "R01",
        arguments: &["legacyPackages.x86_64-linux.*"],
        jobs: &[
            "legacyPackages.x86_64-linux.absent.inner absent-inner",
            "legacyPackages.x86_64-linux.no.inner no-inner",
            "legacyPackages.x86_64-linux.top top",
            "legacyPackages.x86_64-linux.yes.inner yes-inner",
        ],
        errors: &[],
    },
    Case {
        flake: "R01",
        arguments: &["legacyPackages.x86_64-linux.absent.inner"],
        jobs: &["legacyPackages.x86_64-linux.absent.inner absent-inner"],
        errors: &[],
    },
];
