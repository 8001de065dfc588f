//! The result webhook: an organization's application is told of approvals waiting, runs finished and syncs that failed.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::hook::{Hook, data};
use crate::support::manifests::{median_with, topology};
use crate::support::provider::{Provider, Received, Reply};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::time::Duration;

const PAUSES_S: [u64; 6] = [5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600];

struct World {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
    endpoint: Registered,
    application: Hook,
}

fn medians() -> Provider {
    let properties = json!({ "password": { "type": "string" } });
    Provider::median(&[median_with("find", "low", &properties), median_with("erase", "high", &properties)])
}

fn world() -> World {
    // A sync by the clock would be told of, too.
    let gate = Gate::with(&[("LIMITS__SYNC_INTERVAL_S", "0")]);
    let tenant = gate.tenant("acme");
    let provider = medians();
    let endpoint = tenant.endpoint("medians", &provider);
    let application = Hook::webhook(&tenant);
    World { gate, tenant, provider, endpoint, application }
}

/// A message of this shape and no other, signed for this moment.
#[track_caller]
fn assert_told(world: &World, message: &Received, event: &str, expected: &Value) {
    world.application.assert_signed(&world.gate, message);
    let mut body = message.json();
    let timestamp = body["timestamp"].take();
    assert!(timestamp.as_str().is_some_and(|at| at.starts_with("2026-01-12T13:4") && at.ends_with('Z')), "{timestamp}");
    assert_eq!(body, json!({ "type": event, "timestamp": null, "data": expected }));
    assert!(!message.text().contains("hunter2") && !message.text().contains("treasure"), "{}", message.text());
}

/// The newest message, once its attempts are this many.
#[track_caller]
fn delivery_after(tenant: &Tenant, attempts: usize) -> Value {
    eventually("the attempt is noted", || {
        tenant.items("/v1/deliveries").into_iter().next().filter(|delivery| delivery["attempts"] == attempts)
    })
}

/// Lets so much time pass that what is due is looked at; whatever is tried again waits longer than that.
fn look(gate: &Gate) {
    gate.advance(Duration::from_millis(250));
}

/// Waits until there are so many messages, and has them looked at.
#[track_caller]
fn await_announced(gate: &Gate, tenant: &Tenant, count: usize) {
    eventually("it is announced", || (tenant.items("/v1/deliveries").len() >= count).then_some(()));
    look(gate);
}

impl World {
    /// The messages, once there are so many.
    #[track_caller]
    fn told(&self, count: usize) -> Vec<Received> {
        await_announced(&self.gate, &self.tenant, count);
        self.application.await_messages(count)
    }
}

/// Makes a message: a run that ends.
fn finish_a_run(gate: &Gate, tenant: &Tenant) -> Value {
    let before = tenant.items("/v1/deliveries").len();
    let run = tenant.call("find", &json!({ "password": "hunter2" }));
    assert_eq!(run["status"], "completed");
    await_announced(gate, tenant, before + 1);
    run
}

