//! Dialect `mcp`: the server's era, its list of tools, credentials, what a careful server refuses, and one call.
//!
//! The era is found as the gateway finds it, and then only that era's rules are looked at: of a server that speaks both,
//! the gateway uses the present one.

mod call;
mod exchange;
mod legacy;
mod modern;
mod refusals;
mod tools;

use super::CheckOptions;
use super::report::Rule;
use super::session::Session;
use crate::dialects::mcp::words::{MODERN_VERSION, is_legacy};
use crate::dialects::mcp::{self, Dialogue, Sign};
use exchange::ask;

const ANSWERS: Rule = Rule::new("§11.2", "server: answer", "an answer to a request of the present era");
const ERA: Rule = Rule::new(
    "§11.2",
    "server: era",
    "the present one (2026-07-28), or an earlier one (2025-11-25 to 2024-11-05) that is opened by initialize",
);

/// Checks an MCP server.
pub(super) async fn check(session: &mut Session<'_>, options: &CheckOptions) {
    let Some(dialogue) = open(session).await else {
        tools::skip(session, "there is no dialogue");
        refusals::skip(session, "there is no dialogue");
        call::skip(session, None, "there is no dialogue");
        return;
    };
    let offered = tools::check(session, &dialogue).await;
    refusals::check(session, &dialogue).await;
    match &dialogue {
        Dialogue::Modern => modern::refusals(session).await,
        Dialogue::Legacy { version, session_id, .. } => {
            legacy::refusals(session, &dialogue, version, session_id.as_deref()).await;
        }
    }
    call::check(session, options, &dialogue, &offered).await;
    legacy::end(session, &dialogue).await;
}

/// Finds the era and opens a dialogue in it.
async fn open(session: &mut Session<'_>) -> Option<Dialogue> {
    let request = mcp::encode_list(&session.settings, &Dialogue::Modern, 1, None);
    let reply = match ask(session, &request, 1).await {
        Ok(reply) => reply,
        Err(sentence) => {
            session.report.fail(ANSWERS, sentence);
            session.report.skip(ERA, "there is no answer");
            return None;
        }
    };
    session.report.ok(ANSWERS, format!("HTTP {}", reply.answer.status));
    match mcp::sign_of(reply.answer.status, &reply.text) {
        Sign::Modern => {
            session.report.ok(ERA, format!("the present one, {MODERN_VERSION}"));
            modern::discover(session).await;
            Some(Dialogue::Modern)
        }
        Sign::OtherVersions(versions) if !versions.iter().any(|version| is_legacy(version)) => {
            session.report.fail(ERA, format!("only other revisions: {}", versions.join(", ")));
            None
        }
        Sign::Refused | Sign::Silent => {
            session.report.fail(ERA, reply.account());
            None
        }
        Sign::OtherVersions(_) | Sign::Legacy => legacy::open(session, &reply).await,
    }
}
