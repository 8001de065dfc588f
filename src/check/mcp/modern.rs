//! The present era: discovery, and what such a server refuses.

use super::super::report::Rule;
use super::super::session::Session;
use super::call::no_such_call;
use super::exchange::{Reply, ask, judge, with_body, with_header};
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::words::{
    HEADER_MISMATCH, INVALID_PARAMS, META_CLIENT_CAPABILITIES, META_VERSION, METHOD_NOT_FOUND, MODERN_VERSION,
    UNSUPPORTED_VERSION,
};
use crate::dialects::mcp::{self, Dialogue};
use serde_json::{Value, json};

/// A revision that nobody speaks.
const NO_SUCH_VERSION: &str = "1900-01-01";

const DISCOVER: Rule =
    Rule::new("§11.2", "discover: answer", "supportedVersions with 2026-07-28, and capabilities, an object");
const DISCOVER_TOOLS: Rule = Rule::new("§11.2", "discover: tools", "the capability tools, an object");
const META: Rule =
    Rule::new("§11.2", "_meta: without the client's capabilities", "HTTP 400 and the JSON-RPC error -32602");
const MISMATCH: &str = "HTTP 400 and the JSON-RPC error -32020";
const METHOD_MISSING: Rule = Rule::new("§11.2", "headers: no Mcp-Method", MISMATCH);
const METHOD_OTHER: Rule = Rule::new("§11.2", "headers: another Mcp-Method than the body's", MISMATCH);
const NAME_OTHER: Rule = Rule::new("§11.2", "headers: another Mcp-Name than the body's", MISMATCH);
const VERSION_OTHER: Rule = Rule::new(
    "§11.2",
    "headers: another MCP-Protocol-Version than the body's",
    "HTTP 400 and the JSON-RPC error -32020 (or -32022, for the header's)",
);
const VERSION_UNKNOWN: Rule =
    Rule::new("§11.2", "version: unknown", "HTTP 400 and the JSON-RPC error -32022, with 2026-07-28 in data.supported");
const METHOD_UNKNOWN: Rule = Rule::new("§11.2", "method: unknown", "HTTP 404 and the JSON-RPC error -32601");

/// Asks the server what it speaks.
pub(super) async fn discover(session: &mut Session<'_>) {
    let request = mcp::encode_discover(&session.settings, 2);
    let reply = match ask(session, &request, 2).await {
        Ok(reply) => reply,
        Err(sentence) => {
            session.report.fail(DISCOVER, sentence);
            session.report.skip(DISCOVER_TOOLS, "there is no answer");
            return;
        }
    };
    let said = reply.result_value();
    let versions = said["supportedVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let holds = versions.iter().all(Value::is_string)
        && versions.iter().any(|version| version == MODERN_VERSION)
        && said["capabilities"].is_object()
        && said["resultType"] == "complete";
    if session.report.judge(DISCOVER, holds, reply.account()) {
        let account = said["capabilities"].to_string();
        session.report.judge(DISCOVER_TOOLS, said["capabilities"]["tools"].is_object(), account);
    } else {
        session.report.skip(DISCOVER_TOOLS, "the answer cannot be read");
    }
}

/// Sends what a careful server refuses.
pub(super) async fn refusals(session: &mut Session<'_>) {
    let list = || mcp::encode_list(&session.settings, &Dialogue::Modern, 10, None);
    let with_version = |request: OutboundRequest| {
        with_body(request, |body| body["params"]["_meta"][META_VERSION] = json!(NO_SUCH_VERSION))
    };
    let without_capabilities = with_body(list(), |body| {
        if let Some(meta) = body["params"]["_meta"].as_object_mut() {
            meta.remove(META_CLIENT_CAPABILITIES);
        }
    });
    let call = no_such_call(&session.settings, &Dialogue::Modern, 10);
    let other_version = with_header(list(), "mcp-protocol-version", Some(NO_SUCH_VERSION));
    let unknown_method = with_body(with_header(list(), "mcp-method", Some("toolgate/no_such_method")), |body| {
        body["method"] = json!("toolgate/no_such_method");
    });
    let refused =
        |status: u16, code: i64| move |reply: &Reply| reply.answer.status == status && reply.error_code() == Some(code);
    let is_mismatch = refused(400, HEADER_MISMATCH);
    let tries = [
        (METHOD_MISSING, with_header(list(), "mcp-method", None)),
        (METHOD_OTHER, with_header(list(), "mcp-method", Some("tools/call"))),
        (NAME_OTHER, with_header(call, "mcp-name", Some("another"))),
    ];
    let unknown_version = with_version(other_version.clone());
    judge(session, META, &without_capabilities, 10, refused(400, INVALID_PARAMS)).await;
    for (rule, request) in tries {
        judge(session, rule, &request, 10, is_mismatch).await;
    }
    judge(session, VERSION_OTHER, &other_version, 10, |reply| {
        let code = reply.error_code();
        reply.answer.status == 400 && matches!(code, Some(HEADER_MISMATCH | UNSUPPORTED_VERSION))
    })
    .await;
    judge(session, VERSION_UNKNOWN, &unknown_version, 10, |reply| {
        let supported = reply.error().and_then(mcp::rpc::Error::supported_versions).unwrap_or_default();
        refused(400, UNSUPPORTED_VERSION)(reply) && supported.iter().any(|version| version == MODERN_VERSION)
    })
    .await;
    judge(session, METHOD_UNKNOWN, &unknown_method, 10, refused(404, METHOD_NOT_FOUND)).await;
}
