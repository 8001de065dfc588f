//! Query parameters: each at most once, none unknown.

use super::error::Problem;
use crate::domain::time::Timestamp;
use crate::engine::store_port::PageRequest;

/// Items of a list when the client does not say.
const DEFAULT_LIMIT: usize = 50;

/// Most items of a list.
const MAX_LIMIT: usize = 200;

/// No cursor is longer.
const MAX_CURSOR: usize = 512;

/// What every list takes, for the OpenAPI document; [`Query::page`] reads it.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only its shape matters here")]
pub(super) struct PageParams {
    /// 1 to 200, 50 when it is not given. A page of large items may have fewer.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u64>,
    /// The next_cursor of the page before.
    cursor: Option<String>,
}

/// Parsed parameters, in their order.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string.
    pub(super) fn of(text: &str) -> Self {
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// Refuses what is not in `known`, and what comes twice.
    pub(super) fn check(&self, known: &[&str]) -> Result<(), Problem> {
        for (at, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(Problem::invalid_request(format!("unknown query parameter \"{name}\"")));
            }
            if self.0[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Problem::invalid_request(format!("query parameter \"{name}\" comes more than once")));
            }
        }
        Ok(())
    }

    /// One parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// One parameter that has to be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::invalid_request(format!("query parameter \"{name}\" is missing")))
    }

    /// A parameter out of a closed set.
    pub(super) fn word<T>(&self, name: &str, parse: fn(&str) -> Option<T>) -> Result<Option<T>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let word = parse(text);
        word.map(Some)
            .ok_or_else(|| Problem::invalid_request(format!("query parameter \"{name}\" is none of its values")))
    }

    /// A point in time.
    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let time = Timestamp::parse(text);
        time.map(Some)
            .ok_or_else(|| Problem::invalid_request(format!("query parameter \"{name}\" is no RFC 3339 time")))
    }

    /// `limit` and `cursor`.
    pub(super) fn page(&self) -> Result<PageRequest, Problem> {
        let limit = match self.get("limit") {
            None => DEFAULT_LIMIT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| Problem::invalid_request(format!("limit is a number from 1 to {MAX_LIMIT}")))?,
        };
        let cursor = self.get("cursor").map(str::to_owned);
        if cursor.as_ref().is_some_and(|cursor| cursor.is_empty() || cursor.len() > MAX_CURSOR) {
            return Err(Problem::invalid_request("cursor is the next_cursor of the page before"));
        }
        Ok(PageRequest { limit, cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Option<(usize, Option<String>)> {
        Query::of(text).page().ok().map(|page| (page.limit, page.cursor))
    }

    #[test]
    fn a_page_has_one_to_two_hundred_items() {
        assert_eq!(page(""), Some((50, None)));
        assert_eq!(page("limit=1&cursor=a%2Fb"), Some((1, Some("a/b".to_owned()))));
        assert_eq!(page("limit=200"), Some((200, None)));
        for bad in ["limit=0", "limit=201", "limit=-1", "limit=", "limit=x", "cursor="] {
            assert_eq!(page(bad), None, "{bad}");
        }
        assert_eq!(page(&format!("cursor={}", "x".repeat(MAX_CURSOR + 1))), None);
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert!(Query::of("limit=1").check(&["limit"]).is_ok());
        assert!(Query::of("limit=1&limti=2").check(&["limit"]).is_err());
        assert!(Query::of("limit=1&limit=2").check(&["limit"]).is_err());
        assert!(Query::of("").check(&[]).is_ok());
    }
}
