//! The HTTP listener of a process, with `/healthz` and `/metrics`.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::health::Health;

/// How long open requests may go on after the stop.
const GRACE: std::time::Duration = std::time::Duration::from_secs(3);

/// Binds an address.
///
/// # Errors
/// If the port is taken or not allowed; the message says what to do.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; choose another port with --http (0 = any)")
    })
}

/// Serves `router` with health and metrics until `stop`.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    health: Health,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let metrics = crate::metrics::install();
    let router = router
        .route("/healthz", get(move || std::future::ready(health.response())))
        .route("/metrics", get(move || std::future::ready(metrics.render())));
    let graceful = stop.clone();
    let served = axum::serve(listener, router).with_graceful_shutdown(graceful.cancelled_owned());
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = served.into_future() => result.context("the HTTP listener failed"),
        () = overdue => Ok(()),
    }
}
