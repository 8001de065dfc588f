//! Operations: each step upon the one before, together with its run.

use crate::fixtures::*;
use crate::mutations::*;
use futures_util::future::join_all;
use std::time::Duration;
use toolgate::domain::approval::{Approval, ApprovalStage};
use toolgate::domain::endpoint::Endpoint;
use toolgate::domain::ids::RunId;
use toolgate::domain::operation::{OperationEvent, OperationProgress, OperationState};
use toolgate::domain::org::{Org, Retention};
use toolgate::domain::run::{Run, RunOutcome, RunStatus};
use toolgate::domain::tool::{Dialect, ToolKind};
use toolgate::engine::store_port::{
    Admission, ChangedRun, Due, OperationView, PageRequest, RunChange, RunFilter, StoreError,
};

fn step(run: &Run, outcome: RunOutcome, progress: OperationProgress) -> RunChange {
    RunChange { operation: Some(progress), ..change(run, outcome) }
}

pub(crate) async fn an_operation_comes_back_whole(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let (other, _) = tenant_with_endpoint(home.store(), "other").await;
    let (run, mut operation) = sent_run(home.store(), &endpoint).await;
    let mut progress = after_event(&operation.progress, OperationEvent::Unclear, after(20));
    progress.receipt = Some(json(r#"{"state":  "pending", "n":1e400}"#));
    home.store().update_operation(tenant.org.id, run.intent.id, &progress).await.unwrap();
    operation.progress = progress;
    home.drop_and_reopen();
    let store = home.store();
    assert_eq!(store.operation(tenant.org.id, run.intent.id).await.unwrap(), Some(operation));
    assert_eq!(store.run(tenant.org.id, run.intent.id).await.unwrap().as_ref(), Some(&run), "the run names it");
    assert_eq!(store.operation(other.org.id, run.intent.id).await.unwrap(), None);
    let plain = pending_run(store, &endpoint).await;
    assert_eq!(store.operation(tenant.org.id, plain.intent.id).await.unwrap(), None);
}

pub(crate) async fn a_step_is_taken_only_upon_the_one_before(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let (run, operation) = sent_run(store, &endpoint).await;
    let unclear = after_event(&operation.progress, OperationEvent::Unclear, after(1));
    let twice = after_event(&unclear, OperationEvent::NoReceiptYet, after(2));
    let skipped = store.update_operation(id, run.intent.id, &twice).await;
    assert!(matches!(skipped, Err(StoreError::Stale)), "{skipped:?}");
    store.update_operation(id, run.intent.id, &unclear).await.unwrap();
    let again = store.update_operation(id, run.intent.id, &unclear).await;
    assert!(matches!(again, Err(StoreError::Stale)), "{again:?}");
    let stored = store.operation(id, run.intent.id).await.unwrap().expect("it is there");
    assert_eq!(stored.progress, unclear);
    let unknown = store.update_operation(id, RunId::from_uuid(uuid()), &unclear).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)), "{unknown:?}");

    let next = store.operation(id, run.intent.id).await.unwrap().expect("it is there").progress;
    let ends: Vec<_> = (0..50)
        .map(|n| {
            let event = if n % 2 == 0 { OperationEvent::Applied } else { OperationEvent::Rejected };
            after_event(&next, event, after(100 + n))
        })
        .collect();
    let results = join_all(ends.iter().map(|end| store.update_operation(id, run.intent.id, end))).await;
    let won: Vec<usize> = (0..50).filter(|n| results[*n].is_ok()).collect();
    assert_eq!(won.len(), 1, "of fifty that know the step before one goes on");
    assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(StoreError::Stale))));
    let stored = store.operation(id, run.intent.id).await.unwrap().expect("it is there");
    assert_eq!(stored.progress, ends[won[0]]);
}

