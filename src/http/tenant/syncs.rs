//! `/v1/endpoints/{id}/sync` and `…/syncs`.

use crate::domain::manifest::ManifestDiff;
use crate::engine::access::WorkspaceAccess;
use crate::engine::store_port::SyncRecord;
use crate::http::call::{Answer, Call};
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, NoMembers, Reason, Skipped, list as page_of, ok, skipped};
use serde::Serialize;
use utoipa::ToSchema;

/// How a sync ended.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct SyncAnswer {
    /// `applied`, `unchanged` or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// Hash of the manifest that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<Diff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Vec<Skipped>>,
}

/// What a sync changed, by name.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Diff {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<Changed>,
}

/// A tool that is declared differently.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Changed {
    name: String,
    /// The members that were added, removed or changed.
    members: Vec<String>,
}

/// One sync as it is kept.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct SyncItem {
    id: String,
    at: String,
    /// `registration`, `api`, `conversation`, `interval` or `list_changed`.
    trigger: &'static str,
    /// `applied`, `unchanged` or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The provider's HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<Diff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Vec<Skipped>>,
}

impl SyncAnswer {
    fn of(record: &SyncRecord) -> Self {
        Self {
            outcome: record.outcome.as_str(),
            reason: record.fault.as_ref().map(Reason::of),
            hash: record.hash.clone(),
            diff: record.diff.as_ref().map(Diff::of),
            skipped: skipped(&record.skipped),
        }
    }
}

impl SyncItem {
    fn of(record: &SyncRecord) -> Self {
        let SyncAnswer { outcome, reason, hash, diff, skipped } = SyncAnswer::of(record);
        Self {
            id: record.id.to_string(),
            at: record.at.to_string(),
            trigger: record.trigger.as_str(),
            outcome,
            reason,
            http_status: record.http_status,
            duration_ms: record.duration_ms,
            hash,
            diff,
            skipped,
        }
    }
}

impl Diff {
    fn of(diff: &ManifestDiff) -> Self {
        let changed =
            diff.changed.iter().map(|tool| Changed { name: tool.name.clone(), members: tool.members.clone() });
        Self { added: diff.added.clone(), removed: diff.removed.clone(), changed: changed.collect() }
    }
}

/// Fetches the manifest now; a failed sync leaves the last good tools in force.
#[utoipa::path(
    post, path = "/v1/endpoints/{id}/sync", tag = "Endpoints", operation_id = "sync_endpoint",
    params(("id" = String, Path)),
    responses((status = 200, body = SyncAnswer)),
)]
pub(in crate::http) async fn sync(call: Call<WorkspaceAccess>) -> Answer {
    let NoMembers {} = call.json_or_nothing()?;
    let record = call.engine().sync_now_by(&call.access, call.id()?).await?;
    Ok(ok(&SyncAnswer::of(&record)))
}

/// Lists the syncs of an endpoint, newest first.
#[utoipa::path(
    get, path = "/v1/endpoints/{id}/syncs", tag = "Endpoints", operation_id = "list_syncs",
    params(
        ("id" = String, Path),
        PageParams,
    ),
    responses((status = 200, body = ListOf<SyncItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_syncs(&call.access, call.id()?, &call.query().page()?).await?;
    Ok(ok(&page_of(&page, SyncItem::of)))
}
