//! Whatever a provider sends, and whatever an agent's arguments hold.

use super::{CALLBACK_URL, RUN_ID, TRACE_ID, endpoint, intent, mark, provider_tool, settings, tool_of};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate::dialects::agent_provider::{self, ReceiptAnswer};
use toolgate::dialects::topology::callback::parse_callback;
use toolgate::dialects::{self, AnswerContext, ApprovalMark, Call, CallAnswer, InboundAnswer, mcp, median};
use toolgate::domain::ids::RunId;
use toolgate::domain::json::JsonText;
use toolgate::domain::time::Timestamp;
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
        nearly(
            br#"{"protocol_version":"1","contract_version":"2026-09-01","capabilities":["read"],"languages":["en"],"tools":[{"name":"a.b","mutating":false,"produces_evidence":["value"],"timeout_ms":1,"parameters":{"type":"object","additionalProperties":false}}]}"#
        ),
        nearly(
            br#"{"contract_version":"2026-09-01","status":"ok","evidence":[{"kind":"entity","id":"e","type":"order","key":"O-1"},{"kind":"value","id":"v","of":"e","field":"total","value":{"amount":"12.50","currency":"EUR"},"value_type":"money","as_of":"2026-01-15T16:09:00Z"},{"kind":"completeness","id":"c","scope":"o","complete":true,"returned":1}],"text":"12.50 EUR on 15 January"}"#
        ),
        nearly(
            br#"{"contract_version":"2026-09-01","status":"ok","evidence":[{"kind":"reference","id":"r","type":"t","value":"R-1"},{"kind":"action","id":"a","action":"order.cancel","outcome":"applied","operation_id":"0198a000-0000-7000-8000-000000000009","request_fingerprint":"sha256:abababababababababababababababababababababababababababababababab","recorded_at":"2026-09-01T10:00:00Z"}]}"#
        ),
        nearly(
            br#"{"operation_id":"0198a000-0000-7000-8000-000000000009","request_fingerprint":"sha256:abababababababababababababababababababababababababababababababab","tool":"order.cancel","action":"order.cancel","state":"applied","recorded_at":"2026-09-01T10:00:00Z","response":null}"#
        ),
        nearly(
            br#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[{"name":"a","annotations":{"readOnlyHint":true},"icons":[{"src":"data:,"}],"inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X"}}}}],"nextCursor":"2"}}"#
        ),
        nearly(
            br#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","content":[{"type":"text","text":"t"}],"isError":true,"inputRequests":{},"requestState":"s"}}"#
        ),
        nearly(
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}}"#
        ),
        nearly(br#"{"result":[1],"error":{"code":"execution_failed","message":"m"}}"#),
        nearly(
            br#"{"type":"tool.result","data":{"correlation_id":"c","request_id":"r","status":"completed","payload":1}}"#
        ),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_a_dialect_panic_or_answer_without_a_sentence(body in anything(), status in 100u16..600) {
        let answer = InboundAnswer { status, etag: None, body: Bytes::from(body.clone()) };
        for dialect in Dialect::ALL {
            match dialects::decode_manifest(&settings(dialect), &body) {
                Ok(manifest) => prop_assert_eq!(manifest.hash.len(), 64),
                Err(fault) => prop_assert!(!fault.message.is_empty()),
            }
            for kind in ["query", "command"] {
                let tool = tool_of(dialect, kind, Some("high"));
                let mark = mark();
                let context = AnswerContext {
                    operation: Some(&mark),
                    repeatable: false,
                    locale: Some("ar"),
                    timezone: Some("Asia/Tokyo"),
                };
                match dialects::decode_answer(dialect, &tool, &context, &answer) {
                    CallAnswer::Settled(outcome) => {
                        prop_assert!(!outcome.status.is_open(), "an answer settles a run or leaves it pending by id");
                    }
                    CallAnswer::Operation(verdict) => {
                        prop_assert!(tool.mutating && !verdict.outcome_so_far().status.is_open());
                    }
                    CallAnswer::Accepted { .. } => prop_assert_eq!(dialect, Dialect::Topology),
                }
            }
        }
        let mark = mark();
        let context = AnswerContext { operation: Some(&mark), ..AnswerContext::default() };
        match agent_provider::decode_receipt(&intent(&provider_tool(true), &context), &answer) {
            ReceiptAnswer::Unclear { message, .. } => prop_assert!(!message.is_empty()),
            // Only whoever knows both ids can say that something happened.
            ReceiptAnswer::Adopted(..) => prop_assert!(body.windows(36).any(|part| part == super::OPERATION_ID.as_bytes())),
            ReceiptAnswer::Pending | ReceiptAnswer::Missing | ReceiptAnswer::Conflict(_) | ReceiptAnswer::Gone => {}
        }
        if let Err((_, message)) = median::decode_diagnostics(&answer) {
            prop_assert!(!message.is_empty());
        }
        if let Err(fault) = parse_callback(&body) {
            prop_assert!(!fault.to_string().is_empty());
        }
        let text = String::from_utf8_lossy(&body);
        if matches!(status, 401 | 403 | 429) {
            prop_assert_eq!(mcp::sign_of(status, &text), mcp::Sign::Silent);
        } else {
            mcp::sign_of(status, &text);
        }
        if let Ok(raw) = RawValue::from_string(text.into_owned()) {
            mcp::decode_opened(&raw);
            let failure = mcp::rpc_failure(&raw);
            prop_assert!(!failure.status.is_open() && failure.error.is_some());
        }
    }

    #[test]
    fn what_a_header_holds_is_read_as_what_it_was(text in ".{0,40}", odd in "(=[?]base64[?])?[ \\ta-c=?]{0,8}([?]=)?") {
        for text in [text, odd] {
            let header = mcp::encoded_header(&text);
            prop_assert!(!header.is_empty() && header.bytes().all(|b| matches!(b, b' '..=b'~')));
            prop_assert_eq!(header.trim(), &header);
            let read = mcp::decoded_header(&header);
            prop_assert_eq!(read.as_deref(), Some(text.as_str()));
        }
    }

    #[test]
    fn any_argument_text_goes_out_as_it_is(text in "[ -~äß€😀]{0,40}", number in -1e300f64..1e300) {
        let arguments = format!("{{\"t\" : {}, \"n\":{number:e}}}", Value::String(text));
        for dialect in Dialect::ALL {
            let tool = tool_of(dialect, "query", Some("low"));
            let call = Call {
                run_id: RUN_ID.parse::<RunId>().expect("an id"),
                tool: &tool,
                arguments: &JsonText::parse(&arguments).expect("arguments are JSON"),
                caller: None,
                conversation: None,
                callback_url: CALLBACK_URL,
                approval: &ApprovalMark::None,
                workspace: "acme",
                turn: None,
                locale: None,
                timezone: None,
                now: Timestamp::default(),
                trace_id: TRACE_ID,
                operation: None,
            };
            let request = dialects::encode_call(&endpoint(dialect), &call);
            let body = std::str::from_utf8(&request.body).expect("a body is text");
            prop_assert!(body.contains(&arguments));
            prop_assert!(serde_json::from_str::<Value>(body).is_ok());
        }
    }
}
