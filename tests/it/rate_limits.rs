//! Nested rate limits: caller inside tool inside organization, and the agent key before all of them.

use crate::support::client::Answer;
use crate::support::gate::Gate;
use crate::support::manifests::{topology, topology_with};
use crate::support::provider::Provider;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::time::Duration;

/// A tenant with the commands `go` and `stop`.
fn world(gate: &Gate, slug: &str) -> (Provider, Tenant) {
    let provider = Provider::topology(&[topology("go", "command"), topology("stop", "command")]);
    let tenant = gate.tenant(slug);
    tenant.endpoint("tools", &provider);
    (provider, tenant)
}

fn run_as(tenant: &Tenant, caller: Option<&str>, tool: &str) -> Answer {
    let request = tenant.run_request(&json!({ "tool": tool }));
    caller.into_iter().fold(request, |request, caller| request.header("X-Caller-Identity", caller)).send()
}

fn go(tenant: &Tenant) -> Answer {
    run_as(tenant, None, "go")
}

/// A refusal of this level, with everything a client needs to come back at the right time.
#[track_caller]
fn refused(answer: &Answer, limit: &str, retry_after_ms: u64) {
    let problem = answer.problem(429, "rate_limited");
    assert_eq!(problem["limit"], limit, "{problem}");
    assert_eq!(problem["retry_after_ms"], retry_after_ms, "{problem}");
    let seconds = retry_after_ms.div_ceil(1000).to_string();
    assert_eq!(answer.header("retry-after"), Some(seconds.as_str()));
    assert!(answer.header("ratelimit-policy").is_some() && answer.header("ratelimit").is_some(), "{answer:?}");
}

