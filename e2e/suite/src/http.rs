//! One HTTP request: enough to ask the cluster what no command prints as JSON. And one file for whoever
//! asks.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

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

/// Serves one file to whoever asks, as long as the test runs; `http://HOST:PORT`.
///
/// # Panics
/// If there is no port.
#[must_use]
pub fn serve(file: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let bytes = std::fs::read(&file).expect("the file");
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
            let _ = write!(stream, "{head} {}\r\n\r\n", bytes.len());
            let _ = stream.write_all(&bytes);
        }
    });
    format!("http://{address}")
}
