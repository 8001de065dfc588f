//! An agent-provider that does as little as possible: every mutation is applied at once, and its receipt is kept in
//! memory.

use super::provider::serve_with;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// One mutation without arguments to speak of.
const MANIFEST: &str = r#"{"protocol_version":"1","contract_version":"2026-09-01","capabilities":["read","mutate"],"languages":["en"],"receipt_retention_seconds":86400,"tools":[{"name":"note.add","description":"Notes something.","mutating":true,"action":"note_added","produces_evidence":["action"],"timeout_ms":5000,"parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}}]}"#;

/// The token that registers it.
pub const BEARER: &str = "bench";

/// Headers and body of a mutation that is sent to it without a gateway.
pub const DIRECT_HEADERS: &str = "Authorization: Bearer bench\r\nContract-Version: 2026-09-01\r\nTrace-Id: 4bf92f3577b34da6a3ce929d0e0e4736\r\nOperation-Id: 01a22e1a-0000-7000-8000-000000000001\r\nRequest-Fingerprint: sha256:0000000000000000000000000000000000000000000000000000000000000000\r\n";
pub const DIRECT_BODY: &str = r#"{"arguments":{"text":"hello"},"context":{"workspace":"bench","conversation":null,"turn":null,"subject":{"id":"anonymous","channel":"agent","assurance":"channel_asserted"},"locale":"en","timezone":"UTC","now":"2026-11-30T12:00:00.000Z"}}"#;

/// Serves until the process ends.
pub fn serve(address: SocketAddr) -> ! {
    let receipts: Rc<RefCell<HashMap<String, String>>> = Rc::default();
    serve_with(address, move |head| {
        if head.starts_with("POST ") {
            let (id, fingerprint) = (header(head, "operation-id"), header(head, "request-fingerprint"));
            receipts.borrow_mut().entry(id.to_owned()).or_insert_with(|| fingerprint.to_owned());
            return Cow::Owned(applied(id, fingerprint));
        }
        match head.strip_prefix("GET /receipts/").and_then(|rest| rest.split(' ').next()) {
            None => Cow::Borrowed(MANIFEST),
            Some(id) => {
                let known = receipts.borrow().get(id).cloned();
                let fingerprint =
                    known.unwrap_or_else(|| panic!("no receipt of {id}: what is measured is not the plain path"));
                Cow::Owned(receipt(id, &fingerprint))
            }
        }
    })
}

fn applied(id: &str, fingerprint: &str) -> String {
    format!(
        r#"{{"contract_version":"2026-09-01","status":"ok","evidence":[{{"kind":"action","id":"done","action":"note_added","outcome":"applied","operation_id":"{id}","request_fingerprint":"{fingerprint}","recorded_at":"2026-11-30T12:00:00.000Z"}}]}}"#
    )
}

fn receipt(id: &str, fingerprint: &str) -> String {
    let response = applied(id, fingerprint);
    format!(
        r#"{{"operation_id":"{id}","request_fingerprint":"{fingerprint}","tool":"note.add","action":"note_added","state":"applied","recorded_at":"2026-11-30T12:00:00.000Z","response":{response}}}"#
    )
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value.trim())
}
