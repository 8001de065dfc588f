//! An MCP client that keeps what it hears as it was said, in either era, and says what it is told to say.

use super::harness::http;
use super::json::Json;
use super::sse::Events;
use std::cell::{Cell, RefCell};
use std::io::Read;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const META: &str = "io.modelcontextprotocol/";

/// What a client can do that answers everything it is asked.
pub(crate) const ANSWERS_ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy,
}

/// A client of one server.
pub(crate) struct Peer {
    pub(crate) era: Era,
    url: String,
    key: Option<String>,
    capabilities: &'static str,
    session: Option<String>,
    agent: Agent,
    last_id: Cell<u32>,
}

/// One call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    /// JSON; not every call has arguments.
    pub(crate) arguments: Option<&'a str>,
    pub(crate) wants_progress: bool,
    /// Arguments that stand in headers too, which a modern client sends.
    pub(crate) headers: &'a [(&'a str, &'a str)],
}

/// All that came of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dialogue {
    /// What was asked, as `{method, params}`.
    pub(crate) questions: Vec<Json>,
    /// The parameters of each word on its progress.
    pub(crate) progress: Vec<Json>,
    pub(crate) answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Result(Json),
    Error(Json),
    /// No JSON-RPC response came.
    None(String),
}

impl Default for Answer {
    fn default() -> Self {
        Answer::None("nothing came".to_owned())
    }
}

impl Answer {
    pub(crate) fn result(&self) -> Option<&Json> {
        if let Answer::Result(result) = self { Some(result) } else { None }
    }

    /// Whether it says that the call went wrong.
    pub(crate) fn is_failure(&self) -> bool {
        self.result().is_none_or(|result| result.get("isError") == Some(&Json::Bool(true)))
    }
}

impl Peer {
    /// Connects, which in the earlier era is a handshake.
    pub(crate) fn connect(url: &str, key: Option<&str>, era: Era, capabilities: &'static str) -> Self {
        Self::connect_with(http(), url, key, era, capabilities)
    }

    /// The same over connections that others use too.
    pub(crate) fn connect_with(
        agent: Agent,
        url: &str,
        key: Option<&str>,
        era: Era,
        capabilities: &'static str,
    ) -> Self {
        let (url, key) = (url.to_owned(), key.map(str::to_owned));
        let mut peer = Self { era, url, key, capabilities, session: None, agent, last_id: Cell::new(0) };
        if era == Era::Legacy {
            let params = format!(
                r#"{{"protocolVersion":"{LEGACY}","capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}}}"#
            );
            let answer = peer.post("initialize", Call::default(), &peer.request("initialize", &params));
            let session = answer.headers().get("mcp-session-id");
            peer.session = session.map(|session| session.to_str().expect("ASCII").to_owned());
            peer.read(answer, &RefCell::default()).result().expect("it opens");
            let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            assert_eq!(peer.post("notifications/initialized", Call::default(), initialized).status(), 202);
        }
        peer
    }

