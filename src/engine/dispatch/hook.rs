//! Messages to an organization's own receivers, signed as Standard Webhooks, under the same rules as every call out.

use super::signing;
use crate::dialects::{InboundAnswer, Method, OutboundRequest};
use crate::domain::json::JsonText;
use crate::domain::org::Hook;
use crate::engine::Engine;
use crate::engine::catalog::Catalog;
use crate::engine::ports::{TransportError, TransportFault};
use bytes::Bytes;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// A receiver's answer is not read further than this.
const LONGEST_ANSWER_BYTES: usize = 64 << 10;

/// What is sent to a receiver.
pub(in crate::engine) struct HookMessage {
    /// `webhook-id`.
    pub(in crate::engine) id: String,
    /// Exactly the bytes that are signed and sent.
    pub(in crate::engine) body: JsonText,
}

impl Engine {
    /// Signs a message for this moment and sends it once.
    pub(in crate::engine) async fn send_hook(
        &self,
        catalog: &Catalog,
        hook: &Hook,
        message: &HookMessage,
        timeout: Duration,
    ) -> Result<InboundAnswer, TransportError> {
        let body = Bytes::copy_from_slice(message.body.as_str().as_bytes());
        let timestamp_s = self.clock().now().as_seconds();
        let signature = signing::sign(&hook.secret, &message.id, timestamp_s, &body)
            .map_err(|_| TransportError { kind: TransportFault::BadUrl, bytes_sent: false })?;
        let request = OutboundRequest {
            method: Method::Post,
            url: hook.url.clone(),
            headers: vec![
                (Cow::Borrowed("webhook-id"), message.id.clone()),
                (Cow::Borrowed("webhook-timestamp"), timestamp_s.to_string()),
                (Cow::Borrowed("webhook-signature"), signature),
            ],
            body,
            median_signature: false,
        };
        let deadline = Instant::now() + timeout;
        self.0.ports.transport.send(&request, &catalog.egress, LONGEST_ANSWER_BYTES, deadline).await
    }
}
