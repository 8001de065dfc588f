//! Signatures, as pure functions: Median's on what leaves, Standard Webhooks on what comes in and on our own hooks.
//!
//! **Invariant:** what is signed or verified is exactly the bytes on the wire, never a value that was parsed and written
//! again. Comparisons take the same time whether they fail early or late.

use crate::domain::endpoint::EndpointAuth;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;

/// The `info` a median key is expanded with.
const MEDIAN_KEY_INFO: &[u8] = b"median/agent-tools/v1";

/// What a webhook secret begins with.
const WEBHOOK_SECRET_PREFIX: &str = "whsec_";

/// How far a webhook's time may be from ours, either way, in seconds.
const WEBHOOK_TOLERANCE_S: u64 = 300;

/// The secret that requests to a Median provider are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct MedianSecret(Vec<u8>);

impl fmt::Debug for MedianSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MedianSecret(…)")
    }
}

impl MedianSecret {
    /// The secret's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The signing secret of an endpoint: as given, or derived from a median key (HKDF-SHA-256 without salt, 32 bytes).
/// `None` for credentials of another dialect. Worth keeping: deriving costs several signatures.
pub fn median_secret(auth: &EndpointAuth) -> Option<MedianSecret> {
    match auth {
        EndpointAuth::SigningSecret(secret) => Some(MedianSecret(secret.reveal().as_bytes().to_vec())),
        EndpointAuth::MedianKey(key) => {
            let mut derived = vec![0; 32];
            Hkdf::<Sha256>::new(None, key.reveal().as_bytes())
                .expand(MEDIAN_KEY_INFO, &mut derived)
                .expect("32 bytes are far below the most HKDF gives");
            Some(MedianSecret(derived))
        }
        EndpointAuth::Header { .. } | EndpointAuth::Bearer(_) | EndpointAuth::None => None,
    }
}

/// The value of `median-signature` for a request that leaves at `at`; the body of a GET is empty.
pub fn median_signature(secret: &MedianSecret, at: Timestamp, body: &[u8]) -> String {
    let time = at.as_millis();
    let mut mac = keyed(secret.as_bytes());
    mac.update(format!("{time}.").as_bytes());
    mac.update(body);
    format!("t={time},v1={}", hex::encode(mac.finalize().into_bytes()))
}

/// The three headers of a signed webhook, as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookHeaders<'a> {
    /// `webhook-id`.
    pub id: Option<&'a [u8]>,
    /// `webhook-timestamp`, in seconds.
    pub timestamp: Option<&'a [u8]>,
    /// `webhook-signature`: `v1,<base64>`, several of them with spaces between.
    pub signature: Option<&'a [u8]>,
}

/// Why a webhook is not believed. For our records: its sender is told only that the signature does not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// A header is missing or empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A header holds something other than visible ASCII, or what is no time.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// The time is too far from ours.
    #[error("webhook-timestamp is more than five minutes from the gateway's time")]
    OutOfTolerance,
    /// No signature of any known version fits any of the secrets.
    #[error("no signature fits")]
    Mismatch,
}

/// A secret that is not `whsec_` and base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret is whsec_ followed by base64")]
pub struct UnusableSecret;

/// A new webhook secret out of random bytes.
pub fn mint_webhook_secret(random: [u8; 24]) -> Secret {
    Secret::new(format!("{WEBHOOK_SECRET_PREFIX}{}", STANDARD.encode(random)))
}

/// Whether a text is a webhook secret as [`mint_webhook_secret`] makes them.
pub fn is_webhook_secret(text: &str) -> bool {
    let bytes = text.strip_prefix(WEBHOOK_SECRET_PREFIX).and_then(|key| STANDARD.decode(key).ok());
    bytes.is_some_and(|bytes| bytes.len() == 24)
}

/// The value of `webhook-signature` for a webhook of ours.
pub fn sign(secret: &Secret, id: &str, timestamp_s: i64, body: &[u8]) -> Result<String, UnusableSecret> {
    let key = webhook_key(secret).ok_or(UnusableSecret)?;
    Ok(format!("v1,{}", webhook_mac(&key, id.as_bytes(), timestamp_s.to_string().as_bytes(), body)))
}

/// Verifies a webhook against every secret that is valid now, and answers its `webhook-id`.
pub fn verify<'a, 'h>(
    secrets: impl IntoIterator<Item = &'a Secret>,
    headers: &WebhookHeaders<'h>,
    body: &[u8],
    now: Timestamp,
) -> Result<&'h str, SignatureFault> {
    let id = visible("webhook-id", headers.id, false)?;
    let timestamp = visible("webhook-timestamp", headers.timestamp, false)?;
    let signatures = visible("webhook-signature", headers.signature, true)?;
    let sent_at = seconds(timestamp).ok_or(SignatureFault::Malformed("webhook-timestamp"))?;
    if now.as_seconds().abs_diff(sent_at) > WEBHOOK_TOLERANCE_S {
        return Err(SignatureFault::OutOfTolerance);
    }
    let fits = secrets.into_iter().filter_map(webhook_key).any(|key| {
        let expected = webhook_mac(&key, id.as_bytes(), timestamp.as_bytes(), body);
        signatures
            .split(' ')
            .filter_map(|signature| signature.strip_prefix("v1,"))
            .any(|signature| signature.as_bytes().ct_eq(expected.as_bytes()).into())
    });
    if fits { Ok(id) } else { Err(SignatureFault::Mismatch) }
}

