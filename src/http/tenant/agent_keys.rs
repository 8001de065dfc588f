//! `/v1/agent-keys`.

use crate::domain::secret::Secret;
use crate::engine::access::WorkspaceAccess;
use crate::engine::administration::keys::{AgentKeyPatch, AgentKeyView, NewAgentKey};
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::json::present;
use crate::http::query::PageParams;
use crate::http::wire::{
    LimitsBody, ListOf, changed, created, if_match, item, limit_changes, list as page_of, no_content, ok,
    overrides_json, time, time_change,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A new agent key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AgentKeyBody {
    /// A display name.
    name: String,
    /// Names of its groups, at least one.
    groups: Vec<String>,
    /// When it stops working (RFC 3339).
    expires_at: Option<String>,
    /// `agent_key_per_second` and `agent_key_per_second_burst`.
    limits: Option<LimitsBody>,
    /// Its holder shows a confirmation to a person and passes the token on; default true.
    confirms: Option<bool>,
}

/// A change of an agent key: what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AgentKeyPatchBody {
    /// Its display name.
    #[serde(default, deserialize_with = "present")]
    name: Option<String>,
    /// Names of its groups, at least one.
    #[serde(default, deserialize_with = "present")]
    groups: Option<Vec<String>>,
    /// When it stops working; null takes the expiry away.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Option<String>>,
    /// Limits by name; null goes back to the organization's.
    #[serde(default, deserialize_with = "present")]
    limits: Option<LimitsBody>,
    /// Its holder shows a confirmation to a person.
    #[serde(default, deserialize_with = "present")]
    confirms: Option<bool>,
}

/// An agent key.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct AgentKeyItem {
    id: String,
    name: String,
    groups: Vec<String>,
    /// The key itself: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    confirms: bool,
    /// The limits that were set.
    #[schema(value_type = Object)]
    limits: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// To the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
    created_at: String,
    updated_at: String,
}

impl AgentKeyItem {
    fn of(view: &AgentKeyView, secret: Option<&Secret>) -> Self {
        let key = &view.key;
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            groups: view.groups.clone(),
            key: secret.map(|secret| secret.reveal().to_owned()),
            confirms: key.confirms,
            limits: overrides_json(&key.limits),
            expires_at: key.expires_at.map(|at| at.to_string()),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
            created_at: key.created_at.to_string(),
            updated_at: key.updated_at.to_string(),
        }
    }
}

impl AgentKeyBody {
    fn into_new(self) -> Result<NewAgentKey, Problem> {
        Ok(NewAgentKey {
            name: self.name,
            groups: self.groups,
            expires_at: self.expires_at.map(|text| time("expires_at", &text)).transpose()?,
            limits: limit_changes(self.limits),
            confirms: self.confirms.unwrap_or(true),
        })
    }
}

impl AgentKeyPatchBody {
    fn into_patch(self) -> Result<AgentKeyPatch, Problem> {
        Ok(AgentKeyPatch {
            name: self.name,
            groups: self.groups,
            expires_at: time_change("expires_at", self.expires_at)?,
            limits: limit_changes(self.limits),
            confirms: self.confirms,
        })
    }
}

/// Lists the agent keys.
#[utoipa::path(
    get, path = "/v1/agent-keys", tag = "Keys", operation_id = "list_agent_keys",
    params(PageParams),
    responses((status = 200, body = ListOf<AgentKeyItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_agent_keys(&call.access, &call.query().page()?).await?;
    Ok(ok(&page_of(&page, |view| AgentKeyItem::of(view, None))))
}

/// Makes an agent key, and shows it this once.
#[utoipa::path(
    post, path = "/v1/agent-keys", tag = "Keys", operation_id = "create_agent_key",
    request_body = AgentKeyBody,
    responses((status = 201, body = AgentKeyItem)),
)]
pub(in crate::http) async fn create(call: Call<WorkspaceAccess>) -> Answer {
    let new = call.json::<AgentKeyBody>()?.into_new()?;
    let (view, secret) = call.engine().create_agent_key(&call.access, new).await?;
    Ok(created(&format!("/v1/agent-keys/{}", view.key.id), &AgentKeyItem::of(&view, Some(&secret))))
}

/// Answers one agent key.
#[utoipa::path(
    get, path = "/v1/agent-keys/{id}", tag = "Keys", operation_id = "get_agent_key",
    params(("id" = String, Path)),
    responses((status = 200, body = AgentKeyItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let view = call.engine().agent_key(&call.access, call.id()?).await?;
    Ok(item(call.headers(), view.key.version, &AgentKeyItem::of(&view, None)))
}

/// Changes an agent key; what it may see changes at once.
#[utoipa::path(
    patch, path = "/v1/agent-keys/{id}", tag = "Keys", operation_id = "update_agent_key",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = AgentKeyPatchBody,
    responses((status = 200, body = AgentKeyItem)),
)]
pub(in crate::http) async fn patch(call: Call<WorkspaceAccess>) -> Answer {
    let patch = call.json::<AgentKeyPatchBody>()?.into_patch()?;
    let version = if_match(call.headers())?;
    let view = call.engine().update_agent_key(&call.access, call.id()?, patch, version).await?;
    Ok(changed(view.key.version, &AgentKeyItem::of(&view, None)))
}

/// Revokes an agent key, at once.
#[utoipa::path(
    delete, path = "/v1/agent-keys/{id}", tag = "Keys", operation_id = "revoke_agent_key",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204)),
)]
pub(in crate::http) async fn delete(call: Call<WorkspaceAccess>) -> Answer {
    call.engine().revoke_agent_key(&call.access, call.id()?, if_match(call.headers())?).await?;
    no_content()
}
