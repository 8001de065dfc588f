//! The frame of the guided tour: one step after the other, each call shown as it is made and judged by what came back.

use super::agent_provider::AgentProvider;
use super::mcp_provider::McpProvider;
use super::median_provider::MedianProvider;
use super::page::{Page, curl};
use super::topology_provider::TopologyProvider;
use crate::adapters::transport::{SimpleClient, SimpleError, SimpleMethod};
use actix_web::http::StatusCode;
use serde_json::Value;

/// Answer headers a reader should see, where they are there.
const SHOWN_HEADERS: [&str; 4] = ["etag", "idempotent-replay", "ratelimit", "retry-after"];

/// What the tour takes place on.
pub(super) struct Stage {
    pub(super) gateway_url: String,
    pub(super) operator_token: String,
    pub(super) topology: TopologyProvider,
    pub(super) orders: AgentProvider,
    pub(super) median: MedianProvider,
    pub(super) mcp: McpProvider,
    pub(super) client: SimpleClient,
}

/// The keys the tour has made; empty until it has.
#[derive(Clone, Debug, Default)]
pub(super) struct TourKeys {
    pub(super) workspace: String,
    pub(super) agent: String,
}

/// Why the tour cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum TourFault {
    /// There was no answer.
    #[error("there was no answer")]
    NoAnswer(#[source] SimpleError),
    /// A later step needs what an answer does not have.
    #[error("the answer has no {0}, which later steps need")]
    Missing(&'static str),
}

/// A call, as it is shown and made.
pub(super) struct Call {
    method: SimpleMethod,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<Value>,
}

impl Call {
    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    const fn method_text(&self) -> &'static str {
        match self.method {
            SimpleMethod::Get => "GET",
            SimpleMethod::Post => "POST",
            SimpleMethod::Put => "PUT",
            SimpleMethod::Patch => "PATCH",
            SimpleMethod::Delete => "DELETE",
        }
    }
}

/// An answer, whatever its status.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    /// The body; `null` when it is no JSON.
    pub(super) body: Value,
}

impl Answer {
    /// A header by its lower-case name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The text at this pointer of the body; empty when there is none.
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A text that later steps need.
    pub(super) fn need(&self, pointer: &str, what: &'static str) -> Result<String, TourFault> {
        Some(self.text(pointer)).filter(|text| !text.is_empty()).map(str::to_owned).ok_or(TourFault::Missing(what))
    }
}

/// The tour while it is walked.
pub(super) struct Tour<'a> {
    pub(super) stage: &'a Stage,
    pub(super) page: &'a mut Page,
    pub(super) keys: TourKeys,
    pub(super) topology_id: String,
    steps: usize,
    failed_steps: usize,
    step_failed: bool,
}

impl<'a> Tour<'a> {
    pub(super) fn new(stage: &'a Stage, page: &'a mut Page) -> Self {
        let (keys, topology_id) = (TourKeys::default(), String::new());
        Self { stage, page, keys, topology_id, steps: 0, failed_steps: 0, step_failed: false }
    }

    /// Walks all of it; true when every step did what it should.
    pub(super) async fn walk(mut self) -> (bool, TourKeys) {
        let outcome = self.walk_steps().await;
        self.end_step();
        if let Err(fault) = &outcome {
            let cause = std::error::Error::source(fault).map(|source| format!(": {source}")).unwrap_or_default();
            self.page.check(false, &format!("the tour ends here: {fault}{cause}"));
            self.failed_steps = self.failed_steps.max(1);
        }
        self.page.gap();
        let passed = self.failed_steps == 0;
        let summary = if passed {
            format!("all {} steps did what they should", self.steps)
        } else {
            format!("{} of {} steps did not do what they should", self.failed_steps, self.steps)
        };
        self.page.check(passed, &summary);
        (passed, self.keys)
    }

    /// Begins a step: its title, and why it matters.
    pub(super) fn step(&mut self, title: &str, why: &str) {
        self.end_step();
        self.steps += 1;
        self.page.title(self.steps, title);
        self.page.prose(why);
    }

    fn end_step(&mut self) {
        self.failed_steps += usize::from(std::mem::take(&mut self.step_failed));
    }

    /// A call to the gateway with this key.
    pub(super) fn call(&self, method: SimpleMethod, path: &str, key: &str, body: Option<Value>) -> Call {
        let url = format!("{}{path}", self.stage.gateway_url);
        Call { method, url, headers: vec![("X-Auth".to_owned(), key.to_owned())], body }
    }

    /// A call to some other address, without a key.
    pub(super) fn outside_call(method: SimpleMethod, url: String, body: Value) -> Call {
        Call { method, url, headers: Vec::new(), body: Some(body) }
    }

    /// Makes a call and shows all of it.
    pub(super) async fn show(&mut self, call: Call) -> Result<Answer, TourFault> {
        self.show_as(call, Value::clone).await
    }

    /// Makes a call and shows of its answer what `view` leaves.
    pub(super) async fn show_as(&mut self, call: Call, view: impl Fn(&Value) -> Value) -> Result<Answer, TourFault> {
        self.show_call(&call);
        let answer = self.make(&call).await?;
        self.show_answer(&answer, view);
        Ok(answer)
    }

    /// Shows a call as a reader repeats it.
    pub(super) fn show_call(&mut self, call: &Call) {
        self.page.command(&curl(call.method_text(), &call.url, &call.headers, call.body.as_ref()));
    }

    /// Shows of an answer what `view` leaves.
    pub(super) fn show_answer(&mut self, answer: &Answer, view: impl Fn(&Value) -> Value) {
        let title = StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
        let headers: Vec<(&str, &str)> =
            SHOWN_HEADERS.iter().filter_map(|name| answer.header(name).map(|value| (*name, value))).collect();
        let body = Some(&answer.body).filter(|body| !body.is_null()).map(view);
        let status = format!("{} {}", answer.status, title.unwrap_or_default());
        self.page.answer(status.trim_end(), &headers, body.as_ref());
    }

    /// Makes a call without showing it.
    pub(super) async fn make(&self, call: &Call) -> Result<Answer, TourFault> {
        let body = call.body.as_ref().map(|body| body.to_string().into());
        let answer = self.stage.client.call(call.method, &call.url, &call.headers, body).await;
        let answer = answer.map_err(TourFault::NoAnswer)?;
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok(Answer { status: answer.status, headers: answer.headers, body })
    }

    /// Judges one thing.
    pub(super) fn expect(&mut self, ok: bool, what: &str) {
        self.page.check(ok, what);
        self.step_failed |= !ok;
    }

    /// Judges a status.
    pub(super) fn expect_status(&mut self, answer: &Answer, status: u16, what: &str) {
        if answer.status == status {
            self.expect(true, what);
        } else {
            self.expect(false, &format!("{what}: the status should be {status}, and is {}", answer.status));
        }
    }
}
