//! `/v1/org`: the tenant's own organization.

use crate::domain::org::{Limits, Org};
use crate::engine::access::WorkspaceAccess;
use crate::engine::administration::orgs::OwnOrgPatch;
use crate::http::call::{Answer, Call};
use crate::http::json::{Object, present};
use crate::http::wire::{LimitsBody, change, changed, if_match, item, limit_changes, limits_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A change of one's own organization: what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct OwnOrgPatchBody {
    /// Limits below the operator's, by name; null goes back to the operator's.
    #[serde(default, deserialize_with = "present")]
    limits: Option<LimitsBody>,
    /// How long things are kept.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<RetentionBody>)]
    retention: Option<Object<RetentionBody>>,
}

/// How long things are kept; null goes back to the configured time.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RetentionBody {
    /// Hours a run is kept.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    run_retention_h: Option<Option<u64>>,
    /// Hours a run's arguments and results are kept.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    result_retention_h: Option<Option<u64>>,
}

/// A tenant's own organization.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct OwnOrgItem {
    id: String,
    slug: String,
    name: String,
    /// `active` or `suspended`.
    state: &'static str,
    /// The limits in force.
    #[schema(value_type = Object)]
    limits: Map<String, Value>,
    retention: RetentionItem,
    created_at: String,
    updated_at: String,
}

/// How long things are kept.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct RetentionItem {
    /// Hours a run is kept.
    run_retention_h: u64,
    /// Hours a run's arguments and results are kept.
    result_retention_h: u64,
}

impl OwnOrgItem {
    fn of(org: &Org, limits: &Limits) -> Self {
        Self {
            id: org.id.to_string(),
            slug: org.slug.clone(),
            name: org.name.clone(),
            state: org.state.as_str(),
            limits: limits_json(limits),
            retention: RetentionItem {
                run_retention_h: org.retention.run_retention_h,
                result_retention_h: org.retention.result_retention_h,
            },
            created_at: org.created_at.to_string(),
            updated_at: org.updated_at.to_string(),
        }
    }
}

/// Answers the organization with the limits in force.
#[utoipa::path(
    get, path = "/v1/org", tag = "Organization", operation_id = "get_own_org",
    responses((status = 200, body = OwnOrgItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let (org, limits) = call.engine().own_org(&call.access).await?;
    Ok(item(call.headers(), org.version, &OwnOrgItem::of(&org, &limits)))
}

/// Changes limits and retention; a limit above the operator's is clamped to it.
#[utoipa::path(
    patch, path = "/v1/org", tag = "Organization", operation_id = "update_own_org",
    params(("If-Match" = Option<String>, Header)),
    request_body = OwnOrgPatchBody,
    responses((status = 200, body = OwnOrgItem)),
)]
pub(in crate::http) async fn patch(call: Call<WorkspaceAccess>) -> Answer {
    let body: OwnOrgPatchBody = call.json()?;
    let retention = body.retention.map(|retention| retention.0).unwrap_or_default();
    let patch = OwnOrgPatch {
        limits: limit_changes(body.limits),
        run_retention_h: change(retention.run_retention_h),
        result_retention_h: change(retention.result_retention_h),
    };
    let (org, limits) = call.engine().update_own_org(&call.access, patch, if_match(call.headers())?).await?;
    Ok(changed(org.version, &OwnOrgItem::of(&org, &limits)))
}
