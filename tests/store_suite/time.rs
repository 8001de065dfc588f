//! What is due, and what is past its retention.

use crate::fixtures::*;
use std::time::Duration;
use toolgate::domain::org::{Org, OrgState, Retention};
use toolgate::domain::run::{RunError, RunOutcome, RunStatus};
use toolgate::domain::time::Timestamp;
use toolgate::engine::store_port::{Admission, Due, InsertedRun, RunFilter};

pub(crate) async fn what_is_due_comes_earliest_first_and_is_leased(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    store.set_sync_due(id, endpoint.id, after(500)).await.unwrap();
    let mut runs: Vec<_> = (0..3).map(|_| run_at(&endpoint, T0)).collect();
    for (run, at) in runs.iter_mut().zip([900, 100, 600]) {
        run.intent.expires_at = Some(after(at));
        store.insert_run(run, Admission::default()).await.unwrap();
    }
    let expiry = |n: usize| Due::RunExpiry(id, runs[n].intent.id);
    let lease = Duration::from_millis(1000);
    assert!(store.take_due(after(99), lease, 9).await.unwrap().is_empty());
    let due = store.take_due(after(600), lease, 2).await.unwrap();
    assert_eq!(due, [expiry(1), Due::Sync(id, endpoint.id)]);
    assert_eq!(store.take_due(after(600), lease, 9).await.unwrap(), [expiry(2)], "what was taken is leased");
    home.drop_and_reopen();
    let due = home.store().take_due(after(1600), lease, 9).await.unwrap();
    assert_eq!(due.len(), 4, "a lease that ends without an end brings it back: {due:?}");
    assert_eq!(due[0], expiry(0));
}

pub(crate) async fn only_working_endpoints_of_working_organizations_are_synced(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let mut disabled = self::endpoint(id, "disabled");
    disabled.settings.enabled = false;
    store.create_endpoint(&disabled, 100, None, audit(id)).await.unwrap();
    let (gone, gone_endpoint) = tenant_with_endpoint(store, "gone").await;
    for (org, endpoint) in [(id, endpoint.id), (id, disabled.id), (gone.org.id, gone_endpoint.id)] {
        store.set_sync_due(org, endpoint, T0).await.unwrap();
    }
    store.delete_org(gone.org.id, T0, audit(gone.org.id)).await.unwrap();
    let mut org = store.update_org(&Org { state: OrgState::Suspended, ..tenant.org }, audit(id)).await.unwrap();
    let run = pending_run(store, &endpoint).await;
    let due = store.take_due(T0.plus(HOUR), HOUR, 9).await.unwrap();
    assert_eq!(due, [Due::RunExpiry(id, run.intent.id)], "a run of a suspended organization still ends");
    org.state = OrgState::Active;
    store.update_org(&org, audit(id)).await.unwrap();
    assert_eq!(store.take_due(T0.plus(HOUR), HOUR, 9).await.unwrap(), [Due::Sync(id, endpoint.id)]);
    let mut end = sync_end(&endpoint, None);
    store.finish_sync(&end).await.unwrap();
    assert!(store.take_due(T0.plus(10 * HOUR), HOUR, 9).await.unwrap().iter().all(|due| !matches!(due, Due::Sync(..))));
    end = sync_end(&endpoint, None);
    end.next_due = Some(T0.plus(20 * HOUR));
    store.finish_sync(&end).await.unwrap();
    let due = store.take_due(T0.plus(20 * HOUR), HOUR, 9).await.unwrap();
    assert!(due.contains(&Due::Sync(id, endpoint.id)));
}

