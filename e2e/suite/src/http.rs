//! One HTTP request: enough to ask the cluster what no command prints as JSON.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// `GET base/path`, with a token if there is one. `base` is `http://HOST:PORT`.
///
/// # Panics
/// If nobody answers.
#[must_use]
pub fn get(base: &str, path: &str, token: Option<&str>) -> Answer {
    let host = base.strip_prefix("http://").expect("an address without encryption");
    let token =
        token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let mut stream = TcpStream::connect(host).expect("the server accepts");
    // Version 1.0: the answer is not chunked and ends with the connection.
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n{token}\r\n").expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status"), body: body.to_owned() }
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// If the status is not 200, or the body is something else.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).expect("JSON")
    }
}
