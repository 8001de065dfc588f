//! From bytes to one JSON-RPC message. Nothing is read that the scan has not found to be unambiguous.

use super::members::Members;
use super::reply::Fault;
use crate::dialects::mcp::words;
use crate::domain::json_scan;
use crate::http::json::{Object, present};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One message of a client.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// Something it wants.
    Request(Request<'a>),
    /// Something it tells.
    Notification { method: Cow<'a, str>, params: Params<'a> },
    /// Its answer to a question.
    Response {
        id: &'a RawValue,
        /// A result, or an error.
        answer: Result<&'a RawValue, &'a RawValue>,
    },
}

/// Something a client wants.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// A JSON string or integer, as it came.
    pub(super) id: &'a str,
    pub(super) method: Cow<'a, str>,
    pub(super) params: Params<'a>,
}

/// The parameters that any method takes; what is not named here is not looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    pub(super) meta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) uri: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_responses: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) request_state: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cursor: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) task_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) notifications: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) protocol_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) request_id: Option<&'a RawValue>,
}

/// Longest progress token, in bytes of JSON: it is repeated in every message of progress.
const LONGEST_PROGRESS_TOKEN: usize = 512;

impl Params<'_> {
    /// The client's word for what it is told of progress, within its length.
    pub(super) fn bounded_progress_token(&self) -> Result<Option<String>, Fault> {
        match self.progress_token() {
            Some(token) if token.len() > LONGEST_PROGRESS_TOKEN => {
                Err(Fault::invalid_params(format!("progressToken may have at most {LONGEST_PROGRESS_TOKEN} bytes")))
            }
            token => Ok(token),
        }
    }

    /// The client's word for what it is told of progress: a string or an integer, as it came.
    fn progress_token(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta<'a> {
            #[serde(borrow)]
            progress_token: Option<&'a RawValue>,
        }
        // Most clients do not ask for it: they are not made to pay for the look.
        let meta = self.meta.map(RawValue::get).filter(|meta| meta.contains("rogressToken") || meta.contains('\\'))?;
        let Object(meta): Object<Meta<'_>> = serde_json::from_str(meta).ok()?;
        meta.progress_token.map(RawValue::get).filter(|token| is_id(token)).map(str::to_owned)
    }
}

/// A parameter that is a text; an absent one is none.
pub(super) fn text<'a>(name: &'static str, value: Option<&'a RawValue>) -> Result<Option<Cow<'a, str>>, Fault> {
    let Some(value) = value else { return Ok(None) };
    string(value).map(Some).ok_or_else(|| Fault::invalid_params(format!("{name} is a string")))
}

/// The text of a JSON string; `None` for any other value.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(value.get()).ok().map(|Text(text)| text)
}

/// A parameter that is an object; an absent one is none.
pub(super) fn object<'a>(name: &'static str, value: Option<&'a RawValue>) -> Result<Option<&'a RawValue>, Fault> {
    match value {
        Some(value) if !value.get().starts_with('{') => Err(Fault::invalid_params(format!("{name} is a JSON object"))),
        value => Ok(value),
    }
}

/// Why no message could be read, and the id it carries if that much is clear.
#[derive(Debug)]
pub(super) struct Unreadable<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) fault: Fault,
}

