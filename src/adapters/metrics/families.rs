//! Names, labels, helps and buckets: the one place they stand.

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// From a plain read's own share (well under a millisecond) to the longest run (60 s).
const RUN_BUCKETS_S: [f64; 19] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];
/// From a read out of memory to a store that stands still.
const STORE_BUCKETS_S: [f64; 15] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

const FIXED: &str = "names and labels are fixed and good";

/// Counters by organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CounterFamily {
    Runs,
    RateLimited,
    Syncs,
    Callbacks,
}

/// Gauges by organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum GaugeFamily {
    PendingRuns,
    Approvals,
    Operations,
}

/// Every family of toolgate.
pub(super) struct Families {
    runs: IntCounterVec,
    run_duration: HistogramVec,
    pub(super) provider_requests: IntCounterVec,
    rate_limited: IntCounterVec,
    syncs: IntCounterVec,
    endpoint_up: IntGaugeVec,
    pending_runs: IntGaugeVec,
    callbacks: IntCounterVec,
    approvals: IntGaugeVec,
    /// Announced; its series come with the first dialect whose mutations have receipts.
    operations: IntGaugeVec,
    pub(super) org_actors: IntGauge,
    pub(super) mailbox_depth: IntGauge,
    pub(super) store_seconds: HistogramVec,
    pub(super) records_dropped: IntCounter,
}

impl Families {
    /// Makes every family and hands it to the registry.
    pub(super) fn register(registry: &Registry) -> Self {
        process_and_build(registry);
        Self {
            runs: counters(
                registry,
                "runs_total",
                "Runs by the status they reached.",
                &["org", "dialect", "kind", "status"],
            ),
            run_duration: histograms(
                registry,
                "run_duration_seconds",
                "How long answered runs took: in the gateway, at the provider, in all.",
                &["dialect", "phase"],
                &RUN_BUCKETS_S,
            ),
            provider_requests: counters(
                registry,
                "provider_requests_total",
                "Requests to providers by how they ended; breaker_open was refused before it was sent.",
                &["org", "endpoint", "outcome"],
            ),
            rate_limited: counters(registry, "rate_limited_total", "Calls refused by a limit.", &["org", "scope"]),
            syncs: counters(registry, "sync_total", "Manifest syncs by how they ended.", &["org", "outcome"]),
            endpoint_up: gauges(
                registry,
                "endpoint_up",
                "1 while the endpoint's last sync was good and its breaker is closed, else 0.",
                &["org", "endpoint"],
            ),
            pending_runs: gauges(registry, "pending_runs", "Runs that wait for their late answer.", &["org"]),
            callbacks: counters(registry, "callbacks_total", "Callbacks by what became of them.", &["org", "outcome"]),
            approvals: gauges(registry, "approvals", "Approvals by state.", &["org", "state"]),
            operations: gauges(registry, "operations", "Mutations by the state of their receipt.", &["org", "state"]),
            org_actors: gauge(registry, "org_actors", "Organization actors that live on this node."),
            mailbox_depth: gauge(registry, "mailbox_depth", "Messages that wait for organization actors."),
            store_seconds: histograms(
                registry,
                "store_seconds",
                "How long store operations took.",
                &["op"],
                &STORE_BUCKETS_S,
            ),
            records_dropped: registered(
                registry,
                IntCounter::with_opts(opts("records_dropped_total", "Records of plain reads dropped by a full queue.")),
            ),
        }
    }

    pub(super) fn counters(&self, family: CounterFamily) -> &IntCounterVec {
        match family {
            CounterFamily::Runs => &self.runs,
            CounterFamily::RateLimited => &self.rate_limited,
            CounterFamily::Syncs => &self.syncs,
            CounterFamily::Callbacks => &self.callbacks,
        }
    }

    /// The label values of a counter: a family has fewer labels than [`CounterFamily::Runs`].
    pub(super) fn counter_labels<'a>(family: CounterFamily, org: &'a str, rest: [&'a str; 3]) -> Vec<&'a str> {
        let [a, b, c] = rest;
        match family {
            CounterFamily::Runs => vec![org, a, b, c],
            CounterFamily::RateLimited | CounterFamily::Syncs | CounterFamily::Callbacks => vec![org, a],
        }
    }

    pub(super) fn gauges(&self, family: GaugeFamily) -> &IntGaugeVec {
        match family {
            GaugeFamily::PendingRuns => &self.pending_runs,
            GaugeFamily::Approvals => &self.approvals,
            GaugeFamily::Operations => &self.operations,
        }
    }

    pub(super) fn gauge_labels<'a>(family: GaugeFamily, org: &'a str, state: &'a str) -> Vec<&'a str> {
        match family {
            GaugeFamily::PendingRuns => vec![org],
            GaugeFamily::Approvals | GaugeFamily::Operations => vec![org, state],
        }
    }

    pub(super) fn gauge(&self, family: GaugeFamily, org: &str, state: &str) -> IntGauge {
        self.gauges(family).with_label_values(&Self::gauge_labels(family, org, state))
    }

    pub(super) fn up(&self, org: &str, endpoint: &str) -> IntGauge {
        self.endpoint_up.with_label_values(&[org, endpoint])
    }

    pub(super) fn remove_up(&self, org: &str, endpoint: &str) {
        // Absent is what is wanted; the error says only that it was so already.
        let _ = self.endpoint_up.remove_label_values(&[org, endpoint]);
    }

    /// The phases of one dialect: gateway, provider, total.
    pub(super) fn durations(&self, dialect: &str) -> [Histogram; 3] {
        ["gateway", "provider", "total"].map(|phase| self.run_duration.with_label_values(&[dialect, phase]))
    }

    /// Name, help and type of every family with labels: those have no series before their first event.
    pub(super) fn announced(&self) -> Vec<(String, String, &'static str)> {
        let typed: [(&dyn Collector, &'static str); 11] = [
            (&self.runs, "counter"),
            (&self.run_duration, "histogram"),
            (&self.provider_requests, "counter"),
            (&self.rate_limited, "counter"),
            (&self.syncs, "counter"),
            (&self.endpoint_up, "gauge"),
            (&self.pending_runs, "gauge"),
            (&self.callbacks, "counter"),
            (&self.approvals, "gauge"),
            (&self.operations, "gauge"),
            (&self.store_seconds, "histogram"),
        ];
        let describe = |(collector, kind): (&dyn Collector, _)| {
            let desc = *collector.desc().first().expect("a family has a description");
            (desc.fq_name.clone(), desc.help.clone(), kind)
        };
        typed.into_iter().map(describe).collect()
    }
}

fn process_and_build(registry: &Registry) {
    registry.register(Box::new(ProcessCollector::for_self())).expect(FIXED);
    let build = opts("build_info", "Which toolgate this is.").const_label("version", env!("CARGO_PKG_VERSION"));
    registered(registry, IntGauge::with_opts(build)).set(1);
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("toolgate")
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect(FIXED);
    registry.register(Box::new(collector.clone())).expect(FIXED);
    collector
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(opts(name, help), labels))
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(opts(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    registered(registry, IntGauge::with_opts(opts(name, help)))
}

fn histograms(registry: &Registry, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(opts, labels))
}
