//! Sessions of MCP clients of the earlier era: what a client said once, sealed, and shown by it ever after.
//!
//! Nothing of a session is kept here, so any node serves it, and a client that opens ten thousand of them costs nothing.
//! A session is good for the agent key that opened it; a key that was revoked is refused before anyone looks at this.

use crate::domain::json::JsonText;
use crate::domain::time::Timestamp;
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::time::Duration;

/// What the sealing key is derived for.
const PURPOSE: &[u8] = b"toolgate mcp session";

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(24 * 3600);

const NONCE: usize = 16;
const EXPIRY: usize = 8;
const SEAL: usize = 32;

/// What a client of the earlier era said when it opened its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Tells sessions of one key apart.
    pub id: [u8; NONCE],
    /// The revision that was agreed upon.
    pub version: String,
    /// What the client can do: a JSON object.
    pub capabilities: JsonText,
}

/// Makes and checks sessions.
pub(in crate::engine) struct SessionSeal {
    key: [u8; 32],
}

impl SessionSeal {
    pub(in crate::engine) fn derived_from(secret: &[u8; 32]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
        mac.update(PURPOSE);
        Self { key: mac.finalize().into_bytes().into() }
    }

    fn seal(&self, owner: &[[u8; 16]; 2], session: &Session, expires_at: Timestamp) -> String {
        let expiry = expires_at.as_millis().to_be_bytes();
        let said = Value::from(vec![session.version.as_str(), session.capabilities.as_str()]).to_string();
        let seal = self.mac(owner, &session.id, &expiry, said.as_bytes()).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([session.id.as_slice(), &expiry, &seal, said.as_bytes()].concat())
    }

    fn open(&self, owner: &[[u8; 16]; 2], text: &str, now: Timestamp) -> Option<Session> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (id, rest) = bytes.split_first_chunk::<NONCE>()?;
        let (expiry, rest) = rest.split_first_chunk::<EXPIRY>()?;
        let (seal, said) = rest.split_first_chunk::<SEAL>()?;
        self.mac(owner, id, expiry, said).verify_slice(seal).ok()?;
        if Timestamp::from_millis(i64::from_be_bytes(*expiry)) <= now {
            return None;
        }
        let (version, capabilities): (String, String) = serde_json::from_slice(said).ok()?;
        Some(Session { id: *id, version, capabilities: JsonText::parse(&capabilities).ok()? })
    }

    fn mac(&self, owner: &[[u8; 16]; 2], id: &[u8], expiry: &[u8], said: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        // All parts but the last are of one length.
        [&owner[0], &owner[1], id, expiry, said].into_iter().for_each(|part| mac.update(part));
        mac
    }
}

/// The organization and the agent key a session belongs to.
fn owner(access: &AgentAccess) -> [[u8; 16]; 2] {
    [access.key().org_id.uuid().into_bytes(), access.key().id.uuid().into_bytes()]
}

impl Engine {
    /// Opens a session for a client that speaks `version` and can do `capabilities`; the text is shown back with each of
    /// its requests.
    pub fn seal_session(&self, access: &AgentAccess, version: &str, capabilities: JsonText) -> String {
        let mut id = [0; NONCE];
        self.clock().fill_random(&mut id);
        let session = Session { id, version: version.to_owned(), capabilities };
        self.0.sessions.seal(&owner(access), &session, self.clock().now().plus(LASTS))
    }

    /// The session this text stands for; `None` when it is forged, expired or another key's.
    pub fn open_session(&self, access: &AgentAccess, text: &str) -> Option<Session> {
        self.0.sessions.open(&owner(access), text, self.clock().now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: [[u8; 16]; 2] = [[1; 16], [2; 16]];

    fn session() -> Session {
        let capabilities = JsonText::parse(r#"{"elicitation":{}}"#).expect("JSON");
        Session { id: [7; NONCE], version: "2025-11-25".to_owned(), capabilities }
    }

    #[test]
    fn a_session_is_its_owners_until_it_expires() {
        let seal = SessionSeal::derived_from(&[9; 32]);
        let (at, before) = (Timestamp::from_millis(1_000), Timestamp::from_millis(999));
        let text = seal.seal(&OWNER, &session(), at);
        assert!(text.bytes().all(|b| b.is_ascii_graphic()));
        assert_eq!(seal.open(&OWNER, &text, before), Some(session()));
        assert_eq!(seal.open(&OWNER, &text, at), None, "expired");
        assert_eq!(seal.open(&[[1; 16], [3; 16]], &text, before), None, "another key");
        assert_eq!(seal.open(&[[3; 16], [2; 16]], &text, before), None, "another organization");
        assert_eq!(SessionSeal::derived_from(&[8; 32]).open(&OWNER, &text, before), None, "forged");
        assert_eq!(seal.open(&OWNER, "", before), None);
    }

    #[test]
    fn no_bit_of_a_session_can_be_changed() {
        let seal = SessionSeal::derived_from(&[9; 32]);
        let bytes = URL_SAFE_NO_PAD.decode(seal.seal(&OWNER, &session(), Timestamp::from_millis(2))).expect("ours");
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert!(
                seal.open(&OWNER, &URL_SAFE_NO_PAD.encode(forged), Timestamp::from_millis(1)).is_none(),
                "byte {at}"
            );
        }
    }
}
