//! `/v1/workspace-keys`.

use crate::domain::key::WorkspaceKey;
use crate::domain::secret::Secret;
use crate::engine::access::WorkspaceAccess;
use crate::engine::administration::keys::WorkspaceKeyPatch;
use crate::http::call::{Answer, Call};
use crate::http::json::present;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, changed, created, if_match, item, list as page_of, no_content, ok, time, time_change};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A new workspace key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct WorkspaceKeyBody {
    /// A display name.
    name: String,
    /// When it stops working (RFC 3339).
    expires_at: Option<String>,
}

/// A change of a workspace key: what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct WorkspaceKeyPatchBody {
    /// Its display name.
    #[serde(default, deserialize_with = "present")]
    name: Option<String>,
    /// When it stops working; null takes the expiry away.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Option<String>>,
}

/// A workspace key.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct WorkspaceKeyItem {
    id: String,
    name: String,
    /// The key itself: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// To the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
    created_at: String,
    updated_at: String,
}

impl WorkspaceKeyItem {
    /// A key; `secret` is shown only by the answer that made it.
    pub(in crate::http) fn of(key: &WorkspaceKey, secret: Option<&Secret>) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            key: secret.map(|secret| secret.reveal().to_owned()),
            expires_at: key.expires_at.map(|at| at.to_string()),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
            created_at: key.created_at.to_string(),
            updated_at: key.updated_at.to_string(),
        }
    }
}

/// Lists the workspace keys.
#[utoipa::path(
    get, path = "/v1/workspace-keys", tag = "Keys", operation_id = "list_workspace_keys",
    params(PageParams),
    responses((status = 200, body = ListOf<WorkspaceKeyItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_workspace_keys(&call.access, &call.query().page()?).await?;
    Ok(ok(&page_of(&page, |key| WorkspaceKeyItem::of(key, None))))
}

/// Makes a workspace key, and shows it this once.
#[utoipa::path(
    post, path = "/v1/workspace-keys", tag = "Keys", operation_id = "create_workspace_key",
    request_body = WorkspaceKeyBody,
    responses((status = 201, body = WorkspaceKeyItem)),
)]
pub(in crate::http) async fn create(call: Call<WorkspaceAccess>) -> Answer {
    let WorkspaceKeyBody { name, expires_at } = call.json()?;
    let expires_at = expires_at.map(|text| time("expires_at", &text)).transpose()?;
    let (key, secret) = call.engine().create_workspace_key(&call.access, name, expires_at).await?;
    Ok(created(&format!("/v1/workspace-keys/{}", key.id), &WorkspaceKeyItem::of(&key, Some(&secret))))
}

/// Answers one workspace key.
#[utoipa::path(
    get, path = "/v1/workspace-keys/{id}", tag = "Keys", operation_id = "get_workspace_key",
    params(("id" = String, Path)),
    responses((status = 200, body = WorkspaceKeyItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let key = call.engine().workspace_key(&call.access, call.id()?).await?;
    Ok(item(call.headers(), key.version, &WorkspaceKeyItem::of(&key, None)))
}

/// Changes a workspace key.
#[utoipa::path(
    patch, path = "/v1/workspace-keys/{id}", tag = "Keys", operation_id = "update_workspace_key",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = WorkspaceKeyPatchBody,
    responses((status = 200, body = WorkspaceKeyItem)),
)]
pub(in crate::http) async fn patch(call: Call<WorkspaceAccess>) -> Answer {
    let WorkspaceKeyPatchBody { name, expires_at } = call.json()?;
    let patch = WorkspaceKeyPatch { name, expires_at: time_change("expires_at", expires_at)? };
    let version = if_match(call.headers())?;
    let key = call.engine().update_workspace_key(&call.access, call.id()?, patch, version).await?;
    Ok(changed(key.version, &WorkspaceKeyItem::of(&key, None)))
}

/// Revokes a workspace key, at once.
#[utoipa::path(
    delete, path = "/v1/workspace-keys/{id}", tag = "Keys", operation_id = "revoke_workspace_key",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204)),
)]
pub(in crate::http) async fn delete(call: Call<WorkspaceAccess>) -> Answer {
    call.engine().revoke_workspace_key(&call.access, call.id()?, if_match(call.headers())?).await?;
    no_content()
}
