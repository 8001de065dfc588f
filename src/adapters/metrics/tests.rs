use super::*;
use std::collections::BTreeSet;

/// The names of the wire contract, section 15, with what `toolgate_records_dropped_total` adds.
const NAMES: [(&str, &[&str]); 16] = [
    ("toolgate_runs_total", &["org", "dialect", "kind", "status"]),
    ("toolgate_run_duration_seconds", &["dialect", "phase"]),
    ("toolgate_provider_requests_total", &["org", "endpoint", "outcome"]),
    ("toolgate_rate_limited_total", &["org", "scope"]),
    ("toolgate_sync_total", &["org", "outcome"]),
    ("toolgate_endpoint_up", &["org", "endpoint"]),
    ("toolgate_pending_runs", &["org"]),
    ("toolgate_callbacks_total", &["org", "outcome"]),
    ("toolgate_approvals", &["org", "state"]),
    ("toolgate_operations", &["org", "state"]),
    ("toolgate_org_actors", &[]),
    ("toolgate_mailbox_depth", &[]),
    ("toolgate_store_seconds", &["op"]),
    ("toolgate_records_dropped_total", &[]),
    ("toolgate_build_info", &["version"]),
    ("process_resident_memory_bytes", &[]),
];

fn one_event_each(metrics: &PrometheusMetrics, org: &str, endpoint: &str) {
    metrics.run(org, "topology", "query", "completed");
    let times = RunTimes { gateway: Duration::from_micros(80), provider: Duration::from_millis(12) };
    metrics.run_times("topology", times);
    metrics.provider_request(org, endpoint, "ok");
    metrics.rate_limited(org, "tool");
    metrics.sync(org, "applied");
    metrics.endpoint_up(org, endpoint, true);
    metrics.pending_runs(org, 3);
    metrics.callback(org, "matched");
    metrics.approvals(org, "open", 1);
    metrics.operations(org, "uncertain", 1);
    metrics.org_actors(1);
    metrics.mailbox_depth(2);
    metrics.store("insert_run", Duration::from_millis(1));
    metrics.records_dropped(1);
}

/// The series of an exposition: name, label names and the whole line.
fn series(text: &str) -> Vec<(String, BTreeSet<String>, String)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(['{', ' ']).expect("a series has a name and a value");
            let labels = rest.split_once('}').filter(|_| line.contains('{')).map_or("", |(labels, _)| labels);
            let names = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            (name.to_owned(), names.collect(), line.to_owned())
        })
        .collect()
}

/// The value of the series that is written exactly so.
fn value(metrics: &PrometheusMetrics, name_and_labels: &str) -> Option<String> {
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(name_and_labels)?.strip_prefix(' '))?;
    Some(line.to_owned())
}

#[test]
fn every_name_of_the_contract_is_exposed_with_exactly_its_labels() {
    let metrics = PrometheusMetrics::new(10, 10);
    one_event_each(&metrics, "acme", "weather");
    let text = metrics.render();
    let series = series(&text);
    for (name, labels) in NAMES {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} is not announced");
        let of_this = |found: &str| {
            found.strip_prefix(name).is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        let wanted: BTreeSet<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut seen = false;
        for (found, mut names, line) in series.iter().filter(|(found, ..)| of_this(found)).cloned() {
            seen = true;
            names.remove("le");
            assert_eq!(names, wanted, "{line}");
            assert!(!found.is_empty());
        }
        assert!(seen, "{name}");
    }
    let known = |name: &str| name.starts_with("process_") || NAMES.iter().any(|(known, _)| name.starts_with(known));
    for (name, _, line) in &series {
        assert!(known(name), "not in the contract: {line}");
    }
}

#[test]
fn names_are_announced_before_their_first_event() {
    let text = PrometheusMetrics::new(10, 10).render();
    for (name, _) in NAMES {
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
    }
}

#[test]
fn the_phases_of_a_run_are_measured_apart_and_together() {
    let metrics = PrometheusMetrics::new(10, 10);
    one_event_each(&metrics, "acme", "weather");
    let bucket = |phase: &str, le: &str| {
        let name = "toolgate_run_duration_seconds_bucket";
        value(&metrics, &format!("{name}{{dialect=\"topology\",phase=\"{phase}\",le=\"{le}\"}}"))
    };
    assert_eq!(bucket("gateway", "0.00005").as_deref(), Some("0"));
    assert_eq!(bucket("gateway", "0.0001").as_deref(), Some("1"));
    assert_eq!(bucket("provider", "0.01").as_deref(), Some("0"));
    assert_eq!(bucket("provider", "0.025").as_deref(), Some("1"));
    assert_eq!(bucket("total", "60").as_deref(), Some("1"));
}

#[test]
fn organizations_beyond_the_bound_are_counted_together() {
    let metrics = PrometheusMetrics::new(2, 10);
    for org in ["a", "b", "c", "d", "other"] {
        one_event_each(&metrics, org, "weather");
        one_event_each(&metrics, org, "weather");
    }
    let text = metrics.render();
    for org in ["c", "d"] {
        assert!(!text.contains(&format!("org=\"{org}\"")), "{text}");
    }
    let runs = |org: &str| {
        value(
            &metrics,
            &format!("toolgate_runs_total{{dialect=\"topology\",kind=\"query\",org=\"{org}\",status=\"completed\"}}"),
        )
    };
    assert_eq!((runs("a"), runs("b"), runs("other")), (Some("2".into()), Some("2".into()), Some("6".into())));
    let requests = "toolgate_provider_requests_total{endpoint=\"other\",org=\"other\",outcome=\"ok\"}";
    assert_eq!(value(&metrics, requests).as_deref(), Some("6"));
}

