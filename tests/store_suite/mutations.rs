//! Records of what makes a mutation happen once.

use crate::fixtures::*;
use std::sync::Arc;
use std::time::Duration;
use toolgate::domain::approval::{Approval, ApprovalEnd, ApprovalStage, ApprovalState};
use toolgate::domain::endpoint::Endpoint;
use toolgate::domain::evidence::EvidenceKind;
use toolgate::domain::ids::{ApprovalId, OperationId, OrgId};
use toolgate::domain::operation::{
    Operation, OperationEvent, OperationIntent, OperationMark, OperationProgress, OperationState,
};
use toolgate::domain::org::Org;
use toolgate::domain::risk::Risk;
use toolgate::domain::run::{Run, RunOutcome, RunStatus};
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::ProviderTerms;
use toolgate::engine::store_port::{Admission, Decision, InsertedRun, Reservation, Store};

/// How long the provider of these operations keeps receipts.
pub(crate) const RECEIPTS: Duration = Duration::from_secs(24 * 3600);

/// An operation of a run, not sent.
pub(crate) fn operation(run: &Run) -> Operation {
    let terms = ProviderTerms {
        contract_version: "2026-09-01".to_owned(),
        languages: vec!["en".to_owned(), "ar-EG".to_owned()],
        produces_evidence: [EvidenceKind::Entity, EvidenceKind::Action].into_iter().collect(),
        action: Some("request.created".to_owned()),
        receipt_retention: Some(RECEIPTS),
    };
    Operation {
        intent: OperationIntent {
            origin: "https://provider.example".to_owned(),
            mark: OperationMark {
                id: OperationId::from_uuid(uuid()),
                fingerprint: format!("sha256:{}", "7b".repeat(32)),
            },
            org_id: run.intent.org_id,
            run_id: run.intent.id,
            endpoint_id: run.intent.endpoint_id,
            provider_tool: "request.create".to_owned(),
            terms: Arc::new(terms),
            body: json(r#"{"arguments":  {"n": 725653563933458432, "who":"body-secret"}}"#),
            trace_id: "trace-1".to_owned(),
            locale: Some("ar-EG".to_owned()),
            timezone: None,
            timeout: Duration::from_millis(1500),
            created_at: run.intent.created_at,
        },
        progress: OperationProgress::prepared(run.intent.created_at),
    }
}

/// The progress after an event.
pub(crate) fn after_event(progress: &OperationProgress, event: OperationEvent, at: Timestamp) -> OperationProgress {
    progress.after(event, RECEIPTS, at).0
}

/// The progress after a POST began whose answer is overdue ten seconds later.
pub(crate) fn sending(progress: &OperationProgress, at: Timestamp) -> OperationProgress {
    after_event(progress, OperationEvent::Sending { overdue_at: at.plus(Duration::from_secs(10)) }, at)
}

/// Stores a run whose operation has been sent.
pub(crate) async fn sent_run(store: &dyn Store, endpoint: &Endpoint) -> (Run, Operation) {
    let mut run = run_at(endpoint, T0);
    let mut operation = operation(&run);
    operation.progress = sending(&operation.progress, T0);
    run.operation_id = Some(operation.intent.mark.id);
    let admission = Admission { operation: Some(operation.clone()), ..Admission::default() };
    assert_eq!(store.insert_run(&run, admission).await.expect("inserted"), InsertedRun::Inserted);
    (run, operation)
}

/// A run that waits for somebody's yes, made by the tenant's agent key.
pub(crate) fn held_run(tenant: &Tenant, endpoint: &Endpoint) -> Run {
    let mut run = run_at(endpoint, T0);
    run.intent.agent_key = tenant.agent_key.id;
    run.outcome = RunOutcome::bare(RunStatus::AwaitingApproval, false);
    run
}

/// An open approval of a run; the seed stands for what makes a call identical.
pub(crate) fn approval(run: &Run, seed: u8) -> Approval {
    Approval {
        id: ApprovalId::from_uuid(uuid()),
        org_id: run.intent.org_id,
        run_id: run.intent.id,
        risk: Some(Risk::High),
        state: ApprovalState::Open,
        stage: ApprovalStage::Teammate,
        call_hash: [seed; 32],
        setting_hash: [9; 32],
        idempotency_key: None,
        reviewer_until: None,
        expires_at: after(900_000),
        decided_by: None,
        note: None,
        created_at: T0,
        updated_at: T0,
    }
}

pub(crate) fn awaiting(approval: &Approval) -> Admission {
    Admission { approval: Some(approval.clone()), ..Admission::default() }
}

/// Stores a held run with its approval.
pub(crate) async fn hold(store: &dyn Store, tenant: &Tenant, endpoint: &Endpoint, seed: u8) -> (Run, Approval) {
    let run = held_run(tenant, endpoint);
    let approval = approval(&run, seed);
    let inserted = store.insert_run(&run, awaiting(&approval)).await.expect("inserted");
    assert_eq!(inserted, InsertedRun::Inserted);
    (run, approval)
}

pub(crate) fn end(state: ApprovalState) -> ApprovalEnd {
    ApprovalEnd { state, decided_by: Some("Ann".to_owned()), note: Some("looks right".to_owned()) }
}

/// A yes, checked on the organization as it stands.
pub(crate) async fn yes(store: &dyn Store, approval: &Approval) -> Decision {
    let config = store.load_org(approval.org_id).await.expect("loaded").expect("it exists");
    let run = store.run(approval.org_id, approval.run_id).await.expect("read").expect("it is there");
    let key = store.agent_key(approval.org_id, run.intent.agent_key).await.expect("read");
    Decision {
        org_id: approval.org_id,
        approval_id: approval.id,
        stage: ApprovalStage::Teammate,
        end: end(ApprovalState::Approved),
        outcome: RunOutcome::bare(RunStatus::Pending, false),
        due_at: Some(after(30_000)),
        operation: None,
        expected_revision: Some(config.revision),
        agent_key_version: key.map(|key| key.version),
        audit: None,
        at: after(10),
    }
}

pub(crate) fn no(yes: Decision) -> Decision {
    Decision {
        end: end(ApprovalState::Denied),
        outcome: RunOutcome::ended(RunStatus::Denied, false, "denied_by_person"),
        due_at: None,
        ..yes
    }
}

pub(crate) fn reservation(key: &str, seed: u8, expires_at: Timestamp) -> Reservation {
    Reservation { key: key.to_owned(), content_hash: [seed; 32], expires_at }
}

/// Gives a tenant an application that listens.
pub(crate) async fn listen(store: &dyn Store, org: OrgId) -> Org {
    let before = store.org(org).await.expect("loaded").expect("it exists");
    let listening = Org { webhook: Some(hook("webhook")), ..before };
    store.update_org(&listening, audit(org)).await.expect("stored")
}

/// What the organization's application is told, oldest first: the event, and the status or reason.
pub(crate) async fn told(store: &dyn Store, org: OrgId) -> Vec<(String, String)> {
    let found = store.list_deliveries(org, None, &first(200)).await.expect("listed").items;
    let mut told: Vec<_> = found
        .into_iter()
        .map(|delivery| {
            let body: serde_json::Value = serde_json::from_str(delivery.body.as_str()).expect("JSON");
            assert_eq!(body["type"], delivery.event.as_str());
            let data = &body["data"];
            let word = data.get("reason").unwrap_or(&data["status"]);
            (delivery.event, word.as_str().expect("a word").to_owned())
        })
        .collect();
    told.reverse();
    told
}

/// As [`told`] is compared.
pub(crate) fn word(event: &str, word: &str) -> (String, String) {
    (event.to_owned(), word.to_owned())
}

/// The state of an operation and when it is looked at again.
pub(crate) async fn standing(store: &dyn Store, run: &Run) -> (OperationState, Option<Timestamp>) {
    let found = store.operation(run.intent.org_id, run.intent.id).await.expect("read").expect("it is there");
    (found.progress.state, found.progress.next_at)
}
