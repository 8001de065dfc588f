//! `/v1/approvals`.

use crate::domain::approval::ApprovalState;
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::ApprovalView;
use crate::http::call::{Answer, Call};
use crate::http::conditional::{changed_json, if_match_state, tagged_json};
use crate::http::error::Problem;
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, list as page_of, ok};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Longest `note`, in characters.
const LONGEST_NOTE: usize = 1_000;

/// A decision.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DecisionBody {
    /// `approve` or `deny`.
    decision: String,
    /// What is said about it; at most 1,000 characters.
    note: Option<String>,
}

/// An approval, with what it is about.
#[derive(Serialize, ToSchema)]
#[schema(as = ApprovalItem)]
pub(in crate::http) struct ApprovalItem<'a> {
    id: String,
    /// The run that is held.
    correlation_id: String,
    /// Bare name of the tool.
    tool: &'a str,
    /// Name of the endpoint.
    endpoint: &'a str,
    /// As they are sent to the provider.
    #[schema(value_type = Object)]
    arguments: &'a RawValue,
    /// `X-Caller-Identity`.
    caller: Option<&'a str>,
    /// The risk that made it necessary, when one is declared or set.
    risk: Option<&'static str>,
    /// `open`, `approved`, `denied` or `expired`.
    state: &'static str,
    expires_at: String,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    created_at: String,
    updated_at: String,
}

impl<'a> ApprovalItem<'a> {
    fn of(view: &'a ApprovalView) -> Self {
        let (approval, intent) = (&view.approval, &view.run.intent);
        Self {
            id: approval.id.to_string(),
            correlation_id: approval.run_id.to_string(),
            tool: &intent.tool,
            endpoint: &intent.endpoint_name,
            arguments: intent.arguments().raw(),
            caller: intent.caller.as_deref(),
            risk: approval.risk.map(|risk| risk.as_str()),
            state: approval.state.as_str(),
            expires_at: approval.expires_at.to_string(),
            decided_by: approval.decided_by.as_deref(),
            note: approval.note.as_deref(),
            created_at: approval.created_at.to_string(),
            updated_at: approval.updated_at.to_string(),
        }
    }
}

impl DecisionBody {
    /// Whether it is a yes, and what is said about it.
    fn read(self) -> Result<(bool, Option<String>), Problem> {
        let approve = match self.decision.as_str() {
            "approve" => true,
            "deny" => false,
            _ => return Err(Problem::invalid_request("decision is one of approve, deny")),
        };
        match self.note {
            Some(note) if note.chars().count() > LONGEST_NOTE => {
                Err(Problem::invalid_request(format!("note may have at most {LONGEST_NOTE} characters")))
            }
            note => Ok((approve, note)),
        }
    }
}

/// Lists the approvals, newest first. An open one is listed once a teammate is asked.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "Approvals", operation_id = "list_approvals",
    params(
        PageParams,
        ("state" = Option<String>, Query, description = "Only `open`, `approved`, `denied` or `expired` ones"),
    ),
    responses((status = 200, body = ListOf<ApprovalItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let query = call.query();
    let state = query.word("state", ApprovalState::parse)?;
    let page = call.engine().list_approvals(&call.access, state, &query.page()?).await?;
    Ok(ok(&page_of(&page, ApprovalItem::of)))
}

/// Answers one approval.
#[utoipa::path(
    get, path = "/v1/approvals/{id}", tag = "Approvals", operation_id = "get_approval",
    params(("id" = String, Path)),
    responses((status = 200, body = ApprovalItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let view = call.engine().approval(&call.access, call.id()?).await?;
    Ok(tagged_json(call.headers(), &ApprovalItem::of(&view)))
}

/// Decides about an approval, once: its run goes on, or is denied.
#[utoipa::path(
    post, path = "/v1/approvals/{id}", tag = "Approvals", operation_id = "decide_approval",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = DecisionBody,
    responses((status = 200, body = ApprovalItem)),
)]
pub(in crate::http) async fn decide(call: Call<WorkspaceAccess>) -> Answer {
    let (approve, note) = call.json::<DecisionBody>()?.read()?;
    let id = call.id()?;
    let before = call.engine().approval(&call.access, id).await?;
    if_match_state(call.headers(), &ApprovalItem::of(&before))?;
    let view = call.engine().decide_approval(&call.access, id, approve, note).await?;
    Ok(changed_json(&ApprovalItem::of(&view)))
}
