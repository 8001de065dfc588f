//! From a run, or the reason why there is none, to what an MCP client is answered.
//!
//! What an MCP server said is handed on as it came; only what the client's era does not know, or demands, is taken out or
//! put in. Anything else becomes one text for the model and, where a program can use it, structured content beside.

use super::members::{Members, compact, quoted};
use super::reply::{Fault, Reply};
use super::{RESULT_META, request};
use crate::dialects::mcp::words;
use crate::domain::json::JsonText;
use crate::domain::run::{Run, RunError, RunStatus};
use crate::domain::schema::{FieldError, MAX_FIELD_ERRORS};
use crate::domain::tool::Dialect;
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::ShownTo;
use crate::engine::run::RunRefusal;
use std::time::Duration;

/// A result of our own making.
pub(super) struct Own<'a> {
    pub(super) era: ShownTo,
    pub(super) texts: &'a [&'a str],
    /// JSON.
    pub(super) structured: Option<&'a str>,
    pub(super) is_error: bool,
}

impl Own<'_> {
    pub(super) fn to_json(&self) -> String {
        let blocks: Vec<String> =
            self.texts.iter().map(|text| format!(r#"{{"type":"text","text":{}}}"#, quoted(text))).collect();
        let structured = self.structured.map(|json| [r#","structuredContent":"#, json].concat()).unwrap_or_default();
        let is_error = self.is_error;
        let (opening, closing) = match self.era {
            ShownTo::Modern => (r#"{"resultType":"complete","#, [",", RESULT_META, "}"].concat()),
            ShownTo::Legacy => ("{", "}".to_owned()),
        };
        format!(r#"{opening}"content":[{}]{structured},"isError":{is_error}{closing}"#, blocks.join(","))
    }
}

/// A result that tells the model what went wrong.
pub(super) fn failure(era: ShownTo, text: &str) -> Reply {
    Reply::Result(Own { era, texts: &[text], structured: None, is_error: true }.to_json())
}

/// The answer to a call whose run is over, or uncertain.
pub(super) fn of_run(engine: &Engine, access: &AgentAccess, run: &Run, era: ShownTo) -> Reply {
    let outcome = &run.outcome;
    match outcome.status {
        RunStatus::Completed => completed(engine, access, run, era),
        RunStatus::Failed => failed(run, era),
        RunStatus::Started | RunStatus::Pending | RunStatus::AwaitingApproval => standing(run, era, false),
        RunStatus::Denied => failure(
            era,
            &format!("The call was denied ({}). Nothing was done.", reason(run, "a person decided against it")),
        ),
        RunStatus::Expired => failure(
            era,
            &format!(
                "The call ended without a result ({}); one that comes now is not delivered.",
                reason(run, "expired")
            ),
        ),
        RunStatus::Cancelled => failure(era, &format!("The call was cancelled ({}).", reason(run, "cancelled"))),
        RunStatus::Inspecting | RunStatus::Uncertain => failure(
            era,
            &format!(
                "The outcome of this call is unknown: it may have taken effect. Do not repeat it; a person has to look \
                 (correlation id {}).",
                run.intent.id
            ),
        ),
    }
}

fn reason<'a>(run: &'a Run, otherwise: &'a str) -> &'a str {
    run.outcome.reason.as_deref().unwrap_or(otherwise)
}

/// A run that goes on, or that nothing more is heard of, as its client may ask for it again.
pub(super) fn standing(run: &Run, era: ShownTo, has_output_schema: bool) -> Reply {
    let (id, status) = (run.intent.id, run.outcome.status.as_str());
    let structured = format!(r#"{{"correlation_id":"{id}","status":"{status}"}}"#);
    let text = match run.outcome.status {
        RunStatus::Started => format!("The call was started; no result is expected (correlation id {id})."),
        RunStatus::AwaitingApproval => format!(
            "The call waits for a person's approval and nothing was done yet. Ask for it again with toolgate_get_run and \
             the correlation_id {id}; do not make the call again."
        ),
        _ => format!(
            "The call is not over yet. Ask for its result with toolgate_get_run and the correlation_id {id}; do not make \
             the call again."
        ),
    };
    // A client holds structured content against the tool's output schema, which this is not made by.
    let (structured, is_error) = if has_output_schema { (None, true) } else { (Some(structured.as_str()), false) };
    Reply::Result(Own { era, texts: &[&text], structured, is_error }.to_json())
}

fn completed(engine: &Engine, access: &AgentAccess, run: &Run, era: ShownTo) -> Reply {
    let Some(result) = &run.outcome.result else { return standing(run, era, false) };
    match run.intent.dialect {
        Dialect::Mcp => relayed(engine, access, run, result, era),
        Dialect::Topology | Dialect::AgentProvider | Dialect::Median => {
            let text = compact(result.as_str());
            let structured = match era {
                ShownTo::Legacy if !text.starts_with('{') => format!(r#"{{"result":{text}}}"#),
                ShownTo::Modern | ShownTo::Legacy => text.to_string(),
            };
            Reply::Result(Own { era, texts: &[&text], structured: Some(&structured), is_error: false }.to_json())
        }
    }
}

/// The result of an MCP server, as it came.
fn relayed(engine: &Engine, access: &AgentAccess, run: &Run, result: &JsonText, era: ShownTo) -> Reply {
    let Some(mut members) = Members::of(result.as_str()) else {
        return Reply::Fault(Fault::new(500, words::INTERNAL_ERROR, "the result of the tool's server cannot be read"));
    };
    let has_type = members.get("resultType").is_some();
    match era {
        ShownTo::Modern if members.is("resultType", r#""input_required""#) => {
            let state = members.get("requestState").and_then(request::string);
            match engine.seal_state(access, run, state.as_deref()) {
                Some(sealed) => members.set("requestState", quoted(&sealed)),
                None => members.remove("requestState"),
            }
        }
        ShownTo::Modern if !has_type => members.set("resultType", r#""complete""#.to_owned()),
        // A round of another client of this key: what its server wants to have back is not shown unsealed.
        ShownTo::Legacy if members.is("resultType", r#""input_required""#) => {
            return failure(era, "The tool's server asks for more, and this client cannot be asked.");
        }
        ShownTo::Legacy if has_type => members.remove("resultType"),
        ShownTo::Modern | ShownTo::Legacy => return Reply::Result(result.as_str().to_owned()),
    }
    Reply::Result(members.to_text())
}

fn failed(run: &Run, era: ShownTo) -> Reply {
    let outcome = &run.outcome;
    match (&outcome.error, &outcome.result, run.intent.dialect) {
        // The server's own words, `isError` among them.
        (_, Some(result), Dialect::Mcp) => match (era, Members::of(result.as_str())) {
            (ShownTo::Modern, Some(mut members)) if members.get("resultType").is_none() => {
                members.set("resultType", r#""complete""#.to_owned());
                Reply::Result(members.to_text())
            }
            (ShownTo::Legacy, Some(mut members)) if members.get("resultType").is_some() => {
                members.remove("resultType");
                Reply::Result(members.to_text())
            }
            _ => Reply::Result(result.as_str().to_owned()),
        },
        (Some(RunError::Provider(error)), _, Dialect::Mcp) => server_error(error, era),
        (error, result, _) => {
            let text = match error {
                Some(RunError::Gateway { code, message }) => format!("{}: {message}", code.as_str()),
                Some(RunError::Provider(error)) => compact(error.as_str()).into_owned(),
                None => "the call failed".to_owned(),
            };
            let result = result.as_ref().map(|result| compact(result.as_str()));
            let texts: Vec<&str> = std::iter::once(text.as_str()).chain(result.as_deref()).collect();
            Reply::Result(Own { era, texts: &texts, structured: None, is_error: true }.to_json())
        }
    }
}

/// A JSON-RPC error of an MCP server. That its client lacks a capability only the client can mend, so it is told in the
/// protocol's own words; any other error is for the model.
fn server_error(error: &JsonText, era: ShownTo) -> Reply {
    let said = Members::of(error.as_str());
    let rpc = said.as_ref().and_then(|said| Members::of(said.get("rpc_error")?.get()));
    if let (ShownTo::Modern, Some(rpc)) = (era, &rpc)
        && rpc.is("code", &words::MISSING_CAPABILITY.to_string())
    {
        let message = rpc.get("message").and_then(request::string).map(std::borrow::Cow::into_owned);
        let data = rpc.get("data").map(|data| data.get().to_owned());
        let message = message.unwrap_or_else(|| "the tool needs a capability that its client does not have".to_owned());
        return Reply::Fault(Fault { data, ..Fault::new(400, words::MISSING_CAPABILITY, message) });
    }
    let message = said.as_ref().and_then(|said| request::string(said.get("message")?));
    failure(era, message.as_deref().unwrap_or("the tool's server answered with an error"))
}

/// The answer to a call that became no run.
pub(super) fn of_refusal(refusal: RunRefusal, era: ShownTo) -> Reply {
    match refusal {
        RunRefusal::UnknownTool => Reply::Fault(Fault::unknown_tool()),
        RunRefusal::StateMismatch | RunRefusal::ConfirmationMismatch => Reply::Fault(Fault::invalid_params(
            "requestState is not for this call, or has expired; call again without it",
        )),
        RunRefusal::InvalidArguments(errors) => failure(era, &what_to_mend(&errors)),
        RunRefusal::CannotConfirm => failure(era, "This tool may not be run by this client."),
        RunRefusal::KeyConflict => failure(
            era,
            "The Idempotency-Key of this call stands for another call of this agent; another call needs another key.",
        ),
        RunRefusal::RateLimited(refusal) => failure(
            era,
            &format!(
                "The rate limit of this {} is used up. Try again in {} s.",
                refusal.scope.as_str().replace('_', " "),
                whole_seconds(refusal.retry_after)
            ),
        ),
        RunRefusal::Unavailable(refusal) => failure(
            era,
            &format!(
                "The endpoint of this tool cannot take a call now; nothing was done. Try again in {} s.",
                whole_seconds(refusal.retry_after())
            ),
        ),
        RunRefusal::Overloaded => failure(era, "The gateway is overloaded; nothing was done. Try again later."),
        RunRefusal::Store(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the store failed a call");
            failure(era, "The gateway cannot take a call now. Try again later.")
        }
    }
}

fn whole_seconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

/// Tells a model each fault, where it is and how to mend it.
fn what_to_mend(errors: &[FieldError]) -> String {
    let lines = errors.iter().take(MAX_FIELD_ERRORS).map(|error| {
        let place = if error.pointer.is_empty() { "the arguments" } else { &error.pointer };
        format!("\n- {place}: {}", error.message)
    });
    ["The arguments are not valid; nothing was done. Mend this and call again:".to_owned()]
        .into_iter()
        .chain(lines)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_our_own_fits_its_era() {
        let own = |era| Own { era, texts: &["a\"b"], structured: Some("[1]"), is_error: false }.to_json();
        assert_eq!(
            own(ShownTo::Legacy),
            r#"{"content":[{"type":"text","text":"a\"b"}],"structuredContent":[1],"isError":false}"#
        );
        let modern: serde_json::Value = serde_json::from_str(&own(ShownTo::Modern)).expect("JSON");
        assert_eq!(modern["resultType"], "complete");
        assert_eq!(modern["_meta"][words::META_SERVER_INFO]["name"], "toolgate");
    }

    #[test]
    fn a_missing_capability_is_told_to_those_who_can_mend_it() {
        let error = r#"{"code":"provider_error","message":"m","rpc_error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}}"#;
        let error = JsonText::parse(error).expect("JSON");
        let Reply::Fault(fault) = server_error(&error, ShownTo::Modern) else { panic!("an error") };
        assert_eq!((fault.status, fault.code), (400, words::MISSING_CAPABILITY));
        assert_eq!(fault.data.as_deref(), Some(r#"{"requiredCapabilities":{"sampling":{}}}"#));
        let Reply::Result(result) = server_error(&error, ShownTo::Legacy) else { panic!("a result") };
        assert!(result.contains(r#""text":"m""#) && result.contains(r#""isError":true"#), "{result}");
    }

    #[test]
    fn every_fault_of_the_arguments_is_told() {
        let fault = |pointer: &str| FieldError {
            pointer: pointer.to_owned(),
            keyword: "type".to_owned(),
            message: "must be an integer".to_owned(),
        };
        let text = what_to_mend(&[fault("/a"), fault("")]);
        assert!(text.ends_with("\n- /a: must be an integer\n- the arguments: must be an integer"), "{text}");
    }
}
