//! `/v1/groups`.

use crate::domain::group::{Effect, Group, Rule};
use crate::domain::risk::Risk;
use crate::engine::access::WorkspaceAccess;
use crate::http::call::{Answer, Call};
use crate::http::error::Problem;
use crate::http::json::Object;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, changed, created, if_match, item, list as page_of, no_content, ok, word};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A new group.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct GroupBody {
    /// A slug, unique in the organization.
    name: String,
    /// What it allows and denies.
    #[schema(value_type = Vec<RuleBody>)]
    rules: Vec<Object<RuleBody>>,
}

/// A group as it shall be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct GroupPutBody {
    /// Another name.
    name: Option<String>,
    /// What it allows and denies.
    #[schema(value_type = Vec<RuleBody>)]
    rules: Vec<Object<RuleBody>>,
}

/// A rule: the members present are ANDed, the values inside one are ORed.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RuleBody {
    /// `allow` or `deny`.
    effect: String,
    /// Globs over bare tool names; `*` stands for any run of characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
    /// Endpoint names.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<Vec<String>>,
    /// `low`, `medium`, `reviewed`, `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    risks: Option<Vec<String>>,
}

/// A group.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct GroupItem {
    id: String,
    name: String,
    rules: Vec<RuleBody>,
    created_at: String,
    updated_at: String,
}

impl RuleBody {
    fn into_rule(self) -> Result<Rule, Problem> {
        let risk = |text: &String| word("risks", text, Risk::parse, "low, medium, reviewed, high");
        Ok(Rule {
            effect: word("effect", &self.effect, Effect::parse, "allow, deny")?,
            tools: self.tools,
            endpoints: self.endpoints,
            risks: self.risks.map(|risks| risks.iter().map(risk).collect()).transpose()?,
        })
    }

    fn of(rule: &Rule) -> Self {
        let risks = rule.risks.as_ref();
        Self {
            effect: rule.effect.as_str().to_owned(),
            tools: rule.tools.clone(),
            endpoints: rule.endpoints.clone(),
            risks: risks.map(|risks| risks.iter().map(|risk| risk.as_str().to_owned()).collect()),
        }
    }
}

impl GroupItem {
    fn of(group: &Group) -> Self {
        Self {
            id: group.id.to_string(),
            name: group.name.clone(),
            rules: group.rules.iter().map(RuleBody::of).collect(),
            created_at: group.created_at.to_string(),
            updated_at: group.updated_at.to_string(),
        }
    }
}

fn rules(given: Vec<Object<RuleBody>>) -> Result<Vec<Rule>, Problem> {
    given.into_iter().map(|rule| rule.0.into_rule()).collect()
}

/// Lists the groups, in order of name.
#[utoipa::path(
    get, path = "/v1/groups", tag = "Groups", operation_id = "list_groups",
    params(PageParams),
    responses((status = 200, body = ListOf<GroupItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_groups(&call.access, &call.query().page()?).await?;
    Ok(ok(&page_of(&page, GroupItem::of)))
}

/// Makes a group.
#[utoipa::path(
    post, path = "/v1/groups", tag = "Groups", operation_id = "create_group",
    request_body = GroupBody,
    responses((status = 201, body = GroupItem)),
)]
pub(in crate::http) async fn create(call: Call<WorkspaceAccess>) -> Answer {
    let body: GroupBody = call.json()?;
    let group = call.engine().create_group(&call.access, body.name, rules(body.rules)?).await?;
    Ok(created(&format!("/v1/groups/{}", group.name), &GroupItem::of(&group)))
}

/// Answers one group.
#[utoipa::path(
    get, path = "/v1/groups/{name}", tag = "Groups", operation_id = "get_group",
    params(("name" = String, Path)),
    responses((status = 200, body = GroupItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let group = call.engine().group(&call.access, call.segment("name")).await?;
    Ok(item(call.headers(), group.version, &GroupItem::of(&group)))
}

/// Replaces a group; what its keys see changes at once.
#[utoipa::path(
    put, path = "/v1/groups/{name}", tag = "Groups", operation_id = "replace_group",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = GroupPutBody,
    responses((status = 200, body = GroupItem)),
)]
pub(in crate::http) async fn put(call: Call<WorkspaceAccess>) -> Answer {
    let body: GroupPutBody = call.json()?;
    let (rules, version) = (rules(body.rules)?, if_match(call.headers())?);
    let name = call.segment("name");
    let group = call.engine().replace_group(&call.access, name, body.name, rules, version).await?;
    Ok(changed(group.version, &GroupItem::of(&group)))
}

/// Deletes a group that no key belongs to.
#[utoipa::path(
    delete, path = "/v1/groups/{name}", tag = "Groups", operation_id = "delete_group",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204)),
)]
pub(in crate::http) async fn delete(call: Call<WorkspaceAccess>) -> Answer {
    call.engine().delete_group(&call.access, call.segment("name"), if_match(call.headers())?).await?;
    no_content()
}
