//! Many edits at once: each is made or refused, and an answer tells which.

use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::provider::Provider;
use serde_json::{Value, json};
use std::thread;

/// Does `edit` for each number at once.
fn at_once(count: usize, edit: impl Fn(usize) -> Value + Sync) -> Vec<Value> {
    thread::scope(|scope| {
        let edits: Vec<_> = (0..count)
            .map(|n| {
                scope.spawn({
                    let edit = &edit;
                    move || edit(n)
                })
            })
            .collect();
        edits.into_iter().map(|edit| edit.join().expect("no panic")).collect()
    })
}

#[test]
fn twenty_endpoints_registered_at_once_are_twenty_connected_endpoints() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("report", "query")]);
    let made = at_once(20, |n| {
        tenant.register(&format!("endpoint-{n}"), &provider, &json!({ "name_prefix": format!("p{n}-") })).body
    });
    for endpoint in &made {
        assert_eq!((&endpoint["state"], &endpoint["tool_count"]), (&json!("connected"), &json!(1)), "{endpoint}");
        assert!(endpoint["callback"]["secret"].is_string(), "{endpoint}");
    }
    assert_eq!(tenant.listed().len(), 20);
}

#[test]
fn twenty_changes_of_one_endpoint_at_once_are_all_made() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("report", "query")]);
    let endpoint = tenant.endpoint("tools", &provider);
    let path = format!("/v1/endpoints/{}", endpoint.id);
    let changed = at_once(20, |n| tenant.patch(&path, &json!({ "name_prefix": format!("p{n}-") })).expect(200).json());
    assert_eq!(changed.len(), 20);
    let now = tenant.show(&endpoint);
    let prefix = now["name_prefix"].as_str().expect("one of them was last").to_owned();
    assert_eq!(now["state"], "connected", "{now}");
    assert_eq!(tenant.listed(), [format!("topology:{prefix}report")], "the tools bear the last prefix");
}

#[test]
fn twenty_changes_of_the_organization_and_of_a_group_at_once_are_all_made() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    at_once(20, |n| tenant.patch("/v1/org", &json!({ "limits": { "tool_per_second": n + 1 } })).expect(200).json());
    let rules = json!({ "name": "default", "rules": [{ "effect": "allow", "tools": ["*"] }] });
    at_once(20, |_| tenant.request("PUT", "/v1/groups/default").json(&rules).send().expect(200).json());
}
