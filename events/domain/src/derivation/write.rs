//! The writer of the ATerm text of a derivation, byte for byte as Nix writes it.

use std::collections::{BTreeMap, BTreeSet};

use super::Derivation;

impl Derivation {
    /// The bytes of its `.drv` file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let inputs = self.input_drvs.iter().map(|(drv, outputs)| (drv.to_string(), outputs));
        self.write(inputs, false)
    }

    /// The bytes that its hash is made of: the same, but with other texts in the place of the paths
    /// of its input derivations. Masked, its own output paths are blank, since they follow from the
    /// hash.
    #[must_use]
    pub fn to_hashed_bytes(
        &self,
        inputs: &BTreeMap<String, BTreeSet<String>>,
        masked: bool,
    ) -> Vec<u8> {
        self.write(inputs.iter().map(|(text, outputs)| (text.clone(), outputs)), masked)
    }

    fn write<'a>(
        &self,
        inputs: impl Iterator<Item = (String, &'a BTreeSet<String>)>,
        masked: bool,
    ) -> Vec<u8> {
        let mut to = Writer { text: b"Derive(".to_vec() };
        to.list(&self.outputs, |to, (name, output)| {
            let path = output.path.as_ref().filter(|_| !masked);
            let path = path.map_or_else(String::new, ToString::to_string);
            let fields = [name, &path, &output.hash_algo, &output.hash];
            to.tuple(fields.map(String::as_bytes));
        });
        to.comma();
        to.list(inputs, |to, (path, outputs)| {
            to.text.push(b'(');
            to.string(path.as_bytes());
            to.comma();
            to.list(outputs, |to, output| to.string(output.as_bytes()));
            to.text.push(b')');
        });
        to.comma();
        to.list(&self.input_srcs, |to, path| to.string(path.to_string().as_bytes()));
        to.comma();
        to.string(self.system.0.as_bytes());
        to.comma();
        to.string(&self.builder);
        to.comma();
        to.list(&self.args, |to, arg| to.string(arg));
        to.comma();
        let is_output = |name: &[u8]| self.outputs.keys().any(|output| output.as_bytes() == name);
        to.list(&self.env, |to, (name, value)| {
            let blank = masked && is_output(name);
            to.tuple([name, if blank { b"" } else { value.as_slice() }]);
        });
        to.text.push(b')');
        to.text
    }
}

struct Writer {
    text: Vec<u8>,
}

impl Writer {
    fn comma(&mut self) {
        self.text.push(b',');
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, item: impl Fn(&mut Self, T)) {
        self.text.push(b'[');
        for (n, one) in items.into_iter().enumerate() {
            if n > 0 {
                self.comma();
            }
            item(self, one);
        }
        self.text.push(b']');
    }

    fn tuple<const N: usize>(&mut self, fields: [&[u8]; N]) {
        self.text.push(b'(');
        for (n, field) in fields.into_iter().enumerate() {
            if n > 0 {
                self.comma();
            }
            self.string(field);
        }
        self.text.push(b')');
    }

    fn string(&mut self, value: &[u8]) {
        self.text.push(b'"');
        for byte in value {
            match byte {
                b'"' | b'\\' => self.text.extend([b'\\', *byte]),
                b'\n' => self.text.extend(b"\\n"),
                b'\r' => self.text.extend(b"\\r"),
                b'\t' => self.text.extend(b"\\t"),
                other => self.text.push(*other),
            }
        }
        self.text.push(b'"');
    }
}
