//! What can go wrong between the local store and the cache.

use std::collections::BTreeSet;
use std::io;

use gradient_domain::StorePath;
use gradient_events::FailureKind;
use reqwest::StatusCode;

use super::nar_reader::NotThatNar;

/// Failure of an exchange with the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The cache cannot be reached, or the connection broke.
    #[error("{what}: the cache cannot be reached")]
    Transport {
        /// What was being done.
        what: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// A transfer broke off.
    #[error("{path}: the transfer broke off")]
    Interrupted {
        /// The path.
        path: StorePath,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The cache answered with a refusal.
    #[error("{what}: the cache answers {status}: {message}")]
    Refused {
        /// What was being done.
        what: String,
        /// The status of HTTP.
        status: StatusCode,
        /// The code of the refusal; empty if it gave none.
        code: String,
        /// Its words.
        message: String,
        /// The right offset of a log, if the given one was wrong.
        offset: Option<u64>,
    },
    /// The cache answered with something else than it should.
    #[error("{what}: {reason}")]
    Malformed {
        /// What was being read.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A secret would travel where others can read it.
    #[error(
        "{what}: a key is not asked for without TLS; give the worker an https:// address of the server"
    )]
    OpenWay {
        /// What would have been asked.
        what: String,
    },
    /// The cache lacks some paths, and so does the local store.
    #[error("{} required path(s) are not in the cache", paths.len())]
    NotInCache {
        /// Which.
        paths: BTreeSet<StorePath>,
    },
    /// What the cache says of a path is not signed by the trusted key.
    #[error("{path} is not signed by the trusted key")]
    Untrusted {
        /// The path.
        path: StorePath,
    },
    /// What the cache sends for a path is not that path.
    #[error("{path} is corrupt in the cache: {reason}")]
    Corrupt {
        /// The path.
        path: StorePath,
        /// What is wrong with it.
        reason: String,
    },
    /// A path that shall be uploaded is not in the local store.
    #[error("{path} is not valid in the local store")]
    NotValid {
        /// The path.
        path: StorePath,
    },
    /// The local daemon failed.
    #[error("{path}: local store")]
    Daemon {
        /// The path that it was about; the first of several.
        path: StorePath,
        /// Why.
        #[source]
        source: gradient_daemon::Error,
    },
}

impl CacheError {
    /// An error of a daemon that was about this path.
    pub(crate) fn daemon(path: &StorePath) -> impl Fn(gradient_daemon::Error) -> Self + '_ {
        move |source| match source {
            gradient_daemon::Error::Source { source, .. } => Self::from_reading(path, source),
            source => CacheError::Daemon { path: path.clone(), source },
        }
    }

    /// An error while the NAR of this path was read from the cache.
    pub(crate) fn from_reading(path: &StorePath, source: io::Error) -> Self {
        let path = path.clone();
        match source.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(NotThatNar(reason)) => CacheError::Corrupt { path, reason: reason.clone() },
            None => CacheError::Interrupted { path, source },
        }
    }

    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            CacheError::Transport { source, .. } => !source.is_builder(),
            CacheError::Interrupted { .. } => true,
            CacheError::Refused { status, .. } => {
                matches!(
                    *status,
                    StatusCode::REQUEST_TIMEOUT
                        | StatusCode::TOO_MANY_REQUESTS
                        | StatusCode::INTERNAL_SERVER_ERROR
                        | StatusCode::BAD_GATEWAY
                        | StatusCode::SERVICE_UNAVAILABLE
                        | StatusCode::GATEWAY_TIMEOUT
                )
            }
            CacheError::Daemon { source, .. } => source.retry() != gradient_daemon::Retry::Never,
            CacheError::Malformed { .. }
            | CacheError::OpenWay { .. }
            | CacheError::NotInCache { .. }
            | CacheError::Untrusted { .. }
            | CacheError::Corrupt { .. }
            | CacheError::NotValid { .. } => false,
        }
    }

    /// How a job ends that fails with this error.
    #[must_use]
    pub fn failure_kind(&self) -> FailureKind {
        match self {
            CacheError::NotInCache { .. }
            | CacheError::Untrusted { .. }
            | CacheError::Corrupt { .. } => FailureKind::InputsUnavailable,
            // The NAR of a narinfo that is there is gone.
            CacheError::Refused { status, .. }
                if matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE) =>
            {
                FailureKind::InputsUnavailable
            }
            CacheError::Transport { .. }
            | CacheError::Interrupted { .. }
            | CacheError::Refused { .. }
            | CacheError::Malformed { .. }
            | CacheError::NotValid { .. }
            | CacheError::Daemon { .. } => FailureKind::Transient,
            CacheError::OpenWay { .. } => FailureKind::Permanent,
        }
    }

    /// The paths whose lack or fault it is.
    #[must_use]
    pub fn paths(&self) -> BTreeSet<StorePath> {
        match self {
            CacheError::NotInCache { paths } => paths.clone(),
            CacheError::Untrusted { path } | CacheError::Corrupt { path, .. } => {
                BTreeSet::from([path.clone()])
            }
            CacheError::Transport { .. }
            | CacheError::Interrupted { .. }
            | CacheError::Refused { .. }
            | CacheError::Malformed { .. }
            | CacheError::OpenWay { .. }
            | CacheError::NotValid { .. }
            | CacheError::Daemon { .. } => BTreeSet::new(),
        }
    }

    /// The error and its causes in one line.
    #[must_use]
    pub fn in_full(&self) -> String {
        gradient_runtime::causes(self)
    }
}
