//! Where toolgate goes and what it carries there.

use crate::support::binary::Binary;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology};
use crate::support::provider::{PROVIDER_KEY, Provider, Received, Reply, dead_url};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::net::TcpListener;
use tempfile::TempDir;

/// Registers a topology at this address; answers the endpoint.
fn register_at(tenant: &Tenant, name: &str, base_url: &str) -> Value {
    let auth = json!({ "header": "X-Auth", "value": PROVIDER_KEY });
    let body = json!({ "name": name, "dialect": "topology", "base_url": base_url, "auth": auth });
    tenant.post("/v1/endpoints", &body).expect(201).json()
}

#[track_caller]
fn assert_blocked(endpoint: &Value) {
    assert_eq!(endpoint["state"], "sync_failed", "{endpoint}");
    assert_eq!(endpoint["reason"]["code"], "blocked_address", "{endpoint}");
    assert_eq!(endpoint["tool_count"], 0);
}

#[test]
fn an_organization_reaches_what_the_operator_gives_it() {
    let gate = Gate::with(&[("EGRESS__DEFAULT_ALLOW", "false")]);
    let provider = Provider::topology(&[topology("go", "command")]);
    let (tenant, other) = (gate.tenant("acme"), gate.tenant("other"));
    let endpoint = tenant.register("tools", &provider, &json!({}));
    assert_blocked(&endpoint.body);
    let grant = |networks: Value| {
        let path = format!("/admin/v1/orgs/{}", tenant.org_id);
        let shown = gate.operator("PATCH", &path, Some(&json!({ "egress_allow": networks }))).expect(200).json();
        assert_eq!(shown["egress_allow"], networks);
    };
    // What the operator's own configuration does not allow cannot be given.
    grant(json!(["10.0.0.0/8", "192.168.0.0/16"]));
    assert_eq!(tenant.sync(&endpoint)["reason"]["code"], "blocked_address");
    assert_blocked(&register_at(&tenant, "inner", "http://10.0.0.1:9"));
    grant(json!(["127.0.0.1/32"]));
    assert_eq!(tenant.sync(&endpoint)["outcome"], "applied");
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    assert_blocked(&other.register("tools", &provider, &json!({})).body);
    assert_blocked(&register_at(&tenant, "beside", "http://127.0.0.2:9"));
    // Taken away again it counts for the next call, also over a connection that is open.
    grant(json!([]));
    let run = tenant.call("go", &json!({}));
    assert_eq!((&run["status"], &run["started"]), (&json!("failed"), &json!(false)));
    assert_eq!(run["error"]["code"], "endpoint_unavailable");
    assert_eq!(provider.calls().len(), 1);
    assert_eq!(tenant.sync(&endpoint)["reason"]["code"], "blocked_address");
}

// psd401/aistudio#791, modelcontextprotocol/servers#4838
#[test]
fn an_inner_address_is_refused_in_every_spelling() {
    let gate = Gate::with(&[("EGRESS__DEFAULT_ALLOW", "false")]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener can be polled");
    let port = listener.local_addr().expect("a bound address").port();
    let tenant = gate.tenant("acme");
    let hosts = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[fe80::1]",
        "[fd00::1]",
        "[ff02::1]",
    ];
    for (n, host) in hosts.iter().enumerate() {
        for scheme in ["http", "https"] {
            let endpoint = register_at(&tenant, &format!("{scheme}-{n}"), &format!("{scheme}://{host}:{port}"));
            assert_eq!(endpoint["reason"]["code"], "blocked_address", "{scheme}://{host}: {endpoint}");
        }
    }
    // A public address is no way to plain http either.
    assert_blocked(&register_at(&tenant, "plain", "http://8.8.8.8"));
    assert!(listener.accept().is_err(), "nobody called");
}

