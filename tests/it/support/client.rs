//! An HTTP client that answers whatever came back: status, headers, exact bytes.

use serde_json::Value;
use std::time::Duration;
use ureq::Agent;

/// One connection a request, so that a test's requests share nothing.
#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    base: String,
}

impl Client {
    pub(crate) fn new(base: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(0)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_secs(90)));
        Self { agent: config.build().into(), base: base.to_owned() }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        Request {
            client: self.clone(),
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Request {
        self.request("POST", path).json(body)
    }
}

#[derive(Clone)]
pub(crate) struct Request {
    client: Client,
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("X-Auth", key)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.text("application/json", body.to_string())
    }

    pub(crate) fn text(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut request = self.header("Content-Type", content_type);
        request.body = Some(body.into());
        request
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    #[track_caller]
    pub(crate) fn send(self) -> Answer {
        self.try_send().expect("the gateway answers")
    }

    pub(crate) fn try_send(self) -> Result<Answer, ureq::Error> {
        let uri = format!("{}{}", self.client.base, self.path);
        let mut builder = ureq::http::Request::builder().method(self.method.as_str()).uri(uri);
        for (name, value) in &self.headers {
            builder = builder.header(name, value.as_slice());
        }
        // Without a length ureq would announce a chunked body where a method may have one.
        let has_length = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        let mut response = match self.body.or_else(|| has_length.then(Vec::new)) {
            Some(body) => self.client.agent.run(builder.body(body).expect("a well-formed request"))?,
            None => self.client.agent.run(builder.body(()).expect("a well-formed request"))?,
        };
        let text = |value: &ureq::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(64 << 20).read_to_vec()?;
        Ok(Answer { status, headers, body })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are UTF-8")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// Asserts the status, showing the body when it is another.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts a problem document of this status and code, and answers it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        problem
    }
}
