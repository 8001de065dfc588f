//! Nothing of one organization reaches another, whatever is asked for and however.

use crate::support::client::Answer;
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology};
use crate::support::openapi::{Operation, operations};
use crate::support::provider::{Latch, PROVIDER_KEY, Provider, Reply, SIGNING_SECRET, acknowledge};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// An organization that has one of everything, and every word that must stay inside it.
struct Alpha {
    tenant: Tenant,
    endpoint: Registered,
    /// Ids and names that address something.
    addresses: Vec<String>,
    /// Whatever must not show up outside.
    marks: Vec<String>,
    _providers: [Provider; 2],
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn alpha(gate: &Gate) -> Alpha {
    let topologies = Provider::topology(&[topology("alpha-ask", "query"), topology("alpha-go", "command")]);
    let medians = Provider::median(&[median("alphaErase", "high")]);
    let tenant = gate.tenant("alpha-org");
    let endpoint = tenant.endpoint("alpha-endpoint", &topologies);
    tenant.patch("/v1/org", &json!({ "webhook": { "url": "https://alpha-hook.invalid" } })).expect(200);
    let second = tenant.endpoint("alpha-medians", &medians);
    tenant.post("/v1/groups", &json!({ "name": "alpha-group", "rules": [] })).expect(201);
    let key =
        tenant.post("/v1/agent-keys", &json!({ "name": "alpha-key", "groups": ["alpha-group"] })).expect(201).json();
    let workspace = tenant.post("/v1/workspace-keys", &json!({ "name": "alpha-workspace" })).expect(201).json();
    let ask = tenant.call("alpha-ask", &json!({ "q": "alpha-argument" }));
    let held = tenant.call_held("alphaErase", &json!({}));
    tenant.patch("/v1/tools/alpha-go", &json!({ "risk": "medium" })).expect(200);
    let syncs = tenant.items(&format!("/v1/endpoints/{}/syncs", endpoint.id));
    let audit = tenant.items("/v1/audit");
    let cursor = text(&tenant.get("/v1/audit?limit=1").json()["next_cursor"]);
    let mut addresses = vec![
        tenant.org_id.clone(),
        endpoint.id.clone(),
        second.id.clone(),
        text(&key["id"]),
        text(&workspace["id"]),
        text(&ask["correlation_id"]),
        text(&held["correlation_id"]),
        text(&syncs[0]["id"]),
    ];
    let told = tenant.items("/v1/deliveries").into_iter().chain(tenant.items("/v1/approvals"));
    addresses.extend(told.map(|item| text(&item["id"])));
    addresses.extend(audit.iter().filter_map(|entry| entry["id"].as_str()).map(str::to_owned));
    addresses.extend(["alpha-ask", "alpha-go", "alphaErase", "alpha-group", "alpha-endpoint"].map(str::to_owned));
    let mut marks = addresses.clone();
    marks.extend([text(&key["key"]), text(&workspace["key"]), tenant.agent.clone(), tenant.workspace.clone(), cursor]);
    marks.extend(["alpha-", "alphaErase", PROVIDER_KEY, SIGNING_SECRET].map(str::to_owned));
    marks.push(text(&endpoint.body["callback"]["secret"]));
    Alpha { tenant, endpoint, addresses, marks, _providers: [topologies, medians] }
}

impl Alpha {
    #[track_caller]
    fn assert_unseen(&self, answer: &Answer, what: &str) {
        let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>();
        let whole = headers + answer.text();
        for mark in &self.marks {
            assert!(!whole.contains(mark.as_str()), "{what} shows {mark}: {whole}");
        }
    }

