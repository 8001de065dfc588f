//! `/v1/tools`.

use crate::domain::change::Change;
use crate::domain::json::JsonText;
use crate::domain::risk::Risk;
use crate::engine::access::WorkspaceAccess;
use crate::engine::administration::tools::ToolPatch;
use crate::engine::catalog::CatalogTool;
use crate::http::call::{Answer, Call};
use crate::http::conditional::{changed_json, if_match_state, tagged_json};
use crate::http::error::Problem;
use crate::http::json::present;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, change, list as page_of, word};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use utoipa::ToSchema;

/// A tool as its tenant sees it, whatever its state.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ToolItem<'a> {
    name: &'a str,
    /// Canonical id, such as `topology:weather-report`.
    id: &'a str,
    /// Name of its endpoint.
    endpoint: &'a str,
    /// `topology`, `agent-provider` or `median`.
    dialect: &'static str,
    /// `query` or `command`.
    kind: &'static str,
    /// The risk that rules compare: declared, raised by the policy, or counted.
    risk: &'static str,
    mutating: bool,
    /// The kinds of evidence that a good answer holds; of agent-providers' tools only.
    #[serde(skip_serializing_if = "Option::is_none")]
    produces_evidence: Option<Vec<&'static str>>,
    /// `active`, `quarantined` or `disabled`.
    state: &'static str,
    /// Why it is not active.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Hash of its declaration: what `accept` takes.
    hash: &'a str,
    description: &'a str,
    #[schema(value_type = Object)]
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output_schema: Option<&'a RawValue>,
    /// What the tenant set.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<PolicyItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    /// The end user has to confirm each call.
    requires_confirmation: bool,
    /// The run deadline.
    timeout_ms: u64,
    /// Lifetime of a pending run.
    pending_ttl_ms: u64,
}

/// What a tenant set on a tool.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct PolicyItem<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_confirmation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_ttl_ms: Option<u64>,
    /// The declaration that was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_hash: Option<&'a str>,
}

/// A change of a tool's policy: what is absent stays, null goes back to what is declared.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ToolPatchBody {
    /// Raises the risk.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    risk: Option<Option<String>>,
    /// Demands the end user's confirmation.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<bool>)]
    requires_confirmation: Option<Option<bool>>,
    /// The run deadline, at most 60,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    timeout_ms: Option<Option<u64>>,
    /// Lifetime of a pending run, at most 86,400,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pending_ttl_ms: Option<Option<u64>>,
}

/// Which declaration is accepted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AcceptBody {
    /// The `hash` of the tool as it was looked at.
    hash: String,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> ToolItem<'a> {
    fn of(tool: &'a CatalogTool) -> Self {
        let spec = &tool.spec;
        let policy = tool.policy.as_deref().map(|policy| PolicyItem {
            risk: policy.risk.map(Risk::as_str),
            requires_confirmation: policy.requires_confirmation,
            timeout_ms: policy.timeout.map(millis),
            pending_ttl_ms: policy.pending_ttl.map(millis),
            accepted_hash: policy.accepted_hash.as_deref(),
        });
        Self {
            name: &spec.name,
            id: &tool.id,
            endpoint: &tool.endpoint.settings.name,
            dialect: tool.endpoint.settings.dialect.as_str(),
            kind: spec.kind.as_str(),
            risk: tool.counted_risk().as_str(),
            mutating: spec.mutating,
            produces_evidence: spec.provider.as_ref().map(|terms| terms.produces_evidence.words().collect()),
            state: tool.state.as_str(),
            why: tool.why(),
            hash: &spec.hash,
            description: spec.description.as_deref().unwrap_or_default(),
            input_schema: spec.input_schema.raw(),
            output_schema: spec.output_schema.as_ref().map(JsonText::raw),
            policy,
            title: spec.title.as_deref(),
            requires_confirmation: tool.requires_confirmation,
            timeout_ms: millis(tool.timeout),
            pending_ttl_ms: millis(tool.pending_ttl),
        }
    }
}

impl ToolPatchBody {
    fn into_patch(self) -> Result<ToolPatch, Problem> {
        let risk = match self.risk {
            None => Change::Keep,
            Some(None) => Change::Clear,
            Some(Some(text)) => Change::Set(word("risk", &text, Risk::parse, "low, medium, reviewed, high")?),
        };
        Ok(ToolPatch {
            risk,
            requires_confirmation: change(self.requires_confirmation),
            timeout_ms: change(self.timeout_ms),
            pending_ttl_ms: change(self.pending_ttl_ms),
        })
    }
}

/// Lists all tools of the organization, in order of name.
#[utoipa::path(
    get, path = "/v1/tools", tag = "Tools", operation_id = "list_tools",
    params(PageParams),
    responses((status = 200, body = ListOf<ToolItem>), (status = 304, description = "Unchanged")),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_tools(&call.access, &call.query().page()?).await?;
    Ok(tagged_json(call.headers(), &page_of(&page, |tool| ToolItem::of(tool))))
}

/// Answers one tool.
#[utoipa::path(
    get, path = "/v1/tools/{name}", tag = "Tools", operation_id = "get_tool",
    params(("name" = String, Path)),
    responses((status = 200, body = ToolItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let tool = call.engine().tool(&call.access, call.segment("name")).await?;
    Ok(tagged_json(call.headers(), &ToolItem::of(&tool)))
}

/// Changes the policy of a tool: it can be made stricter than declared, never laxer.
#[utoipa::path(
    patch, path = "/v1/tools/{name}", tag = "Tools", operation_id = "update_tool",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = ToolPatchBody,
    responses((status = 200, body = ToolItem)),
)]
pub(in crate::http) async fn patch(call: Call<WorkspaceAccess>) -> Answer {
    let patch = call.json::<ToolPatchBody>()?.into_patch()?;
    let name = call.segment("name");
    let before = call.engine().tool(&call.access, name).await?;
    if_match_state(call.headers(), &ToolItem::of(&before))?;
    let tool = call.engine().update_tool(&call.access, name, patch).await?;
    Ok(changed_json(&ToolItem::of(&tool)))
}

/// Accepts the present declaration of a quarantined tool.
#[utoipa::path(
    post, path = "/v1/tools/{name}/accept", tag = "Tools", operation_id = "accept_tool",
    params(("name" = String, Path)),
    request_body = AcceptBody,
    responses((status = 200, body = ToolItem)),
)]
pub(in crate::http) async fn accept(call: Call<WorkspaceAccess>) -> Answer {
    let AcceptBody { hash } = call.json()?;
    let tool = call.engine().accept_tool(&call.access, call.segment("name"), &hash).await?;
    Ok(changed_json(&ToolItem::of(&tool)))
}
