//! Callbacks: early, late, twice, and never across a border.

use crate::fixtures::*;
use futures_util::future::join_all;
use std::time::Duration;
use toolgate::domain::endpoint::Endpoint;
use toolgate::domain::ids::RunId;
use toolgate::domain::run::{Run, RunOutcome, RunStatus};
use toolgate::domain::time::Timestamp;
use toolgate::engine::store_port::{
    CallbackRecord, KeptCallback, MAX_EARLY_CALLBACK_BYTES, RunChange, SettledCallback, Store, StoreError,
};

const TTL: Duration = Duration::from_secs(120);

async fn keep(store: &dyn Store, callback: &CallbackRecord) -> KeptCallback {
    store.keep_callback(callback, TTL, 3).await.unwrap()
}

fn completed(run: &Run) -> RunChange {
    change(run, RunOutcome::completed(json(r#"{"sky": "blue"}"#)))
}

async fn accepted_run(store: &dyn Store, endpoint: &Endpoint, correlation_id: &str) -> Run {
    let run = pending_run(store, endpoint).await;
    let id = (run.intent.org_id, run.intent.id);
    store.accept_run(id.0, id.1, correlation_id, &attempt("answered"), T0).await.unwrap();
    store.run(id.0, id.1).await.unwrap().expect("it exists")
}

/// pybotx#482, rpyc#136: an answer that outruns its own acknowledgement is kept for it.
pub(crate) async fn an_early_callback_is_answered_and_settles_its_run_once(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = pending_run(store, &endpoint).await;
    let id = (tenant.org.id, run.intent.id);
    let early = callback(&endpoint, "w1", "p1");
    assert_eq!(keep(store, &early).await, KeptCallback::Early);
    assert_eq!(keep(store, &early).await, KeptCallback::Duplicate, "delivered again while it waits");

    let answered = store.accept_run(id.0, id.1, "p1", &attempt("answered"), after(1)).await.unwrap();
    assert_eq!(answered, Some(early.clone()));
    let accepted = store.run(id.0, id.1).await.unwrap().expect("it exists");
    assert_eq!(accepted.provider_correlation_id.as_deref(), Some("p1"));
    assert_eq!((accepted.attempts.len(), accepted.outcome.status), (1, RunStatus::Pending));

    let SettledCallback::Settled(settled) = store.settle_by_callback(&early, &completed(&run)).await.unwrap() else {
        panic!("a callback that was kept is not a duplicate of itself");
    };
    assert_eq!(settled.outcome, completed(&run).outcome);
    assert_eq!(settled.finished_at, Some(after(10)));
    let again = store.settle_by_callback(&early, &completed(&run)).await.unwrap();
    assert_eq!(again, SettledCallback::Duplicate);
    assert_eq!(keep(store, &early).await, KeptCallback::Duplicate);
    assert_eq!(store.accept_run(id.0, id.1, "p1", &attempt("again"), after(2)).await.unwrap(), None, "it is used up");
    assert!(store.early_callbacks(tenant.org.id, after(2)).await.unwrap().is_empty());
}

pub(crate) async fn a_callback_matches_our_id_before_the_providers_own(home: &mut Home) {
    let store = home.store();
    let (_, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (one, two) = (accepted_run(store, &endpoint, "p1").await, accepted_run(store, &endpoint, "p2").await);
    let mut both = callback(&endpoint, "w1", "p2");
    both.request_id = Some(one.intent.id);
    assert_eq!(keep(store, &both).await, KeptCallback::Matches(Box::new(one.clone())));
    assert_eq!(keep(store, &both).await, KeptCallback::Matches(Box::new(one.clone())), "nothing was stored");
    let by_correlation = callback(&endpoint, "w2", "p2");
    assert_eq!(keep(store, &by_correlation).await, KeptCallback::Matches(Box::new(two)));
    both.correlation_id = None;
    assert_eq!(keep(store, &both).await, KeptCallback::Matches(Box::new(one)));
}

pub(crate) async fn a_callback_never_reaches_another_endpoint_or_organization(home: &mut Home) {
    let store = home.store();
    let (tenant, one) = tenant_with_endpoint(store, "acme").await;
    let sibling = endpoint(tenant.org.id, "two");
    store.create_endpoint(&sibling, 100, None, audit(tenant.org.id)).await.unwrap();
    let (other, foreign) = tenant_with_endpoint(store, "other").await;
    let run = accepted_run(store, &one, "p1").await;
    for stranger in [&sibling, &foreign] {
        let mut record = callback(stranger, "w1", "p1");
        record.request_id = Some(run.intent.id);
        assert_eq!(keep(store, &record).await, KeptCallback::Early);
        let settled = store.settle_by_callback(&record, &completed(&run)).await;
        assert!(matches!(settled, Err(StoreError::NotFound)), "{settled:?}");
        let mut moved = completed(&run);
        moved.org_id = other.org.id;
        assert!(matches!(store.settle_by_callback(&record, &moved).await, Err(StoreError::NotFound)));
    }
    assert!(store.early_callbacks(tenant.org.id, T0).await.unwrap().is_empty());
    let id = (run.intent.org_id, run.intent.id);
    assert_eq!(store.accept_run(id.0, id.1, "p1", &attempt("answered"), T0).await.unwrap(), None);
    assert_eq!(store.run(id.0, id.1).await.unwrap().expect("it exists").outcome, run.outcome);
    let nowhere = callback(&endpoint(tenant.org.id, "never-stored"), "w1", "p1");
    assert!(matches!(store.keep_callback(&nowhere, TTL, 3).await, Err(StoreError::NotFound)));
}

pub(crate) async fn an_early_callback_expires(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = pending_run(store, &endpoint).await;
    let mut early = callback(&endpoint, "w1", "p1");
    // An id of ours that never was; the provider's own still counts.
    early.request_id = Some(RunId::from_uuid(uuid()));
    assert_eq!(keep(store, &early).await, KeptCallback::Early);
    let id = (tenant.org.id, run.intent.id);
    let over = T0.plus(TTL);
    assert_eq!(store.accept_run(id.0, id.1, "p1", &attempt("answered"), over).await.unwrap(), None);
    assert!(store.early_callbacks(tenant.org.id, over).await.unwrap().is_empty());

    let before = Timestamp::from_millis(over.as_millis() - 1);
    let waiting = store.early_callbacks(tenant.org.id, before).await.unwrap();
    assert_eq!(waiting, [(run.intent.id, early.clone())]);
    store.purge(over).await.unwrap();
    assert!(store.early_callbacks(tenant.org.id, before).await.unwrap().is_empty(), "purged");
    let mut other = callback(&endpoint, "w2", "p9");
    assert_eq!(keep(store, &other).await, KeptCallback::Early);
    other.at = over;
    assert_eq!(keep(store, &other).await, KeptCallback::Early, "delivered again after its time, it waits anew");
}

pub(crate) async fn only_so_many_early_callbacks_are_kept(home: &mut Home) {
    let store = home.store();
    let (tenant, one) = tenant_with_endpoint(store, "acme").await;
    let two = endpoint(tenant.org.id, "two");
    store.create_endpoint(&two, 100, None, audit(tenant.org.id)).await.unwrap();
    for n in 0..3 {
        assert_eq!(keep(store, &callback(&one, &format!("w{n}"), "p")).await, KeptCallback::Early);
    }
    let mut more = callback(&one, "w9", "p");
    assert_eq!(keep(store, &more).await, KeptCallback::TooMany);
    assert_eq!(keep(store, &callback(&one, "w0", "p")).await, KeptCallback::Duplicate, "a known one is no more");
    assert_eq!(keep(store, &callback(&two, "w9", "p")).await, KeptCallback::Early, "each endpoint for itself");
    more.at = T0.plus(TTL);
    assert_eq!(keep(store, &more).await, KeptCallback::Early, "those whose time is over do not count");
}

pub(crate) async fn only_so_many_bytes_of_early_callbacks_are_kept(home: &mut Home) {
    let store = home.store();
    let (tenant, one) = tenant_with_endpoint(store, "acme").await;
    let two = endpoint(tenant.org.id, "two");
    store.create_endpoint(&two, 100, None, audit(tenant.org.id)).await.unwrap();
    let large = |endpoint, n: u64, bytes: u64| {
        let body = format!("\"{}\"", "x".repeat(usize::try_from(bytes).expect("it fits") - 2));
        CallbackRecord { body: json(&body), ..callback(endpoint, &format!("w{n}"), "p") }
    };
    const QUARTER: u64 = MAX_EARLY_CALLBACK_BYTES / 4;
    let keep = async |record: &CallbackRecord| store.keep_callback(record, TTL, 1000).await.unwrap();
    for n in 0..3 {
        assert_eq!(keep(&large(&one, n, QUARTER)).await, KeptCallback::Early);
    }
    let mut more = large(&one, 9, QUARTER);
    assert_eq!(keep(&more).await, KeptCallback::TooMany, "what is stored is a little more than what came");
    assert_eq!(keep(&large(&one, 3, 1000)).await, KeptCallback::Early, "a small one still fits");
    assert_eq!(keep(&large(&two, 9, QUARTER)).await, KeptCallback::Early, "each endpoint for itself");
    more.at = T0.plus(TTL);
    assert_eq!(keep(&more).await, KeptCallback::Early, "those whose time is over do not count");
}

/// Dekaf#655: a late answer is recorded as late.
pub(crate) async fn a_callback_of_a_final_run_is_late(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = accepted_run(store, &endpoint, "p1").await;
    let expired = change(&run, RunOutcome::ended(RunStatus::Expired, true, "pending_expired"));
    store.change_run(&expired).await.unwrap();
    let late = callback(&endpoint, "w1", "p1");
    assert_eq!(keep(store, &late).await, KeptCallback::Late(run.intent.id));
    assert_eq!(keep(store, &late).await, KeptCallback::Duplicate);
    let other = callback(&endpoint, "w2", "p1");
    let settled = store.settle_by_callback(&other, &completed(&run)).await.unwrap();
    assert_eq!(settled, SettledCallback::Late(run.intent.id));
    assert_eq!(store.settle_by_callback(&other, &completed(&run)).await.unwrap(), SettledCallback::Duplicate);
    let stored = store.run(tenant.org.id, run.intent.id).await.unwrap().expect("it exists");
    assert_eq!(stored.outcome, expired.outcome, "the first final word stands");
}

/// The first terminal result wins; a different later one is ignored, which is not the same as late.
pub(crate) async fn a_second_result_is_ignored(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    for (n, status) in (0..).zip(RunStatus::ALL.into_iter().filter(|status| !status.is_open())) {
        let run = accepted_run(store, &endpoint, &format!("p{n}")).await;
        let first = change(&run, RunOutcome::bare(status, true));
        store.change_run(&first).await.unwrap();
        let kept = keep(store, &callback(&endpoint, &format!("kept-{n}"), &format!("p{n}"))).await;
        let late = callback(&endpoint, &format!("late-{n}"), &format!("p{n}"));
        let settled = store.settle_by_callback(&late, &completed(&run)).await.unwrap();
        let id = run.intent.id;
        let expected = if matches!(status, RunStatus::Completed | RunStatus::Failed) {
            (KeptCallback::Ignored(id), SettledCallback::Ignored(id))
        } else {
            (KeptCallback::Late(id), SettledCallback::Late(id))
        };
        assert_eq!((kept, settled), expected, "{status:?}");
        let again = store.settle_by_callback(&late, &completed(&run)).await.unwrap();
        assert_eq!(again, SettledCallback::Duplicate, "{status:?}");
        let stored = store.run(tenant.org.id, id).await.unwrap().expect("it exists");
        assert_eq!(stored.outcome, first.outcome, "{status:?}");
    }
}

pub(crate) async fn a_crash_between_acceptance_and_settling_loses_nothing(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let run = pending_run(home.store(), &endpoint).await;
    let early = callback(&endpoint, "w1", "p1");
    assert_eq!(keep(home.store(), &early).await, KeptCallback::Early);
    let id = (tenant.org.id, run.intent.id);
    let answered = home.store().accept_run(id.0, id.1, "p1", &attempt("answered"), after(1)).await.unwrap();
    assert_eq!(answered.as_ref(), Some(&early));

    home.drop_and_reopen();
    let store = home.store();
    let much_later = T0.plus(HOUR);
    store.purge(much_later).await.unwrap();
    let waiting = store.early_callbacks(tenant.org.id, much_later).await.unwrap();
    assert_eq!(waiting, [(run.intent.id, early.clone())], "it came in time, so its time is not over");
    let answered = store.accept_run(id.0, id.1, "p1", &attempt("answered"), much_later).await.unwrap();
    assert_eq!(answered.as_ref(), Some(&early), "asking again answers again");
    let settled = store.settle_by_callback(&early, &completed(&run)).await.unwrap();
    assert!(matches!(settled, SettledCallback::Settled(_)), "{settled:?}");
    assert!(store.early_callbacks(tenant.org.id, much_later).await.unwrap().is_empty());
}

pub(crate) async fn a_second_delivery_after_a_crash_still_matches(home: &mut Home) {
    let (_, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let early = callback(&endpoint, "w1", "p1");
    assert_eq!(keep(home.store(), &early).await, KeptCallback::Early);
    let run = accepted_run(home.store(), &endpoint, "p1").await;
    home.drop_and_reopen();
    let store = home.store();
    assert_eq!(keep(store, &early).await, KeptCallback::Matches(Box::new(run.clone())));
    let settled = store.settle_by_callback(&early, &completed(&run)).await.unwrap();
    assert!(matches!(settled, SettledCallback::Settled(_)), "{settled:?}");
    assert_eq!(keep(store, &early).await, KeptCallback::Duplicate);
}

pub(crate) async fn of_fifty_callbacks_one_settles_the_run(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = accepted_run(store, &endpoint, "p1").await;
    let both: Vec<_> = (0..50)
        .map(|n| {
            let outcome = RunOutcome::completed(json(&n.to_string()));
            (callback(&endpoint, &format!("w{n}"), "p1"), change(&run, outcome))
        })
        .collect();
    let results = join_all(both.iter().map(|(callback, change)| store.settle_by_callback(callback, change))).await;
    let stored = store.run(tenant.org.id, run.intent.id).await.unwrap().expect("it exists");
    let mut settled = 0;
    for ((_, change), result) in both.iter().zip(results) {
        match result.unwrap() {
            SettledCallback::Settled(now) => {
                settled += 1;
                assert_eq!((&now.outcome, &*now), (&change.outcome, &stored));
            }
            SettledCallback::Ignored(id) => assert_eq!(id, run.intent.id),
            SettledCallback::Late(_) => panic!("the run has its result"),
            SettledCallback::Duplicate => panic!("each has an id of its own"),
        }
    }
    assert_eq!(settled, 1);
}

pub(crate) async fn one_webhook_id_settles_once(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let (one, two) = (accepted_run(store, &endpoint, "p1").await, accepted_run(store, &endpoint, "p2").await);
    let record = callback(&endpoint, "w1", "p1");
    let change = completed(&one);
    let results = join_all((0..50).map(|_| store.settle_by_callback(&record, &change))).await;
    let settled = results.iter().filter(|r| matches!(r, Ok(SettledCallback::Settled(_)))).count();
    let duplicates = results.iter().filter(|r| matches!(r, Ok(SettledCallback::Duplicate))).count();
    assert_eq!((settled, duplicates), (1, 49));
    let again = store.settle_by_callback(&record, &completed(&two)).await.unwrap();
    assert_eq!(again, SettledCallback::Duplicate, "whatever run it names the second time");
    let stored = store.run(tenant.org.id, two.intent.id).await.unwrap().expect("it exists");
    assert_eq!(stored.outcome.status, RunStatus::Pending);
}

pub(crate) async fn a_webhook_id_is_remembered_for_a_day(home: &mut Home) {
    let store = home.store();
    let (_, endpoint) = tenant_with_endpoint(store, "acme").await;
    let run = accepted_run(store, &endpoint, "p1").await;
    let record = callback(&endpoint, "w1", "p1");
    store.settle_by_callback(&record, &completed(&run)).await.unwrap();
    store.purge(T0.plus(24 * HOUR)).await.unwrap();
    assert_eq!(keep(store, &record).await, KeptCallback::Duplicate);
    store.purge(T0.plus(25 * HOUR)).await.unwrap();
    assert_eq!(keep(store, &record).await, KeptCallback::Ignored(run.intent.id));
}
