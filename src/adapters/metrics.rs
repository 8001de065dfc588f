//! What is counted, in Prometheus' text format.
//!
//! **Invariant:** labels are bounded: a fixed number of organizations keep their own label and of each a fixed number of
//! endpoints, the rest are [`OTHER`]; no caller, key, tool or argument is ever a label. **Invariant:** counting a run
//! takes no lock that all runs share: an organization keeps its own children.

mod families;
mod series;
#[cfg(test)]
mod tests;

use crate::engine::ports::{Metrics, RunTimes};
use dashmap::DashMap;
use families::{CounterFamily, Families, GaugeFamily};
use prometheus::{Histogram, Registry, TextEncoder};
use series::{OrgSeries, RestDown, RestSums};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The label of organizations and endpoints beyond the bound. An organization with this very slug is counted here too.
pub const OTHER: &str = "other";

/// The [`Metrics`] port on a registry of its own.
pub struct PrometheusMetrics {
    registry: Registry,
    families: Families,
    max_orgs: usize,
    max_endpoints: usize,
    /// Organizations with a label of their own, without [`OTHER`] and the empty one.
    labelled: AtomicUsize,
    /// By label: the labelled organizations, [`OTHER`], and the empty one, where no organization is known.
    orgs: DashMap<String, OrgSeries>,
    durations: DashMap<&'static str, [Histogram; 3]>,
    rest_sums: RestSums,
    rest_down: RestDown,
}

impl PrometheusMetrics {
    /// At most `max_orgs` organizations have a label of their own, and of each at most `max_endpoints` endpoints.
    pub fn new(max_orgs: usize, max_endpoints: usize) -> Self {
        let registry = Registry::new();
        Self {
            families: Families::register(&registry),
            registry,
            max_orgs,
            max_endpoints,
            labelled: AtomicUsize::new(0),
            orgs: DashMap::new(),
            durations: DashMap::new(),
            rest_sums: RestSums::default(),
            rest_down: RestDown::default(),
        }
    }

    /// The whole exposition. A family without a series yet is announced all the same, so that whoever writes a rule
    /// finds its name before its first event.
    pub fn render(&self) -> String {
        let gathered = self.registry.gather();
        let mut text = TextEncoder::new().encode_to_string(&gathered).expect("a registry gathers what can be written");
        for (name, help, kind) in self.families.announced() {
            if !gathered.iter().any(|family| family.name() == name) {
                text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            }
        }
        text
    }

    fn count(&self, family: CounterFamily, org: &str, labels: [&'static str; 3]) {
        let counted = |label: &str| self.orgs.get(label).is_some_and(|series| series.count(family, labels));
        if counted(org) {
            return;
        }
        let label = self.label(org);
        if label != org && counted(label) {
            return;
        }
        let mut series = self.orgs.entry(label.to_owned()).or_default();
        series.counter_or_make(&self.families, family, label, labels).inc();
    }

    fn set(&self, family: GaugeFamily, org: &str, state: &'static str, count: usize) {
        let label = self.label(org);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let gauge = self.orgs.entry(label.to_owned()).or_default().gauge_or_make(&self.families, family, label, state);
        if label == org && label != OTHER {
            gauge.set(count);
        } else {
            // Many organizations share this series: it holds their sum, not whoever spoke last.
            self.rest_sums.set(&gauge, org, family, state, count);
        }
    }

    /// The label of an organization: its slug while there is room, else [`OTHER`].
    fn label<'a>(&self, org: &'a str) -> &'a str {
        if org == OTHER || self.orgs.contains_key(org) {
            return org;
        }
        if org.is_empty() {
            return org;
        }
        let free = |taken: usize| (taken < self.max_orgs).then_some(taken + 1);
        if self.labelled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_err() {
            return OTHER;
        }
        match self.orgs.entry(org.to_owned()) {
            dashmap::Entry::Occupied(_) => {
                self.labelled.fetch_sub(1, Ordering::Relaxed);
            }
            dashmap::Entry::Vacant(room) => {
                room.insert(OrgSeries::default());
                // It may have been one of the rest until another organization left.
                self.leave_rest(org);
            }
        }
        org
    }

    fn leave_rest(&self, org: &str) {
        self.rest_sums.forget(org, |family, state| self.families.gauge(family, OTHER, state));
        self.rest_down.forget_org(org, |org, endpoint| self.families.up(org, endpoint));
    }

    /// Runs `act` with the labels of an endpoint and its organization's series.
    fn with_endpoint(&self, org: &str, endpoint: &str, act: impl FnOnce(&mut OrgSeries, &str, &str)) {
        let org_label = self.label(org);
        let mut series = self.orgs.entry(org_label.to_owned()).or_default();
        let bound = if org_label == OTHER { 0 } else { self.max_endpoints };
        let endpoint_label = if series.admit_endpoint(endpoint, bound) { endpoint } else { OTHER };
        act(&mut series, org_label, endpoint_label);
    }
}

