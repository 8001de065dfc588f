//! The Tasks extension: a call that is not over is followed under its correlation id.
//!
//! A task is a run, so it is there before it is told of, it is its own key's alone, and it survives a restart. A run that
//! somebody did not want, or that a person refused, is a cancelled task; any other end is a completed one, with exactly
//! the result that the call would have had. Only a JSON-RPC error makes it a failed one.

use super::members::quoted;
use super::reply::{Fault, Reply};
use super::request::{Request, object, text};
use super::{RESULT_META, answer, waiting};
use crate::dialects::mcp::words;
use crate::domain::ids::RunId;
use crate::domain::run::{Run, RunStatus};
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::ShownTo;
use crate::engine::runs::RunLookupFault;
use std::sync::Arc;
use std::time::Duration;

/// How soon a client may look again, by what it waits for.
const POLL_TOOL: Duration = Duration::from_secs(1);
const POLL_PERSON: Duration = Duration::from_secs(5);

/// What a call is answered that goes on as a task.
pub(super) fn created(access: &AgentAccess, run: &Run) -> Reply {
    let task = members(access, run, "working", Some(waiting::status_message(run)));
    Reply::Result(format!(r#"{{"resultType":"task",{task},{RESULT_META}}}"#))
}

/// `tasks/get`.
pub(super) async fn get(engine: &Engine, access: &AgentAccess, request: &Request<'_>) -> Result<String, Fault> {
    let run = own_run(engine, access, id_of(request)?).await?;
    Ok(format!(r#"{{"resultType":"complete",{},{RESULT_META}}}"#, detailed(engine, access, &run)))
}

/// `tasks/update`: nothing that toolgate asks is asked of a task, so whatever is answered was not asked.
pub(super) async fn update(engine: &Engine, access: &AgentAccess, request: &Request<'_>) -> Result<String, Fault> {
    object("inputResponses", request.params.input_responses)?;
    own_run(engine, access, id_of(request)?).await?;
    Ok(acknowledged())
}

/// `tasks/cancel`: a wish, acknowledged also when it comes too late.
pub(super) async fn cancel(engine: &Engine, access: &AgentAccess, request: &Request<'_>) -> Result<String, Fault> {
    engine.cancel_run(access, id_of(request)?).await.map_err(fault)?;
    Ok(acknowledged())
}

fn acknowledged() -> String {
    format!(r#"{{"resultType":"complete",{RESULT_META}}}"#)
}

fn id_of(request: &Request<'_>) -> Result<RunId, Fault> {
    let id = text("taskId", request.params.task_id)?.unwrap_or_default();
    id.parse().map_err(|_| no_such_task())
}

async fn own_run(engine: &Engine, access: &AgentAccess, id: RunId) -> Result<Arc<Run>, Fault> {
    engine.agent_run(access, id, None).await.map_err(fault)
}

fn fault(fault: RunLookupFault) -> Fault {
    match fault {
        RunLookupFault::NotFound => no_such_task(),
        RunLookupFault::Store(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the store failed a look at a task");
            Fault::new(503, words::INTERNAL_ERROR, "tasks cannot be looked at now; try again later")
        }
    }
}

fn no_such_task() -> Fault {
    Fault::invalid_params("no task of this id is visible to this key")
}

/// The members of a task with all that is known of it.
pub(super) fn detailed(engine: &Engine, access: &AgentAccess, run: &Run) -> String {
    match run.outcome.status {
        RunStatus::Pending | RunStatus::AwaitingApproval | RunStatus::Inspecting => {
            members(access, run, "working", Some(waiting::status_message(run)))
        }
        RunStatus::Denied | RunStatus::Cancelled => {
            members(access, run, "cancelled", Some(run.outcome.reason.as_deref().unwrap_or("cancelled")))
        }
        RunStatus::Started | RunStatus::Completed | RunStatus::Failed | RunStatus::Expired | RunStatus::Uncertain => {
            match answer::of_run(engine, access, run, ShownTo::Modern) {
                Reply::Result(result) => {
                    format!(r#"{},"result":{result}"#, members(access, run, "completed", None))
                }
                Reply::Fault(fault) => {
                    let task = members(access, run, "failed", Some(&fault.message));
                    format!(r#"{task},"error":{}"#, fault.to_json())
                }
            }
        }
    }
}

fn members(access: &AgentAccess, run: &Run, status: &str, message: Option<&str>) -> String {
    let intent = &run.intent;
    let message = message.map(|message| format!(r#","statusMessage":{}"#, quoted(message))).unwrap_or_default();
    let lifetime = intent.expires_at.map_or(Duration::ZERO, |at| at.since(intent.created_at));
    let kept = Duration::from_secs(access.catalog().org.retention.result_retention_h.saturating_mul(3600));
    let poll = if run.outcome.status == RunStatus::AwaitingApproval { POLL_PERSON } else { POLL_TOOL };
    format!(
        r#""taskId":"{}","status":"{status}"{message},"createdAt":"{}","lastUpdatedAt":"{}","ttlMs":{},"pollIntervalMs":{}"#,
        intent.id,
        intent.created_at,
        run.updated_at,
        lifetime.saturating_add(kept).as_millis(),
        poll.as_millis(),
    )
}
