//! Approvals: one decision, one execution.

use crate::fixtures::*;
use crate::mutations::*;
use std::time::Duration;
use toolgate::domain::approval::{Approval, ApprovalStage, ApprovalState};
use toolgate::domain::ids::{ApprovalId, OrgId};
use toolgate::domain::key::AgentKey;
use toolgate::domain::operation::OperationState;
use toolgate::domain::org::{Org, OrgState, Retention};
use toolgate::domain::run::{Run, RunOutcome, RunStatus};
use toolgate::engine::store_port::{
    Admission, ApprovalView, ChangedRun, Decided, Decision, Due, InsertedRun, PageRequest, RunChange, Store, StoreError,
};

async fn stored(store: &dyn Store, approval: &Approval) -> Approval {
    store.approval(approval.org_id, approval.id).await.expect("read").expect("it is there").approval
}

async fn run_now(store: &dyn Store, run: &Run) -> Run {
    store.run(run.intent.org_id, run.intent.id).await.expect("read").expect("it is there")
}

async fn listed(store: &dyn Store, org: OrgId, state: Option<ApprovalState>) -> Vec<ApprovalId> {
    let found = store.list_approvals(org, state, &first(9)).await.expect("listed").items;
    found.into_iter().map(|view| view.approval.id).collect()
}

pub(crate) async fn an_approval_comes_back_with_its_run(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let (other, _) = tenant_with_endpoint(home.store(), "other").await;
    let id = tenant.org.id;
    let (run, mut whole) = (held_run(&tenant, &endpoint), Vec::new());
    let mut approval = approval(&run, 1);
    approval.idempotency_key = Some("k".to_owned());
    approval.reviewer_until = Some(after(20_000));
    home.store().insert_run(&run, awaiting(&approval)).await.unwrap();
    whole.push(ApprovalView { approval: approval.clone(), run });
    for seed in 2..6 {
        let (run, approval) = hold(home.store(), &tenant, &endpoint, seed).await;
        whole.push(ApprovalView { approval, run });
    }
    home.drop_and_reopen();
    let store = home.store();
    assert_eq!(store.approval(id, approval.id).await.unwrap().as_ref(), Some(&whole[0]));
    assert_eq!(store.approval_of_run(id, approval.run_id).await.unwrap(), Some(approval.clone()));
    assert_eq!(store.approval(other.org.id, approval.id).await.unwrap(), None);
    assert_eq!(store.approval_of_run(other.org.id, approval.run_id).await.unwrap(), None);
    whole.reverse();
    let (mut seen, mut page) = (Vec::new(), first(2));
    loop {
        let part = store.list_approvals(id, Some(ApprovalState::Open), &page).await.unwrap();
        seen.extend(part.items);
        let Some(cursor) = part.next_cursor else { break };
        page = PageRequest { limit: 2, cursor: Some(cursor) };
    }
    assert_eq!(seen, whole);
    assert!(listed(store, other.org.id, None).await.is_empty());
}

/// The same call, with a key or without one.
fn identical(tenant: &Tenant, run: &Run, key: Option<&str>) -> (Run, Admission) {
    let mut again = held_run(tenant, &endpoint(run.intent.org_id, "weather"));
    again.intent.endpoint_id = run.intent.endpoint_id;
    let approval = Approval { idempotency_key: key.map(str::to_owned), ..approval(&again, 1) };
    (again, awaiting(&approval))
}

