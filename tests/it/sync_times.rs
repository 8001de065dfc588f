//! When syncs happen: by the interval, after failures, and many at once.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::provider::{Latch, Provider, Reply};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn endpoints_are_synced_by_the_interval() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    provider.offer(&[topology("go", "command"), topology("stop", "command")]);
    gate.advance(Duration::from_secs(268));
    assert_eq!(provider.fetches().len(), 1, "not before 300 s less 10 %");
    gate.advance(Duration::from_secs(64));
    eventually("the interval's sync", || (tenant.listed().len() == 2).then_some(()));
    let newest = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).remove(0);
    assert_eq!((&newest["trigger"], &newest["outcome"]), (&json!("interval"), &json!("applied")));
    let fetched = provider.fetches().len();
    gate.advance(Duration::from_secs(332));
    eventually("and the next one", || (provider.fetches().len() > fetched).then_some(()));
}

#[test]
fn an_interval_can_be_set_or_switched_off() {
    let gate = Gate::start();
    let (quick, never) =
        (Provider::topology(&[topology("a", "command")]), Provider::topology(&[topology("b", "command")]));
    let tenant = gate.tenant("acme");
    let interval = json!({ "sync": { "interval_s": 10 } });
    let endpoint = tenant.register("quick", &quick, &interval).assert_connected();
    tenant.register("never", &never, &json!({ "sync": { "interval_s": 0 } })).assert_connected();
    // A sync that is recorded has set the time of the next one.
    let syncs = || tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).len();
    for round in 1..=3 {
        gate.advance(Duration::from_secs(12));
        eventually("the quick one is synced", || (syncs() > round).then_some(()));
    }
    gate.advance(Duration::from_secs(7200));
    eventually("the quick one again", || (quick.fetches().len() > 4).then_some(()));
    assert_eq!(never.fetches().len(), 1);
}

// A shorter interval would else hold only after the longer one is over, and one that was off for ever.
#[test]
fn a_changed_interval_of_the_organization_holds_at_once() {
    let gate = Gate::start();
    let [follows, own] = ["a", "b"].map(|name| Provider::topology(&[topology(name, "command")]));
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("follows", &follows);
    tenant.register("its-own", &own, &json!({ "sync": { "interval_s": 600 } })).assert_connected();
    let synced = || tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).len();
    let operator = |seconds: u64| {
        let limits = json!({ "limits": { "sync_interval_s": seconds } });
        gate.operator("PATCH", &format!("/admin/v1/orgs/{}", tenant.org_id), Some(&limits)).expect(200);
    };
    operator(0);
    gate.advance(Duration::from_secs(400));
    eventually("the last one of the old interval", || (synced() == 2).then_some(()));
    gate.advance(Duration::from_secs(3000));
    eventually("the other endpoint keeps its own", || (own.fetches().len() == 2).then_some(()));
    assert_eq!(synced(), 2, "it is off");

    operator(3600);
    gate.advance(Duration::from_secs(7));
    eventually("switched on again, it begins soon", || (synced() == 3).then_some(()));
    tenant.patch("/v1/org", &json!({ "limits": { "sync_interval_s": 60 } })).expect(200);
    gate.advance(Duration::from_secs(7));
    eventually("shortened, it begins soon", || (synced() == 4).then_some(()));
    gate.advance(Duration::from_secs(70));
    eventually("and goes on so", || (synced() == 5).then_some(()));
    assert_eq!(own.fetches().len(), 2, "whoever has an interval of its own is left alone");
}