impl Metrics for PrometheusMetrics {
    fn run(&self, org: &str, dialect: &'static str, kind: &'static str, status: &'static str) {
        self.count(CounterFamily::Runs, org, [dialect, kind, status]);
    }

    fn run_times(&self, dialect: &'static str, times: RunTimes) {
        let observe = |phases: &[Histogram; 3]| {
            let [gateway, provider, total] = phases;
            gateway.observe(times.gateway.as_secs_f64());
            provider.observe(times.provider.as_secs_f64());
            total.observe((times.gateway + times.provider).as_secs_f64());
        };
        if let Some(phases) = self.durations.get(dialect) {
            return observe(&phases);
        }
        observe(&self.durations.entry(dialect).or_insert_with(|| self.families.durations(dialect)));
    }

    fn provider_request(&self, org: &str, endpoint: &str, outcome: &'static str) {
        if self.orgs.get(org).is_some_and(|series| org != OTHER && series.count_request(endpoint, outcome)) {
            return;
        }
        self.with_endpoint(org, endpoint, |series, org, endpoint| {
            series.request_or_make(&self.families, org, endpoint, outcome).inc();
        });
    }

    fn rate_limited(&self, org: &str, scope: &'static str) {
        self.count(CounterFamily::RateLimited, org, [scope, "", ""]);
    }

    fn sync(&self, org: &str, outcome: &'static str) {
        self.count(CounterFamily::Syncs, org, [outcome, "", ""]);
    }

    fn endpoint_up(&self, org: &str, endpoint: &str, up: bool) {
        self.with_endpoint(org, endpoint, |series, org_label, endpoint_label| {
            series.note_up(endpoint_label);
            let gauge = self.families.up(org_label, endpoint_label);
            if endpoint_label == endpoint && endpoint != OTHER {
                gauge.set(i64::from(up));
            } else {
                // Many endpoints share this series: it is up only while none of them is down.
                self.rest_down.set(&gauge, org_label, (org, endpoint), up);
            }
        });
    }

    fn forget_endpoint(&self, org: &str, endpoint: &str) {
        if let Some(mut series) = self.orgs.get_mut(org).filter(|_| org != OTHER) {
            series.forget_endpoint(&self.families, org, endpoint);
        }
        self.rest_down.forget(org, endpoint, |org, endpoint| self.families.up(org, endpoint));
    }

    fn forget_org(&self, org: &str) {
        self.leave_rest(org);
        if org == OTHER || org.is_empty() {
            return;
        }
        let forget = |_: &String, series: &OrgSeries| {
            series.forget(&self.families, org);
            true
        };
        if self.orgs.remove_if(org, forget).is_some() {
            self.labelled.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn pending_runs(&self, org: &str, count: usize) {
        self.set(GaugeFamily::PendingRuns, org, "", count);
    }

    fn approvals(&self, org: &str, state: &'static str, count: usize) {
        self.set(GaugeFamily::Approvals, org, state, count);
    }

    fn operations(&self, org: &str, state: &'static str, count: usize) {
        self.set(GaugeFamily::Operations, org, state, count);
    }

    fn callback(&self, org: &str, outcome: &'static str) {
        self.count(CounterFamily::Callbacks, org, [outcome, "", ""]);
    }

    fn org_actors(&self, count: usize) {
        self.families.org_actors.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn mailbox_depth(&self, depth: usize) {
        self.families.mailbox_depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    fn store(&self, op: &'static str, took: Duration) {
        self.families.store_seconds.with_label_values(&[op]).observe(took.as_secs_f64());
    }

    fn records_dropped(&self, count: u64) {
        self.families.records_dropped.inc_by(count);
    }
}
