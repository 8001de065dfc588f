//! `/v1/org`: the tenant's own organization.

use crate::domain::change::Change;
use crate::domain::org::{ConfirmationFallback, Hook, Limits, Org};
use crate::engine::access::WorkspaceAccess;
use crate::engine::administration::orgs::OwnOrgPatch;
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::json::{Object, present};
use crate::http::wire::{LimitsBody, change, changed, if_match, item, limit_changes, limits_json, ok, word};
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
    /// Decides about runs of risk `reviewed`: `{url}` gives it a new secret, shown this once; null takes it away.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<HookBody>)]
    reviewer: Option<Option<Object<HookBody>>>,
    /// Is told of approvals waiting and runs finished; as `reviewer`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<HookBody>)]
    webhook: Option<Option<Object<HookBody>>>,
    /// `refuse` or `approval`: what becomes of a call whose agent cannot bring the end user's confirmation.
    #[serde(default, deserialize_with = "present")]
    confirmation_fallback: Option<String>,
}

/// Where signed requests go.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct HookBody {
    /// Absolute https URL; http where the operator allows the address.
    url: String,
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
    reviewer: Option<HookItem>,
    webhook: Option<HookItem>,
    /// `refuse` or `approval`.
    confirmation_fallback: &'static str,
    created_at: String,
    updated_at: String,
}

/// Where signed requests go.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct HookItem {
    url: String,
    /// `whsec_…`: shown once, when the URL is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
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
        Self::showing(org, limits, false, false)
    }

    /// With the secrets of hooks that were just set.
    fn showing(org: &Org, limits: &Limits, reviewer_is_new: bool, webhook_is_new: bool) -> Self {
        let hook = |hook: &Hook, is_new: bool| HookItem {
            url: hook.url.clone(),
            secret: is_new.then(|| hook.secret.reveal().to_owned()),
        };
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
            reviewer: org.reviewer.as_ref().map(|reviewer| hook(reviewer, reviewer_is_new)),
            webhook: org.webhook.as_ref().map(|webhook| hook(webhook, webhook_is_new)),
            confirmation_fallback: org.confirmation_fallback.as_str(),
            created_at: org.created_at.to_string(),
            updated_at: org.updated_at.to_string(),
        }
    }
}

impl OwnOrgPatchBody {
    fn into_patch(self) -> Result<OwnOrgPatch, Problem> {
        let retention = self.retention.map(|retention| retention.0).unwrap_or_default();
        let url = |hook: Option<Option<Object<HookBody>>>| change(hook.map(|hook| hook.map(|hook| hook.0.url)));
        let fallback =
            |text: &String| word("confirmation_fallback", text, ConfirmationFallback::parse, "refuse, approval");
        Ok(OwnOrgPatch {
            limits: limit_changes(self.limits),
            run_retention_h: change(retention.run_retention_h),
            result_retention_h: change(retention.result_retention_h),
            reviewer: url(self.reviewer),
            webhook: url(self.webhook),
            confirmation_fallback: self.confirmation_fallback.as_ref().map(fallback).transpose()?,
        })
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

/// Changes limits, retention, reviewer, webhook and the fallback; a limit above the operator's is clamped to it.
#[utoipa::path(
    patch, path = "/v1/org", tag = "Organization", operation_id = "update_own_org",
    params(("If-Match" = Option<String>, Header)),
    request_body = OwnOrgPatchBody,
    responses((status = 200, body = OwnOrgItem)),
)]
pub(in crate::http) async fn patch(call: Call<WorkspaceAccess>) -> Answer {
    let patch = call.json::<OwnOrgPatchBody>()?.into_patch()?;
    let is_set = |change: &Change<String>| matches!(change, Change::Set(_));
    let (reviewer, webhook) = (is_set(&patch.reviewer), is_set(&patch.webhook));
    let (org, limits) = call.engine().update_own_org(&call.access, patch, if_match(call.headers())?).await?;
    let item = OwnOrgItem::showing(&org, &limits, reviewer, webhook);
    // An answer that shows a secret carries no tag to keep it under.
    Ok(if reviewer || webhook { ok(&item) } else { changed(org.version, &item) })
}