#[test]
fn the_end_of_a_run_is_told_without_what_was_in_it() {
    let world = world();
    world.provider.next(Reply::text(200, r#"{"result":"treasure"}"#));
    let run = finish_a_run(&world.gate, &world.tenant);
    let message = world.told(1).remove(0);
    let finished = |run: &Value, tool: &str, status: &str| json!({ "correlation_id": run["correlation_id"], "tool": tool, "endpoint": "medians", "status": status });
    assert_told(&world, &message, "run.finished", &finished(&run, "find", "completed"));
    let delivered = delivery_after(&world.tenant, 1);
    assert_eq!(delivered["state"], "delivered");
    let id = format!("msg_{}", delivered["id"].as_str().expect("an id"));
    assert_eq!(message.header("webhook-id"), Some(id.as_str()));
    assert!(delivered["next_at"].is_null() && delivered["last_error"].is_null(), "{delivered}");

    world.provider.next(Reply::text(200, r#"{"error":{"code":"execution_failed","message":"treasure"}}"#));
    let failed = world.tenant.call("find", &json!({ "password": "hunter2" }));
    let message = world.told(2).remove(1);
    assert_told(&world, &message, "run.finished", &finished(&failed, "find", "failed"));
}

#[test]
fn an_approval_is_told_when_it_opens_and_its_run_when_it_ends() {
    let world = world();
    let (run, approval) = world.tenant.hold("erase", &json!({ "password": "hunter2" }));
    let opened = world.told(1).remove(0);
    let expected = json!({
        "approval_id": approval["id"], "correlation_id": run["correlation_id"], "tool": "erase",
        "endpoint": "medians", "status": "open", "expires_at": "2026-01-12T14:01:40.000Z",
    });
    assert_told(&world, &opened, "approval.opened", &expected);
    world.tenant.decide(&approval, "deny").expect(200);
    let message = world.told(2).remove(1);
    let expected = json!({
        "correlation_id": run["correlation_id"], "tool": "erase", "endpoint": "medians", "status": "denied",
    });
    assert_told(&world, &message, "run.finished", &expected);
}

#[test]
fn a_sync_that_fails_is_told_once_for_each_reason() {
    let world = world();
    let told = |reason: &str| json!({ "endpoint": "medians", "status": "sync_failed", "reason": reason });
    for (number, (reply, reason)) in [
        (Reply::text(500, "treasure"), "bad_status"),
        (Reply::text(401, "treasure"), "unauthorized"),
        (Reply::text(200, "treasure"), "not_json"),
    ]
    .into_iter()
    .enumerate()
    {
        world.provider.manifest(reply);
        for _ in 0..2 {
            assert_eq!(world.tenant.sync(&world.endpoint)["outcome"], "failed");
        }
        let message = world.told(number + 1).remove(number);
        assert_told(&world, &message, "endpoint.sync_failed", &told(reason));
    }
    // It heals, which is no news, and fails again, which is.
    world.provider.offer(&[]);
    world.tenant.sync(&world.endpoint);
    world.provider.manifest(Reply::text(200, "treasure"));
    world.tenant.sync(&world.endpoint);
    let message = world.told(4).remove(3);
    assert_told(&world, &message, "endpoint.sync_failed", &told("not_json"));
}

#[test]
fn a_message_is_tried_with_growing_pauses_and_given_up_visibly() {
    let world = world();
    let World { gate, tenant, application, .. } = &world;
    for _ in 0..=PAUSES_S.len() {
        application.next(Reply::text(500, "not now"));
    }
    finish_a_run(gate, tenant);
    for (failures, pause) in PAUSES_S.into_iter().enumerate() {
        let delivery = delivery_after(tenant, failures + 1);
        assert_eq!(delivery["state"], "pending", "{delivery}");
        assert!(delivery["last_error"].as_str().is_some_and(|error| error.contains("500")), "{delivery}");
        let time = |member: &str| delivery[member].as_str().and_then(|at| at.parse().ok()).expect("a time");
        let (noted, next): (jiff::Timestamp, jiff::Timestamp) = (time("updated_at"), time("next_at"));
        assert_eq!(next.duration_since(noted).as_secs().unsigned_abs(), pause, "{delivery}");
        let message = application.await_messages(failures + 1).remove(failures);
        application.assert_signed(gate, &message);
        gate.advance(Duration::from_secs(pause));
    }
    let given_up = delivery_after(tenant, PAUSES_S.len() + 1);
    assert_eq!((&given_up["state"], &given_up["next_at"]), (&json!("given_up"), &Value::Null));
    assert_eq!(tenant.items("/v1/deliveries?state=given_up").len(), 1);
    let audit = tenant.items("/v1/audit").remove(0);
    let object = format!("delivery/{}", given_up["id"].as_str().expect("an id"));
    assert_eq!((&audit["action"], &audit["object"]), (&json!("webhook.give_up"), &json!(object)));
    assert_eq!((&audit["actor"]["kind"], &audit["changes"]["event"]), (&json!("system"), &json!("run.finished")));

    let messages = application.await_messages(PAUSES_S.len() + 1);
    for message in &messages {
        let same = (message.header("webhook-id"), &message.body);
        assert_eq!(same, (messages[0].header("webhook-id"), &messages[0].body), "one message at every attempt");
    }
    // What comes after is told as ever, and what was given up is not.
    gate.advance(Duration::from_secs(24 * 3600));
    finish_a_run(gate, tenant);
    let messages = application.await_messages(PAUSES_S.len() + 2);
    assert_ne!(messages.last().and_then(|last| last.header("webhook-id")), messages[0].header("webhook-id"));
}

#[test]
fn what_was_delivered_is_not_told_again() {
    let world = world();
    let World { gate, tenant, application, .. } = &world;
    application.next(Reply::Hangup);
    application.next(Reply::text(302, ""));
    application.next(Reply::text(204, ""));
    finish_a_run(gate, tenant);
    for (attempt, pause) in [(1, 5), (2, 300)] {
        assert_eq!(delivery_after(tenant, attempt)["state"], "pending");
        gate.advance(Duration::from_secs(pause));
    }
    let delivered = delivery_after(tenant, 3);
    assert_eq!((&delivered["state"], &delivered["next_at"]), (&json!("delivered"), &Value::Null));
    gate.advance(Duration::from_secs(24 * 3600));
    finish_a_run(gate, tenant);
    assert_eq!(application.await_messages(4).len(), 4);
    let gave_up = |entry: &Value| entry["action"] == "webhook.give_up";
    assert!(!tenant.items("/v1/audit").iter().any(gave_up));
}

#[test]
fn a_message_outlives_a_restart() {
    let World { gate, tenant, application, .. } = world();
    application.next(Reply::text(503, ""));
    finish_a_run(&gate, &tenant);
    let before = delivery_after(&tenant, 1);
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    gate.advance(Duration::from_secs(5));
    let after = delivery_after(&tenant, 2);
    assert_eq!((&after["id"], &after["state"]), (&before["id"], &json!("delivered")));
    let messages = application.await_messages(2);
    assert_eq!(messages[0].header("webhook-id"), messages[1].header("webhook-id"));
}

#[test]
fn without_a_webhook_what_waits_for_it_is_given_up() {
    let world = world();
    let World { gate, tenant, application, .. } = &world;
    application.next(Reply::text(500, ""));
    finish_a_run(gate, tenant);
    delivery_after(tenant, 1);
    tenant.patch("/v1/org", &json!({ "webhook": null })).expect(200);
    tenant.call("find", &json!({}));
    look(gate);
    let given_up = delivery_after(tenant, 2);
    assert_eq!(given_up["state"], "given_up", "it does not wait for its next attempt: {given_up}");
    assert!(given_up["last_error"].as_str().is_some_and(|error| error.contains("webhook")), "{given_up}");
    assert_eq!(tenant.items("/v1/audit")[0]["action"], "webhook.give_up");
    assert_eq!(tenant.items("/v1/deliveries").len(), 1, "nobody wants to be told of what came after");
    assert_eq!(application.messages().len(), 1);
}

#[test]
fn a_new_secret_signs_from_then_on() {
    let world = world();
    let World { gate, tenant, application, .. } = &world;
    application.next(Reply::text(500, ""));
    finish_a_run(gate, tenant);
    delivery_after(tenant, 1);
    application.assert_signed(gate, &application.messages()[0]);
    application.register(tenant);
    gate.advance(Duration::from_secs(5));
    assert_eq!(delivery_after(tenant, 2)["state"], "delivered");
    let messages = application.await_messages(2);
    application.assert_signed(gate, &messages[1]);
    assert_eq!(messages[0].header("webhook-id"), messages[1].header("webhook-id"));
}

#[test]
fn a_blocked_address_is_never_told() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    for (slug, url) in [("own", gate.url()), ("private", "http://10.0.0.1/"), ("metadata", "http://169.254.169.254/")] {
        let tenant = gate.tenant(slug);
        tenant.endpoint("tools", &provider);
        tenant.patch("/v1/org", &json!({ "webhook": { "url": url } })).expect(200);
        tenant.call("go", &json!({}));
        await_announced(&gate, &tenant, 1);
        let delivery = delivery_after(&tenant, 1);
        assert_eq!(delivery["state"], "pending", "the operator may allow it yet: {delivery}");
        let error = delivery["last_error"].as_str().expect("it says why");
        assert!(error.contains("not allowed") || error.contains("blocked") || error.contains("refused"), "{error}");
    }
}

#[test]
fn one_organization_hears_nothing_of_another() {
    let world = world();
    let other = world.gate.tenant("globex");
    let provider = medians();
    let endpoint = other.endpoint("medians", &provider);
    let listener = Hook::webhook(&other);
    let run = finish_a_run(&world.gate, &world.tenant);
    let (_, approval) = world.tenant.hold("erase", &json!({}));
    world.tenant.decide(&approval, "deny").expect(200);
    let heard = world.told(3);
    provider.manifest(Reply::text(500, ""));
    other.sync(&endpoint);
    await_announced(&world.gate, &other, 1);
    let told = listener.await_messages(1).remove(0);
    assert_eq!(data(&told)["reason"], "bad_status");
    assert_eq!(world.application.messages().len(), heard.len());
    // They come as they come: only what one waited for is before the next.
    assert!(heard.iter().any(|message| data(message)["correlation_id"] == run["correlation_id"]));
    assert_eq!((other.items("/v1/deliveries").len(), world.tenant.items("/v1/deliveries").len()), (1, 3));
}
