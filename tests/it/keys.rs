//! Keys: three kinds, one answer for every key that is not accepted, revoked at once.

use crate::support::client::{Answer, Request};
use crate::support::eventually;
use crate::support::gate::Gate;
use serde_json::{Value, json};
use std::time::Duration;

/// A refusal without what belongs to the one request.
#[track_caller]
fn neutral(answer: &Answer) -> Value {
    let mut problem = answer.problem(401, "unauthorized");
    problem.as_object_mut().expect("an object").remove("trace_id").expect("a trace id");
    problem
}

fn with_typo(key: &str) -> String {
    let last = key.as_bytes()[20];
    let other = if last == b'a' { 'b' } else { 'a' };
    format!("{}{other}{}", &key[..20], &key[21..])
}

#[test]
fn each_kind_of_key_opens_its_own_api_only() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let keys = [gate.operator_token(), &tenant.workspace, &tenant.agent];
    let doors = ["/admin/v1/orgs", "/v1/endpoints", "/mcp/manifest.json"];
    for (holder, key) in keys.iter().enumerate() {
        for (door, path) in doors.iter().enumerate() {
            let expected = if holder == door { 200 } else { 401 };
            let by_header = gate.get(path).key(key).send();
            assert_eq!(by_header.status, expected, "key {holder} at {path}: {}", by_header.text());
            let by_bearer = gate.get(path).header("Authorization", format!("Bearer {key}")).send();
            assert_eq!(by_bearer.status, expected, "bearer key {holder} at {path}: {}", by_bearer.text());
        }
    }
}

#[test]
fn keys_have_the_form_of_their_kind() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let all = [(gate.operator_token(), "tg_op_"), (&tenant.workspace, "tg_ws_"), (&tenant.agent, "tg_ag_")];
    for (key, prefix) in all {
        assert!(key.starts_with(prefix), "{prefix}");
        assert_eq!(key.len(), prefix.len() + 43 + 6, "{prefix}");
        assert!(key[prefix.len()..].bytes().all(|b| b.is_ascii_alphanumeric()), "{prefix}");
    }
}

#[test]
fn one_body_answers_every_key_that_is_not_accepted() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let revoked = tenant.post("/v1/agent-keys", &json!({ "name": "old", "groups": ["default"] })).expect(201).json();
    tenant.delete(&format!("/v1/agent-keys/{}", revoked["id"].as_str().expect("an id"))).expect(204);
    let get = || gate.get("/mcp/manifest.json");
    let agent = tenant.agent.as_str();
    let refused: Vec<(&str, Request)> = vec![
        ("missing", get()),
        ("empty", get().key("")),
        ("garbage", get().key("hello")),
        ("mistyped", get().key(&with_typo(agent))),
        ("cut", get().key(&agent[..agent.len() - 1])),
        ("of another kind", get().key(&tenant.workspace)),
        ("revoked", get().key(revoked["key"].as_str().expect("a key"))),
        ("basic", get().header("Authorization", "Basic YTpi")),
        ("two that differ", get().key(agent).header("Authorization", format!("Bearer {}", tenant.workspace))),
        ("good and empty", get().key(agent).header("Authorization", "Bearer ")),
        ("not ASCII", get().header("X-Auth", b"tg_ag_\xc3\xa4".as_slice())),
    ];
    let expected = neutral(&get().send());
    for (what, request) in refused {
        let answer = request.send();
        assert_eq!(answer.status, 401, "{what}: {}", answer.text());
        assert_eq!(neutral(&answer), expected, "{what}");
    }
    let both = get().key(agent).header("Authorization", format!("Bearer {agent}")).send();
    assert_eq!(both.status, 200, "the same key twice is one key");
}