    /// Everything of it that could have been changed by somebody else.
    fn state(&self) -> Vec<Value> {
        let lists = ["/v1/endpoints", "/v1/tools", "/v1/groups", "/v1/agent-keys", "/v1/workspace-keys"];
        let lists = lists.into_iter().chain(["/v1/runs", "/v1/approvals", "/v1/audit"]);
        let mut items: Vec<Value> = lists.flat_map(|path| self.tenant.items(path)).collect();
        items.push(self.tenant.get("/v1/org").expect(200).json());
        for item in &mut items {
            item.as_object_mut().expect("an item").remove("last_used_at");
        }
        items
    }
}

/// A body this operation would accept from its owner.
fn good_body(operation: &Operation) -> Option<Value> {
    if !operation.takes_a_body() {
        return None;
    }
    let path = operation.path.as_str();
    Some(match (operation.method.as_str(), path) {
        ("POST", "/mcp/run") => json!({ "tool": "alpha-go" }),
        ("POST", "/mcp") => {
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "alpha-go" } })
        }
        ("POST", "/v1/tools/{name}/accept") => json!({ "hash": "0".repeat(64) }),
        ("PUT", _) => json!({ "rules": [] }),
        ("PATCH", "/v1/tools/{name}") => json!({ "timeout_ms": 1000 }),
        ("PATCH", "/v1/endpoints/{id}") => json!({ "enabled": false }),
        ("PATCH", "/v1/agent-keys/{id}" | "/v1/workspace-keys/{id}") => json!({ "name": "taken over" }),
        ("PATCH", "/admin/v1/orgs/{id}") => json!({ "state": "suspended" }),
        ("PATCH", "/v1/org") => json!({}),
        ("POST", "/v1/endpoints") => json!({ "name": "x" }),
        ("POST", "/v1/groups" | "/v1/agent-keys" | "/v1/workspace-keys" | "/admin/v1/orgs") => json!({}),
        ("POST", "/v1/endpoints/{id}/sync" | "/v1/endpoints/{id}/rotate-secret") => json!({}),
        ("POST", "/admin/v1/orgs/{id}/workspace-keys") => json!({}),
        ("POST", "/v1/approvals/{id}") => json!({ "decision": "deny" }),
        ("POST", "/callbacks/{endpoint_id}") => json!({}),
        (method, path) => panic!("{method} {path} has no body in this test yet"),
    })
}

#[test]
fn every_route_hides_what_another_organization_has() {
    let gate = Gate::start();
    let alpha = alpha(&gate);
    let (provider, beta) = (Provider::topology(&[topology("go", "command")]), gate.tenant("beta"));
    beta.endpoint("tools", &provider);
    let before = alpha.state();
    let mut asked = 0;
    for operation in operations(gate.client()) {
        let item = operation.path.contains('{');
        let addresses = if item { alpha.addresses.as_slice() } else { &[String::new()] };
        for (address, key) in addresses.iter().flat_map(|address| [(address, &beta.workspace), (address, &beta.agent)])
        {
            let path = operation.at(address);
            let mut request = gate.client().request(&operation.method, &path).key(key);
            if let Some(body) = good_body(&operation) {
                request = request.json(&body);
            }
            let answer = request.send();
            let what = format!("{} {path} -> {}", operation.method, answer.status);
            alpha.assert_unseen(&answer, &what);
            let opens = if key == &beta.workspace { "/v1/" } else { "/mcp/" };
            let wanted = match operation.path.as_str() {
                "/healthz" | "/readyz" => continue,
                // Its error is in the protocol's words: that there is no such tool.
                "/mcp" if key == &beta.agent => 200,
                path if !path.starts_with(opens) => 401,
                "/mcp/run" => 404,
                _ if item => 404,
                _ => continue,
            };
            assert_eq!(answer.status, wanted, "{what}: {}", answer.text());
            asked += 1;
        }
    }
    assert!(asked > 500, "{asked} requests are not every route");
    for (now, before) in alpha.state().iter().zip(&before) {
        assert_eq!(now, before, "nothing of it was changed");
    }
    assert_eq!(alpha.state().len(), before.len());
}

