//! Writes of an API that came with an `Idempotency-Key`.

use crate::fixtures::*;
use futures_util::future::join_all;
use toolgate::domain::ids::OrgId;
use toolgate::engine::store_port::{
    AuditEntry, ReservedWrite, Store, StoreError, WriteAnswer, WriteId, WriteReservation,
};

fn write(key: &str) -> WriteId {
    WriteId { scope: "operator".to_owned(), key: key.to_owned() }
}

fn reservation(id: &WriteId, seed: u8) -> WriteReservation {
    WriteReservation { id: id.clone(), content_hash: [seed; 32], at: T0, expires_at: T0.plus(24 * HOUR) }
}

fn answer() -> WriteAnswer {
    WriteAnswer {
        status: 201,
        headers: vec![("location".to_owned(), "/v1/groups/x".to_owned()), ("etag".to_owned(), "\"1\"".to_owned())],
        body: b"{\"answer\":\"\xff kept\"}".to_vec(),
    }
}

fn entry(org: OrgId, id: &WriteId) -> AuditEntry {
    AuditEntry { write: Some(id.clone()), ..audit(org) }
}

/// Asks again for the same.
async fn again(store: &dyn Store, id: &WriteId) -> ReservedWrite {
    store.reserve_write(&reservation(id, 1)).await.expect("it answers")
}

pub(crate) async fn a_write_is_answered_as_it_was(home: &mut Home) {
    let tenant = tenant(home.store(), "acme").await;
    let id = write("k");
    assert_eq!(again(home.store(), &id).await, ReservedWrite::New);
    assert_eq!(again(home.store(), &id).await, ReservedWrite::UnderWay);
    home.store().create_group(tenant.org.id, &group("x"), entry(tenant.org.id, &id)).await.unwrap();
    assert_eq!(again(home.store(), &id).await, ReservedWrite::UnderWay, "its answer is on the way");
    home.store().answer_write(&id, &answer()).await.unwrap();
    home.drop_and_reopen();
    home.store().recover(T0).await.unwrap();
    let store = home.store();
    assert_eq!(again(store, &id).await, ReservedWrite::Answered(answer()));
    store.create_group(tenant.org.id, &group("y"), entry(tenant.org.id, &id)).await.unwrap();
    assert_eq!(again(store, &id).await, ReservedWrite::Answered(answer()), "an entry takes no answer back");
    assert_eq!(store.reserve_write(&reservation(&id, 2)).await.unwrap(), ReservedWrite::Other);
    assert_eq!(again(store, &write("K")).await, ReservedWrite::New);
    let elsewhere = WriteId { scope: tenant.workspace_key.id.to_string(), key: "k".to_owned() };
    assert_eq!(again(store, &elsewhere).await, ReservedWrite::New);
    store.release_write(&id).await.unwrap();
    assert_eq!(again(store, &id).await, ReservedWrite::Answered(answer()), "what was made keeps its key");
    let unknown = store.answer_write(&write("unknown"), &answer()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)), "{unknown:?}");
    store.delete_org(tenant.org.id, T0, audit(tenant.org.id)).await.unwrap();
    assert_eq!(again(store, &elsewhere).await, ReservedWrite::New, "writes of its keys go with an organization");
    assert_eq!(again(store, &id).await, ReservedWrite::Answered(answer()), "the operator's stay");
}

pub(crate) async fn of_fifty_writes_with_one_key_one_is_made(home: &mut Home) {
    let store = home.store();
    let id = write("k");
    let results = join_all((0..50).map(|_| again(store, &id))).await;
    assert_eq!(results.iter().filter(|result| **result == ReservedWrite::New).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == ReservedWrite::UnderWay).count(), 49);
}

pub(crate) async fn a_write_is_made_with_its_entry(home: &mut Home) {
    let store = home.store();
    let tenant = tenant(store, "acme").await;
    let id = write("k");
    again(store, &id).await;
    let refused = store.create_group(tenant.org.id, &group("default"), entry(tenant.org.id, &id)).await;
    assert!(matches!(refused, Err(StoreError::NameTaken { .. })));
    store.release_write(&id).await.unwrap();
    assert_eq!(again(store, &id).await, ReservedWrite::New, "a refusal makes nothing");
    store.create_group(tenant.org.id, &group("x"), entry(tenant.org.id, &id)).await.unwrap();
    store.release_write(&id).await.unwrap();
    assert_eq!(again(store, &id).await, ReservedWrite::AnswerLost, "what was made is not freed");
    let entries = store.list_audit(tenant.org.id, &first(9)).await.unwrap().items;
    assert!(entries.iter().all(|entry| entry.write.is_none()), "it is not kept with the entry");
}

pub(crate) async fn a_crash_frees_what_was_not_made(home: &mut Home) {
    let tenant = tenant(home.store(), "acme").await;
    let (reserved, made) = (write("reserved"), write("made"));
    again(home.store(), &reserved).await;
    again(home.store(), &made).await;
    home.store().create_group(tenant.org.id, &group("x"), entry(tenant.org.id, &made)).await.unwrap();
    home.drop_and_reopen();
    let store = home.store();
    store.recover(T0).await.unwrap();
    assert_eq!(again(store, &reserved).await, ReservedWrite::New);
    assert_eq!(again(store, &made).await, ReservedWrite::AnswerLost);
    store.recover(T0).await.unwrap();
    assert_eq!(again(store, &made).await, ReservedWrite::AnswerLost, "also after another start");
    store.release_write(&made).await.unwrap();
    assert_eq!(again(store, &made).await, ReservedWrite::AnswerLost);
}

pub(crate) async fn writes_are_forgotten_after_their_time(home: &mut Home) {
    let store = home.store();
    let id = write("k");
    again(store, &id).await;
    store.answer_write(&id, &answer()).await.unwrap();
    let over = T0.plus(24 * HOUR);
    let later = WriteReservation { at: over, expires_at: over.plus(HOUR), ..reservation(&id, 2) };
    assert_eq!(store.reserve_write(&later).await.unwrap(), ReservedWrite::New);
    assert_eq!(store.reserve_write(&later).await.unwrap(), ReservedWrite::UnderWay, "the former answer is gone");
    store.purge(over).await.unwrap();
    assert_eq!(store.reserve_write(&later).await.unwrap(), ReservedWrite::UnderWay);
    store.purge(over.plus(HOUR)).await.unwrap();
    let gone = store.answer_write(&id, &answer()).await;
    assert!(matches!(gone, Err(StoreError::NotFound)), "{gone:?}");
}
