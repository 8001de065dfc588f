//! `/admin/v1/orgs/{id}/usage`.

use crate::domain::time::Timestamp;
use crate::engine::access::OperatorAccess;
use crate::engine::store_port::UsageRow;
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::wire::ok;
use serde::Serialize;
use utoipa::ToSchema;

/// Runs by tool and status, of runs made from `from` until just before `to`.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct UsageAnswer {
    from: String,
    to: String,
    items: Vec<UsageItem>,
}

/// How many runs of one tool have one status.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct UsageItem {
    tool: String,
    status: &'static str,
    runs: u64,
}

/// Counts the runs of an organization; without `from` and `to`, all that are kept.
#[utoipa::path(
    get, path = "/admin/v1/orgs/{id}/usage", tag = "Operator", operation_id = "get_usage",
    params(
        ("id" = String, Path),
        ("from" = Option<String>, Query, description = "RFC 3339"),
        ("to" = Option<String>, Query, description = "RFC 3339"),
    ),
    responses((status = 200, body = UsageAnswer)),
)]
pub(in crate::http) async fn get(call: Call<OperatorAccess>) -> Answer {
    let query = call.query();
    let from = query.time("from")?.unwrap_or_default();
    let to = query.time("to")?.unwrap_or_else(|| Timestamp::from_millis(call.engine().clock().now().as_millis() + 1));
    if to < from {
        return Err(Problem::invalid_request("from is not after to"));
    }
    let rows = call.engine().usage(&call.access, call.id()?, from, to).await?;
    let item = |row: UsageRow| UsageItem { tool: row.tool, status: row.status.as_str(), runs: row.runs };
    let items = rows.into_iter().map(item).collect();
    Ok(ok(&UsageAnswer { from: from.to_string(), to: to.to_string(), items }))
}
