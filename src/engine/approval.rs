//! Approvals: a run is held, a reviewer or a teammate decides once, and an approved run is sent once.
//!
//! **Invariant:** the decision and the right to execute are one atomic step of the store; taking that right is another, so
//! that whoever crashes in between leaves a run which is approved and not sent, never one that may be sent twice.
//! **Invariant:** everything that was checked when the run was asked for is checked again when it is decided, on the very
//! revision that the decision is stored upon.

use super::Engine;
use super::access::WorkspaceAccess;
use super::actors::org_handle::OrgHandle;
use super::actors::registry::RegistryFault;
use super::administration::{AdminFault, AdminResult, By};
use super::catalog::{Catalog, CatalogTool, ToolState};
use super::dispatch::plan::Plan;
use super::ports::StoreError;
use super::run::Checked;
use super::store_port::{ApprovalView, AuditEntry, Decided, Decision};
use crate::dialects::ApprovalMark;
use crate::domain::approval::{Approval, ApprovalEnd, ApprovalStage, ApprovalState};
use crate::domain::canonical;
use crate::domain::ids::{ApprovalId, OrgId};
use crate::domain::json::JsonText;
use crate::domain::key::AgentKey;
use crate::domain::operation::{Operation, OperationProgress};
use crate::domain::org::OrgState;
use crate::domain::risk::Risk;
use crate::domain::run::{Run, RunOutcome, RunStatus};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Whoever decided sends within this time; afterwards it was cut off by a crash, and the due table sends.
const SEND_LEASE: Duration = Duration::from_secs(5);
/// A reviewer's word is listened for this much longer than it is asked for one: after that a crash came in between.
const REVIEWER_GRACE: Duration = Duration::from_secs(5);
/// A decision is checked anew this often when its organization keeps changing.
const MAX_CHECKS: usize = 16;

/// What somebody says about an approval.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) approve: bool,
    pub(super) stage: ApprovalStage,
    /// Who says it.
    pub(super) by: String,
    /// As a code word: why a denied run was denied.
    pub(super) denied_reason: &'static str,
    pub(super) note: Option<String>,
    pub(super) audit: Option<AuditEntry>,
}