/// Reads a body.
pub(super) fn read(body: &[u8]) -> Result<Message<'_>, Unreadable<'_>> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        id: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        method: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        params: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        result: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        error: Option<&'a RawValue>,
    }
    let refused = |fault| Unreadable { id: None, fault };
    json_scan::scan(body).map_err(|fault| refused(Fault::new(400, words::PARSE_ERROR, fault.message)))?;
    if let Some(request) = read_plain(body) {
        return Ok(Message::Request(request));
    }
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(refused(Fault::invalid_request("batches are not taken: send one message a request")));
    }
    let Ok(Object(said)) = serde_json::from_slice::<Object<Envelope<'_>>>(body) else {
        return Err(refused(Fault::invalid_request("a message is a JSON object")));
    };
    let id = said.id.map(RawValue::get).filter(|id| is_id(id));
    let refused = |message: &'static str| Unreadable { id, fault: Fault::invalid_request(message) };
    if said.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return Err(refused("jsonrpc is \"2.0\""));
    }
    if said.id.is_some() && id.is_none() {
        return Err(refused("id is a string or an integer"));
    }
    match (said.method, said.result, said.error) {
        (Some(method), None, None) => {
            let method = string(method).ok_or_else(|| refused("method is a string"))?;
            let params = read_params(said.params).map_err(|fault| Unreadable { id, fault })?;
            Ok(match id {
                Some(id) => Message::Request(Request { id, method, params }),
                None => Message::Notification { method, params },
            })
        }
        (None, Some(result), None) => {
            Ok(Message::Response { id: said.id.ok_or_else(|| refused("an answer has an id"))?, answer: Ok(result) })
        }
        (None, None, Some(error)) => {
            Ok(Message::Response { id: said.id.ok_or_else(|| refused("an answer has an id"))?, answer: Err(error) })
        }
        (None, None, None)
        | (Some(_) | None, Some(_), Some(_))
        | (Some(_), Some(_), None)
        | (Some(_), None, Some(_)) => Err(refused("a message has either a method, or a result, or an error")),
    }
}

/// Reads a request in which nothing is out of the ordinary, and in one pass; `None` for any other message, which is then
/// looked at member by member, so that a refusal can say what is wrong.
fn read_plain(body: &[u8]) -> Option<Request<'_>> {
    #[derive(Deserialize)]
    struct Plain<'a> {
        jsonrpc: &'a str,
        #[serde(borrow)]
        id: &'a RawValue,
        method: &'a str,
        #[serde(borrow)]
        params: Object<Params<'a>>,
        #[serde(borrow, default, deserialize_with = "present")]
        result: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        error: Option<&'a RawValue>,
    }
    let Object(said) = serde_json::from_slice::<Object<Plain<'_>>>(body).ok()?;
    let Plain { jsonrpc: "2.0", id, method, params: Object(params), result: None, error: None } = said else {
        return None;
    };
    is_id(id.get()).then_some(Request { id: id.get(), method: Cow::Borrowed(method), params })
}

fn read_params(params: Option<&RawValue>) -> Result<Params<'_>, Fault> {
    let Some(params) = params else { return Ok(Params::default()) };
    let read: Result<Object<Params<'_>>, _> = serde_json::from_str(params.get());
    read.map(|Object(params)| params).map_err(|_| Fault::invalid_params("params is a JSON object"))
}

/// What may be an id: a string, or an integer.
fn is_id(json: &str) -> bool {
    let is_integer = || json.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    json.starts_with('"') || (!json.is_empty() && is_integer())
}

/// What a client says that it can do.
#[derive(Clone, Debug, Default)]
pub(super) struct Capabilities {
    /// The object as it came, without what toolgate itself serves.
    pub(super) told_on: Option<String>,
    /// It can be asked anything at all.
    pub(super) elicitation: bool,
    /// It can put a form to a person.
    pub(super) form: bool,
    /// It follows a call that goes on as a task.
    pub(super) tasks: bool,
}

