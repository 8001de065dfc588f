//! The way to an endpoint: one request, what became of it, and what that says about the endpoint.

use super::gate::GatePermit;
use crate::dialects::{InboundAnswer, OutboundRequest};
use crate::domain::endpoint::{Endpoint, EndpointState};
use crate::domain::error_code::ErrorCode;
use crate::domain::run::Attempt;
use crate::engine::Engine;
use crate::engine::catalog::Catalog;
use crate::engine::ports::{TransportError, TransportFault};
use tokio::time::Instant;

/// How an exchange ended, as far as the endpoint's health hangs on it.
pub(in crate::engine) fn ended_as(ended: &Ended) -> Result<u16, TransportFault> {
    match ended {
        Ok(answer) => Ok(answer.status),
        Err(error) => Err(error.kind),
    }
}

/// How one exchange ended.
pub(in crate::engine) type Ended = Result<InboundAnswer, TransportError>;

/// The way to one endpoint as the organization has it now.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Way<'a> {
    pub(in crate::engine) engine: &'a Engine,
    pub(in crate::engine) catalog: &'a Catalog,
    pub(in crate::engine) endpoint: &'a Endpoint,
}

impl Way<'_> {
    /// Sends one request once and counts it.
    pub(in crate::engine) async fn send(self, request: &OutboundRequest, deadline: Instant) -> (Ended, Attempt) {
        let (at, begun) = (self.engine.clock().now(), Instant::now());
        let limit = self.engine.settings().provider_response_bytes;
        let ended = self.engine.0.ports.transport.send(request, &self.catalog.egress, limit, deadline).await;
        let (outcome, http_status) = match &ended {
            Ok(answer) => (http_outcome(answer.status), Some(answer.status)),
            Err(error) => (error.kind.as_str(), None),
        };
        self.engine.metrics().provider_request(&self.catalog.org.slug, &self.endpoint.settings.name, outcome);
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        (ended, Attempt { at, duration_ms, outcome: outcome.to_owned(), http_status })
    }

    /// Reports to the breaker and frees the slot; a breaker that opens or closes is shown.
    pub(in crate::engine) fn leave(self, permit: GatePermit, ended: Result<u16, TransportFault>) {
        let healthy = match ended {
            Ok(status) => Some(status < 500),
            Err(fault) => healthy_despite(fault),
        };
        let Some(healthy) = healthy else { return };
        if let Some(closed) = permit.report(self.engine.clock().monotonic(), healthy) {
            let up = closed && self.endpoint.state() == EndpointState::Connected;
            self.engine.metrics().endpoint_up(&self.catalog.org.slug, &self.endpoint.settings.name, up);
        }
    }
}

/// Whether a fault speaks for or against the provider's health; `None` when it says nothing about it.
const fn healthy_despite(fault: TransportFault) -> Option<bool> {
    match fault {
        TransportFault::BlockedAddress | TransportFault::BadUrl => None,
        TransportFault::TooLarge => Some(true),
        TransportFault::Unresolvable
        | TransportFault::ConnectFailed
        | TransportFault::ConnectTimeout
        | TransportFault::Tls
        | TransportFault::Timeout
        | TransportFault::Reset
        | TransportFault::Malformed => Some(false),
    }
}

/// The code of an exchange that fails like this.
pub(in crate::engine) const fn fault_code(fault: TransportFault) -> ErrorCode {
    match fault {
        TransportFault::BlockedAddress
        | TransportFault::BadUrl
        | TransportFault::Unresolvable
        | TransportFault::ConnectFailed
        | TransportFault::ConnectTimeout
        | TransportFault::Tls => ErrorCode::EndpointUnavailable,
        TransportFault::Timeout => ErrorCode::ProviderTimeout,
        TransportFault::Reset => ErrorCode::ProviderError,
        TransportFault::TooLarge | TransportFault::Malformed => ErrorCode::ProviderProtocolError,
    }
}

/// Whether no connection was made at all.
pub(in crate::engine) const fn is_connect_fault(fault: TransportFault) -> bool {
    matches!(fault, TransportFault::ConnectFailed | TransportFault::ConnectTimeout | TransportFault::Unresolvable)
}

/// The metrics' word for an answered exchange.
pub(in crate::engine) const fn http_outcome(status: u16) -> &'static str {
    match status {
        0..400 => "ok",
        400..500 => "http_4xx",
        _ => "http_5xx",
    }
}
