//! One tenant's slow, dead or talkative provider, and what the others notice of it: nothing.

use crate::support::eventually;
use crate::support::gate::Gate;
use crate::support::manifests::{median, topology};
use crate::support::provider::{Latch, Provider, Reply, acknowledge};
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Calls that hang at their provider until the latch is opened.
struct Hanging {
    latch: Arc<Latch>,
    answered: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Value>>,
}

impl Hanging {
    fn calls(count: usize, tenant: &Tenant, provider: &Provider, tool: &'static str) -> Self {
        let (latch, answered) = (Arc::new(Latch::default()), Arc::new(AtomicUsize::new(0)));
        let before = provider.calls().len();
        let call = |_| {
            provider.next(Reply::Held(Arc::clone(&latch), Box::new(acknowledge("command", "p"))));
            let (tenant, answered) = (tenant.clone(), Arc::clone(&answered));
            std::thread::spawn(move || {
                let run = tenant.call(tool, &json!({}));
                answered.fetch_add(1, Ordering::SeqCst);
                run
            })
        };
        let callers = (0..count).map(call).collect();
        eventually("all of them are at the provider", || (provider.calls().len() == before + count).then_some(()));
        Self { latch, answered, callers }
    }

    #[track_caller]
    fn all_hang(&self) {
        assert_eq!(self.answered.load(Ordering::SeqCst), 0, "none of them may have ended");
    }

    /// Lets them go; answers the runs.
    fn release(self) -> Vec<Value> {
        self.latch.open();
        self.callers.into_iter().map(|caller| caller.join().expect("it is answered")).collect()
    }
}

#[test]
fn a_hanging_provider_fills_its_own_slots_and_nothing_else() {
    let gate = Gate::start();
    let hangs = Provider::topology(&[topology("hang", "command")]);
    let works = Provider::topology(&[topology("go", "command")]);
    let (stuck, other) = (gate.tenant("stuck"), gate.tenant("other"));
    stuck.endpoint("hangs", &hangs);
    stuck.endpoint("works", &works);
    other.endpoint("works", &works);
    let hanging = Hanging::calls(64, &stuck, &hangs, "hang");

    let over = stuck.run(&json!({ "tool": "hang" }));
    let problem = over.problem(503, "endpoint_unavailable");
    assert!(problem["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{problem}");
    assert!(over.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok_and(|s| s > 0)));
    assert_eq!(hangs.calls().len(), 64, "the 65th was not sent");

    for _ in 0..50 {
        assert_eq!(other.call("go", &json!({}))["status"], "started");
    }
    assert_eq!(stuck.call("go", &json!({}))["status"], "started", "another endpoint of the same organization");
    assert_eq!(stuck.listed().len(), 2);
    stuck.get("/v1/endpoints").expect(200);
    gate.get("/readyz").send().expect(200);
    hanging.all_hang();

    let runs = hanging.release();
    assert!(runs.iter().all(|run| run["status"] == "started"), "{runs:?}");
    assert_eq!(stuck.call("hang", &json!({}))["status"], "started", "the slots are free again");
}

#[test]
fn the_cap_of_an_endpoint_follows_the_organizations_limit() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("hang", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("tools", &provider);
    tenant.patch("/v1/org", &json!({ "limits": { "endpoint_in_flight": 2 } })).expect(200);
    let hanging = Hanging::calls(2, &tenant, &provider, "hang");
    tenant.run(&json!({ "tool": "hang" })).problem(503, "endpoint_unavailable");
    assert_eq!(provider.calls().len(), 2);
    assert_eq!(tenant.items("/v1/runs").len(), 2, "a call that was not let in is no run");
    hanging.all_hang();
    hanging.release();
    assert_eq!(tenant.call("hang", &json!({}))["status"], "started");
}

