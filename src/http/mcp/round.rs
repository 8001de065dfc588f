//! Rounds of a call: what a client brings along when it calls again with the answers it was asked for.

use super::confirm::{self, Decision};
use super::members::Members;
use super::reply::Fault;
use super::request::{Request, object, text};
use crate::domain::canonical;
use crate::engine::catalog::ShownTo;
use crate::engine::mcp::caller::is_round_state;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// What a client brings from the round before.
#[derive(Default)]
pub(super) struct Round<'a> {
    /// A confirmation token.
    pub(super) token: Option<Cow<'a, str>>,
    /// The state of a call in rounds.
    pub(super) state: Option<String>,
    /// What the user said to toolgate's own question.
    pub(super) decision: Option<Decision>,
    /// Every other answer, a JSON object.
    pub(super) responses: Option<String>,
}

impl<'a> Round<'a> {
    /// Reads it. Only the present era has rounds.
    pub(super) fn of(request: &Request<'a>, era: ShownTo) -> Result<Self, Fault> {
        if era == ShownTo::Legacy {
            return Ok(Self::default());
        }
        let carried = text("requestState", request.params.request_state)?;
        let responses = object("inputResponses", request.params.input_responses)?;
        let mut responses = responses.and_then(|responses| Members::of(responses.get()));
        let decision = responses.as_ref().and_then(|responses| responses.get(confirm::QUESTION)).map(Decision::read);
        if let Some(responses) = &mut responses {
            responses.remove(confirm::QUESTION);
        }
        let responses = responses.filter(|responses| !responses.is_empty()).map(|responses| responses.to_text());
        let (state, token) = match carried {
            Some(carried) if is_round_state(&carried) => (Some(carried.into_owned()), None),
            carried => (None, carried),
        };
        Ok(Self { token, state, decision, responses })
    }

    /// Each round of a call is a call of its own to its tool's server, so its `Idempotency-Key` is one of its own too, the
    /// same whenever the same round is repeated. A confirmation begins no round: it makes the very call that was asked for.
    pub(super) fn key_of(&self, key: String) -> String {
        if self.state.is_none() && self.responses.is_none() {
            return key;
        }
        let mut hash = Sha256::new();
        // The same answers, however they are written.
        let responses = self.responses.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let responses = responses.as_ref().map(canonical::sha256_hex).or(self.responses.clone());
        for part in [Some(key.as_str()), self.state.as_deref(), responses.as_deref()] {
            let part = part.unwrap_or_default();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hex::encode(hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_a_key_of_its_own() {
        let key = |state: Option<&str>, responses: Option<&str>| {
            let round =
                Round { state: state.map(str::to_owned), responses: responses.map(str::to_owned), ..Round::default() };
            round.key_of("k".to_owned())
        };
        assert_eq!(key(None, None), "k");
        assert_eq!(key(Some("r.1"), Some("{}")), key(Some("r.1"), Some("{}")));
        assert_eq!(key(None, Some(r#"{"a":1,"b":2}"#)), key(None, Some(r#"{ "b": 2, "a": 1 }"#)), "the same answers");
        assert_eq!(key(Some("r.1"), None).len(), 64);
        let others =
            [key(Some("r.1"), None), key(Some("r.2"), None), key(None, Some("r.1")), key(Some("r.1"), Some("r"))];
        for (at, one) in others.iter().enumerate() {
            assert!(others[at + 1..].iter().all(|other| other != one));
        }
    }
}