pub(crate) async fn an_identical_call_attaches_to_the_open_approval(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let mut held = Vec::new();
    for key in ["k1", "k2"] {
        let run = held_run(&tenant, &endpoint);
        let approval = Approval { idempotency_key: Some(key.to_owned()), ..approval(&run, 1) };
        let inserted = store.insert_run(&run, awaiting(&approval)).await.unwrap();
        assert_eq!(inserted, InsertedRun::Inserted, "different keys never attach");
        held.push(run);
    }
    for (key, holder, seed) in [(None, &held[0], 1), (Some("k1"), &held[0], 2), (Some("k2"), &held[1], 3)] {
        let (again, admission) = identical(&tenant, &held[0], key);
        let admission = Admission { token: Some(token(seed)), ..admission };
        let attached = store.insert_run(&again, admission.clone()).await.unwrap();
        assert_eq!(attached, InsertedRun::Attached(holder.intent.id), "{key:?}");
        assert_eq!(store.run(id, again.intent.id).await.unwrap(), None, "nothing else was stored");
        let used = store.insert_run(&again, admission).await.unwrap();
        assert_eq!(used, InsertedRun::TokenUsed(holder.intent.id), "but for the token's use");
    }
    let (again, admission) = identical(&tenant, &held[0], Some("k3"));
    assert_eq!(store.insert_run(&again, admission).await.unwrap(), InsertedRun::Inserted);
    let mut other_call = held_run(&tenant, &endpoint);
    other_call.intent.caller = Some("someone else".to_owned());
    let inserted = store.insert_run(&other_call, awaiting(&approval(&other_call, 2))).await.unwrap();
    assert_eq!(inserted, InsertedRun::Inserted);

    let (alone, decided) = hold(store, &tenant, &endpoint, 9).await;
    store.decide(&yes(store, &decided).await).await.unwrap();
    let again = held_run(&tenant, &endpoint);
    let inserted = store.insert_run(&again, awaiting(&approval(&again, 9))).await.unwrap();
    assert_eq!(inserted, InsertedRun::Inserted, "{} is decided", alone.intent.id);
}

