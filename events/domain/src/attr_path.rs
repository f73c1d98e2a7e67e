//! Attribute paths are lists of names everywhere (ADR 11); dotted text is only for showing, with one
//! strict quoting that reads back to the same list.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most names in one path.
pub const DEPTH_MAX: usize = 512;

/// The names that lead from a flake's outputs to a value.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(transparent)]
pub struct AttrPath(pub Vec<String>);

impl AttrPath {
    /// This path and one more name.
    #[must_use]
    pub fn child(&self, name: &str) -> AttrPath {
        let mut names = Vec::with_capacity(self.0.len() + 1);
        names.extend_from_slice(&self.0);
        names.push(name.to_owned());
        AttrPath(names)
    }

    /// Whether the path names the root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<S: Into<String>> FromIterator<S> for AttrPath {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        AttrPath(names.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for AttrPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, name) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(".")?;
            }
            write_name(f, name)?;
        }
        Ok(())
    }
}

/// Whether a name stands bare in dotted text: as an identifier of the Nix language, digits in front
/// allowed as package names have them.
#[must_use]
pub fn is_bare(name: &str) -> bool {
    let first_is_plain =
        name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    first_is_plain && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-'".contains(&b))
}

fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if is_bare(name) {
        return f.write_str(name);
    }
    if let "*" | "#" | "!" = name {
        // A pattern refuses a quoted special character, so the name itself is written escaped.
        return write!(f, "\"\\u{{{:x}}}\"", name.as_bytes()[0]);
    }
    f.write_str("\"")?;
    for c in name.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '$' => f.write_str("\\$")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_where_needed() {
        let rows = [
            (vec!["packages", "x86_64-linux", "hello"], "packages.x86_64-linux.hello"),
            (vec!["packages", "tool-1.2"], "packages.\"tool-1.2\""),
            (vec!["a", ""], "a.\"\""),
            (vec!["quo\"te", "back\\slash"], "\"quo\\\"te\".\"back\\\\slash\""),
            (vec!["dollar${x}", "line\nbreak"], "\"dollar\\${x}\".\"line\\nbreak\""),
            (vec!["-dash", "1st", "star*"], "\"-dash\".1st.\"star*\""),
            (vec!["bell\u{7}"], "\"bell\\u{7}\""),
        ];
        for (names, text) in rows {
            assert_eq!(names.iter().copied().collect::<AttrPath>().to_string(), text);
        }
    }
}
