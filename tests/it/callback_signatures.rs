//! Who may deliver a result: Standard Webhooks, checked over exactly the bytes that came.

use crate::support::client::Request;
use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::node::{Node, sign};
use crate::support::provider::Provider;
use crate::support::raw;
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::time::Duration;

struct World {
    gate: Gate,
    _provider: Provider,
    tenant: Tenant,
    endpoint: Registered,
    node: Node,
    secret: String,
    run: Value,
}

fn world() -> World {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let node = endpoint.node(&gate);
    let secret = endpoint.body["callback"]["secret"].as_str().expect("a secret").to_owned();
    let run = tenant.call("ask", &json!({}));
    World { gate, _provider: provider, tenant, endpoint, node, secret, run }
}

impl World {
    fn body(&self) -> Vec<u8> {
        let data = json!({ "request_id": self.run["correlation_id"], "status": "completed", "payload": 1 });
        json!({ "type": "tool.result", "timestamp": "2026-01-12T13:46:40Z", "data": data }).to_string().into_bytes()
    }

    fn status(&self) -> Value {
        self.tenant.agent_run(&self.run)["status"].clone()
    }

    #[track_caller]
    fn refused(&self, what: &str, request: Request) {
        let answer = request.send();
        assert_eq!(answer.status, 401, "{what}: {}", answer.text());
        answer.problem(401, "invalid_signature");
        assert_eq!(self.status(), "pending", "{what}");
    }
}

#[test]
fn a_signature_that_does_not_verify_is_refused() {
    let world = world();
    let (body, now) = (world.body(), world.node.seconds());
    let good = sign(&world.secret, "m-1", now, &body);
    let other_secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let unsigned = |seconds| world.node.unsigned("m-1", seconds, &body);
    let with = |signature: &str| unsigned(now).header("webhook-signature", signature);
    world.refused("no signature", unsigned(now));
    world.refused("an empty one", with(""));
    world.refused("garbage", with("v1,????"));
    world.refused("no version", with(good.trim_start_matches("v1,")));
    world.refused("another version", with(&good.replace("v1,", "v1a,")));
    world.refused("another secret", with(&sign(other_secret, "m-1", now, &body)));
    world.refused("another id", with(&sign(&world.secret, "m-2", now, &body)));
    world.refused("another time", with(&sign(&world.secret, "m-1", now - 1, &body)));
    world.refused("another body", with(&sign(&world.secret, "m-1", now, b"{}")));
    world.refused("cut", with(&good[..good.len() - 4]));
    let without_id = world.gate.client().request("POST", &format!("/callbacks/{}", world.endpoint.id));
    let without_id = without_id.text("application/json", body.clone()).header("webhook-timestamp", now.to_string());
    world.refused("no id", without_id.header("webhook-signature", &good));
    // Checked before the body is looked at.
    world.refused("garbage unsigned", world.node.unsigned("m-1", now, b"{{{"));
    // adcp-client#313: exactly the bytes that were sent; another spelling of the same JSON is another message.
    let respelled = String::from_utf8(body.clone()).expect("UTF-8").replace("\"payload\":1", "\"payload\":1.0");
    world.refused(
        "another spelling",
        world.node.unsigned("m-1", now, respelled.as_bytes()).header("webhook-signature", &good),
    );
    // One good signature of the list is enough.
    with(&format!("v1,AAAA v2,x {} {good}", sign(other_secret, "m-1", now, &body))).send().expect(202);
    assert_eq!(world.status(), "completed");
}

// grantex#892: bytes outside ASCII in a header are a refusal, not a fault of ours.
#[test]
fn a_signature_header_that_is_not_ascii_is_refused() {
    let world = world();
    let (body, now) = (world.body(), world.node.seconds());
    for value in [b"v1,\xc3\xa9\xc3\xa9".as_slice(), b"\xff\xfe", "v1,ß".as_bytes()] {
        let request = world.node.unsigned("m-1", now, &body).header("webhook-signature", value);
        world.refused("not ASCII", request);
    }
    let good = sign(&world.secret, "m-1", now, &body);
    let request = world.gate.client().request("POST", &format!("/callbacks/{}", world.endpoint.id));
    let request = request.text("application/json", body).header("webhook-id", "m-ü".as_bytes());
    world.refused(
        "an id that is not ASCII",
        request.header("webhook-timestamp", now.to_string()).header("webhook-signature", good),
    );
}

