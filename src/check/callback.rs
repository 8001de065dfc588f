//! The receiver of late answers: the gateway's part of a callback, for one developer's machine.

use super::CallbackOptions;
use super::CheckFault;
use actix_web::dev::ServerHandle;
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use serde_json::json;
use std::net::TcpListener;
use tokio::sync::mpsc;

/// Largest callback, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// Callbacks that wait to be looked at; nobody needs more of them for one call.
const WAITING: usize = 64;

/// Where callbacks are delivered.
const PATH: &str = "/callbacks/check";

/// A callback as it came.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Bytes,
}

impl Received {
    /// A header's bytes by its lower-case name.
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// A running receiver.
pub(super) struct CallbackReceiver {
    options: CallbackOptions,
    url: String,
    received: mpsc::Receiver<Received>,
    handle: ServerHandle,
}

impl CallbackReceiver {
    /// Listens; needs a running actix `System`.
    pub(super) fn start(options: &CallbackOptions) -> Result<Self, CheckFault> {
        let failed = |source| CheckFault::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).map_err(failed)?;
        let own_url = format!("http://{}{PATH}", listener.local_addr().map_err(failed)?);
        let (sender, received) = mpsc::channel(WAITING);
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::PayloadConfig::new(MAX_BYTES))
                .app_data(Data::new(sender.clone()))
                .default_service(web::to(take))
        });
        let server = server.workers(1).disable_signals().listen(listener).map_err(failed)?.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        let url = options.public_url.clone().unwrap_or(own_url);
        Ok(Self { options: options.clone(), url, received, handle })
    }

    /// What `X-Callback-Url` says.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// How it was set up.
    pub(super) const fn options(&self) -> &CallbackOptions {
        &self.options
    }

    /// The next callback.
    pub(super) async fn next(&mut self) -> Option<Received> {
        self.received.recv().await
    }

    /// Stops listening.
    pub(super) async fn stop(self) {
        self.handle.stop(false).await;
    }
}

async fn take(sender: Data<mpsc::Sender<Received>>, request: HttpRequest, body: Bytes) -> HttpResponse {
    let headers = request.headers().iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    // When nobody looks any more the answer is the same: the gateway takes late callbacks too.
    let _ = sender.try_send(Received { headers, body });
    HttpResponse::Accepted().json(json!({ "accepted": true }))
}
