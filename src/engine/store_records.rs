//! The records that cross the [`Store`](super::store_port::Store) port.
//!
//! **Invariant:** no type of a database is among them.

use crate::domain::announcement::DeliveryState;
use crate::domain::approval::{Approval, ApprovalEnd, ApprovalStage};
use crate::domain::endpoint::{Endpoint, SyncState};
use crate::domain::group::Group;
use crate::domain::ids::{ApprovalId, AuditId, DeliveryId, EndpointId, OrgId, RunId, SyncId};
use crate::domain::json::JsonText;
use crate::domain::manifest::{ManifestDiff, SkippedTool, SyncFault, SyncOutcome, SyncTrigger};
use crate::domain::operation::{Operation, OperationProgress};
use crate::domain::org::Org;
use crate::domain::run::{Attempt, Run, RunOutcome, RunStatus};
use crate::domain::time::Timestamp;
use crate::domain::tool::{DeclaredTool, ToolPolicy, ToolSpec};
use std::collections::BTreeMap;

/// Which part of a list is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// 1–200.
    pub limit: usize,
    /// The `next_cursor` of the page before: opaque to clients, the last item's sort key to a store.
    pub cursor: Option<String>,
}

/// A part of a list, in a stable order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
}

/// One line of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id.
    pub id: AuditId,
    /// The organization concerned.
    pub org_id: OrgId,
    /// When.
    pub at: Timestamp,
    /// `operator`, `workspace_key` or `system`.
    pub actor_kind: String,
    /// The key's id.
    pub actor_id: String,
    /// The key's name.
    pub actor_name: String,
    /// Such as `endpoint.create`.
    pub action: String,
    /// What it was done to, such as `endpoint/weather`.
    pub object: String,
    /// A JSON object of what changed; secrets are never in it.
    pub changes: JsonText,
    /// Peer address.
    pub from: String,
    /// The write this entry is part of, when it was asked for with an `Idempotency-Key`: from the moment the entry is
    /// stored the write counts as made. Not kept with the entry.
    pub write: Option<WriteId>,
}

/// A write of an API that was asked for with an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WriteId {
    /// Whose: the id of a workspace key, or `operator`.
    pub scope: String,
    /// The `Idempotency-Key`.
    pub key: String,
}

/// What is reserved for a write before it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteReservation {
    /// Which write.
    pub id: WriteId,
    /// SHA-256 of what was asked for.
    pub content_hash: [u8; 32],
    /// When.
    pub at: Timestamp,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// The answer to a write, kept to be given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteAnswer {
    /// HTTP status.
    pub status: u16,
    /// Headers that matter, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body, without secrets.
    pub body: Vec<u8>,
}

/// What reserving a write found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservedWrite {
    /// Nobody has asked for it before: make it.
    New,
    /// It was made and answered before.
    Answered(WriteAnswer),
    /// It is being made.
    UnderWay,
    /// It was made, and its answer was lost in a crash.
    AnswerLost,
    /// The key stands for another write.
    Other,
}

/// Everything an organization's actor starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct OrgConfig {
    /// The organization.
    pub org: Org,
    /// Raised by one by every change of the organization, its groups, endpoints, tool sets or policies. A sync that
    /// brings no new set changes none of these, nor does a key.
    pub revision: u64,
    /// Its groups, by name.
    pub groups: Vec<Group>,
    /// Its endpoints, by name, each with the tools of its last good set.
    pub endpoints: Vec<(Endpoint, Vec<ToolSpec>)>,
    /// Policies by catalog name of the tool.
    pub policies: BTreeMap<String, ToolPolicy>,
}

/// One sync as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncRecord {
    /// Its id.
    pub id: SyncId,
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// When it began.
    pub at: Timestamp,
    /// What made it run.
    pub trigger: SyncTrigger,
    /// How it ended.
    pub outcome: SyncOutcome,
    /// Why it failed.
    pub fault: Option<SyncFault>,
    /// The provider's HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// How long it took.
    pub duration_ms: u64,
    /// Hash of the manifest that was read.
    pub hash: Option<String>,
    /// What changed.
    pub diff: Option<ManifestDiff>,
    /// Tools left out.
    pub skipped: Vec<SkippedTool>,
}

