//! The incremental reader. It holds no more than one name or link target and the names of the open
//! directories, whatever the size of the archive.

use std::io;

use crate::wire::padding;

/// Most directories inside one another.
pub const DEPTH_MAX: usize = 1024;

const MAGIC: &[u8] = b"nix-archive-1";
/// Longest keyword, in bytes.
const KEYWORD_LEN_MAX: u64 = 16;
/// Longest name of a directory entry, in bytes.
const NAME_LEN_MAX: u64 = 255;
/// Longest target of a symlink, in bytes.
const TARGET_LEN_MAX: u64 = 4095;

/// Why an archive is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is not a canonical archive.
    #[error("byte {offset}: {reason}")]
    Syntax {
        /// Where, in bytes from its start.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The sink refused it.
    #[error("{0}")]
    Sink(#[from] io::Error),
}

/// Told what an archive holds, in order. Every node ends with [`Sink::end_node`].
pub trait Sink {
    /// A directory begins; its entries follow.
    ///
    /// # Errors
    /// Stops the parser.
    fn directory(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// An entry of the innermost open directory begins; its node follows. The name is none that
    /// leads out of the directory, and names come in strictly increasing order.
    ///
    /// # Errors
    /// Stops the parser.
    fn entry(&mut self, name: &[u8]) -> io::Result<()> {
        let _ = name;
        Ok(())
    }

    /// A regular file of `size` bytes begins; its contents follow.
    ///
    /// # Errors
    /// Stops the parser.
    fn regular(&mut self, is_executable: bool, size: u64) -> io::Result<()> {
        let _ = (is_executable, size);
        Ok(())
    }

    /// Part of the contents of the open file.
    ///
    /// # Errors
    /// Stops the parser.
    fn contents(&mut self, bytes: &[u8]) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// A symlink.
    ///
    /// # Errors
    /// Stops the parser.
    fn symlink(&mut self, target: &[u8]) -> io::Result<()> {
        let _ = target;
        Ok(())
    }

    /// The innermost open node is complete.
    ///
    /// # Errors
    /// Stops the parser.
    fn end_node(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink for those who only want to know where the archive ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Sink for Ignore {}

/// Which string comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Magic,
    NodeOpen,
    TypeKeyword,
    Type,
    /// `executable` or `contents`.
    RegularField,
    ExecutableValue,
    ContentsKeyword,
    /// The length in front of a file's contents.
    Contents,
    TargetKeyword,
    Target,
    /// The `)` of a file or a symlink.
    LeafClose,
    /// `entry`, or the `)` of the directory.
    EntryOrClose,
    EntryOpen,
    NameKeyword,
    Name,
    NodeKeyword,
    EntryClose,
    Nothing,
}

#[derive(Clone, Debug)]
enum State {
    /// Reading the 8 bytes of a length.
    Length { bytes: [u8; 8], filled: usize },
    /// Reading a string with its padding.
    Text { length: usize, total: usize },
    /// Passing a file's contents on, then their padding.
    Contents { left: u64, padding: u64 },
}

const LENGTH: State = State::Length { bytes: [0; 8], filled: 0 };

/// Reads one archive as its bytes come.
#[derive(Clone, Debug)]
pub struct Parser {
    state: State,
    expect: Expect,
    text: Vec<u8>,
    /// Per open directory the name of its latest entry; empty before the first.
    open: Vec<Vec<u8>>,
    is_executable: bool,
    offset: u64,
}

impl Default for Parser {
    fn default() -> Self {
        Parser {
            state: LENGTH,
            expect: Expect::Magic,
            text: Vec::new(),
            open: Vec::new(),
            is_executable: false,
            offset: 0,
        }
    }
}

impl Parser {
    /// Whether the archive is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.expect == Expect::Nothing
    }

    /// Bytes consumed so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes more of the archive and returns how many of `bytes` belong to it: all of them, unless
    /// the archive ends before.
    ///
    /// # Errors
    /// If it is no canonical archive or the sink refuses. The parser is of no use then.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<usize, Fault> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_done() {
            let taken = self.step(rest, sink)?;
            self.offset += taken as u64;
            rest = &rest[taken..];
        }
        Ok(bytes.len() - rest.len())
    }

    fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::Syntax { offset: self.offset, reason: reason.into() }
    }

    /// Takes at least one byte of `rest`, which is not empty.
    fn step(&mut self, rest: &[u8], sink: &mut impl Sink) -> Result<usize, Fault> {
        match &mut self.state {
            State::Length { bytes, filled } => {
                let taken = rest.len().min(8 - *filled);
                bytes[*filled..*filled + taken].copy_from_slice(&rest[..taken]);
                *filled += taken;
                if *filled == 8 {
                    let length = u64::from_le_bytes(*bytes);
                    self.begin(length, sink)?;
                }
                Ok(taken)
            }
            State::Text { length, total } => {
                let (length, total) = (*length, *total);
                let taken = rest.len().min(total - self.text.len());
                self.text.extend_from_slice(&rest[..taken]);
                if self.text.len() == total {
                    self.complete(length, sink)?;
                }
                Ok(taken)
            }
            State::Contents { left, padding } => {
                let (pass_on, skip) = if *left > 0 {
                    let taken = usize::try_from(*left).map_or(rest.len(), |l| rest.len().min(l));
                    *left -= taken as u64;
                    (taken, 0)
                } else {
                    let taken = rest.len().min(*padding as usize);
                    *padding -= taken as u64;
                    (0, taken)
                };
                let is_complete = *left == 0 && *padding == 0;
                if pass_on > 0 {
                    sink.contents(&rest[..pass_on])?;
                }
                if rest[..skip].iter().any(|zero| *zero != 0) {
                    return Err(self.fault("the padding is not zero"));
                }
                if is_complete {
                    self.next(Expect::LeafClose);
                }
                Ok(pass_on + skip)
            }
        }
    }

    fn next(&mut self, expect: Expect) {
        self.expect = expect;
        self.state = LENGTH;
        self.text.clear();
    }

    /// A length was read.
    fn begin(&mut self, length: u64, sink: &mut impl Sink) -> Result<(), Fault> {
        let limit = match self.expect {
            Expect::Contents => {
                sink.regular(self.is_executable, length)?;
                let padding = padding(length);
                match length {
                    0 => self.next(Expect::LeafClose),
                    left => self.state = State::Contents { left, padding },
                }
                return Ok(());
            }
            Expect::Name => NAME_LEN_MAX,
            Expect::Target => TARGET_LEN_MAX,
            _ => KEYWORD_LEN_MAX,
        };
        if length > limit {
            return Err(self.fault(format!("a string of {length} bytes, at most {limit} allowed")));
        }
        let total = (length + padding(length)) as usize;
        self.state = State::Text { length: length as usize, total };
        if total == 0 {
            self.complete(0, sink)?;
        }
        Ok(())
    }

    /// A string was read with its padding.
    fn complete(&mut self, length: usize, sink: &mut impl Sink) -> Result<(), Fault> {
        let mut text = std::mem::take(&mut self.text);
        if text[length..].iter().any(|zero| *zero != 0) {
            return Err(self.fault("the padding is not zero"));
        }
        text.truncate(length);
        let next = self.accept(&text, sink)?;
        self.next(next);
        text.clear();
        self.text = text; // keeps its allocation
        Ok(())
    }

    fn accept(&mut self, text: &[u8], sink: &mut impl Sink) -> Result<Expect, Fault> {
        use Expect as E;
        Ok(match (self.expect, text) {
            (E::Magic, MAGIC) => E::NodeOpen,
            (E::NodeOpen, b"(") => E::TypeKeyword,
            (E::TypeKeyword, b"type") => E::Type,
            (E::Type, b"regular") => {
                self.is_executable = false;
                E::RegularField
            }
            (E::Type, b"symlink") => E::TargetKeyword,
            (E::Type, b"directory") => {
                if self.open.len() == DEPTH_MAX {
                    return Err(self.fault(format!("more than {DEPTH_MAX} directories deep")));
                }
                sink.directory()?;
                self.open.push(Vec::new());
                E::EntryOrClose
            }
            (E::RegularField, b"executable") => {
                self.is_executable = true;
                E::ExecutableValue
            }
            (E::ExecutableValue, b"") => E::ContentsKeyword,
            (E::RegularField | E::ContentsKeyword, b"contents") => E::Contents,
            (E::TargetKeyword, b"target") => E::Target,
            (E::Target, target) => {
                if target.is_empty() || target.contains(&0) {
                    return Err(self.fault("a symlink to nowhere"));
                }
                sink.symlink(target)?;
                E::LeafClose
            }
            (E::EntryOrClose, b"entry") => E::EntryOpen,
            (E::EntryOpen, b"(") => E::NameKeyword,
            (E::NameKeyword, b"name") => E::Name,
            (E::Name, name) => {
                self.accept_name(name)?;
                sink.entry(name)?;
                E::NodeKeyword
            }
            (E::NodeKeyword, b"node") => E::NodeOpen,
            (E::EntryClose, b")") => E::EntryOrClose,
            (E::LeafClose, b")") => self.end_node(sink)?,
            (E::EntryOrClose, b")") => {
                self.open.pop();
                self.end_node(sink)?
            }
            (expect, text) => {
                let text = String::from_utf8_lossy(text);
                return Err(self.fault(format!("'{text}' where {expect:?} was expected")));
            }
        })
    }

    fn end_node(&self, sink: &mut impl Sink) -> Result<Expect, Fault> {
        sink.end_node()?;
        Ok(match self.open.is_empty() {
            true => Expect::Nothing,
            false => Expect::EntryClose,
        })
    }

    fn accept_name(&mut self, name: &[u8]) -> Result<(), Fault> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0)) {
            return Err(self.fault(format!("'{}' is no name of a file", shown())));
        }
        let latest = self.open.last().expect("a name comes in a directory");
        if !latest.is_empty() && latest.as_slice() >= name {
            return Err(self.fault(format!("'{}' is out of order", shown())));
        }
        let latest = self.open.last_mut().expect("as above");
        latest.clear();
        latest.extend_from_slice(name);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::Encoder;

    pub(in crate::nar) fn strings(items: &[&[u8]]) -> Vec<u8> {
        items.iter().fold(Encoder::default(), |to, item| to.bytes(item)).finish()
    }

    /// A sink that writes down what it is told.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Sink for Notes {
        fn directory(&mut self) -> io::Result<()> {
            self.0.push("dir".into());
            Ok(())
        }

        fn entry(&mut self, name: &[u8]) -> io::Result<()> {
            self.0.push(String::from_utf8_lossy(name).into_owned());
            Ok(())
        }

        fn regular(&mut self, is_executable: bool, size: u64) -> io::Result<()> {
            self.0.push(format!("file {is_executable} {size}"));
            Ok(())
        }

        fn symlink(&mut self, target: &[u8]) -> io::Result<()> {
            self.0.push(format!("-> {}", String::from_utf8_lossy(target)));
            Ok(())
        }

        fn end_node(&mut self) -> io::Result<()> {
            self.0.push("end".into());
            Ok(())
        }
    }

    fn sample() -> Vec<u8> {
        strings(&[
            MAGIC,
            b"(",
            b"type",
            b"directory",
            b"entry",
            b"(",
            b"name",
            b"a",
            b"node",
            b"(",
            b"type",
            b"regular",
            b"executable",
            b"",
            b"contents",
            b"hello",
            b")",
            b")",
            b"entry",
            b"(",
            b"name",
            b"b",
            b"node",
            b"(",
            b"type",
            b"symlink",
            b"target",
            b"a",
            b")",
            b")",
            b"entry",
            b"(",
            b"name",
            b"c",
            b"node",
            b"(",
            b"type",
            b"regular",
            b"contents",
            b"",
            b")",
            b")",
            b")",
        ])
    }

    #[test]
    fn the_end_is_found_however_the_bytes_come() {
        let mut bytes = sample();
        let length = bytes.len();
        bytes.extend_from_slice(b"something else");
        for chunk in [1, 3, 8, 64, bytes.len()] {
            let (mut parser, mut notes, mut consumed) = (Parser::default(), Notes::default(), 0);
            for part in bytes.chunks(chunk) {
                consumed += parser.feed(part, &mut notes).expect("valid");
            }
            assert!(parser.is_done());
            assert_eq!((consumed, parser.offset()), (length, length as u64));
            assert_eq!(
                notes.0,
                [
                    "dir",
                    "a",
                    "file true 5",
                    "end",
                    "b",
                    "-> a",
                    "end",
                    "c",
                    "file false 0",
                    "end",
                    "end"
                ]
            );
        }
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        let entry = |name: &'static [u8]| -> Vec<&'static [u8]> {
            vec![
                b"entry", b"(", b"name", name, b"node", b"(", b"type", b"symlink", b"target", b"x",
                b")", b")",
            ]
        };
        let directory = |entries: &[Vec<&'static [u8]>]| {
            let start: Vec<&[u8]> = vec![MAGIC, b"(", b"type", b"directory"];
            strings(&[start, entries.concat(), vec![b")"]].concat())
        };
        let mut padded = sample();
        padded[22] = 1; // in the padding of the magic
        let rows = [
            (directory(&[entry(b"..")]), "no name"),
            (directory(&[entry(b"")]), "no name"),
            (directory(&[entry(b"a/b")]), "no name"),
            (directory(&[entry(b"a\0")]), "no name"),
            (directory(&[entry(b"b"), entry(b"a")]), "out of order"),
            (directory(&[entry(b"a"), entry(b"a")]), "out of order"),
            (strings(&[b"nix-archive-2"]), "Magic"),
            (strings(&[MAGIC, b"(", b"type", b"socket"]), "Type"),
            (strings(&[&[b'x'; 17]]), "at most 16"),
            (padded, "padding"),
            (
                strings(&[MAGIC, b"(", b"type", b"regular", b"executable", b"yes"]),
                "ExecutableValue",
            ),
        ];
        for (bytes, words) in rows {
            let error = Parser::default().feed(&bytes, &mut Ignore).expect_err(words);
            assert!(error.to_string().contains(words), "{error} for {words}");
        }
    }

    #[test]
    fn depth_is_limited() {
        let mut items: Vec<&[u8]> = vec![MAGIC];
        for _ in 0..=DEPTH_MAX {
            items.extend([
                b"(".as_slice(),
                b"type",
                b"directory",
                b"entry",
                b"(",
                b"name",
                b"a",
                b"node",
            ]);
        }
        let error = Parser::default().feed(&strings(&items), &mut Ignore);
        assert!(error.expect_err("too deep").to_string().contains("deep"));
    }
}
