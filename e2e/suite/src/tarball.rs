//! A server of one file that comes and goes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;

const SERVING: u8 = 0;
const REFUSING: u8 = 1;
const ENDING: u8 = 2;

/// Serves a folder as a tarball, always at the same address.
#[derive(Debug)]
pub struct Tarball {
    address: SocketAddr,
    bytes: Arc<Vec<u8>>,
    running: Option<(Arc<AtomicU8>, JoinHandle<()>)>,
}

impl Tarball {
    /// A folder, packed. Nobody serves it yet.
    ///
    /// # Panics
    /// If it cannot be packed, or the machine has no address.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let above = folder.parent().expect("a folder in a folder");
        let name = folder.file_name().expect("a name");
        let packed = Command::new("tar").arg("-C").arg(above).arg("-cz").arg(name).output();
        let packed = packed.expect("tar");
        assert!(packed.status.success(), "{packed:?}");
        let free = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = free.local_addr().expect("an address");
        Self { address, bytes: Arc::new(packed.stdout), running: None }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/it.tar.gz", self.address)
    }

    /// Serves it from now on.
    ///
    /// # Panics
    /// If somebody else has the address.
    pub fn serve(&mut self) {
        self.answer(SERVING);
    }

    /// Says from now on that there is no such file.
    ///
    /// # Panics
    /// If somebody else has the address.
    pub fn refuse(&mut self) {
        self.answer(REFUSING);
    }

    /// Nobody listens from now on.
    ///
    /// # Panics
    /// If the server panicked.
    pub fn end(&mut self) {
        let Some((state, thread)) = self.running.take() else { return };
        state.store(ENDING, Ordering::SeqCst);
        // It looks at what to do when somebody comes.
        drop(TcpStream::connect(self.address));
        thread.join().expect("the server ends");
    }

    fn answer(&mut self, with: u8) {
        if let Some((state, _)) = &self.running {
            return state.store(with, Ordering::SeqCst);
        }
        let listener = TcpListener::bind(self.address).expect("the address is free");
        let state = Arc::new(AtomicU8::new(with));
        let (told, bytes) = (Arc::clone(&state), Arc::clone(&self.bytes));
        let thread = std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let (status, body): (&str, &[u8]) = match told.load(Ordering::SeqCst) {
                    ENDING => return,
                    SERVING => ("200 OK", &bytes),
                    _ => ("404 Not Found", b"no"),
                };
                let _ = stream.read(&mut request);
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length:");
                let _ = write!(stream, "{head} {}\r\n\r\n", body.len());
                let _ = stream.write_all(body);
            }
        });
        self.running = Some((state, thread));
    }
}

impl Drop for Tarball {
    fn drop(&mut self) {
        self.end();
    }
}
