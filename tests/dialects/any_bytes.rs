//! Whatever a provider sends, and whatever an agent's arguments hold.

use super::{CALLBACK_URL, RUN_ID, endpoint, settings, tool};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use toolgate::dialects::topology::callback::parse_callback;
use toolgate::dialects::{self, ApprovalMark, Call, CallAnswer, InboundAnswer, median};
use toolgate::domain::ids::RunId;
use toolgate::domain::json::JsonText;
use toolgate::domain::tool::Dialect;

/// Texts that are nearly right: a good one, cut, with one byte changed.
fn nearly(good: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    (0..=good.len(), 0..good.len(), any::<u8>()).prop_map(|(end, at, byte)| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        bytes.truncate(end);
        bytes
    })
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        (0usize..20_000, 0usize..20_000).prop_map(|(open, close)| ["[".repeat(open), "]".repeat(close)].concat().into()),
        nearly(
            br#"[{"id":"topology:a","title":"A","description":"d","kind":"query","input_schema":{"type":"object"}}]"#
        ),
        nearly(
            br#"{"version":1,"tools":[{"name":"a","description":"d","risk":"low","inputSchema":{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":false}}]}"#
        ),
        nearly(br#"{"kind":"query","status":"pending","started":true,"correlation_id":"c","error":{"code":"c"}}"#),
        nearly(br#"{"result":[1],"error":{"code":"execution_failed","message":"m"}}"#),
        nearly(
            br#"{"type":"tool.result","data":{"correlation_id":"c","request_id":"r","status":"completed","payload":1}}"#
        ),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_a_dialect_panic_or_answer_without_a_sentence(body in anything(), status in 100u16..600) {
        let answer = InboundAnswer { status, body: Bytes::from(body.clone()) };
        for dialect in [Dialect::Topology, Dialect::Median] {
            match dialects::decode_manifest(&settings(dialect), &body) {
                Ok(manifest) => prop_assert_eq!(manifest.hash.len(), 64),
                Err(fault) => prop_assert!(!fault.message.is_empty()),
            }
            for kind in ["query", "command"] {
                let tool = tool("a", "a", kind, Some("high"));
                if let CallAnswer::Settled(outcome) = dialects::decode_answer(dialect, &tool, &answer) {
                    prop_assert!(!outcome.status.is_open(), "an answer settles a run or leaves it pending by id");
                }
            }
        }
        if let Err((_, message)) = median::decode_diagnostics(&answer) {
            prop_assert!(!message.is_empty());
        }
        if let Err(fault) = parse_callback(&body) {
            prop_assert!(!fault.to_string().is_empty());
        }
    }

    #[test]
    fn any_argument_text_goes_out_as_it_is(text in "[ -~äß€😀]{0,40}", number in -1e300f64..1e300) {
        let arguments = format!("{{\"t\" : {}, \"n\":{number:e}}}", Value::String(text));
        for dialect in [Dialect::Topology, Dialect::Median] {
            let tool = tool("a", "a", "query", Some("low"));
            let call = Call {
                run_id: RUN_ID.parse::<RunId>().expect("an id"),
                tool: &tool,
                arguments: &JsonText::parse(&arguments).expect("arguments are JSON"),
                caller: None,
                conversation: None,
                callback_url: CALLBACK_URL,
                approval: &ApprovalMark::None,
            };
            let request = dialects::encode_call(&endpoint(dialect), &call);
            let body = std::str::from_utf8(&request.body).expect("a body is text");
            prop_assert!(body.contains(&arguments));
            prop_assert!(serde_json::from_str::<Value>(body).is_ok());
        }
    }
}
