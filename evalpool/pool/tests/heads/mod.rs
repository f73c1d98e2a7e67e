//! Comparing errors by their heads.

/// Asserts the heads of errors, in order.
pub(crate) fn assert_errors(errors: &[String], expected: &[(&str, &str)]) {
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, (name, text)) in errors.iter().zip(expected) {
        let (path, message) = error.split_once(": ").expect("path");
        assert!(path.ends_with(name), "{error} is not about {name}");
        assert!(message.contains(text), "{error} does not say {text}");
    }
}