    /// Every tool, from all pages.
    pub(crate) fn list(&self) -> Vec<Json> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        loop {
            let members = cursor.map(|cursor| format!(r#""cursor":{cursor},"#)).unwrap_or_default();
            let answer = self.ask("tools/list", &members, Call::default(), &RefCell::default());
            let Answer::Result(mut page) = answer else { panic!("no list: {answer:?}") };
            tools.extend_from_slice(page.get("tools").expect("tools").items());
            match page.remove("nextCursor") {
                Some(next) => cursor = Some(next),
                None => return tools,
            }
        }
    }

    /// Calls a tool, answers what it asks, and hears it out.
    pub(crate) fn call(&self, call: Call<'_>) -> Dialogue {
        let heard = RefCell::new(Dialogue::default());
        let arguments = call.arguments.map(|json| format!(r#""arguments":{json},"#)).unwrap_or_default();
        let mut more = String::new();
        for _ in 0..5 {
            let members = format!(r#""name":{},{arguments}{more}"#, Json::text(call.name));
            let answer = self.ask("tools/call", &members, call, &heard);
            let Some(asked) = questions(&answer) else {
                let mut heard = heard.into_inner();
                heard.answer = answer;
                return heard;
            };
            let answers: Vec<String> = asked
                .members()
                .iter()
                .map(|(name, question)| format!("{}:{}", Json::Text(name.clone()), answer_to(question)))
                .collect();
            let state = answer.result().and_then(|result| result.get("requestState"));
            let state = state.map(|state| format!(r#""requestState":{state},"#)).unwrap_or_default();
            more = format!(r#""inputResponses":{{{}}},{state}"#, answers.join(","));
            heard.borrow_mut().questions.extend(asked.members().iter().map(|(_, question)| question.clone()));
        }
        panic!("{call:?} asks without end: {heard:?}");
    }

    /// A request with these members of its parameters, each with a comma after it; and what comes of it. What comes
    /// before its answer is `heard`.
    fn ask(&self, method: &str, members: &str, call: Call<'_>, heard: &RefCell<Dialogue>) -> Answer {
        let capabilities = self.capabilities;
        let mut meta = Vec::new();
        if call.wants_progress {
            meta.push(r#""progressToken":"p""#.to_owned());
        }
        if self.era == Era::Modern {
            meta.push(format!(r#""{META}protocolVersion":"{MODERN}""#));
            meta.push(format!(r#""{META}clientCapabilities":{capabilities}"#));
        }
        let params = format!(r#"{{{members}"_meta":{{{}}}}}"#, meta.join(","));
        let answer = self.post(method, call, &self.request(method, &params));
        self.read(answer, heard)
    }

    fn request(&self, method: &str, params: &str) -> String {
        self.last_id.set(self.last_id.get() + 1);
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#, self.last_id.get())
    }

    fn post(&self, method: &str, call: Call<'_>, body: &str) -> Response<Body> {
        let mut request = self.agent.post(&self.url).header("Content-Type", "application/json");
        request = request.header("Accept", "application/json, text/event-stream");
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        if self.era == Era::Modern {
            request = request.header("MCP-Protocol-Version", MODERN).header("Mcp-Method", method);
            let named = (!call.name.is_empty()).then_some(("Mcp-Name", call.name));
            for (name, value) in named.iter().chain(call.headers) {
                request = request.header(*name, *value);
            }
        } else if method != "initialize" {
            request = request.header("MCP-Protocol-Version", LEGACY);
        }
        if let Some(session) = &self.session {
            request = request.header("Mcp-Session-Id", session);
        }
        request.send(body).expect("it answers")
    }

    /// Reads to the response, answers questions and keeps what is told before.
    fn read(&self, answer: Response<Body>, heard: &RefCell<Dialogue>) -> Answer {
        let status = answer.status();
        let content_type = answer.headers().get("content-type").map(|value| value.to_str().expect("ASCII"));
        let is_stream = content_type.is_some_and(|found| found.starts_with("text/event-stream"));
        let mut body = answer.into_body().into_with_config().limit(1 << 30).reader();
        if !is_stream {
            let mut text = String::new();
            if let Err(error) = body.read_to_string(&mut text) {
                return Answer::None(error.to_string());
            }
            return self.hear(&text, heard).unwrap_or_else(|| Answer::None(format!("{status} {text}")));
        }
        let mut events = Events::of(body);
        loop {
            while let Some(data) = events.next_data() {
                if let Some(answer) = self.hear(&data, heard) {
                    return answer;
                }
            }
            // A server may close a stream and go on with it when it is asked to.
            let Some(last) = events.last_id().filter(|_| self.era == Era::Legacy) else {
                return Answer::None("the stream ended without a response".to_owned());
            };
            std::thread::sleep(Duration::from_millis(200));
            events = Events::of(self.resume(last).into_body().into_with_config().limit(1 << 30).reader());
        }
    }

    fn resume(&self, last: &str) -> Response<Body> {
        let request = self.agent.get(&self.url).header("Accept", "text/event-stream").header("Last-Event-ID", last);
        let session = self.session.as_deref().expect("only a session has a stream to go on with");
        let request = request.header("MCP-Protocol-Version", LEGACY).header("Mcp-Session-Id", session);
        let answer = request.call().expect("it answers");
        assert_eq!(answer.status(), 200, "the stream goes on");
        answer
    }

    /// Takes one message; gives the response when it is that.
    fn hear(&self, text: &str, heard: &RefCell<Dialogue>) -> Option<Answer> {
        let mut message = Json::parse(text).ok()?;
        if let Some(result) = message.remove("result") {
            return Some(Answer::Result(result));
        }
        if let Some(error) = message.remove("error") {
            return Some(Answer::Error(error));
        }
        let method = message.get("method")?.as_text()?;
        match message.get("id").cloned() {
            Some(id) => {
                message.remove("id");
                message.remove("jsonrpc");
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, answer_to(&message));
                heard.borrow_mut().questions.push(message);
                let status = self.post("answer", Call::default(), &answer).status();
                assert_eq!(status, 202, "an answer is taken");
            }
            None if method == "notifications/progress" => {
                let mut params = message.remove("params").expect("progress has parameters");
                assert_eq!(params.remove("progressToken"), Some(Json::text("p")), "it is the caller's token");
                heard.borrow_mut().progress.push(params);
            }
            None => {}
        }
        None
    }
}

/// What a result asks, by name.
fn questions(answer: &Answer) -> Option<Json> {
    let result = answer.result()?;
    let is_asking = result.get("resultType") == Some(&Json::text("input_required"));
    is_asking.then(|| result.get("inputRequests").cloned().unwrap_or(Json::Object(Vec::new())))
}

/// What somebody answers who agrees to everything.
fn answer_to(question: &Json) -> String {
    let method = question.get("method").and_then(Json::as_text).expect("a question has a method");
    match method.as_str() {
        "elicitation/create" => {
            let schema = question.get("params").and_then(|params| params.get("requestedSchema"));
            let fields = schema.and_then(|schema| schema.get("properties")).map(Json::members).unwrap_or_default();
            let entered = fields.iter().map(|(name, field)| format!("{}:{}", Json::Text(name.clone()), entered(field)));
            format!(r#"{{"action":"accept","content":{{{}}}}}"#, entered.collect::<Vec<_>>().join(","))
        }
        "sampling/createMessage" => {
            r#"{"role":"assistant","content":{"type":"text","text":"as you wish"},"model":"m","stopReason":"endTurn"}"#
                .to_owned()
        }
        "roots/list" => r#"{"roots":[{"uri":"file:///home","name":"home"}]}"#.to_owned(),
        other => panic!("{other} is asked"),
    }
}

fn entered(field: &Json) -> String {
    let first = |list: &str| field.get(list).and_then(|list| list.items().first()).cloned();
    if let Some(value) = field.get("default").cloned().or_else(|| first("enum")) {
        return value.to_string();
    }
    if let Some(choice) = first("oneOf") {
        return choice.get("const").expect("a choice has a value").to_string();
    }
    match field.get("type").and_then(Json::as_text).as_deref() {
        Some("boolean") => "true".to_owned(),
        Some("integer" | "number") => "1".to_owned(),
        Some("array") => {
            let items = field.get("items").expect("a list has items");
            let first = |list: &str| items.get(list).and_then(|list| list.items().first()).cloned();
            let choice = first("enum").or_else(|| first("anyOf")?.get("const").cloned());
            format!("[{}]", choice.expect("a list of choices"))
        }
        _ => r#""entered""#.to_owned(),
    }
}
