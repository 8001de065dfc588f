//! What the tenant and the operator API have in common on the wire.

use super::call::Answer;
use super::conditional::{conditional_json, to_json};
use super::error::Problem;
use crate::domain::change::Change;
use crate::domain::manifest::{SkippedTool, SyncFault};
use crate::domain::org::{LimitOverrides, Limits};
use crate::domain::time::Timestamp;
use crate::engine::administration::{AdminFault, LimitChanges};
use crate::engine::store_port::Page;
use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, ETAG, HeaderMap, IF_MATCH, LOCATION};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A part of a list.
#[derive(Serialize, ToSchema)]
pub(super) struct ListOf<T> {
    /// The items, in a stable order.
    items: Vec<T>,
    /// Given as `cursor` it answers the next part; null at the end.
    next_cursor: Option<String>,
}

/// A body that says nothing: `{}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoMembers {}

/// A reason code and a sentence for whoever must fix it.
#[derive(Serialize, ToSchema)]
pub(super) struct Reason {
    /// A word of the contract.
    code: &'static str,
    /// What is wrong and what would be right.
    message: String,
}

impl Reason {
    /// Why a sync failed.
    pub(super) fn of(fault: &SyncFault) -> Self {
        Self { code: fault.reason.as_str(), message: fault.message.clone() }
    }
}

/// A tool that a sync left out.
#[derive(Serialize, ToSchema)]
pub(super) struct Skipped {
    /// The provider's own name of it.
    tool: String,
    /// Why.
    reason: Reason,
}

/// The tools a sync left out; `None` when there are none.
pub(super) fn skipped(tools: &[SkippedTool]) -> Option<Vec<Skipped>> {
    let item = |skipped: &SkippedTool| Skipped { tool: skipped.tool.clone(), reason: Reason::of(&skipped.fault) };
    (!tools.is_empty()).then(|| tools.iter().map(item).collect())
}

/// Limits by name, as a request sets them; `null` goes back to what is inherited.
pub(super) type LimitsBody = BTreeMap<String, Option<u64>>;

/// The changes that a request asks for.
pub(super) fn limit_changes(limits: Option<LimitsBody>) -> LimitChanges {
    limits.unwrap_or_default().into_iter().collect()
}

/// All limits by name, in the order of the contract.
pub(super) fn limits_json(limits: &Limits) -> serde_json::Map<String, serde_json::Value> {
    let value = |name: &&'static str| Some(((*name).to_owned(), limits.get(name)?.into()));
    Limits::NAMES.iter().filter_map(value).collect()
}

/// The limits that were set, by name.
pub(super) fn overrides_json(limits: &LimitOverrides) -> serde_json::Map<String, serde_json::Value> {
    let value = |name: &&'static str| Some(((*name).to_owned(), limits.get(name)?.into()));
    Limits::NAMES.iter().filter_map(value).collect()
}

/// A member of a `PATCH` that can be cleared.
pub(super) fn change<T>(member: Option<Option<T>>) -> Change<T> {
    match member {
        None => Change::Keep,
        Some(None) => Change::Clear,
        Some(Some(value)) => Change::Set(value),
    }
}

/// A word out of a closed set.
pub(super) fn word<T>(member: &str, text: &str, parse: fn(&str) -> Option<T>, known: &str) -> Result<T, Problem> {
    parse(text).ok_or_else(|| Problem::invalid_request(format!("{member} is one of {known}")))
}

/// A time as a request gives it.
pub(super) fn time(member: &str, text: &str) -> Result<Timestamp, Problem> {
    Timestamp::parse(text).ok_or_else(|| {
        Problem::invalid_request(format!("{member} is an RFC 3339 time such as 2030-01-31T12:00:00.000Z"))
    })
}

/// A time that may be cleared.
pub(super) fn time_change(member: &str, text: Option<Option<String>>) -> Result<Change<Timestamp>, Problem> {
    Ok(match text {
        None => Change::Keep,
        Some(None) => Change::Clear,
        Some(Some(text)) => Change::Set(time(member, &text)?),
    })
}

/// 200 with a value.
pub(super) fn ok(value: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).body(to_json(value))
}

/// 200 with a part of a list.
pub(super) fn list<'a, T, W: Serialize>(page: &'a Page<T>, item: impl Fn(&'a T) -> W) -> ListOf<W> {
    ListOf { items: page.items.iter().map(item).collect(), next_cursor: page.next_cursor.clone() }
}

