//! An MCP server of the present era that does as little as possible: one tool, one fixed result.

use super::provider::serve_exchanges;
use std::borrow::Cow;
use std::net::SocketAddr;

const TOOLS: &str = r#"{"resultType":"complete","tools":[{"name":"echo","description":"Says it back.","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"count":{"type":"integer"}},"required":["text"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}],"ttlMs":60000,"cacheScope":"private"}"#;

const RESULT: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"hello"}],"structuredContent":{"text":"hello","count":3,"note":"a short answer of a fast server"}}"#;

/// Serves until the process ends.
pub fn serve(address: SocketAddr) -> ! {
    serve_exchanges(address, |_, body| {
        let body = std::str::from_utf8(body).expect("a body is text");
        let id = body.split_once("\"id\":").map_or("0", |(_, rest)| rest.split(',').next().expect("one part"));
        Cow::Owned(if body.contains("\"tools/list\"") {
            response(id, "result", TOOLS)
        } else if body.contains("\"tools/call\"") {
            response(id, "result", RESULT)
        } else {
            response(id, "error", r#"{"code":-32601,"message":"there is no such method"}"#)
        })
    })
}

fn response(id: &str, member: &str, value: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}
