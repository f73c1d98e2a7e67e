//! Watching a child: its crash is reported and it is started again.

use std::future::Future;
use std::time::Duration;

use gradient_runtime::shutdown::CancellationToken;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::say;

/// First and longest pause before a child is started again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// A child that ran this long counts as healthy: the pause starts over.
const HEALTHY: Duration = Duration::from_secs(60);

/// A child of any kind.
pub(crate) trait Watched: Sized + Send + 'static {
    /// Starts another one in its place.
    fn again(&self) -> impl Future<Output = anyhow::Result<Self>> + Send;
    /// Ends when it ended; says how.
    fn ended(&mut self) -> impl Future<Output = String> + Send;
    /// Stops it and waits for its end.
    fn stop(self) -> impl Future<Output = ()> + Send;
    /// What a person wants to see of its crash.
    fn last_words(&self) -> String;
}

/// Watches a child until `stop`; it is stopped then.
pub(crate) fn watch<W: Watched>(
    name: String,
    mut child: W,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut pause = PAUSE.0;
        loop {
            let started = Instant::now();
            let how = tokio::select! {
                how = child.ended() => how,
                () = stop.cancelled() => return child.stop().await,
            };
            say::note(format_args!(
                "{name} ended unexpectedly ({how}); starting it again\n  {}",
                child.last_words()
            ));
            if started.elapsed() >= HEALTHY {
                pause = PAUSE.0;
            }
            loop {
                if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
                pause = (pause * 2).min(PAUSE.1);
                match stop.run_until_cancelled(child.again()).await {
                    None => return,
                    Some(Ok(next)) => {
                        say::note(format_args!("{name} runs again"));
                        child = next;
                        break;
                    }
                    Some(Err(error)) => {
                        say::note(format_args!("{name} cannot be started: {error:#}"))
                    }
                }
            }
        }
    })
}
