//! The `Store` port: everything that must outlast the process, behind one trait with one suite of behaviours.
//!
//! **Invariant:** a method that returns `Ok` has made its change durable, but for [`Store::record_later`] and
//! [`Store::touch_keys`]. **Invariant:** no type of a database crosses this border. Every change of an organization's
//! configuration also appends to the change feed ([`Store::changes_since`]), in the same transaction.

use crate::domain::announcement::{Delivery, DeliveryState};
use crate::domain::approval::{Approval, ApprovalState};
use crate::domain::endpoint::Endpoint;
use crate::domain::group::Group;
use crate::domain::ids::{ApprovalId, DeliveryId, EndpointId, KeyId, OperationId, OrgId, RunId};
use crate::domain::key::{AgentKey, KeyHash, WorkspaceKey};
use crate::domain::operation::{Operation, OperationProgress, OperationState};
use crate::domain::org::{Org, OrgState};
use crate::domain::run::{Attempt, Run};
use crate::domain::time::Timestamp;
use crate::domain::tool::{DeclaredTool, PolicyChange};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

pub use super::store_records::{
    Admission, ApprovalView, AuditEntry, CallbackRecord, ChangedRun, Changes, Decided, Decision, DeliveryAttempt, Due,
    InsertedRun, KeptCallback, NewToolSet, OperationView, OrgConfig, Page, PageRequest, Reservation, Reserved,
    ReservedWrite, RunChange, RunFilter, SettledCallback, StoreStatus, SyncEnd, SyncRecord, TokenUse, UsageRow,
    WriteAnswer, WriteId, WriteReservation,
};

/// Bodies of unmatched callbacks kept for one endpoint, in bytes as they are stored.
pub const MAX_EARLY_CALLBACK_BYTES: u64 = 16 << 20;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database does not answer or refuses.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The queue to the writer is full.
    #[error("the store is overloaded")]
    Overloaded,
    /// What was read back is not what was written.
    #[error("the store holds a damaged {what}")]
    Corrupt {
        /// Which record.
        what: &'static str,
    },
    /// The name is in use.
    #[error("the name {name} is taken")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The record has another version than expected.
    #[error("the record has changed")]
    Stale,
    /// No such record in this organization.
    #[error("no such record")]
    NotFound,
    /// Something refers to the record.
    #[error("the record is in use")]
    InUse,
    /// A configured number of records is reached.
    #[error("the limit of {limit} is reached")]
    LimitReached {
        /// The limit.
        limit: u64,
    },
    /// The cursor was not given by this list.
    #[error("the cursor is not one of this list")]
    BadCursor,
}

/// The result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

