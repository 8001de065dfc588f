//! A response node: delivers late answers, signed as Standard Webhooks asks.

use super::client::{Answer, Client, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;
use toolgate::engine::ports::Clock;
use toolgate::engine::test_clock::TestClock;

pub(crate) struct Node {
    client: Client,
    path: String,
    secret: String,
    clock: Arc<TestClock>,
}

impl Node {
    pub(crate) fn new(client: Client, path: &str, secret: &str, clock: Arc<TestClock>) -> Self {
        Self { client, path: path.to_owned(), secret: secret.to_owned(), clock }
    }

    /// The same node after it was given another secret.
    pub(crate) fn with_secret(&self, secret: &str) -> Self {
        Self::new(self.client.clone(), &self.path, secret, Arc::clone(&self.clock))
    }

    /// The same node, delivering to a gateway that was started anew.
    pub(crate) fn at(&self, client: &Client) -> Self {
        Self::new(client.clone(), &self.path, &self.secret, Arc::clone(&self.clock))
    }

    pub(crate) fn seconds(&self) -> i64 {
        self.clock.now().as_millis() / 1000
    }

    /// Delivers this `data`.
    pub(crate) fn deliver(&self, webhook_id: &str, data: &Value) -> Answer {
        let body = json!({ "type": "tool.result", "timestamp": "2026-01-12T13:46:40Z", "data": data });
        self.deliver_bytes(webhook_id, body.to_string().as_bytes())
    }

    pub(crate) fn deliver_bytes(&self, webhook_id: &str, body: &[u8]) -> Answer {
        self.signed(webhook_id, self.seconds(), body).send()
    }

    /// Delivers the result of the run that toolgate knows by this id.
    pub(crate) fn complete(&self, webhook_id: &str, request_id: &str, payload: &Value) -> Answer {
        self.deliver(webhook_id, &json!({ "request_id": request_id, "status": "completed", "payload": payload }))
    }

    pub(crate) fn signed(&self, webhook_id: &str, seconds: i64, body: &[u8]) -> Request {
        let signature = sign(&self.secret, webhook_id, seconds, body);
        self.unsigned(webhook_id, seconds, body).header("webhook-signature", signature)
    }

    pub(crate) fn unsigned(&self, webhook_id: &str, seconds: i64, body: &[u8]) -> Request {
        self.client
            .request("POST", &self.path)
            .text("application/json", body)
            .header("webhook-id", webhook_id)
            .header("webhook-timestamp", seconds.to_string())
    }
}

pub(crate) fn sign(secret: &str, webhook_id: &str, seconds: i64, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a webhook secret")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length");
    mac.update(format!("{webhook_id}.{seconds}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
