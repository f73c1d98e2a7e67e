//! Patterns that nothing was told of.

use gradient_domain::AttrPath;
use gradient_domain::pattern::{Pattern, PatternSet, ROOTS, Segment};
use gradient_ipc::shard::Recursion;
use gradient_ipc::tree::AttrError;

use crate::evaluation::DiscoverError;
use crate::resolver::Resolver;
use crate::transport::Warning;

impl Resolver {
    /// Whether something told about this path answers this pattern.
    fn is_of(&self, include: &Pattern, path: &AttrPath) -> bool {
        let is_deep = self.discovery.recursion() != Recursion::Pattern
            && include.segments.last() == Some(&Segment::Star);
        let depth = path.0.len().min(include.segments.len());
        include.reaches(path)
            || include.passes(path)
            || (is_deep && include.reaches(&AttrPath(path.0[..depth].to_vec())))
    }

    /// Whoever names an attribute wants it to be there; a wildcard may match nothing.
    pub(crate) async fn report_unmatched(
        &mut self,
        patterns: &PatternSet,
    ) -> Result<(), DiscoverError> {
        let whole_tree = |include: &Pattern| include.segments == [Segment::Star];
        if patterns.includes.iter().all(whole_tree) {
            // A local evaluation of a whole tree names nothing, so nothing of it is missing.
            return Ok(());
        }
        let unmatched: Vec<_> = patterns
            .includes
            .iter()
            .filter(|include| !self.merge.paths().any(|path| self.is_of(include, path)))
            .collect();
        let everything = ROOTS.map(|root| Pattern {
            exclude: false,
            segments: vec![Segment::Name(root.to_owned()), Segment::Star],
        });
        let wants_everything = everything.iter().all(|root| patterns.includes.contains(root));
        let nothing = everything.iter().all(|root| unmatched.contains(&root));
        if wants_everything && nothing {
            let text = "pattern '*' matched no derivations in the flake".to_owned();
            self.warning(Warning { path: None, text }).await?;
        }
        for include in unmatched {
            if let Some(path) = include.exact_path() {
                let message = format!("target '{path}' matched no derivations in the flake");
                self.error(AttrError { attr: path, message }).await?;
            } else if !(wants_everything && everything.contains(include)) {
                let text = format!("pattern '{include}' matched no derivations in the flake");
                self.warning(Warning { path: None, text }).await?;
            }
        }
        Ok(())
    }
}
