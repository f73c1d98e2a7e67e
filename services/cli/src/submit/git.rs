//! A commit of a repository of this machine: fetched with the user's own Nix into a store that is
//! thrown away, since workers do not see this machine's files.

use gradient_domain::flake::Commit;
use gradient_fetch::{Fetcher, Reach};

use super::source::Tree;
use crate::eval::{Store, Vanishing};
use crate::exit::Failure;
use crate::up::programs;

/// A fetched commit; its store goes with it.
pub(super) struct Checkout {
    fetched: gradient_fetch::Tree,
    fetcher: Fetcher,
    _store: Vanishing,
}

impl Checkout {
    /// Fetches `git+file:...`: the given commit or branch, else the commit of the checkout.
    pub(super) async fn fetch(url: &str) -> Result<Self, Failure> {
        let nix = programs::nix_or_failure()?;
        let (store, folder) = Store::throw_away()?;
        let fetcher = Fetcher::new(nix, store.uri, store.dir, folder.path().join("fetch-cache"));
        let fetched = fetcher.fetch_tree(url, Reach::LocalCommit).await?;
        let checkout = Self { fetched, fetcher, _store: folder };
        checkout.tree().check()?;
        Ok(checkout)
    }

    pub(super) fn commit(&self) -> Option<Commit> {
        self.fetched.commit.clone()
    }

    /// Its files.
    pub(super) fn tree(&self) -> Tree {
        let root = self.fetcher.store_dir.join(self.fetched.path.base_name());
        Tree::whole(root, self.fetched.subdir.clone())
    }
}
