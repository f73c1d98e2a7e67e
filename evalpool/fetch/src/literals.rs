//! The inputs that a `flake.nix` writes down, read without Nix: what Nix would fetch for them must be
//! known before it does.
//!
//! Nix takes literal inputs only, so a lexer that follows the path of attribute names finds them all. It
//! reads a file of somebody else: it keeps no stack of calls and looks at each byte once.

/// Most names that lead to an input; one below more has no name.
const NAMES_MAX: usize = 64;

/// A text, `true` or `false` below `inputs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    /// The input, `a/b` for the input `b` of `a`.
    pub(crate) input: String,
    /// What it says of the input, such as `url`; empty if that is unclear.
    pub(crate) attribute: String,
    pub(crate) text: String,
    /// Whether it stands in quotes or is an address.
    pub(crate) is_text: bool,
}

/// What a bracket or a quote opened.
enum Level {
    /// Code; how many names lead to it, and whether names of an attribute are read.
    Code {
        names: usize,
        is_name: bool,
    },
    Text(String),
    Indented(String),
}

/// Texts, addresses without quotes, `true` and `false` below the attribute `inputs`.
pub(crate) fn inputs(file: &str) -> Vec<Literal> {
    let mut lexer = Lexer {
        rest: file,
        levels: vec![Level::Code { names: 0, is_name: false }],
        names: Vec::new(),
        found: Vec::new(),
    };
    while !lexer.rest.is_empty() {
        match lexer.levels.pop() {
            Some(Level::Text(text)) => lexer.text(text),
            Some(Level::Indented(text)) => lexer.indented(text),
            Some(Level::Code { names, is_name }) => lexer.code(names, is_name),
            None => break,
        }
    }
    lexer.found
}

struct Lexer<'a> {
    rest: &'a str,
    levels: Vec<Level>,
    /// Names of the attributes that lead here.
    names: Vec<String>,
    found: Vec<Literal>,
}

impl<'a> Lexer<'a> {
    fn skip(&mut self, bytes: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        skipped
    }

    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn char(&mut self) -> Option<char> {
        let char = self.rest.chars().next()?;
        self.skip(char.len_utf8());
        Some(char)
    }

    /// One token of code.
    fn code(&mut self, names: usize, is_name: bool) {
        let rest = self.rest;
        let token = |is_part: fn(char) -> bool| rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let address = address(rest);
        let mut here = Some(Level::Code { names, is_name });
        let mut next = None;
        if rest.starts_with('#') {
            self.skip(rest.find(['\n', '\r']).unwrap_or(rest.len()));
        } else if let Some(comment) = rest.strip_prefix("/*") {
            self.skip(comment.find("*/").map_or(rest.len(), |end| end + 4));
        } else if address > 0 {
            let address = self.skip(address).to_owned();
            self.found(address, true);
        } else if rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            let name =
                self.skip(token(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '\'' | '-')));
            if is_name {
                self.names.push(name.to_owned());
            } else if matches!(name, "true" | "false") {
                self.found(name.to_owned(), false);
            }
        } else if self.takes("''") {
            next = Some(Level::Indented(String::new()));
        } else if self.takes("\"") {
            next = Some(Level::Text(String::new()));
        } else if self.takes("${") {
            // A text in it is a name like any other.
            next = Some(Level::Code { names: usize::MAX, is_name });
        } else {
            match self.char() {
                Some('{') => next = Some(Level::Code { names: self.names.len(), is_name: true }),
                Some('(' | '[') => {
                    next = Some(Level::Code { names: self.names.len(), is_name: false });
                }
                Some('}' | ')' | ']') if !self.levels.is_empty() => {
                    self.names.truncate(names);
                    here = None;
                }
                Some(';') => {
                    self.names.truncate(names);
                    here = Some(Level::Code { names, is_name: true });
                }
                Some('=') => here = Some(Level::Code { names, is_name: false }),
                _ => {}
            }
        }
        self.levels.extend(here.into_iter().chain(next));
    }

    /// Goes on with a text in quotes.
    fn text(&mut self, mut text: String) {
        let end = self.rest.find(['"', '\\', '$']).unwrap_or(self.rest.len());
        text.push_str(self.skip(end));
        if self.takes("\"") {
            return self.ended(text);
        }
        if self.takes("\\") {
            text.extend(self.char().map(escaped));
        } else if self.takes("${") {
            return self.interpolated(Level::Text(text));
        } else if self.takes("$$") {
            text.push_str("$$");
        } else {
            text.extend(self.char());
        }
        self.levels.push(Level::Text(text));
    }

    /// Goes on with a text in two single quotes.
    fn indented(&mut self, mut text: String) {
        let end = self.rest.find(['\'', '$']).unwrap_or(self.rest.len());
        text.push_str(self.skip(end));
        if self.takes("'''") {
            text.push_str("''");
        } else if self.takes("''$") {
            text.push('$');
        } else if self.takes("''\\") {
            text.extend(self.char().map(escaped));
        } else if self.takes("''") {
            return self.ended(text);
        } else if self.takes("${") {
            return self.interpolated(Level::Indented(text));
        } else if self.takes("$$") {
            text.push_str("$$");
        } else {
            text.extend(self.char());
        }
        self.levels.push(Level::Indented(text));
    }

    fn interpolated(&mut self, text: Level) {
        self.levels.extend([text, Level::Code { names: usize::MAX, is_name: false }]);
    }

    fn ended(&mut self, text: String) {
        match self.levels.last() {
            Some(Level::Code { is_name: true, .. }) => self.names.push(text),
            _ => self.found(text, true),
        }
    }

    fn found(&mut self, text: String, is_text: bool) {
        let [first, path @ ..] = self.names.as_slice() else { return };
        if first != "inputs" {
            return;
        }
        let (path, attribute) = match path {
            [path @ .., attribute] if path.len() < NAMES_MAX && path.len() % 2 == 1 => {
                (path, attribute.clone())
            }
            path if path.len() <= NAMES_MAX => (path, String::new()),
            _ => (&[][..], String::new()),
        };
        // Between two names of inputs is the word `inputs`.
        let input: Vec<&str> = path.iter().step_by(2).map(String::as_str).collect();
        self.found.push(Literal { input: input.join("/"), attribute, text, is_text });
    }
}

