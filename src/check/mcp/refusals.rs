//! What a careful server of either era refuses: wrong credentials, tools that it has not, batches.

use super::super::report::Rule;
use super::super::session::Session;
use super::call::no_such_call;
use super::exchange::{ask, judge, with_body};
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::{self, Dialogue};
use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::secret::Secret;
use serde_json::{Value, json};

const REFUSED: &str = "HTTP 401 (or 403)";
const NO_CREDENTIALS: Rule = Rule::new("§11.2", "credentials: tools/list without them", REFUSED);
const WRONG_CREDENTIALS: Rule = Rule::new("§11.2", "credentials: tools/list with wrong ones", REFUSED);
const WRONG_CALL: Rule = Rule::new("§11.2", "credentials: call with wrong ones", REFUSED);
const CREDENTIALS: [Rule; 3] = [NO_CREDENTIALS, WRONG_CREDENTIALS, WRONG_CALL];
const UNKNOWN_TOOL: Rule = Rule::new("§11.2", "call: unknown tool", "a JSON-RPC error");
const BATCH: Rule = Rule::new("§11.2", "batch", "a refusal: HTTP 4xx, or one JSON-RPC error");

pub(super) fn skip(session: &mut Session<'_>, why: &str) {
    session.report.skip_all(&CREDENTIALS, why);
    session.report.skip_all(&[UNKNOWN_TOOL, BATCH], why);
}

pub(super) async fn check(session: &mut Session<'_>, dialogue: &Dialogue) {
    credentials(session, dialogue).await;
    let call = no_such_call(&session.settings, dialogue, 8);
    judge(session, UNKNOWN_TOOL, &call, 8, |reply| reply.error().is_some()).await;
    batch(session, dialogue).await;
}

async fn credentials(session: &mut Session<'_>, dialogue: &Dialogue) {
    let Some(wrong) = wrong(session) else {
        session.report.skip_all(&CREDENTIALS, "the server is asked without any");
        return;
    };
    let without = session.settings_with(EndpointAuth::None);
    // A tool that nobody has: a server that lets the call in still does nothing.
    let tries = [
        (NO_CREDENTIALS, mcp::encode_list(&without, dialogue, 7, None)),
        (WRONG_CREDENTIALS, mcp::encode_list(&wrong, dialogue, 7, None)),
        (WRONG_CALL, no_such_call(&wrong, dialogue, 7)),
    ];
    for (rule, request) in tries {
        judge(session, rule, &request, 7, |reply| matches!(reply.answer.status, 401 | 403)).await;
    }
}

/// The endpoint with credentials that are wrong; `None` when it has none.
fn wrong(session: &Session<'_>) -> Option<EndpointSettings> {
    let value = Secret::new("toolgate-check-wrong-credentials");
    match &session.settings.auth {
        EndpointAuth::Bearer(_) => Some(session.settings_with(EndpointAuth::Bearer(value))),
        EndpointAuth::Header { name, .. } => {
            Some(session.settings_with(EndpointAuth::Header { name: name.clone(), value }))
        }
        EndpointAuth::None | EndpointAuth::SigningSecret(_) | EndpointAuth::MedianKey(_) => None,
    }
}

async fn batch(session: &mut Session<'_>, dialogue: &Dialogue) {
    let batch = batch_of(mcp::encode_list(&session.settings, dialogue, 9, None));
    let reply = match ask(session, &batch, 9).await {
        Ok(reply) => reply,
        Err(sentence) => return session.report.fail(BATCH, sentence),
    };
    let is_refused = matches!(reply.answer.status, 400..=499) || (reply.error().is_some() && reply.result().is_none());
    match dialogue {
        // 2025-03-26 knew batches, and servers of later revisions may still take what they need not.
        Dialogue::Legacy { .. } if !is_refused => session.report.skip(BATCH, "a server of the earlier era may take it"),
        Dialogue::Modern | Dialogue::Legacy { .. } => {
            session.report.judge(BATCH, is_refused, reply.account());
        }
    }
}

fn batch_of(request: OutboundRequest) -> OutboundRequest {
    with_body(request, |body: &mut Value| *body = json!([body.clone()]))
}