pub(crate) async fn a_run_and_its_operation_change_together(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let id = tenant.org.id;
    let (run, operation) = sent_run(home.store(), &endpoint).await;
    let looking = RunOutcome::bare(RunStatus::Inspecting, true);
    let unclear = after_event(&operation.progress, OperationEvent::Unclear, after(10));
    let mut skipped = unclear.clone();
    skipped.step += 1;
    let stale = home.store().change_run(&step(&run, looking.clone(), skipped)).await;
    assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
    assert_eq!(home.store().run(id, run.intent.id).await.unwrap().as_ref(), Some(&run), "nothing has changed");
    assert_eq!(standing(home.store(), &run).await, (OperationState::Sent, operation.progress.next_at));

    let changed = home.store().change_run(&step(&run, looking.clone(), unclear.clone())).await.unwrap();
    let ChangedRun::Changed(now) = changed else { panic!("it was open") };
    assert_eq!((&now.outcome, now.finished_at), (&looking, None));
    home.drop_and_reopen();
    let store = home.store();
    let open = store.open_runs(id).await.unwrap();
    assert_eq!(open.iter().map(|run| run.outcome.status).collect::<Vec<_>>(), [RunStatus::Inspecting]);
    let due = store.take_due(T0.plus(HOUR), HOUR, 9).await.unwrap();
    assert_eq!(due, [Due::Operation(id, run.intent.id)], "its operation has the time");

    let given_up = after_event(&unclear, OperationEvent::ReceiptGone, after(20));
    let outcome = RunOutcome::ended(RunStatus::Uncertain, true, "receipt_gone");
    store.change_run(&step(&run, outcome.clone(), given_up.clone())).await.unwrap();
    let ended = store.run(id, run.intent.id).await.unwrap().expect("it is there");
    assert_eq!((ended.outcome, ended.finished_at), (outcome, Some(after(10))));
    assert_eq!(standing(store, &run).await, (OperationState::Uncertain, None));
    let filter = RunFilter { status: Some(RunStatus::Uncertain), ..RunFilter::default() };
    assert_eq!(store.list_runs(id, &filter, &first(9)).await.unwrap().items.len(), 1);
    assert!(store.take_due(T0.plus(10 * HOUR), HOUR, 9).await.unwrap().is_empty());

    // What comes too late changes neither.
    let late = step(&run, RunOutcome::completed(json("1")), sending(&given_up, after(30)));
    assert!(matches!(store.change_run(&late).await.unwrap(), ChangedRun::WasFinal(_)));
    assert_eq!(standing(store, &run).await, (OperationState::Uncertain, None));
}

/// One approval, one execution: whoever comes second does not send.
pub(crate) async fn a_run_is_started_once(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let mut run = run_at(&endpoint, T0);
    run.outcome = RunOutcome::bare(RunStatus::Pending, false);
    let operation = operation(&run);
    run.operation_id = Some(operation.intent.mark.id);
    let admission = Admission { operation: Some(operation.clone()), ..Admission::default() };
    store.insert_run(&run, admission).await.unwrap();
    let sent = sending(&operation.progress, after(50));
    let mut skipped = sent.clone();
    skipped.step += 1;
    let stale = store.start_run(id, run.intent.id, Some(&skipped), after(60_000), after(50)).await;
    assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
    assert_eq!(store.run(id, run.intent.id).await.unwrap().as_ref(), Some(&run), "it is not started by that");

    let starts = (0..50).map(|_| store.start_run(id, run.intent.id, Some(&sent), after(60_000), after(50)));
    let started: Vec<bool> = join_all(starts).await.into_iter().map(|result| result.unwrap()).collect();
    assert_eq!(started.iter().filter(|started| **started).count(), 1);
    run.outcome.started = true;
    run.intent.expires_at = Some(after(60_000));
    run.updated_at = after(50);
    assert_eq!(store.run(id, run.intent.id).await.unwrap().as_ref(), Some(&run));
    assert_eq!(standing(store, &run).await, (OperationState::Sent, sent.next_at));
    let due = store.take_due(T0.plus(HOUR), HOUR, 9).await.unwrap();
    assert_eq!(due, [Due::Operation(id, run.intent.id)]);

    // Without an operation the run itself has the time.
    let mut plain = run_at(&endpoint, T0);
    plain.outcome = RunOutcome::bare(RunStatus::Pending, false);
    store.insert_run(&plain, Admission::default()).await.unwrap();
    assert!(store.start_run(id, plain.intent.id, None, after(60_000), after(50)).await.unwrap());
    assert!(store.take_due(after(59_999), HOUR, 9).await.unwrap().is_empty());
    assert_eq!(store.take_due(after(60_000), HOUR, 9).await.unwrap(), [Due::RunExpiry(id, plain.intent.id)]);
    for run in [held_run(&tenant, &endpoint), finished_run(&endpoint, T0)] {
        store.insert_run(&run, Admission::default()).await.unwrap();
        assert!(!store.start_run(id, run.intent.id, None, after(60_000), after(50)).await.unwrap());
    }
    assert!(!store.start_run(id, RunId::from_uuid(uuid()), None, after(60_000), after(50)).await.unwrap());
}

