//! The port itself: each method prepares what it can, then hands one closure to the writer or a reader.

use super::admission::{self, AdmissionRow};
use super::callbacks::{self, CallbackRow, Kept, Settled, Verdict};
use super::endpoints::{self, SealedEndpoint};
use super::keys::{self, Kind};
use super::operations::{self, OperationRow, ProgressRow};
use super::purge::{self, Retained, Step};
use super::run_rows::RunRow;
use super::runs::{self, ChangeRow, Changed};
use super::writer::Later;
use super::{SqliteStore, approvals, audit, deliveries, due, groups, orgs, syncs, writes};
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
use crate::engine::store_port::{
    Admission, ApprovalView, AuditEntry, CallbackRecord, ChangedRun, Changes, Decided, Decision, DeliveryAttempt, Due,
    InsertedRun, KeptCallback, OperationView, OrgConfig, Page, PageRequest, Reserved, ReservedWrite, RunChange,
    RunFilter, SettledCallback, Store, StoreResult, StoreStatus, SyncEnd, SyncRecord, UsageRow, WriteAnswer, WriteId,
    WriteReservation,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

impl SqliteStore {
    fn opened(&self, row: RunRow) -> StoreResult<Box<Run>> {
        Ok(Box::new(row.run(&self.secrets)?))
    }

    async fn purge_retained(&self, retained: Retained, now: Timestamp) -> StoreResult<()> {
        let mut from = purge::From::BEGINNING;
        loop {
            let found = self.read("purge", move |db| retained.find(db, now, from)).await?;
            let Some(last) = found.last() else { return Ok(()) };
            from = purge::From::after(last);
            let more = found.len() == purge::PORTION;
            self.write("purge", move |db| retained.purge(db, &found)).await?;
            if !more {
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn ping(&self) -> StoreResult<()> {
        self.write("ping", |db| {
            db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('ping', random())", ())?;
            Ok(())
        })
        .await?;
        self.read("ping", |db| db.exists("SELECT 1 FROM meta WHERE name = 'ping'", ()).map(drop)).await
    }

    async fn status(&self) -> StoreResult<StoreStatus> {
        let queue_depth = self.writer.depth();
        let orgs = self.read("status", orgs::count).await?;
        Ok(StoreStatus { kind: "sqlite", migration: SqliteStore::MIGRATION, queue_depth, orgs })
    }

    async fn changes_since(&self, position: u64) -> StoreResult<Changes> {
        self.read("changes_since", move |db| orgs::changes_since(db, position)).await
    }

    async fn purge(&self, now: Timestamp) -> StoreResult<()> {
        for retained in Retained::ALL {
            self.purge_retained(retained, now).await?;
        }
        for step in Step::ALL {
            while self.write("purge", move |db| step.portion(db, now)).await? {}
        }
        Ok(())
    }

    async fn close(&self) {
        self.writer.close().await;
        self.readers.close();
    }

    async fn create_org(
        &self,
        org: &Org,
        group: &Group,
        key: &WorkspaceKey,
        hash: KeyHash,
        audit: AuditEntry,
    ) -> StoreResult<()> {
        let (org, group, key) = (org.clone(), group.clone(), key.clone());
        self.write("create_org", move |db| orgs::create(db, &org, &group, &key, hash, audit)).await
    }

    async fn org(&self, id: OrgId) -> StoreResult<Option<Org>> {
        self.read("org", move |db| orgs::org(db, id)).await
    }

    async fn list_orgs(&self, page: &PageRequest) -> StoreResult<Page<Org>> {
        let page = page.clone();
        self.read("list_orgs", move |db| orgs::list(db, &page)).await
    }

    async fn update_org(&self, org: &Org, audit: AuditEntry) -> StoreResult<Org> {
        let org = org.clone();
        self.write("update_org", move |db| orgs::update(db, &org, audit)).await
    }

    async fn delete_org(&self, id: OrgId, at: Timestamp, audit: AuditEntry) -> StoreResult<Vec<RunId>> {
        let cancelled = self.write("delete_org", move |db| orgs::delete(db, id, at, audit)).await?;
        // The organization is gone; what is left of it cannot be reached, and a purge takes what fails here.
        while let Ok(true) = self.write("delete_org", purge::delete_orphans).await {}
        Ok(cancelled)
    }

    async fn load_org(&self, id: OrgId) -> StoreResult<Option<OrgConfig>> {
        self.read("load_org", move |db| orgs::load(db, id)).await
    }

    async fn usage(&self, org: OrgId, from: Timestamp, to: Timestamp) -> StoreResult<Vec<UsageRow>> {
        self.read("usage", move |db| runs::usage(db, org, from, to)).await
    }

    async fn find_workspace_key(&self, hash: KeyHash) -> StoreResult<Option<(WorkspaceKey, OrgState)>> {
        self.read("find_workspace_key", move |db| keys::by_hash(db, hash)).await
    }

    async fn find_agent_key(&self, hash: KeyHash) -> StoreResult<Option<(AgentKey, OrgState)>> {
        self.read("find_agent_key", move |db| keys::by_hash(db, hash)).await
    }

    async fn create_workspace_key(&self, key: &WorkspaceKey, hash: KeyHash, audit: AuditEntry) -> StoreResult<()> {
        let key = key.clone();
        self.write("create_workspace_key", move |db| keys::create_workspace(db, &key, hash, audit)).await
    }

    async fn create_agent_key(&self, key: &AgentKey, hash: KeyHash, audit: AuditEntry) -> StoreResult<()> {
        let key = key.clone();
        self.write("create_agent_key", move |db| keys::create_agent(db, &key, hash, audit)).await
    }

    async fn workspace_key(&self, org: OrgId, id: KeyId) -> StoreResult<Option<WorkspaceKey>> {
        self.read("workspace_key", move |db| keys::by_id(db, org, id)).await
    }

    async fn agent_key(&self, org: OrgId, id: KeyId) -> StoreResult<Option<AgentKey>> {
        self.read("agent_key", move |db| keys::by_id(db, org, id)).await
    }

    async fn list_workspace_keys(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<WorkspaceKey>> {
        let page = page.clone();
        self.read("list_workspace_keys", move |db| keys::list(db, org, &page)).await
    }

    async fn list_agent_keys(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<AgentKey>> {
        let page = page.clone();
        self.read("list_agent_keys", move |db| keys::list(db, org, &page)).await
    }

    async fn update_workspace_key(&self, key: &WorkspaceKey, audit: AuditEntry) -> StoreResult<WorkspaceKey> {
        let key = key.clone();
        self.write("update_workspace_key", move |db| keys::update_workspace(db, &key, audit)).await
    }

    async fn update_agent_key(&self, key: &AgentKey, audit: AuditEntry) -> StoreResult<AgentKey> {
        let key = key.clone();
        self.write("update_agent_key", move |db| keys::update_agent(db, &key, audit)).await
    }

    async fn delete_workspace_key(
        &self,
        org: OrgId,
        id: KeyId,
        version: Option<u64>,
        audit: AuditEntry,
    ) -> StoreResult<()> {
        self.write("delete_workspace_key", move |db| keys::delete(db, Kind::Workspace, org, id, version, audit)).await
    }

    async fn delete_agent_key(
        &self,
        org: OrgId,
        id: KeyId,
        version: Option<u64>,
        audit: AuditEntry,
    ) -> StoreResult<()> {
        self.write("delete_agent_key", move |db| keys::delete(db, Kind::Agent, org, id, version, audit)).await
    }

    fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) {
        // Lost when the queue is full: the next use notes it again.
        let _ = self.writer.later(Later::Touch(used));
    }

    async fn create_group(&self, org: OrgId, group: &Group, audit: AuditEntry) -> StoreResult<()> {
        let group = group.clone();
        self.write("create_group", move |db| groups::create(db, org, &group, audit)).await
    }

    async fn group(&self, org: OrgId, name: &str) -> StoreResult<Option<Group>> {
        let name = name.to_owned();
        self.read("group", move |db| groups::group(db, org, &name)).await
    }

    async fn list_groups(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<Group>> {
        let page = page.clone();
        self.read("list_groups", move |db| groups::list(db, org, &page)).await
    }

    async fn update_group(&self, org: OrgId, group: &Group, audit: AuditEntry) -> StoreResult<Group> {
        let group = group.clone();
        self.write("update_group", move |db| groups::update(db, org, &group, audit)).await
    }

    async fn delete_group(&self, org: OrgId, name: &str, version: Option<u64>, audit: AuditEntry) -> StoreResult<()> {
        let name = name.to_owned();
        self.write("delete_group", move |db| groups::delete(db, org, &name, version, audit)).await
    }

    async fn create_endpoint(
        &self,
        endpoint: &Endpoint,
        max_endpoints: u64,
        next_due: Option<Timestamp>,
        audit: AuditEntry,
    ) -> StoreResult<()> {
        let sealed = SealedEndpoint::new(&self.secrets, endpoint);
        self.write("create_endpoint", move |db| endpoints::create(db, &sealed, max_endpoints, next_due, audit)).await
    }

    async fn endpoint(&self, org: OrgId, id: EndpointId) -> StoreResult<Option<Endpoint>> {
        self.read("endpoint", move |db| endpoints::endpoint(db, org, id)).await
    }

    async fn endpoint_org(&self, id: EndpointId) -> StoreResult<Option<OrgId>> {
        self.read("endpoint_org", move |db| endpoints::org_of(db, id)).await
    }

    async fn update_endpoint(
        &self,
        endpoint: &Endpoint,
        next_due: Option<Timestamp>,
        audit: AuditEntry,
    ) -> StoreResult<Endpoint> {
        let sealed = SealedEndpoint::new(&self.secrets, endpoint);
        self.write("update_endpoint", move |db| endpoints::update(db, &sealed, next_due, audit)).await
    }

    async fn delete_endpoint(
        &self,
        org: OrgId,
        id: EndpointId,
        version: Option<u64>,
        at: Timestamp,
        audit: AuditEntry,
    ) -> StoreResult<Vec<RunId>> {
        self.write("delete_endpoint", move |db| endpoints::delete(db, (org, id), version, at, audit)).await
    }

    async fn declared_tools(&self, org: OrgId, id: EndpointId) -> StoreResult<Vec<DeclaredTool>> {
        self.read("declared_tools", move |db| endpoints::declared_tools(db, org, id)).await
    }

    async fn finish_sync(&self, end: &SyncEnd) -> StoreResult<()> {
        let end = end.clone();
        self.write("finish_sync", move |db| syncs::finish(db, &end)).await
    }

    async fn list_syncs(&self, org: OrgId, id: EndpointId, page: &PageRequest) -> StoreResult<Page<SyncRecord>> {
        let page = page.clone();
        self.read("list_syncs", move |db| syncs::list(db, org, id, &page)).await
    }

    async fn put_policy(&self, org: OrgId, tool: &str, change: &PolicyChange, audit: AuditEntry) -> StoreResult<()> {
        let (tool, change) = (tool.to_owned(), change.clone());
        self.write("put_policy", move |db| orgs::put_policy(db, org, &tool, &change, audit)).await
    }

    async fn token_run(&self, nonce_hash: [u8; 32]) -> StoreResult<Option<RunId>> {
        self.read("token_run", move |db| admission::of_token(db, nonce_hash)).await
    }

    async fn insert_run(&self, run: &Run, admission: Admission) -> StoreResult<InsertedRun> {
        let row = AdmissionRow::new(&self.secrets, run, admission);
        self.write("insert_run", move |db| admission::insert(db, &row)).await
    }

    async fn reserved(&self, org: OrgId, agent_key: KeyId, key: &str, at: Timestamp) -> StoreResult<Option<Reserved>> {
        let key = key.to_owned();
        self.read("reserved", move |db| admission::reserved(db, (org, agent_key), &key, at)).await
    }

    async fn start_run(
        &self,
        org: OrgId,
        run_id: RunId,
        operation: Option<&OperationProgress>,
        expires_at: Timestamp,
        at: Timestamp,
    ) -> StoreResult<bool> {
        let step = operation.map(|progress| ProgressRow::new(&self.secrets, run_id, progress));
        self.write("start_run", move |db| runs::start(db, (org, run_id), step.as_ref(), expires_at, at)).await
    }

    fn record_later(&self, run: Arc<Run>, announced: bool) -> bool {
        self.writer.later(Later::Run(run, announced))
    }

    async fn catch_up(&self) -> StoreResult<()> {
        self.writer.flush().await
    }

    async fn change_run(&self, change: &RunChange) -> StoreResult<ChangedRun> {
        let row = ChangeRow::new(&self.secrets, change);
        match self.write("change_run", move |db| runs::change(db, row)).await? {
            Changed::Now(row) => Ok(ChangedRun::Changed(self.opened(*row)?)),
            Changed::WasFinal(row) => Ok(ChangedRun::WasFinal(self.opened(*row)?)),
        }
    }

    async fn accept_run(
        &self,
        org: OrgId,
        run_id: RunId,
        correlation_id: &str,
        attempt: &Attempt,
        at: Timestamp,
    ) -> StoreResult<Option<CallbackRecord>> {
        let (correlation_id, attempt) = (correlation_id.to_owned(), attempt.clone());
        self.write("accept_run", move |db| runs::accept(db, (org, run_id), &correlation_id, &attempt, at)).await
    }

    async fn run(&self, org: OrgId, id: RunId) -> StoreResult<Option<Run>> {
        self.read("run", move |db| runs::find(db, org, id)?.map(|row| row.run(db.secrets)).transpose()).await
    }

    async fn list_runs(&self, org: OrgId, filter: &RunFilter, page: &PageRequest) -> StoreResult<Page<Run>> {
        let (filter, page) = (filter.clone(), page.clone());
        self.read("list_runs", move |db| runs::list(db, org, &filter, &page)).await
    }

    async fn open_runs(&self, org: OrgId) -> StoreResult<Vec<Run>> {
        self.read("open_runs", move |db| runs::open(db, org)).await
    }

    async fn operation(&self, org: OrgId, run_id: RunId) -> StoreResult<Option<Operation>> {
        self.read("operation", move |db| operations::of_run(db, org, run_id)).await
    }

    async fn operation_view(&self, org: OrgId, id: OperationId) -> StoreResult<Option<OperationView>> {
        self.read("operation_view", move |db| operations::view(db, org, id)).await
    }

    async fn update_operation(&self, org: OrgId, run_id: RunId, progress: &OperationProgress) -> StoreResult<()> {
        let step = ProgressRow::new(&self.secrets, run_id, progress);
        self.write("update_operation", move |db| operations::update(db, (org, run_id), &step)).await
    }

    async fn list_operations(
        &self,
        org: OrgId,
        state: Option<OperationState>,
        page: &PageRequest,
    ) -> StoreResult<Page<OperationView>> {
        let page = page.clone();
        self.read("list_operations", move |db| operations::list(db, org, state, &page)).await
    }

    async fn recover(&self, at: Timestamp) -> StoreResult<()> {
        self.write("recover", move |db| due::recover(db, at)).await
    }

    async fn approval(&self, org: OrgId, id: ApprovalId) -> StoreResult<Option<ApprovalView>> {
        self.read("approval", move |db| approvals::view(db, org, id)).await
    }

    async fn approval_of_run(&self, org: OrgId, run_id: RunId) -> StoreResult<Option<Approval>> {
        self.read("approval_of_run", move |db| approvals::of_run(db, org, run_id)).await
    }

    async fn list_approvals(
        &self,
        org: OrgId,
        state: Option<ApprovalState>,
        page: &PageRequest,
    ) -> StoreResult<Page<ApprovalView>> {
        let page = page.clone();
        self.read("list_approvals", move |db| approvals::list(db, org, state, &page)).await
    }

    async fn pass_to_teammate(&self, org: OrgId, run_id: RunId, at: Timestamp) -> StoreResult<bool> {
        self.write("pass_to_teammate", move |db| approvals::pass_to_teammate(db, org, run_id, at)).await
    }

    async fn decide(&self, decision: &Decision) -> StoreResult<Decided> {
        let operation = decision.operation.as_ref().map(|operation| OperationRow::new(&self.secrets, operation));
        let decision = decision.clone();
        match self.write("decide", move |db| approvals::decide(db, decision, operation)).await? {
            approvals::Decided::Now(approval, row) => Ok(Decided::Now(approval, self.opened(*row)?)),
            approvals::Decided::Before(approval) => Ok(Decided::Before(approval)),
            approvals::Decided::Changed => Ok(Decided::Changed),
        }
    }

    async fn reserve_write(&self, reservation: &WriteReservation) -> StoreResult<ReservedWrite> {
        let reservation = reservation.clone();
        self.write("reserve_write", move |db| writes::reserve(db, &reservation)).await
    }

    async fn answer_write(&self, id: &WriteId, answer: &WriteAnswer) -> StoreResult<()> {
        let sealed = writes::sealed(&self.secrets, id, answer);
        let id = id.clone();
        self.write("answer_write", move |db| writes::answer(db, &id, &sealed)).await
    }

    async fn release_write(&self, id: &WriteId) -> StoreResult<()> {
        let id = id.clone();
        self.write("release_write", move |db| writes::release(db, &id)).await
    }

    async fn delivery(&self, org: OrgId, id: DeliveryId) -> StoreResult<Option<Delivery>> {
        self.read("delivery", move |db| deliveries::delivery(db, org, id)).await
    }

    async fn note_delivery(&self, attempt: &DeliveryAttempt) -> StoreResult<()> {
        let attempt = attempt.clone();
        self.write("note_delivery", move |db| deliveries::note(db, attempt)).await
    }

    async fn list_deliveries(
        &self,
        org: OrgId,
        state: Option<DeliveryState>,
        page: &PageRequest,
    ) -> StoreResult<Page<Delivery>> {
        let page = page.clone();
        self.read("list_deliveries", move |db| deliveries::list(db, org, state, &page)).await
    }

    async fn early_callbacks(&self, org: OrgId, at: Timestamp) -> StoreResult<Vec<(RunId, CallbackRecord)>> {
        self.read("early_callbacks", move |db| callbacks::early(db, org, at)).await
    }

    async fn settle_by_callback(&self, callback: &CallbackRecord, change: &RunChange) -> StoreResult<SettledCallback> {
        let callback = CallbackRow::new(&self.secrets, callback);
        let change = ChangeRow::new(&self.secrets, change);
        match self.write("settle_by_callback", move |db| callbacks::settle(db, &callback, change)).await? {
            Settled::Now(row) => Ok(SettledCallback::Settled(self.opened(*row)?)),
            Settled::Duplicate => Ok(SettledCallback::Duplicate),
            Settled::Final(Verdict::Late, run) => Ok(SettledCallback::Late(run)),
            Settled::Final(Verdict::Ignored, run) => Ok(SettledCallback::Ignored(run)),
        }
    }

    async fn keep_callback(
        &self,
        callback: &CallbackRecord,
        early_ttl: Duration,
        max_early: usize,
    ) -> StoreResult<KeptCallback> {
        let callback = CallbackRow::new(&self.secrets, callback);
        match self.write("keep_callback", move |db| callbacks::keep(db, &callback, early_ttl, max_early)).await? {
            Kept::Duplicate => Ok(KeptCallback::Duplicate),
            Kept::Matches(row) => Ok(KeptCallback::Matches(self.opened(*row)?)),
            Kept::Final(Verdict::Late, run) => Ok(KeptCallback::Late(run)),
            Kept::Final(Verdict::Ignored, run) => Ok(KeptCallback::Ignored(run)),
            Kept::Early => Ok(KeptCallback::Early),
            Kept::TooMany => Ok(KeptCallback::TooMany),
        }
    }

    async fn take_due(&self, now: Timestamp, lease: Duration, limit: usize) -> StoreResult<Vec<Due>> {
        if !self.read("take_due", move |db| due::anything(db, now)).await? {
            return Ok(Vec::new());
        }
        self.write("take_due", move |db| due::take(db, now, lease, limit)).await
    }

    async fn set_sync_due(&self, org: OrgId, endpoint: EndpointId, at: Timestamp) -> StoreResult<()> {
        self.write("set_sync_due", move |db| endpoints::set_sync_due(db, org, endpoint, at)).await
    }

    async fn list_audit(&self, org: OrgId, page: &PageRequest) -> StoreResult<Page<AuditEntry>> {
        let page = page.clone();
        self.read("list_audit", move |db| audit::list(db, org, &page)).await
    }
}
