//! Marks on the standard error of a subprocess: where the evaluator is while it prints.
//!
//! The pipe carries what Nix prints, and Nix prints whatever the code says that it evaluates. So
//! every mark carries a secret that the parent made up for this subprocess and told it in `Start`,
//! never in its arguments or environment, which code can read. A line that looks like a mark and
//! lacks the secret is text.

use gradient_domain::AttrPath;
use gradient_domain::pattern::Pattern;

/// What every mark begins with.
const SEPARATOR: char = '\u{1e}';

/// The marks of one subprocess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// What every line of a mark begins with.
    head: String,
}

/// Where a subprocess is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is done with the request of this number, from 1, and is about to answer: whatever Nix
    /// printed for the request stands before this.
    Done(u64),
    /// It is about to look at this attribute; `None` if the path cannot be read.
    At(Option<AttrPath>),
}

impl Marks {
    /// The marks with this secret.
    #[must_use]
    pub fn new(nonce: &str) -> Marks {
        Marks { head: format!("{SEPARATOR}{nonce} ") }
    }

    /// What the subprocess writes at the end of the request of this number. It ends whatever line
    /// was begun.
    #[must_use]
    pub fn done(&self, request: u64) -> String {
        format!("\n{}done {request}\n", self.head)
    }

    /// What the subprocess writes before it looks at an attribute. It ends whatever line was begun.
    #[must_use]
    pub fn at(&self, path: &AttrPath) -> String {
        format!("\n{}at {path}\n", self.head)
    }

    /// The mark that a line is, if it is one.
    #[must_use]
    pub fn read(&self, line: &str) -> Option<Mark> {
        let (kind, rest) = line.strip_prefix(&self.head)?.split_once(' ')?;
        match kind {
            "done" => rest.parse().ok().map(Mark::Done),
            "at" => {
                let path = match rest {
                    "" => Some(AttrPath::default()),
                    rest => rest.parse().ok().and_then(|pattern: Pattern| pattern.exact_path()),
                };
                Some(Mark::At(path))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_read_back_with_their_secret_only() {
        let (ours, others) = (Marks::new("5ec7e7"), Marks::new("5ec7e8"));
        let path: AttrPath = ["a", "b.c", "line\nbreak", "*", ""].into_iter().collect();
        let rows = [(ours.done(7), Mark::Done(7)), (ours.at(&path), Mark::At(Some(path)))];
        for (text, mark) in rows {
            let line = text.trim_matches('\n');
            assert!(!line.contains('\n') && text == format!("\n{line}\n"), "{text:?}");
            assert_eq!(ours.read(line), Some(mark));
            assert_eq!(others.read(line), None);
        }
        let texts = ["", "\u{1e}", "\u{1e}5ec7e7", "5ec7e7 done 1", " \u{1e}5ec7e7 done 1"];
        for text in texts.into_iter().chain(["\u{1e}5ec7e7 done", "\u{1e}5ec7e7 done -1"]) {
            assert_eq!(ours.read(text), None, "{text:?}");
        }
        let root = ours.at(&AttrPath::default());
        assert_eq!(ours.read(root.trim_matches('\n')), Some(Mark::At(Some(AttrPath::default()))));
        // What it looks at cannot be told of anything then.
        assert_eq!(ours.read("\u{1e}5ec7e7 at a..b"), Some(Mark::At(None)));
    }
}