#[test]
fn query_parameters_and_cursors_of_another_organization_lead_nowhere() {
    let gate = Gate::start();
    let alpha = alpha(&gate);
    let beta = gate.tenant("beta");
    beta.post("/v1/groups", &json!({ "name": "g", "rules": [] })).expect(201);
    let key = &alpha.addresses[3];
    let mut paths = vec![
        format!("/v1/explain?agent_key={key}&tool=alpha-go"),
        "/v1/runs?endpoint=alpha-endpoint".to_owned(),
        "/v1/runs?tool=alpha-ask".to_owned(),
        "/v1/runs?status=pending".to_owned(),
    ];
    for list in
        ["/v1/endpoints", "/v1/tools", "/v1/groups", "/v1/agent-keys", "/v1/workspace-keys", "/v1/runs", "/v1/audit"]
    {
        let page = alpha.tenant.get(&format!("{list}?limit=1")).expect(200).json();
        let cursor = page["next_cursor"].as_str().expect("alpha has two of everything");
        paths.push(format!("{list}?limit=200&cursor={cursor}"));
    }
    for path in paths {
        let answer = beta.get(&path);
        assert!(matches!(answer.status, 200 | 400 | 404), "{path} {}: {}", answer.status, answer.text());
        alpha.assert_unseen(&answer, &path);
    }
}

#[test]
fn a_name_that_another_organization_has_is_free_here() {
    let gate = Gate::start();
    let alpha = alpha(&gate);
    let provider = Provider::topology(&[topology("alpha-ask", "query"), topology("alpha-go", "command")]);
    let beta = gate.tenant("beta");
    let endpoint = beta.endpoint("alpha-endpoint", &provider);
    beta.post("/v1/groups", &json!({ "name": "alpha-group", "rules": [] })).expect(201);
    assert_ne!(endpoint.id, alpha.endpoint.id);
    assert_eq!(beta.call("alpha-go", &json!({}))["status"], "started");
    assert_eq!(provider.calls().len(), 1);
    assert_eq!(alpha.tenant.items("/v1/runs").len(), 2);
}

#[test]
fn a_callback_reaches_runs_of_its_own_endpoint_only() {
    let gate = Gate::start();
    let (one, other) =
        (Provider::topology(&[topology("ask", "query")]), Provider::topology(&[topology("ask", "query")]));
    let (alpha, beta) = (gate.tenant("alpha-org"), gate.tenant("beta"));
    let (alphas, betas) = (alpha.endpoint("tools", &one), beta.endpoint("tools", &other));
    let run = alpha.call("ask", &json!({}));
    let id = text(&run["correlation_id"]);
    // Beta's own address and secret, but alpha's ids,
    betas.node(&gate).complete("m-1", &id, &json!("forged")).expect(202);
    let theirs = json!({ "correlation_id": "prov-0", "status": "completed", "payload": "forged" });
    betas.node(&gate).deliver("m-2", &theirs).expect(202);
    // and alpha's address with beta's secret.
    let secret = text(&betas.body["callback"]["secret"]);
    alphas.node(&gate).with_secret(&secret).complete("m-3", &id, &json!("forged")).problem(401, "invalid_signature");
    assert_eq!(alpha.agent_run(&run)["status"], "pending");
    alphas.node(&gate).complete("m-1", &id, &json!("true")).expect(202);
    assert_eq!(alpha.agent_run(&run)["result"], "true");
}

#[test]
fn a_suspended_organization_is_not_synced_and_its_callbacks_are_kept() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let (run, path) = (tenant.call("ask", &json!({})), format!("/admin/v1/orgs/{}", tenant.org_id));
    gate.operator("PATCH", &path, Some(&json!({ "state": "suspended" }))).expect(200);
    for (method, path) in [("GET", "/v1/endpoints"), ("POST", &format!("/v1/endpoints/{}/sync", endpoint.id))] {
        tenant.request(method, path).send().problem(403, "forbidden");
    }
    tenant.run(&json!({ "tool": "ask" })).problem(403, "forbidden");
    tenant.agent_request("GET", "/mcp/manifest.json").send().problem(403, "forbidden");
    // A second organization shows that time has passed for everybody.
    let (other_provider, other) = (Provider::topology(&[topology("go", "command")]), gate.tenant("other"));
    other.endpoint("tools", &other_provider);
    gate.advance(Duration::from_secs(331));
    eventually("the other one is synced", || (other_provider.fetches().len() == 2).then_some(()));
    assert_eq!(provider.fetches().len(), 1);
    endpoint.node(&gate).complete("m-1", &text(&run["correlation_id"]), &json!("kept")).expect(202);
    gate.operator("PATCH", &path, Some(&json!({ "state": "active" }))).expect(200);
    assert_eq!(tenant.agent_run(&run)["result"], "kept");
    assert_eq!(provider.calls().len(), 1);
}