#[test]
fn a_provider_that_keeps_failing_is_left_alone_and_probed() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let works = Provider::topology(&[topology("run", "command")]);
    let (tenant, other) = (gate.tenant("acme"), gate.tenant("other"));
    tenant.endpoint("failing", &provider);
    other.endpoint("failing", &works);
    let fail = || Reply::text(500, "{}");
    for _ in 0..20 {
        provider.next(fail());
        assert_eq!(tenant.call("go", &json!({}))["status"], "uncertain");
    }
    let refused = || {
        let sent = provider.calls().len();
        let answer = tenant.run(&json!({ "tool": "go" }));
        answer.problem(503, "endpoint_unavailable");
        assert_eq!(provider.calls().len(), sent, "nothing is sent while it is open");
        answer.header("retry-after").expect("when to come back").to_owned()
    };
    assert_eq!(refused(), "5");
    assert_eq!(other.call("run", &json!({}))["status"], "started", "an endpoint of the same name elsewhere");
    gate.advance(Duration::from_millis(4_999));
    assert_eq!(refused(), "1");
    // After five seconds one call is let through, and only one.
    gate.advance(Duration::from_millis(1));
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(fail())));
    let prober = tenant.clone();
    let probe = std::thread::spawn(move || prober.call("go", &json!({})));
    eventually("the probe is sent", || (provider.calls().len() == 21).then_some(()));
    refused();
    latch.open();
    assert_eq!(probe.join().expect("it is answered")["status"], "uncertain");
    assert_eq!(refused(), "5", "a failed probe opens it anew");
    gate.advance(Duration::from_secs(5));
    assert_eq!(tenant.call("go", &json!({}))["status"], "started", "a good probe closes it");
    for _ in 0..5 {
        assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    }
}

#[test]
fn a_dead_provider_opens_the_breaker_too() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("go", "command")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("dead", &provider);
    provider.go_down();
    for _ in 0..20 {
        let run = tenant.call("go", &json!({}));
        assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("endpoint_unavailable")));
    }
    tenant.run(&json!({ "tool": "go" })).problem(503, "endpoint_unavailable");
    provider.come_back();
    gate.advance(Duration::from_secs(5));
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
}

