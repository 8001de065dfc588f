//! Secrets at rest: sealing with a master key, and the two files that hold keys of the operator's own.
//!
//! A sealed value is `1, key tag (4 bytes), nonce (24 bytes), ciphertext` of XChaCha20-Poly1305: the tag says which key
//! sealed it, so that a rotation can find what is still under the old one. **Invariant:** every value is bound to its place (`aad`), so that
//! a ciphertext copied into another row or column does not open.

use crate::domain::key::{self, KeyKind};
use crate::domain::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20::{R20, hchacha};
use hkdf::Hkdf;
use rand::Rng as _;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use sha2::Sha256;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File in the data folder that holds the master key when none is configured.
pub const MASTER_KEY_FILE: &str = "master.key";
/// File in the data folder that holds the operator token when none is configured.
pub const OPERATOR_TOKEN_FILE: &str = "operator.token";

const FORMAT: u8 = 1;
const TAG_LENGTH: usize = 4;
const NONCE_LENGTH: usize = 24;
/// Bytes before the nonce: the format and the tag of the key.
pub const SEAL_PREFIX_LENGTH: usize = 1 + TAG_LENGTH;

/// The value does not open: another key, another place, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sealed value does not open")]
pub struct OpenFault;

/// Why a key is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The configured text is not base64.
    #[error("the master key is not base64; it must be 32 bytes as base64 (44 characters)")]
    NotBase64(#[source] base64::DecodeError),
    /// The key has another length.
    #[error("the master key is {found} bytes long; it must be 32 bytes as base64 (44 characters)")]
    WrongLength {
        /// How many bytes it has.
        found: usize,
    },
    /// A key file is there but cannot be used.
    #[error("{} cannot be read or made", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others than the owner may touch a key file.
    #[error("{} may be read by others (mode {mode:04o}); run: chmod 600 {}", .path.display(), .path.display())]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The operator token in its file is damaged.
    #[error("{} does not hold an operator token (tg_op_…)", .path.display())]
    BadToken {
        /// The file.
        path: PathBuf,
    },
}

struct Sealer {
    prefix: [u8; SEAL_PREFIX_LENGTH],
    key: [u8; 32],
}

impl Sealer {
    fn new(key: &[u8; 32]) -> Self {
        let mut prefix = [FORMAT; SEAL_PREFIX_LENGTH];
        prefix[1..].copy_from_slice(&expand::<TAG_LENGTH>(key, "toolgate/key-tag/v1"));
        Self { prefix, key: expand(key, "toolgate/at-rest/v1") }
    }

    /// The cipher of one nonce: XChaCha20-Poly1305 is ChaCha20-Poly1305 under a key made of the first 16 bytes of the
    /// nonce, with the other 8 as its own nonce. Put together here because what is sealed is mostly short, and the
    /// portable implementation takes five times as long for that.
    fn cipher(&self, nonce: &[u8; NONCE_LENGTH]) -> (LessSafeKey, Nonce) {
        let (mut first, mut own) = ([0; 16], [0; 12]);
        first.copy_from_slice(&nonce[..16]);
        own[4..].copy_from_slice(&nonce[16..]);
        let subkey = hchacha::<R20>(&self.key.into(), &first.into());
        let key = UnboundKey::new(&CHACHA20_POLY1305, &subkey).expect("a key of 32 bytes fits");
        (LessSafeKey::new(key), Nonce::assume_unique_for_key(own))
    }

