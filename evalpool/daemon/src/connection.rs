//! One connection to a daemon: handshake, and the frame of every operation.
//!
//! An operation marks the connection as interrupted when it starts and as clean when its reply was
//! read to the end. A future dropped in between therefore leaves it interrupted, and an interrupted
//! connection is thrown away, never used again (the pool sees to it, and every operation checks).

use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::error::{Error, during};
use crate::message::{self, LogEvent, Message};
use crate::options::ClientOptions;
use crate::wire::{Decoder, Encoder, TEXT_LEN_MAX, WireError};

const CLIENT_MAGIC: u64 = 0x6e69_7863;
const DAEMON_MAGIC: u64 = 0x6478_696f;

/// The version that we speak, 1.37: no features can be negotiated.
pub const PROTOCOL_VERSION: u64 = 0x125;
/// The oldest daemon that is accepted, 1.35 (Nix 2.15).
pub const PROTOCOL_VERSION_MIN: u64 = 0x123;

const SET_OPTIONS: u64 = 19;

/// Bytes that are read from the socket at once.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Whether the daemon lets us do what only a trusted user may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It does not say.
    Unknown,
    /// We are a trusted user.
    Trusted,
    /// We are not.
    NotTrusted,
}

/// An open connection. Dropping it cancels whatever the daemon does for it.
pub struct Connection {
    pub(crate) from: Decoder<BufReader<Box<dyn AsyncRead + Send + Sync + Unpin>>>,
    pub(crate) to: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    /// Protocol version of this connection.
    pub(crate) version: u64,
    nix_version: String,
    trust: Trust,
    is_clean: bool,
}

impl Connection {
    /// Connects to the daemon's socket, shakes hands and sets the options.
    ///
    /// # Errors
    /// If nobody listens, whoever listens is no daemon or too old, or the connection breaks.
    pub async fn open(socket: &Path, options: &ClientOptions) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|source| Error::Connect { socket: socket.to_owned(), source })?;
        let (from, to) = stream.into_split();
        Self::over(from, to, options).await
    }

    /// Shakes hands over any pair of streams.
    ///
    /// # Errors
    /// As [`Connection::open`], but for connecting.
    pub async fn over(
        from: impl AsyncRead + Send + Sync + Unpin + 'static,
        to: impl AsyncWrite + Send + Sync + Unpin + 'static,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let from: Box<dyn AsyncRead + Send + Sync + Unpin> = Box::new(from);
        let mut connection = Connection {
            from: Decoder(BufReader::with_capacity(READ_BUFFER_BYTES, from)),
            to: Box::new(to),
            version: PROTOCOL_VERSION,
            nix_version: String::new(),
            trust: Trust::Unknown,
            is_clean: false,
        };
        connection.shake_hands().await?;
        connection.is_clean = true;
        connection.set_options(options).await?;
        Ok(connection)
    }

    async fn shake_hands(&mut self) -> Result<(), Error> {
        const OPERATION: &str = "handshake";
        let lost = during(OPERATION);
        let hello = Encoder::operation(CLIENT_MAGIC).number(PROTOCOL_VERSION);
        self.send(&hello.finish()).await.map_err(&lost)?;
        let magic = self.from.number().await.map_err(&lost)?;
        if magic != DAEMON_MAGIC {
            return Err(Error::NotADaemon { magic });
        }
        let version = self.from.number().await.map_err(&lost)?;
        if version < PROTOCOL_VERSION_MIN || version >> 8 != 1 {
            return Err(Error::TooOld { version });
        }
        self.version = version.min(PROTOCOL_VERSION);
        let rest = Encoder::default().number(0).number(0); // no CPU affinity, no reserve
        self.send(&rest.finish()).await.map_err(&lost)?;
        self.nix_version = self.from.text("version", TEXT_LEN_MAX).await.map_err(&lost)?;
        self.trust = match self.from.number().await.map_err(&lost)? {
            1 => Trust::Trusted,
            2 => Trust::NotTrusted,
            _ => Trust::Unknown,
        };
        self.messages(OPERATION, &mut |_| {}).await
    }

    /// Sets the options anew.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn set_options(&mut self, options: &ClientOptions) -> Result<(), Error> {
        let request = options.encode(SET_OPTIONS);
        self.begin("set options", request, &mut |_| {}).await?;
        self.end();
        Ok(())
    }

    /// Version text of the daemon's Nix.
    #[must_use]
    pub fn nix_version(&self) -> &str {
        &self.nix_version
    }

    /// Whether the daemon trusts us.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Whether the last operation was read to its end, so that another may follow.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.to.write_all(bytes).await?;
        self.to.flush().await?;
        Ok(())
    }

    /// Marks the connection as interrupted until [`Connection::end`].
    pub(crate) fn interrupt(&mut self, operation: &'static str) -> Result<(), Error> {
        if !self.is_clean {
            let source = WireError::invalid("connection", "an earlier operation was interrupted");
            return Err(Error::Broken { operation, source });
        }
        self.is_clean = false;
        Ok(())
    }

    /// The reply was read to its end.
    pub(crate) fn end(&mut self) {
        self.is_clean = true;
    }

    /// Sends a request and reads messages until its reply begins. After a refusal the connection is
    /// clean again.
    pub(crate) async fn begin(
        &mut self,
        operation: &'static str,
        request: Encoder,
        log: &mut (dyn FnMut(LogEvent) + Send),
    ) -> Result<(), Error> {
        self.interrupt(operation)?;
        self.send(&request.finish()).await.map_err(during(operation))?;
        self.messages(operation, log).await
    }

    /// Reads messages until the reply begins.
    pub(crate) async fn messages(
        &mut self,
        operation: &'static str,
        log: &mut (dyn FnMut(LogEvent) + Send),
    ) -> Result<(), Error> {
        match until_reply(&mut self.from, log).await {
            Ok(None) => Ok(()),
            Ok(Some(message)) => {
                self.end();
                Err(Error::Refused { operation, message })
            }
            Err(source) => Err(Error::Broken { operation, source }),
        }
    }
}

/// Reads messages until the reply begins: `None`, or the text of an error.
pub(crate) async fn until_reply<R: AsyncRead + Unpin>(
    from: &mut Decoder<R>,
    log: &mut (dyn FnMut(LogEvent) + Send),
) -> Result<Option<String>, WireError> {
    loop {
        match message::read(from).await? {
            Message::Last => return Ok(None),
            Message::Error(text) => return Ok(Some(text)),
            Message::Log(event) => log(event),
            Message::Ignored => {}
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("version", &self.version)
            .field("nix_version", &self.nix_version)
            .field("trust", &self.trust)
            .field("is_clean", &self.is_clean)
            .finish_non_exhaustive()
    }
}