/// A new set of tools for one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToolSet {
    /// The tools.
    pub tools: Vec<DeclaredTool>,
    /// The organization's revision the decision was made on; another one makes the store answer `Stale`.
    pub expected_revision: u64,
    /// Hashes accepted along with this set (catalog name, hash): the first good set of a reviewed endpoint.
    pub accepted: Vec<(String, String)>,
}

/// The end of a sync, stored in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncEnd {
    /// The organization.
    pub org_id: OrgId,
    /// The sync itself.
    pub record: SyncRecord,
    /// The endpoint's state after it.
    pub state: SyncState,
    /// The new set, when one was applied.
    pub tools: Option<NewToolSet>,
    /// When the next interval sync is due; `None` is never.
    pub next_due: Option<Timestamp>,
}

/// A used confirmation token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUse {
    /// SHA-256 of the token's nonce.
    pub nonce_hash: [u8; 32],
    /// When the token expires and its use may be forgotten.
    pub expires_at: Timestamp,
}

/// A caller's `Idempotency-Key`, reserved for one run of its agent key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The key.
    pub key: String,
    /// SHA-256 of the canonical `{tool, args as sent, caller}`.
    pub content_hash: [u8; 32],
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// What an `Idempotency-Key` is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The run.
    pub run_id: RunId,
    /// As in [`Reservation`].
    pub content_hash: [u8; 32],
}

/// What is stored along with a new run, in the same step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admission {
    /// The confirmation token that it uses.
    pub token: Option<TokenUse>,
    /// The `Idempotency-Key` that it takes.
    pub reservation: Option<Reservation>,
    /// The operation that it is about to send.
    pub operation: Option<Operation>,
    /// The approval that it waits for.
    pub approval: Option<Approval>,
}

/// What inserting a run found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertedRun {
    /// The run is stored.
    Inserted,
    /// Its `Idempotency-Key` is taken; nothing was stored.
    KeyTaken(Reserved),
    /// Its confirmation token started this run before; nothing was stored.
    TokenUsed(RunId),
    /// An identical call is held already: only the token's use was stored, for that run.
    Attached(RunId),
}

/// A run's next state.
#[derive(Clone, Debug, PartialEq)]
pub struct RunChange {
    /// The organization.
    pub org_id: OrgId,
    /// The run.
    pub run_id: RunId,
    /// What it becomes.
    pub outcome: RunOutcome,
    /// A result kept from the agent.
    pub withheld_result: Option<JsonText>,
    /// Exchanges to append.
    pub attempts: Vec<Attempt>,
    /// How far its operation has come by this.
    pub operation: Option<OperationProgress>,
    /// How the approval it waits for ends by this; an open approval whose run ends without one is denied.
    pub approval: Option<ApprovalEnd>,
    /// Whoever sends the run says so: that nothing of it was sent is its word to give.
    pub by_sender: bool,
    /// When.
    pub at: Timestamp,
}

/// A decision about an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The organization.
    pub org_id: OrgId,
    /// The approval.
    pub approval_id: ApprovalId,
    /// Who decides: a reviewer's word counts only as long as it is the reviewer who is asked.
    pub stage: ApprovalStage,
    /// How it ends.
    pub end: ApprovalEnd,
    /// What its run becomes: pending and not started, or denied.
    pub outcome: RunOutcome,
    /// When a run that goes on is looked at.
    pub due_at: Option<Timestamp>,
    /// The operation that a run which goes on is about to send.
    pub operation: Option<Operation>,
    /// The revision of the organization that everything was checked on; `None` for a no, which is right on any.
    pub expected_revision: Option<u64>,
    /// The version of the agent key that was checked; a yes needs it. A key changes without raising the revision.
    pub agent_key_version: Option<u64>,
    /// For the audit trail, when a person decided.
    pub audit: Option<AuditEntry>,
    /// When.
    pub at: Timestamp,
}

