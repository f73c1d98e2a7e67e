//! Who this worker is: a UUID kept in its base directory (reference 1.5).

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use gradient_domain::WorkerId;
use uuid::Uuid;

/// The id given, the one stored, or a new one that is stored first.
///
/// # Errors
/// If the file cannot be read or written, or holds no UUID.
pub fn worker_id(base_dir: &Path, given: Option<Uuid>) -> anyhow::Result<WorkerId> {
    if let Some(id) = given {
        return Ok(id.into());
    }
    std::fs::create_dir_all(base_dir)
        .with_context(|| format!("cannot create {}", base_dir.display()))?;
    let file = base_dir.join("worker-id");
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let id = Uuid::parse_str(text.trim());
            Ok(id
                .with_context(|| format!("{} does not hold a UUID; delete it", file.display()))?
                .into())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = Uuid::now_v7();
            store(&file, id).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(id.into())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Written aside and renamed: a half-written id never counts.
fn store(file: &Path, id: Uuid) -> std::io::Result<()> {
    let aside = file.with_extension("new");
    let mut out = std::fs::File::create(&aside)?;
    writeln!(out, "{id}")?;
    out.sync_all()?;
    std::fs::rename(aside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = worker_id(dir.path(), None).expect("made");
        assert_eq!(worker_id(dir.path(), None).expect("read"), first);
        let given = Uuid::now_v7();
        assert_eq!(worker_id(dir.path(), Some(given)).expect("given"), WorkerId::from(given));
        std::fs::write(dir.path().join("worker-id"), "junk").expect("written");
        worker_id(dir.path(), None).expect_err("junk is refused");
    }
}