fn escaped(char: char) -> char {
    match char {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        char => char,
    }
}

/// Length of an address without quotes at the start of code; 0 if there is none.
fn address(code: &str) -> usize {
    if !code.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return 0;
    }
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let Some(scheme) = code.find(|c| !is_scheme(c)) else { return 0 };
    let Some(rest) = code[scheme..].strip_prefix(':') else { return 0 };
    let is_part = |c: char| c.is_ascii_alphanumeric() || "%/?:@&=+$,-_.!~*'".contains(c);
    match rest.find(|c| !is_part(c)).unwrap_or(rest.len()) {
        0 => 0,
        length => scheme + 1 + length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str) -> Vec<(String, String)> {
        let texts = inputs(file).into_iter().filter(|one| one.is_text);
        texts.map(|one| (one.input, one.text)).collect()
    }

    #[test]
    fn however_an_input_is_written_it_is_found() {
        for file in [
            r#"{ inputs.x.url = "path:/etc"; outputs = _: { }; }"#,
            r#"{ inputs = { x = { flake = false; url = "\path:/etc"; }; }; }"#,
            r#"({ inputs = rec { x.url = ''path:/etc''; }; })"#,
            r#"{ "inputs".${"x"}."url" = path:/etc; }"#,
            r#"{ a = "${b "}" { c = 1; }}"; /* " */ inputs.x = # "
                { url = "path:/etc"; }; }"#,
            r#"{ outputs = { self }: let a = 1; in "inputs"; inputs.x.url = "path:/etc"; }"#,
            r#"{ a = ''${''b''}'' + "$${" + "\${"; b'' = ''''${'' + '''''''; inputs.x.url = "path:/etc"; }"#,
        ] {
            assert_eq!(found(file), [("x".to_owned(), "path:/etc".to_owned())], "{file}");
        }
        let nested = r#"{ inputs.a = { inputs.b.url = "u"; url = "v"; }; outputs = _: "w"; }"#;
        let expected = [("a/b", "u"), ("a", "v")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found(nested), expected);
    }

    #[test]
    fn what_is_said_of_an_input_is_told_apart() {
        let file = r#"{ inputs.a = { url = "u"; flake = false; inputs.b.follows = "c"; }; inputs.d = "e"; }"#;
        let found = inputs(file).into_iter().map(|one| [one.input, one.attribute, one.text]);
        let found: Vec<String> = found.map(|one| one.join(" ")).collect();
        assert_eq!(found, ["a url u", "a flake false", "a/b follows c", "d  e"]);
    }

    #[test]
    fn what_is_no_nix_ends() {
        for file in ["", "\"", "''", "${", "}}}}", "{ inputs", "/*", "ä\"\\ä", "''\\", "$"] {
            assert!(inputs(file).is_empty(), "{file}");
        }
        inputs(&"{\"${".repeat(100_000));
    }
}
