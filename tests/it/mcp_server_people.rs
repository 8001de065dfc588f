//! What an MCP client sees of people: confirmation by form, approval, and calls that are not over yet.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, topology, topology_with};
use crate::support::mcp::{error, text, with_tasks};
use crate::support::provider::Provider;
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::time::Duration;

struct World {
    gate: Gate,
    tenant: Tenant,
    provider: Provider,
    endpoint: Registered,
}

/// A bank whose `pay` a user has to confirm, whose `wire` a teammate has to allow, and whose `quote` takes its time.
fn world() -> World {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let schema = json!({ "type": "object", "properties": { "amount": { "type": "integer" } } });
    let provider = Provider::topology(&[
        having(topology_with("pay", "command", &schema), "requires_confirmation", json!(true)),
        having(topology("wire", "command"), "risk", json!("high")),
        topology("quote", "query"),
        topology("order", "command"),
    ]);
    let endpoint = tenant.endpoint("bank", &provider);
    World { gate, tenant, provider, endpoint }
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn pay(amount: u64) -> Value {
    json!({ "name": "pay", "arguments": { "amount": amount } })
}

/// The next round, with the user's answer.
fn answered(mut params: Value, asked: &Value, answer: &Value) -> Value {
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({ "toolgate_confirmation": answer });
    params
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

impl World {
    #[track_caller]
    fn ask(&self, params: &Value) -> Value {
        let asked = self.tenant.modern("tools/call", params, &forms());
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        asked
    }

    #[track_caller]
    fn refused(&self, tenant: &Tenant, params: &Value) {
        error(&tenant.modern_request("tools/call", params, &forms()).send(), 400, -32602, &json!(1));
    }
}

#[test]
fn a_modern_client_puts_the_question_to_its_user() {
    let world = world();
    let asked = world.ask(&pay(5));
    let question = &asked["inputRequests"]["toolgate_confirmation"];
    assert_eq!((&question["method"], &question["params"]["mode"]), (&json!("elicitation/create"), &json!("form")));
    assert!(
        question["params"]["message"].as_str().is_some_and(|message| message.contains("pay") && message.contains('5'))
    );
    let schema = &question["params"]["requestedSchema"];
    assert_eq!(
        (&schema["properties"]["confirm"]["type"], &schema["required"]),
        (&json!("boolean"), &json!(["confirm"]))
    );
    assert!(world.provider.calls().is_empty());
    // b2-mcp#134: the model's own word is no confirmation, wherever it puts it.
    let own_word =
        json!({ "name": "pay", "arguments": { "amount": 5, "confirm": true, "confirmation": asked["requestState"] } });
    world.ask(&own_word);
    let mut no_state = pay(5);
    no_state["inputResponses"] = json!({ "toolgate_confirmation": yes() });
    world.ask(&no_state);
    let mut no_answer = pay(5);
    no_answer["requestState"] = asked["requestState"].clone();
    world.ask(&no_answer);
    world.ask(&answered(pay(5), &asked, &json!({ "action": "accept", "content": { "confirm": "yes" } })));
    for no in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept", "content": { "confirm": false } }),
    ] {
        let declined = world.tenant.modern("tools/call", &answered(pay(5), &asked, &no), &forms());
        assert!(declined["isError"] == true && text(&declined).contains("declined"), "{declined}");
    }
    assert!(world.provider.calls().is_empty(), "nothing was sent");
    let started = world.tenant.modern("tools/call", &answered(pay(5), &asked, &yes()), &forms());
    assert_eq!(started["structuredContent"]["status"], "started", "{started}");
    assert_eq!(world.provider.last_call().json()["args"], json!({ "amount": 5 }));
    // Said again it is the same call, not a second one.
    let again = world.tenant.modern("tools/call", &answered(pay(5), &asked, &yes()), &forms());
    assert_eq!((&again["structuredContent"], world.provider.calls().len()), (&started["structuredContent"], 1));
}

#[test]
fn a_yes_counts_for_its_own_call_only() {
    let world = world();
    let asked = world.ask(&pay(5));
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let good = answered(pay(5), &asked, &yes());
    world.refused(&world.tenant, &answered(pay(6), &asked, &yes()));
    world.refused(&second, &good);
    let state = asked["requestState"].as_str().expect("a state");
    for forged in ["garbage".to_owned(), format!("{state}A"), format!("r.{state}"), "r.".to_owned()] {
        world.refused(&world.tenant, &answered(pay(5), &json!({ "requestState": forged }), &yes()));
    }
    let other = json!({ "name": "order", "arguments": {} });
    world.refused(&world.tenant, &answered(other, &asked, &yes()));
    let as_caller =
        world.tenant.modern_request("tools/call", &good, &forms()).header("X-Caller-Identity", "ann").send();
    error(&as_caller, 400, -32602, &json!(1));
    world.gate.advance(Duration::from_secs(601));
    world.refused(&world.tenant, &good);
    assert!(world.provider.calls().is_empty());
}

#[test]
fn who_cannot_ask_a_user_is_refused_or_passed_to_a_teammate() {
    let world = world();
    let plain = |capabilities: &Value| world.tenant.modern("tools/call", &pay(5), capabilities);
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let refused = plain(&capabilities);
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(!text(&refused).contains("confirm"), "no way round is told: {refused}");
    }
    assert_eq!(world.tenant.legacy("tools/call", &pay(5))["isError"], true);
    world.tenant.patch("/v1/org", &json!({ "confirmation_fallback": "approval" })).expect(200);
    let task = plain(&with_tasks());
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let approval = world.tenant.the_approval();
    assert_eq!(approval["correlation_id"], task["taskId"]);
    assert!(world.provider.calls().is_empty());
    world.tenant.decide(&approval, "approve").expect(200);
    let done = finished(&world.tenant, &task);
    assert_eq!((&done["status"], world.provider.calls().len()), (&json!("completed"), 1), "{done}");
    // One that can ask still does.
    world.ask(&pay(6));
}

