//! The dashboard and the alert rules against a real Prometheus: every query of theirs finds data while a toolgate is at
//! work. A misspelt metric, a label that is not there, a rule that does not load: all of it shows here.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::binary::Binary;
use crate::support::manifests::{median, topology};
use crate::support::node::sign;
use crate::support::prometheus::{Prometheus, dashboards};
use crate::support::provider::{Provider, Reply};
use crate::support::tenant::{Registered, Tenant};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use toolgate::demo::agent_provider::{Fault, FaultPoint, What};

/// Scrapes and evaluations come every second; a query over a rate needs two of them.
const PATIENCE: Duration = Duration::from_secs(120);

/// An organization to which everything happens that a panel or a rule asks for.
struct Load {
    tenant: Tenant,
    shop: Provider,
    shop_endpoint: Registered,
    support: Provider,
    support_endpoint: Registered,
    /// Its breaker is open.
    flaky: Provider,
    /// One of its operations stays uncertain.
    _wishes: ReceiptProvider,
    rounds: usize,
}

impl Load {
    fn begin(toolgate: &Binary) -> Self {
        let shop = Provider::topology(&[topology("order", "command"), topology("stock", "query")]);
        let support = Provider::median(&[median("find", "low"), median("refund", "high")]);
        let flaky = Provider::topology(&[topology("flake", "command")]);
        let wishes = ReceiptProvider::of(vec![mutation("wish.grant", Duration::from_secs(5))]);
        wishes.set_fault_plan(|point: &FaultPoint| match point.what {
            What::Discovery => Fault::None,
            What::Call => Fault::ResetAfter,
            What::Receipt => Fault::PendingAfter,
        });
        let tenant = toolgate.tenant("acme");
        let shop_endpoint = tenant.endpoint("shop", &shop);
        let support_endpoint = tenant.endpoint("support", &support);
        tenant.endpoint("flaky", &flaky);
        tenant.post("/v1/endpoints", &wishes.registration("wishes")).expect(201);
        // One run stays held for a person, one stays pending, and of one it is not known whether it took effect.
        let leave = |body: &Value| tenant.run_request(body).header("Prefer", "wait=0").send().expect(202).json();
        assert_eq!(leave(&json!({ "tool": "refund" }))["status"], "awaiting_approval");
        assert_eq!(leave(&json!({ "tool": "stock" }))["status"], "pending");
        leave(&json!({ "tool": "wish.grant", "args": { "wish": "one" } }));
        Self { tenant, shop, shop_endpoint, support, support_endpoint, flaky, _wishes: wishes, rounds: 0 }
    }

    /// A little of everything.
    fn round(&mut self) {
        self.rounds += 1;
        self.tenant.call("order", &json!({}));
        // One of three fails: its breaker stays closed.
        for _ in 0..2 {
            self.tenant.call("find", &json!({}));
        }
        self.support.next(Reply::text(500, "{}"));
        self.tenant.call("find", &json!({}));
        let run = self.tenant.call("stock", &json!({}));
        let data = json!({ "request_id": run["correlation_id"], "status": "completed", "payload": 1 });
        self.deliver(&data, false);
        self.deliver(&data, true);
        for _ in 0..2 {
            self.tenant.run_request(&json!({ "tool": "order" })).header("X-Caller-Identity", "ann").send();
        }
        self.support.manifest(Reply::text(500, "oops"));
        self.tenant.sync(&self.support_endpoint);
        self.tenant.sync(&self.shop_endpoint);
        for _ in 0..21 {
            self.flaky.next(Reply::text(500, "{}"));
            self.tenant.run(&json!({ "tool": "flake" }));
        }
        assert!(!self.shop.calls().is_empty());
    }

    fn deliver(&self, data: &Value, forged: bool) {
        let body = json!({ "type": "tool.result", "timestamp": "2026-01-01T00:00:00Z", "data": data }).to_string();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let now = i64::try_from(since.as_secs()).expect("it is before the end of time");
        let secret = self.shop_endpoint.body["callback"]["secret"].as_str().expect("a secret");
        let id = format!("m-{}", self.rounds);
        let signature = if forged { "v1,AAAA".to_owned() } else { sign(secret, &id, now, body.as_bytes()) };
        let path = format!("/callbacks/{}", self.shop_endpoint.id);
        let request = self.tenant.client.request("POST", &path).text("application/json", body.as_bytes());
        let request = request.header("webhook-id", id).header("webhook-timestamp", now.to_string());
        let answer = request.header("webhook-signature", signature).send();
        assert_eq!(answer.status, if forged { 401 } else { 202 }, "{}", answer.text());
    }
}

