//! The reader of the ATerm text of a derivation: one pass over the bytes, every fault with its offset.

use std::collections::{BTreeMap, BTreeSet};

use super::{DERIVATION_SIZE_MAX, Derivation, Output};
use crate::capability::System;
use crate::store_path::StorePath;

/// A text that is no derivation file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDerivationError {
    /// Longer than [`DERIVATION_SIZE_MAX`].
    #[error("a derivation file of {size} bytes is over the limit of {DERIVATION_SIZE_MAX}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// The syntax or a value is wrong.
    #[error("derivation file, byte {offset}: {reason}")]
    Syntax {
        /// Where, in bytes from the start of the file.
        offset: usize,
        /// What is wrong there.
        reason: String,
    },
}

pub(super) fn parse(text: &[u8]) -> Result<Derivation, ParseDerivationError> {
    if text.len() > DERIVATION_SIZE_MAX {
        return Err(ParseDerivationError::TooLarge { size: text.len() });
    }
    let mut reader = Reader { text, at: 0 };
    if text.starts_with(b"DrvWithVersion(") {
        return Err(reader.fault("dynamic derivations (DrvWithVersion) are not supported"));
    }
    reader.token(b"Derive(")?;
    let outputs = reader.outputs()?;
    reader.token(b",")?;
    let input_drvs = reader.input_drvs()?;
    reader.token(b",")?;
    let mut input_srcs = BTreeSet::new();
    reader.list(|r| {
        let (path, at) = r.store_path()?;
        r.unique(at, input_srcs.insert(path), "input source")
    })?;
    reader.token(b",")?;
    let system = System(reader.text()?);
    reader.token(b",")?;
    let builder = reader.bytes()?;
    reader.token(b",")?;
    let mut args = Vec::new();
    reader.list(|r| {
        args.push(r.bytes()?);
        Ok(())
    })?;
    reader.token(b",")?;
    let env = reader.env()?;
    reader.token(b")")?;
    if reader.at != text.len() {
        return Err(reader.fault("more text after the end of the derivation"));
    }
    Ok(Derivation { outputs, input_drvs, input_srcs, system, builder, args, env })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

type Read<T> = Result<T, ParseDerivationError>;

impl Reader<'_> {
    fn fault_at(&self, offset: usize, reason: impl Into<String>) -> ParseDerivationError {
        ParseDerivationError::Syntax { offset, reason: reason.into() }
    }

    fn fault(&self, reason: impl Into<String>) -> ParseDerivationError {
        self.fault_at(self.at, reason)
    }

    fn unique(&self, at: usize, is_new: bool, what: &str) -> Read<()> {
        if is_new { Ok(()) } else { Err(self.fault_at(at, format!("the same {what} twice"))) }
    }

    fn token(&mut self, token: &[u8]) -> Read<()> {
        if !self.text[self.at..].starts_with(token) {
            let wanted = String::from_utf8_lossy(token);
            return Err(self.fault(format!("expected '{wanted}'")));
        }
        self.at += token.len();
        Ok(())
    }

    /// `[` items `]`, separated by commas.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.token(b"[")?;
        if self.text.get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            match self.text.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault("expected ',' or ']'")),
            }
        }
    }

    /// A quoted string; `\n`, `\r` and `\t` are control characters, any other escaped byte stands
    /// for itself (as Nix reads it).
    fn bytes(&mut self) -> Read<Vec<u8>> {
        self.token(b"\"")?;
        let mut value = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(plain) = rest.iter().position(|b| matches!(b, b'"' | b'\\')) else {
                return Err(self.fault_at(self.text.len(), "the file ends inside a string"));
            };
            value.extend_from_slice(&rest[..plain]);
            if rest[plain] == b'"' {
                self.at += plain + 1;
                return Ok(value);
            }
            let Some(escaped) = rest.get(plain + 1) else {
                return Err(self.fault_at(self.text.len(), "the file ends inside a string"));
            };
            value.push(match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                other => *other,
            });
            self.at += plain + 2;
        }
    }

    fn text(&mut self) -> Read<String> {
        let at = self.at;
        String::from_utf8(self.bytes()?).map_err(|_| self.fault_at(at, "the text is not UTF-8"))
    }

    /// A store path and the offset where it stands.
    fn store_path(&mut self) -> Read<(StorePath, usize)> {
        let at = self.at;
        let text = self.text()?;
        match text.parse() {
            Ok(path) => Ok((path, at)),
            Err(error) => Err(self.fault_at(at, format!("{error}"))),
        }
    }

    fn outputs(&mut self) -> Read<BTreeMap<String, Output>> {
        let mut outputs = BTreeMap::new();
        self.list(|r| {
            let at = r.at;
            r.token(b"(")?;
            let name = r.text()?;
            r.token(b",")?;
            let path = match r.text[r.at..].starts_with(b"\"\"") {
                true => {
                    r.at += 2;
                    None
                }
                false => Some(r.store_path()?.0),
            };
            r.token(b",")?;
            let hash_algo = r.text()?;
            r.token(b",")?;
            let hash = r.text()?;
            r.token(b")")?;
            let output = Output { path, hash_algo, hash };
            r.unique(at, outputs.insert(name, output).is_none(), "output")
        })?;
        if outputs.is_empty() {
            return Err(self.fault("a derivation without outputs"));
        }
        Ok(outputs)
    }

    fn input_drvs(&mut self) -> Read<BTreeMap<StorePath, BTreeSet<String>>> {
        let mut inputs = BTreeMap::new();
        self.list(|r| {
            r.token(b"(")?;
            let (path, at) = r.store_path()?;
            if !path.is_derivation() {
                return Err(r.fault_at(at, "an input derivation that is no .drv file"));
            }
            r.token(b",")?;
            let mut outputs = BTreeSet::new();
            r.list(|r| {
                outputs.insert(r.text()?);
                Ok(())
            })?;
            r.token(b")")?;
            r.unique(at, inputs.insert(path, outputs).is_none(), "input derivation")
        })?;
        Ok(inputs)
    }

    fn env(&mut self) -> Read<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut env = BTreeMap::new();
        self.list(|r| {
            let at = r.at;
            r.token(b"(")?;
            let name = r.bytes()?;
            r.token(b",")?;
            let value = r.bytes()?;
            r.token(b")")?;
            r.unique(at, env.insert(name, value).is_none(), "variable")
        })?;
        Ok(env)
    }
}
