//! Idempotency keys of agents.

use crate::fixtures::*;
use crate::mutations::*;
use futures_util::future::join_all;
use std::time::Duration;
use toolgate::domain::error_code::ErrorCode;
use toolgate::domain::ids::KeyId;
use toolgate::domain::org::{Org, Retention};
use toolgate::domain::run::{Run, RunOutcome, RunStatus};
use toolgate::engine::store_port::{Admission, InsertedRun, Reserved, RunChange};

fn reserving(key: &str, seed: u8) -> Admission {
    Admission { reservation: Some(reservation(key, seed, T0.plus(24 * HOUR))), ..Admission::default() }
}

pub(crate) async fn a_key_stands_for_one_run_until_its_time_is_over(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let agent = tenant.agent_key.id;
    let run = |at| {
        let mut run = run_at(&endpoint, at);
        run.intent.agent_key = agent;
        run
    };
    let one = run(T0);
    assert_eq!(home.store().insert_run(&one, reserving("k", 1)).await.unwrap(), InsertedRun::Inserted);
    home.drop_and_reopen();
    let store = home.store();
    let taken = Reserved { run_id: one.intent.id, content_hash: [1; 32] };
    let two = run(after(5));
    let again = Admission { token: Some(token(1)), ..reserving("k", 2) };
    assert_eq!(store.insert_run(&two, again).await.unwrap(), InsertedRun::KeyTaken(taken));
    assert_eq!(store.run(tenant.org.id, two.intent.id).await.unwrap(), None, "nothing was stored");
    assert_eq!(store.token_run(token(1).nonce_hash).await.unwrap(), None, "nor was the token used");
    let reserved = |agent, key: &'static str, at| store.reserved(tenant.org.id, agent, key, at);
    assert_eq!(reserved(agent, "k", after(5)).await.unwrap(), Some(taken));
    assert_eq!(reserved(agent, "K", after(5)).await.unwrap(), None, "a key is compared to the letter");
    assert_eq!(reserved(KeyId::from_uuid(uuid()), "k", after(5)).await.unwrap(), None);
    let mut another = run(after(5));
    another.intent.agent_key = KeyId::from_uuid(uuid());
    assert_eq!(store.insert_run(&another, reserving("k", 1)).await.unwrap(), InsertedRun::Inserted, "its own keys");

    assert_eq!(reserved(agent, "k", T0.plus(48 * HOUR)).await.unwrap(), Some(taken), "never before its run is over");
    let done = RunChange { at: after(6), ..change(&one, RunOutcome::completed(json("1"))) };
    store.change_run(&done).await.unwrap();
    assert_eq!(reserved(agent, "k", T0.plus(24 * HOUR)).await.unwrap(), Some(taken), "a day from its last word");
    let over = after(6).plus(24 * HOUR);
    assert_eq!(reserved(agent, "k", over).await.unwrap(), None);
    let three = run(over);
    let mut anew = reserving("k", 3);
    anew.reservation = Some(reservation("k", 3, T0.plus(48 * HOUR)));
    assert_eq!(store.insert_run(&three, anew).await.unwrap(), InsertedRun::Inserted);
    let taken = Reserved { run_id: three.intent.id, content_hash: [3; 32] };
    assert_eq!(reserved(agent, "k", over).await.unwrap(), Some(taken));
}

pub(crate) async fn of_fifty_runs_with_one_key_one_is_stored(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let runs: Vec<Run> = (0..50)
        .map(|_| {
            let mut run = run_at(&endpoint, T0);
            run.intent.agent_key = tenant.agent_key.id;
            run
        })
        .collect();
    let results = join_all(runs.iter().map(|run| store.insert_run(run, reserving("k", 1)))).await;
    let stored = store.open_runs(tenant.org.id).await.unwrap();
    assert_eq!(stored.len(), 1);
    let taken = Reserved { run_id: stored[0].intent.id, content_hash: [1; 32] };
    let results: Vec<InsertedRun> = results.into_iter().map(|result| result.unwrap()).collect();
    assert_eq!(results.iter().filter(|result| **result == InsertedRun::Inserted).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == InsertedRun::KeyTaken(taken)).count(), 49);
}

pub(crate) async fn only_a_failure_before_anything_was_sent_frees_a_key(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let ends = [
        (RunOutcome::failed(false, ErrorCode::EndpointUnavailable, "no connection"), true),
        (RunOutcome::failed(true, ErrorCode::ProviderError, "reset"), false),
        (RunOutcome::completed(json("1")), false),
        (RunOutcome::ended(RunStatus::Uncertain, true, "lost"), false),
        (RunOutcome::ended(RunStatus::Cancelled, true, "cancelled_by_agent"), false),
    ];
    for (n, (outcome, frees)) in (0..).zip(ends) {
        let mut run = run_at(&endpoint, T0);
        run.intent.agent_key = tenant.agent_key.id;
        let key = format!("k{n}");
        store.insert_run(&run, reserving(&key, 1)).await.unwrap();
        store.change_run(&change(&run, outcome.clone())).await.unwrap();
        let left = store.reserved(tenant.org.id, tenant.agent_key.id, &key, after(20)).await.unwrap();
        assert_eq!(left.is_none(), frees, "{outcome:?}");
    }
}

pub(crate) async fn a_live_key_keeps_its_run_whole(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let short = Retention { run_retention_h: 2, result_retention_h: 1 };
    store.update_org(&Org { retention: short, ..tenant.org.clone() }, audit(id)).await.unwrap();
    let mut kept = finished_run(&endpoint, T0);
    kept.intent.agent_key = tenant.agent_key.id;
    let gone = finished_run(&endpoint, T0);
    store.insert_run(&kept, reserving("k", 1)).await.unwrap();
    store.insert_run(&gone, Admission::default()).await.unwrap();
    let over = T0.plus(24 * HOUR);
    store.purge(T0.plus(24 * HOUR - Duration::from_millis(1))).await.unwrap();
    assert_eq!(store.run(id, gone.intent.id).await.unwrap(), None);
    assert_eq!(store.run(id, kept.intent.id).await.unwrap().as_ref(), Some(&kept), "there is something to replay");
    store.purge(over).await.unwrap();
    assert_eq!(store.run(id, kept.intent.id).await.unwrap(), None);
    let left = store.reserved(id, tenant.agent_key.id, "k", T0).await.unwrap();
    assert_eq!(left, None, "nothing is left of the key");
}