/// Every query of the dashboard: those of its panels and those its variables take their values from.
fn dashboard_queries() -> BTreeSet<String> {
    fn collect(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("expr").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| collect(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let dashboard: Value = serde_json::from_str(&dashboards("toolgate.json")).expect("the dashboard is JSON");
    let mut found = BTreeSet::new();
    collect(&dashboard["panels"], &mut found);
    assert!(found.len() > 25, "the panels were not found: {found:?}");
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(values) = variable["definition"].as_str() {
            let inner = values.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(','));
            let (metric, label) = inner.unwrap_or_else(|| panic!("an unknown variable: {values}"));
            found.insert(format!("count by ({}) ({metric})", label.trim().trim_end_matches(')')));
        }
    }
    let filled = |query: &String| {
        let query = query.replace("$org", "acme").replace("$endpoint", "flaky");
        let query = query.replace("$__rate_interval", "1m").replace("$__interval", "1m").replace("$__range", "5m");
        assert!(!query.contains('$'), "an unknown variable: {query}");
        query
    };
    found.iter().map(filled).collect()
}

/// A rule's query without the comparison it ends with: that one finds data only when something is wrong.
fn without_comparison(query: &str) -> String {
    let query = query.trim();
    let number = query.rsplit(' ').next().filter(|word| word.parse::<f64>().is_ok());
    let Some(number) = number else { return query.to_owned() };
    let left = query[..query.len() - number.len()].trim_end();
    let operators = ["==", "!=", ">=", "<=", ">", "<"];
    let compared = operators.iter().find_map(|operator| left.strip_suffix(operator));
    compared.unwrap_or_else(|| panic!("no comparison with a number: {query}")).trim_end().to_owned()
}

#[test]
fn every_panel_and_every_rule_finds_data() {
    let folder = TempDir::new().expect("a temporary folder");
    let settings = [
        ("OPERATOR__TOKEN", crate::support::binary::OPERATOR_TOKEN),
        ("LIMITS__CALLER_PER_SECOND", "1"),
        ("LIMITS__CALLER_PER_SECOND_BURST", "1"),
    ];
    let toolgate = Binary::of(Binary::command(&folder, &settings));
    let mut load = Load::begin(&toolgate);
    load.round();
    let prometheus = Prometheus::scraping(toolgate.metrics_url());
    let rules = prometheus.rules();
    assert!(rules.len() >= 10, "the rules were not loaded: {rules:?}; {}", prometheus.log());
    let of_rules = rules.iter().map(|rule| without_comparison(rule["query"].as_str().expect("a query")));
    let mut missing: BTreeSet<String> = dashboard_queries().into_iter().chain(of_rules).collect();
    let queries = missing.len();
    let deadline = Instant::now() + PATIENCE;
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "{} of {queries} queries find nothing: {missing:#?}", missing.len());
        load.round();
        missing.retain(|query| prometheus.query(query).is_empty());
    }
    // Nothing was dropped: the queue of records holds far more than this load. The counter is there all the same.
    let dropped = prometheus.query("toolgate_records_dropped_total");
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0]["value"][1], "0");
    for rule in prometheus.rules() {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    // What is wrong under this load is seen as wrong, and what is not is not.
    let firing = |query: &str| !prometheus.query(query).is_empty();
    assert!(firing("toolgate_endpoint_up{endpoint=\"support\"} == 0"));
    assert!(firing(
        "sum by (org, endpoint) (rate(toolgate_provider_requests_total{outcome=\"breaker_open\"}[5m])) > 0"
    ));
    assert!(firing("sum by (org) (toolgate_approvals{state=\"open\"}) > 0"));
    assert!(firing("sum by (org) (toolgate_operations{state=\"uncertain\"}) > 0"));
    assert!(firing("toolgate:runs_failed:ratio_rate5m{org=\"acme\"} > 0.1"));
    assert!(!firing("up{job=\"toolgate\"} == 0"));
}
