//! What is kept, and for how long.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::topology_with;
use crate::support::provider::Provider;
use serde_json::{Value, json};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn arguments_and_results_go_after_a_day_and_runs_after_a_week() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology_with("ask", "query", &json!({ "type": "object" }))]);
    let tenant = gate.tenant("acme");
    let node = tenant.endpoint("tools", &provider).node(&gate);
    let run = tenant.call("ask", &json!({ "secret": "words-of-ann" }));
    let id = run["correlation_id"].as_str().expect("an id").to_owned();
    node.complete("m-1", &id, &json!("words-of-bob")).expect(202);
    let holds = |shown: &Value, words: &str| shown.to_string().contains(words);
    gate.advance(23 * HOUR);
    let shown = tenant.tenant_run(&run);
    assert!(holds(&shown, "words-of-ann") && holds(&shown, "words-of-bob"), "{shown}");
    gate.advance(2 * HOUR);
    let bare = eventually("arguments and result are deleted", || {
        Some(tenant.tenant_run(&run)).filter(|shown| !holds(shown, "words-of-ann") && !holds(shown, "words-of-bob"))
    });
    assert_eq!(bare["status"], "completed", "the run itself is still known");
    assert_eq!(tenant.agent_run(&run)["status"], "completed");
    gate.advance(144 * HOUR);
    eventually("the run is deleted", || (tenant.get(&format!("/v1/runs/{id}")).status == 404).then_some(()));
    tenant.agent_request("GET", &format!("/mcp/runs/{id}")).send().problem(404, "not_found");
}

#[test]
fn a_tenant_sets_its_own_retention() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology_with("act", "command", &json!({ "type": "object" }))]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    let org = tenant.get("/v1/org").expect(200).json();
    assert_eq!(
        (&org["retention"]["run_retention_h"], &org["retention"]["result_retention_h"]),
        (&json!(168), &json!(24)),
        "{org}"
    );
    tenant.patch("/v1/org", &json!({ "retention": { "run_retention_h": 2, "result_retention_h": 1 } })).expect(200);
    let run = tenant.call("act", &json!({ "secret": "words-of-ann" }));
    let id = run["correlation_id"].as_str().expect("an id").to_owned();
    gate.advance(HOUR + HOUR / 2);
    eventually("arguments are deleted", || {
        (!tenant.tenant_run(&run).to_string().contains("words-of-ann")).then_some(())
    });
    gate.advance(HOUR);
    eventually("the run is deleted", || (tenant.get(&format!("/v1/runs/{id}")).status == 404).then_some(()));
}