pub(crate) async fn a_final_run_is_not_due(home: &mut Home) {
    let store = home.store();
    let (_, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = pending_run(store, &endpoint).await;
    store.insert_run(&finished_run(&endpoint, T0), Admission::default()).await.unwrap();
    let moved = change(&run, RunOutcome::bare(RunStatus::Pending, true));
    store.change_run(&moved).await.unwrap();
    assert_eq!(store.take_due(T0.plus(HOUR), Duration::ZERO, 9).await.unwrap().len(), 1, "pending stays due");
    store.change_run(&change(&run, RunOutcome::ended(RunStatus::Expired, true, "x"))).await.unwrap();
    assert!(store.take_due(T0.plus(2 * HOUR), HOUR, 9).await.unwrap().is_empty());
}

pub(crate) async fn payloads_go_before_their_runs(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let short = Retention { run_retention_h: 10, result_retention_h: 2 };
    store.update_org(&Org { retention: short, ..tenant.org }, audit(id)).await.unwrap();
    let completed = finished_run(&endpoint, T0);
    let mut failed = finished_run(&endpoint, T0);
    failed.outcome = RunOutcome {
        error: Some(RunError::Provider(json(r#"{"code":"x"}"#))),
        ..RunOutcome::bare(RunStatus::Failed, true)
    };
    failed.withheld_result = Some(json("1"));
    let mut late = finished_run(&endpoint, T0);
    late.finished_at = Some(T0.plus(HOUR));
    for run in [&completed, &failed, &late] {
        store.insert_run(run, Admission::default()).await.unwrap();
    }
    store.purge(T0.plus(2 * HOUR)).await.unwrap();
    assert_eq!(store.run(id, completed.intent.id).await.unwrap().as_ref(), Some(&completed), "the hour still counts");

    store.purge(T0.plus(2 * HOUR + Duration::from_millis(1))).await.unwrap();
    let mut bare = completed.clone();
    bare.intent.arguments_sent = json("null");
    bare.intent.arguments_coerced = None;
    bare.outcome.result = None;
    assert_eq!(store.run(id, completed.intent.id).await.unwrap(), Some(bare));
    let stored = store.run(id, failed.intent.id).await.unwrap().expect("it stays");
    assert_eq!((stored.outcome.error, stored.withheld_result, stored.outcome.status), (None, None, RunStatus::Failed));
    assert_eq!(store.run(id, late.intent.id).await.unwrap().as_ref(), Some(&late), "counted from its end");

    store.purge(T0.plus(10 * HOUR + Duration::from_millis(1))).await.unwrap();
    let left = store.list_runs(id, &RunFilter::default(), &first(9)).await.unwrap().items;
    assert_eq!(left.iter().map(|run| run.intent.id).collect::<Vec<_>>(), [late.intent.id]);
}

pub(crate) async fn open_runs_outlive_every_retention(home: &mut Home) {
    let mut open = Vec::new();
    for (slug, finished) in [("one", 1100), ("two", 0), ("three", 30)] {
        let (_, endpoint) = tenant_with_endpoint(home.store(), slug).await;
        open.push(pending_run(home.store(), &endpoint).await);
        for _ in 0..finished {
            assert!(home.store().record_later(std::sync::Arc::new(finished_run(&endpoint, T0)), false));
        }
    }
    home.restart().await;
    home.store().purge(T0.plus(10_000 * HOUR)).await.unwrap();
    for run in open {
        let left = home.store().list_runs(run.intent.org_id, &RunFilter::default(), &first(9)).await.unwrap();
        assert_eq!(left.items, [run], "all others are gone, portion by portion");
    }
}

pub(crate) async fn used_tokens_are_forgotten_after_their_time(home: &mut Home) {
    let store = home.store();
    let (_, endpoint) = tenant_with_endpoint(store, "acme").await;
    store.insert_run(&run_at(&endpoint, T0), with_token(1)).await.unwrap();
    store.purge(after(599_999)).await.unwrap();
    let used = store.insert_run(&run_at(&endpoint, T0), with_token(1)).await.unwrap();
    assert!(matches!(used, InsertedRun::TokenUsed(_)));
    store.purge(after(600_000)).await.unwrap();
    let used = store.insert_run(&run_at(&endpoint, T0), with_token(1)).await.unwrap();
    assert_eq!(used, InsertedRun::Inserted);
}

pub(crate) async fn old_audit_syncs_and_feed_are_purged(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    store.finish_sync(&sync_end(&endpoint, None)).await.unwrap();
    let day = |n: i64| Timestamp::from_millis(T0.as_millis() + n * 86_400_000);
    store.purge(day(30)).await.unwrap();
    assert_eq!(store.list_syncs(id, endpoint.id, &first(9)).await.unwrap().items.len(), 1);
    store.purge(day(31)).await.unwrap();
    assert!(store.list_syncs(id, endpoint.id, &first(9)).await.unwrap().items.is_empty());
    store.purge(day(90)).await.unwrap();
    assert_eq!(store.list_audit(id, &first(9)).await.unwrap().items.len(), 3);
    store.purge(day(91)).await.unwrap();
    assert!(store.list_audit(id, &first(9)).await.unwrap().items.is_empty());
    assert!(store.org(id).await.unwrap().is_some(), "the organization itself stays");
}
