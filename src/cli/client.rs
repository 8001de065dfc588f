//! The client: one call at a time, with the key that was given.

use super::fault::CliFault;
use super::output::{self, View};
use crate::adapters::transport::{SimpleClient, SimpleMethod};
use bytes::Bytes;
use clap::Args;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

/// Longer than the longest `Prefer: wait`.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Items of one page while a name is looked up: the most the API gives.
const LOOK_UP_PAGE: &str = "200";

/// Where the help lists what all client commands take.
const HEADING: &str = "Gateway";

/// What stands in a path as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where the gateway is, and who asks.
#[derive(Args)]
pub(super) struct Connection {
    /// Base URL of the gateway.
    #[arg(
        long,
        global = true,
        env = "TOOLGATE_CLIENT_URL",
        default_value = "http://127.0.0.1:8080",
        help_heading = HEADING
    )]
    pub(super) url: String,
    /// Operator token, workspace key or agent key; the environment keeps it out of the process list.
    #[arg(long, global = true, env = "TOOLGATE_CLIENT_KEY", hide_env_values = true, help_heading = HEADING)]
    key: Option<String>,
    /// Make a write or a call once: the same command with the same key is answered as it was the first time.
    #[arg(long, global = true, value_name = "KEY", help_heading = HEADING)]
    idempotency_key: Option<String>,
    /// Print the answer as it came.
    #[arg(long, global = true, help_heading = HEADING)]
    json: bool,
}

/// Which part of a list.
#[derive(Args)]
pub(super) struct PageArgs {
    /// Most items (1 to 200).
    #[arg(long)]
    limit: Option<u32>,
    /// Where the page before ended.
    #[arg(long)]
    cursor: Option<String>,
}

/// A call to the gateway.
pub(super) struct Request {
    method: SimpleMethod,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl Request {
    /// A call of `path`, whose variable parts have gone through [`segment`].
    pub(super) fn new(method: SimpleMethod, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: Vec::new(), headers: Vec::new(), body: None }
    }

    /// A GET.
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(SimpleMethod::Get, path)
    }

    /// Adds a query parameter, when there is a value.
    pub(super) fn query(mut self, name: &'static str, value: Option<String>) -> Self {
        self.query.extend(value.map(|value| (name, value)));
        self
    }

    /// Asks for this part of a list.
    pub(super) fn page(self, page: &PageArgs) -> Self {
        self.query("limit", page.limit.map(|limit| limit.to_string())).query("cursor", page.cursor.clone())
    }

    /// Adds a header, when there is a value.
    pub(super) fn header(mut self, name: &str, value: Option<String>) -> Self {
        self.headers.extend(value.map(|value| (name.to_owned(), value)));
        self
    }

    /// Sends this JSON text.
    pub(super) fn body(mut self, body: String) -> Self {
        self.body = Some(body);
        self
    }

    fn target(&self) -> String {
        let mut target = self.path.clone();
        for (at, (name, value)) in self.query.iter().enumerate() {
            let sign = if at == 0 { '?' } else { '&' };
            let _ = write!(target, "{sign}{name}={}", segment(value));
        }
        target
    }
}

/// A variable part of a path or query.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Talks to one gateway with one key.
pub(super) struct Client {
    base_url: String,
    key: String,
    idempotency_key: Option<String>,
    json: bool,
    simple: SimpleClient,
}

impl Client {
    pub(super) fn new(connection: &Connection) -> Result<Self, CliFault> {
        let key = connection.key.as_deref().map(str::trim).filter(|key| !key.is_empty()).ok_or(CliFault::NoKey)?;
        Ok(Self {
            base_url: connection.url.trim_end_matches('/').to_owned(),
            key: key.to_owned(),
            idempotency_key: connection.idempotency_key.clone(),
            json: connection.json,
            simple: SimpleClient::new(None, TIMEOUT).map_err(CliFault::Setup)?,
        })
    }

    /// Whether the key is an agent's.
    pub(super) fn is_agent(&self) -> bool {
        self.key.starts_with(crate::domain::key::KeyKind::Agent.prefix())
    }

    /// Makes a call and prints its answer.
    pub(super) async fn show(&self, request: Request, view: View) -> Result<(), CliFault> {
        self.print(&self.send(request).await?, &view)
    }

    /// Makes a call that syncs an endpoint and prints its answer; a sync that failed is a failed command.
    pub(super) async fn show_sync(&self, request: Request) -> Result<(), CliFault> {
        let answer = self.send(request).await?;
        self.print(&answer, &View::Record)?;
        let synced = parse(&answer)?;
        if synced["outcome"] == "failed" { Err(CliFault::SyncFailed) } else { Ok(()) }
    }

    fn print(&self, answer: &Bytes, view: &View) -> Result<(), CliFault> {
        let text = if self.json && !answer.is_empty() {
            format!("{}\n", String::from_utf8_lossy(answer))
        } else {
            let body = if answer.is_empty() { Value::Null } else { parse(answer)? };
            output::render(&body, view)
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliFault::Output)
    }

    /// The id of the object that is called this: an id stands for itself, a name is looked up in the list.
    pub(super) async fn id_of(
        &self,
        what: &'static str,
        list: &str,
        member: &str,
        name: &str,
    ) -> Result<String, CliFault> {
        if uuid::Uuid::try_parse(name).is_ok() {
            return Ok(name.to_owned());
        }
        let mut cursor = None;
        loop {
            let page = Request::get(list).query("limit", Some(LOOK_UP_PAGE.to_owned())).query("cursor", cursor);
            let page = parse(&self.send(page).await?)?;
            let found = page["items"].as_array().into_iter().flatten().find(|item| item[member] == name);
            if let Some(id) = found.and_then(|item| item["id"].as_str()) {
                return Ok(id.to_owned());
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Err(CliFault::Unknown { what, name: name.to_owned() });
            }
        }
    }

    async fn send(&self, request: Request) -> Result<Bytes, CliFault> {
        let url = format!("{}{}", self.base_url, request.target());
        let mut headers = request.headers;
        headers.push(("X-Auth".to_owned(), self.key.clone()));
        // What is looked up on the way to a write is no part of it.
        let idempotency_key = self.idempotency_key.clone().filter(|_| !matches!(request.method, SimpleMethod::Get));
        headers.extend(idempotency_key.map(|key| ("Idempotency-Key".to_owned(), key)));
        let answer = self.simple.call(request.method, &url, &headers, request.body.map(Bytes::from)).await;
        let answer = answer.map_err(CliFault::NoAnswer)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let raw = self.json.then(|| String::from_utf8_lossy(&answer.body).into_owned()).filter(|raw| !raw.is_empty());
        let problem = serde_json::from_slice(&answer.body).unwrap_or_default();
        Err(CliFault::Refused { status: answer.status, problem, raw })
    }
}

fn parse(body: &[u8]) -> Result<Value, CliFault> {
    serde_json::from_slice(body).map_err(|_| CliFault::NotJson)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_types_cannot_change_the_path() {
        let request = Request::get(format!("/v1/tools/{}", segment("a/../b?c#d e")))
            .query("status", Some("x&y".to_owned()))
            .query("cursor", None)
            .query("limit", Some("5".to_owned()));
        assert_eq!(request.target(), "/v1/tools/a%2F..%2Fb%3Fc%23d%20e?status=x%26y&limit=5");
    }
}
