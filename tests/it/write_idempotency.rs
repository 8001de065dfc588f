//! `Idempotency-Key` of writes: made once, answered alike, no secret twice.

use crate::support::binary::{Binary, OPERATOR_TOKEN};
use crate::support::client::{Answer, Client, Request};
use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::topology;
use crate::support::provider::{Latch, Provider, Reply};
use crate::support::raw;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tempfile::TempDir;

fn write(tenant: &Tenant, method: &str, path: &str, key: &str, body: Option<&Value>) -> Request {
    let request = tenant.request(method, path).header("Idempotency-Key", key);
    body.into_iter().fold(request, Request::json)
}

fn post(tenant: &Tenant, path: &str, key: &str, body: &Value) -> Answer {
    write(tenant, "POST", path, key, Some(body)).send()
}

#[track_caller]
fn is_replay(answer: &Answer) -> bool {
    match answer.header("idempotent-replay") {
        None => false,
        Some(value) => {
            assert_eq!(value, "true");
            true
        }
    }
}

/// What of an answer belongs to the write and not to one request for it.
fn lasting(answer: &Answer) -> (u16, Vec<Option<&str>>, &str) {
    let headers = ["content-type", "location", "etag", "cache-control"].map(|name| answer.header(name)).to_vec();
    (answer.status, headers, answer.text())
}

fn group(name: &str) -> Value {
    json!({ "name": name, "rules": [] })
}

fn agent_key(name: &str) -> Value {
    json!({ "name": name, "groups": ["default"] })
}

fn names(tenant: &Tenant, list: &str) -> Vec<String> {
    tenant.items(list).iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_write_is_made_once_and_answered_alike() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let first = post(&tenant, "/v1/groups", "k-1", &group("reports")).expect(201);
    assert!(!is_replay(&first) && first.header("location").is_some());
    for key in ["k-1", "\"k-1\""] {
        let again = post(&tenant, "/v1/groups", key, &group("reports"));
        assert!(is_replay(&again), "{key}");
        assert_eq!(lasting(&again), lasting(&first), "{key}");
        assert_ne!(again.header("x-request-id"), first.header("x-request-id"), "it is another request");
    }
    let respelled = tenant.request("POST", "/v1/groups").header("Idempotency-Key", "k-1");
    let respelled = respelled.text("application/json", "{ \"rules\" : [],\n \"name\":\"reports\" }").send();
    assert_eq!(lasting(&respelled), lasting(&first), "spaces and the order of members say nothing");
    assert_eq!(names(&tenant, "/v1/groups").len(), 2);

    let path = "/v1/groups/reports";
    let rules = json!({ "name": "reports", "rules": [{ "effect": "allow", "tools": ["*"] }] });
    let put = write(&tenant, "PUT", path, "k-2", Some(&rules)).send().expect(200);
    assert!(put.header("etag").is_some());
    tenant.request("PUT", path).json(&group("reports")).send().expect(200);
    let again = write(&tenant, "PUT", path, "k-2", Some(&rules)).send();
    assert!(is_replay(&again));
    assert_eq!(lasting(&again), lasting(&put));
    assert_eq!(tenant.get(path).json()["rules"], json!([]), "what came later stays");

    assert!(!is_replay(&write(&tenant, "DELETE", path, "k-3", None).send().expect(204)));
    let again = write(&tenant, "DELETE", path, "k-3", None).send().expect(204);
    assert!(is_replay(&again) && again.body.is_empty(), "and no 404 of what is gone");
    tenant.delete(path).problem(404, "not_found");
    let audited = tenant.items("/v1/audit");
    let of = |action: &str| audited.iter().filter(|entry| entry["action"] == action).count();
    assert_eq!((of("group.create"), of("group.replace"), of("group.delete")), (1, 2, 1));
}

