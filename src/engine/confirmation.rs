//! Confirmation tokens: the end user's yes to one call.
//!
//! A token seals a nonce and an expiry together with what it is for; nothing is stored until it is used. Its use is then
//! part of inserting the run, so that of two runs with one token only one is made.

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
        let seal = self.mac(binding, &nonce, &expiry).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([nonce.as_slice(), &expiry, &seal].concat())
    }

    /// The use of a token that is for exactly this call and not yet expired.
    pub(super) fn check(&self, token: &str, binding: Binding<'_>, now: Timestamp) -> Option<TokenUse> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok().filter(|bytes| bytes.len() == NONCE + EXPIRY + SEAL)?;
        let (nonce, rest) = bytes.split_at(NONCE);
        let (expiry, seal) = rest.split_at(EXPIRY);
        self.mac(binding, nonce, expiry).verify_slice(seal).ok()?;
        let expires_at = Timestamp::from_millis(i64::from_be_bytes(expiry.try_into().ok()?));
        (now < expires_at).then(|| TokenUse { nonce_hash: Sha256::digest(nonce).into(), expires_at })
    }

    fn mac(&self, binding: Binding<'_>, nonce: &[u8], expiry: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        let (org, key) = (binding.org.uuid(), binding.agent_key.uuid());
        // An absent caller and an empty one are not the same.
        let caller = binding.caller.map_or(vec![0], |caller| [&[1], caller.as_bytes()].concat());
        let parts: [&[u8]; 8] = [
            nonce,
            expiry,
            org.as_bytes(),
            key.as_bytes(),
            &caller,
            binding.tool.as_bytes(),
            binding.tool_hash.as_bytes(),
            binding.arguments_hash.as_bytes(),
        ];
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
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
}