    fn seal(&self, nonce: &[u8; NONCE_LENGTH], plain: &[u8], aad: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEAL_PREFIX_LENGTH + NONCE_LENGTH + plain.len() + CHACHA20_POLY1305.tag_len());
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(nonce);
        let begin = out.len();
        out.extend_from_slice(plain);
        let (key, nonce) = self.cipher(nonce);
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(aad.as_bytes()), &mut out[begin..])
            .expect("encryption fails only beyond 256 GiB");
        out.extend_from_slice(tag.as_ref());
        out
    }

    fn open(&self, nonce: &[u8; NONCE_LENGTH], body: &[u8], aad: &str) -> Result<Vec<u8>, OpenFault> {
        let (key, nonce) = self.cipher(nonce);
        let mut plain = body.to_vec();
        let length = key.open_in_place(nonce, Aad::from(aad.as_bytes()), &mut plain).map_err(|_| OpenFault)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

fn expand<const N: usize>(key: &[u8; 32], info: &str) -> [u8; N] {
    let mut out = [0; N];
    Hkdf::<Sha256>::new(None, key)
        .expand(info.as_bytes(), &mut out)
        .expect("a few bytes are within what HKDF can give");
    out
}

/// Seals and opens values under the master key; opens also what its predecessor sealed.
pub struct SecretBox {
    master: [u8; 32],
    current: Sealer,
    previous: Option<Sealer>,
}

impl SecretBox {
    /// A box that seals with `current` and also opens what `previous` sealed.
    pub fn new(current: [u8; 32], previous: Option<[u8; 32]>) -> Self {
        Self { master: current, current: Sealer::new(&current), previous: previous.as_ref().map(Sealer::new) }
    }

    /// Seals `plain` for the place `aad`.
    pub fn seal(&self, plain: &[u8], aad: &str) -> Vec<u8> {
        let mut nonce = [0; NONCE_LENGTH];
        rand::rng().fill_bytes(&mut nonce);
        self.current.seal(&nonce, plain, aad)
    }

    /// Opens what [`SecretBox::seal`] made for the same place.
    pub fn open(&self, sealed: &[u8], aad: &str) -> Result<Vec<u8>, OpenFault> {
        let (prefix, rest) = sealed.split_at_checked(SEAL_PREFIX_LENGTH).ok_or(OpenFault)?;
        let (nonce, body) = rest.split_at_checked(NONCE_LENGTH).ok_or(OpenFault)?;
        let nonce: [u8; NONCE_LENGTH] = nonce.try_into().map_err(|_| OpenFault)?;
        let sealer = [Some(&self.current), self.previous.as_ref()]
            .into_iter()
            .flatten()
            .find(|sealer| sealer.prefix == prefix)
            .ok_or(OpenFault)?;
        sealer.open(&nonce, body, aad)
    }

    /// What every value sealed with the current key begins with.
    pub fn current_prefix(&self) -> &[u8] {
        &self.current.prefix
    }

    /// A key for another use, derived from the current master key.
    pub fn derive(&self, info: &str) -> [u8; 32] {
        expand(&self.master, info)
    }
}

/// Reads a master key from its configured form: 32 bytes as base64.
pub fn parse_master_key(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = STANDARD.decode(text.trim()).map_err(KeyError::NotBase64)?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| KeyError::WrongLength { found })
}

/// The master key of `data_dir`: read from its file, or made from `random` on the first start.
pub fn load_or_make_master_key(data_dir: &Path, random: [u8; 32]) -> Result<[u8; 32], KeyError> {
    let path = data_dir.join(MASTER_KEY_FILE);
    let text = load_or_make(&path, &STANDARD.encode(random))?.text;
    parse_master_key(&text)
}

/// The operator token of a data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorToken {
    /// The token.
    pub token: Secret,
    /// It was made just now, so it has to be shown once.
    pub made: bool,
}

/// The operator token of `data_dir`: read from its file, or made from `random` on the first start.
pub fn load_or_make_operator_token(data_dir: &Path, random: [u8; 32]) -> Result<OperatorToken, KeyError> {
    let path = data_dir.join(OPERATOR_TOKEN_FILE);
    let loaded = load_or_make(&path, key::mint(KeyKind::Operator, random).reveal())?;
    let text = loaded.text.trim();
    match key::recognise(text) {
        Some((KeyKind::Operator, _)) => Ok(OperatorToken { token: Secret::new(text), made: loaded.made }),
        Some((KeyKind::Workspace | KeyKind::Agent, _)) | None => Err(KeyError::BadToken { path }),
    }
}

/// Makes the data folder, closed to others, unless it is there.
pub fn make_data_dir(data_dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)
}

struct Loaded {
    text: String,
    made: bool,
}

fn load_or_make(path: &Path, fresh: &str) -> Result<Loaded, KeyError> {
    let file_error = |source| KeyError::File { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        make_data_dir(parent).map_err(file_error)?;
    }
    match OpenOptions::new().read(true).open(path) {
        Ok(mut file) => {
            let mode = file.metadata().map_err(file_error)?.mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(KeyError::TooOpen { path: path.to_owned(), mode });
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(file_error)?;
            Ok(Loaded { text, made: false })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_durably(path, fresh).map_err(file_error)?;
            Ok(Loaded { text: fresh.to_owned(), made: true })
        }
        Err(error) => Err(file_error(error)),
    }
}

