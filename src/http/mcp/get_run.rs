//! `toolgate_get_run`: how a client without the Tasks extension asks again for a call that was not over in time.

use super::answer::{self, failure};
use super::channel::CallChannel;
use super::members::Members;
use super::reply::Reply;
use super::{request, waiting};
use crate::domain::ids::RunId;
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::{ShownTo, VisibleSet};
use crate::engine::runs::RunLookupFault;
use tokio::time::Instant;

/// Its name; no endpoint may give a tool one like it.
pub(super) const NAME: &str = "toolgate_get_run";

/// Its item of a list.
pub(super) const TOOL: &str = r#"{"name":"toolgate_get_run","title":"Look at a pending call","description":"Answers what became of a call that was not over when it was answered. Give the correlation_id of that answer.","inputSchema":{"type":"object","properties":{"correlation_id":{"type":"string","description":"The correlation_id of the call."}},"required":["correlation_id"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true}}"#;

/// Whether a client has a use for it: it cannot follow tasks, and some tool it sees can stay open.
pub(super) fn is_listed(access: &AgentAccess, visible: &VisibleSet, has_tasks: bool) -> bool {
    let fallback = access.catalog().org.confirmation_fallback;
    !has_tasks && visible.tools().iter().any(|tool| tool.can_stay_open(fallback))
}

/// A call of it.
pub(super) async fn run(
    engine: &Engine,
    access: &AgentAccess,
    arguments: &str,
    era: ShownTo,
    channel: &CallChannel,
    until: Instant,
) -> Reply {
    let Some(id) = correlation_id(arguments) else {
        let text = "The arguments are not valid: give correlation_id, a string, and nothing else.";
        return failure(era, text);
    };
    let found = match id.parse::<RunId>() {
        Ok(id) => engine.agent_run(access, id, None).await,
        Err(_) => Err(RunLookupFault::NotFound),
    };
    match found {
        Ok(run) => {
            let run = waiting::until_over(engine, access, run, channel, until).await;
            answer::of_run(engine, access, &run, era)
        }
        Err(RunLookupFault::NotFound) => failure(era, "There is no call of this agent with this correlation_id."),
        Err(RunLookupFault::Store(error)) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the store failed a look at a run");
            failure(era, "The call cannot be looked at now. Try again later.")
        }
    }
}

fn correlation_id(arguments: &str) -> Option<String> {
    let mut arguments = Members::of(arguments)?;
    let id = arguments.get("correlation_id").and_then(request::string)?.into_owned();
    arguments.remove("correlation_id");
    arguments.is_empty().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_item_is_json_and_takes_one_argument() {
        let item: serde_json::Value = serde_json::from_str(TOOL).expect("JSON");
        assert_eq!(item["name"], NAME);
        assert_eq!(correlation_id(r#"{"correlation_id":"a"}"#).as_deref(), Some("a"));
        for bad in ["{}", r#"{"correlation_id":1}"#, r#"{"correlation_id":"a","x":1}"#, "[]"] {
            assert_eq!(correlation_id(bad), None, "{bad}");
        }
    }
}
