//! What does MCP cost? One tool of one MCP server, called directly, through nginx as a plain reverse proxy, and through
//! toolgate by `/mcp/run` and by `tools/call` in both eras: the same upstream, the same load, in several rounds, as ratios.
//!
//! The tool only reads and its server is trusted, so that its record is written behind, as for any plain read.
//! `BENCH_SECONDS` sets the seconds a measurement (3).

mod support;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use support::gateway::Gateway;
use support::process::{Process, free_address, start_nginx, wait_for};
use support::{gateway, load, mcp_server};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 5;
const MODERN_HEADERS: &str = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
     Mcp-Method: tools/call\r\nMcp-Name: echo\r\n";
const LEGACY_HEADERS: &str = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n";
const MODERN_CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello","count":3},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
const LEGACY_CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello","count":3}}}"#;
const RUN: &str = r#"{"tool":"echo","args":{"text":"hello","count":3}}"#;

/// One way to the tool.
struct Way<'a> {
    name: &'static str,
    target: SocketAddr,
    request: Vec<u8>,
    /// The process in between.
    process: Option<&'a Process>,
}

/// The best round of one way: noise only ever takes away.
#[derive(Clone, Copy)]
struct Best {
    per_second: f64,
    cpu_us_per_call: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, address] = arguments.as_slice()
        && flag == "--server"
    {
        mcp_server::serve(address.parse().expect("an address"));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let upstream = free_address();
    let this = std::env::current_exe().expect("this program has a path");
    let _server = Process::start(Command::new(this).arg("--server").arg(upstream.to_string()));
    wait_for(upstream);
    let nginx_at = free_address();
    let nginx = start_nginx(folder.path(), nginx_at, upstream);
    if nginx.is_none() {
        println!("nginx is not installed: only direct calls are the baseline");
    }
    let registration =
        format!(r#"{{"name":"fast","dialect":"mcp","base_url":"http://{upstream}/mcp","trusted":true}}"#);
    let gate = gateway::start(folder.path(), &registration);
    let direct = |target| load::request(target, "/mcp", MODERN_HEADERS, MODERN_CALL);
    let mut ways = vec![Way { name: "direct", target: upstream, request: direct(upstream), process: None }];
    ways.extend(nginx.as_ref().map(|nginx| Way {
        name: "nginx",
        target: nginx_at,
        request: direct(nginx_at),
        process: Some(nginx),
    }));
    ways.extend(through(&gate));
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let best = measure(&ways, Duration::from_secs(seconds));
    print(&ways, &best);
}

fn through(gate: &Gateway) -> [Way<'_>; 3] {
    let way = |name, path, headers: &str, body| Way {
        name,
        target: gate.address,
        request: load::request(gate.address, path, &format!("X-Auth: {}\r\n{headers}", gate.agent_key), body),
        process: Some(&gate.process),
    };
    [
        way("/mcp/run", "/mcp/run", "", RUN),
        way("tools/call, modern", "/mcp", MODERN_HEADERS, MODERN_CALL),
        way("tools/call, legacy", "/mcp", LEGACY_HEADERS, LEGACY_CALL),
    ]
}

fn measure(ways: &[Way<'_>], for_long: Duration) -> Vec<Best> {
    for way in ways {
        load::closed(way.target, &way.request, CONNECTIONS, Duration::from_secs(1));
    }
    let mut best = vec![Best { per_second: 0.0, cpu_us_per_call: f64::MAX }; ways.len()];
    for _ in 0..ROUNDS {
        for (way, best) in ways.iter().zip(&mut best) {
            let before = way.process.map(Process::cpu);
            let measured = load::closed(way.target, &way.request, CONNECTIONS, for_long);
            assert_eq!(measured.refused, 0, "{} refused calls: what is measured is not the way to the tool", way.name);
            best.per_second = best.per_second.max(measured.per_second());
            if let Some((process, before)) = way.process.zip(before) {
                let used = (process.cpu() - before).as_secs_f64() * 1e6;
                best.cpu_us_per_call = best.cpu_us_per_call.min(used / measured.answered.max(1) as f64);
            }
        }
    }
    best
}

fn print(ways: &[Way<'_>], best: &[Best]) {
    let of = |name: &str| ways.iter().position(|way| way.name == name).map(|at| best[at]);
    let (Some(direct), Some(run)) = (of("direct"), of("/mcp/run")) else { return };
    let nginx = of("nginx");
    println!(
        "{:<20} {:>9} {:>12} {:>10} {:>10} {:>12} {:>12}",
        "way", "calls/s", "CPU µs/call", "× direct", "× nginx", "CPU × nginx", "CPU × run"
    );
    for (way, best) in ways.iter().zip(best) {
        let ratio = |a: f64, b: Option<f64>| b.map_or("-".to_owned(), |b| format!("{:.2}", a / b));
        let cpu = Some(best.cpu_us_per_call).filter(|_| way.process.is_some());
        let cpu_ratio = |base: Option<f64>| cpu.map_or("-".to_owned(), |cpu| ratio(cpu, base));
        println!(
            "{:<20} {:>9.0} {:>12} {:>10} {:>10} {:>12} {:>12}",
            way.name,
            best.per_second,
            cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.1}")),
            ratio(best.per_second, Some(direct.per_second)),
            ratio(best.per_second, nginx.map(|nginx| nginx.per_second)),
            cpu_ratio(nginx.map(|nginx| nginx.cpu_us_per_call)),
            cpu_ratio(Some(run.cpu_us_per_call)),
        );
    }
    println!("target: a tools/call costs at most 1.15 × the CPU of the same /mcp/run");
}