/// Writes beside and renames, so that a crash never leaves half a key; linking fails when another start was quicker.
fn make_durably(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::hard_link(&beside, path)
    })();
    let _ = fs::remove_file(&beside);
    written?;
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_sealed_opens_in_its_own_place_only() {
        let secrets = SecretBox::new([1; 32], None);
        let sealed = secrets.seal(b"whsec_abc", "endpoints.auth:1");
        assert_eq!(secrets.open(&sealed, "endpoints.auth:1"), Ok(b"whsec_abc".to_vec()));
        assert_eq!(secrets.open(&sealed, "endpoints.auth:2"), Err(OpenFault));
        assert!(!sealed.windows(9).any(|part| part == b"whsec_abc"));
        assert_ne!(sealed, secrets.seal(b"whsec_abc", "endpoints.auth:1"), "a nonce is never used twice");
    }

    #[test]
    fn the_cipher_is_the_one_of_the_published_vector() {
        // draft-irtf-cfrg-xchacha-03, appendix A.3.1
        let ascending = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
        let sealer =
            Sealer { prefix: [0; SEAL_PREFIX_LENGTH], key: ascending(0x80, 0x9f).try_into().expect("32 bytes") };
        let nonce = ascending(0x40, 0x57).try_into().expect("24 bytes");
        let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                      sunscreen would be it.";
        let (subkey, own) = sealer.cipher(&nonce);
        let aad = hex::decode("50515253c0c1c2c3c4c5c6c7").expect("hex");
        let mut sealed = plain.to_vec();
        subkey.seal_in_place_append_tag(own, Aad::from(aad), &mut sealed).expect("sealed");
        let published = "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda\
                         7e39ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b23835\
                         65d3fff921f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49";
        assert_eq!(hex::encode(sealed), published);
        let placed = sealer.seal(&nonce, plain, "a");
        assert_eq!(placed[SEAL_PREFIX_LENGTH..][..NONCE_LENGTH], nonce);
        assert_eq!(sealer.open(&nonce, &placed[SEAL_PREFIX_LENGTH + NONCE_LENGTH..], "a"), Ok(plain.to_vec()));
    }

    #[test]
    fn damage_and_shortness_are_faults_and_not_panics() {
        let secrets = SecretBox::new([1; 32], None);
        let sealed = secrets.seal(b"text", "a");
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(secrets.open(&damaged, "a"), Err(OpenFault), "byte {at}");
            assert_eq!(secrets.open(&sealed[..at], "a"), Err(OpenFault), "length {at}");
        }
    }

    #[test]
    fn a_rotated_box_opens_the_old_and_seals_with_the_new() {
        let (old, new) = (SecretBox::new([1; 32], None), SecretBox::new([2; 32], Some([1; 32])));
        let sealed = old.seal(b"text", "a");
        assert_eq!(new.open(&sealed, "a"), Ok(b"text".to_vec()));
        assert!(!sealed.starts_with(new.current_prefix()));
        let again = new.seal(b"text", "a");
        assert!(again.starts_with(new.current_prefix()));
        assert_eq!(old.open(&again, "a"), Err(OpenFault));
    }

    #[test]
    fn derived_keys_differ_by_use_and_by_master_key() {
        let (one, two) = (SecretBox::new([1; 32], None), SecretBox::new([2; 32], None));
        assert_eq!(one.derive("confirmation"), one.derive("confirmation"));
        assert_ne!(one.derive("confirmation"), one.derive("cursor"));
        assert_ne!(one.derive("confirmation"), two.derive("confirmation"));
    }

    #[test]
    fn a_master_key_is_checked_with_a_sentence() {
        assert_eq!(parse_master_key(&format!(" {}\n", STANDARD.encode([9; 32]))).expect("a key"), [9; 32]);
        let short = parse_master_key(&STANDARD.encode([9; 16])).expect_err("too short").to_string();
        assert!(short.contains("16 bytes"), "{short}");
        let not_base64 = parse_master_key("!!").expect_err("not base64").to_string();
        assert!(not_base64.contains("not base64"), "{not_base64}");
    }

    #[test]
    fn keys_are_made_once_closed_to_others_and_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let first = load_or_make_master_key(&data, [3; 32]).expect("made");
        assert_eq!(load_or_make_master_key(&data, [4; 32]).expect("read"), first);
        let token = load_or_make_operator_token(&data, [5; 32]).expect("made");
        assert!(token.made);
        let again = load_or_make_operator_token(&data, [6; 32]).expect("read");
        assert_eq!(again, OperatorToken { token: token.token, made: false });
        for name in [MASTER_KEY_FILE, OPERATOR_TOKEN_FILE] {
            assert_eq!(fs::metadata(data.join(name)).expect("it is there").mode() & 0o777, 0o600, "{name}");
        }
        assert_eq!(fs::metadata(&data).expect("it is there").mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&data).expect("a folder").count(), 2, "nothing is left beside");
    }

    #[test]
    fn key_files_that_are_open_damaged_or_unreadable_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(MASTER_KEY_FILE);
        load_or_make_master_key(folder.path(), [3; 32]).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        let open = load_or_make_master_key(folder.path(), [3; 32]).expect_err("too open");
        assert!(open.to_string().contains("mode 0640"), "{open}");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        fs::write(&path, STANDARD.encode([1; 31])).expect("written");
        let error = load_or_make_master_key(folder.path(), [3; 32]).expect_err("short");
        assert!(matches!(error, KeyError::WrongLength { found: 31 }));

        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a folder in its place");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("changed");
        let error = load_or_make_master_key(folder.path(), [3; 32]).expect_err("a folder");
        assert!(matches!(error, KeyError::File { .. }), "{error}");

        fs::write(folder.path().join(OPERATOR_TOKEN_FILE), "tg_op_typo").expect("written");
        fs::set_permissions(folder.path().join(OPERATOR_TOKEN_FILE), fs::Permissions::from_mode(0o600)).expect("set");
        let error = load_or_make_operator_token(folder.path(), [5; 32]).expect_err("damaged");
        assert!(matches!(error, KeyError::BadToken { .. }), "{error}");
    }
}
