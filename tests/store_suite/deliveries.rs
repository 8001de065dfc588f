//! Messages to an organization's application.

use crate::fixtures::*;
use crate::mutations::*;
use std::sync::Arc;
use std::time::Duration;
use toolgate::domain::announcement::{Delivery, DeliveryState};
use toolgate::domain::endpoint::{Endpoint, SyncState};
use toolgate::domain::ids::{DeliveryId, OrgId};
use toolgate::domain::manifest::{SyncFault, SyncOutcome, SyncReason};
use toolgate::domain::org::Org;
use toolgate::domain::run::{RunOutcome, RunStatus};
use toolgate::domain::time::Timestamp;
use toolgate::engine::store_port::{
    Admission, DeliveryAttempt, Due, PageRequest, SettledCallback, Store, StoreError, SyncEnd,
};

fn finished() -> (String, String) {
    word("run.finished", "completed")
}

pub(crate) async fn the_end_of_a_run_is_told_once(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    listen(store, id).await;
    let run = pending_run(store, &endpoint).await;
    store.change_run(&change(&run, RunOutcome::bare(RunStatus::Pending, true))).await.unwrap();
    assert!(told(store, id).await.is_empty(), "it goes on");
    let done = change(&run, RunOutcome::completed(json(r#""confidential-blue""#)));
    store.change_run(&done).await.unwrap();
    store.change_run(&done).await.unwrap();
    let messages = store.list_deliveries(id, None, &first(9)).await.unwrap().items;
    assert_eq!(told(store, id).await, [finished()]);
    let body = messages[0].body.as_str();
    assert!(body.contains(&run.intent.id.to_string()) && body.contains("weather-report"), "{body}");
    assert!(!body.contains("confidential-blue") && !body.contains("Secretville"), "{body}");
    let fresh = (messages[0].state, messages[0].attempts, messages[0].next_at, messages[0].created_at);
    assert_eq!(fresh, (DeliveryState::Pending, 0, Some(after(10)), after(10)));

    let run = pending_run(store, &endpoint).await;
    let mut record = callback(&endpoint, "w1", "p1");
    record.request_id = Some(run.intent.id);
    let done = change(&run, RunOutcome::completed(json("1")));
    let settled = store.settle_by_callback(&record, &done).await.unwrap();
    assert!(matches!(settled, SettledCallback::Settled(_)));
    assert_eq!(store.settle_by_callback(&record, &done).await.unwrap(), SettledCallback::Duplicate);
    assert_eq!(told(store, id).await, [finished(), finished()]);

    let later = Arc::new(finished_run(&endpoint, after(20)));
    for announced in [true, true] {
        assert!(store.record_later(Arc::clone(&later), announced));
    }
    assert!(store.record_later(Arc::new(finished_run(&endpoint, after(20))), false));
    store.catch_up().await.unwrap();
    assert_eq!(told(store, id).await.len(), 3, "one of them, once");
    assert!(store.run(id, later.intent.id).await.unwrap().is_some());
}

pub(crate) async fn who_does_not_listen_is_told_nothing(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let id = tenant.org.id;
    let finish = async |store: &dyn Store| {
        let run = pending_run(store, &endpoint).await;
        store.change_run(&change(&run, RunOutcome::completed(json("1")))).await.unwrap();
        assert!(store.record_later(Arc::new(finished_run(&endpoint, T0)), true));
        store.catch_up().await.unwrap();
    };
    finish(home.store()).await;
    assert!(told(home.store(), id).await.is_empty(), "a reviewer is no listener");
    let listening = listen(home.store(), id).await;
    home.drop_and_reopen();
    let store = home.store();
    assert_eq!(store.org(id).await.unwrap().as_ref(), Some(&listening));
    assert_eq!(store.load_org(id).await.unwrap().expect("it exists").org, listening);
    finish(store).await;
    assert_eq!(told(store, id).await.len(), 2);
    let silent = Org { webhook: None, reviewer: None, ..listening };
    let silent = store.update_org(&silent, audit(id)).await.unwrap();
    assert_eq!((silent.webhook, silent.reviewer), (None, None));
    finish(store).await;
    assert_eq!(told(store, id).await.len(), 2);
}

fn sync_with(endpoint: &Endpoint, fault: Option<SyncReason>, at: Timestamp) -> SyncEnd {
    let mut end = sync_end(endpoint, None);
    end.record.at = at;
    let fault = fault.map(|reason| SyncFault::new(reason, "what is wrong"));
    if fault.is_some() {
        end.record.outcome = SyncOutcome::Failed;
    }
    end.record.fault.clone_from(&fault);
    end.state = SyncState { fault, ..end.state };
    end
}

pub(crate) async fn a_failing_sync_is_told_when_its_reason_changes(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    listen(store, id).await;
    let (one, two) = (SyncReason::ALL[0], SyncReason::ALL[1]);
    let faults = [None, Some(one), Some(one), Some(two), Some(two), None, Some(two), None];
    for (n, fault) in (0..).zip(faults) {
        store.finish_sync(&sync_with(&endpoint, fault, after(n))).await.unwrap();
    }
    let expected = [one, two, two].map(|reason| word("endpoint.sync_failed", reason.as_str()));
    assert_eq!(told(store, id).await, expected);
}

async fn message(store: &dyn Store, endpoint: &Endpoint) -> Delivery {
    let run = pending_run(store, endpoint).await;
    store.change_run(&change(&run, RunOutcome::completed(json("1")))).await.expect("changed");
    let found = store.list_deliveries(endpoint.org_id, None, &first(99)).await.expect("listed").items;
    let about = run.intent.id.to_string();
    found.into_iter().find(|message| message.body.as_str().contains(&about)).expect("it is told")
}

fn attempt_at(message: &Delivery, state: DeliveryState, at: Timestamp, next_at: Option<Timestamp>) -> DeliveryAttempt {
    let error = (state != DeliveryState::Delivered).then(|| "answered 500".to_owned());
    DeliveryAttempt { org_id: message.org_id, id: message.id, state, next_at, error, audit: None, at }
}

async fn due(store: &dyn Store, now: Timestamp) -> Vec<Due> {
    store.take_due(now, Duration::from_secs(60), 9).await.expect("taken")
}

pub(crate) async fn a_message_is_due_until_it_is_settled(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let id = tenant.org.id;
    listen(home.store(), id).await;
    let mut message = message(home.store(), &endpoint).await;
    let this = [Due::Delivery(id, message.id)];
    assert!(due(home.store(), after(9)).await.is_empty());
    assert_eq!(due(home.store(), after(10)).await, this);
    assert!(due(home.store(), after(11)).await.is_empty(), "it is leased");
    home.drop_and_reopen();
    let store = home.store();
    let failed = attempt_at(&message, DeliveryState::Pending, after(20), Some(after(5_020)));
    store.note_delivery(&failed).await.unwrap();
    message.attempts = 1;
    (message.next_at, message.last_error, message.updated_at) = (Some(after(5_020)), failed.error, after(20));
    assert_eq!(store.delivery(id, message.id).await.unwrap(), Some(message.clone()));
    assert_eq!(due(store, after(5_020)).await, this);

    let mut given_up = attempt_at(&message, DeliveryState::GivenUp, after(6_000), None);
    let mut entry = audit(id);
    entry.action = "webhook.give_up".to_owned();
    given_up.audit = Some(entry);
    store.note_delivery(&given_up).await.unwrap();
    assert_eq!(store.list_audit(id, &first(1)).await.unwrap().items[0].action, "webhook.give_up");
    let entries = store.list_audit(id, &first(99)).await.unwrap().items.len();
    given_up.audit = Some(audit(id));
    given_up.state = DeliveryState::Delivered;
    store.note_delivery(&given_up).await.unwrap();
    let stored = store.delivery(id, message.id).await.unwrap().expect("it is there");
    assert_eq!((stored.state, stored.attempts, stored.next_at), (DeliveryState::GivenUp, 2, None), "it stays so");
    assert_eq!(store.list_audit(id, &first(99)).await.unwrap().items.len(), entries);
    assert!(due(store, T0.plus(HOUR)).await.is_empty());

    given_up.id = DeliveryId::from_uuid(uuid());
    assert!(matches!(store.note_delivery(&given_up).await, Err(StoreError::NotFound)));
    let (other, _) = tenant_with_endpoint(store, "other").await;
    assert_eq!(store.delivery(other.org.id, message.id).await.unwrap(), None);
    let stranger = DeliveryAttempt { org_id: other.org.id, id: message.id, ..given_up };
    assert!(matches!(store.note_delivery(&stranger).await, Err(StoreError::NotFound)));
}

pub(crate) async fn messages_are_due_once_nobody_listens(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let id = tenant.org.id;
    let listening = listen(home.store(), id).await;
    let message = message(home.store(), &endpoint).await;
    let store = home.store();
    let failed = attempt_at(&message, DeliveryState::Pending, after(20), Some(T0.plus(10 * HOUR)));
    store.note_delivery(&failed).await.unwrap();
    let renamed = store.update_org(&Org { name: "renamed".to_owned(), ..listening }, audit(id)).await.unwrap();
    assert!(due(store, T0.plus(HOUR)).await.is_empty(), "another change changes nothing about it");
    store.update_org(&Org { webhook: None, ..renamed }, audit(id)).await.unwrap();
    assert_eq!(due(store, T0.plus(HOUR)).await, [Due::Delivery(id, message.id)]);
}

async fn ids(store: &dyn Store, org: OrgId, state: Option<DeliveryState>) -> Vec<DeliveryId> {
    let (mut seen, mut page) = (Vec::new(), first(1));
    loop {
        let part = store.list_deliveries(org, state, &page).await.expect("listed");
        seen.extend(part.items.into_iter().map(|delivery| delivery.id));
        let Some(cursor) = part.next_cursor else { return seen };
        page = PageRequest { limit: 1, cursor: Some(cursor) };
    }
}

pub(crate) async fn settled_messages_are_forgotten_after_a_week(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    listen(store, id).await;
    let mut run = finished_run(&endpoint, T0);
    run.updated_at = after(1);
    store.insert_run(&run, Admission::default()).await.unwrap();
    let pending = ids(store, id, None).await;
    let (delivered, given_up) = (message(store, &endpoint).await, message(store, &endpoint).await);
    store.note_delivery(&attempt_at(&delivered, DeliveryState::Delivered, after(50), None)).await.unwrap();
    store.note_delivery(&attempt_at(&given_up, DeliveryState::GivenUp, after(60), None)).await.unwrap();
    assert_eq!(ids(store, id, None).await.len(), 3);
    assert_eq!(ids(store, id, Some(DeliveryState::Delivered)).await, [delivered.id]);
    let week = T0.plus(7 * 24 * HOUR);
    store.purge(week.plus(Duration::from_millis(50))).await.unwrap();
    assert_eq!(ids(store, id, None).await.len(), 3, "the week still counts");
    store.purge(week.plus(Duration::from_millis(51))).await.unwrap();
    let mut left = ids(store, id, None).await;
    left.sort();
    let mut expected = [pending[0], given_up.id];
    expected.sort();
    assert_eq!(left, expected);
    store.purge(T0.plus(100 * 24 * HOUR)).await.unwrap();
    assert_eq!(ids(store, id, None).await, pending, "one that was never settled stays");
}
