//! Dialect `agent-provider`: reads and mutations of a provider adapter, answered with evidence; a mutation happens once,
//! under the id and the fingerprint of its operation, and leaves a receipt that can be asked for.
//!
//! **Invariant:** a mutation counts as applied or rejected only on evidence or a receipt that carries both its ids, or on
//! a status by which the provider turned the request down. Anything else leaves it unclear.

mod answer;
mod call;
mod envelope;
mod manifest;
mod parameters;
mod receipt;
mod result;

pub use answer::{decode_answer, decode_resend};
pub use call::{encode_call, encode_operation, encode_receipt_request, subject_id};
pub use manifest::{decode_manifest, encode_manifest_request};
pub use receipt::{ReceiptAnswer, decode_receipt};

use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::tool::{ProviderTerms, ToolSpec};
use std::borrow::Cow;

/// The header that shows toolgate's credentials to the provider.
fn auth_header(settings: &EndpointSettings) -> Option<(Cow<'static, str>, String)> {
    match &settings.auth {
        EndpointAuth::Bearer(token) => Some((Cow::Borrowed("authorization"), format!("Bearer {}", token.reveal()))),
        // Registration gives an agent-provider endpoint a bearer token and nothing else.
        EndpointAuth::Header { .. }
        | EndpointAuth::SigningSecret(_)
        | EndpointAuth::MedianKey(_)
        | EndpointAuth::None => None,
    }
}

/// What the manifest binds a tool to.
fn terms(tool: &ToolSpec) -> &ProviderTerms {
    tool.provider.as_deref().expect("the manifest of this dialect gives every tool its terms")
}
