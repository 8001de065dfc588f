//! How much does an organization cost? 10,000 organizations of 20 tools in one store: start-up, bytes of an organization
//! that is only stored, bytes and time of one that lives, the catalog swap, the hop to its actor, finding a callback's run.
//! `BENCH_ORGS` sets how many (10,000).

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::fixture;
use support::{best_ns, report};
use tempfile::TempDir;
use toolgate::adapters::clock::SystemClock;
use toolgate::adapters::metrics::PrometheusMetrics;
use toolgate::domain::ids::OrgId;
use toolgate::engine::actors::registry::Registry;
use toolgate::engine::catalog::Catalog;
use toolgate::engine::dispatch::gate::EndpointGate;
use toolgate::engine::org::OrgState;
use toolgate::engine::ports::Store;
use toolgate::engine::settings::EngineSettings;
use toolgate::engine::store_port::PageRequest;

/// Set to a folder, the bench only fills a store there.
const FILL_IN: &str = "BENCH_FILL_IN";
const TOOLS: usize = 20;
const LIVE: usize = 1_000;
const PENDING: usize = 10_000;

fn main() {
    let orgs = std::env::var("BENCH_ORGS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    if let Some(folder) = std::env::var_os(FILL_IN) {
        return actix::System::new().block_on(fill(Path::new(&folder), orgs));
    }
    let folder = TempDir::new().expect("a temporary folder");
    // A process of its own fills the store: memory that filling frees would hide what is measured here.
    let this = std::env::current_exe().expect("this bench is a file");
    let filled = Command::new(this).env(FILL_IN, folder.path()).status().expect("it runs");
    assert!(filled.success(), "the store is not filled");
    actix::System::new().block_on(async {
        let before_start = resident_bytes();
        let begun = Instant::now();
        let store = fixture::open_store(folder.path());
        store.ping().await.expect("it answers");
        let registry = registry(&store);
        let started = begun.elapsed();
        let stored = resident_bytes().saturating_sub(before_start) / orgs as u64;
        println!("{orgs} organizations × {TOOLS} tools: start-up {started:.1?}, {stored} bytes an organization that is only stored");

        // The store's page caches are bounded and belong to no organization: they are full before anything is measured.
        let ids = org_ids(store.as_ref()).await;
        for id in &ids {
            drop(store.load_org(*id).await.expect("it loads"));
        }
        let before_live = resident_bytes();
        let begun = Instant::now();
        for id in ids.iter().take(LIVE) {
            registry.get(*id).await.expect("it starts");
        }
        let (count, took) = (LIVE.min(orgs), begun.elapsed());
        let live = resident_bytes().saturating_sub(before_live) / count as u64;
        println!("{count} started on demand: {:.2?} and {live} bytes each", took / count as u32);

        hops(&registry, ids[0]).await;
        registry.stop();
    });
    swaps(&folder);
    callbacks();
}

async fn fill(folder: &Path, orgs: usize) {
    let store = fixture::open_store(folder);
    for first in (0..orgs).step_by(64) {
        let batch = (first..orgs.min(first + 64)).map(|n| fixture::add_org(store.as_ref(), n, TOOLS));
        futures_util::future::join_all(batch).await;
    }
    store.close().await;
}

async fn org_ids(store: &dyn Store) -> Vec<OrgId> {
    let mut ids = Vec::new();
    let mut request = PageRequest { limit: 200, cursor: None };
    loop {
        let page = store.list_orgs(&request).await.expect("it answers");
        ids.extend(page.items.iter().map(|org| org.id));
        let Some(next) = page.next_cursor else { return ids };
        request.cursor = Some(next);
    }
}

fn registry(store: &Arc<dyn Store>) -> Registry {
    let metrics = Arc::new(PrometheusMetrics::new(500, 100));
    Registry::start(Arc::clone(store), Arc::new(SystemClock::new()), metrics, Arc::new(EngineSettings::default()))
}

async fn hops(registry: &Registry, org: OrgId) {
    let handle = registry.get(org).await.expect("it lives");
    let rounds = 20_000u32;
    let begun = Instant::now();
    for _ in 0..rounds {
        handle.catalog();
    }
    let snapshot = begun.elapsed().as_nanos() as f64 / f64::from(rounds);
    let begun = Instant::now();
    for _ in 0..rounds {
        handle.summary().await.expect("it answers");
    }
    let hop = begun.elapsed().as_nanos() as f64 / f64::from(rounds);
    report("reading the snapshot (no hop)", snapshot, None);
    report("asking the actor and waiting for the answer", hop, Some(("snapshot", snapshot)));
}

fn swaps(folder: &TempDir) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (small, large) = runtime.block_on(async {
        let store = fixture::open_store(&folder.path().join("swap"));
        let small = fixture::add_org(store.as_ref(), 0, TOOLS).await;
        let large = fixture::add_org(store.as_ref(), 1, 500).await;
        let load =
            async |org: &fixture::BenchOrg| store.load_org(org.id).await.expect("it loads").expect("it is there");
        let loaded = (load(&small).await, load(&large).await);
        store.close().await;
        loaded
    });
    let settings = EngineSettings::default();
    let build = |config: &toolgate::engine::store_port::OrgConfig| {
        Catalog::build(config.clone(), &settings, |_, _| Arc::new(EndpointGate::new(64)))
    };
    let base = best_ns(Duration::from_millis(500), || drop(build(&small)));
    report("building the snapshot of 20 tools", base, None);
    report(
        "building the snapshot of 500 tools",
        best_ns(Duration::from_millis(500), || drop(build(&large))),
        Some(("20 tools", base)),
    );
}

fn callbacks() {
    let org = fixture::unstored_org();
    let runs: Vec<_> = (0..PENDING).map(|n| fixture::accepted_run(&org, &format!("theirs-{n}"))).collect();
    let wanted = runs[PENDING / 2].intent.id;
    let few = OrgState::restore(runs[..10].to_vec());
    let state = OrgState::restore(runs);
    let base = best_ns(Duration::from_millis(300), || drop(few.matching(org.endpoint, None, Some("theirs-5"))));
    report("finding the run of a callback among 10", base, None);
    let against = Some(("among 10", base));
    let theirs = best_ns(Duration::from_millis(300), || drop(state.matching(org.endpoint, None, Some("theirs-5000"))));
    report("by the provider's id among 10,000", theirs, against);
    let ours = best_ns(Duration::from_millis(300), || drop(state.matching(org.endpoint, Some(wanted), None)));
    report("by our id among 10,000", ours, against);
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}