#[test]
fn refusals_of_a_provider_never_open_the_breaker() {
    let gate = Gate::start();
    let provider = Provider::topology(&[topology("ask", "query")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("strict", &provider);
    for status in [400, 401, 403, 404, 422, 429].into_iter().cycle().take(60) {
        provider.next(Reply::text(status, "{}"));
        assert_eq!(tenant.call("ask", &json!({}))["status"], "failed", "{status}");
    }
    assert_eq!(tenant.call("ask", &json!({}))["status"], "pending");
    // Half of twenty is enough, less is not.
    gate.advance(Duration::from_secs(11));
    for n in 0..30 {
        if n % 3 == 0 {
            provider.next(Reply::text(500, "{}"));
        }
        tenant.call("ask", &json!({}));
    }
    assert_eq!(provider.calls().len(), 91);
}

// BerriAI/litellm#33374: a timeout of 5 s that came back after 60.
#[test]
fn a_deadline_is_a_deadline() {
    let gate = Gate::start();
    let provider = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("slow", &provider);
    tenant.patch("/v1/tools/find", &json!({ "timeout_ms": 300 })).expect(200);
    let latch = Arc::new(Latch::default());
    provider.next(Reply::Held(Arc::clone(&latch), Box::new(Reply::Hangup)));
    let begun = Instant::now();
    let run = tenant.call("find", &json!({}));
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_timeout")));
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{took:?}");
    // A provider that sends a byte now and then does not move the deadline.
    let trickle = Trickle::start();
    let slow =
        json!({ "name": "drip", "dialect": "median", "base_url": trickle.url, "auth": { "signing_secret": "s" } });
    tenant.post("/v1/endpoints", &slow).expect(201);
    tenant.patch("/v1/tools/drip", &json!({ "timeout_ms": 300 })).expect(200);
    let begun = Instant::now();
    assert_eq!(tenant.call("drip", &json!({}))["error"]["code"], "provider_timeout");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    latch.open();
}

// truefoundry#769: an answer of tens of megabytes killed the process.
#[test]
fn an_answer_of_the_limit_passes_and_one_without_an_end_is_cut() {
    const LIMIT: usize = 4 << 20;
    let gate = Gate::start();
    let provider = Provider::median(&[median("find", "low")]);
    let tenant = gate.tenant("acme");
    tenant.endpoint("big", &provider);
    let of_bytes = |bytes: usize| format!("{{\"result\":\"{}\"}}", "x".repeat(bytes - r#"{"result":""}"#.len()));
    provider.next(Reply::text(200, &of_bytes(LIMIT)));
    let run = tenant.call("find", &json!({}));
    assert_eq!(run["status"], "completed");
    assert_eq!(run["result"].as_str().map(str::len), Some(LIMIT - r#"{"result":""}"#.len()));
    provider.next(Reply::text(200, &of_bytes(LIMIT + 1)));
    let run = tenant.call("find", &json!({}));
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_protocol_error")));

    let flood = Trickle::start();
    let endless =
        json!({ "name": "flood", "dialect": "median", "base_url": flood.url, "auth": { "signing_secret": "s" } });
    tenant.post("/v1/endpoints", &endless).expect(201);
    let run = tenant.call("flood", &json!({}));
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("provider_protocol_error")));
    let sent = eventually("toolgate hangs up", || flood.cut_after());
    assert!(sent >= LIMIT, "{sent}");
    assert_eq!(tenant.call("find", &json!({}))["status"], "completed");
}

/// A median provider with the tools `drip`, which answers a byte now and then, and `flood`, which answers as fast as it
/// can; neither ends by itself.
struct Trickle {
    url: String,
    cut_after: Arc<AtomicUsize>,
}

impl Trickle {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound address"));
        let cut_after = Arc::new(AtomicUsize::new(0));
        let cut = Arc::clone(&cut_after);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let cut = Arc::clone(&cut);
                std::thread::spawn(move || Self::answer(&stream, &cut));
            }
        });
        Self { url, cut_after }
    }

    /// Bytes that were written until toolgate hung up.
    fn cut_after(&self) -> Option<usize> {
        Some(self.cut_after.load(Ordering::SeqCst)).filter(|bytes| *bytes > 0)
    }

    fn answer(mut stream: &TcpStream, cut_after: &AtomicUsize) {
        let (head, body) = read_request(stream);
        if head.starts_with("GET") {
            let tools = [median("drip", "low"), median("flood", "low")];
            let manifest = json!({ "version": 1, "tools": tools }).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", manifest.len());
            let _ = stream.write_all((head + &manifest).as_bytes());
            return;
        }
        let flood = body.contains("\"flood\"");
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut written = 0;
        let piece = if flood { 65_536 } else { 1 };
        let chunk = format!("{piece:x}\r\n{}\r\n", " ".repeat(piece));
        while stream.write_all(chunk.as_bytes()).is_ok() {
            written += piece;
            if !flood {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        cut_after.store(written, Ordering::SeqCst);
    }
}

fn read_request(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = reader.read_exact(&mut body);
    (head, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn a_full_mailbox_is_an_answer_and_not_a_wait() {
    let gate = Gate::with(&[("LIMITS__MAILBOX_CAPACITY", "1"), ("SERVER__WORKERS", "4")]);
    let provider = Provider::topology(&[topology("go", "command")]);
    let (tenant, other) = (gate.tenant("acme"), gate.tenant("other"));
    tenant.endpoint("tools", &provider);
    other.endpoint("tools", &provider);
    let flood = |tenant: Tenant| {
        std::thread::spawn(move || (0..25).map(|_| tenant.run(&json!({ "tool": "go" }))).collect::<Vec<_>>())
    };
    let callers: Vec<_> = (0..16).map(|_| flood(tenant.clone())).collect();
    let mut started = 0;
    for answer in callers.into_iter().flat_map(|caller| caller.join().expect("it is answered")) {
        match answer.status {
            202 => started += 1,
            _ => {
                answer.problem(503, "overloaded");
            }
        }
    }
    assert_eq!(provider.calls().len(), started, "what was refused was not sent");
    assert_eq!(tenant.call("go", &json!({}))["status"], "started");
    assert_eq!(other.call("go", &json!({}))["status"], "started");
}