#[test]
fn a_replay_shows_null_for_a_secret() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    let endpoint = tenant.endpoint("tools", &provider);
    let rotate = format!("/v1/endpoints/{}/rotate-secret", endpoint.id);
    let hooks = json!({ "reviewer": { "url": "https://r.example/x" }, "webhook": { "url": "https://w.example" } });
    for (at, (method, path, body, secrets)) in [
        ("POST", "/v1/agent-keys", Some(agent_key("bot")), &["/key"][..]),
        ("POST", "/v1/workspace-keys", Some(json!({ "name": "second" })), &["/key"]),
        ("POST", "/v1/endpoints", Some(provider.registration("more")), &["/callback/secret"]),
        ("POST", rotate.as_str(), None, &["/secret"]),
        ("PATCH", "/v1/org", Some(hooks), &["/reviewer/secret", "/webhook/secret"]),
    ]
    .into_iter()
    .enumerate()
    {
        // The second registration clashes with the first one's names, and registers all the same.
        let send = || write(&tenant, method, path, &format!("s-{at}"), body.as_ref()).send();
        assert_replay_without(&send(), &send(), secrets);
    }
    let operator = |method: &str, path: &str, body: &Value| {
        let request = gate.client().request(method, path).key(gate.operator_token()).json(body);
        let request = request.header("Idempotency-Key", "o-1");
        move || request.clone().send()
    };
    let send = operator("POST", "/admin/v1/orgs", &json!({ "slug": "globex", "name": "Globex" }));
    assert_replay_without(&send(), &send(), &["/workspace_key"]);
    let path = format!("/admin/v1/orgs/{}/workspace-keys", tenant.org_id);
    operator("POST", &path, &json!({ "name": "x" }))().problem(409, "operation_conflict");
}

#[track_caller]
fn assert_replay_without(first: &Answer, again: &Answer, secrets: &[&str]) {
    assert!(first.status < 300 && !is_replay(first) && is_replay(again), "{}", first.text());
    assert_eq!(again.status, first.status);
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(first.header("cache-control"), Some("no-store"));
    let (mut shown, replayed) = (first.json(), again.json());
    for pointer in secrets {
        let secret = shown.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}: {}", first.text()));
        let text = secret.as_str().expect("a secret").to_owned();
        assert!(text.starts_with("tg_") || text.starts_with("whsec_"), "{pointer}");
        assert!(!again.text().contains(&text), "{pointer}");
        *secret = Value::Null;
    }
    assert_eq!(replayed, shown, "nothing else differs");
    assert!(!again.text().contains("whsec_") && !again.text().contains("tg_"), "{}", again.text());
}

#[test]
fn a_key_stands_for_one_request() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    post(&tenant, "/v1/groups", "k", &group("first")).expect(201);
    let conflict = |method: &str, path: &str, body: Option<&Value>| {
        write(&tenant, method, path, "k", body).send().problem(409, "operation_conflict")
    };
    conflict("POST", "/v1/groups", Some(&group("second")));
    conflict("POST", "/v1/agent-keys", Some(&agent_key("bot")));
    conflict("PUT", "/v1/groups/first", Some(&group("first")));
    conflict("DELETE", "/v1/groups/first", None);
    assert_eq!(names(&tenant, "/v1/groups"), ["default", "first"]);
    assert_eq!(names(&tenant, "/v1/agent-keys"), ["agent"]);

    // Others have keys of their own: another workspace key, another organization, the operator.
    let spare = tenant.post("/v1/workspace-keys", &json!({ "name": "spare" })).expect(201).json();
    let spare = Tenant { workspace: spare["key"].as_str().expect("a key").to_owned(), ..tenant.clone() };
    assert!(!is_replay(&post(&spare, "/v1/groups", "k", &group("third")).expect(201)));
    assert!(!is_replay(&post(&gate.tenant("globex"), "/v1/groups", "k", &group("first")).expect(201)));
    let org = json!({ "slug": "initech", "name": "x" });
    let request = gate.post("/admin/v1/orgs", &org).key(gate.operator_token()).header("Idempotency-Key", "k");
    assert!(!is_replay(&request.send().expect(201)));
    // What a key opens is looked at first.
    let request = gate.post("/v1/groups", &group("first")).key(&tenant.agent).header("Idempotency-Key", "k");
    request.send().problem(401, "unauthorized");
}

