//! Clients by the thousand: what each of them costs is let go again, or is small.

use super::harness::{Gateway, Organization, Upstream, http, node};
use super::mcp::{Call, Era, Peer};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Clients that connect at the same time.
const AT_ONCE: usize = 4;

const MIB: u64 = 1 << 20;

/// Connects so many clients of the earlier era, each for one call.
fn connect_for_one_call(organization: &Organization, clients: usize) {
    let (url, connected) = (format!("{}/mcp", organization.base), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let agent = http();
                while connected.fetch_add(1, Ordering::SeqCst) < clients {
                    let capabilities = r#"{"elicitation":{}}"#;
                    let peer =
                        Peer::connect_with(agent.clone(), &url, Some(&organization.agent), Era::Legacy, capabilities);
                    let call = Call { name: "declared_fully", ..Call::default() };
                    let answer = peer.call(call).answer;
                    assert!(!answer.is_failure(), "every client is served: {answer:?}");
                }
            });
        }
    });
}

// IBM/mcp-context-forge#1549: what was opened for a moment stays open.
#[test]
fn a_client_that_initializes_for_every_call_leaves_nothing_behind() {
    let gateway = Gateway::start();
    let behind = |speaks: &str| {
        let upstream = Upstream::start("awkward.mjs", &["--era", speaks]);
        let organization = gateway.organization(speaks);
        organization.endpoint(&upstream);
        (organization, upstream)
    };
    // A server of the earlier era has a session for each client that may be asked.
    let (modern, legacy) = (behind("modern"), behind("legacy"));
    let connect = |clients: usize| {
        connect_for_one_call(&modern.0, clients * 9 / 10);
        connect_for_one_call(&legacy.0, clients / 10);
    };
    connect(2_000);
    let before = gateway.resident_bytes();
    connect(8_000);
    let after = gateway.resident_bytes();
    println!("memory: {} MiB after 2,000 clients, {} MiB after 10,000", before / MIB, after / MIB);
    assert!(after < before + 24 * MIB, "{} KiB more", (after - before) / 1024);
}

/// Streams that are open at once, and what each may hold of the gateway's memory. That is mostly what its connection
/// and its task hold in a build that was not optimised.
const STREAMS: u64 = 2_000;
const STREAM_BYTES: u64 = 64 << 10;

#[test]
fn two_thousand_idle_streams_are_small_and_all_told_of_a_change() {
    let upstream = Upstream::start("awkward.mjs", &["--era", "modern"]);
    let gateway = Gateway::start();
    let organization = gateway.organization("idle");
    let endpoint = organization.endpoint(&upstream);
    let before = gateway.resident_bytes();
    let mut command = node("listeners.mjs");
    command.args(["--url", &gateway.mcp_url(), "--key", &organization.agent, "--streams", &STREAMS.to_string()]);
    let mut listeners = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node starts");
    let mut lines = BufReader::new(listeners.stdout.take().expect("stdout is piped")).lines();
    let mut next = || lines.next().expect("they say how it goes").expect("text");
    assert_eq!(next(), "acknowledged");
    let each = gateway.resident_bytes().saturating_sub(before) / STREAMS;
    let path = format!("/v1/endpoints/{}", endpoint["id"].as_str().expect("an id"));
    organization.send("PATCH", &path, &json!({ "enabled": false }));
    assert_eq!(next(), "told");
    // A second word on the one change would come by now.
    std::thread::sleep(Duration::from_millis(500));
    drop(listeners.stdin.take());
    let count: Value = serde_json::from_str(&next()).expect("JSON");
    println!("streams: {STREAMS} acknowledged and told, {} KiB each", each / 1024);
    assert_eq!(count, json!({ "acknowledged": STREAMS, "told": STREAMS, "ended": 0 }));
    assert!(listeners.wait().expect("it ends").success());
    assert!(each < STREAM_BYTES, "{each} bytes a stream");
}
