//! What a `flake.nix` asks for as its inputs, and whether a lock file locks that.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::FetchError;
use crate::literals::{self, Literal};

/// Largest `flake.nix` of somebody else, in bytes.
const FLAKE_BYTES_MAX: u64 = 1 << 20;

/// What stands in the place of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// Another input.
    Follows,
    /// A reference as it is written, a text or attributes.
    Reference { written: Value, is_asked_for: bool },
}

/// What a `flake.nix` writes down of its inputs.
pub(crate) fn read(folder: &Path) -> Result<Vec<Literal>, FetchError> {
    let file = folder.join("flake.nix");
    let failed = |source| FetchError::File { path: file.clone(), source };
    if std::fs::metadata(&file).map_err(failed)?.len() > FLAKE_BYTES_MAX {
        let reason = format!("flake.nix has more than {FLAKE_BYTES_MAX} bytes");
        return Err(FetchError::Refused { reason });
    }
    let text = std::fs::read(&file).map_err(failed)?;
    Ok(literals::inputs(&String::from_utf8_lossy(&text)))
}

/// Attributes by the path of their input.
pub(crate) fn by_input(literals: Vec<Literal>) -> BTreeMap<String, Map<String, Value>> {
    let mut inputs: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for Literal { input, attribute, text, is_text } in literals {
        let value = if is_text { Value::from(text) } else { Value::from(text == "true") };
        inputs.entry(input).or_default().insert(attribute, value);
    }
    inputs
}

/// What a flake gives for an input; nothing if it says nothing of where it is.
pub(crate) fn given(attributes: &Map<String, Value>) -> Option<Given> {
    if attributes.contains_key("follows") {
        return Some(Given::Follows);
    }
    let is_own = |name: &&String| !matches!(name.as_str(), "flake" | "inputs" | "");
    let written = match (attributes.get("type"), attributes.get("url")) {
        // Beside a folder of its own, Nix knows no other without a scheme.
        (None, Some(Value::String(url))) if url.starts_with('.') => {
            Value::from(format!("path:{url}"))
        }
        (None, url) => url?.clone(),
        (Some(_), _) => {
            let own = attributes.keys().filter(is_own);
            Value::Object(own.map(|name| (name.clone(), attributes[name].clone())).collect())
        }
    };
    Some(Given::Reference { written, is_asked_for: false })
}

/// Whether a lock file locks what is written, in the form that needs no Nix to tell.
pub(crate) fn is_written_as(node: &Value, written: &Value) -> bool {
    let Some(original) = node.get("original").and_then(Value::as_object) else { return false };
    let Some(url) = written.as_str() else { return written.as_object() == Some(original) };
    let text = |name: &str| original.get(name).and_then(Value::as_str);
    let plain = match (text("type"), original.len()) {
        (Some(forge @ ("github" | "gitlab" | "sourcehut")), 3 | 4) => {
            let (Some(owner), Some(repo)) = (text("owner"), text("repo")) else { return false };
            match (original.len(), text("ref").or(text("rev"))) {
                (3, None) => format!("{forge}:{owner}/{repo}"),
                (4, Some(at)) => format!("{forge}:{owner}/{repo}/{at}"),
                _ => return false,
            }
        }
        (Some("tarball"), 2) => text("url").unwrap_or_default().to_owned(),
        _ => return false,
    };
    plain == url && !url.contains(['%', '?', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_locked_as_it_is_written_needs_no_nix() {
        for (original, written, expected) in [
            (json!({"type": "github", "owner": "o", "repo": "r"}), json!("github:o/r"), true),
            (
                json!({"type": "github", "owner": "o", "repo": "r", "ref": "m"}),
                json!("github:o/r/m"),
                true,
            ),
            (
                json!({"type": "gitlab", "owner": "o", "repo": "r", "rev": "abc"}),
                json!("gitlab:o/r/abc"),
                true,
            ),
            (
                json!({"type": "github", "owner": "o", "repo": "r", "dir": "d"}),
                json!("github:o/r"),
                false,
            ),
            (json!({"type": "github", "owner": "o", "repo": "s"}), json!("github:o/r"), false),
            (json!({"type": "tarball", "url": "https://x/y"}), json!("https://x/y"), true),
            (json!({"type": "tarball", "url": "https://x/y"}), json!("https://x/z"), false),
            // What Nix makes of these is its to say.
            (json!({"type": "tarball", "url": "https://x/%79"}), json!("https://x/%79"), false),
            (json!({"type": "git", "url": "https://x/y"}), json!("git+https://x/y"), false),
            (
                json!({"type": "git", "url": "https://x"}),
                json!({"type": "git", "url": "https://x"}),
                true,
            ),
            (json!(null), json!("github:o/r"), false),
        ] {
            let node = json!({ "original": original });
            assert_eq!(is_written_as(&node, &written), expected, "{original} {written}");
        }
        assert!(!is_written_as(&json!({}), &json!("github:o/r")));
    }

    #[test]
    fn what_a_flake_says_of_an_input_is_a_reference_or_another_input() {
        let written = |text: &str| {
            let flake = format!("{{ inputs.a = {{ {text} }}; outputs = _: {{ }}; }}");
            let inputs = by_input(literals::inputs(&flake));
            inputs.get("a").and_then(given).map(|given| match given {
                Given::Follows => json!("follows"),
                Given::Reference { written, .. } => written,
            })
        };
        assert_eq!(written("url = \"github:o/r\"; flake = false;"), Some(json!("github:o/r")));
        assert_eq!(written("url = \"./x\";"), Some(json!("path:./x")));
        assert_eq!(written("follows = \"b\";"), Some(json!("follows")));
        assert_eq!(
            written("type = \"git\"; url = \"https://h\";"),
            Some(json!({"type": "git", "url": "https://h"}))
        );
        assert_eq!(
            written("type = \"github\"; owner = \"o\"; repo = \"r\"; flake = true;"),
            Some(json!({"type": "github", "owner": "o", "repo": "r"}))
        );
        assert_eq!(written("flake = false;"), None);
    }
}