/// What deciding found.
#[derive(Clone, Debug, PartialEq)]
pub enum Decided {
    /// It is decided now, and this is the run.
    Now(Box<Approval>, Box<Run>),
    /// It was decided before, or passed on before its reviewer said a word.
    Before(Box<Approval>),
    /// The organization or the agent key has changed since it was checked; nothing was stored.
    Changed,
}

/// An approval with the run it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalView {
    /// The approval.
    pub approval: Approval,
    /// Its run.
    pub run: Run,
}

/// An operation as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationView {
    /// The operation.
    pub operation: Operation,
    /// Catalog name of its tool.
    pub tool: String,
    /// The endpoint's name.
    pub endpoint: String,
}

/// What became of one attempt to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// The organization.
    pub org_id: OrgId,
    /// The message.
    pub id: DeliveryId,
    /// How it fares by it.
    pub state: DeliveryState,
    /// When it is tried next.
    pub next_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
    /// For the audit trail, when it is given up.
    pub audit: Option<AuditEntry>,
    /// When.
    pub at: Timestamp,
}

/// What changing a run found.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangedRun {
    /// The run was open and has changed; this is it now.
    Changed(Box<Run>),
    /// The run was final already; this is it, unchanged. Attempts were appended all the same.
    WasFinal(Box<Run>),
}

/// A callback as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct CallbackRecord {
    /// The endpoint it came to.
    pub endpoint_id: EndpointId,
    /// `webhook-id`.
    pub webhook_id: String,
    /// Our id, when the provider sent it.
    pub request_id: Option<RunId>,
    /// The provider's own id.
    pub correlation_id: Option<String>,
    /// The body as it came.
    pub body: JsonText,
    /// When it came.
    pub at: Timestamp,
}

/// What keeping a callback found.
#[derive(Clone, Debug, PartialEq)]
pub enum KeptCallback {
    /// This `webhook-id` was taken before; nothing was stored.
    Duplicate,
    /// It belongs to an open run of this endpoint: nothing was stored, settle the run with it.
    Matches(Box<Run>),
    /// It belongs to a run of this endpoint that ended without a result; recorded as late.
    Late(RunId),
    /// It belongs to a run of this endpoint that has its result; recorded as ignored.
    Ignored(RunId),
    /// It belongs to no run yet: kept until its time is over.
    Early,
    /// Too many unmatched callbacks of this endpoint are kept: nothing was stored.
    TooMany,
}

/// What settling a run by a callback found.
#[derive(Clone, Debug, PartialEq)]
pub enum SettledCallback {
    /// The run has this outcome now.
    Settled(Box<Run>),
    /// This `webhook-id` was taken before.
    Duplicate,
    /// The run had ended without a result; the callback is recorded as late.
    Late(RunId),
    /// The run has its result already; the callback is recorded as ignored.
    Ignored(RunId),
}

/// Something whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// An interval sync.
    Sync(OrgId, EndpointId),
    /// An open run has reached its `expires_at`, its reviewer's time is over, or it was approved and not sent.
    RunExpiry(OrgId, RunId),
    /// An operation is to be looked at.
    Operation(OrgId, RunId),
    /// A message is to be delivered.
    Delivery(OrgId, DeliveryId),
}

/// Which runs a list wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only with this status.
    pub status: Option<RunStatus>,
    /// Only of this tool (catalog name).
    pub tool: Option<String>,
    /// Only of this endpoint.
    pub endpoint: Option<String>,
}

/// One line of an organization's usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// Catalog name of the tool.
    pub tool: String,
    /// Status of the runs.
    pub status: RunStatus,
    /// How many.
    pub runs: u64,
}

/// What the store says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// `sqlite` or `postgres`.
    pub kind: &'static str,
    /// Number of the newest migration applied.
    pub migration: u32,
    /// Changes waiting for the writer.
    pub queue_depth: usize,
    /// Organizations that are not deleted.
    pub orgs: u64,
}

/// Organizations changed since a point of the feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The feed's newest point.
    pub position: u64,
    /// Each organization once.
    pub orgs: Vec<OrgId>,
}
