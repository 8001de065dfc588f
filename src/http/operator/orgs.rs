//! `/admin/v1/orgs`.

use crate::domain::org::{Limits, Org, OrgState};
use crate::engine::access::OperatorAccess;
use crate::engine::administration::orgs::{NewOrg, OrgPatch};
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::json::present;
use crate::http::query::PageParams;
use crate::http::tenant::workspace_keys::WorkspaceKeyItem;
use crate::http::wire::{
    LimitsBody, ListOf, changed, created, if_match, item, limit_changes, limits_json, list as page_of, no_content, ok,
    time, word,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Name of a workspace key that the operator makes without naming it.
const RECOVERED_KEY_NAME: &str = "made by the operator";

/// A new organization.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct OrgBody {
    /// Unique for ever.
    slug: String,
    /// A display name.
    name: String,
    /// Limits beside the configured ones.
    limits: Option<LimitsBody>,
}

/// A change of an organization: what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct OrgPatchBody {
    /// Its display name.
    #[serde(default, deserialize_with = "present")]
    name: Option<String>,
    /// The ceiling of its limits; null goes back to the configured one.
    #[serde(default, deserialize_with = "present")]
    limits: Option<LimitsBody>,
    /// Networks (CIDR) of the operator's `egress.allow` it may reach.
    #[serde(default, deserialize_with = "present")]
    egress_allow: Option<Vec<String>>,
    /// `active` or `suspended`.
    #[serde(default, deserialize_with = "present")]
    state: Option<String>,
}

/// A workspace key for a tenant that has lost its last one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RecoveredKeyBody {
    /// A display name.
    name: Option<String>,
    /// When it stops working (RFC 3339).
    expires_at: Option<String>,
}

/// An organization as the operator sees it.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct OrgItem {
    id: String,
    slug: String,
    name: String,
    /// The ceiling of its limits.
    #[schema(value_type = Object)]
    limits: Map<String, Value>,
    /// `active` or `suspended`.
    state: &'static str,
    egress_allow: Vec<String>,
    created_at: String,
    updated_at: String,
}

/// A new organization with its first key.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct NewOrgAnswer {
    org: OrgItem,
    /// Shown once.
    workspace_key: String,
}

impl OrgItem {
    fn of(org: &Org, configured: &Limits) -> Self {
        Self {
            id: org.id.to_string(),
            slug: org.slug.clone(),
            name: org.name.clone(),
            limits: limits_json(&configured.with(&org.operator_limits)),
            state: org.state.as_str(),
            egress_allow: org.egress_allow.iter().map(ToString::to_string).collect(),
            created_at: org.created_at.to_string(),
            updated_at: org.updated_at.to_string(),
        }
    }
}

impl OrgPatchBody {
    fn into_patch(self) -> Result<OrgPatch, Problem> {
        let network = |text: &String| {
            let shape = || Problem::invalid_request("egress_allow holds networks such as 10.0.0.0/8");
            text.parse().map_err(|_| shape())
        };
        let state = |text: &String| word("state", text, OrgState::parse, "active, suspended");
        Ok(OrgPatch {
            name: self.name,
            limits: limit_changes(self.limits),
            egress_allow: self.egress_allow.map(|list| list.iter().map(network).collect()).transpose()?,
            state: self.state.as_ref().map(state).transpose()?,
        })
    }
}

/// Lists the organizations.
#[utoipa::path(
    get, path = "/admin/v1/orgs", tag = "Operator", operation_id = "list_orgs",
    params(PageParams),
    responses((status = 200, body = ListOf<OrgItem>)),
)]
pub(in crate::http) async fn list(call: Call<OperatorAccess>) -> Answer {
    let page = call.engine().list_orgs(&call.access, &call.query().page()?).await?;
    let configured = &call.engine().settings().limits;
    Ok(ok(&page_of(&page, |org| OrgItem::of(org, configured))))
}

/// Makes an organization, and shows its first workspace key this once.
#[utoipa::path(
    post, path = "/admin/v1/orgs", tag = "Operator", operation_id = "create_org",
    request_body = OrgBody,
    responses((status = 201, body = NewOrgAnswer)),
)]
pub(in crate::http) async fn create(call: Call<OperatorAccess>) -> Answer {
    let OrgBody { slug, name, limits } = call.json()?;
    let new = NewOrg { slug, name, limits: limit_changes(limits) };
    let (org, key) = call.engine().create_org(&call.access, new).await?;
    let item = OrgItem::of(&org, &call.engine().settings().limits);
    let answer = NewOrgAnswer { org: item, workspace_key: key.reveal().to_owned() };
    Ok(created(&format!("/admin/v1/orgs/{}", org.id), &answer))
}

/// Answers one organization.
#[utoipa::path(
    get, path = "/admin/v1/orgs/{id}", tag = "Operator", operation_id = "get_org",
    params(("id" = String, Path)),
    responses((status = 200, body = OrgItem)),
)]
pub(in crate::http) async fn get(call: Call<OperatorAccess>) -> Answer {
    let org = call.engine().org(&call.access, call.id()?).await?;
    Ok(item(call.headers(), org.version, &OrgItem::of(&org, &call.engine().settings().limits)))
}

/// Changes an organization.
#[utoipa::path(
    patch, path = "/admin/v1/orgs/{id}", tag = "Operator", operation_id = "update_org",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = OrgPatchBody,
    responses((status = 200, body = OrgItem)),
)]
pub(in crate::http) async fn patch(call: Call<OperatorAccess>) -> Answer {
    let patch = call.json::<OrgPatchBody>()?.into_patch()?;
    let version = if_match(call.headers())?;
    let org = call.engine().update_org(&call.access, call.id()?, patch, version).await?;
    Ok(changed(org.version, &OrgItem::of(&org, &call.engine().settings().limits)))
}

/// Deletes an organization with everything it owns; its slug is never given again.
#[utoipa::path(
    delete, path = "/admin/v1/orgs/{id}", tag = "Operator", operation_id = "delete_org",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204)),
)]
pub(in crate::http) async fn delete(call: Call<OperatorAccess>) -> Answer {
    call.engine().delete_org(&call.access, call.id()?, if_match(call.headers())?).await?;
    no_content()
}

/// Makes a workspace key for a tenant that has lost its last one, and shows it this once.
#[utoipa::path(
    post, path = "/admin/v1/orgs/{id}/workspace-keys", tag = "Operator", operation_id = "create_org_workspace_key",
    params(("id" = String, Path)),
    request_body = Option<RecoveredKeyBody>,
    responses((status = 201, body = WorkspaceKeyItem)),
)]
pub(in crate::http) async fn create_key(call: Call<OperatorAccess>) -> Answer {
    let RecoveredKeyBody { name, expires_at } = call.json_or_nothing()?;
    let name = name.unwrap_or_else(|| RECOVERED_KEY_NAME.to_owned());
    let expires_at = expires_at.map(|text| time("expires_at", &text)).transpose()?;
    let (key, secret) = call.engine().create_workspace_key_for(&call.access, call.id()?, name, expires_at).await?;
    Ok(created(&format!("/v1/workspace-keys/{}", key.id), &WorkspaceKeyItem::of(&key, Some(&secret))))
}