#[test]
fn an_agent_key_has_a_rate_and_a_burst_and_says_where_it_stands() {
    let gate = Gate::with(&[("LIMITS__AGENT_KEY_PER_SECOND", "50"), ("LIMITS__AGENT_KEY_PER_SECOND_BURST", "100")]);
    let (_provider, tenant) = world(&gate, "acme");
    let first = go(&tenant).expect(202);
    assert_eq!(first.header("ratelimit-policy"), Some(r#""agent_key";q=50;w=1"#));
    assert_eq!(first.header("ratelimit"), Some(r#""agent_key";r=49;t=1"#));
    for _ in 1..100 {
        go(&tenant).expect(202);
    }
    let over = go(&tenant);
    refused(&over, "agent_key", 20);
    assert_eq!(over.header("ratelimit"), Some(r#""agent_key";r=0;t=1"#));
    gate.advance(Duration::from_millis(20));
    go(&tenant).expect(202);
    refused(&go(&tenant), "agent_key", 20);
    gate.advance(Duration::from_secs(2));
    for _ in 0..100 {
        go(&tenant).expect(202);
    }
    refused(&go(&tenant), "agent_key", 20);
}

#[test]
fn the_agent_keys_level_covers_every_request_of_the_agent() {
    let gate = Gate::start();
    let (provider, tenant) = world(&gate, "acme");
    let limits = json!({ "agent_key_per_second": 1, "agent_key_per_second_burst": 6 });
    let agent = tenant.as_agent(&tenant.agent_key(&json!({ "name": "slow", "groups": ["default"], "limits": limits })));
    let run = agent.call("go", &json!({}));
    let path = format!("/mcp/runs/{}", run["correlation_id"].as_str().expect("an id"));
    let requests: [(&str, &str); 4] =
        [("GET", "/mcp/manifest.json"), ("GET", &path), ("DELETE", &path), ("GET", "/mcp/nothing-here")];
    for (method, path) in requests {
        let answer = agent.agent_request(method, path).send();
        assert_ne!(answer.status, 429, "{method} {path}");
    }
    agent.run(&json!({ "tool": "unknown" })).problem(404, "unknown_tool");
    for (method, path) in requests {
        refused(&agent.agent_request(method, path).send(), "agent_key", 1000);
    }
    refused(&go(&agent), "agent_key", 1000);
    assert_eq!(provider.calls().len(), 1);
    go(&tenant).expect(202);
}

#[test]
fn a_caller_a_tool_and_an_organization_each_have_their_own() {
    for (level, burst) in [("caller", 3), ("tool", 4), ("organization", 5)] {
        let settings = [
            (format!("LIMITS__{}_PER_SECOND", level.to_uppercase()), "2".to_owned()),
            (format!("LIMITS__{}_PER_SECOND_BURST", level.to_uppercase()), burst.to_string()),
        ];
        let settings: Vec<(&str, &str)> = settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let gate = Gate::with(&settings);
        let (provider, tenant) = world(&gate, "acme");
        for _ in 0..burst {
            run_as(&tenant, Some("ann"), "go").expect(202);
        }
        let sent = provider.calls().len();
        refused(&run_as(&tenant, Some("ann"), "go"), level, 500);
        assert_eq!(provider.calls().len(), sent, "{level}: a refused call is not sent");
        assert_eq!(tenant.items("/v1/runs").len(), burst, "{level}: and is no run");
        // What shares the level is refused, what does not is not.
        let others = [(Some("bob"), "go", "caller"), (None, "go", "caller"), (Some("ann"), "stop", "tool")];
        for (caller, tool, differs_in) in others {
            let shares = level == "organization" || (level == "caller") != (differs_in == "caller");
            let answer = run_as(&tenant, caller, tool);
            assert_eq!(answer.status, if shares { 429 } else { 202 }, "{level} {caller:?} {tool}: {}", answer.text());
        }
        gate.advance(Duration::from_millis(500));
        run_as(&tenant, Some("ann"), "go").expect(202);
        refused(&run_as(&tenant, Some("ann"), "go"), level, 500);
    }
}

#[test]
fn a_refused_call_costs_nothing_further_down() {
    let gate = Gate::with(&[
        ("LIMITS__CALLER_PER_SECOND", "1"),
        ("LIMITS__CALLER_PER_SECOND_BURST", "2"),
        ("LIMITS__TOOL_PER_SECOND", "1"),
        ("LIMITS__TOOL_PER_SECOND_BURST", "4"),
        ("LIMITS__ORGANIZATION_PER_SECOND", "1"),
        ("LIMITS__ORGANIZATION_PER_SECOND_BURST", "6"),
    ]);
    let schema = json!({ "type": "object", "required": ["n"] });
    let provider = Provider::topology(&[topology("go", "command"), topology_with("stop", "command", &schema)]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    // Neither an unknown tool nor invalid arguments cost a run.
    for _ in 0..10 {
        run_as(&tenant, Some("ann"), "nothing").expect(404);
        run_as(&tenant, Some("ann"), "stop").expect(422);
    }
    for _ in 0..2 {
        run_as(&tenant, Some("ann"), "go").expect(202);
    }
    for _ in 0..10 {
        refused(&run_as(&tenant, Some("ann"), "go"), "caller", 1000);
    }
    // The tool has exactly two left,
    for caller in ["bob", "cid"] {
        run_as(&tenant, Some(caller), "go").expect(202);
    }
    for _ in 0..10 {
        refused(&go(&tenant), "tool", 1000);
    }
    // and the organization, after these four, too.
    let stop = || tenant.run(&json!({ "tool": "stop", "args": { "n": 1 } }));
    for _ in 0..2 {
        stop().expect(202);
    }
    refused(&stop(), "organization", 1000);
    assert_eq!(provider.calls().len(), 6);
}

#[test]
fn a_tenant_lowers_a_limit_and_never_raises_it_above_the_operators() {
    let gate = Gate::with(&[("LIMITS__TOOL_PER_SECOND", "10"), ("LIMITS__TOOL_PER_SECOND_BURST", "10")]);
    let (_provider, tenant) = world(&gate, "acme");
    let set =
        |limits: Value| tenant.patch("/v1/org", &json!({ "limits": limits })).expect(200).json()["limits"].clone();
    let passing = || {
        gate.advance(Duration::from_secs(60));
        (0..20).take_while(|_| go(&tenant).status == 202).count()
    };
    assert_eq!(passing(), 10);
    let lowered = set(json!({ "tool_per_second": 2, "tool_per_second_burst": 3 }));
    assert_eq!((&lowered["tool_per_second"], &lowered["tool_per_second_burst"]), (&json!(2), &json!(3)));
    assert_eq!(passing(), 3);
    refused(&go(&tenant), "tool", 500);
    let clamped = set(json!({ "tool_per_second": 1000, "tool_per_second_burst": 1000 }));
    assert_eq!((&clamped["tool_per_second"], &clamped["tool_per_second_burst"]), (&json!(10), &json!(10)));
    assert_eq!(passing(), 10);
    let operators = json!({ "limits": { "tool_per_second": 4, "tool_per_second_burst": 5 } });
    let path = format!("/admin/v1/orgs/{}", tenant.org_id);
    let shown = gate.operator("PATCH", &path, Some(&operators)).expect(200).json();
    assert_eq!(shown["limits"]["tool_per_second_burst"], 5);
    assert_eq!(tenant.get("/v1/org").json()["limits"]["tool_per_second_burst"], 5);
    assert_eq!(passing(), 5);
    set(json!({ "tool_per_second": null, "tool_per_second_burst": null }));
    assert_eq!(passing(), 5);
    for bad in [json!(0), json!(-1), json!(1.5), json!("2"), json!(true)] {
        tenant.patch("/v1/org", &json!({ "limits": { "tool_per_second": bad } })).problem(400, "invalid_request");
    }
    tenant.patch("/v1/org", &json!({ "limits": { "tools_per_second": 1 } })).problem(400, "invalid_request");
}

#[test]
fn a_key_of_its_own_limits_stays_below_the_organizations() {
    let gate = Gate::with(&[("LIMITS__AGENT_KEY_PER_SECOND", "10"), ("LIMITS__AGENT_KEY_PER_SECOND_BURST", "10")]);
    let (_provider, tenant) = world(&gate, "acme");
    let passing = |agent: &Tenant| (0..20).take_while(|_| go(agent).status == 202).count();
    let made = tenant.post(
        "/v1/agent-keys",
        &json!({ "name": "slow", "groups": ["default"], "limits": { "agent_key_per_second": 1, "agent_key_per_second_burst": 2 } }),
    );
    let made = made.expect(201).json();
    let slow = tenant.as_agent(made["key"].as_str().expect("a key"));
    assert_eq!(passing(&slow), 2);
    refused(&go(&slow), "agent_key", 1000);
    assert_eq!(passing(&tenant), 10, "another key of the organization has its own");
    let path = format!("/v1/agent-keys/{}", made["id"].as_str().expect("an id"));
    let high = json!({ "limits": { "agent_key_per_second": 1000, "agent_key_per_second_burst": 1000 } });
    tenant.patch(&path, &high).expect(200);
    gate.advance(Duration::from_secs(60));
    assert_eq!(passing(&slow), 10, "clamped to the organization's");
    tenant.patch(&path, &json!({ "limits": { "tool_per_second": 1 } })).problem(400, "invalid_request");
}

// IBM/mcp-context-forge#4343, #3783, KeeperHub#2033
#[test]
fn organizations_share_no_limit() {
    let gate = Gate::with(&[
        ("LIMITS__ORGANIZATION_PER_SECOND", "1"),
        ("LIMITS__ORGANIZATION_PER_SECOND_BURST", "3"),
        ("LIMITS__TOOL_PER_SECOND", "1"),
        ("LIMITS__TOOL_PER_SECOND_BURST", "3"),
        ("LIMITS__CALLER_PER_SECOND", "1"),
        ("LIMITS__CALLER_PER_SECOND_BURST", "3"),
        ("LIMITS__AGENT_KEY_PER_SECOND", "1"),
        ("LIMITS__AGENT_KEY_PER_SECOND_BURST", "8"),
    ]);
    let (_one, loud) = world(&gate, "loud");
    let (_other, quiet) = world(&gate, "quiet");
    // The same tool name, the same caller: nothing of it is shared.
    for _ in 0..3 {
        run_as(&loud, Some("ann"), "go").expect(202);
    }
    for _ in 0..10 {
        run_as(&loud, Some("ann"), "go").expect(429);
    }
    for _ in 0..3 {
        run_as(&quiet, Some("ann"), "go").expect(202);
    }
    refused(&run_as(&quiet, Some("ann"), "go"), "caller", 1000);
}

// boinkor-net/governor#171: the limiter that keeps a cell for every caller it ever saw.
#[test]
fn callers_beyond_the_bound_share_what_is_left_and_shut_no_other_tenant_out() {
    let gate = Gate::with(&[
        ("LIMITS__CALLERS_TRACKED", "80"),
        ("LIMITS__CALLER_PER_SECOND", "1"),
        ("LIMITS__CALLER_PER_SECOND_BURST", "2"),
    ]);
    let (_one, flood) = world(&gate, "flood");
    let (_other, calm) = world(&gate, "calm");
    let passed = (0..200).filter(|n| run_as(&flood, Some(&format!("caller-{n}")), "go").status == 202).count();
    // A tenant may have an eighth of the node's callers; those beyond share one cell.
    assert_eq!(passed, 10 + 2);
    for _ in 0..2 {
        run_as(&calm, Some("ann"), "go").expect(202);
    }
    refused(&run_as(&calm, Some("ann"), "go"), "caller", 1000);
    run_as(&calm, Some("bob"), "go").expect(202);
}