#[test]
fn a_refused_write_leaves_its_key_free() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let refused = |path: &str, body: &Value, status: u16, code: &str| {
        for _ in 0..2 {
            let answer = post(&tenant, path, "k", body);
            answer.problem(status, code);
            assert!(!is_replay(&answer), "each is looked at anew");
        }
    };
    refused("/v1/groups", &json!({ "nmae": "x" }), 400, "invalid_request");
    refused("/v1/groups", &group("No Slug"), 400, "invalid_request");
    refused("/v1/groups", &group("default"), 409, "name_taken");
    refused("/v1/endpoints/nobody/sync", &json!({}), 404, "not_found");
    let stale =
        || write(&tenant, "PUT", "/v1/groups/default", "k", Some(&group("default"))).header("If-Match", "\"9\"");
    stale().send().problem(412, "precondition_failed");
    post(&tenant, "/v1/groups", "k", &group("good")).expect(201);
    post(&tenant, "/v1/groups", "k", &group("other")).problem(409, "operation_conflict");
}

#[test]
fn a_malformed_key_is_refused_where_it_counts() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    let long = "k".repeat(129);
    for bad in ["", "a b", "\"a", "\"a\"b", "\"\"", "é", long.as_str()] {
        post(&tenant, "/v1/groups", bad, &group("g")).problem(400, "invalid_request");
        let operator = gate.post("/admin/v1/orgs", &json!({ "slug": "x", "name": "x" })).key(gate.operator_token());
        operator.header("Idempotency-Key", bad).send().problem(400, "invalid_request");
        let run = tenant.run_request(&json!({ "tool": "go" })).header("Idempotency-Key", bad);
        run.send().problem(400, "invalid_request");
        write(&tenant, "GET", "/v1/groups", bad, None).send().expect(200);
        tenant.agent_request("GET", "/mcp/manifest.json").header("Idempotency-Key", bad).send().expect(200);
        let gone = tenant.agent_request("DELETE", "/mcp/runs/nobody").header("Idempotency-Key", bad);
        gone.send().problem(404, "not_found");
    }
    assert!(provider.calls().is_empty());
    assert_eq!(names(&tenant, "/v1/groups"), ["default"]);
    let longest = "k".repeat(128);
    post(&tenant, "/v1/groups", &longest, &group("g")).expect(201);
    assert!(is_replay(&post(&tenant, "/v1/groups", &format!("\"{longest}\""), &group("g")).expect(201)));
}

// laravel-idempotency#1, grape-idempotency#10: check-then-set lets both run.
#[test]
fn fifty_at_once_have_one_effect_and_one_answer() {
    let gate = Gate::with(&[("SERVER__WORKERS", "4")]);
    let tenant = gate.tenant("acme");
    let start = Arc::new(Barrier::new(50));
    let askers: Vec<_> = (0..50)
        .map(|_| {
            let (tenant, start) = (tenant.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                post(&tenant, "/v1/agent-keys", "once", &agent_key("bot"))
            })
        })
        .collect();
    let answers: Vec<Answer> = askers.into_iter().map(|asker| asker.join().expect("answered").expect(201)).collect();
    let (replays, first): (Vec<&Answer>, Vec<&Answer>) = answers.iter().partition(|answer| is_replay(answer));
    assert_eq!((first.len(), replays.len()), (1, 49));
    let made = first[0].json();
    assert!(made["key"].is_string());
    for replay in replays {
        let replay = replay.json();
        assert_eq!((&replay["id"], &replay["key"]), (&made["id"], &Value::Null));
    }
    assert_eq!(names(&tenant, "/v1/agent-keys"), ["agent", "bot"]);
}

/// A tenant whose next registration is held by its provider until the latch opens.
fn held_registration() -> (Gate, Tenant, Provider, Arc<Latch>) {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let provider = Provider::topology(&[topology("go", "command")]);
    let latch = hold(&provider);
    (gate, tenant, provider, latch)
}

