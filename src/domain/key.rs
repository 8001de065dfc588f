//! The three kinds of key: their form, and the check that catches a typo before any look-up.

use super::ids::{GroupId, KeyId, OrgId};
use super::org::LimitOverrides;
use super::secret::Secret;
use super::time::Timestamp;
use sha2::{Digest, Sha256};

/// What a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The operator's token: `/admin/v1`.
    Operator,
    /// A tenant's administrator: `/v1` of its organization.
    Workspace,
    /// An agent: `/mcp` of its organization.
    Agent,
}

impl KeyKind {
    /// The prefix of such keys.
    pub const fn prefix(self) -> &'static str {
        match self {
            KeyKind::Operator => "tg_op_",
            KeyKind::Workspace => "tg_ws_",
            KeyKind::Agent => "tg_ag_",
        }
    }
}

/// SHA-256 of a whole key: all that is ever stored of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_DIGITS: usize = 43;
const CHECK_DIGITS: usize = 6;
const PREFIX_LENGTH: usize = 6;

/// Builds a key: prefix, 32 random bytes as 43 base62 digits, CRC-32 of all that as 6 digits.
pub fn mint(kind: KeyKind, random: [u8; 32]) -> Secret {
    let mut text = String::with_capacity(PREFIX_LENGTH + RANDOM_DIGITS + CHECK_DIGITS);
    text.push_str(kind.prefix());
    text.push_str(&base62(&random, RANDOM_DIGITS));
    let check = crc32fast::hash(text.as_bytes());
    text.push_str(&base62(&check.to_be_bytes(), CHECK_DIGITS));
    Secret::new(text)
}

/// The kind and hash of a well-formed key; `None` for anything else.
pub fn recognise(text: &str) -> Option<(KeyKind, KeyHash)> {
    if text.len() != PREFIX_LENGTH + RANDOM_DIGITS + CHECK_DIGITS || !text.is_ascii() {
        return None;
    }
    let kind = [KeyKind::Operator, KeyKind::Workspace, KeyKind::Agent]
        .into_iter()
        .find(|kind| text.starts_with(kind.prefix()))?;
    let (body, check) = text.split_at(PREFIX_LENGTH + RANDOM_DIGITS);
    let expected = base62(&crc32fast::hash(body.as_bytes()).to_be_bytes(), CHECK_DIGITS);
    let digits_only = body.as_bytes()[PREFIX_LENGTH..].iter().all(u8::is_ascii_alphanumeric);
    (digits_only && check == expected).then(|| (kind, hash(text)))
}

/// The hash of a key's text.
pub fn hash(text: &str) -> KeyHash {
    KeyHash(Sha256::digest(text.as_bytes()).into())
}

/// Big-endian base62 of `bytes`, left-padded with `0` to `width` digits.
fn base62(bytes: &[u8], width: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![b'0'; width];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = remainder * 256 + u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = DIGITS[remainder as usize];
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// A workspace key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceKey {
    /// Its id.
    pub id: KeyId,
    /// Its organization.
    pub org_id: OrgId,
    /// Its display name.
    pub name: String,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Raised by every change.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// An agent key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKey {
    /// Its id.
    pub id: KeyId,
    /// Its organization.
    pub org_id: OrgId,
    /// Its display name.
    pub name: String,
    /// The groups it belongs to, in order of id, never empty.
    pub groups: Vec<GroupId>,
    /// Limits below the organization's.
    pub limits: LimitOverrides,
    /// Its holder shows a confirmation to a person.
    pub confirms: bool,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Raised by every change.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_the_contract() {
        let bytes: [u8; 32] = std::array::from_fn(|i| i as u8);
        let key = mint(KeyKind::Operator, bytes);
        assert_eq!(key.reveal(), "tg_op_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3XKEij");
        assert_eq!(recognise(key.reveal()).map(|(kind, _)| kind), Some(KeyKind::Operator));
    }

    #[test]
    fn any_single_typo_is_caught() {
        let key = mint(KeyKind::Agent, [7; 32]);
        let text = key.reveal();
        for at in 0..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
            let typo = String::from_utf8(bytes).expect("ascii");
            assert_eq!(recognise(&typo), None, "typo at {at}");
        }
        assert_eq!(recognise(""), None);
        assert_eq!(recognise(&"é".repeat(28)), None);
    }
}
