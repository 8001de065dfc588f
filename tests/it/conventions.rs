//! What every answer has in common: problems, ids, caching, versions, pages.

use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::provider::Provider;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn a_problem_has_the_members_of_the_contract() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let answer = tenant
        .run_request(&json!({ "tool": "nobody" }))
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
        .send();
    let problem = answer.problem(404, "unknown_tool");
    let members: BTreeSet<&str> = problem.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(members, BTreeSet::from(["type", "title", "status", "detail", "code", "trace_id"]));
    assert_eq!(problem["trace_id"], trace, "the trace is continued");
    for member in ["type", "title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {problem}");
    }
    let own = tenant.run(&json!({ "tool": "nobody" })).problem(404, "unknown_tool");
    let own = own["trace_id"].as_str().expect("a trace id");
    assert!(own.len() == 32 && own.bytes().all(|b| b.is_ascii_hexdigit()), "{own}");
}

#[test]
fn every_answer_carries_a_request_id() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let mut seen = BTreeSet::new();
    let keyed = |path: &str| gate.get(path).key(&tenant.agent);
    for request in [
        gate.get("/healthz"),
        gate.get("/readyz"),
        gate.get("/openapi.json"),
        gate.get("/docs"),
        gate.get("/nowhere"),
        gate.get("/mcp/manifest.json"),
        keyed("/mcp/manifest.json"),
        keyed("/mcp/run"),
        keyed("/mcp/runs/nobody"),
        gate.get("/v1/tools").key(&tenant.workspace),
        gate.post("/callbacks/nobody", &json!({})),
        gate.get("/admin/v1/status").key(gate.operator_token()),
    ] {
        let answer = request.send();
        let id = answer.header("x-request-id").unwrap_or_else(|| panic!("{}", answer.text())).to_owned();
        assert!(seen.insert(id), "each request has its own");
    }
}

#[test]
fn only_tagged_answers_may_be_kept() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    for answer in [
        tenant.agent_request("GET", "/mcp/manifest.json").send(),
        tenant.get("/v1/tools"),
        tenant.get(&format!("/v1/endpoints/{}", endpoint.id)),
        tenant.get("/v1/groups/default"),
        tenant.get("/v1/org"),
    ] {
        let answer = answer.expect(200);
        assert!(answer.header("etag").is_some(), "{:?}", answer.headers);
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
        assert_eq!(answer.header("vary"), Some("X-Auth, Authorization"));
    }
    for answer in [
        tenant.run(&json!({ "tool": "go" })),
        tenant.run(&json!({ "tool": "nobody" })),
        tenant.get("/v1/nothing"),
        tenant.get("/v1/runs"),
        gate.get("/mcp/manifest.json").send(),
        gate.operator("GET", "/admin/v1/status", None),
    ] {
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{} {}", answer.status, answer.text());
    }
}

#[test]
fn an_unchanged_document_is_304_and_a_changed_one_is_not() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let agent_get = |etag: &str| tenant.agent_request("GET", "/mcp/manifest.json").header("If-None-Match", etag).send();
    let tenant_get = |etag: &str| tenant.request("GET", "/v1/tools").header("If-None-Match", etag).send();
    let first = tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    let etag = first.header("etag").expect("an ETag").to_owned();
    let listed = tenant.get("/v1/tools").header("etag").expect("an ETag").to_owned();
    let unchanged = agent_get(&etag).expect(304);
    assert!(unchanged.body.is_empty());
    assert_eq!(unchanged.header("etag"), Some(etag.as_str()));
    agent_get(&format!("\"other\", W/{etag}")).expect(304);
    agent_get("*").expect(304);
    tenant_get(&listed).expect(304);

    tenant.sync(&endpoint);
    agent_get(&etag).expect(304);
    provider.offer(&[topology("go", "command"), topology("stop", "command")]);
    tenant.sync(&endpoint);
    let changed = agent_get(&etag).expect(200);
    assert_ne!(changed.header("etag"), Some(etag.as_str()));
    tenant_get(&listed).expect(200);

    let document = gate.get("/openapi.json").send().expect(200);
    let tag = document.header("etag").expect("an ETag").to_owned();
    gate.get("/openapi.json").header("If-None-Match", tag).send().expect(304);
    assert!(document.json()["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
}

#[test]
fn a_stale_if_match_changes_nothing() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let path = format!("/v1/endpoints/{}", endpoint.id);
    let stale = tenant.get(&path).header("etag").expect("an ETag").to_owned();
    let patch = |etag: &str, body: &Value| tenant.request("PATCH", &path).json(body).header("If-Match", etag).send();
    patch(&stale, &json!({ "name": "renamed" })).expect(200);
    patch(&stale, &json!({ "name": "again" })).problem(412, "precondition_failed");
    assert_eq!(tenant.show(&endpoint)["name"], "renamed");
    let fresh = tenant.get(&path).header("etag").expect("an ETag").to_owned();
    assert_ne!(fresh, stale);
    patch(&fresh, &json!({ "name": "again" })).expect(200);
    tenant.request("DELETE", &path).header("If-Match", &stale).send().problem(412, "precondition_failed");
    tenant.get(&path).expect(200);
}

#[test]
fn lists_come_in_pages_of_a_stable_order() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    for name in ["echo", "alpha", "delta", "bravo"] {
        tenant.post("/v1/groups", &json!({ "name": name, "rules": [] })).expect(201);
    }
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };
    let whole = tenant.get("/v1/groups").expect(200).json();
    assert_eq!(whole["next_cursor"], Value::Null);
    assert_eq!(names(&whole).len(), 5);
    let mut paged = Vec::new();
    let mut path = "/v1/groups?limit=2".to_owned();
    loop {
        let page = tenant.get(&path).expect(200).json();
        assert!(names(&page).len() <= 2);
        paged.extend(names(&page));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/groups?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(paged, names(&whole));
    for query in ["limit=0", "limit=201", "limit=-1", "limit=many", "limit=", "colour=red"] {
        let answer = tenant.get(&format!("/v1/groups?{query}"));
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        answer.problem(400, "invalid_request");
    }
    tenant.get("/v1/groups?limit=200").expect(200);
}

#[test]
fn names_are_slugs_and_taken_ones_are_told() {
    let gate = Gate::start();
    let provider = Provider::topology(&[]);
    let tenant = gate.tenant("acme");
    for bad in ["", "Acme", "-a", "a_b", "ä", &"a".repeat(64)] {
        tenant.post("/v1/groups", &json!({ "name": bad, "rules": [] })).problem(400, "invalid_request");
        let mut registration = provider.registration(bad);
        tenant.post("/v1/endpoints", &registration).problem(400, "invalid_request");
        registration["name"] = json!("tools");
        gate.operator("POST", "/admin/v1/orgs", Some(&json!({ "slug": bad, "name": "x" })))
            .problem(400, "invalid_request");
    }
    tenant.endpoint("tools", &provider);
    // IBM/mcp-context-forge#6491: a second endpoint of one name is refused, the first one stays.
    let second = tenant.post("/v1/endpoints", &provider.registration("tools")).problem(409, "name_taken");
    assert!(second["detail"].as_str().is_some_and(|detail| detail.contains("tools")), "{second}");
    assert_eq!(tenant.items("/v1/endpoints").len(), 1);
    tenant.post("/v1/groups", &json!({ "name": "default", "rules": [] })).problem(409, "name_taken");
    let taken = gate.operator("POST", "/admin/v1/orgs", Some(&json!({ "slug": "acme", "name": "x" })));
    taken.problem(409, "name_taken");
}
