//! JSON-RPC messages, read without changing a character of what they carry.

use super::super::checks::{object, present, quoted};
use crate::domain::manifest::{SyncFault, SyncReason};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One message, of either direction.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// The answer to a request of ours.
    Response {
        /// The request's id, as text; absent where the other side could not read it.
        id: Option<&'a RawValue>,
        /// The result, or the error.
        answer: Result<&'a RawValue, &'a RawValue>,
    },
    /// Something the other side wants of us.
    Request {
        /// Its id, to be repeated in the answer.
        id: &'a RawValue,
        /// What it wants.
        method: Cow<'a, str>,
        /// With which parameters.
        params: Option<&'a RawValue>,
    },
    /// Something the other side tells us.
    Notification {
        /// What it tells.
        method: Cow<'a, str>,
        /// In detail.
        params: Option<&'a RawValue>,
    },
}

impl Message<'_> {
    /// Whether this answers the request of ours with that id. An error without an id does: whoever wrote it could not
    /// read the request.
    pub fn is_answer_to(&self, request_id: u64) -> bool {
        match self {
            // Some writers of JSON know no integers: 1.0 is 1.
            Message::Response { id: Some(id), .. } => integer(id.get()) == Some(request_id as f64),
            Message::Response { id: None, answer } => answer.is_err(),
            Message::Request { .. } | Message::Notification { .. } => false,
        }
    }
}

/// Reads a message. `None` when it is none: no object, another protocol, neither result nor error nor method, or both,
/// or an id that is neither a string nor an integer. A batch is none either. An answer's id may be `null`, as plain
/// JSON-RPC has it for requests that could not be read; a request's may not, or it would pass for a notification.
pub fn parse(text: &str) -> Option<Message<'_>> {
    #[derive(Deserialize)]
    struct Members<'a> {
        jsonrpc: Cow<'a, str>,
        #[serde(borrow, default, deserialize_with = "present")]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
        #[serde(borrow, default, deserialize_with = "present")]
        params: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        result: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        error: Option<&'a RawValue>,
    }

    let said: Members<'_> = object(text.as_bytes())?;
    if said.jsonrpc != "2.0" {
        return None;
    }
    let id = said.id.filter(|id| id.get() != "null");
    if id.is_some_and(|id| !is_id(id)) {
        return None;
    }
    match (said.method, said.result, said.error) {
        (Some(method), None, None) => match (id, said.id) {
            (Some(id), _) => Some(Message::Request { id, method, params: said.params }),
            (None, None) => Some(Message::Notification { method, params: said.params }),
            (None, Some(_)) => None,
        },
        (None, Some(result), None) => Some(Message::Response { id, answer: Ok(result) }),
        (None, None, Some(error)) => Some(Message::Response { id, answer: Err(error) }),
        (None, None, None)
        | (Some(_) | None, Some(_), Some(_))
        | (Some(_), Some(_), None)
        | (Some(_), None, Some(_)) => None,
    }
}

fn is_id(id: &RawValue) -> bool {
    id.get().starts_with('"') || integer(id.get()).is_some()
}

/// The number a JSON text is, when it has no fraction.
fn integer(text: &str) -> Option<f64> {
    serde_json::from_str::<f64>(text).ok().filter(|number| number.fract() == 0.0)
}

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its number.
    pub code: i64,
    /// Its sentence.
    pub message: String,
    /// The versions of `data.supported`.
    supported: Option<Vec<String>>,
}

impl Error {
    /// Reads an error object; `None` when it has no integer code.
    pub fn read(error: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Members<'a> {
            code: i64,
            #[serde(borrow)]
            message: Option<Cow<'a, str>>,
            #[serde(borrow, default, deserialize_with = "present")]
            data: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Data {
            supported: Vec<String>,
        }
        let said: Members<'_> = object(error.get().as_bytes())?;
        let supported = said.data.and_then(|data| object::<Data>(data.get().as_bytes())).map(|data| data.supported);
        Some(Self { code: said.code, message: said.message.unwrap_or_default().into_owned(), supported })
    }

    /// What a refusal of the protocol's version lists.
    pub fn supported_versions(self) -> Option<Vec<String>> {
        self.supported
    }
}