fn hold(provider: &Provider) -> Arc<Latch> {
    let latch = Arc::new(Latch::default());
    let manifest = Reply::json(200, &json!([topology("go", "command")]));
    provider.manifest(Reply::Held(Arc::clone(&latch), Box::new(manifest)));
    latch
}

// svix (code): the key ignores the body, and a lock that lives 5 s lets a slow handler run twice.
#[test]
fn who_comes_while_a_write_is_made_shares_its_answer() {
    let (_gate, tenant, provider, latch) = held_registration();
    let registration = provider.registration("slow");
    let ask = || {
        let (tenant, registration) = (tenant.clone(), registration.clone());
        std::thread::spawn(move || post(&tenant, "/v1/endpoints", "slow", &registration))
    };
    let first = ask();
    eventually("the provider is asked", || provider.fetches().pop());
    let second = ask();
    post(&tenant, "/v1/endpoints", "slow", &provider.registration("other")).problem(409, "operation_conflict");
    latch.open();
    let answers = [first, second].map(|asker| asker.join().expect("answered").expect(201));
    assert_eq!(answers.iter().filter(|answer| is_replay(answer)).count(), 1);
    assert_eq!(answers[0].json()["id"], answers[1].json()["id"]);
    assert_eq!(answers[0].json()["state"], "connected");
    assert_eq!(provider.fetches().len(), 1);
    assert_eq!(names(&tenant, "/v1/endpoints"), ["slow"]);
}

#[test]
fn a_client_that_goes_away_finds_the_answer_later() {
    let (gate, tenant, provider, latch) = held_registration();
    let body = provider.registration("slow").to_string();
    let head = format!(
        "POST /v1/endpoints HTTP/1.1\r\nHost: gateway\r\nX-Auth: {}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: gone\r\nContent-Length: {}\r\n\r\n{body}",
        tenant.workspace,
        body.len()
    );
    let mut stream = raw::connect(gate.url());
    stream.write_all(head.as_bytes()).expect("sent");
    eventually("the provider is asked", || provider.fetches().pop());
    stream.shutdown(Shutdown::Both).expect("the client goes away");
    drop(stream);
    latch.open();
    let answer = post(&tenant, "/v1/endpoints", "gone", &provider.registration("slow")).expect(201);
    assert!(is_replay(&answer));
    assert_eq!((&answer.json()["state"], &answer.json()["callback"]["secret"]), (&json!("connected"), &Value::Null));
    assert_eq!(names(&tenant, "/v1/endpoints"), ["slow"]);
}

#[test]
fn an_answer_is_kept_for_a_day_and_over_a_restart() {
    let gate = Gate::start();
    let tenant = gate.tenant("acme");
    let made = post(&tenant, "/v1/agent-keys", "k", &agent_key("bot")).expect(201).json();
    let gate = gate.restart();
    let tenant = tenant.at(&gate);
    let again = post(&tenant, "/v1/agent-keys", "k", &agent_key("bot")).expect(201);
    assert!(is_replay(&again));
    assert_eq!(again.json()["id"], made["id"]);
    gate.advance(Duration::from_secs(24 * 3600));
    assert_eq!(post(&tenant, "/v1/agent-keys", "k", &agent_key("bot")).json()["id"], made["id"]);
    gate.advance(Duration::from_secs(2 * 3600));
    let anew = post(&tenant, "/v1/agent-keys", "k", &agent_key("another")).expect(201);
    assert!(!is_replay(&anew), "the key is free again");
}

fn tenant_at(client: &Client, tenant: &Tenant) -> Tenant {
    Tenant { client: client.clone(), ..tenant.clone() }
}