#[test]
fn a_gauge_of_the_rest_is_their_sum() {
    let metrics = PrometheusMetrics::new(1, 10);
    let pending = |org: &str| value(&metrics, &format!("toolgate_pending_runs{{org=\"{org}\"}}"));
    metrics.pending_runs("a", 7);
    metrics.pending_runs("b", 2);
    metrics.pending_runs("c", 3);
    metrics.pending_runs("b", 1);
    assert_eq!((pending("a").as_deref(), pending("other").as_deref()), (Some("7"), Some("4")));
    metrics.pending_runs("b", 0);
    metrics.forget_org("c");
    assert_eq!(pending("other").as_deref(), Some("0"));
}

#[test]
fn an_organization_that_gets_a_label_leaves_the_rest() {
    let metrics = PrometheusMetrics::new(1, 10);
    metrics.pending_runs("a", 1);
    metrics.pending_runs("b", 2);
    metrics.endpoint_up("b", "weather", false);
    metrics.forget_org("a");
    metrics.pending_runs("b", 5);
    assert_eq!(value(&metrics, "toolgate_pending_runs{org=\"b\"}").as_deref(), Some("5"));
    assert_eq!(value(&metrics, "toolgate_pending_runs{org=\"other\"}").as_deref(), Some("0"));
    assert_eq!(value(&metrics, "toolgate_endpoint_up{endpoint=\"other\",org=\"other\"}").as_deref(), Some("1"));
}

#[test]
fn the_rest_is_up_while_none_of_it_is_down() {
    let metrics = PrometheusMetrics::new(1, 1);
    let up = |org: &str, endpoint: &str| {
        value(&metrics, &format!("toolgate_endpoint_up{{endpoint=\"{endpoint}\",org=\"{org}\"}}"))
    };
    metrics.endpoint_up("a", "first", true);
    metrics.endpoint_up("a", "second", false);
    metrics.endpoint_up("a", "third", true);
    assert_eq!((up("a", "first").as_deref(), up("a", "other").as_deref()), (Some("1"), Some("0")));
    assert_eq!(up("a", "second"), None);
    metrics.endpoint_up("b", "weather", false);
    metrics.endpoint_up("c", "weather", true);
    assert_eq!(up("other", "other").as_deref(), Some("0"));
    metrics.forget_endpoint("b", "weather");
    metrics.forget_endpoint("a", "second");
    assert_eq!((up("other", "other").as_deref(), up("a", "other").as_deref()), (Some("1"), Some("1")));
}

#[test]
fn what_is_forgotten_leaves_no_series() {
    let metrics = PrometheusMetrics::new(2, 10);
    one_event_each(&metrics, "acme", "weather");
    one_event_each(&metrics, "acme", "mail");
    one_event_each(&metrics, "beta", "weather");
    metrics.forget_endpoint("acme", "weather");
    let text = metrics.render();
    assert!(!text.contains("endpoint=\"weather\",org=\"acme\"") && text.contains("endpoint=\"mail\",org=\"acme\""));
    metrics.forget_org("acme");
    let text = metrics.render();
    assert!(!text.contains("acme") && text.contains("endpoint=\"weather\",org=\"beta\""), "{text}");
    one_event_each(&metrics, "gamma", "weather");
    assert!(metrics.render().contains("org=\"gamma\""), "the place of a forgotten organization is free again");
}

#[test]
fn a_forgotten_label_starts_from_nothing() {
    let metrics = PrometheusMetrics::new(2, 10);
    one_event_each(&metrics, "acme", "weather");
    metrics.forget_org("acme");
    one_event_each(&metrics, "acme", "weather");
    let requests = "toolgate_provider_requests_total{endpoint=\"weather\",org=\"acme\",outcome=\"ok\"}";
    assert_eq!(value(&metrics, requests).as_deref(), Some("1"));
}

#[test]
fn a_hundred_threads_count_every_run_and_keep_the_bound() {
    let metrics = PrometheusMetrics::new(3, 10);
    std::thread::scope(|scope| {
        for thread in 0..100 {
            let metrics = &metrics;
            scope.spawn(move || {
                let org = format!("org-{}", thread % 10);
                for _ in 0..20 {
                    metrics.run(&org, "median", "query", "completed");
                    metrics.pending_runs(&org, 1);
                }
            });
        }
    });
    let text = metrics.render();
    let runs = text.lines().filter(|line| line.starts_with("toolgate_runs_total{"));
    let counts: Vec<u64> = runs.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (4, 2000), "{text}");
    assert_eq!(value(&metrics, "toolgate_pending_runs{org=\"other\"}").as_deref(), Some("7"));
}

#[test]
fn dashboards_and_rules_ask_only_for_what_is_exposed() {
    let texts = [include_str!("../../../dashboards/toolgate.json"), include_str!("../../../dashboards/alerts.yml")];
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut asked = 0;
    for text in texts {
        for found in text.split(|c| !word(c)).filter(|found| found.starts_with("toolgate_")) {
            asked += 1;
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| found.strip_suffix(end)).unwrap_or(found);
            assert!(NAMES.iter().any(|(known, _)| *known == name), "{found} is no metric");
        }
    }
    assert!(asked > 30, "the check found only {asked} names");
}