impl Capabilities {
    /// Reads an object; `None` when it is none. `kept` names the members that are told on, all when there are none.
    pub(super) fn read(json: &str, kept: &[&str]) -> Option<Self> {
        if json == "{}" {
            return Some(Self { told_on: Some(json.to_owned()), ..Self::default() });
        }
        let mut members = Members::of(json)?;
        let elicitation = members.get("elicitation").and_then(|value| Members::of(value.get()));
        // An empty object means forms, from before there was anything else.
        let form = elicitation.as_ref().is_some_and(|modes| modes.is_empty() || modes.get("form").is_some());
        let elicitation = elicitation.is_some();
        let mut tasks = false;
        let without_tasks = members.get("extensions").and_then(|value| {
            let mut extensions = Members::of(value.get())?;
            tasks = extensions.get(words::TASKS_EXTENSION).is_some_and(|settings| settings.get().starts_with('{'));
            extensions.remove(words::TASKS_EXTENSION);
            tasks.then(|| extensions.to_text())
        });
        let had_tasks = members.get("tasks").is_some();
        members.remove("tasks");
        let is_as_it_came = kept.is_empty() && !had_tasks && without_tasks.is_none();
        if let Some(extensions) = without_tasks {
            if extensions == "{}" { members.remove("extensions") } else { members.set("extensions", extensions) }
        }
        if !kept.is_empty() {
            members.keep(kept);
        }
        let told_on = if is_as_it_came { json.to_owned() } else { members.to_text() };
        Some(Self { told_on: Some(told_on), elicitation, form, tasks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (Option<String>, i64) {
        let unreadable = read(body.as_bytes()).expect_err("refused");
        (unreadable.id.map(str::to_owned), unreadable.fault.code)
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id_if_it_has_one() {
        for (body, id, code) in [
            ("", None, words::PARSE_ERROR),
            ("{", None, words::PARSE_ERROR),
            (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"a"}"#, None, words::PARSE_ERROR),
            ("[]", None, words::INVALID_REQUEST),
            (r#" [{"jsonrpc":"2.0","id":1,"method":"a"}]"#, None, words::INVALID_REQUEST),
            ("1", None, words::INVALID_REQUEST),
            (r#"{"id":7,"method":"a"}"#, Some("7"), words::INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","id":"x","method":"a"}"#, Some("\"x\""), words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, None, words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, None, words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, None, words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, Some("1"), words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1}"#, Some("1"), words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#, Some("1"), words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","result":1}"#, None, words::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#, Some("1"), words::INVALID_PARAMS),
        ] {
            assert_eq!(refused(body), (id.map(str::to_owned), code), "{body}");
        }
    }

    #[test]
    fn the_kinds_of_message_are_told_apart() {
        let request = read(br#"{"jsonrpc":"2.0","id":-3,"method":"a\/b"}"#);
        assert!(matches!(request, Ok(Message::Request(Request { id: "-3", method, .. })) if method == "a/b"));
        let notification = read(br#"{"jsonrpc":"2.0","method":"n","params":{"requestId":1}}"#);
        assert!(matches!(notification, Ok(Message::Notification { params, .. }) if params.request_id.is_some()));
        let answer = read(br#"{"jsonrpc":"2.0","id":"q","error":{"code":1,"message":"m"}}"#);
        assert!(matches!(answer, Ok(Message::Response { answer: Err(_), .. })));
    }

    #[test]
    fn capabilities_are_told_on_without_what_toolgate_serves_itself() {
        let read = |json, kept: &[&str]| Capabilities::read(json, kept).expect("an object");
        let all = read(r#"{"roots":{},"elicitation":{"url":{}},"x":{"y":1.0}}"#, &[]);
        assert_eq!(all.told_on.as_deref(), Some(r#"{"roots":{},"elicitation":{"url":{}},"x":{"y":1.0}}"#));
        assert_eq!((all.elicitation, all.form, all.tasks), (true, false, false));
        let tasks = read(r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{}}"#, &[]);
        assert_eq!(tasks.told_on.as_deref(), Some(r#"{"elicitation":{}}"#));
        assert_eq!((tasks.elicitation, tasks.form, tasks.tasks), (true, true, true));
        let some = read(r#"{"roots":{},"elicitation":{"form":{}},"experimental":{}}"#, &["roots", "elicitation"]);
        assert_eq!(some.told_on.as_deref(), Some(r#"{"roots":{},"elicitation":{"form":{}}}"#));
        assert!(Capabilities::read("[]", &[]).is_none());
    }
}
