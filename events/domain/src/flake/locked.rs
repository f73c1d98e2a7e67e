//! References that mean the same for ever.

/// Schemes of forges, whose references name a commit by `rev` or by their third part.
const FORGES: [&str; 3] = ["github", "gitlab", "sourcehut"];

/// Whether a reference gives the same source for ever: it names the hash of the source, or a commit of
/// a repository. Only what Nix checks counts: of a folder or a tarball a `rev` is a mere note.
///
/// What is written in another way than Nix writes it is not taken for locked.
#[must_use]
pub fn is_locked(reference: &str) -> bool {
    let reference = reference.split('#').next().unwrap_or(reference);
    let (place, query) = reference.split_once('?').unwrap_or((reference, ""));
    // Which of two values Nix believes is its matter.
    let is_all = |name: &str, is_right: fn(&str) -> bool| {
        let values = query.split('&').filter_map(|one| one.split_once('='));
        let mut values = values.filter(|(key, _)| *key == name).map(|(_, value)| value).peekable();
        values.peek().is_some() && values.all(is_right)
    };
    if is_all("narHash", is_nar_hash) {
        return true;
    }
    let Some((scheme, path)) = place.split_once(':') else { return false };
    let is_forge = FORGES.contains(&scheme);
    // Further parts would make it the name of a branch.
    let mut parts = path.split('/').skip(2);
    let is_third = matches!((parts.next(), parts.next()), (Some(part), None) if is_commit(part));
    let is_repository = is_forge || scheme.starts_with("git+");
    (is_repository && is_all("rev", is_commit)) || (is_forge && is_third)
}

/// SHA-1 or SHA-256 in hexadecimal.
fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `sha256-` and base64, perhaps escaped.
fn is_nar_hash(text: &str) -> bool {
    let hash = text.strip_prefix("sha256-").unwrap_or_default();
    hash.len() >= 43
        && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=%".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::is_locked;

    const REV: &str = "58ea48b59af2a7d0940305131b1228305c11ba86";
    const HASH: &str = "sha256-FV1nyfXAADQTyDZmve5vuMyjE/ewdnyWhCunQBpgS0E";

    #[test]
    fn locked_references_are_told_from_moving_ones() {
        for (reference, locked) in [
            ("github:o/r/REV", true),
            ("github:o/r/REV?dir=a#packages", true),
            ("gitlab:o%2Fg/r/REV", true),
            ("sourcehut:~o/r?rev=REV", true),
            ("git+https://h/r?ref=main&rev=REV", true),
            ("git+ssh://git@h/r?rev=REVREV", false),
            ("git+file:///r?rev=REV", true),
            ("git+https://h/r?narHash=HASH=", true),
            ("path:/nix/store/x?narHash=HASH%3D", true),
            ("https://h/x.tar.gz?narHash=HASH%3D&rev=REV", true),
            ("tarball+https://h/x?narHash=HASH=", true),
            ("path:/x?rev=REV", false),
            ("/x?rev=REV", false),
            ("https://h/x.tar.gz?rev=REV", false),
            ("https://h/REV", false),
            ("tarball+https://h/x?rev=REV", false),
            ("file+https://h/x?rev=REV", false),
            ("hg+https://h/x?rev=REV", false),
            ("nixpkgs?rev=REV", false),
            ("flake:nixpkgs/REV", false),
            ("github:o/r", false),
            ("github:o/r/main", false),
            ("github:o/r/branch/REV", false),
            ("github:o/REV", false),
            ("github:o/r?rev=main", false),
            ("github:o/r#?rev=REV", false),
            ("git+https://h/r?ref=REV", false),
            ("git+https://h/r?rev=", false),
            ("git+https://h/r?rev=REV&rev=main", false),
            ("git+https://h/o/r/REV", false),
            ("https://h/x?narHash=", false),
            ("https://h/x?narHash=HASH&narHash=sha256-x", false),
            ("", false),
        ] {
            let reference = reference.replace("REV", REV).replace("HASH", HASH);
            assert_eq!(is_locked(&reference), locked, "{reference}");
        }
    }
}
