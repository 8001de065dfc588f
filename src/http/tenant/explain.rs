//! `/v1/explain`: why an agent key can or cannot use a tool.

use crate::engine::access::WorkspaceAccess;
use crate::engine::administration::records::Explanation;
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::wire::ok;
use serde::Serialize;
use utoipa::ToSchema;

/// Why an agent key can or cannot use a tool.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ExplainAnswer {
    /// It is listed.
    visible: bool,
    /// It can be called.
    callable: bool,
    /// `allowed`, `denied_by_rule`, `no_rule`, `not_found`, `quarantined`, `endpoint_disabled` or `key_revoked`.
    reason: &'static str,
    /// The group whose rule decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Index of that rule in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
}

/// Explains by the same decision that lists and calls.
#[utoipa::path(
    get, path = "/v1/explain", tag = "Tools", operation_id = "explain",
    params(
        ("agent_key" = String, Query, description = "Id of an agent key"),
        ("tool" = String, Query, description = "Bare name or canonical id"),
    ),
    responses((status = 200, body = ExplainAnswer)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let query = call.query();
    let agent_key = query.required("agent_key")?.parse();
    let agent_key = agent_key.map_err(|_| Problem::invalid_request("agent_key is the id of an agent key"))?;
    let explanation = call.engine().explain(&call.access, agent_key, query.required("tool")?).await?;
    let Explanation { visible, callable, reason, group, rule } = explanation;
    Ok(ok(&ExplainAnswer { visible, callable, reason, group, rule }))
}
