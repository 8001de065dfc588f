//! What every check needs: the provider, a way to ask it, and where the findings go.

use super::report::{Line, Report, shortened};
use crate::adapters::transport::{SimpleClient, SimpleMethod};
use crate::dialects::{InboundAnswer, Method, OutboundRequest};
use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::time::Timestamp;
use crate::engine::dispatch::signing::{median_secret, median_signature};
use bytes::Bytes;
use serde_json::Value;
use std::error::Error as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most characters of a body that an account repeats.
const LONGEST_BODY: usize = 160;

/// An answer, whole.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
    pub(super) took: Duration,
}

impl Answer {
    /// A header by its lower-case name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` when it is none.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The answer in a few words.
    pub(super) fn account(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        match text.trim() {
            "" => format!("HTTP {} without a body", self.status),
            text => format!("HTTP {}, {}", self.status, shortened(text, LONGEST_BODY)),
        }
    }

    /// The answer as the dialects take it.
    pub(super) fn inbound(&self) -> InboundAnswer {
        InboundAnswer { status: self.status, etag: None, body: self.body.clone() }
    }
}

/// What is checked right now.
pub(super) struct Session<'a> {
    pub(super) settings: EndpointSettings,
    pub(super) report: Report<'a>,
    client: SimpleClient,
}

impl<'a> Session<'a> {
    pub(super) const fn new(settings: EndpointSettings, client: SimpleClient, sink: &'a mut dyn FnMut(&Line)) -> Self {
        Self { settings, report: Report::new(sink), client }
    }

    /// The endpoint with other credentials.
    pub(super) fn settings_with(&self, auth: EndpointAuth) -> EndpointSettings {
        EndpointSettings { auth, ..self.settings.clone() }
    }

    /// Sends a request as the gateway would.
    pub(super) async fn send(&self, request: &OutboundRequest) -> Result<Answer, String> {
        let signature = if request.median_signature { self.signature(now(), &request.body) } else { None };
        self.send_signed(request, signature).await
    }

    /// Sends a request under this `median-signature`, or none. The error is a sentence.
    pub(super) async fn send_signed(
        &self,
        request: &OutboundRequest,
        signature: Option<String>,
    ) -> Result<Answer, String> {
        let mut headers = Vec::with_capacity(request.headers.len() + 2);
        if !request.headers.iter().any(|(name, _)| name == "accept") {
            headers.push(("accept".to_owned(), "application/json".to_owned()));
        }
        headers.extend(request.headers.iter().map(|(name, value)| (name.clone().into_owned(), value.clone())));
        headers.extend(signature.map(|signature| ("median-signature".to_owned(), signature)));
        let (method, body) = match request.method {
            Method::Get => (SimpleMethod::Get, None),
            Method::Post => (SimpleMethod::Post, Some(request.body.clone())),
            Method::Delete => (SimpleMethod::Delete, None),
        };
        let began = Instant::now();
        match self.client.call(method, &request.url, &headers, body).await {
            Ok(answer) => {
                let (status, headers, body) = (answer.status, answer.headers, answer.body);
                Ok(Answer { status, headers, body, took: began.elapsed() })
            }
            Err(error) => {
                let mut sentence = format!("no answer: {error}");
                let mut cause = error.source();
                while let Some(source) = cause {
                    sentence = format!("{sentence}: {source}");
                    cause = source.source();
                }
                Err(sentence)
            }
        }
    }

    /// The signature of a body at a time, where the endpoint's credentials sign.
    pub(super) fn signature(&self, at: Timestamp, body: &[u8]) -> Option<String> {
        signature(&self.settings.auth, at, body)
    }
}

/// The signature of a body under these credentials.
pub(super) fn signature(auth: &EndpointAuth, at: Timestamp, body: &[u8]) -> Option<String> {
    median_secret(auth).map(|secret| median_signature(&secret, at, body))
}

/// The time of this machine.
pub(super) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
