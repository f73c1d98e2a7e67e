//! Which paths a store knows. Files alone say nothing: a stop in the middle of a fetch leaves some that
//! the store knows nothing of, and an evaluation would trip over them.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::StorePath;
use serde_json::Value;

use crate::error::FetchError;
use crate::session::Session;

/// Most paths of one question; they are arguments of a program.
const PATHS_MAX: usize = 500;

/// Those of some paths that the store knows. If it does not say, it knows none: what is there is not
/// fetched again, so asking for too much is cheap.
pub(crate) async fn of(
    session: &Session<'_>,
    paths: BTreeSet<StorePath>,
) -> Result<BTreeSet<StorePath>, FetchError> {
    let mut valid = BTreeSet::new();
    let paths: Vec<StorePath> = paths.into_iter().collect();
    for some in paths.chunks(PATHS_MAX) {
        let texts: Vec<String> = some.iter().map(StorePath::to_string).collect();
        // No cache is asked: what it has is not here.
        let mut arguments = vec!["path-info", "--json", "--option", "substitute", "false", "--"];
        arguments.extend(texts.iter().map(String::as_str));
        match session.nix(&arguments).await {
            Ok(answer) => valid.extend(known(&answer.stdout, some)),
            Err(error @ FetchError::Timeout { .. }) => return Err(error),
            Err(error) => tracing::info!(%error, "the store does not say what it knows"),
        }
    }
    Ok(valid)
}

/// The paths of an answer that have more than a name. Some versions of Nix leave the folder out.
fn known(answer: &[u8], asked: &[StorePath]) -> Vec<StorePath> {
    let answer: BTreeMap<String, Value> = serde_json::from_slice(answer).unwrap_or_default();
    let is_known = |path: &&StorePath| {
        let info = answer.get(&path.to_string()).or_else(|| answer.get(path.base_name()));
        info.is_some_and(Value::is_object)
    };
    asked.iter().filter(is_known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_information_is_not_known() {
        let paths: Vec<StorePath> =
            (1..=4).map(|n| StorePath::from_parts(&[n; 20], "source").expect("a path")).collect();
        let answer = format!(
            r#"{{"{}":{{"narSize":1}},"{}":null,"{}":{{}}}}"#,
            paths[0],
            paths[1],
            paths[2].base_name()
        );
        let expected = [paths[0].clone(), paths[2].clone()];
        assert_eq!(known(answer.as_bytes(), &paths), expected);
        assert!(known(b"[]", &paths).is_empty());
    }
}
