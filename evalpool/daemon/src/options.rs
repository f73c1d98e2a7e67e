//! `SetOptions`: how a connection wants the daemon to work.

use std::collections::BTreeMap;

use crate::wire::Encoder;

/// Settings of one connection. The default builds with all cores, without substitution and without
/// limits.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// Cores per build (`NIX_BUILD_CORES`); 0 is all.
    pub cores: u32,
    /// Wall-clock limit of a build in seconds; 0 is none.
    pub timeout_secs: u64,
    /// Limit in seconds without a line of log; 0 is none.
    pub max_silent_secs: u64,
    /// Whether the daemon may download from its own substituters.
    pub substitute: bool,
    /// Further settings of Nix by name; a daemon that does not trust us ignores most.
    pub overrides: BTreeMap<String, String>,
}

const VERBOSITY_INFO: u64 = 3;
/// Log lines of builders come as results, not on the error output.
const VERBOSE_BUILD_OFF: u64 = 7;
const MAX_BUILD_JOBS: u64 = 1;

impl ClientOptions {
    /// The request `SetOptions`.
    pub(crate) fn encode(&self, operation: u64) -> Encoder {
        let mut overrides = self.overrides.clone();
        if self.timeout_secs > 0 {
            overrides.insert("timeout".into(), self.timeout_secs.to_string());
        }
        let request = Encoder::operation(operation)
            .flag(false) // keep failed
            .flag(false) // keep going
            .flag(false) // fall back to building
            .number(VERBOSITY_INFO)
            .number(MAX_BUILD_JOBS)
            .number(self.max_silent_secs)
            .number(1) // build hook, obsolete
            .number(VERBOSE_BUILD_OFF)
            .number(0)
            .number(0)
            .number(u64::from(self.cores))
            .flag(self.substitute)
            .number(overrides.len() as u64);
        overrides.iter().fold(request, |request, (name, value)| {
            request.bytes(name.as_bytes()).bytes(value.as_bytes())
        })
    }
}
