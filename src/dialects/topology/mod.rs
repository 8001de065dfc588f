//! Dialect `topology`: the manifest, the run and the late answer of an Orchesty Pulse instance.
//!
//! A command is fire-and-forget and carries nothing to recognise it by: once a byte was sent, an answer that cannot be
//! understood leaves it `uncertain`, never failed and never sent again. A query only asks, so it may fail.

mod call;
pub mod callback;
mod manifest;

pub use call::{decode_answer, encode_call};
pub use manifest::{decode_manifest, encode_manifest_request};

use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use std::borrow::Cow;

/// What stands before every name on this dialect's wire.
const ID_PREFIX: &str = "topology:";

/// The header that shows toolgate's credentials to the provider.
fn auth_header(settings: &EndpointSettings) -> Option<(Cow<'static, str>, String)> {
    match &settings.auth {
        EndpointAuth::Header { name, value } => {
            Some((Cow::Owned(name.to_ascii_lowercase()), value.reveal().to_owned()))
        }
        // Registration gives a topology endpoint a header and nothing else; Median's secrets sign, they are never sent.
        EndpointAuth::Bearer(_) | EndpointAuth::SigningSecret(_) | EndpointAuth::MedianKey(_) | EndpointAuth::None => {
            None
        }
    }
}