/// Updates take the record as it shall be, with `version` still that of the record it was made from: the store compares,
/// raises it by one and answers the stored record, or `Stale`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // -- state of the store ------------------------------------------------------------------------------------------
    /// Proves that the store can read and write.
    async fn ping(&self) -> StoreResult<()>;
    /// What the store says about itself.
    async fn status(&self) -> StoreResult<StoreStatus>;
    /// Organizations whose configuration or keys changed after `position`.
    async fn changes_since(&self, position: u64) -> StoreResult<Changes>;
    /// Deletes what is past its retention, in small steps: payloads, runs, callbacks, tokens, syncs, audit, feed.
    async fn purge(&self, now: Timestamp) -> StoreResult<()>;
    /// Writes everything queued and closes.
    async fn close(&self);

    // -- organizations -----------------------------------------------------------------------------------------------
    /// Stores a new organization with its first group and workspace key. `NameTaken` when the slug was ever used.
    async fn create_org(
        &self,
        org: &Org,
        group: &Group,
        key: &WorkspaceKey,
        hash: KeyHash,
        audit: AuditEntry,
    ) -> StoreResult<()>;
    /// One organization, unless deleted.
    async fn org(&self, id: OrgId) -> StoreResult<Option<Org>>;
    /// Organizations that are not deleted, in order of id.
    async fn list_orgs(&self, page: &PageRequest) -> StoreResult<Page<Org>>;
    /// Replaces an organization. When its webhook goes, the messages that wait for it are due.
    async fn update_org(&self, org: &Org, audit: AuditEntry) -> StoreResult<Org>;
    /// Ends the organization's open runs as `cancelled`, deletes everything it owns, keeps its slug. Answers the runs.
    async fn delete_org(&self, id: OrgId, at: Timestamp, audit: AuditEntry) -> StoreResult<Vec<RunId>>;
    /// Everything an organization's actor starts from; `None` when there is no such organization or it is deleted.
    async fn load_org(&self, id: OrgId) -> StoreResult<Option<OrgConfig>>;
    /// Runs by tool and status, of runs made in `[from, to)`.
    async fn usage(&self, org: OrgId, from: Timestamp, to: Timestamp) -> StoreResult<Vec<UsageRow>>;

    // -- keys --------------------------------------------------------------------------------------------------------
    /// The workspace key with this hash and its organization's state, expired or not.
    async fn find_workspace_key(&self, hash: KeyHash) -> StoreResult<Option<(WorkspaceKey, OrgState)>>;
    /// The agent key with this hash and its organization's state, expired or not.
    async fn find_agent_key(&self, hash: KeyHash) -> StoreResult<Option<(AgentKey, OrgState)>>;
    /// Stores a workspace key.
    async fn create_workspace_key(&self, key: &WorkspaceKey, hash: KeyHash, audit: AuditEntry) -> StoreResult<()>;
    /// Stores an agent key. `NotFound` when one of its groups is gone.
    async fn create_agent_key(&self, key: &AgentKey, hash: KeyHash, audit: AuditEntry) -> StoreResult<()>;
    /// One workspace key.
    async fn workspace_key(&self, org: OrgId, id: KeyId) -> StoreResult<Option<WorkspaceKey>>;
    /// One agent key.
    async fn agent_key(&self, org: OrgId, id: KeyId) -> StoreResult<Option<AgentKey>>;
    /// Workspace keys, in order of id.
    async fn list_workspace_keys(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<WorkspaceKey>>;
    /// Agent keys, in order of id.
    async fn list_agent_keys(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<AgentKey>>;
    /// Replaces a workspace key's name and expiry.
    async fn update_workspace_key(&self, key: &WorkspaceKey, audit: AuditEntry) -> StoreResult<WorkspaceKey>;
    /// Replaces an agent key's name, groups, limits, `confirms` and expiry. `NotFound` when one of its groups is gone.
    async fn update_agent_key(&self, key: &AgentKey, audit: AuditEntry) -> StoreResult<AgentKey>;
    /// Revokes a workspace key; `Stale` when `version` is given and another.
    async fn delete_workspace_key(
        &self,
        org: OrgId,
        id: KeyId,
        version: Option<u64>,
        audit: AuditEntry,
    ) -> StoreResult<()>;
    /// Revokes an agent key; `Stale` when `version` is given and another.
    async fn delete_agent_key(&self, org: OrgId, id: KeyId, version: Option<u64>, audit: AuditEntry)
    -> StoreResult<()>;
    /// Notes when keys were used, some time later; may be lost.
    fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>);

    // -- groups ------------------------------------------------------------------------------------------------------
    /// Stores a group.
    async fn create_group(&self, org: OrgId, group: &Group, audit: AuditEntry) -> StoreResult<()>;
    /// One group by name.
    async fn group(&self, org: OrgId, name: &str) -> StoreResult<Option<Group>>;
    /// Groups, in order of name.
    async fn list_groups(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<Group>>;
    /// Replaces a group's name and rules.
    async fn update_group(&self, org: OrgId, group: &Group, audit: AuditEntry) -> StoreResult<Group>;
    /// Deletes a group; `InUse` while a key belongs to it.
    async fn delete_group(&self, org: OrgId, name: &str, version: Option<u64>, audit: AuditEntry) -> StoreResult<()>;

    // -- endpoints and their tools -----------------------------------------------------------------------------------
    /// Stores an endpoint; `LimitReached` when the organization has `max_endpoints` already. `next_due` as in
    /// [`SyncEnd`]: what syncs it should a crash cut off its first sync.
    async fn create_endpoint(
        &self,
        endpoint: &Endpoint,
        max_endpoints: u64,
        next_due: Option<Timestamp>,
        audit: AuditEntry,
    ) -> StoreResult<()>;
    /// One endpoint.
    async fn endpoint(&self, org: OrgId, id: EndpointId) -> StoreResult<Option<Endpoint>>;
    /// Which organization an endpoint belongs to, for callbacks.
    async fn endpoint_org(&self, id: EndpointId) -> StoreResult<Option<OrgId>>;
    /// Replaces an endpoint's settings and callback secrets, leaving its sync state. `next_due` as in [`SyncEnd`].
    async fn update_endpoint(
        &self,
        endpoint: &Endpoint,
        next_due: Option<Timestamp>,
        audit: AuditEntry,
    ) -> StoreResult<Endpoint>;
    /// Deletes an endpoint with its tools and syncs, ending its open runs as `cancelled`. Answers the runs.
    async fn delete_endpoint(
        &self,
        org: OrgId,
        id: EndpointId,
        version: Option<u64>,
        at: Timestamp,
        audit: AuditEntry,
    ) -> StoreResult<Vec<RunId>>;
    /// The last good set of an endpoint with what was declared, for a diff.
    async fn declared_tools(&self, org: OrgId, id: EndpointId) -> StoreResult<Vec<DeclaredTool>>;
    /// Stores the end of a sync in one step. `Stale` when a set was decided on an older revision, `NotFound` when the
    /// endpoint is gone, `NameTaken` when the set holds a name (compared folded) of another endpoint. A set, or another
    /// revision of the protocol, raises the catalog's revision.
    async fn finish_sync(&self, end: &SyncEnd) -> StoreResult<()>;
    /// Syncs of an endpoint, newest first.
    async fn list_syncs(&self, org: OrgId, id: EndpointId, page: &PageRequest) -> StoreResult<Page<SyncRecord>>;
    /// Changes the policy of a tool as it stands at that moment: one atomic step.
    async fn put_policy(&self, org: OrgId, tool: &str, change: &PolicyChange, audit: AuditEntry) -> StoreResult<()>;

    // -- runs --------------------------------------------------------------------------------------------------------
    /// Which run a used confirmation token started.
    async fn token_run(&self, nonce_hash: [u8; 32]) -> StoreResult<Option<RunId>>;
    /// Stores a new run with what comes along with it, durably, before anything is sent: one atomic step, that first
    /// looks whether its key is taken, then whether its token is used, then whether an identical call is held already
    /// (same `call_hash`; same `Idempotency-Key`, or none in the new call). `NotFound` when its endpoint is gone.
    async fn insert_run(&self, run: &Run, admission: Admission) -> StoreResult<InsertedRun>;
    /// What an `Idempotency-Key` of an agent key is reserved for.
    async fn reserved(&self, org: OrgId, agent_key: KeyId, key: &str, at: Timestamp) -> StoreResult<Option<Reserved>>;
    /// Takes the right to send a run that was approved: true once only, for a run that is pending and not started. It is
    /// started from then on, expires at `expires_at`, and its operation, if it has one, has come as far as given.
    async fn start_run(
        &self,
        org: OrgId,
        run_id: RunId,
        operation: Option<&OperationProgress>,
        expires_at: Timestamp,
        at: Timestamp,
    ) -> StoreResult<bool>;
    /// Stores a finished run some time later, from a bounded queue; false when the queue is full. Announced means that
    /// the organization's application is told.
    fn record_later(&self, run: Arc<Run>, announced: bool) -> bool;
    /// Returns once everything that [`Store::record_later`] has taken is written.
    async fn catch_up(&self) -> StoreResult<()>;
    /// Changes a run unless it is final: one atomic step, along with its operation and its approval. A run that fails
    /// without having been started frees its `Idempotency-Key`, and so does one of which its sender has sent nothing.
    /// `Stale` when the operation is not at the step before, when the approval has ended before, or when anybody else
    /// would end a run as one that was never started and was started meanwhile.
    async fn change_run(&self, change: &RunChange) -> StoreResult<ChangedRun>;
    /// Notes the provider's own correlation id and appends an attempt; answers a callback that came before it.
    async fn accept_run(
        &self,
        org: OrgId,
        run_id: RunId,
        correlation_id: &str,
        attempt: &Attempt,
        at: Timestamp,
    ) -> StoreResult<Option<CallbackRecord>>;
    /// One run. Past the retention of results its arguments are `null`, its results and its provider's error absent.
    async fn run(&self, org: OrgId, id: RunId) -> StoreResult<Option<Run>>;
    /// Runs of an organization, newest first.
    async fn list_runs(&self, org: OrgId, filter: &RunFilter, page: &PageRequest) -> StoreResult<Page<Run>>;
    /// Every open run of an organization, for its actor, which stays small: without arguments (`null`, and none
    /// coerced), results and the provider's error. Whoever needs those asks for the run ([`Store::run`]).
    async fn open_runs(&self, org: OrgId) -> StoreResult<Vec<Run>>;

    // -- operations --------------------------------------------------------------------------------------------------
    /// The operation of a run.
    async fn operation(&self, org: OrgId, run_id: RunId) -> StoreResult<Option<Operation>>;
    /// One operation as it is listed, by its own id.
    async fn operation_view(&self, org: OrgId, id: OperationId) -> StoreResult<Option<OperationView>>;
    /// Notes how far the operation of a run has come, upon the step before; `Stale` when that is another.
    async fn update_operation(&self, org: OrgId, run_id: RunId, progress: &OperationProgress) -> StoreResult<()>;
    /// Operations of an organization, newest first.
    async fn list_operations(
        &self,
        org: OrgId,
        state: Option<OperationState>,
        page: &PageRequest,
    ) -> StoreResult<Page<OperationView>>;
    /// After a start, when no other process works on this store: operations that were sent or are uncertain are due now,
    /// and so are runs that were approved and not sent or that their reviewer is asked about; writes that were not made
    /// are not reserved any more.
    async fn recover(&self, at: Timestamp) -> StoreResult<()>;

    // -- approvals ---------------------------------------------------------------------------------------------------
    /// One approval with its run.
    async fn approval(&self, org: OrgId, id: ApprovalId) -> StoreResult<Option<ApprovalView>>;
    /// The approval of a run.
    async fn approval_of_run(&self, org: OrgId, run_id: RunId) -> StoreResult<Option<Approval>>;
    /// Approvals of an organization, newest first. Of the open ones those that a teammate is asked about.
    async fn list_approvals(
        &self,
        org: OrgId,
        state: Option<ApprovalState>,
        page: &PageRequest,
    ) -> StoreResult<Page<ApprovalView>>;
    /// Passes an open approval from the reviewer to a teammate; false when that was done or it is not open any more.
    async fn pass_to_teammate(&self, org: OrgId, run_id: RunId, at: Timestamp) -> StoreResult<bool>;
    /// Decides about an open approval; the decision and the right to execute are one atomic step. `NotFound` when there
    /// is no such approval.
    async fn decide(&self, decision: &Decision) -> StoreResult<Decided>;

    // -- writes ------------------------------------------------------------------------------------------------------
    /// Reserves an `Idempotency-Key` for a write: one atomic step.
    async fn reserve_write(&self, reservation: &WriteReservation) -> StoreResult<ReservedWrite>;
    /// Keeps the answer to a write that was made.
    async fn answer_write(&self, id: &WriteId, answer: &WriteAnswer) -> StoreResult<()>;
    /// Frees the key of a write that was refused; one that was made all the same keeps it, and its answer is lost.
    async fn release_write(&self, id: &WriteId) -> StoreResult<()>;

    // -- messages to the organization's application -------------------------------------------------------------------
    /// One message.
    async fn delivery(&self, org: OrgId, id: DeliveryId) -> StoreResult<Option<Delivery>>;
    /// Notes an attempt to deliver a message.
    async fn note_delivery(&self, attempt: &DeliveryAttempt) -> StoreResult<()>;
    /// Messages of an organization, newest first.
    async fn list_deliveries(
        &self,
        org: OrgId,
        state: Option<DeliveryState>,
        page: &PageRequest,
    ) -> StoreResult<Page<Delivery>>;

    // -- callbacks ---------------------------------------------------------------------------------------------------
    /// Early callbacks that belong to an open run of the organization by now, for its actor when it starts: what a
    /// crash left between [`Store::accept_run`] and [`Store::settle_by_callback`]. Once [`Store::accept_run`] has
    /// answered a callback, that one waits for its settling whatever the time.
    async fn early_callbacks(&self, org: OrgId, at: Timestamp) -> StoreResult<Vec<(RunId, CallbackRecord)>>;
    /// Settles a run with a callback, unless it is final or the `webhook-id` was settled before: one atomic step. A
    /// callback that was kept as early is used up by this. `NotFound` when the run is not one of the endpoint.
    async fn settle_by_callback(&self, callback: &CallbackRecord, change: &RunChange) -> StoreResult<SettledCallback>;
    /// Keeps a callback that no live run was found for, looking once more inside the same step. Early ones are kept for
    /// `early_ttl`, at most `max_early` and [`MAX_EARLY_CALLBACK_BYTES`] an endpoint; one that comes again while it is
    /// kept is a duplicate, unless its run is known by now. `NotFound` when the endpoint is gone.
    async fn keep_callback(
        &self,
        callback: &CallbackRecord,
        early_ttl: Duration,
        max_early: usize,
    ) -> StoreResult<KeptCallback>;

    // -- time --------------------------------------------------------------------------------------------------------
    /// What is due at `now`, earliest first, at most `limit`; each entry's time moves on by `lease`, so that another
    /// node or a crash does not lose it.
    async fn take_due(&self, now: Timestamp, lease: Duration, limit: usize) -> StoreResult<Vec<Due>>;
    /// Sets when an endpoint's next interval sync is due.
    async fn set_sync_due(&self, org: OrgId, endpoint: EndpointId, at: Timestamp) -> StoreResult<()>;

    // -- audit -------------------------------------------------------------------------------------------------------
    /// The audit trail of an organization, newest first.
    async fn list_audit(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<AuditEntry>>;
}