pub(crate) async fn operations_are_listed_newest_first(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (other, other_endpoint) = tenant_with_endpoint(store, "other").await;
    sent_run(store, &other_endpoint).await;
    let mut views = Vec::new();
    for n in 0..5 {
        let (run, mut operation) = sent_run(store, &endpoint).await;
        if n % 2 == 0 {
            operation.progress = after_event(&operation.progress, OperationEvent::Applied, after(n));
            store.update_operation(tenant.org.id, run.intent.id, &operation.progress).await.unwrap();
        }
        views.push(OperationView { operation, tool: run.intent.tool, endpoint: run.intent.endpoint_name });
    }
    views.reverse();
    let mut seen = Vec::new();
    let mut page = first(2);
    loop {
        let part = store.list_operations(tenant.org.id, None, &page).await.unwrap();
        seen.extend(part.items);
        let Some(cursor) = part.next_cursor else { break };
        page = PageRequest { limit: 2, cursor: Some(cursor) };
    }
    assert_eq!(seen, views);
    let sent = store.list_operations(tenant.org.id, Some(OperationState::Sent), &first(9)).await.unwrap().items;
    assert_eq!(sent, [views[1].clone(), views[3].clone()]);
    assert_eq!(store.list_operations(other.org.id, None, &first(9)).await.unwrap().items.len(), 1);
    let one = views[1].operation.intent.mark.id;
    assert_eq!(store.operation_view(tenant.org.id, one).await.unwrap().as_ref(), Some(&views[1]));
    assert_eq!(store.operation_view(other.org.id, one).await.unwrap(), None);
}

pub(crate) async fn what_a_crash_cut_off_is_due_at_once(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let id = tenant.org.id;
    let (sent, _) = sent_run(home.store(), &endpoint).await;
    let (applied, operation) = sent_run(home.store(), &endpoint).await;
    let end = after_event(&operation.progress, OperationEvent::Applied, after(1));
    home.store().update_operation(id, applied.intent.id, &end).await.unwrap();
    let (looked_for, operation) = sent_run(home.store(), &endpoint).await;
    let unclear = after_event(&operation.progress, OperationEvent::Unclear, after(1));
    let inspecting = step(&looked_for, RunOutcome::bare(RunStatus::Inspecting, true), unclear.clone());
    home.store().change_run(&inspecting).await.unwrap();
    let mut approved = run_at(&endpoint, T0);
    approved.outcome = RunOutcome::bare(RunStatus::Pending, false);
    home.store().insert_run(&approved, Admission::default()).await.unwrap();
    pending_run(home.store(), &endpoint).await;
    // A teammate goes on thinking; a reviewer's answer finds nobody.
    hold(home.store(), &tenant, &endpoint, 1).await;
    let asked = held_run(&tenant, &endpoint);
    let reviewer_until = Some(after(20_000));
    let reviewed = Approval { stage: ApprovalStage::Reviewer, reviewer_until, ..approval(&asked, 2) };
    home.store().insert_run(&asked, awaiting(&reviewed)).await.unwrap();
    assert!(home.store().take_due(after(100), HOUR, 9).await.unwrap().is_empty());
    home.drop_and_reopen();
    home.store().recover(after(100)).await.unwrap();
    let due = home.store().take_due(after(100), HOUR, 9).await.unwrap();
    let cut_off = [
        Due::Operation(id, sent.intent.id),
        Due::Operation(id, looked_for.intent.id),
        Due::RunExpiry(id, approved.intent.id),
        Due::RunExpiry(id, asked.intent.id),
    ];
    assert!(due.len() == cut_off.len() && cut_off.iter().all(|one| due.contains(one)), "{due:?}");
    // A lease is no step: who comes with the next one is not late.
    let stored = home.store().operation(id, sent.intent.id).await.unwrap().expect("it is there").progress;
    let next = after_event(&stored, OperationEvent::Unclear, after(100));
    home.store().update_operation(id, sent.intent.id, &next).await.unwrap();
}

/// A run of each kind that is open when its endpoint goes, with what it has to end as.
fn open_runs(endpoint: &Endpoint) -> Vec<(Run, RunStatus)> {
    let kinds = [
        (Dialect::Topology, ToolKind::Query, RunStatus::Pending, true, RunStatus::Cancelled),
        (Dialect::Topology, ToolKind::Query, RunStatus::Pending, false, RunStatus::Cancelled),
        (Dialect::Topology, ToolKind::Command, RunStatus::Pending, true, RunStatus::Uncertain),
        (Dialect::Topology, ToolKind::Command, RunStatus::Pending, false, RunStatus::Cancelled),
        (Dialect::Median, ToolKind::Query, RunStatus::Pending, true, RunStatus::Uncertain),
        (Dialect::Median, ToolKind::Query, RunStatus::Pending, false, RunStatus::Cancelled),
        (Dialect::Median, ToolKind::Query, RunStatus::AwaitingApproval, false, RunStatus::Cancelled),
        (Dialect::Median, ToolKind::Query, RunStatus::Inspecting, true, RunStatus::Uncertain),
    ];
    let run = |(dialect, kind, status, started, ends_as)| {
        let mut run = run_at(endpoint, T0);
        (run.intent.dialect, run.intent.kind) = (dialect, kind);
        run.outcome = RunOutcome::bare(status, started);
        (run, ends_as)
    };
    kinds.map(run).into()
}

