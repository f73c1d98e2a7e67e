//! Standard output: whole lines, each on its way at once.

use std::io::{self, Write};

use anyhow::Context as _;

use crate::exit::Failure;

/// Whether anybody reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Listens,
    /// It went away, as `| head` does. That is no failure.
    Gone,
}

/// Writes a line. Blocks while the reader is slow.
pub(super) fn write_line(to: &mut impl Write, line: &str) -> Result<Reader, Failure> {
    match writeln!(to, "{line}").and_then(|()| to.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error).context("cannot write to standard output")?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(io::ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_goes_is_no_failure_and_a_full_disk_is() {
        let mut text = Vec::new();
        assert_eq!(write_line(&mut text, "{}").expect("written"), Reader::Listens);
        assert_eq!(text, b"{}\n");
        let gone = write_line(&mut Fails(io::ErrorKind::BrokenPipe), "{}");
        assert_eq!(gone.expect("no failure"), Reader::Gone);
        assert!(write_line(&mut Fails(io::ErrorKind::StorageFull), "{}").is_err());
    }
}
