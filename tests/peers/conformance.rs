//! The official conformance suite, on both sides of toolgate. What it came to stands in the last line of each test.

use super::harness::{Gateway, PROGRAM, Upstream, command, printed, scripts};
use std::path::Path;
use std::process::Command;

/// The suite's verdict on toolgate as a server, which has behind it all that the suite asks for.
fn serves(revision: &str) {
    // Scenarios that are only reported, of tasks that a server makes of a long call, would wait for its end.
    let upstream = Upstream::start("upstream.mjs", &["--era", "both", "--response", "auto", "--slowest", "1"]);
    let gateway = Gateway::start();
    let organization = gateway.organization("suite");
    organization.endpoint(&upstream);
    let mut suite = conformance("server", revision);
    suite.args(["--url", &gateway.mcp_url(), "--key", &organization.agent]);
    report(&mut suite);
}

/// The suite's verdict on toolgate as a client.
fn calls(revision: &str) {
    let mut suite = conformance("client", revision);
    let driver = scripts().join("client_under_test");
    suite.arg("--command").arg(&driver).env("PROGRAM_UNDER_TEST", PROGRAM);
    report(&mut suite);
}

fn conformance(leg: &str, revision: &str) -> Command {
    let mut suite = command(scripts().join("conformance"));
    suite.args([leg, revision, "--expected-failures"]).arg(scripts().join(format!("baseline-{revision}.yml")));
    // What the suite writes stays until the next time, for whoever wants to know why.
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{leg}-{revision}"));
    let _ = std::fs::remove_dir_all(&output);
    suite.arg("--output").arg(output);
    suite
}

#[track_caller]
fn report(suite: &mut Command) {
    let said = printed(suite);
    println!("{}", said.lines().last().expect("a summary"));
}

#[test]
fn conformance_2025_11_25_passes_but_for_the_baseline() {
    serves("2025-11-25");
}

#[test]
fn conformance_2026_07_28_passes_but_for_the_baseline() {
    serves("2026-07-28");
}

#[test]
fn client_conformance_2025_11_25_passes() {
    calls("2025-11-25");
}

#[test]
fn client_conformance_2026_07_28_passes() {
    calls("2026-07-28");
}
