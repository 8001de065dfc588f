//! `/v1/runs`.

use crate::domain::run::{Attempt, Run, RunStatus};
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::RunFilter;
use crate::http::agent::wire::RunAnswer;
use crate::http::call::{Answer, Call};
use crate::http::conditional::tagged_json;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, list as page_of, ok};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A run as its tenant sees it: the agent's view, and what only the tenant may know.
#[derive(Serialize, ToSchema)]
#[schema(as = RunItem)]
pub(in crate::http) struct RunItem<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    view: RunAnswer<'a>,
    /// The same as `correlation_id`.
    id: String,
    /// Id of the agent key that made it.
    agent_key: String,
    /// `X-Caller-Identity`.
    caller: Option<&'a str>,
    /// Name of the endpoint at that time.
    endpoint: &'a str,
    arguments: Arguments<'a>,
    /// The exchanges with the provider.
    attempts: Vec<AttemptItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_correlation_id: Option<&'a str>,
    /// Its operation, when the provider keeps receipts.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_id: Option<String>,
    /// A result that failed the output schema: the agent does not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    withheld_result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    created_at: String,
    updated_at: String,
}

/// The arguments of a run.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Arguments<'a> {
    /// As the agent sent them.
    #[schema(value_type = Object)]
    sent: &'a RawValue,
    /// As they were sent to the provider.
    #[schema(value_type = Object)]
    coerced: &'a RawValue,
}

/// One exchange with the provider.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct AttemptItem<'a> {
    at: String,
    duration_ms: u64,
    /// A word such as `answered` or `timeout`.
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
}

impl<'a> RunItem<'a> {
    fn of(run: &'a Run) -> Self {
        let intent = &run.intent;
        Self {
            view: RunAnswer::of(run),
            id: intent.id.to_string(),
            agent_key: intent.agent_key.to_string(),
            caller: intent.caller.as_deref(),
            endpoint: &intent.endpoint_name,
            arguments: Arguments { sent: intent.arguments_sent.raw(), coerced: intent.arguments().raw() },
            attempts: run.attempts.iter().map(AttemptItem::of).collect(),
            provider_correlation_id: run.provider_correlation_id.as_deref(),
            operation_id: run.operation_id.map(|id| id.to_string()),
            withheld_result: run.withheld_result.as_ref().map(|result| result.raw()),
            finished_at: run.finished_at.map(|at| at.to_string()),
            created_at: intent.created_at.to_string(),
            updated_at: run.updated_at.to_string(),
        }
    }
}

impl<'a> AttemptItem<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            at: attempt.at.to_string(),
            duration_ms: attempt.duration_ms,
            outcome: &attempt.outcome,
            http_status: attempt.http_status,
        }
    }
}

/// Lists the runs of the organization, newest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "Runs", operation_id = "list_runs",
    params(
        PageParams,
        ("status" = Option<String>, Query, description = "Only with this status"),
        ("tool" = Option<String>, Query, description = "Only of the tool with this bare name"),
        ("endpoint" = Option<String>, Query, description = "Only of the endpoint with this name"),
    ),
    responses((status = 200, body = ListOf<RunItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let query = call.query();
    let filter = RunFilter {
        status: query.word("status", RunStatus::parse)?,
        tool: query.get("tool").map(str::to_owned),
        endpoint: query.get("endpoint").map(str::to_owned),
    };
    let page = call.engine().list_runs(&call.access, &filter, &query.page()?).await?;
    Ok(ok(&page_of(&page, RunItem::of)))
}

/// Answers one run.
#[utoipa::path(
    get, path = "/v1/runs/{correlation_id}", tag = "Runs", operation_id = "get_run",
    params(("correlation_id" = String, Path)),
    responses((status = 200, body = RunItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let run = call.engine().tenant_run(&call.access, call.id_in("correlation_id")?).await?;
    Ok(tagged_json(call.headers(), &RunItem::of(&run)))
}
