//! Attempts: signed, within one deadline, behind a gate.

pub mod breaker;
pub mod call;
pub mod gate;
pub mod signing;

use crate::dialects::OutboundRequest;
use crate::domain::endpoint::EndpointAuth;
use crate::domain::time::Timestamp;
use std::borrow::Cow;

/// Signs a request that is about to leave, where its dialect signs: the signature holds the time.
pub(in crate::engine) fn sign_if_wanted(request: &mut OutboundRequest, auth: &EndpointAuth, now: Timestamp) {
    if !request.median_signature {
        return;
    }
    if let Some(secret) = signing::median_secret(auth) {
        let signature = signing::median_signature(&secret, now, &request.body);
        request.headers.push((Cow::Borrowed("median-signature"), signature));
    }
}
