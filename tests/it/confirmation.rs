//! Confirmation tokens: the end user's yes to one call, and to no other.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, topology_with};
use crate::support::provider::{Latch, Provider, Reply};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

struct World {
    gate: Gate,
    provider: Provider,
    tenant: Tenant,
    endpoint: crate::support::tenant::Registered,
}

fn tool(name: &str) -> Value {
    let schema =
        json!({ "type": "object", "properties": { "amount": { "type": "integer" }, "to": { "type": "string" } } });
    having(topology_with(name, "command", &schema), "requires_confirmation", json!(true))
}

fn world() -> World {
    let gate = Gate::start();
    let provider = Provider::topology(&[tool("pay"), tool("charge")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("bank", &provider);
    World { gate, provider, tenant, endpoint }
}

fn body(tool: &str, amount: &Value, token: Option<&str>) -> Value {
    let mut body = json!({ "tool": tool, "args": { "amount": amount, "to": "ann" } });
    if let Some(token) = token {
        body["confirmation"] = json!(token);
    }
    body
}

impl World {
    #[track_caller]
    fn token(&self) -> String {
        let answer = self.tenant.run(&body("pay", &json!(5), None)).expect(200).json();
        assert_eq!(answer["status"], "confirmation_required");
        answer["confirmation"]["token"].as_str().expect("a token").to_owned()
    }
}

#[test]
fn the_first_run_asks_and_the_second_runs() {
    let world = world();
    let asked = world.tenant.run(&body("pay", &json!("5"), None)).expect(200).json();
    assert_eq!((&asked["status"], &asked["started"]), (&json!("confirmation_required"), &json!(false)));
    assert_eq!(
        (&asked["tool"], &asked["topology"], &asked["kind"]),
        (&json!("topology:pay"), &json!("pay"), &json!("command"))
    );
    let confirmation = &asked["confirmation"];
    assert_eq!(confirmation["expires_at"], "2026-01-12T13:56:40.000Z", "ten minutes");
    assert!(confirmation["summary"].as_str().is_some_and(|text| text.contains("pay") && text.contains("ann")));
    assert!(world.provider.calls().is_empty(), "nothing was sent");
    assert!(world.tenant.manifest().iter().all(|tool| tool["requires_confirmation"] == true));
    let token = confirmation["token"].as_str().expect("a token");
    // The canonical coerced arguments count, not their spelling.
    let text = format!(r#"{{"args":{{"to":"a\u006en","amount":5.0}},"confirmation":"{token}","tool":"topology:pay"}}"#);
    let run = world.tenant.agent_request("POST", "/mcp/run").text("application/json", text).send().expect(202).json();
    assert_eq!(run["status"], "started");
    assert_eq!(world.provider.last_call().json()["args"], json!({ "to": "ann", "amount": 5 }));
}

#[test]
fn any_other_call_is_a_mismatch_and_does_not_use_the_token_up() {
    let world = world();
    let token = world.token();
    let token = token.as_str();
    let second = world.tenant.as_agent(&world.tenant.agent_key(&json!({ "name": "second", "groups": ["default"] })));
    let other = world.gate.tenant("other");
    other.endpoint("bank", &Provider::topology(&[tool("pay")]));
    let mut flipped = token.to_owned();
    let last = flipped.pop().expect("not empty");
    flipped.insert(0, last);
    let same = body("pay", &json!(5), Some(token));
    let as_caller = |caller: &str| world.tenant.run_request(&same).header("X-Caller-Identity", caller).send();
    for (what, answer) in [
        ("another argument", world.tenant.run(&body("pay", &json!(6), Some(token)))),
        (
            "one argument more",
            world
                .tenant
                .run(&json!({ "tool": "pay", "args": { "amount": 5, "to": "ann", "x": 1 }, "confirmation": token })),
        ),
        ("another tool", world.tenant.run(&body("charge", &json!(5), Some(token)))),
        ("another key", second.run(&same)),
        ("another organization", other.run(&same)),
        ("a caller", as_caller("ann")),
        ("garbage", world.tenant.run(&body("pay", &json!(5), Some("garbage")))),
        ("empty", world.tenant.run(&body("pay", &json!(5), Some("")))),
        ("rearranged", world.tenant.run(&body("pay", &json!(5), Some(&flipped)))),
    ] {
        assert_eq!(answer.status, 409, "{what}: {}", answer.text());
        answer.problem(409, "confirmation_mismatch");
    }
    assert!(world.provider.calls().is_empty());
    world.tenant.run(&same).expect(202);
    assert_eq!(world.provider.calls().len(), 1);
}

#[test]
fn a_token_starts_one_run_and_then_answers_it() {
    let world = world();
    let token = world.token();
    let same = body("pay", &json!(5), Some(&token));
    let run = world.tenant.run(&same).expect(202).json();
    for _ in 0..3 {
        let again = world.tenant.run(&same).expect(202).json();
        assert_eq!(again["correlation_id"], run["correlation_id"]);
        assert_eq!(again["status"], "started");
    }
    world.tenant.run(&body("pay", &json!(6), Some(&token))).problem(409, "confirmation_mismatch");
    assert_eq!(world.provider.calls().len(), 1);
    // Another yes is another run.
    world.gate.advance(Duration::from_secs(1));
    let second = world.token();
    assert_ne!(second, token);
    let next = world.tenant.run(&body("pay", &json!(5), Some(&second))).expect(202).json();
    assert_ne!(next["correlation_id"], run["correlation_id"]);
    assert_eq!(world.provider.calls().len(), 2);
}

#[test]
fn two_at_once_with_one_token_start_one_run() {
    let world = world();
    let token = world.token();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (tenant, same) = (world.tenant.clone(), body("pay", &json!(5), Some(&token)));
            std::thread::spawn(move || tenant.run(&same).expect(202).json()["correlation_id"].clone())
        })
        .collect();
    let mut ids: Vec<String> = threads.into_iter().map(|thread| thread.join().expect("answered").to_string()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(world.provider.calls().len(), 1);
}

#[test]
fn a_token_expires_after_ten_minutes() {
    let world = world();
    let token = world.token();
    world.gate.advance(Duration::from_secs(599));
    let early = world.token();
    world.gate.advance(Duration::from_secs(1));
    world.tenant.run(&body("pay", &json!(5), Some(&token))).problem(409, "confirmation_mismatch");
    world.tenant.run(&body("pay", &json!(5), Some(&early))).expect(202);
}

#[test]
fn a_changed_tool_wants_another_yes() {
    let world = world();
    let token = world.token();
    world.provider.offer(&[having(tool("pay"), "description", json!("Pays twice")), tool("charge")]);
    assert_eq!(world.tenant.sync(&world.endpoint)["outcome"], "applied");
    world.tenant.run(&body("pay", &json!(5), Some(&token))).problem(409, "confirmation_mismatch");
    assert!(world.provider.calls().is_empty());
}

#[test]
fn a_token_survives_a_restart_used_or_not() {
    let world = world();
    let (first, used) = (world.token(), world.token());
    let run = world.tenant.run(&body("pay", &json!(5), Some(&used))).expect(202).json();
    let gate = world.gate.restart();
    let tenant = world.tenant.at(&gate);
    let again = tenant.run(&body("pay", &json!(5), Some(&used))).expect(202).json();
    assert_eq!(again["correlation_id"], run["correlation_id"]);
    assert_eq!(world.provider.calls().len(), 1);
    tenant.run(&body("pay", &json!(5), Some(&first))).expect(202);
    assert_eq!(world.provider.calls().len(), 2);
}

// b2-mcp#134: no argument confirms, and no refusal explains a way round.
#[test]
fn a_key_that_cannot_confirm_is_refused_neutrally() {
    let world = world();
    let body_of_key = json!({ "name": "bot", "groups": ["default"], "confirms": false });
    let bot = world.tenant.as_agent(&world.tenant.agent_key(&body_of_key));
    let token = world.token();
    for request in [
        body("pay", &json!(5), None),
        body("pay", &json!(5), Some(&token)),
        json!({ "tool": "pay", "args": { "amount": 5, "confirm": true, "confirmation": token } }),
    ] {
        let problem = bot.run(&request).problem(403, "forbidden").to_string();
        for hint in ["token", "confirms", "another key", "workspace"] {
            assert!(!problem.contains(hint), "{problem}");
        }
    }
    assert!(world.provider.calls().is_empty());
    assert_eq!(bot.run(&body("pay", &json!("many"), None)).status, 422, "validated first all the same");
}

#[test]
fn a_tenant_can_demand_a_confirmation() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology_with("go", "command", &json!({ "type": "object" })), tool("pay")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    let stray = tenant.run(&json!({ "tool": "go", "confirmation": "anything" }));
    stray.problem(409, "confirmation_mismatch");
    tenant.patch("/v1/tools/go", &json!({ "requires_confirmation": true })).expect(200);
    assert_eq!(tenant.call("go", &json!({}))["status"], "confirmation_required");
    assert!(tenant.manifest().iter().all(|tool| tool["requires_confirmation"] == true));
    tenant.patch("/v1/tools/pay", &json!({ "requires_confirmation": false })).problem(400, "invalid_request");
    assert_eq!(provider.calls().len(), 1);
}

/// An organization with a key that cannot confirm, a tool that wants a confirmation and one that is reviewed.
fn with_a_bot(fallback: &str) -> (Gate, Tenant, Tenant, Provider) {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::median(&[median("refund", "reviewed"), median("greet", "low")]);
    tenant.endpoint("medians", &provider);
    tenant.patch("/v1/tools/greet", &json!({ "requires_confirmation": true })).expect(200);
    tenant.patch("/v1/org", &json!({ "confirmation_fallback": fallback })).expect(200);
    let bot = tenant.as_agent(&tenant.agent_key(&json!({ "name": "bot", "groups": ["default"], "confirms": false })));
    (gate, tenant, bot, provider)
}

#[test]
fn who_cannot_confirm_is_refused_unless_the_organization_says_otherwise() {
    let (_gate, tenant, bot, provider) = with_a_bot("refuse");
    for tool in ["refund", "greet"] {
        let refused = bot.run(&json!({ "tool": tool }));
        refused.problem(403, "forbidden");
        assert_eq!(tenant.call(tool, &json!({}))["status"], "confirmation_required", "others can");
    }
    assert!(tenant.items("/v1/approvals").is_empty() && tenant.items("/v1/runs").is_empty());
    assert!(provider.calls().is_empty());
}

#[test]
fn for_who_cannot_confirm_a_teammate_may_be_asked() {
    let (_gate, tenant, bot, provider) = with_a_bot("approval");
    for (tool, risk) in [("refund", "reviewed"), ("greet", "low")] {
        let asked = tenant.call(tool, &json!({}));
        let token = asked["confirmation"]["token"].clone();
        let with_token = bot.run(&json!({ "tool": tool, "confirmation": token }));
        with_token.problem(409, "confirmation_mismatch");
        let (run, approval) = bot.hold(tool, &json!({}));
        assert_eq!((&approval["tool"], &approval["risk"]), (&json!(tool), &json!(risk)));
        let before = provider.calls().len();
        tenant.decide(&approval, "approve").expect(200);
        bot.becomes(&run, "completed");
        assert_eq!(provider.calls().len(), before + 1);
        let mark = json!({ "kind": "teammate", "by": "first" });
        assert_eq!(provider.last_call().json()["context"]["approval"], mark);
        assert_eq!(tenant.call(tool, &json!({}))["status"], "confirmation_required", "who can confirm still does");
    }
    let (denied, approval) = bot.hold("greet", &json!({}));
    tenant.decide(&approval, "deny").expect(200);
    assert_eq!(bot.agent_run(&denied)["status"], "denied");
    assert_eq!(provider.calls().len(), 2);
}

// b2-mcp#134: `confirm:true` set by the model itself.
#[test]
fn no_argument_confirms() {
    let (_gate, tenant, _bot, provider) = with_a_bot("refuse");
    let token = tenant.call("greet", &json!({}))["confirmation"]["token"].clone();
    for args in [json!({ "confirm": true }), json!({ "confirmed": "yes" }), json!({ "confirmation": token })] {
        let refused = tenant.run(&json!({ "tool": "greet", "args": args }));
        let problem = refused.problem(422, "invalid_arguments");
        assert_eq!(problem["errors"][0]["keyword"], "additionalProperties", "{problem}");
    }
    // Where the tool takes any argument it is one more of them, and confirms nothing.
    let world = world();
    let token = world.token();
    for member in ["confirm", "confirmation", "approved"] {
        let args = json!({ "amount": 5, "to": "ann", member: token });
        assert_eq!(world.tenant.call("pay", &args)["status"], "confirmation_required", "{member}");
    }
    for stray in ["confirm", "confirmed", "approval"] {
        let body = json!({ "tool": "pay", "args": { "amount": 5, "to": "ann" }, stray: true });
        world.tenant.run(&body).problem(400, "invalid_request");
    }
    assert!(provider.calls().is_empty() && world.provider.calls().is_empty());
}

#[test]
fn a_used_token_waits_for_the_run_it_started() {
    let (_gate, tenant, _bot, provider) = with_a_bot("refuse");
    let token = tenant.call("greet", &json!({}))["confirmation"]["token"].clone();
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::text(200, r#"{"result":"hi"}"#))));
    let same = json!({ "tool": "greet", "confirmation": token });
    let client = || {
        let request = tenant.run_request(&same);
        std::thread::spawn(move || request.send().expect(200).json())
    };
    let first = client();
    eventually("it is sent", || provider.calls().pop());
    let at_once = tenant.run_request(&same).header("Prefer", "wait=0").send().expect(202).json();
    assert_eq!(at_once["status"], "pending");
    let others = [client(), client()];
    latch.open();
    let run = first.join().expect("it is answered");
    assert_eq!((&run["status"], &run["result"]), (&json!("completed"), &json!("hi")));
    for other in others {
        assert_eq!(other.join().expect("it is answered"), run);
    }
    assert_eq!(at_once["correlation_id"], run["correlation_id"]);
    assert_eq!(tenant.run(&same).expect(200).json(), run);
    assert_eq!(provider.calls().len(), 1);
}
