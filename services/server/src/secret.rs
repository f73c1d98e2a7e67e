//! Secrets from files. They stay out of arguments, environments and logs.

use std::path::Path;

use anyhow::Context as _;

/// The text of a secret file without white space at its ends.
pub(crate) fn read(file: Option<&Path>, what: &'static str) -> anyhow::Result<String> {
    let file = file.with_context(|| format!("{what} is missing: name its file"))?;
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {what} in {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// As [`read`], or nothing if no file is named.
pub(crate) fn read_optional(
    file: Option<&Path>,
    what: &'static str,
) -> anyhow::Result<Option<String>> {
    file.map(|file| read(Some(file), what)).transpose()
}