#[test]
fn a_call_that_outlives_its_organization_holds_nothing_up() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(acknowledge("command", "p"))));
    let request = tenant.run_request(&json!({ "tool": "go" }));
    let caller = std::thread::spawn(move || request.send());
    eventually("the call is sent", || (provider.calls().len() == 1).then_some(()));
    gate.operator("DELETE", &format!("/admin/v1/orgs/{}", tenant.org_id), None).expect(204);
    assert_eq!(caller.join().expect("it is answered").expect(200).json()["status"], "uncertain");
    latch.open();
    // A stop waits for calls under way, and fails the test when one has to be cut off.
    gate.restart();
}

#[test]
fn a_deleted_organization_ends_its_runs_and_its_keys_and_keeps_its_slug() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let waiter = {
        let request = tenant.run_request(&json!({ "tool": "ask" })).header("Prefer", "wait=60");
        std::thread::spawn(move || request.send())
    };
    let run = eventually("the provider has accepted the run", || {
        tenant.items("/v1/runs").pop().filter(|run| run["provider_correlation_id"] == "prov-0")
    });
    let id = text(&run["correlation_id"]);
    let path = format!("/admin/v1/orgs/{}", tenant.org_id);
    gate.operator("DELETE", &path, None).expect(204);
    let ended = waiter.join().expect("it is answered").expect(200).json();
    assert_eq!((&ended["status"], &ended["correlation_id"]), (&json!("cancelled"), &json!(id)));
    tenant.get("/v1/endpoints").problem(401, "unauthorized");
    tenant.agent_request("GET", "/mcp/manifest.json").send().problem(401, "unauthorized");
    tenant.agent_request("GET", &format!("/mcp/runs/{id}")).send().problem(401, "unauthorized");
    endpoint.node(&gate).complete("m-1", &id, &json!("late")).problem(401, "invalid_signature");
    for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("POST", format!("{path}/workspace-keys"))]
    {
        gate.operator(method, &path, None).problem(404, "not_found");
    }
    gate.operator("POST", "/admin/v1/orgs", Some(&json!({ "slug": "acme", "name": "Again" })))
        .problem(409, "name_taken");
    let listed = gate.operator("GET", "/admin/v1/orgs", None).expect(200);
    assert!(!listed.text().contains("acme"), "{}", listed.text());
    gate.advance(Duration::from_secs(3600));
    let (other_provider, other) = (Provider::topology(&[topology("go", "command")]), gate.tenant("other"));
    other.endpoint("tools", &other_provider);
    gate.advance(Duration::from_secs(331));
    eventually("others are synced", || (other_provider.fetches().len() == 2).then_some(()));
    assert_eq!(provider.fetches().len(), 1, "nothing is synced for it any more");
}

#[test]
fn a_deleted_organization_does_not_call_cancelled_what_was_sent() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("erase", "high"), median("note", "medium")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("desk", &provider);
    let latch = Arc::new(Latch::default());
    let ask = |tool: &str| {
        provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::text(200, r#"{"result":1}"#))));
        let request = tenant.run_request(&json!({ "tool": tool })).header("Prefer", "wait=60");
        std::thread::spawn(move || request.send())
    };
    let approved = ask("erase");
    let approval = eventually("a teammate is asked", || tenant.items("/v1/approvals?state=open").pop());
    let path = format!("/v1/approvals/{}", text(&approval["id"]));
    tenant.post(&path, &json!({ "decision": "approve" })).expect(200);
    let plain = ask("note");
    eventually("both are sent", || (provider.calls().len() == 2).then_some(()));
    gate.operator("DELETE", &format!("/admin/v1/orgs/{}", tenant.org_id), None).expect(204);
    for client in [approved, plain] {
        let run = client.join().expect("it is answered").expect(200).json();
        assert_eq!((&run["status"], &run["started"]), (&json!("uncertain"), &json!(true)), "{run}");
    }
    latch.open();
}
