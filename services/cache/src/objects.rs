//! The objects of the cache: NARs under the hash of their file, narinfos under the hash of their
//! path. The folder is itself a binary cache that `file://` reads.

use std::path::{Path as FilePath, PathBuf};

use axum::body::Body;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use gradient_daemon::NarInfo;
use gradient_domain::{StorePath, nix_base32};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore as _, PutMode, PutOptions, WriteMultipart};
use uuid::Uuid;

use crate::error::Error;
use crate::settings::OpenError;

/// Parts of a staged NAR that are being written while more is received (5 MiB each).
const PARTS_IN_FLIGHT_MAX: usize = 2;

/// Folder of unfinished uploads; emptied at start.
const STAGING: &str = "staging";

#[derive(Debug)]
pub(crate) struct Objects {
    dir: PathBuf,
    store: LocalFileSystem,
    is_synced: bool,
}

/// SHA-256 of a compressed NAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHash(pub(crate) [u8; 32]);

impl FileHash {
    /// Reads `<52 digits>.nar.zst`.
    pub(crate) fn parse_file_name(name: &str) -> Option<Self> {
        nix_base32::decode(name.strip_suffix(".nar.zst")?).map(FileHash)
    }

    /// Where the NAR is, relative to the cache.
    pub(crate) fn url(self) -> String {
        format!("nar/{}.nar.zst", nix_base32::encode(&self.0))
    }
}

/// The key of a narinfo: the hash part of a store path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashPart(String);

impl HashPart {
    /// Reads `<32 digits>.narinfo`.
    pub(crate) fn parse_file_name(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(".narinfo")?;
        nix_base32::decode::<20>(digits).map(|_| HashPart(digits.to_owned()))
    }

    fn location(&self) -> Path {
        Path::from(format!("{}.narinfo", self.0))
    }
}

impl From<&StorePath> for HashPart {
    fn from(path: &StorePath) -> Self {
        HashPart(path.hash_part().to_owned())
    }
}

/// A NAR that is being received and that nobody can see yet.
pub(crate) struct Staged {
    location: Path,
    writer: WriteMultipart,
}

impl Staged {
    pub(crate) async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        self.writer.wait_for_capacity(PARTS_IN_FLIGHT_MAX).await.map_err(|e| Error::storage(&e))?;
        self.writer.put(bytes.clone());
        Ok(())
    }

    pub(crate) async fn discard(self) {
        if let Err(error) = self.writer.abort().await {
            tracing::warn!(%error, "an unfinished upload cannot be removed");
        }
    }
}

impl Objects {
    pub(crate) fn open(dir: &FilePath, is_synced: bool) -> Result<Self, OpenError> {
        let staging = dir.join(STAGING);
        let prepare = || {
            match std::fs::remove_dir_all(&staging) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            std::fs::create_dir_all(&staging)?;
            std::fs::create_dir_all(dir.join("nar"))
        };
        prepare().map_err(|source| OpenError::File { path: dir.to_owned(), source })?;
        match LocalFileSystem::new_with_prefix(dir) {
            Ok(store) => Ok(Objects { dir: dir.to_owned(), store, is_synced }),
            Err(source) => Err(OpenError::Objects { path: dir.to_owned(), source }),
        }
    }

    pub(crate) async fn stage(&self) -> Result<Staged, Error> {
        let location = Path::from(format!("{STAGING}/{}", Uuid::new_v4()));
        let upload = self.store.put_multipart(&location).await.map_err(|e| Error::storage(&e))?;
        let writer = WriteMultipart::new(upload);
        Ok(Staged { location, writer })
    }

    /// Moves a received NAR to its place. Nothing refers to it yet.
    pub(crate) async fn place(&self, staged: Staged, hash: FileHash) -> Result<(), Error> {
        let storage = |error: object_store::Error| Error::storage(&error);
        staged.writer.finish().await.map_err(storage)?;
        let place = Path::from(hash.url());
        if self.is_synced {
            self.sync(&staged.location).await?;
        }
        self.store.rename(&staged.location, &place).await.map_err(storage)?;
        if self.is_synced {
            self.sync(&Path::from("nar")).await?;
        }
        Ok(())
    }

    /// Makes a file or a folder reach the disk.
    async fn sync(&self, location: &Path) -> Result<(), Error> {
        let path = self.dir.join(location.as_ref());
        tokio::task::spawn_blocking(move || std::fs::File::open(path)?.sync_all())
            .await
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|e| Error::storage(&e))
    }

    /// Writes a narinfo unless there is one: whether it is new.
    pub(crate) async fn publish(&self, narinfo: &NarInfo) -> Result<bool, Error> {
        let location = HashPart::from(&narinfo.path).location();
        let text = Bytes::from(narinfo.to_string());
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&location, text.into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(Error::storage(&error)),
        }
    }

    /// The text of a narinfo, if it is there.
    pub(crate) async fn narinfo_text(&self, hash: &HashPart) -> Result<Option<Bytes>, Error> {
        match self.store.get(&hash.location()).await {
            Ok(found) => match found.bytes().await {
                Ok(text) => Ok(Some(text)),
                Err(error) => Err(Error::storage(&error)),
            },
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::storage(&error)),
        }
    }

    /// The narinfo of exactly this path, if it is there.
    pub(crate) async fn narinfo(&self, path: &StorePath) -> Result<Option<NarInfo>, Error> {
        let Some(text) = self.narinfo_text(&path.into()).await? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&text);
        match NarInfo::parse(&text) {
            Ok(narinfo) => Ok(Some(narinfo).filter(|narinfo| narinfo.path == *path)),
            Err(error) => Err(Error::Storage(format!("{path}: {error}"))),
        }
    }

    /// A NAR as a body and its size in bytes.
    pub(crate) async fn nar(&self, hash: FileHash) -> Result<(Body, u64), Error> {
        let url = hash.url();
        match self.store.get(&Path::from(url.as_str())).await {
            Ok(found) => {
                let size = found.meta.size;
                let stream = found.into_stream().map_err(std::io::Error::other);
                Ok((Body::from_stream(stream), size))
            }
            Err(object_store::Error::NotFound { .. }) => Err(Error::NotFound(url)),
            Err(error) => Err(Error::storage(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_parsed_not_used() {
        let hash = FileHash([9; 32]);
        let url = hash.url();
        let name = url.strip_prefix("nar/").expect("in nar");
        assert_eq!(FileHash::parse_file_name(name), Some(hash));
        for junk in ["", "x.nar.zst", "../../etc/passwd", &name[1..], &name[..10]] {
            assert_eq!(FileHash::parse_file_name(junk), None, "{junk}");
            assert_eq!(HashPart::parse_file_name(junk), None, "{junk}");
        }
        let info = "0mdqa9w1p6cmli6976v4wi0sw9r4p5pr.narinfo";
        assert!(HashPart::parse_file_name(info).is_some());
        assert_eq!(HashPart::parse_file_name(&info.replace('0', "/")), None);
    }
}