// The secret is shown once: whatever becomes of the first sync, its registration answers it.
#[test]
fn a_registration_answers_its_secret_whatever_becomes_of_the_sync() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let latch = Arc::new(Latch::default());
    let manifest = Reply::json(200, &json!([topology("go", "command")]));
    provider.manifest(Reply::Held(Arc::clone(&latch), Box::new(manifest)));
    let registering = {
        let (tenant, body) = (tenant.clone(), provider.registration("tools"));
        std::thread::spawn(move || tenant.post("/v1/endpoints", &body))
    };
    eventually("the first sync begins", || (provider.fetches().len() == 1).then_some(()));
    let endpoint = tenant.items("/v1/endpoints").remove(0);
    // The end of the sync cannot be stored any more.
    tenant.delete(&format!("/v1/endpoints/{}", endpoint["id"].as_str().expect("an id"))).expect(204);
    latch.open();
    let registered = registering.join().expect("answered").expect(201).json();
    assert_eq!((&registered["id"], &registered["tool_count"]), (&endpoint["id"], &json!(0)));
    assert!(registered["callback"]["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));
}

#[test]
fn failures_back_off_and_an_explicit_sync_does_not_wait() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    provider.manifest(Reply::text(500, "oops"));
    let failures = || {
        let syncs = tenant.items(&format!("/v1/endpoints/{}/syncs?limit=200", endpoint.id));
        syncs.iter().filter(|sync| sync["outcome"] == "failed").count()
    };
    tenant.sync(&endpoint);
    assert_eq!(failures(), 1);
    // 1 s, doubling, with up to a quarter of jitter; the due table is looked at once a second.
    for (failed, pause) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)] {
        let before = Duration::from_millis(pause * 1000 - 100);
        gate.advance(before);
        // Explicit requests in between would count as failures; looking does not.
        assert_eq!(failures(), failed, "too early after {failed} failures");
        gate.advance(Duration::from_secs(pause / 4 + 2));
        eventually("the next attempt", || (failures() == failed + 1).then_some(()));
    }
    let fetched = provider.fetches().len();
    provider.offer(&[topology("go", "command"), topology("stop", "command")]);
    assert_eq!(tenant.sync(&endpoint)["outcome"], "applied", "an explicit sync always fetches");
    assert_eq!(provider.fetches().len(), fetched + 1);
    let last = failures();
    gate.advance(Duration::from_secs(200));
    assert_eq!(provider.fetches().len(), fetched + 1, "healed, it is back at its interval");
    assert_eq!(failures(), last);
}

#[test]
fn many_triggers_at_once_share_one_fetch() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = Arc::new(tenant.endpoint("tools", &provider));
    let latch = Arc::new(Latch::default());
    let manifest = Reply::json(200, &json!([topology("go", "command"), topology("stop", "command")]));
    provider.manifest(Reply::Held(Arc::clone(&latch), Box::new(manifest)));
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let (tenant, endpoint) = (tenant.clone(), Arc::clone(&endpoint));
            std::thread::spawn(move || tenant.sync(&endpoint))
        })
        .collect();
    eventually("the one fetch begins", || (provider.fetches().len() == 2).then_some(()));
    // All of them have to be waiting before it ends; while it is held, no other may begin.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(provider.fetches().len(), 2, "one fetch for all");
    latch.open();
    for thread in threads {
        let sync = thread.join().expect("answered");
        assert_eq!((&sync["outcome"], &sync["diff"]["added"]), (&json!("applied"), &json!(["stop"])));
    }
    assert_eq!(provider.fetches().len(), 2);
    assert_eq!(tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).len(), 2);
}

#[test]
fn a_fetch_is_tried_again_when_that_can_help() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    for (status, fetches) in [(502, 3), (503, 3), (504, 3), (500, 1), (404, 1), (401, 1)] {
        let before = provider.fetches().len();
        provider.manifest(Reply::text(status, "oops"));
        let sync = tenant.sync(&endpoint);
        assert_eq!(sync["outcome"], "failed", "HTTP {status}");
        assert_eq!(provider.fetches().len() - before, fetches, "HTTP {status}");
    }
}

#[test]
fn a_disabled_or_suspended_endpoint_is_not_synced() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let path = format!("/v1/endpoints/{}", endpoint.id);
    tenant.patch(&path, &json!({ "enabled": false })).expect(200);
    gate.advance(Duration::from_secs(4000));
    assert_eq!(provider.fetches().len(), 1);
    tenant.patch(&path, &json!({ "enabled": true })).expect(200);
    assert_eq!(provider.fetches().len(), 2, "switched on, it is synced before the answer");
    let org = format!("/admin/v1/orgs/{}", tenant.org_id);
    gate.operator("PATCH", &org, Some(&json!({ "state": "suspended" }))).expect(200);
    gate.advance(Duration::from_secs(4000));
    gate.operator("GET", &org, None).expect(200);
    assert_eq!(provider.fetches().len(), 2);
    gate.operator("PATCH", &org, Some(&json!({ "state": "active" }))).expect(200);
    gate.advance(Duration::from_secs(4000));
    eventually("active again, it is synced again", || (provider.fetches().len() > 2).then_some(()));
}