#[test]
fn a_legacy_client_is_asked_on_the_stream_of_its_call() {
    let world = world();
    let session = world.tenant.initialize(&json!({ "elicitation": {} })).expect("a session");
    let stranger = world.tenant.initialize(&json!({ "elicitation": {} })).expect("a session");
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let answer = |tenant: &Tenant, session: Option<&str>, id: &Value, result: Value| {
        let request = tenant.mcp(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        session.into_iter().fold(request, |request, session| request.header("Mcp-Session-Id", session)).send().status
    };
    let asked = || {
        let mut stream = world.tenant.legacy_stream(&json!("c-1"), &pay(5), Some(&session));
        assert!(stream.is_events() && stream.head.contains("x-accel-buffering: no"), "{}", stream.head);
        let question = stream.expect("a question");
        assert_eq!(question["method"], "elicitation/create");
        assert!(question["params"]["message"].as_str().is_some_and(|message| message.contains("pay")));
        (stream, question["id"].clone())
    };
    let (mut stream, id) = asked();
    assert_eq!(answer(&world.tenant, Some(&stranger), &id, yes()), 400, "another session");
    assert_eq!(answer(&world.tenant, None, &id, yes()), 400, "no session");
    assert_eq!(answer(&second, Some(&session), &id, yes()), 404, "another key");
    assert_eq!(answer(&world.tenant, Some(&session), &json!("toolgate-0"), yes()), 400, "another question");
    assert!(world.provider.calls().is_empty());
    assert_eq!(answer(&world.tenant, Some(&session), &id, yes()), 202);
    let done = stream.expect("the answer");
    assert_eq!(
        (&done["id"], &done["result"]["structuredContent"]["status"]),
        (&json!("c-1"), &json!("started")),
        "{done}"
    );
    assert!(stream.next().is_none(), "the answer is the last");
    assert_eq!(world.provider.calls().len(), 1);
    assert_eq!(answer(&world.tenant, Some(&session), &id, yes()), 400, "once");
    let (mut stream, id) = asked();
    assert_eq!(answer(&world.tenant, Some(&session), &id, json!({ "action": "decline" })), 202);
    let declined = stream.expect("the answer");
    assert!(declined["result"]["isError"] == true && text(&declined["result"]).contains("declined"), "{declined}");
    assert_eq!(world.provider.calls().len(), 1, "nothing was sent");
}

/// While a person thinks about it things change: what counts is how they stand when it is made.
#[test]
fn a_yes_does_not_bring_back_what_was_taken_away_meanwhile() {
    let world = world();
    let session = world.tenant.initialize(&json!({ "elicitation": {} })).expect("a session");
    let mut stream = world.tenant.legacy_stream(&json!(1), &pay(5), Some(&session));
    let id = stream.expect("a question")["id"].clone();
    world.tenant.patch(&format!("/v1/endpoints/{}", world.endpoint.id), &json!({ "enabled": false })).expect(200);
    let answer = world.tenant.mcp(&json!({ "jsonrpc": "2.0", "id": id, "result": yes() }));
    answer.header("Mcp-Session-Id", &session).send().expect(202);
    let refused = stream.expect("the answer");
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(world.provider.calls().is_empty());
}

#[test]
fn a_session_is_its_keys_and_ends() {
    let world = world();
    assert_eq!(world.tenant.initialize(&json!({ "sampling": {}, "roots": {} })), None, "nobody to ask");
    let session = world.tenant.initialize(&json!({ "elicitation": {} })).expect("a session");
    let list = |tenant: &Tenant, session: &str| {
        tenant.legacy_request("tools/list", &json!({})).header("Mcp-Session-Id", session).send()
    };
    list(&world.tenant, &session).expect(200);
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    for (tenant, session) in
        [(&second, session.as_str()), (&world.tenant, "forged"), (&world.tenant, &format!("{session}A"))]
    {
        error(&list(tenant, session), 404, -32600, &json!(1));
    }
    // The present era knows no sessions and looks at none.
    world
        .tenant
        .modern_request("tools/list", &json!({}), &json!({}))
        .header("Mcp-Session-Id", "forged")
        .send()
        .expect(200);
    world.gate.advance(Duration::from_secs(24 * 3600 + 1));
    error(&list(&world.tenant, &session), 404, -32600, &json!(1));
}

#[track_caller]
fn look(tenant: &Tenant, task: &Value) -> Value {
    tenant.modern("tasks/get", &json!({ "taskId": task["taskId"] }), &with_tasks())
}

/// The task once it is over.
#[track_caller]
fn finished(tenant: &Tenant, task: &Value) -> Value {
    eventually("the task is over", || Some(look(tenant, task)).filter(|task| task["status"] != "working"))
}

#[test]
fn a_query_goes_on_as_a_task() {
    let world = world();
    let node = world.endpoint.node(&world.gate);
    let call = json!({ "name": "quote", "arguments": {} });
    let task = world.tenant.modern("tools/call", &call, &with_tasks());
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    for absent in ["result", "error", "inputRequests", "task", "ttl", "pollInterval"] {
        assert!(task.get(absent).is_none(), "{absent}: {task}");
    }
    for number in ["ttlMs", "pollIntervalMs"] {
        assert!(task[number].as_u64().is_some_and(|ms| ms > 0), "{number}: {task}");
    }
    let id = task["taskId"].as_str().expect("an id");
    assert_eq!(look(&world.tenant, &task)["status"], "working", "it is there at once");
    assert_eq!(node.complete("w-1", id, &json!({ "price": 7 })).status, 202);
    let done = finished(&world.tenant, &task);
    assert_eq!((&done["resultType"], &done["status"]), (&json!("complete"), &json!("completed")));
    assert_eq!(
        (&done["result"]["structuredContent"], &done["result"]["isError"]),
        (&json!({ "price": 7 }), &json!(false))
    );
    // Told too late, and told something that nobody asked: both are acknowledged.
    let params = json!({ "taskId": id });
    let cancelled = world.tenant.modern("tasks/cancel", &params, &with_tasks());
    assert!(cancelled["resultType"] == "complete" && cancelled.get("status").is_none(), "{cancelled}");
    let update = json!({ "taskId": id, "inputResponses": { "x": {} } });
    assert_eq!(world.tenant.modern("tasks/update", &update, &with_tasks())["resultType"], "complete");
    assert_eq!(look(&world.tenant, &task)["status"], "completed");
    let second = world.tenant.modern("tools/call", &call, &with_tasks());
    world.tenant.modern("tasks/cancel", &json!({ "taskId": second["taskId"] }), &with_tasks());
    assert_eq!(finished(&world.tenant, &second)["status"], "cancelled");
    let third = world.tenant.modern("tools/call", &call, &with_tasks());
    let failed =
        json!({ "request_id": third["taskId"], "status": "failed", "error": { "code": "no", "message": "sold out" } });
    assert_eq!(node.deliver("w-3", &failed).status, 202);
    let failed = finished(&world.tenant, &third);
    assert_eq!((&failed["status"], &failed["result"]["isError"]), (&json!("completed"), &json!(true)), "{failed}");
    assert!(text(&failed["result"]).contains("sold out"), "{failed}");
}

#[test]
fn a_task_is_its_own_keys_alone_and_wants_the_extension() {
    let world = world();
    let other = world.gate.tenant("other");
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let task = world.tenant.modern("tools/call", &json!({ "name": "quote", "arguments": {} }), &with_tasks());
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let own = json!({ "taskId": task["taskId"], "inputResponses": {} });
        for tenant in [&other, &second] {
            error(&tenant.modern_request(method, &own, &with_tasks()).send(), 400, -32602, &json!(1));
        }
        let nonsense = json!({ "taskId": "nonsense", "inputResponses": {} });
        error(&world.tenant.modern_request(method, &nonsense, &with_tasks()).send(), 400, -32602, &json!(1));
        let told = error(&world.tenant.modern_request(method, &own, &json!({})).send(), 400, -32021, &json!(1));
        assert!(
            told["data"]["requiredCapabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(),
            "{told}"
        );
        let elsewhere = world.tenant.modern_request(method, &own, &with_tasks()).header("Mcp-Name", "elsewhere");
        error(&elsewhere.send(), 400, -32020, &json!(1));
    }
    assert_eq!(look(&world.tenant, &task)["status"], "working", "nobody else cancelled it");
}

#[test]
fn a_held_call_is_a_task_until_somebody_decides() {
    let world = world();
    let call = json!({ "name": "wire", "arguments": {} });
    let held = || world.tenant.modern("tools/call", &call, &with_tasks());
    let task = held();
    assert!(task["statusMessage"].as_str().is_some_and(|message| message.contains("approval")), "{task}");
    world.tenant.decide(&world.tenant.the_approval(), "deny").expect(200);
    let denied = finished(&world.tenant, &task);
    assert_eq!(denied["status"], "cancelled", "{denied}");
    let task = held();
    world.tenant.decide(&world.tenant.the_approval(), "approve").expect(200);
    let done = finished(&world.tenant, &task);
    assert_eq!(
        (&done["status"], &done["result"]["structuredContent"]["status"]),
        (&json!("completed"), &json!("started"))
    );
    let task = held();
    world.tenant.modern("tasks/cancel", &json!({ "taskId": task["taskId"] }), &with_tasks());
    assert_eq!(finished(&world.tenant, &task)["status"], "cancelled");
    assert_eq!(world.provider.calls().len(), 1);
}

#[test]
fn a_client_without_tasks_waits_and_hears_of_it() {
    let world = world();
    let node = world.endpoint.node(&world.gate);
    let params = json!({ "name": "quote", "arguments": {}, "_meta": { "progressToken": "p-1" } });
    for legacy in [false, true] {
        let calls = world.provider.calls().len();
        let mut stream = if legacy {
            world.tenant.legacy_stream(&json!(1), &params, None)
        } else {
            world.tenant.modern_stream("tools/call", &params, &json!({}))
        };
        assert!(stream.is_events(), "{}", stream.head);
        let progress = stream.expect("progress");
        assert_eq!(
            (&progress["method"], &progress["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p-1"))
        );
        assert_eq!(world.provider.calls().len(), calls + 1);
        let id = world.provider.last_call().json()["request_id"].as_str().expect("an id").to_owned();
        assert_eq!(node.complete(&format!("w-{legacy}"), &id, &json!({ "price": 7 })).status, 202);
        let done = stream.expect("the answer");
        assert_eq!((&done["id"], &done["result"]["structuredContent"]), (&json!(1), &json!({ "price": 7 })), "{done}");
    }
}

#[test]
fn a_client_without_tasks_can_ask_again() {
    let world = world();
    let node = world.endpoint.node(&world.gate);
    let run = world.tenant.call("quote", &json!({}));
    let id = run["correlation_id"].as_str().expect("an id");
    let listed = |capabilities: &Value| {
        let tools = world.tenant.modern("tools/list", &json!({}), capabilities)["tools"].clone();
        tools.as_array().expect("tools").iter().any(|tool| tool["name"] == "toolgate_get_run")
    };
    assert!(listed(&json!({})) && !listed(&with_tasks()));
    let asked = json!({ "correlation_id": id });
    let call = json!({ "name": "toolgate_get_run", "arguments": asked });
    error(&world.tenant.modern_request("tools/call", &call, &with_tasks()).send(), 400, -32602, &json!(1));
    assert_eq!(node.complete("w-1", id, &json!({ "price": 7 })).status, 202);
    assert_eq!(world.tenant.modern_call("toolgate_get_run", &asked)["structuredContent"], json!({ "price": 7 }));
    assert_eq!(world.tenant.legacy_call("toolgate_get_run", &asked)["structuredContent"], json!({ "price": 7 }));
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    for (tenant, arguments) in [
        (&second, asked.clone()),
        (&world.tenant, json!({ "correlation_id": "x" })),
        (&world.tenant, json!({})),
        (&world.tenant, json!({ "correlation_id": id, "more": 1 })),
    ] {
        assert_eq!(tenant.modern_call("toolgate_get_run", &arguments)["isError"], true, "{arguments}");
    }
    // Where nothing can stay open there is no use for it.
    let plain = world.gate.tenant("plain");
    plain.endpoint("shop", &Provider::median(&[median("lookup", "low")]));
    error(&plain.modern_request("tools/call", &call, &json!({})).send(), 400, -32602, &json!(1));
}
