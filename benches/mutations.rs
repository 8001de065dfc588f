//! What does a change that happens once cost? Mutations at an agent-provider through the real server, by so many writers
//! at once, against the same provider called directly and against a bare SQLite insert with the same durability, in turn in
//! several rounds, reported as ratios.
//!
//! Each mutation is recorded as an operation before its first byte leaves and settled after its answer: both are durable,
//! and writers share their commits. `BENCH_SECONDS` sets the seconds a measurement (3).

mod support;

use std::process::Command;
use std::time::Duration;
use support::load::{self, Measured};
use support::process::{Process, free_address, wait_for};
use support::{bare, gateway, receipts};

const WRITERS: [usize; 3] = [1, 16, 64];
const ROUNDS: usize = 3;

/// The best round of one way: noise only ever takes away.
#[derive(Default)]
struct Best {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl Best {
    fn take(&mut self, measured: &Measured) {
        assert_eq!(measured.refused, 0, "refused calls: what is measured is not the plain path");
        let first = self.per_second == 0.0;
        let least = |known: Duration, now: Duration| if first { now } else { known.min(now) };
        self.p50 = least(self.p50, measured.percentile(0.5));
        self.p99 = least(self.p99, measured.percentile(0.99));
        self.per_second = self.per_second.max(measured.per_second());
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, address] = arguments.as_slice()
        && flag == "--provider"
    {
        receipts::serve(address.parse().expect("an address"));
    }
    // Below the target folder: what a folder in memory takes is not durable.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let upstream = free_address();
    let this = std::env::current_exe().expect("this program has a path");
    let _provider = Process::start(Command::new(this).arg("--provider").arg(upstream.to_string()));
    wait_for(upstream);
    let registration = format!(
        r#"{{"name":"fast","dialect":"agent-provider","base_url":"http://{upstream}","auth":{{"bearer":"{}"}}}}"#,
        receipts::BEARER
    );
    let gate = gateway::start(folder.path(), &registration);
    let direct = load::request(upstream, "/tools/note.add", receipts::DIRECT_HEADERS, receipts::DIRECT_BODY);
    let headers = format!("X-Auth: {}\r\n", gate.agent_key);
    let body = r#"{"tool":"note.add","args":{"text":"hello"}}"#;
    let through = load::request(gate.address, "/mcp/run", &headers, body);
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let for_long = Duration::from_secs(seconds);
    load::closed(gate.address, &through, WRITERS[0], Duration::from_secs(1));
    let (mut bare_per_second, mut best) = (0f64, WRITERS.map(|_| (Best::default(), Best::default())));
    for _ in 0..ROUNDS {
        bare_per_second = bare_per_second.max(bare::inserts_per_second(folder.path(), for_long));
        for (writers, (without, with)) in WRITERS.into_iter().zip(&mut best) {
            without.take(&load::closed(upstream, &direct, writers, for_long));
            with.take(&load::closed(gate.address, &through, writers, for_long));
        }
    }
    print(bare_per_second, &best);
}

fn print(bare: f64, best: &[(Best, Best)]) {
    println!("bare SQLite insert, durable, one at a time: {bare:.0} /s (baseline)");
    println!(
        "{:<8} {:>12} {:>12} {:>10} {:>10} {:>14} {:>14}",
        "writers", "direct/s", "toolgate/s", "× direct", "× bare", "added p50 ms", "added p99 ms"
    );
    for (writers, (without, with)) in WRITERS.into_iter().zip(best) {
        let added = |with: Duration, without: Duration| with.saturating_sub(without).as_secs_f64() * 1e3;
        println!(
            "{writers:<8} {:>12.0} {:>12.0} {:>10.3} {:>10.2} {:>14.3} {:>14.3}",
            without.per_second,
            with.per_second,
            with.per_second / without.per_second,
            with.per_second / bare,
            added(with.p50, without.p50),
            added(with.p99, without.p99)
        );
    }
    let alone = best[0].1.p50.saturating_sub(best[0].0.p50).as_secs_f64();
    println!("a writer alone: added p50 {:.2} × a bare insert", alone * bare);
}
