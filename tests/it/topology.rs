//! Dialect topology: what the provider receives, and what the agent is told.

use crate::support::gate::Gate;
use crate::support::manifests::{having, topology, topology_with};
use crate::support::provider::{PROVIDER_KEY, Provider, Reply, acknowledge};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn keys_in_order(text: &str) -> Vec<String> {
    let value: serde_json::Map<String, Value> = serde_json::from_str(text).expect("an object");
    value.keys().cloned().collect()
}

#[test]
fn a_command_is_dispatched_once_and_answered_in_the_order_of_the_contract() {
    let gate = Gate::start();
    let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
    let provider = Provider::topology(&[topology_with("send-mail", "command", &schema)]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("mail", &provider);
    let answer = tenant.run(&json!({ "tool": "send-mail", "args": { "to": "ann" }, "request_id": "mine" })).expect(202);
    let run = answer.json();
    assert_eq!(
        keys_in_order(answer.text())[..7],
        ["tool", "topology", "kind", "correlation_id", "request_id", "started", "status"]
    );
    assert_eq!(run["tool"], "topology:send-mail");
    assert_eq!(run["topology"], "send-mail");
    assert_eq!(run["kind"], "command");
    assert_eq!(run["request_id"], "mine");
    assert_eq!(run["started"], true);
    assert_eq!(run["status"], "started");
    assert_eq!(provider.calls().len(), 1);
    assert_eq!(tenant.agent_run(&run), run, "looked at again it is the same");
}

// docker/mcp-gateway#97, BerriAI/litellm#35403: the bytes that leave are the provider's business and nothing else.
#[test]
fn the_provider_receives_exactly_what_the_contract_names() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("send-mail", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("mail", &provider);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let run = tenant
        .run_request(
            &json!({ "tool": "topology:send-mail", "args": { "b": [1, "ü"], "a": null }, "request_id": "mine" }),
        )
        .header("X-Caller-Identity", "whatsapp:+201000000000")
        .header("Conversation-Id", "conversation-7")
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
        .header("Cookie", "session=agent")
        .header("X-Forwarded-For", "10.9.9.9")
        .header("Accept-Language", "de")
        .send()
        .expect(202)
        .json();
    let call = provider.last_call();
    let id = run["correlation_id"].as_str().expect("an id");
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/mcp/run"));
    assert_eq!(
        call.text(),
        format!(r#"{{"tool":"topology:send-mail","args":{{"b":[1,"ü"],"a":null}},"request_id":"{id}"}}"#)
    );
    assert_eq!(call.header("x-auth"), Some(PROVIDER_KEY));
    assert_eq!(call.header("x-caller-identity"), Some("whatsapp:+201000000000"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    let callback = format!("{}/callbacks/{}", gate.url(), endpoint.id);
    assert_eq!(call.header("x-callback-url"), Some(callback.as_str()));
    assert_eq!(endpoint.body["callback"]["url"], callback);
    assert!(call.header("traceparent").is_some_and(|sent| sent.contains(trace)), "the trace goes on");
    let sent: BTreeSet<String> = call.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let known = [
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "traceparent",
        "user-agent",
        "x-auth",
        "x-callback-url",
        "x-caller-identity",
    ];
    let unknown: Vec<&String> = sent.iter().filter(|name| !known.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(sent.len(), call.headers.len(), "no header twice");
    for received in provider.calls().into_iter().chain(provider.fetches()) {
        let all = format!("{received:?}");
        assert!(!all.contains("tg_ag_") && !all.contains("tg_ws_") && !all.contains("tg_op_"), "a key of ours leaks");
    }
    let fetch = provider.fetches().remove(0);
    assert_eq!((fetch.path.as_str(), fetch.header("x-auth")), ("/mcp/manifest.json", Some(PROVIDER_KEY)));
}

// BerriAI/litellm#35403: the configured credentials are sent, whatever their header.
#[test]
fn configured_credentials_are_sent_with_fetches_and_calls() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let auth = json!({ "auth": { "header": "Authorization", "value": "Bearer upstream-secret" } });
    let endpoint = tenant.register("tools", &provider, &auth).assert_connected();
    tenant.call("go", &json!({}));
    for received in provider.fetches().iter().chain(&provider.calls()) {
        assert_eq!(received.header("authorization"), Some("Bearer upstream-secret"));
        assert_eq!(received.header("x-auth"), None);
    }
    assert_eq!(provider.last_call().header("x-caller-identity"), None, "no caller, no header");
    // Written only: no answer shows them again.
    let shown = tenant.get(&format!("/v1/endpoints/{}", endpoint.id)).expect(200);
    assert!(!shown.text().contains("upstream-secret"), "{}", shown.text());
    assert!(!tenant.get("/v1/audit").expect(200).text().contains("upstream-secret"));
    tenant
        .patch(
            &format!("/v1/endpoints/{}", endpoint.id),
            &json!({ "auth": { "header": "Authorization", "value": "Bearer rotated" } }),
        )
        .expect(200);
    tenant.call("go", &json!({}));
    assert_eq!(provider.last_call().header("authorization"), Some("Bearer rotated"));
}

#[test]
fn a_query_is_pending_until_its_callback() {
    let gate = Gate::start();
    let tools = [topology("weather", "query"), having(topology("chat", "query"), "llm_format", json!(true))];
    let provider = Provider::topology(&tools);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    for (tool, verbatim) in [("weather", true), ("chat", false)] {
        let answer = tenant.run(&json!({ "tool": tool })).expect(202);
        let run = answer.json();
        assert_eq!((&run["status"], &run["started"], &run["kind"]), (&json!("pending"), &json!(true), &json!("query")));
        assert_eq!(run["request_id"], "", "none was given");
        assert_eq!(run.get("result"), None);
        let id = run["correlation_id"].as_str().expect("an id");
        let delivered = node.complete(&format!("msg-{tool}"), id, &json!({ "degrees": 21.5 })).expect(202);
        assert_eq!(delivered.json(), json!({ "accepted": true }));
        let done = tenant.agent_run(&run);
        assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!({ "degrees": 21.5 })));
        assert_eq!(done["verbatim"] == true, verbatim, "{tool}: {done}");
        for member in ["tool", "topology", "kind", "correlation_id", "request_id", "started"] {
            assert_eq!(done[member], run[member], "{member}");
        }
    }
}

#[test]
fn the_provider_is_called_by_its_own_name() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("send-mail", "command")]);
    let tenant = gate.tenant("acme");
    tenant.register("mail", &provider, &json!({ "name_prefix": "eu_" })).assert_connected();
    assert_eq!(tenant.listed(), ["topology:eu_send-mail"]);
    let run = tenant.call("eu_send-mail", &json!({}));
    assert_eq!((&run["tool"], &run["topology"]), (&json!("topology:eu_send-mail"), &json!("eu_send-mail")));
    let call = provider.last_call();
    assert_eq!(call.json()["tool"], "topology:send-mail");
    assert!(!format!("{call:?}").contains("eu_"), "the prefix is ours");
    tenant.run(&json!({ "tool": "send-mail" })).problem(404, "unknown_tool");
}

#[test]
fn tools_can_be_declared_at_registration() {
    let gate = Gate::start();
    let provider = Provider::topology(&[]);
    provider.manifest(Reply::text(500, "never asked"));
    let tenant = gate.tenant("acme");
    let manifest = json!({ "manifest": { "tools": [topology("go", "command"), topology("ask", "query")] } });
    let endpoint = tenant.register("inline", &provider, &manifest).assert_connected();
    assert_eq!(endpoint.body["tool_count"], 2);
    assert!(provider.fetches().is_empty());
    assert_eq!(tenant.listed(), ["topology:ask", "topology:go"]);
    provider.next(acknowledge("command", "p-1"));
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    let bad = json!({ "tools": [topology("Not A Name", "command")] });
    let refused = tenant.register("bad", &provider, &json!({ "manifest": bad }));
    assert_eq!((&refused.body["state"], &refused.body["reason"]["code"]), (&json!("sync_failed"), &json!("bad_name")));
}