/// The `resultType` of a result; `None` in the earlier era, which knows none.
pub fn result_type(result: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Members {
        #[serde(rename = "resultType")]
        result_type: Option<String>,
    }
    object::<Members>(result.get().as_bytes())?.result_type
}

/// What an error that a server answers to `method` means for a sync.
pub fn sync_fault(method: &str, error: &RawValue) -> SyncFault {
    let said = Error::read(error);
    let (code, message) = said.map_or((0, String::new()), |error| (error.code, error.message));
    SyncFault::new(
        SyncReason::BadManifest,
        format!("the server answered {method} with the JSON-RPC error {code}: {}", quoted(&message)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message in a few words.
    fn told(text: &str) -> Option<String> {
        let shown = |value: Option<&RawValue>| value.map_or("-", RawValue::get).to_owned();
        Some(match parse(text)? {
            Message::Response { id, answer: Ok(result) } => format!("{} result {}", shown(id), result.get()),
            Message::Response { id, answer: Err(error) } => format!("{} error {}", shown(id), error.get()),
            Message::Request { id, method, params } => format!("{} {method} {}", id.get(), shown(params)),
            Message::Notification { method, params } => format!("{method} {}", shown(params)),
        })
    }

    #[test]
    fn messages_are_told_apart_and_kept_as_text() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{ "n":1.50 }}"#, r#"1 result { "n":1.50 }"#),
            (r#"{"id":"a","result":null,"jsonrpc":"2.0"}"#, r#""a" result null"#),
            (r#"{"jsonrpc":"2.0","result":{}}"#, "- result {}"),
            (r#"{"jsonrpc":"2.0","id":-7,"error":{"code":1}}"#, r#"-7 error {"code":1}"#),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "- error {}"),
            (r#"{"jsonrpc":"2.0","error":"x"}"#, r#"- error "x""#),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"method":null}"#, "1 result {}"),
            (r#"{"jsonrpc":"2.0","id":1e0,"method":"ping"}"#, "1e0 ping -"),
            (r#"{"jsonrpc":"2.0","id":"","method":"a\u0062","params":null}"#, "\"\" ab null"),
            (r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}"#, r#"notifications/x {"a":1}"#),
            (r#" {"jsonrpc":"2.0","method":"x","vendor":[1e400]} "#, "x -"),
        ] {
            assert_eq!(told(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        for text in [
            "",
            "null",
            "[]",
            r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#,
            r#"["2.0",1,"ping"]"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":2.0,"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":[1],"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}x"#,
            r#"{"JSONRPC":"2.0","id":1,"result":{}}"#,
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn an_answer_is_the_one_with_the_requests_id() {
        for (text, is_ours) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, true),
            (r#"{"jsonrpc":"2.0","id":7.0,"error":{}}"#, true),
            (r#"{"jsonrpc":"2.0","id":8,"result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":8,"error":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, true),
            (r#"{"jsonrpc":"2.0","error":{}}"#, true),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, false),
            (r#"{"jsonrpc":"2.0","method":"ping"}"#, false),
        ] {
            assert_eq!(parse(text).map(|message| message.is_answer_to(7)), Some(is_ours), "{text}");
        }
    }

    #[test]
    fn an_error_says_what_it_is() {
        let read = |text: &str| Error::read(&RawValue::from_string(text.to_owned()).expect("JSON"));
        let error =
            read(r#"{"code":-32022,"message":"m","data":{"supported":["a"],"requested":"b"}}"#).expect("an error");
        assert_eq!((error.code, error.message.as_str()), (-32022, "m"));
        assert_eq!(error.supported_versions(), Some(vec!["a".to_owned()]));
        for data in ["null", "[]", r#"{"supported":[1]}"#, r#"{"supported":"a"}"#] {
            let error = read(&format!(r#"{{"code":1,"data":{data}}}"#)).expect("an error");
            assert_eq!(error.message, "", "{data}");
            assert_eq!(error.supported_versions(), None, "{data}");
        }
        for text in ["null", "[1,\"m\"]", "{}", r#"{"code":"1"}"#, r#"{"code":1.5}"#, r#"{"code":1,"code":2}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