impl Engine {
    /// The approval that a run to be held waits for.
    pub(super) fn new_approval(&self, checked: &Checked<'_>, run: &Run, by_teammate: bool) -> Approval {
        let (tool, org) = (checked.tool, &checked.access.catalog().org);
        let now = self.clock().now();
        let reviewed = tool.risk == Some(Risk::Reviewed) && org.reviewer.is_some() && !by_teammate;
        let timeout = Duration::from_millis(checked.access.catalog().limits.reviewer_timeout_ms);
        let expires_at = run.intent.expires_at.unwrap_or(now);
        Approval {
            id: ApprovalId::from_uuid(self.clock().new_uuid()),
            org_id: run.intent.org_id,
            run_id: run.intent.id,
            risk: tool.risk,
            state: ApprovalState::Open,
            stage: if reviewed { ApprovalStage::Reviewer } else { ApprovalStage::Teammate },
            call_hash: call_hash(run, &canonical::sha256_hex(&checked.arguments.value)),
            idempotency_key: checked.request.idempotency_key.clone(),
            setting_hash: setting_hash(tool),
            reviewer_until: reviewed.then(|| now.plus(timeout + REVIEWER_GRACE).min(expires_at)),
            expires_at,
            decided_by: None,
            note: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// A teammate decides.
    pub async fn decide_approval(
        &self,
        by: &WorkspaceAccess,
        id: ApprovalId,
        approve: bool,
        note: Option<String>,
    ) -> AdminResult<ApprovalView> {
        let name = by.key().name.clone();
        let action = if approve { "approval.approve" } else { "approval.deny" };
        let changes = note.as_ref().map_or_else(|| json!({}), |note| json!({ "note": note }));
        let audit = self.audit(&By::Workspace(by), by.org_id(), action, format!("approval/{id}"), &changes);
        let stage = ApprovalStage::Teammate;
        let verdict =
            Verdict { approve, stage, by: name, denied_reason: "denied_by_teammate", note, audit: Some(audit) };
        match self.decide(by.org_id(), id, verdict).await? {
            Decided::Now(approval, run) => Ok(ApprovalView { approval: *approval, run: *run }),
            Decided::Before(_) => Err(AdminFault::AlreadyDecided),
            Decided::Changed => Err(AdminFault::Overloaded),
        }
    }

    /// Decides about an open approval, and sends what was approved in a task of its own.
    pub(super) async fn decide(&self, org_id: OrgId, id: ApprovalId, verdict: Verdict) -> Result<Decided, StoreError> {
        for _ in 0..MAX_CHECKS {
            let view = self.store().approval(org_id, id).await?.ok_or(StoreError::NotFound)?;
            if view.approval.state != ApprovalState::Open {
                return Ok(Decided::Before(Box::new(view.approval)));
            }
            if view.approval.expires_at <= self.clock().now() {
                // Its time is over, even if the due table has not come to it yet.
                self.try_expire_run(org_id, view.approval.run_id).await?;
                continue;
            }
            self.0.registry.refresh(org_id).await?;
            let org = match self.0.registry.get(org_id).await {
                Ok(org) => org,
                Err(RegistryFault::NotFound) => return Err(StoreError::NotFound),
                Err(RegistryFault::Store(error)) => return Err(error),
            };
            let catalog = org.catalog();
            let key = self.store().agent_key(org_id, view.run.intent.agent_key).await?;
            let tool = key.as_ref().and_then(|key| self.still_callable(&catalog, key, &view));
            let mut decision = self.decision(&catalog, tool.as_deref(), &view, &verdict);
            decision.agent_key_version = key.map(|key| key.version);
            match self.store().decide(&decision).await? {
                Decided::Changed => {}
                Decided::Before(approval) => return Ok(Decided::Before(approval)),
                Decided::Now(approval, run) => {
                    self.carry_out(&org, &approval, Arc::new(Run::clone(&run))).await;
                    return Ok(Decided::Now(approval, run));
                }
            }
        }
        Ok(Decided::Changed)
    }

    /// The tool of a held run, if its agent key could still make the very same call.
    fn still_callable(&self, catalog: &Catalog, key: &AgentKey, view: &ApprovalView) -> Option<Arc<CatalogTool>> {
        if key.expires_at.is_some_and(|at| at <= self.clock().now()) {
            return None;
        }
        let visible = catalog.visible(&key.groups);
        visible.resolve(&view.run.intent.tool).filter(|tool| is_unchanged(catalog, tool, view)).cloned()
    }

    fn decision(
        &self,
        catalog: &Catalog,
        tool: Option<&CatalogTool>,
        view: &ApprovalView,
        verdict: &Verdict,
    ) -> Decision {
        let at = self.clock().now();
        let base = Decision {
            org_id: view.approval.org_id,
            approval_id: view.approval.id,
            stage: verdict.stage,
            end: ApprovalEnd {
                state: ApprovalState::Denied,
                decided_by: Some(verdict.by.clone()),
                note: verdict.note.clone(),
            },
            outcome: RunOutcome::ended(RunStatus::Denied, false, verdict.denied_reason),
            due_at: None,
            operation: None,
            expected_revision: verdict.approve.then_some(catalog.revision),
            agent_key_version: None,
            audit: verdict.audit.clone(),
            at,
        };
        if !verdict.approve {
            return base;
        }
        let Some(tool) = tool else {
            let outcome = RunOutcome::ended(RunStatus::Denied, false, CHANGED);
            let end = ApprovalEnd { note: Some(CHANGED.to_owned()), ..base.end };
            // The trail shows that a yes was said, what was said with it, and that it came too late.
            let changes = JsonText::of(&json!({ "note": verdict.note, "outcome": CHANGED }));
            let audit = base.audit.map(|entry| AuditEntry { changes, ..entry });
            return Decision { outcome, end, audit, ..base };
        };
        let (run, approval) = (&view.run, &ApprovalMark::None);
        let operation = Plan { engine: self, catalog, tool, run, approval, traceparent: None }.operation_intent();
        Decision {
            end: ApprovalEnd { state: ApprovalState::Approved, ..base.end },
            outcome: RunOutcome::bare(RunStatus::Pending, false),
            due_at: Some(at.plus(SEND_LEASE)),
            operation: operation.map(|intent| Operation { intent, progress: OperationProgress::prepared(at) }),
            ..base
        }
    }

    /// After a decision: whoever waits is told, and what was approved is sent.
    async fn carry_out(&self, org: &OrgHandle, approval: &Approval, run: Arc<Run>) {
        if run.outcome.status == RunStatus::Pending {
            self.tell_released(Arc::new(run.slim())).await;
            let (engine, org, approval) = (self.clone(), org.clone(), approval.clone());
            tokio::spawn(
                async move { engine.send_approved(&org, ApprovalView { approval, run: Run::clone(&run) }).await },
            );
        } else {
            self.count_status_of(&org.catalog().org.slug, &run);
            self.tell_settled(run).await;
        }
    }
}

/// Why a run is denied although somebody approved it.
pub(super) const CHANGED: &str = "changed_since_request";

/// Whether a tool is still what a person is asked, or was asked, about.
pub(super) fn is_unchanged(catalog: &Catalog, tool: &CatalogTool, view: &ApprovalView) -> bool {
    let intent = &view.run.intent;
    catalog.org.state == OrgState::Active
        && tool.state == ToolState::Active
        && tool.spec.hash == intent.tool_hash
        && tool.endpoint.id == intent.endpoint_id
        && setting_hash(tool) == view.approval.setting_hash
}

/// SHA-256 of what a person is asked about beside the call itself: where it would be sent, and at which risk. When that
/// changes, the yes was to something else.
fn setting_hash(tool: &CatalogTool) -> [u8; 32] {
    let risk = tool.risk.map_or("", Risk::as_str);
    Sha256::digest(format!("{risk} {}", tool.endpoint.settings.base_url)).into()
}

/// What makes two calls identical. Every part is preceded by its length, and an absent caller is not an empty one.
fn call_hash(run: &Run, arguments_hash: &str) -> [u8; 32] {
    let intent = &run.intent;
    let caller = intent.caller.as_ref().map_or(vec![0], |caller| [&[1], caller.as_bytes()].concat());
    let key = intent.agent_key.uuid();
    let parts: [&[u8]; 5] =
        [key.as_bytes(), &caller, intent.tool.as_bytes(), intent.tool_hash.as_bytes(), arguments_hash.as_bytes()];
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
