//! Diagnostics: what a provider says about itself, when its manifest offers that.

use super::super::checks::{object, present};
use super::super::{InboundAnswer, OutboundRequest};
use super::call::{reported, undecodable};
use super::request;
use crate::domain::endpoint::EndpointSettings;
use crate::domain::error_code::ErrorCode;
use crate::domain::json::JsonText;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The request for diagnostics.
pub fn encode_diagnostics(settings: &EndpointSettings) -> OutboundRequest {
    request(settings, br#"{"op":"diagnostics","version":1}"#.to_vec())
}

#[derive(Deserialize)]
struct DiagnosticsBody<'a> {
    #[serde(borrow)]
    diagnostics: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Reads the answer: the object the provider sent, as its text, or the code and sentence of a failure.
pub fn decode_diagnostics(answer: &InboundAnswer) -> Result<JsonText, (ErrorCode, String)> {
    match object::<DiagnosticsBody<'_>>(&answer.body) {
        Some(DiagnosticsBody { diagnostics: Some(raw), error: None }) if raw.get().starts_with('{') => {
            Ok(JsonText::from(raw.to_owned()))
        }
        Some(DiagnosticsBody { diagnostics: None, error: Some(error) }) => {
            Err(reported(error).unwrap_or_else(|| nothing_said(answer.status)))
        }
        Some(_) | None => Err(nothing_said(answer.status)),
    }
}

fn nothing_said(status: u16) -> (ErrorCode, String) {
    match undecodable(status) {
        (ErrorCode::ProviderProtocolError, _) => (
            ErrorCode::ProviderProtocolError,
            "the provider's answer breaks its protocol: its body is not an object with diagnostics".to_owned(),
        ),
        other => other,
    }
}
