//! Clean ends: SIGTERM and SIGINT cancel one token that every task watches.

use tokio::signal::unix::{SignalKind, signal};
pub use tokio_util::sync::CancellationToken;

/// A token that the first SIGTERM or SIGINT cancels.
///
/// # Errors
/// If the signals cannot be watched.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
        cancel.cancel();
    });
    Ok(token)
}

/// Cancels `token` when standard input ends: the supervisor that held its other end is gone, however
/// it went.
pub fn with_stdin(token: CancellationToken) {
    // A thread of its own: a blocked read would hold up the end of the runtime.
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        token.cancel();
    });
}
