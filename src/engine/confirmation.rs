//! Confirmation tokens: the end user's yes to one call.
//!
//! A token seals a nonce and an expiry together with what it is for; nothing is stored until it is used. Its use is then
//! part of inserting the run, so that of two runs with one token only one is made.
//!
//! The state that an MCP client carries from one round of a call to the next is sealed the same way: it holds what the
//! tool's server wants to have back, and whether the user has said yes. Such a yes counts once, like any other.

use super::store_port::TokenUse;
use crate::domain::ids::{KeyId, OrgId};
use crate::domain::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// What a confirmation is for: any difference makes another token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding<'a> {
    pub(super) org: OrgId,
    pub(super) agent_key: KeyId,
    pub(super) caller: Option<&'a str>,
    pub(super) tool: &'a str,
    pub(super) tool_hash: &'a str,
    /// SHA-256 of the canonical coerced arguments, hex.
    pub(super) arguments_hash: &'a str,
}

/// A fresh token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Passed back in `confirmation`.
    pub token: String,
    /// When it stops counting.
    pub expires_at: Timestamp,
    /// What the end user is asked.
    pub summary: String,
}

/// What an MCP client carries from one round of a call to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// The use of the yes that was given before; `None` when none was needed.
    pub(super) consent: Option<TokenUse>,
    /// The state of the tool's server.
    pub(super) state: Option<String>,
}

/// What a seal is made for comes first in it: a token is no state, and a state no token.
const FOR_CONFIRMATION: &[u8] = b"confirmation";
const FOR_ROUND: &[u8] = b"round";

/// Marks the text of a round's state; no token holds a dot.
pub(super) const ROUND_MARK: &str = "r.";

const NONCE: usize = 16;
const EXPIRY: usize = 8;
const SEAL: usize = 32;

/// Makes and checks tokens.
pub(super) struct ConfirmationSeal {
    key: [u8; 32],
}

impl ConfirmationSeal {
    pub(super) const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    pub(super) fn issue(&self, binding: Binding<'_>, nonce: [u8; NONCE], expires_at: Timestamp) -> String {
        let expiry = expires_at.as_millis().to_be_bytes();
        let seal = self.mac(FOR_CONFIRMATION, binding, &[&nonce, &expiry]).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([nonce.as_slice(), &expiry, &seal].concat())
    }

    /// The use of a token that is for exactly this call and not yet expired.
    pub(super) fn check(&self, token: &str, binding: Binding<'_>, now: Timestamp) -> Option<TokenUse> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok().filter(|bytes| bytes.len() == NONCE + EXPIRY + SEAL)?;
        let (nonce, rest) = bytes.split_at(NONCE);
        let (expiry, seal) = rest.split_at(EXPIRY);
        self.mac(FOR_CONFIRMATION, binding, &[nonce, expiry]).verify_slice(seal).ok()?;
        token_use(nonce, expiry, now)
    }

    /// Seals what a client carries to the next round of a call.
    pub(super) fn issue_round(
        &self,
        binding: Binding<'_>,
        nonce: [u8; NONCE],
        expires_at: Timestamp,
        confirmed: bool,
        state: Option<&str>,
    ) -> String {
        let expiry = expires_at.as_millis().to_be_bytes();
        let flags = [u8::from(confirmed), u8::from(state.is_some())];
        let state = state.unwrap_or_default().as_bytes();
        let seal = self.mac(FOR_ROUND, binding, &[&nonce, &expiry, &flags, state]).finalize().into_bytes();
        let sealed = [nonce.as_slice(), &expiry, &flags, &seal, state].concat();
        [ROUND_MARK, &URL_SAFE_NO_PAD.encode(sealed)].concat()
    }

    /// What was sealed for the next round of exactly this call, if it has not expired.
    pub(super) fn open_round(&self, text: &str, binding: Binding<'_>, now: Timestamp) -> Option<Round> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(ROUND_MARK)?).ok()?;
        let (nonce, rest) = bytes.split_at_checked(NONCE)?;
        let (expiry, rest) = rest.split_at_checked(EXPIRY)?;
        let (flags, rest) = rest.split_at_checked(2)?;
        let (seal, state) = rest.split_at_checked(SEAL)?;
        self.mac(FOR_ROUND, binding, &[nonce, expiry, flags, state]).verify_slice(seal).ok()?;
        let consent = token_use(nonce, expiry, now)?;
        let state = String::from_utf8(state.to_vec()).ok()?;
        Some(Round { consent: (flags[0] == 1).then_some(consent), state: (flags[1] == 1).then_some(state) })
    }

