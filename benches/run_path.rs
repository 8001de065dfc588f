//! What does a run cost? Direct, through nginx as a plain reverse proxy, and through toolgate: the same fast provider, the
//! same load, one after the other in several rounds, reported as ratios.
//!
//! The tool is a Median read of risk `low`: key, snapshot, coercion, validation, limits, signature, a pooled connection,
//! and its record written behind. `BENCH_SECONDS` sets the seconds a measurement (3).

mod support;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use support::load::{self, Measured};
use support::process::{Process, free_address, start_nginx, wait_for};
use support::{gateway, provider};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 3;
const PACED_PER_SECOND: u32 = 1_000;

/// One way to the provider.
struct Way {
    name: &'static str,
    target: SocketAddr,
    request: Vec<u8>,
    /// The process in between.
    process: Option<Process>,
}

/// The best round of one way: noise only ever takes away.
#[derive(Default)]
struct Best {
    per_second: f64,
    cpu_us_per_call: f64,
    p50: Duration,
    p99: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, address] = arguments.as_slice()
        && flag == "--provider"
    {
        provider::serve(address.parse().expect("an address"));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let upstream = free_address();
    let this = std::env::current_exe().expect("this program has a path");
    let _provider = Process::start(Command::new(this).arg("--provider").arg(upstream.to_string()));
    wait_for(upstream);
    let call = r#"{"op":"call","tool":"echo","input":{"text":"hello","count":3}}"#;
    let mut ways =
        vec![Way { name: "direct", target: upstream, request: load::request(upstream, "/", "", call), process: None }];
    let nginx_at = free_address();
    match start_nginx(folder.path(), nginx_at, upstream) {
        Some(process) => ways.push(Way {
            name: "nginx",
            target: nginx_at,
            request: load::request(nginx_at, "/", "", call),
            process: Some(process),
        }),
        None => println!("nginx is not installed: only direct calls are the baseline"),
    }
    ways.push(toolgate(folder.path(), upstream));
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let best = measure(&ways, Duration::from_secs(seconds));
    print(&ways, &best);
}

fn toolgate(folder: &std::path::Path, upstream: SocketAddr) -> Way {
    let registration = format!(
        r#"{{"name":"fast","dialect":"median","base_url":"http://{upstream}","auth":{{"signing_secret":"bench"}}}}"#
    );
    let gate = gateway::start(folder, &registration);
    let body = r#"{"tool":"echo","args":{"text":"hello","count":3}}"#;
    let request = load::request(gate.address, "/mcp/run", &format!("X-Auth: {}\r\n", gate.agent_key), body);
    Way { name: "toolgate", target: gate.address, request, process: Some(gate.process) }
}

fn measure(ways: &[Way], for_long: Duration) -> Vec<Best> {
    for way in ways {
        load::closed(way.target, &way.request, CONNECTIONS, Duration::from_secs(1));
    }
    let mut best: Vec<Best> = ways.iter().map(|_| Best::default()).collect();
    for round in 0..ROUNDS {
        for (way, best) in ways.iter().zip(&mut best) {
            let before = way.process.as_ref().map(Process::cpu);
            let full = load::closed(way.target, &way.request, CONNECTIONS, for_long);
            let cpu = way
                .process
                .as_ref()
                .map(Process::cpu)
                .zip(before)
                .map_or(0.0, |(after, before)| (after - before).as_secs_f64() * 1e6 / full.answered.max(1) as f64);
            assert_all_answered(way, &full);
            let paced = load::open(way.target, &way.request, CONNECTIONS, PACED_PER_SECOND, for_long);
            assert_all_answered(way, &paced);
            let (p50, p99) = (paced.percentile(0.5), paced.percentile(0.99));
            let first = round == 0;
            best.per_second = best.per_second.max(full.per_second());
            best.cpu_us_per_call = if first { cpu } else { best.cpu_us_per_call.min(cpu) };
            best.p50 = if first { p50 } else { best.p50.min(p50) };
            best.p99 = if first { p99 } else { best.p99.min(p99) };
        }
    }
    best
}

fn assert_all_answered(way: &Way, measured: &Measured) {
    assert_eq!(measured.refused, 0, "{} refused calls: what is measured is not the run path", way.name);
}

fn print(ways: &[Way], best: &[Best]) {
    println!("{:<10} {:>12} {:>14} {:>12} {:>12}", "way", "calls/s", "CPU µs/call", "p50 µs", "p99 µs");
    for (way, best) in ways.iter().zip(best) {
        println!(
            "{:<10} {:>12.0} {:>14.1} {:>12} {:>12}",
            way.name,
            best.per_second,
            best.cpu_us_per_call,
            best.p50.as_micros(),
            best.p99.as_micros()
        );
    }
    let of = |name: &str| ways.iter().position(|way| way.name == name).map(|at| &best[at]);
    let (Some(direct), Some(gate)) = (of("direct"), of("toolgate")) else { return };
    let added = |with: Duration, without: Duration| with.saturating_sub(without).as_secs_f64() * 1e3;
    println!(
        "at {PACED_PER_SECOND} calls/s added to direct: p50 {:.3} ms (target ≤ 0.3), p99 {:.3} ms (target ≤ 2)",
        added(gate.p50, direct.p50),
        added(gate.p99, direct.p99)
    );
    println!("throughput: {:.2} × direct", gate.per_second / direct.per_second);
    if let Some(nginx) = of("nginx") {
        println!(
            "throughput: {:.2} × nginx (target ≥ 0.45); CPU a call: {:.2} × nginx (target ≤ 2.5)",
            gate.per_second / nginx.per_second,
            gate.cpu_us_per_call / nginx.cpu_us_per_call
        );
    }
}