#[test]
fn the_time_may_differ_by_five_minutes() {
    let world = world();
    let (body, now) = (world.body(), world.node.seconds());
    for off in [-301, 301, -100_000, 100_000] {
        world.refused("too far off", world.node.signed("m-1", now + off, &body));
    }
    for seconds in ["", "soon", "1.5", "-1", "99999999999999999999"] {
        let request = world.gate.client().request("POST", &format!("/callbacks/{}", world.endpoint.id));
        let request = request.text("application/json", body.clone()).header("webhook-id", "m-1");
        let request = request.header("webhook-timestamp", seconds).header("webhook-signature", "v1,AAAA");
        world.refused(seconds, request);
    }
    world.gate.advance(Duration::from_secs(299));
    world.node.signed("m-1", now, &body).send().expect(202);
    assert_eq!(world.status(), "completed");
}

#[test]
fn an_endpoint_that_does_not_exist_answers_like_a_wrong_signature() {
    let world = world();
    let (body, now) = (world.body(), world.node.seconds());
    let wrong = world.node.unsigned("m-1", now, &body).header("webhook-signature", "v1,AAAA").send();
    let expected = {
        let mut problem = wrong.problem(401, "invalid_signature");
        problem.as_object_mut().expect("an object").remove("trace_id");
        problem
    };
    let other = world.tenant.endpoint("median-like", &Provider::median(&[]));
    for id in ["019bb2a5-0000-7000-8000-000000000000", "nobody", "..", &other.id] {
        let signature = sign(&world.secret, "m-1", now, &body);
        let request = world.gate.client().request("POST", &format!("/callbacks/{id}"));
        let request = request.text("application/json", body.clone()).header("webhook-id", "m-1");
        let answer = request.header("webhook-timestamp", now.to_string()).header("webhook-signature", signature).send();
        if id == ".." {
            assert_eq!(answer.status / 100, 4, "{}", answer.text());
            continue;
        }
        let mut problem = answer.problem(401, "invalid_signature");
        problem.as_object_mut().expect("an object").remove("trace_id");
        assert_eq!(problem, expected, "{id}");
    }
}

// outpost#128: what is in flight during a rotation still arrives.
#[test]
fn two_secrets_count_during_a_rotation() {
    let world = world();
    let path = format!("/v1/endpoints/{}/rotate-secret", world.endpoint.id);
    let rotated = world.tenant.request("POST", &path).send().expect(200).json();
    let fresh = rotated["secret"].as_str().expect("a secret");
    assert!(fresh.starts_with("whsec_") && fresh != world.secret);
    assert_eq!(rotated["previous_valid_until"], "2026-01-13T13:46:40.000Z", "24 hours");
    let shown = world.tenant.get(&format!("/v1/endpoints/{}", world.endpoint.id)).expect(200);
    assert!(!shown.text().contains("whsec_"), "secrets are shown once");
    let second = world.tenant.call("ask", &json!({}));
    let complete = |node: &Node, message: &str, run: &Value| {
        node.complete(message, run["correlation_id"].as_str().expect("an id"), &json!(message))
    };
    complete(&world.node, "m-old", &world.run).expect(202);
    complete(&world.node.with_secret(fresh), "m-new", &second).expect(202);
    assert_eq!(world.tenant.agent_run(&world.run)["result"], "m-old");
    assert_eq!(world.tenant.agent_run(&second)["result"], "m-new");
    world.gate.advance(Duration::from_secs(24 * 3600 + 1));
    let third = world.tenant.call("ask", &json!({}));
    complete(&world.node, "m-older", &third).problem(401, "invalid_signature");
    complete(&world.node.with_secret(fresh), "m-newer", &third).expect(202);
}

#[test]
fn a_callback_over_its_limit_is_413() {
    let gate = Gate::with(&[("LIMITS__CALLBACK_BODY_BYTES", "1500")]);
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    let run = tenant.call("ask", &json!({}));
    let body = |length: usize| {
        let frame = json!({ "type": "tool.result", "data": { "request_id": run["correlation_id"], "status": "completed", "payload": "" } });
        frame
            .to_string()
            .replace("\"payload\":\"\"", &format!("\"payload\":\"{}\"", "x".repeat(length - frame.to_string().len())))
    };
    let problem = node.deliver_bytes("m-1", body(1501).as_bytes()).problem(413, "too_large");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("1500")), "{problem}");
    node.deliver_bytes("m-2", body(1500).as_bytes()).expect(202);
    assert_eq!(tenant.agent_run(&run)["status"], "completed");
    let path = "/callbacks/nobody";
    let get = raw::request(gate.url(), "GET", path, &[], b"");
    assert!(matches!(get.status, 401 | 405), "{}", get.text());
}