    fn mac(&self, purpose: &[u8], binding: Binding<'_>, content: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        let (org, key) = (binding.org.uuid(), binding.agent_key.uuid());
        // An absent caller and an empty one are not the same.
        let caller = binding.caller.map_or(vec![0], |caller| [&[1], caller.as_bytes()].concat());
        let bound: [&[u8]; 7] = [
            purpose,
            org.as_bytes(),
            key.as_bytes(),
            &caller,
            binding.tool.as_bytes(),
            binding.tool_hash.as_bytes(),
            binding.arguments_hash.as_bytes(),
        ];
        for part in bound.iter().chain(content) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

/// The use of what this nonce stands for, unless it has expired.
fn token_use(nonce: &[u8], expiry: &[u8], now: Timestamp) -> Option<TokenUse> {
    let expires_at = Timestamp::from_millis(i64::from_be_bytes(expiry.try_into().ok()?));
    (now < expires_at).then(|| TokenUse { nonce_hash: Sha256::digest(nonce).into(), expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding<'a>(caller: Option<&'a str>, arguments_hash: &'a str) -> Binding<'a> {
        let (org, agent_key) = (OrgId::from_uuid(uuid::Uuid::nil()), KeyId::from_uuid(uuid::Uuid::nil()));
        Binding { org, agent_key, caller, tool: "pay", tool_hash: "h", arguments_hash }
    }

    #[test]
    fn a_token_counts_for_its_call_until_it_expires() {
        let seal = ConfirmationSeal::new([7; 32]);
        let at = Timestamp::from_millis(1_000);
        let token = seal.issue(binding(Some("ann"), "a"), [1; NONCE], at);
        let just_before = Timestamp::from_millis(999);
        assert!(seal.check(&token, binding(Some("ann"), "a"), just_before).is_some());
        assert!(seal.check(&token, binding(Some("ann"), "a"), at).is_none(), "expired");
        assert!(seal.check(&token, binding(Some("ann"), "b"), just_before).is_none(), "other arguments");
        assert!(seal.check(&token, binding(Some("bob"), "a"), just_before).is_none(), "another caller");
        assert!(seal.check(&token, binding(None, "a"), just_before).is_none(), "no caller");
        let other_key = ConfirmationSeal::new([8; 32]);
        assert!(other_key.check(&token, binding(Some("ann"), "a"), just_before).is_none(), "forged");
        assert!(seal.check("", binding(Some("ann"), "a"), just_before).is_none());
    }
    #[test]
    fn a_round_is_carried_by_its_own_call_only() {
        let seal = ConfirmationSeal::new([7; 32]);
        let (at, before) = (Timestamp::from_millis(1_000), Timestamp::from_millis(999));
        let round = |confirmed, state| seal.issue_round(binding(Some("ann"), "a"), [1; NONCE], at, confirmed, state);
        let open = |text: &str, caller, arguments| seal.open_round(text, binding(caller, arguments), before);
        for (confirmed, state) in [(true, Some("s")), (false, Some("")), (true, None), (false, None)] {
            let text = round(confirmed, state);
            let opened = open(&text, Some("ann"), "a").expect("its own");
            assert_eq!((opened.consent.is_some(), opened.state.as_deref()), (confirmed, state));
            assert!(open(&text, Some("ann"), "b").is_none(), "other arguments");
            assert!(open(&text, Some("bob"), "a").is_none(), "another caller");
            assert!(seal.open_round(&text, binding(Some("ann"), "a"), at).is_none(), "expired");
            assert!(seal.check(&text, binding(Some("ann"), "a"), before).is_none(), "no token");
        }
        let token = seal.issue(binding(Some("ann"), "a"), [1; NONCE], at);
        assert!(open(&token, Some("ann"), "a").is_none());
        assert!(open(&format!("r.{token}"), Some("ann"), "a").is_none(), "a token is no state");
        assert!(open("r.", Some("ann"), "a").is_none());
    }

    #[test]
    fn no_bit_of_a_round_can_be_changed() {
        let seal = ConfirmationSeal::new([7; 32]);
        let (at, before) = (Timestamp::from_millis(1_000), Timestamp::from_millis(999));
        let text = seal.issue_round(binding(None, "a"), [1; NONCE], at, false, Some("state"));
        let bytes = URL_SAFE_NO_PAD.decode(&text[ROUND_MARK.len()..]).expect("ours");
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            let forged = format!("{ROUND_MARK}{}", URL_SAFE_NO_PAD.encode(forged));
            assert!(seal.open_round(&forged, binding(None, "a"), before).is_none(), "byte {at}");
        }
    }
}
