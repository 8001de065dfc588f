//! Parts of lists: a cursor is the sort key of the last item, as opaque text.

use crate::domain::time::Timestamp;
use crate::engine::store_port::{Page, PageRequest, StoreError, StoreResult};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// A sort key that can be a cursor.
pub(super) trait SortKey: Sized {
    fn write(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl SortKey for Uuid {
    fn write(&self) -> String {
        self.as_simple().to_string()
    }

    fn read(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok()
    }
}

impl SortKey for String {
    fn write(&self) -> String {
        self.clone()
    }

    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

/// Lists in order of time keep apart what happened in the same millisecond by id.
impl SortKey for (Timestamp, Uuid) {
    fn write(&self) -> String {
        format!("{}.{}", self.0.as_millis(), self.1.as_simple())
    }

    fn read(text: &str) -> Option<Self> {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp::from_millis(at.parse().ok()?), Uuid::try_parse(id).ok()?))
    }
}

/// Where the page begins: after this key; `None` is the beginning.
pub(super) fn after<K: SortKey>(request: &PageRequest) -> StoreResult<Option<K>> {
    let Some(cursor) = &request.cursor else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| StoreError::BadCursor)?;
    let text = String::from_utf8(bytes).map_err(|_| StoreError::BadCursor)?;
    K::read(&text).map(Some).ok_or(StoreError::BadCursor)
}

/// Where a page of a list "newest first" begins.
pub(super) fn before(request: &PageRequest) -> StoreResult<(Timestamp, Uuid)> {
    Ok(after(request)?.unwrap_or((Timestamp::from_millis(i64::MAX), Uuid::max())))
}

/// How many rows to ask for: one more than wanted, to see whether there is more.
pub(super) fn rows(request: &PageRequest) -> i64 {
    i64::try_from(request.limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// What a page may hold in all, as it is stored: 200 items of several megabytes each are a list that nobody can read and
/// everybody pays for.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// How much of a page is filled.
#[derive(Default)]
pub(super) struct Filling {
    bytes: usize,
    is_cut: bool,
}

impl Filling {
    /// Whether one more item of this size still belongs to the page: the first always does.
    pub(super) fn takes(&mut self, bytes: usize) -> bool {
        self.is_cut |= self.bytes > 0 && self.bytes.saturating_add(bytes) > MAX_PAGE_BYTES;
        self.bytes = self.bytes.saturating_add(bytes.max(1));
        !self.is_cut
    }
}

/// Makes a page of what was found.
pub(super) fn page<K: SortKey, T>(found: Vec<T>, request: &PageRequest, key: impl Fn(&T) -> K) -> Page<T> {
    filled_page(found, request, &Filling::default(), key)
}

/// Makes a page of what was found until it was full.
pub(super) fn filled_page<K: SortKey, T>(
    mut found: Vec<T>,
    request: &PageRequest,
    filling: &Filling,
    key: impl Fn(&T) -> K,
) -> Page<T> {
    let more = filling.is_cut || found.len() > request.limit;
    found.truncate(request.limit);
    let next_cursor = found.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(key(last).write()));
    Page { items: found, next_cursor }
}
