//! What the benches share: processes, CPU clocks, a plain HTTP/1.1 load, fast providers, a bare insert.

#![allow(dead_code, unreachable_pub, reason = "each bench is a program of its own and uses its part")]

pub mod bare;
pub mod fixture;
pub mod gateway;
pub mod load;
pub mod mcp_server;
pub mod process;
pub mod provider;
pub mod receipts;

use std::time::{Duration, Instant};

/// Runs `work` in batches for about `for_about` and answers the best nanoseconds a call: noise only ever adds.
pub fn best_ns(for_about: Duration, mut work: impl FnMut()) -> f64 {
    let mut batch = 1u32;
    loop {
        let begun = Instant::now();
        (0..batch).for_each(|_| work());
        if begun.elapsed() > Duration::from_millis(5) {
            break;
        }
        batch *= 2;
    }
    let until = Instant::now() + for_about;
    let mut best = f64::MAX;
    while Instant::now() < until {
        let begun = Instant::now();
        (0..batch).for_each(|_| work());
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(batch));
    }
    best
}

/// Prints one measured line.
pub fn report(what: &str, ns: f64, baseline: Option<(&str, f64)>) {
    match baseline {
        Some((name, base)) => println!("{what:<52} {:>10.0} ns   {:>7.2} × {name}", ns, ns / base),
        None => println!("{what:<52} {ns:>10.0} ns   (baseline)"),
    }
}
