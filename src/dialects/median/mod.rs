//! Dialect `median`: signed tool calls, answered in the same exchange. Requests leave here unsigned: the signature holds
//! the time of each attempt and is made over exactly these bytes.

mod call;
mod diagnostics;
mod manifest;
mod schema_rules;

pub use call::{decode_answer, encode_call};
pub use diagnostics::{decode_diagnostics, encode_diagnostics};
pub use manifest::{decode_manifest, encode_manifest_request};

use super::{Method, OutboundRequest};
use crate::domain::endpoint::EndpointSettings;
use bytes::Bytes;

/// The protocol version of both sides.
const VERSION: u8 = 1;

/// Everything is asked at one address; an empty body is a GET.
fn request(settings: &EndpointSettings, body: Vec<u8>) -> OutboundRequest {
    OutboundRequest {
        method: if body.is_empty() { Method::Get } else { Method::Post },
        url: format!("{}/", settings.base_url),
        headers: Vec::new(),
        body: Bytes::from(body),
        median_signature: true,
    }
}