#[test]
fn toolgates_own_listeners_are_never_called() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let metrics = gate.metrics_url().strip_suffix("/metrics").expect("a base").to_owned();
    for (n, base) in [gate.url().to_owned(), metrics].iter().enumerate() {
        let port = base.rsplit(':').next().expect("a port");
        for (m, host) in ["127.0.0.1", "localhost", "127.1"].iter().enumerate() {
            assert_blocked(&register_at(&tenant, &format!("own-{n}-{m}"), &format!("http://{host}:{port}")));
        }
    }
    let audit = tenant.items("/v1/audit").len();
    let provider = Provider::topology(&[topology("go", "command")]);
    let endpoint = tenant.endpoint("tools", &provider);
    tenant.patch(&format!("/v1/endpoints/{}", endpoint.id), &json!({ "base_url": gate.url() })).expect(200);
    let run = tenant.call("go", &json!({}));
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("endpoint_unavailable")));
    assert_eq!(tenant.items("/v1/audit").len(), audit + 2);
}

// psd401/aistudio#791, modelcontextprotocol/servers#4838: the way round by redirect.
#[test]
fn a_redirect_leads_nowhere() {
    let gate = Gate::start();
    let target = Provider::topology(&[topology("go", "command")]);
    let provider = Provider::topology(&[topology("go", "command"), topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    for status in [301, 302, 303, 307, 308] {
        let location = |path: &str| {
            let headers = vec![("Location".to_owned(), format!("{}{path}", target.url()))];
            Reply::Http { status, headers, body: Vec::new() }
        };
        provider.next(location("/mcp/run"));
        let run = tenant.call("ask", &json!({}));
        assert_eq!(run["status"], "failed", "{status}: {run}");
        provider.manifest(location("/mcp/manifest.json"));
        let sync = tenant.sync(&endpoint);
        assert_eq!(sync["reason"]["code"], "bad_status", "{status}: {sync}");
    }
    assert_eq!(target.calls().len() + target.fetches().len(), 0);
    assert_eq!(tenant.listed().len(), 2, "the last good tools stay");
}

/// Everything a request says, in one text.
fn said(received: &Received) -> String {
    let headers = received.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    format!("{} {}\n{}{}", received.method, received.path, headers.collect::<String>(), received.text())
}

// docker/mcp-gateway#97: the gateway forwarded its own key.
#[test]
fn no_key_of_toolgate_and_no_header_of_the_caller_reaches_a_provider() {
    let gate = Gate::start();
    let topologies = Provider::topology(&[topology("go", "command"), topology("ask", "query")]);
    let medians = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("topologies", &topologies);
    tenant.endpoint("medians", &medians);
    for tool in ["go", "ask", "find"] {
        for by_bearer in [false, true] {
            let request = gate.post("/mcp/run", &json!({ "tool": tool }));
            let request = match by_bearer {
                true => request.header("Authorization", format!("Bearer {}", tenant.agent)),
                false => request.key(&tenant.agent),
            };
            let request = request
                .header("Cookie", "leak=cookie")
                .header("X-Forwarded-For", "leak-forwarded")
                .header("X-Custom", "leak-custom")
                .header("User-Agent", "leak-agent")
                .header("Referer", "http://leak.example/")
                .header("X-Request-Id", "leak-request-id");
            assert!(matches!(request.send().status, 200 | 202));
        }
    }
    let seen: Vec<Received> =
        [&topologies, &medians].into_iter().flat_map(|p| [p.calls(), p.fetches()].concat()).collect();
    assert_eq!(seen.len(), 6 + 2);
    for received in &seen {
        let said = said(received);
        for forbidden in ["tg_", &tenant.agent, &tenant.workspace, "leak", "authorization", "cookie", "forwarded"] {
            assert!(!said.to_lowercase().contains(&forbidden.to_lowercase()), "{forbidden}: {said}");
        }
    }
    assert!(topologies.calls().iter().all(|call| call.header("x-auth") == Some(PROVIDER_KEY)));
}

#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let folder = TempDir::new().expect("a temporary folder");
    let proxy = dead_url();
    let mut command = Binary::command(&folder, &[("OPERATOR__TOKEN", crate::support::binary::OPERATOR_TOKEN)]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, &proxy);
    }
    let toolgate = Binary::of(command);
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = toolgate.tenant("acme");
    tenant.endpoint("tools", &provider);
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
}