#[test]
fn a_revoked_key_opens_nothing_from_the_next_request_on() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let made = tenant.post("/v1/agent-keys", &json!({ "name": "short", "groups": ["default"] })).expect(201).json();
    let agent = tenant.as_agent(made["key"].as_str().expect("a key"));
    agent.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    tenant.delete(&format!("/v1/agent-keys/{}", made["id"].as_str().expect("an id"))).expect(204);
    agent.agent_request("GET", "/mcp/manifest.json").send().expect(401);
    agent.run(&json!({ "tool": "x" })).expect(401);

    let made = tenant.post("/v1/workspace-keys", &json!({ "name": "second" })).expect(201).json();
    let second = made["key"].as_str().expect("a key");
    gate.get("/v1/endpoints").key(second).send().expect(200);
    tenant.delete(&format!("/v1/workspace-keys/{}", made["id"].as_str().expect("an id"))).expect(204);
    gate.get("/v1/endpoints").key(second).send().expect(401);
    tenant.get("/v1/endpoints").expect(200);
}

#[test]
fn a_key_expires_by_the_clock() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let body = json!({ "name": "brief", "groups": ["default"], "expires_at": "2026-01-12T14:00:00.000Z" });
    let agent = tenant.as_agent(&tenant.agent_key(&body));
    agent.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    gate.advance(Duration::from_secs(13 * 60 + 19));
    agent.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    gate.advance(Duration::from_secs(1));
    agent.agent_request("GET", "/mcp/manifest.json").send().expect(401);
    tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200);
}

#[test]
fn a_suspended_organization_is_forbidden_and_comes_back() {
    let gate = Gate::start();
    let (tenant, other) = (gate.tenant("acme"), gate.tenant("other"));
    let path = format!("/admin/v1/orgs/{}", tenant.org_id);
    gate.operator("PATCH", &path, Some(&json!({ "state": "suspended" }))).expect(200);
    tenant.agent_request("GET", "/mcp/manifest.json").send().problem(403, "forbidden");
    tenant.run(&json!({ "tool": "x" })).problem(403, "forbidden");
    tenant.get("/v1/endpoints").problem(403, "forbidden");
    other.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    gate.operator("PATCH", &path, Some(&json!({ "state": "active" }))).expect(200);
    tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    tenant.get("/v1/endpoints").expect(200);
}

#[test]
fn a_deleted_organization_is_unknown_and_its_slug_stays_taken() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    gate.operator("DELETE", &format!("/admin/v1/orgs/{}", tenant.org_id), None).expect(204);
    tenant.agent_request("GET", "/mcp/manifest.json").send().problem(401, "unauthorized");
    tenant.get("/v1/endpoints").problem(401, "unauthorized");
    let again = gate.operator("POST", "/admin/v1/orgs", Some(&json!({ "slug": "acme", "name": "Acme" })));
    again.problem(409, "name_taken");
}

#[test]
fn refused_keys_of_one_peer_are_limited_and_good_ones_are_not() {
    let gate = Gate::with(&[("LIMITS__UNAUTHORIZED_PER_SECOND", "1"), ("LIMITS__UNAUTHORIZED_PER_SECOND_BURST", "3")]);
    let tenant = gate.tenant("acme");
    let refusals: Vec<Answer> = (0..40).map(|_| gate.get("/mcp/manifest.json").key("wrong").send()).collect();
    refusals[0].problem(401, "unauthorized");
    let limited = refusals.iter().find(|answer| answer.status == 429).expect("40 wrong keys are too many");
    limited.problem(429, "rate_limited");
    assert!(limited.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()));
    assert!(refusals.iter().all(|answer| matches!(answer.status, 401 | 429)));
    tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200);
}

#[test]
fn a_key_is_shown_once_and_its_last_use_to_the_minute() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    gate.advance(Duration::from_secs(30));
    tenant.agent_request("GET", "/mcp/manifest.json").send().expect(200);
    let used = eventually("the use of the key is noted", || {
        let item = tenant.items("/v1/agent-keys").into_iter().next()?;
        item["last_used_at"].as_str().map(str::to_owned)
    });
    assert_eq!(used, "2026-01-12T13:47:00.000Z");
    let list = tenant.get("/v1/agent-keys").expect(200);
    assert!(!list.text().contains("tg_ag_"), "{}", list.text());
    assert!(!tenant.get("/v1/workspace-keys").expect(200).text().contains("tg_ws_"));
}
