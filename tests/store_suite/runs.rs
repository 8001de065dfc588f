//! Runs.

use crate::fixtures::*;
use futures_util::future::join_all;
use toolgate::domain::error_code::ErrorCode;
use toolgate::domain::ids::RunId;
use toolgate::domain::run::{Run, RunError, RunOutcome, RunStatus};
use toolgate::engine::store_port::{
    Admission, ChangedRun, InsertedRun, PageRequest, RunFilter, Store, StoreError, UsageRow,
};

/// adcp-client#313, oceanbase/powercontext#1098: JSON goes through as the bytes it came in.
pub(crate) async fn a_run_comes_back_byte_for_byte(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let mut runs: Vec<Run> = (0..6).map(|n| finished_run(&endpoint, after(n))).collect();
    runs[0].outcome = RunOutcome::completed(json(r#"{"a":1.0,  "n":1e400,"n":725653563933458432}"#));
    runs[1].outcome = RunOutcome::completed(json("null"));
    runs[2].outcome = RunOutcome {
        error: Some(RunError::Provider(json(r#"{"code":"x",   "message":"why"}"#))),
        result: Some(json("[]")),
        ..RunOutcome::bare(RunStatus::Failed, true)
    };
    runs[2].intent.arguments_coerced = None;
    runs[2].intent.caller = Some("whatsapp:+2010".to_owned());
    runs[2].intent.request_id = None;
    runs[3].outcome = RunOutcome::failed(true, ErrorCode::OutputInvalid, "no");
    runs[3].withheld_result = Some(json("null"));
    runs[3].attempts = vec![attempt("connect_refused"), attempt("answered")];
    runs[4].outcome = RunOutcome::ended(RunStatus::Expired, true, "pending_expired");
    runs[4].provider_correlation_id = Some("p-1".to_owned());
    runs[5].outcome = RunOutcome::failed(true, ErrorCode::ExecutionFailed, "in the provider's own words");
    for run in &runs {
        assert_eq!(home.store().insert_run(run, Admission::default()).await.unwrap(), InsertedRun::Inserted);
    }
    home.drop_and_reopen();
    for run in runs {
        assert_eq!(home.store().run(tenant.org.id, run.intent.id).await.unwrap(), Some(run));
    }
    assert_eq!(home.store().run(tenant.org.id, RunId::from_uuid(uuid())).await.unwrap(), None);
}

pub(crate) async fn a_run_needs_its_endpoint(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (other, _) = tenant_with_endpoint(store, "other").await;
    let mut stranger = run_at(&endpoint, T0);
    stranger.intent.org_id = other.org.id;
    assert!(matches!(store.insert_run(&stranger, Admission::default()).await, Err(StoreError::NotFound)));
    store.delete_endpoint(tenant.org.id, endpoint.id, None, T0, audit(tenant.org.id)).await.unwrap();
    let inserted = store.insert_run(&run_at(&endpoint, T0), with_token(1)).await;
    assert!(matches!(inserted, Err(StoreError::NotFound)));
}

pub(crate) async fn a_confirmation_token_starts_one_run(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (one, two) = (run_at(&endpoint, T0), run_at(&endpoint, T0));
    assert_eq!(store.insert_run(&one, with_token(1)).await.unwrap(), InsertedRun::Inserted);
    let again = store.insert_run(&two, with_token(1)).await.unwrap();
    assert_eq!(again, InsertedRun::TokenUsed(one.intent.id));
    assert_eq!(store.run(tenant.org.id, two.intent.id).await.unwrap(), None);
    assert_eq!(store.insert_run(&two, with_token(2)).await.unwrap(), InsertedRun::Inserted);
    home.drop_and_reopen();
    let again = home.store().insert_run(&run_at(&endpoint, T0), with_token(1)).await.unwrap();
    assert_eq!(again, InsertedRun::TokenUsed(one.intent.id), "also after a restart");
    assert_eq!(home.store().token_run(token(1).nonce_hash).await.unwrap(), Some(one.intent.id));
    assert_eq!(home.store().token_run(token(9).nonce_hash).await.unwrap(), None);
}

/// laravel-idempotency#1: looking and taking are one step.
pub(crate) async fn of_fifty_uses_of_a_token_one_starts_a_run(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let runs: Vec<Run> = (0..50).map(|_| run_at(&endpoint, T0)).collect();
    let results = join_all(runs.iter().map(|run| store.insert_run(run, with_token(1)))).await;
    let stored = store.open_runs(tenant.org.id).await.unwrap();
    assert_eq!(stored.len(), 1);
    for (run, result) in runs.iter().zip(results) {
        let expected = if run.intent.id == stored[0].intent.id {
            InsertedRun::Inserted
        } else {
            InsertedRun::TokenUsed(stored[0].intent.id)
        };
        assert_eq!(result.unwrap(), expected);
    }
}

pub(crate) async fn an_open_run_changes_and_a_final_one_does_not(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let mut run = run_at(&endpoint, T0);
    run.outcome = RunOutcome::bare(RunStatus::AwaitingApproval, false);
    store.insert_run(&run, Admission::default()).await.unwrap();

    let mut approved = change(&run, RunOutcome::bare(RunStatus::Pending, true));
    approved.attempts = vec![attempt("answered")];
    let ChangedRun::Changed(now) = store.change_run(&approved).await.unwrap() else { panic!("it was open") };
    run.outcome = approved.outcome;
    run.attempts = approved.attempts;
    run.updated_at = after(10);
    assert_eq!(*now, run);

    let mut failed = change(&run, RunOutcome::failed(true, ErrorCode::OutputInvalid, "no"));
    failed.withheld_result = Some(json("[1,  2]"));
    failed.at = after(20);
    let ChangedRun::Changed(now) = store.change_run(&failed).await.unwrap() else { panic!("it was open") };
    run.outcome = failed.outcome;
    run.withheld_result = failed.withheld_result;
    (run.updated_at, run.finished_at) = (after(20), Some(after(20)));
    assert_eq!(*now, run);

    let mut late = change(&run, RunOutcome::completed(json("1")));
    late.attempts = vec![attempt("late")];
    let ChangedRun::WasFinal(now) = store.change_run(&late).await.unwrap() else { panic!("it was final") };
    run.attempts.push(attempt("late"));
    assert_eq!(*now, run);
    assert_eq!(store.run(tenant.org.id, run.intent.id).await.unwrap(), Some(run.clone()));

    run.intent.id = RunId::from_uuid(uuid());
    let unknown = store.change_run(&change(&run, RunOutcome::completed(json("1")))).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)));
}

pub(crate) async fn of_fifty_outcomes_one_wins(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = pending_run(store, &endpoint).await;
    let changes: Vec<_> = (0..50).map(|n| change(&run, RunOutcome::completed(json(&n.to_string())))).collect();
    let results = join_all(changes.iter().map(|change| store.change_run(change))).await;
    let stored = store.run(tenant.org.id, run.intent.id).await.unwrap().expect("it exists");
    let mut won = 0;
    for (change, result) in changes.iter().zip(results) {
        match result.unwrap() {
            ChangedRun::Changed(now) => {
                won += 1;
                assert_eq!((&now.outcome, &*now), (&change.outcome, &stored));
            }
            ChangedRun::WasFinal(now) => assert_eq!(*now, stored),
        }
    }
    assert_eq!(won, 1);
}

pub(crate) async fn a_finished_run_is_recorded_some_time_later(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let runs: Vec<Run> = (0..1000).map(|n| finished_run(&endpoint, after(n))).collect();
    for run in &runs {
        assert!(home.store().record_later(std::sync::Arc::new(run.clone()), false));
    }
    home.restart().await;
    for run in runs.iter().step_by(99) {
        assert_eq!(home.store().run(tenant.org.id, run.intent.id).await.unwrap().as_ref(), Some(run));
    }
    let usage = home.store().usage(tenant.org.id, T0, after(1000)).await.unwrap();
    assert_eq!(usage.iter().map(|row| row.runs).sum::<u64>(), 1000);
}

pub(crate) async fn what_was_to_be_recorded_later_can_be_waited_for(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    for n in 0..600 {
        let run = finished_run(&endpoint, after(n));
        assert!(home.store().record_later(std::sync::Arc::new(run.clone()), false));
        if n % 50 == 0 {
            home.store().catch_up().await.unwrap();
            assert_eq!(home.store().run(tenant.org.id, run.intent.id).await.unwrap(), Some(run));
        }
    }
    home.store().catch_up().await.unwrap();
    home.store().catch_up().await.unwrap();
}

async fn listed(store: &dyn Store, endpoint_of: &Run, filter: RunFilter) -> Vec<RunId> {
    let page = store.list_runs(endpoint_of.intent.org_id, &filter, &first(200)).await.unwrap();
    page.items.into_iter().map(|run| run.intent.id).collect()
}

pub(crate) async fn runs_are_listed_newest_first_and_filtered(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let mut runs: Vec<Run> = (0..6).map(|n| run_at(&endpoint, after(n / 2))).collect();
    runs[1].intent.tool = "other".to_owned();
    runs[2].intent.endpoint_name = "renamed".to_owned();
    runs[3].outcome = RunOutcome::completed(json("3"));
    for run in &runs {
        store.insert_run(run, Admission::default()).await.unwrap();
    }
    let newest_first: Vec<RunId> = runs.iter().rev().map(|run| run.intent.id).collect();
    assert_eq!(listed(store, &runs[0], RunFilter::default()).await, newest_first);
    let only = |status, tool: Option<&str>, endpoint: Option<&str>| RunFilter {
        status,
        tool: tool.map(str::to_owned),
        endpoint: endpoint.map(str::to_owned),
    };
    let id = |n: usize| runs[n].intent.id;
    assert_eq!(listed(store, &runs[0], only(Some(RunStatus::Completed), None, None)).await, [id(3)]);
    assert_eq!(listed(store, &runs[0], only(None, Some("other"), None)).await, [id(1)]);
    assert_eq!(listed(store, &runs[0], only(None, None, Some("renamed"))).await, [id(2)]);
    let none = only(Some(RunStatus::Completed), Some("other"), None);
    assert!(listed(store, &runs[0], none).await.is_empty());

    let mut seen = Vec::new();
    let mut page = first(4);
    loop {
        let part = store.list_runs(tenant.org.id, &RunFilter::default(), &page).await.unwrap();
        seen.extend(part.items.into_iter().map(|run| run.intent.id));
        let Some(cursor) = part.next_cursor else { break };
        // What comes in between does not move the parts.
        store.insert_run(&run_at(&endpoint, after(100)), Admission::default()).await.unwrap();
        page = PageRequest { limit: 4, cursor: Some(cursor) };
    }
    assert_eq!(seen, newest_first);
}

pub(crate) async fn a_page_of_large_runs_is_a_short_one(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let large = format!("\"{}\"", "x".repeat(3 << 20));
    let mut runs: Vec<Run> = (0..4).map(|n| finished_run(&endpoint, after(n))).collect();
    for run in &mut runs {
        run.outcome = RunOutcome::completed(json(&large));
        store.insert_run(run, Admission::default()).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut page = first(200);
    loop {
        let part = store.list_runs(tenant.org.id, &RunFilter::default(), &page).await.unwrap();
        assert_eq!(part.items.len(), 1, "two of them are more than a page holds");
        seen.extend(part.items.into_iter().map(|run| run.intent.id));
        let Some(cursor) = part.next_cursor else { break };
        page = PageRequest { limit: 200, cursor: Some(cursor) };
    }
    assert_eq!(seen, runs.iter().rev().map(|run| run.intent.id).collect::<Vec<_>>());
}

pub(crate) async fn usage_counts_by_tool_and_status(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    for n in 0..5 {
        store.insert_run(&run_at(&endpoint, after(n)), Admission::default()).await.unwrap();
    }
    store.insert_run(&finished_run(&endpoint, after(2)), Admission::default()).await.unwrap();
    let row = |status, runs| UsageRow { tool: "weather-report".to_owned(), status, runs };
    let usage = store.usage(tenant.org.id, after(1), after(4)).await.unwrap();
    assert_eq!(usage, [row(RunStatus::Completed, 1), row(RunStatus::Pending, 3)], "from is in, to is not");
}

pub(crate) async fn open_runs_are_those_that_can_still_change(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let mut open = Vec::new();
    for (n, status) in (0..).zip(RunStatus::ALL) {
        let mut run = run_at(&endpoint, after(n));
        run.outcome.status = status;
        home.store().insert_run(&run, Admission::default()).await.unwrap();
        if status.is_open() {
            let mut partial = change(&run, RunOutcome { result: Some(json("1")), ..run.outcome.clone() });
            partial.withheld_result = Some(json("2"));
            partial.attempts = vec![attempt("answered")];
            let ChangedRun::Changed(now) = home.store().change_run(&partial).await.unwrap() else {
                panic!("it is open")
            };
            open.push(bare(*now));
        }
    }
    home.drop_and_reopen();
    assert_eq!(home.store().open_runs(tenant.org.id).await.unwrap(), open, "without what is private");
}

pub(crate) async fn what_was_acknowledged_survives_a_restart(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let runs: Vec<Run> = (0..200).map(|n| run_at(&endpoint, after(n))).collect();
    for result in join_all(runs.iter().map(|run| home.store().insert_run(run, Admission::default()))).await {
        assert_eq!(result.unwrap(), InsertedRun::Inserted);
    }
    home.drop_and_reopen();
    let open: Vec<Run> = runs.iter().cloned().map(bare).collect();
    assert_eq!(home.store().open_runs(tenant.org.id).await.unwrap(), open);
    let page = home.store().list_runs(tenant.org.id, &RunFilter::default(), &first(200)).await.unwrap();
    assert_eq!(page.items.into_iter().rev().collect::<Vec<_>>(), runs);
}