/// 201 with the new object and where it is from now on. It may show a secret, so it carries no tag to keep it under.
pub(super) fn created(location: &str, value: &impl Serialize) -> HttpResponse {
    HttpResponse::Created()
        .insert_header((CONTENT_TYPE, "application/json"))
        .insert_header((LOCATION, location))
        .body(to_json(value))
}

/// 204.
pub(super) fn no_content() -> Answer {
    Ok(HttpResponse::NoContent().finish())
}

/// An item under a tag that tells both its version, for `If-Match`, and its whole state, for `If-None-Match`: what the
/// gateway notes of an item (a last sync, a last use) changes its state, but is no version that a client could edit.
pub(super) fn item(headers: &HeaderMap, version: u64, value: &impl Serialize) -> HttpResponse {
    let body = to_json(value);
    let etag = item_etag(version, &body);
    conditional_json(headers, body, &etag)
}

/// 200 with an item that was just changed.
pub(super) fn changed(version: u64, value: &impl Serialize) -> HttpResponse {
    let body = to_json(value);
    let etag = item_etag(version, &body);
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).insert_header((ETAG, etag)).body(body)
}

fn item_etag(version: u64, body: &[u8]) -> String {
    format!("\"{version}.{}\"", hex::encode(&Sha256::digest(body)[..8]))
}

/// The version that `If-Match` wants; `None` without the header and for `*`, which any existing item satisfies.
///
/// A tag that cannot be one of ours can never match, so it is answered 412 like any stale one.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    if headers.get_all(IF_MATCH).count() > 1 {
        return Err(Problem::invalid_request("If-Match may name one entity tag: that of the item as it was read"));
    }
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let tag = text.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).ok_or_else(Problem::stale)?;
    let version = tag.split_once('.').map_or(tag, |(version, _)| version);
    let number = version.parse::<u64>().ok().filter(|number| number.to_string() == version);
    number.map(Some).ok_or_else(Problem::stale)
}

impl From<AdminFault> for Problem {
    fn from(fault: AdminFault) -> Self {
        use crate::domain::error_code::ErrorCode;
        match fault {
            AdminFault::NotFound => Self::not_found(),
            AdminFault::NameTaken(name) => {
                Self::new(ErrorCode::NameTaken, format!("the name \"{name}\" is taken; choose another"))
            }
            AdminFault::InUse(detail) => Self::new(ErrorCode::InUse, detail),
            AdminFault::AlreadyDecided => Self::new(ErrorCode::AlreadyDecided, "the approval was decided before"),
            AdminFault::LimitReached(limit) => {
                Self::new(ErrorCode::LimitReached, format!("there may be at most {limit} of these"))
            }
            AdminFault::Stale => Self::stale(),
            AdminFault::Invalid { pointer, message } => Self::invalid_request(format!("{pointer}: {message}")),
            AdminFault::Conflict(detail) => Self::new(ErrorCode::OperationConflict, detail),
            AdminFault::Provider { code, message } => Self::new(code, message),
            AdminFault::Overloaded => Self::overloaded(),
            AdminFault::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn if_match_names_a_version_or_anything() {
        let version = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(IF_MATCH, HeaderValue::from_static(line));
            }
            if_match(&headers).map_err(|problem| problem.code().as_str())
        };
        assert_eq!(version(&[]), Ok(None));
        assert_eq!(version(&["*"]), Ok(None));
        assert_eq!(version(&["\"7\""]), Ok(Some(7)));
        assert_eq!(version(&["\"7.0123456789abcdef\""]), Ok(Some(7)));
        for stale in ["7", "\"07\"", "W/\"7\"", "\"x\"", "\"-1\"", "\"+7\"", "\"\"", "\"7\", \"8\""] {
            assert_eq!(version(&[stale]), Err("precondition_failed"), "{stale}");
        }
        assert_eq!(version(&["\"7\"", "\"8\""]), Err("invalid_request"));
    }

    #[test]
    fn the_tag_of_an_item_changes_with_its_state_and_keeps_its_version() {
        let (before, after) = (item_etag(3, b"{}"), item_etag(3, b"{\"a\":1}"));
        assert_ne!(before, after);
        let mut headers = HeaderMap::new();
        headers.insert(IF_MATCH, HeaderValue::from_str(&after).expect("ASCII"));
        assert_eq!(if_match(&headers).map_err(|problem| problem.code().as_str()), Ok(Some(3)));
    }
}