pub(crate) async fn of_eight_decisions_one_counts(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    listen(store, tenant.org.id).await;
    let (run, approval) = hold(store, &tenant, &endpoint, 1).await;
    let yes = yes(store, &approval).await;
    let decisions: Vec<Decision> = (0..8)
        .map(|n| {
            let mut decision = if n % 2 == 0 { yes.clone() } else { no(yes.clone()) };
            decision.end.decided_by = Some(format!("person {n}"));
            decision
        })
        .collect();
    let decide = |decision: &Decision| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(store.decide(decision)).expect("decided")
    };
    let results: Vec<Decided> = std::thread::scope(|scope| {
        let threads: Vec<_> = decisions.iter().map(|decision| scope.spawn(move || decide(decision))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    let won: Vec<usize> = (0..8).filter(|n| matches!(results[*n], Decided::Now(..))).collect();
    assert_eq!(won.len(), 1);
    let Decided::Now(now, run_then) = &results[won[0]] else { panic!("it won") };
    assert_eq!((&**now, &**run_then), (&stored(store, &approval).await, &run_now(store, &run).await));
    let expected = &decisions[won[0]];
    let seen = (now.state, now.decided_by.clone(), now.note.clone());
    assert_eq!(seen, (expected.end.state, expected.end.decided_by.clone(), expected.end.note.clone()));
    assert_eq!(run_then.outcome, expected.outcome);
    for (n, result) in results.iter().enumerate().filter(|(n, _)| *n != won[0]) {
        assert_eq!(*result, Decided::Before(now.clone()), "person {n} sees who did");
    }
    let goes_on = usize::from(expected.end.state == ApprovalState::Approved);
    let mut started = 0;
    for _ in 0..8 {
        let id = (run.intent.org_id, run.intent.id);
        started += usize::from(store.start_run(id.0, id.1, None, after(60_000), after(20)).await.unwrap());
    }
    assert_eq!(started, goes_on, "one approval, one execution");
    assert_eq!(told(store, tenant.org.id).await.len(), 2 - goes_on, "asked once, and ended once at most");
}

pub(crate) async fn a_yes_lets_its_run_go_with_its_operation(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let id = tenant.org.id;
    let (mut run, approval) = hold(home.store(), &tenant, &endpoint, 1).await;
    let operation = operation(&run);
    let mut entry = audit(id);
    entry.action = "approval.decide".to_owned();
    let decision = Decision {
        operation: Some(operation.clone()),
        audit: Some(entry.clone()),
        ..yes(home.store(), &approval).await
    };
    let Decided::Now(now, run_then) = home.store().decide(&decision).await.unwrap() else { panic!("it was open") };
    assert_eq!((now.state, now.updated_at), (ApprovalState::Approved, after(10)));
    run.outcome = RunOutcome::bare(RunStatus::Pending, false);
    run.operation_id = Some(operation.intent.mark.id);
    run.updated_at = after(10);
    assert_eq!(*run_then, run);
    home.drop_and_reopen();
    let store = home.store();
    assert_eq!(run_now(store, &run).await, run);
    assert_eq!(store.operation(id, run.intent.id).await.unwrap(), Some(operation));
    assert_eq!(store.list_audit(id, &first(1)).await.unwrap().items[0].action, entry.action);
    assert!(store.take_due(after(29_999), HOUR, 9).await.unwrap().is_empty());
    let due = store.take_due(after(30_000), HOUR, 9).await.unwrap();
    assert_eq!(due, [Due::RunExpiry(id, run.intent.id)], "approved and not sent");
    assert_eq!(listed(store, id, Some(ApprovalState::Approved)).await, [approval.id]);
    assert!(listed(store, id, Some(ApprovalState::Open)).await.is_empty());

    let unknown = Decision { approval_id: ApprovalId::from_uuid(uuid()), ..decision };
    assert!(matches!(store.decide(&unknown).await, Err(StoreError::NotFound)));
}

pub(crate) async fn a_yes_needs_everything_as_it_was_checked(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let (run, approval) = hold(store, &tenant, &endpoint, 1).await;
    let early = Decision { audit: Some(audit(id)), ..yes(store, &approval).await };
    let entries = store.list_audit(id, &first(99)).await.unwrap().items.len();
    // The configuration has moved on.
    apply_tools(store, &endpoint, &["weather-report"]).await;
    assert_eq!(store.decide(&early).await.unwrap(), Decided::Changed);
    assert_eq!(store.decide(&no(early)).await.unwrap(), Decided::Changed, "a no that comes of a check, too");
    assert_eq!(store.list_audit(id, &first(99)).await.unwrap().items.len(), entries);
    // The organization does not work.
    let suspended = Org { state: OrgState::Suspended, ..tenant.org.clone() };
    let suspended = store.update_org(&suspended, audit(id)).await.unwrap();
    assert_eq!(store.decide(&yes(store, &approval).await).await.unwrap(), Decided::Changed);
    store.update_org(&Org { state: OrgState::Active, ..suspended }, audit(id)).await.unwrap();
    // The key is over at that very moment.
    let expiring = AgentKey { expires_at: Some(after(10)), ..tenant.agent_key.clone() };
    let expiring = store.update_agent_key(&expiring, audit(id)).await.unwrap();
    assert_eq!(store.decide(&yes(store, &approval).await).await.unwrap(), Decided::Changed);
    let longer = AgentKey { expires_at: Some(after(11)), ..expiring };
    let longer = store.update_agent_key(&longer, audit(id)).await.unwrap();
    // The key was changed, which changes no revision.
    let checked = yes(store, &approval).await;
    let renamed = AgentKey { name: "renamed".to_owned(), ..longer };
    store.update_agent_key(&renamed, audit(id)).await.unwrap();
    assert_eq!(checked.expected_revision, yes(store, &approval).await.expected_revision);
    assert_eq!(store.decide(&checked).await.unwrap(), Decided::Changed);
    let unchecked = Decision { agent_key_version: None, ..yes(store, &approval).await };
    assert_eq!(store.decide(&unchecked).await.unwrap(), Decided::Changed);
    // The key is revoked.
    let yes = yes(store, &approval).await;
    store.delete_agent_key(id, tenant.agent_key.id, None, audit(id)).await.unwrap();
    assert_eq!(store.decide(&yes).await.unwrap(), Decided::Changed);
    assert_eq!(stored(store, &approval).await, approval, "nothing was stored");
    assert_eq!(run_now(store, &run).await, run);
    // A no needs neither.
    let no = Decision { expected_revision: None, ..no(yes) };
    let Decided::Now(now, run_then) = store.decide(&no).await.unwrap() else { panic!("it was open") };
    assert_eq!((now.state, run_then.outcome.status), (ApprovalState::Denied, RunStatus::Denied));
    assert_eq!(run_then.finished_at, Some(after(10)));
    assert!(store.take_due(T0.plus(10 * HOUR), HOUR, 9).await.unwrap().is_empty());
}

pub(crate) async fn a_teammate_is_asked_once_the_reviewer_is_passed_over(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    listen(store, id).await;
    let run = held_run(&tenant, &endpoint);
    let reviewed =
        Approval { stage: ApprovalStage::Reviewer, reviewer_until: Some(after(20_000)), ..approval(&run, 1) };
    store.insert_run(&run, awaiting(&reviewed)).await.unwrap();
    assert!(listed(store, id, None).await.is_empty(), "no teammate is asked yet");
    assert!(told(store, id).await.is_empty());
    assert!(store.take_due(after(19_999), HOUR, 9).await.unwrap().is_empty());
    assert_eq!(store.take_due(after(20_000), HOUR, 9).await.unwrap(), [Due::RunExpiry(id, run.intent.id)]);

    assert!(store.pass_to_teammate(id, run.intent.id, after(20_001)).await.unwrap());
    assert!(!store.pass_to_teammate(id, run.intent.id, after(20_002)).await.unwrap(), "once");
    let passed = Approval { stage: ApprovalStage::Teammate, updated_at: after(20_001), ..reviewed };
    assert_eq!(stored(store, &passed).await, passed);
    assert_eq!(listed(store, id, Some(ApprovalState::Open)).await, [passed.id]);
    let message = store.list_deliveries(id, None, &first(9)).await.unwrap().items;
    assert_eq!(told(store, id).await, [word("approval.opened", "open")]);
    assert!(message[0].body.as_str().contains(&passed.id.to_string()));
    assert!(!message[0].body.as_str().contains("Secretville"));
    let due = |due: Vec<Due>| due.into_iter().filter(|due| matches!(due, Due::RunExpiry(..))).count();
    assert_eq!(due(store.take_due(after(899_999), HOUR, 9).await.unwrap()), 0);
    assert_eq!(due(store.take_due(after(900_000), HOUR, 9).await.unwrap()), 1, "it expires now");

    // The reviewer's word comes too late.
    let late = Decision { stage: ApprovalStage::Reviewer, ..yes(store, &passed).await };
    assert_eq!(store.decide(&late).await.unwrap(), Decided::Before(Box::new(passed.clone())));
    assert_eq!(run_now(store, &run).await.outcome.status, RunStatus::AwaitingApproval);
    store.decide(&no(yes(store, &passed).await)).await.unwrap();
    assert!(!store.pass_to_teammate(id, run.intent.id, after(20_003)).await.unwrap());

    // A teammate may be quicker; then it is the teammate's word.
    let run = held_run(&tenant, &endpoint);
    let reviewed =
        Approval { stage: ApprovalStage::Reviewer, reviewer_until: Some(after(20_000)), ..approval(&run, 2) };
    store.insert_run(&run, awaiting(&reviewed)).await.unwrap();
    let Decided::Now(now, _) = store.decide(&yes(store, &reviewed).await).await.unwrap() else { panic!("it was open") };
    assert_eq!((now.state, now.stage), (ApprovalState::Approved, ApprovalStage::Teammate));
    assert_eq!(stored(store, &reviewed).await, *now);
}

pub(crate) async fn an_approval_ends_with_its_run(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (run, cancelled) = hold(store, &tenant, &endpoint, 1).await;
    let outcome = RunOutcome::ended(RunStatus::Cancelled, false, "cancelled");
    store.change_run(&change(&run, outcome)).await.unwrap();
    let now = stored(store, &cancelled).await;
    assert_eq!((now.state, now.note.as_deref(), now.decided_by), (ApprovalState::Denied, Some("cancelled"), None));

    let (run, expired) = hold(store, &tenant, &endpoint, 2).await;
    let mut expiry = change(&run, RunOutcome::ended(RunStatus::Denied, false, "approval_expired"));
    expiry.approval = Some(end(ApprovalState::Expired));
    store.change_run(&expiry).await.unwrap();
    assert_eq!(stored(store, &expired).await.state, ApprovalState::Expired);

    let late = store.decide(&yes(store, &cancelled).await).await.unwrap();
    assert_eq!(late, Decided::Before(Box::new(stored(store, &cancelled).await)));
    let late = store.decide(&yes(store, &expired).await).await.unwrap();
    assert!(matches!(late, Decided::Before(_)));
    assert!(store.take_due(T0.plus(10 * HOUR), HOUR, 9).await.unwrap().is_empty());
}

/// What is decided meanwhile is not undone by who looked before.
pub(crate) async fn a_decision_is_not_overtaken(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (run, approval) = hold(store, &tenant, &endpoint, 1).await;
    let denied = change(&run, RunOutcome::ended(RunStatus::Denied, false, "approval_expired"));
    let expiry = RunChange { approval: Some(end(ApprovalState::Expired)), ..denied };
    let cancelling = change(&run, RunOutcome::ended(RunStatus::Cancelled, false, "cancelled_by_agent"));
    store.decide(&yes(store, &approval).await).await.unwrap();
    assert!(matches!(store.change_run(&expiry).await, Err(StoreError::Stale)));
    assert_eq!(run_now(store, &run).await.outcome, RunOutcome::bare(RunStatus::Pending, false));
    assert!(store.start_run(tenant.org.id, run.intent.id, None, after(60_000), after(20)).await.unwrap());
    assert!(matches!(store.change_run(&cancelling).await, Err(StoreError::Stale)), "it is sent");
    assert_eq!(run_now(store, &run).await.outcome, RunOutcome::bare(RunStatus::Pending, true));
    assert_eq!(stored(store, &approval).await.state, ApprovalState::Approved);
    // Whoever sends it knows better.
    let given_up = store.change_run(&RunChange { by_sender: true, ..cancelling }).await.unwrap();
    assert!(matches!(given_up, ChangedRun::Changed(_)));
    assert_eq!(stored(store, &approval).await.state, ApprovalState::Approved, "a run's end leaves it so");
}

pub(crate) async fn approvals_of_what_is_deleted_are_denied(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let (run, approval) = hold(store, &tenant, &endpoint, 1).await;
    let (approved, yes_to) = hold(store, &tenant, &endpoint, 2).await;
    let decision = Decision { operation: Some(operation(&approved)), ..yes(store, &yes_to).await };
    store.decide(&decision).await.unwrap();
    store.delete_endpoint(id, endpoint.id, None, after(50), audit(id)).await.unwrap();
    let now = stored(store, &approval).await;
    assert_eq!((now.state, now.note.as_deref()), (ApprovalState::Denied, Some("endpoint_deleted")));
    assert_eq!(run_now(store, &run).await.outcome.status, RunStatus::Cancelled);
    assert_eq!(stored(store, &yes_to).await.state, ApprovalState::Approved);
    assert_eq!(run_now(store, &approved).await.outcome.status, RunStatus::Cancelled, "it was not sent");
    assert_eq!(standing(store, &approved).await, (OperationState::Prepared, None));

    listen(store, id).await;
    store.delete_org(id, after(60), audit(id)).await.unwrap();
    assert_eq!(store.approval_of_run(id, run.intent.id).await.unwrap(), None);
    assert_eq!(store.operation(id, approved.intent.id).await.unwrap(), None);
    assert!(told(store, id).await.is_empty());
}

pub(crate) async fn approvals_go_with_their_runs(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let short = Retention { run_retention_h: 2, result_retention_h: 1 };
    store.update_org(&Org { retention: short, ..tenant.org.clone() }, audit(id)).await.unwrap();
    let (_, open) = hold(store, &tenant, &endpoint, 1).await;
    let (_, denied) = hold(store, &tenant, &endpoint, 2).await;
    store.decide(&no(yes(store, &denied).await)).await.unwrap();
    store.purge(T0.plus(2 * HOUR)).await.unwrap();
    assert_eq!(listed(store, id, None).await, [denied.id, open.id]);
    store.purge(T0.plus(2 * HOUR + Duration::from_secs(1))).await.unwrap();
    assert_eq!(listed(store, id, None).await, [open.id]);
}