pub(crate) async fn what_may_have_been_applied_is_not_called_cancelled(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    listen(store, id).await;
    let mut expected = open_runs(&endpoint);
    for (run, _) in &expected {
        store.insert_run(run, Admission::default()).await.unwrap();
    }
    let (sent, posted) = sent_run(store, &endpoint).await;
    let mut unsent = run_at(&endpoint, T0);
    unsent.outcome.started = false;
    let prepared = Admission { operation: Some(operation(&unsent)), ..Admission::default() };
    store.insert_run(&unsent, prepared).await.unwrap();
    expected.extend([(sent.clone(), RunStatus::Uncertain), (unsent.clone(), RunStatus::Cancelled)]);

    let mut ended = store.delete_endpoint(id, endpoint.id, None, after(5), audit(id)).await.unwrap();
    ended.sort();
    assert_eq!(ended, expected.iter().map(|(run, _)| run.intent.id).collect::<Vec<_>>());
    let mut words = Vec::new();
    for (run, ends_as) in &expected {
        let stored = store.run(id, run.intent.id).await.unwrap().expect("it stays");
        assert_eq!(stored.outcome.status, *ends_as, "{:?}", run.outcome);
        let end = (stored.outcome.reason.as_deref(), stored.finished_at);
        assert_eq!(end, (Some("endpoint_deleted"), Some(after(5))));
        words.push(word("run.finished", ends_as.as_str()));
    }
    let mut told = told(store, id).await;
    told.sort();
    words.sort();
    assert_eq!(told, words, "each end is told");
    assert_eq!(standing(store, &sent).await, (OperationState::Uncertain, None));
    assert_eq!(standing(store, &unsent).await, (OperationState::Prepared, None));
    let late = after_event(&posted.progress, OperationEvent::Applied, after(6));
    let late = store.update_operation(id, sent.intent.id, &late).await;
    assert!(matches!(late, Err(StoreError::Stale)), "the end was a step: {late:?}");
}

pub(crate) async fn what_an_operation_said_goes_with_the_payload_of_its_run(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let short = Retention { run_retention_h: 10, result_retention_h: 2 };
    store.update_org(&Org { retention: short, ..tenant.org }, audit(id)).await.unwrap();
    let (done, operation) = sent_run(store, &endpoint).await;
    let mut applied = after_event(&operation.progress, OperationEvent::Applied, after(1));
    applied.receipt = Some(json("{}"));
    store.change_run(&step(&done, RunOutcome::completed(json("1")), applied)).await.unwrap();
    // Its run has ended, and its operation has not: nothing of it goes before it has.
    let (ended, operation) = sent_run(store, &endpoint).await;
    let outcome = RunOutcome::ended(RunStatus::Uncertain, true, "interrupted");
    store.change_run(&change(&ended, outcome)).await.unwrap();

    store.purge(T0.plus(2 * HOUR + Duration::from_secs(1))).await.unwrap();
    let stored = store.operation(id, done.intent.id).await.unwrap().expect("it stays");
    assert_eq!((stored.intent.body.as_str(), stored.progress.receipt), ("null", None));
    assert_eq!(stored.progress.state, OperationState::Applied);
    let stored = store.operation(id, ended.intent.id).await.unwrap().expect("it stays");
    assert_eq!(stored, operation);
    let stored = store.run(id, ended.intent.id).await.unwrap().expect("it stays");
    assert_eq!(stored.intent.arguments_sent, ended.intent.arguments_sent);

    store.purge(T0.plus(11 * HOUR)).await.unwrap();
    assert_eq!(store.operation(id, done.intent.id).await.unwrap(), None, "it goes with its run");
    assert_eq!(store.operation(id, ended.intent.id).await.unwrap().as_ref(), Some(&operation));
    let end = after_event(&operation.progress, OperationEvent::Applied, after(2));
    store.update_operation(id, ended.intent.id, &end).await.unwrap();
    store.purge(T0.plus(11 * HOUR)).await.unwrap();
    assert!(store.list_operations(id, None, &first(9)).await.unwrap().items.is_empty());
    assert_eq!(store.run(id, ended.intent.id).await.unwrap(), None);
}
