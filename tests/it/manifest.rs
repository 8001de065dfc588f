//! The manifest agents see, and what the first call of a conversation does to it.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{having, median, topology, topology_with};
use crate::support::provider::{Latch, Provider, Reply};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn items_are_ordered_by_id_and_say_what_applies() {
    let gate = Gate::start();
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let full = having(
        having(topology_with("zulu", "query", &schema), "output_schema", json!({ "type": "object" })),
        "requires_confirmation",
        json!(true),
    );
    let full = having(having(full, "llm_format", json!(true)), "timeout_ms", json!(1500));
    let topologies = Provider::topology(&[full, topology("alpha", "command")]);
    let medians = Provider::median(&[median("orderStatus", "medium"), median("find", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("topologies", &topologies);
    tenant.endpoint("medians", &medians);
    assert_eq!(tenant.listed(), ["median:find", "median:orderStatus", "topology:alpha", "topology:zulu"]);
    let manifest = tenant.manifest();
    let [find, order, alpha, zulu] = manifest.as_slice() else { panic!("four tools: {manifest:?}") };
    assert_eq!(
        *alpha,
        json!({ "id": "topology:alpha", "title": "Title of alpha", "description": "Does what alpha says",
            "kind": "command", "input_schema": { "type": "object" } }),
        "nothing that does not apply"
    );
    assert_eq!(
        *zulu,
        json!({ "id": "topology:zulu", "title": "Title of zulu", "description": "Does what zulu says",
            "kind": "query", "input_schema": schema, "output_schema": { "type": "object" },
            "requires_confirmation": true, "llm_format": true, "timeout_ms": 1500 })
    );
    assert_eq!((&find["kind"], &find["risk"]), (&json!("query"), &json!("low")));
    assert_eq!((&order["kind"], &order["risk"]), (&json!("query"), &json!("medium")));
    assert_eq!(order["input_schema"]["additionalProperties"], false);
}

#[test]
fn schemas_are_shown_compact_with_their_members_as_they_came() {
    let gate = Gate::start();
    let schemas = r#""input_schema":{"type":"object","required":["zeta"],"properties":{"zeta":{"maximum":1.5,"type":"number"},"alpha":{}}},"output_schema":{"title":"é","not":{}}"#;
    let provider = Provider::topology(&[]);
    let spread = schemas.replace(':', " : ").replace(',', " ,\n");
    let item = format!(r#"[{{"id":"topology:a","title":"A","description":"d","kind":"query",{spread}}}]"#);
    provider.manifest(Reply::text(200, &item));
    let tenant = gate.tenant("acme");
    tenant.endpoint("shop", &provider);
    for answer in [
        tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200),
        tenant.get("/v1/tools").expect(200),
        tenant.get("/v1/tools/a").expect(200),
    ] {
        assert!(answer.text().contains(schemas), "{schemas} is not in {}", answer.text());
    }
}

#[test]
fn a_new_conversation_syncs_median_endpoints_first() {
    let gate = Gate::start();
    let medians = Provider::median(&[median("find", "low")]);
    let topologies = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("medians", &medians);
    tenant.endpoint("topologies", &topologies);
    gate.advance(Duration::from_secs(2));
    medians.offer(&[median("find", "low"), median("refund", "low")]);
    let listed = |conversation: &str| {
        let request = tenant.agent_request("GET", "/mcp/manifest.json").header("Conversation-Id", conversation);
        let manifest = request.send().expect(200).json();
        manifest.as_array().expect("an array").len()
    };
    assert_eq!(tenant.listed().len(), 2, "without a conversation nothing is synced");
    assert_eq!(listed("c-1"), 3, "the new tool is there before the first answer");
    assert_eq!(medians.fetches().len(), 2);
    assert_eq!(topologies.fetches().len(), 1, "this dialect does not ask for it");
    gate.advance(Duration::from_secs(2));
    assert_eq!(listed("c-1"), 3);
    assert_eq!(medians.fetches().len(), 2, "the conversation is known by now");
    let newest = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id)).remove(0);
    assert_eq!((&newest["trigger"], &newest["outcome"]), (&json!("conversation"), &json!("applied")));

    // Another organization's conversation of that name is another conversation.
    let other = gate.tenant("other");
    let others = Provider::median(&[median("find", "low")]);
    other.endpoint("medians", &others);
    gate.advance(Duration::from_secs(2));
    other.agent_request("GET", "/mcp/manifest.json").header("Conversation-Id", "c-1").send().expect(200);
    assert_eq!(others.fetches().len(), 2);
}

#[test]
fn a_run_begins_a_conversation_too() {
    let gate = Gate::start();
    let medians = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("medians", &medians);
    gate.advance(Duration::from_secs(2));
    medians.offer(&[median("refund", "low")]);
    let run = tenant.run_request(&json!({ "tool": "refund" })).header("Conversation-Id", "c-9").send().expect(200);
    assert_eq!(run.json()["status"], "completed");
    assert_eq!(medians.last_call().json()["context"]["conversationId"], "c-9");
}

#[test]
fn a_conversation_is_content_with_a_sync_that_has_just_ended() {
    let gate = Gate::start();
    let medians = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("medians", &medians);
    gate.advance(Duration::from_millis(900));
    tenant.agent_request("GET", "/mcp/manifest.json").header("Conversation-Id", "c-1").send().expect(200);
    assert_eq!(medians.fetches().len(), 1);
}

#[test]
fn a_slow_endpoint_answers_a_conversation_with_its_last_good_tools() {
    let gate = Gate::start();
    let (quick, slow) = (Provider::median(&[median("find", "low")]), Provider::median(&[median("refund", "low")]));
    let tenant = gate.tenant("acme");
    tenant.endpoint("quick", &quick);
    let endpoint = tenant.endpoint("slow", &slow);
    gate.advance(Duration::from_secs(2));
    quick.offer(&[median("findMore", "low")]);
    let latch = Arc::new(Latch::default());
    let manifest = json!({ "version": 1, "tools": [median("refundAll", "low")] });
    slow.manifest(Reply::Held(Arc::clone(&latch), Box::new(Reply::json(200, &manifest))));
    let begun = Instant::now();
    let answer = tenant.agent_request("GET", "/mcp/manifest.json").header("Conversation-Id", "c-1").send().expect(200);
    let took = begun.elapsed();
    let ids: Vec<_> = answer.json().as_array().expect("an array").iter().map(|tool| tool["id"].clone()).collect();
    assert_eq!(ids, [json!("median:findMore"), json!("median:refund")]);
    assert!(took >= Duration::from_millis(1_900), "the slow one was waited for: {took:?}");
    assert!(took < Duration::from_secs(5), "but not long: {took:?}");
    // Its sync goes on, and what it brings is there later.
    latch.open();
    eventually("the slow sync ends", || (tenant.show(&endpoint)["tool_count"] == 1).then_some(()));
    eventually("its tools are listed", || tenant.listed().contains(&"median:refundAll".to_owned()).then_some(()));
}
