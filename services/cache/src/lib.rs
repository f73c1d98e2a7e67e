//! The cache service: a binary cache over HTTP that plain Nix reads and workers fill, the logs of
//! builds, and the evaluation caches that workers share.
//!
//! Layer: a service of its own. Wall: it knows nothing of the scheduler. What it stores is verified
//! before anybody can see it, written once and signed by its own key; text from outside becomes a
//! store path, a hash or a log id before it names a file.

mod claim;
mod error;
mod eval_cache_http;
mod eval_caches;
mod http;
mod log_http;
mod logs;
mod objects;
mod receive;
mod settings;
pub mod token;
mod upload;

pub use error::Error;
pub use eval_cache_http::{EVAL_CACHE_SIZE_HEADER, EvalCacheAnswer};
pub use http::router;
pub use logs::LOG_ID_LEN_MAX;
pub use settings::{CacheSettings, CacheState, OpenError};
pub use token::{Scope, TokenError, UploadToken};
pub use upload::{METADATA_HEADER, UploadAnswer, UploadMetadata};