#[test]
fn a_write_that_was_made_before_kill_9_is_not_made_again() {
    let folder = TempDir::new().expect("a temporary folder");
    let toolgate = Binary::serve(&folder);
    let tenant = toolgate.tenant("acme");
    let kept = post(&tenant, "/v1/agent-keys", "kept", &agent_key("kept")).expect(201).json();
    // The endpoint is stored, its first sync goes on, and the lights go out before there is an answer.
    let provider = Provider::topology(&[topology("go", "command")]);
    let latch = hold(&provider);
    let (asking, registration) = (tenant.clone(), provider.registration("slow"));
    let cut = std::thread::spawn(move || {
        write(&asking, "POST", "/v1/endpoints", "lost", Some(&registration)).try_send().map(|answer| answer.status)
    });
    eventually("the provider is asked", || provider.fetches().pop());
    toolgate.kill();
    assert!(cut.join().expect("the client ends").is_err(), "no answer from a dead process");
    latch.open();

    let toolgate = Binary::serve(&folder);
    let tenant = tenant_at(toolgate.client(), &tenant);
    let again = post(&tenant, "/v1/agent-keys", "kept", &agent_key("kept")).expect(201);
    assert!(is_replay(&again));
    assert_eq!((&again.json()["id"], &again.json()["key"]), (&kept["id"], &Value::Null));
    let registration = provider.registration("slow");
    let lost = post(&tenant, "/v1/endpoints", "lost", &registration).problem(409, "operation_conflict");
    let detail = lost["detail"].as_str().expect("a detail");
    assert!(detail.contains("its answer was lost") && detail.contains("/v1/audit"), "{detail}");
    assert_eq!(names(&tenant, "/v1/endpoints"), ["slow"]);
    post(&tenant, "/v1/endpoints", "lost", &provider.registration("x")).problem(409, "operation_conflict");
    let org = json!({ "slug": "globex", "name": "x" });
    toolgate.client().post("/admin/v1/orgs", &org).key(OPERATOR_TOKEN).send().expect(201);
}

/// Asks for one agent key until there is an answer; the clients of a gateway that is killed now and then.
fn insist(client: &std::sync::Mutex<Client>, tenant: &Tenant, name: &str) -> Answer {
    eventually("the write is answered", || {
        let client = client.lock().expect("no test panics holding it").clone();
        let tenant = tenant_at(&client, tenant);
        let answer = write(&tenant, "POST", "/v1/agent-keys", name, Some(&agent_key(name))).try_send().ok();
        answer.filter(|answer| answer.status != 503)
    })
}

#[test]
fn under_kill_9_at_random_every_write_has_at_most_one_effect() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut toolgate = Binary::serve(&folder);
    let tenant = toolgate.tenant("acme");
    let client = Arc::new(std::sync::Mutex::new(toolgate.client().clone()));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (client, tenant) = (Arc::clone(&client), tenant.clone());
            std::thread::spawn(move || {
                let answers = (0..60).map(|at| {
                    let name = format!("w-{writer}-{at}");
                    (name.clone(), insist(&client, &tenant, &name))
                });
                answers.collect::<Vec<_>>()
            })
        })
        .collect();
    for pause_ms in [90, 40, 140, 70].into_iter().cycle() {
        if writers.iter().all(std::thread::JoinHandle::is_finished) {
            break;
        }
        std::thread::sleep(Duration::from_millis(pause_ms));
        toolgate.kill();
        toolgate = Binary::serve(&folder);
        *client.lock().expect("no test panics holding it") = toolgate.client().clone();
    }
    let answers: Vec<(String, Answer)> = writers.into_iter().flat_map(|writer| writer.join().expect("done")).collect();
    let tenant = tenant_at(toolgate.client(), &tenant);
    let mut made = Vec::new();
    let mut path = "/v1/agent-keys?limit=200".to_owned();
    loop {
        let page = tenant.get(&path).expect(200).json();
        let items = page["items"].as_array().expect("items");
        made.extend(items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/agent-keys?limit=200&cursor={cursor}");
    }
    made.retain(|name| name != "agent");
    let once: BTreeSet<&String> = made.iter().collect();
    assert_eq!(once.len(), made.len(), "no write was made twice");
    assert_eq!(made.len(), 8 * 60, "and none is missing");
    for (name, answer) in &answers {
        match answer.status {
            201 => assert!(is_replay(answer) || answer.json()["key"].is_string(), "{name}"),
            409 => assert!(answer.problem(409, "operation_conflict")["detail"].to_string().contains("lost"), "{name}"),
            other => panic!("{name}: {other} {}", answer.text()),
        }
    }
}
