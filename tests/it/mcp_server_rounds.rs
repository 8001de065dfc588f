//! A call in rounds: a tool's server asks, and the client calls again with its answers. A person's yes goes along, and
//! counts once.

use crate::support::gate::Gate;
use crate::support::mcp::result;
use crate::support::mcp_upstream::McpUpstream;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::time::Duration;

struct World {
    gate: Gate,
    tenant: Tenant,
    upstream: McpUpstream,
}

/// A server whose `pay` wants to know from where before it pays.
fn world() -> World {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let tool = json!({ "name": "pay", "description": "Pays", "inputSchema": { "type": "object" } });
    let upstream = McpUpstream::start(&[tool], |params| {
        if params.get("inputResponses").is_some() {
            return json!({ "result": { "resultType": "complete", "content": [{ "type": "text", "text": "paid" }] } });
        }
        let questions = json!({ "from": { "method": "elicitation/create", "params": { "message": "From where?" } } });
        json!({ "result": { "resultType": "input_required", "inputRequests": questions, "requestState": "s" } })
    });
    tenant.post("/v1/endpoints", &upstream.registration("bank")).expect(201);
    World { gate, tenant, upstream }
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// The call, or its next round with what was carried and these answers.
fn pay(carried: Option<(&Value, Value)>) -> Value {
    let mut params = json!({ "name": "pay", "arguments": {} });
    if let Some((asked, answers)) = carried {
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = answers;
    }
    params
}

fn yes() -> Value {
    json!({ "toolgate_confirmation": { "action": "accept", "content": { "confirm": true } } })
}

fn from_savings() -> Value {
    json!({ "from": { "action": "accept", "content": { "account": "savings" } } })
}

impl World {
    #[track_caller]
    fn call(&self, params: &Value, key: Option<&str>) -> Value {
        let request = self.tenant.modern_request("tools/call", params, &forms());
        result(&key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key)).send())
    }

    fn confirm_first(&self) {
        self.tenant.patch("/v1/tools/pay", &json!({ "requires_confirmation": true })).expect(200);
    }

    /// How often the server was given the answers it wants.
    fn paid(&self) -> usize {
        self.upstream.calls().iter().filter(|call| call.json()["params"].get("inputResponses").is_some()).count()
    }
}

fn text(result: &Value) -> &Value {
    &result["content"][0]["text"]
}

#[test]
fn one_yes_is_good_for_one_call_however_often_its_round_is_told_of() {
    let world = world();
    world.confirm_first();
    let question = world.call(&pay(None), None);
    let confirmed = pay(Some((&question, yes())));
    let first = world.call(&confirmed, None);
    assert_eq!(first["inputRequests"]["from"]["method"], "elicitation/create", "{first}");
    world.gate.advance(Duration::from_secs(1));
    // A token that was used answers the run it began, with what that run was answered.
    let again = world.call(&confirmed, None);
    assert_eq!((&again["requestState"], world.upstream.calls().len()), (&first["requestState"], 1));
    for asked in [&first, &again, &first] {
        assert_eq!(text(&world.call(&pay(Some((asked, from_savings()))), None)), "paid");
    }
    assert_eq!(world.paid(), 1, "one yes, one payment");
}

#[test]
fn a_key_stands_for_its_round_also_when_the_round_before_is_told_of_again() {
    let world = world();
    let first = world.call(&pay(None), Some("k"));
    world.gate.advance(Duration::from_secs(1));
    let again = world.call(&pay(None), Some("k"));
    assert_eq!(first["requestState"], again["requestState"]);
    for asked in [&first, &again] {
        assert_eq!(text(&world.call(&pay(Some((asked, from_savings()))), Some("k"))), "paid");
    }
    assert_eq!((world.upstream.calls().len(), world.paid()), (2, 1));
}

#[test]
fn a_yes_that_nobody_gave_is_not_carried() {
    let world = world();
    let before = world.call(&pay(None), Some("k"));
    world.confirm_first();
    let after = world.call(&pay(None), Some("k"));
    assert_eq!(world.upstream.calls().len(), 1, "it is the same run");
    for asked in [&before, &after] {
        let question = world.call(&pay(Some((asked, from_savings()))), None);
        assert!(question["inputRequests"]["toolgate_confirmation"].is_object(), "{question}");
    }
    assert_eq!(world.paid(), 0);
}

/// A server's questions become requests to a client of the earlier era: only those it said it can answer.
#[test]
fn a_legacy_client_is_asked_only_what_it_can_be_asked() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let tool = json!({ "name": "ask", "description": "Asks", "inputSchema": { "type": "object", "properties": { "method": { "type": "string" } } } });
    let upstream = McpUpstream::start(&[tool], |params| {
        let questions = json!({ "q": { "method": params["arguments"]["method"], "params": { "message": "?" } } });
        json!({ "result": { "resultType": "input_required", "inputRequests": questions } })
    });
    tenant.post("/v1/endpoints", &upstream.registration("up")).expect(201);
    let session = tenant.initialize(&json!({ "elicitation": {}, "roots": {} })).expect("a session");
    let first = |method: &str| {
        let params = json!({ "name": "ask", "arguments": { "method": method } });
        let mut stream = tenant.legacy_stream(&json!(1), &params, Some(&session));
        stream.is_events().then(|| stream.expect("a question")["method"].clone())
    };
    for method in ["elicitation/create", "roots/list"] {
        assert_eq!(first(method), Some(json!(method)));
    }
    for method in ["sampling/createMessage", "tools/call", "notifications/cancelled", "ping"] {
        assert_eq!(first(method), None, "{method} is not asked: the answer is a body");
    }
}
