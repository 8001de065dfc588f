//! An HTTP server on a free port of loopback, and a memory of what it was asked.

use actix_web::dev::ServerHandle;
use actix_web::web::{Bytes, ServiceConfig};
use actix_web::{App, HttpRequest, HttpServer};
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests that are remembered; older ones are forgotten.
const REMEMBERED: usize = 10_000;

/// A running server. It ends with [`LocalServer::stop`] or with the actix `System` it runs in.
pub struct LocalServer {
    url: String,
    handle: ServerHandle,
}

impl LocalServer {
    /// Serves on `127.0.0.1` and a free port; needs a running actix `System`.
    pub fn start<F>(configure: F) -> io::Result<Self>
    where
        F: Fn(&mut ServiceConfig) + Clone + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = HttpServer::new(move || App::new().configure(configure.clone()))
            .workers(1)
            .disable_signals()
            .listen(listener)?
            .run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Ok(Self { url, handle })
    }

    /// Its base URL, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops at once: whoever waits for an answer gets none.
    pub async fn stop(&self) {
        self.handle.stop(false).await;
    }
}

/// One request as the server received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// Headers in order, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body's bytes, exactly.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// The first header with this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What a server was asked so far.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<VecDeque<RecordedRequest>>>);

impl Recorder {
    /// Remembers a request.
    pub fn note(&self, request: &HttpRequest, body: &Bytes) {
        let text =
            |value: &actix_web::http::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let recorded = RecordedRequest {
            method: request.method().to_string(),
            path: request.path().to_owned(),
            headers: request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: body.to_vec(),
        };
        self.remember(recorded);
    }

    /// Remembers a request that was read elsewhere.
    pub(super) fn remember(&self, request: RecordedRequest) {
        let mut requests = self.lock();
        if requests.len() == REMEMBERED {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Every remembered request, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecordedRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
