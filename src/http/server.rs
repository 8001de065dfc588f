//! The servers: one for the APIs, one for the metrics.

use super::{HttpState, configure, configure_metrics};
use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};
use std::io;
use std::net::TcpListener;
use std::time::Duration;

/// A server that accepts connections.
#[derive(Debug)]
pub struct RunningServer(ServerHandle);

impl RunningServer {
    /// Closes the listener, lets requests under way end, and returns when they have.
    pub async fn stop(self) {
        self.0.stop(true).await;
    }
}

/// How long a connection may stay idle, and how long a head may take to arrive.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves `api` with `workers` threads, and the metrics on `scrape` with one.
pub fn start(
    state: HttpState,
    api: TcpListener,
    scrape: TcpListener,
    workers: usize,
    metrics_protected: bool,
) -> io::Result<Vec<RunningServer>> {
    let state = web::Data::new(state);
    let for_metrics = state.clone();
    // Signals are the application's: actix would close the listener before readiness says so.
    let api = HttpServer::new(move || App::new().configure(|cfg| configure(cfg, state.clone())))
        .workers(workers)
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD_TIMEOUT)
        .disable_signals()
        .shutdown_timeout(2)
        .listen(api)?
        .run();
    let scrape = HttpServer::new(move || {
        App::new().configure(|cfg| configure_metrics(cfg, for_metrics.clone(), metrics_protected))
    })
    .workers(1)
    .disable_signals()
    .shutdown_timeout(2)
    .listen(scrape)?
    .run();
    Ok([api, scrape]
        .into_iter()
        .map(|server| {
            let handle = server.handle();
            actix_web::rt::spawn(server);
            RunningServer(handle)
        })
        .collect())
}
