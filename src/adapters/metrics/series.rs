//! The series of one organization, and what the organizations without a label share.

use super::OTHER;
use super::families::{CounterFamily, Families, GaugeFamily};
use prometheus::{IntCounter, IntGauge};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The children of one organization's label. Lists are short (a few dialects, kinds and statuses), so they are scanned.
#[derive(Default)]
pub(super) struct OrgSeries {
    counters: Vec<(CounterFamily, [&'static str; 3], IntCounter)>,
    gauges: Vec<(GaugeFamily, &'static str, IntGauge)>,
    endpoints: HashMap<String, EndpointSeries>,
}

#[derive(Default)]
struct EndpointSeries {
    requests: Vec<(&'static str, IntCounter)>,
    has_up: bool,
}

impl OrgSeries {
    fn counter(&self, family: CounterFamily, labels: [&'static str; 3]) -> Option<&IntCounter> {
        self.counters.iter().find(|(f, l, _)| *f == family && *l == labels).map(|(.., counter)| counter)
    }

    /// Counts one, if the child exists already.
    pub(super) fn count(&self, family: CounterFamily, labels: [&'static str; 3]) -> bool {
        self.counter(family, labels).map(IntCounter::inc).is_some()
    }

    pub(super) fn counter_or_make(
        &mut self,
        families: &Families,
        family: CounterFamily,
        org: &str,
        labels: [&'static str; 3],
    ) -> IntCounter {
        if let Some(counter) = self.counter(family, labels) {
            return counter.clone();
        }
        let counter = families.counters(family).with_label_values(&Families::counter_labels(family, org, labels));
        self.counters.push((family, labels, counter.clone()));
        counter
    }

    pub(super) fn gauge_or_make(
        &mut self,
        families: &Families,
        family: GaugeFamily,
        org: &str,
        state: &'static str,
    ) -> IntGauge {
        if let Some((.., gauge)) = self.gauges.iter().find(|(f, s, _)| *f == family && *s == state) {
            return gauge.clone();
        }
        let gauge = families.gauge(family, org, state);
        self.gauges.push((family, state, gauge.clone()));
        gauge
    }

    /// Whether the endpoint has a label of its own, giving it one while there is room.
    pub(super) fn admit_endpoint(&mut self, endpoint: &str, bound: usize) -> bool {
        if endpoint == OTHER || self.endpoints.contains_key(endpoint) {
            return true;
        }
        let own = self.endpoints.keys().filter(|name| *name != OTHER).count();
        if own >= bound {
            return false;
        }
        self.endpoints.insert(endpoint.to_owned(), EndpointSeries::default());
        true
    }

    fn request(&self, endpoint: &str, outcome: &'static str) -> Option<&IntCounter> {
        self.endpoints.get(endpoint)?.requests.iter().find(|(o, _)| *o == outcome).map(|(_, counter)| counter)
    }

    /// Counts one, if the child exists already.
    pub(super) fn count_request(&self, endpoint: &str, outcome: &'static str) -> bool {
        self.request(endpoint, outcome).map(IntCounter::inc).is_some()
    }

    pub(super) fn request_or_make(
        &mut self,
        families: &Families,
        org: &str,
        endpoint: &str,
        outcome: &'static str,
    ) -> IntCounter {
        if let Some(counter) = self.request(endpoint, outcome) {
            return counter.clone();
        }
        let counter = families.provider_requests.with_label_values(&[org, endpoint, outcome]);
        self.endpoints.entry(endpoint.to_owned()).or_default().requests.push((outcome, counter.clone()));
        counter
    }

    /// Notes that the endpoint's label has an `endpoint_up` series.
    pub(super) fn note_up(&mut self, endpoint: &str) {
        if let Some(series) = self.endpoints.get_mut(endpoint) {
            series.has_up = true;
        } else {
            self.endpoints.insert(endpoint.to_owned(), EndpointSeries { requests: Vec::new(), has_up: true });
        }
    }

    pub(super) fn forget_endpoint(&mut self, families: &Families, org: &str, endpoint: &str) {
        // `other` is shared by endpoints that live on.
        if endpoint != OTHER
            && let Some(series) = self.endpoints.remove(endpoint)
        {
            series.forget(families, org, endpoint);
        }
    }

    /// Removes every series of the organization's label.
    pub(super) fn forget(&self, families: &Families, org: &str) {
        for (family, labels, _) in &self.counters {
            // Absent is what is wanted; the error says only that it was so already.
            let _ = families.counters(*family).remove_label_values(&Families::counter_labels(*family, org, *labels));
        }
        for (family, state, _) in &self.gauges {
            let _ = families.gauges(*family).remove_label_values(&Families::gauge_labels(*family, org, state));
        }
        for (endpoint, series) in &self.endpoints {
            series.forget(families, org, endpoint);
        }
    }
}

impl EndpointSeries {
    fn forget(&self, families: &Families, org: &str, endpoint: &str) {
        for (outcome, _) in &self.requests {
            let _ = families.provider_requests.remove_label_values(&[org, endpoint, *outcome]);
        }
        if self.has_up {
            families.remove_up(org, endpoint);
        }
    }
}

/// Gauges of one organization that are not zero, by family and state.
type Counts = BTreeMap<(GaugeFamily, &'static str), i64>;

/// Values of the organizations that share [`OTHER`], so that its gauges hold their sum. Zeros are not kept.
#[derive(Default)]
pub(super) struct RestSums(Mutex<HashMap<String, Counts>>);

impl RestSums {
    pub(super) fn set(&self, gauge: &IntGauge, org: &str, family: GaugeFamily, state: &'static str, count: i64) {
        let mut orgs = locked(&self.0);
        let before = match (orgs.get_mut(org), count) {
            (Some(values), 0) => values.remove(&(family, state)),
            (Some(values), _) => values.insert((family, state), count),
            (None, 0) => None,
            (None, _) => orgs.entry(org.to_owned()).or_default().insert((family, state), count),
        };
        if orgs.get(org).is_some_and(Counts::is_empty) {
            orgs.remove(org);
        }
        gauge.add(count - before.unwrap_or(0));
    }

    pub(super) fn forget(&self, org: &str, gauge: impl Fn(GaugeFamily, &'static str) -> IntGauge) {
        for ((family, state), count) in locked(&self.0).remove(org).unwrap_or_default() {
            gauge(family, state).sub(count);
        }
    }
}

/// Which endpoints behind an [`OTHER`] label are down, by the label of their organization.
#[derive(Default)]
pub(super) struct RestDown(Mutex<HashMap<String, BTreeSet<(String, String)>>>);

impl RestDown {
    pub(super) fn set(&self, gauge: &IntGauge, org_label: &str, endpoint: (&str, &str), up: bool) {
        let mut labels = locked(&self.0);
        let down = labels.entry(org_label.to_owned()).or_default();
        let endpoint = (endpoint.0.to_owned(), endpoint.1.to_owned());
        if up {
            down.remove(&endpoint);
        } else {
            down.insert(endpoint);
        }
        gauge.set(i64::from(down.is_empty()));
        if down.is_empty() {
            labels.remove(org_label);
        }
    }

    pub(super) fn forget(&self, org: &str, endpoint: &str, gauge: impl Fn(&str, &str) -> IntGauge) {
        self.retain(|(o, e)| o != org || e != endpoint, gauge);
    }

    pub(super) fn forget_org(&self, org: &str, gauge: impl Fn(&str, &str) -> IntGauge) {
        self.retain(|(o, _)| o != org, gauge);
    }

    fn retain(&self, keep: impl Fn(&(String, String)) -> bool, gauge: impl Fn(&str, &str) -> IntGauge) {
        locked(&self.0).retain(|org_label, down| {
            let before = down.len();
            down.retain(&keep);
            if down.len() < before {
                gauge(org_label, OTHER).set(i64::from(down.is_empty()));
            }
            !down.is_empty()
        });
    }
}

/// A panic elsewhere leaves numbers, not half-made structures: counting goes on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