/// A header that is there and holds visible ASCII only (and spaces, where it is a list).
fn visible<'h>(name: &'static str, value: Option<&'h [u8]>, spaces: bool) -> Result<&'h str, SignatureFault> {
    let value = value.filter(|value| !value.is_empty()).ok_or(SignatureFault::Missing(name))?;
    if !value.iter().all(|b| b.is_ascii_graphic() || (spaces && *b == b' ')) {
        return Err(SignatureFault::Malformed(name));
    }
    std::str::from_utf8(value).map_err(|_| SignatureFault::Malformed(name))
}

/// Digits only: the text itself is signed, so one time has one spelling.
fn seconds(text: &str) -> Option<i64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn webhook_key(secret: &Secret) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.reveal().strip_prefix(WEBHOOK_SECRET_PREFIX)?).ok()?;
    // Anyone can sign with no key at all.
    Some(key).filter(|key| !key.is_empty())
}

fn webhook_mac(key: &[u8], id: &[u8], timestamp: &[u8], body: &[u8]) -> String {
    let mut mac = keyed(key);
    for part in [id, b".", timestamp, b".", body] {
        mac.update(part);
    }
    STANDARD.encode(mac.finalize().into_bytes())
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn plain(secret: &str) -> MedianSecret {
        median_secret(&EndpointAuth::SigningSecret(Secret::new(secret))).expect("a median secret")
    }

    #[test]
    fn median_signatures_are_the_vectors_of_the_contract() {
        let secret = plain("test-secret");
        assert_eq!(
            median_signature(&secret, AT, b""),
            "t=1767225600000,v1=56220280efafdec568f82bc9dfcea49df789015a7e76911278859292ac03216e"
        );
        assert_eq!(
            median_signature(&secret, AT, br#"{"op":"call","tool":"orderStatus","input":{"orderNumber":"ORD-1042"}}"#),
            "t=1767225600000,v1=601129ba5e0067193d97f436948ebfe5ff40f8bc67ffd81f6a8266ad0d221471"
        );
    }

    #[test]
    fn a_median_key_gives_the_secret_of_the_contract() {
        let key = EndpointAuth::MedianKey(Secret::new("mk_test_0123456789abcdef0123456789abcdef"));
        let secret = median_secret(&key).expect("a median secret");
        assert_eq!(hex::encode(secret.as_bytes()), "75607401468a87f07d8cb97a47179b14614404f694693af04ca229fa61248564");
        assert!(!format!("{secret:?}").contains("75"), "a secret is never printed");
    }

    #[test]
    fn a_header_is_no_median_secret() {
        let auth = EndpointAuth::Header { name: "X-Auth".to_owned(), value: Secret::new("v") };
        assert_eq!(median_secret(&auth), None);
    }

    // The example of the Standard Webhooks reference libraries.
    const PUBLISHED_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const PUBLISHED_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const PUBLISHED_TIME: i64 = 1_614_265_330;
    const PUBLISHED_BODY: &[u8] = br#"{"test": 2432232314}"#;
    const PUBLISHED_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn verify_published(signature: &[u8], secrets: &[Secret], now_s: i64) -> Result<String, SignatureFault> {
        let headers = WebhookHeaders {
            id: Some(PUBLISHED_ID.as_bytes()),
            timestamp: Some(b"1614265330"),
            signature: Some(signature),
        };
        verify(secrets, &headers, PUBLISHED_BODY, Timestamp::from_millis(now_s * 1000 + 999)).map(str::to_owned)
    }

    #[test]
    fn webhooks_are_signed_as_the_reference_libraries_sign_them() {
        let secret = Secret::new(PUBLISHED_SECRET);
        let signature = sign(&secret, PUBLISHED_ID, PUBLISHED_TIME, PUBLISHED_BODY);
        assert_eq!(signature.as_deref(), Ok(PUBLISHED_SIGNATURE));
        let verified = verify_published(PUBLISHED_SIGNATURE.as_bytes(), &[secret], PUBLISHED_TIME);
        assert_eq!(verified.as_deref(), Ok(PUBLISHED_ID));
    }

    #[test]
    fn a_webhook_is_good_for_five_minutes_either_way() {
        let secrets = [Secret::new(PUBLISHED_SECRET)];
        for offset in [-300, 0, 300] {
            assert!(verify_published(PUBLISHED_SIGNATURE.as_bytes(), &secrets, PUBLISHED_TIME + offset).is_ok());
        }
        for offset in [-301, 301] {
            assert_eq!(
                verify_published(PUBLISHED_SIGNATURE.as_bytes(), &secrets, PUBLISHED_TIME + offset),
                Err(SignatureFault::OutOfTolerance)
            );
        }
    }

    #[test]
    fn during_a_rotation_both_secrets_verify() {
        // hookdeck/outpost#128: a rotation without overlap breaks what is in flight.
        let secrets = [mint_webhook_secret([9; 24]), Secret::new("whsec_?"), Secret::new(PUBLISHED_SECRET)];
        assert!(verify_published(PUBLISHED_SIGNATURE.as_bytes(), &secrets, PUBLISHED_TIME).is_ok());
        assert_eq!(
            verify_published(PUBLISHED_SIGNATURE.as_bytes(), &secrets[..2], PUBLISHED_TIME),
            Err(SignatureFault::Mismatch)
        );
    }

    #[test]
    fn one_fitting_signature_of_a_list_is_enough_and_other_versions_are_ignored() {
        let secrets = [Secret::new(PUBLISHED_SECRET)];
        let list = format!("v1a,AAAA v1,AAAA v2,BBBB {PUBLISHED_SIGNATURE}");
        assert!(verify_published(list.as_bytes(), &secrets, PUBLISHED_TIME).is_ok());
        for signature in ["v2,", "v1a,", "v1", "v1,", ""] {
            let other = PUBLISHED_SIGNATURE.replace("v1,", signature);
            assert_eq!(
                verify_published(other.as_bytes(), &secrets, PUBLISHED_TIME).is_ok(),
                signature == "v1,",
                "{signature}"
            );
        }
    }

    #[test]
    fn a_header_that_is_not_ascii_is_a_fault_and_no_panic() {
        // grantex#892
        let secrets = [Secret::new(PUBLISHED_SECRET)];
        for signature in ["v1,ü".as_bytes(), b"v1,\xff\xfe", b"\x00", b"v1,\tAAAA"] {
            assert_eq!(
                verify_published(signature, &secrets, PUBLISHED_TIME),
                Err(SignatureFault::Malformed("webhook-signature"))
            );
        }
    }

    #[test]
    fn times_have_one_spelling() {
        let secrets = [Secret::new(PUBLISHED_SECRET)];
        for timestamp in ["+1614265330", "-1", "1614265330.0", " 1614265330", "0x10", "99999999999999999999", "now"] {
            let headers = WebhookHeaders {
                id: Some(PUBLISHED_ID.as_bytes()),
                timestamp: Some(timestamp.as_bytes()),
                signature: Some(PUBLISHED_SIGNATURE.as_bytes()),
            };
            assert_eq!(
                verify(&secrets, &headers, PUBLISHED_BODY, Timestamp::from_millis(PUBLISHED_TIME * 1000)),
                Err(SignatureFault::Malformed("webhook-timestamp")),
                "{timestamp}"
            );
        }
    }

    #[test]
    fn a_missing_header_is_named() {
        let all = WebhookHeaders { id: Some(b"i"), timestamp: Some(b"1"), signature: Some(b"v1,A") };
        for (headers, name) in [
            (WebhookHeaders { id: None, ..all }, "webhook-id"),
            (WebhookHeaders { timestamp: Some(b""), ..all }, "webhook-timestamp"),
            (WebhookHeaders { signature: None, ..all }, "webhook-signature"),
        ] {
            assert_eq!(verify([], &headers, b"", AT), Err(SignatureFault::Missing(name)));
        }
    }

    #[test]
    fn an_empty_key_signs_and_verifies_nothing() {
        let empty = Secret::new("whsec_");
        assert_eq!(sign(&empty, "m", 1, b""), Err(UnusableSecret));
        let forged = format!("v1,{}", webhook_mac(b"", PUBLISHED_ID.as_bytes(), b"1614265330", PUBLISHED_BODY));
        assert_eq!(verify_published(forged.as_bytes(), &[empty], PUBLISHED_TIME), Err(SignatureFault::Mismatch));
    }

    proptest! {
        #[test]
        fn what_is_signed_verifies_and_one_flipped_bit_does_not(
            random: [u8; 24],
            body in proptest::collection::vec(any::<u8>(), 1..64),
            at in 0usize..64,
            bit in 0u8..8,
        ) {
            let secret = mint_webhook_secret(random);
            let signature = sign(&secret, "msg_1", AT.as_seconds(), &body).expect("a minted secret signs");
            let time = AT.as_seconds().to_string();
            let headers = WebhookHeaders {
                id: Some(b"msg_1"),
                timestamp: Some(time.as_bytes()),
                signature: Some(signature.as_bytes()),
            };
            prop_assert_eq!(verify([&secret], &headers, &body, AT), Ok("msg_1"));
            let mut other = body.clone();
            let place = at % other.len();
            other[place] ^= 1 << bit;
            prop_assert_eq!(verify([&secret], &headers, &other, AT), Err(SignatureFault::Mismatch));
        }

        #[test]
        fn no_header_makes_it_panic(
            id: Vec<u8>,
            timestamp: Vec<u8>,
            signature: Vec<u8>,
            body: Vec<u8>,
            now: i64,
        ) {
            let headers = WebhookHeaders { id: Some(&id), timestamp: Some(&timestamp), signature: Some(&signature) };
            let secret = mint_webhook_secret([1; 24]);
            prop_assert!(verify([&secret], &headers, &body, Timestamp::from_millis(now)).is_err());
        }
    }
}
