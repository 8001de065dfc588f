//! The provider over real HTTP: what it checks, that one operation has one effect, and how each fault looks outside.

use super::{AgentProvider, AgentProviderOptions, Fault, FaultPoint, ReceiptState, What};
use crate::adapters::transport::{SimpleAnswer, SimpleClient, SimpleError, SimpleMethod};
use crate::domain::canonical;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uuid::Uuid;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const VERSION: &str = "2026-09-01";
const MOMENT: Duration = Duration::from_millis(60);

fn provider() -> AgentProvider {
    AgentProvider::start(AgentProviderOptions::default()).expect("a port of loopback is free")
}

fn client() -> SimpleClient {
    SimpleClient::new(None, Duration::from_secs(10)).expect("a client")
}

fn fingerprint(tool: &str, version: &str, body: &Value) -> String {
    let fingerprinted = json!({
        "arguments": body["arguments"],
        "contract_version": version,
        "subject": body["context"]["subject"]["id"],
        "tool": tool,
        "workspace": body["context"]["workspace"],
    });
    format!("sha256:{}", canonical::sha256_hex(&fingerprinted))
}

/// One request, good unless a test changes it.
#[derive(Clone)]
struct Request {
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Value>,
}

impl Request {
    fn new(path: impl Into<String>, body: Option<Value>) -> Self {
        let request = Self { path: path.into(), headers: Vec::new(), body };
        let bearer = format!("Bearer {}", AgentProviderOptions::default().bearer);
        request.with("authorization", &bearer).with("contract-version", VERSION).with("trace-id", TRACE)
    }

    fn discovery() -> Self {
        Self::new("/.well-known/agent-provider", None)
    }

    fn read(tool: &str, arguments: &Value) -> Self {
        let body = json!({
            "arguments": arguments,
            "context": {
                "workspace": "acme",
                "conversation": "c-1",
                "turn": null,
                "subject": { "id": "whatsapp:+201000000000", "channel": "whatsapp", "assurance": "channel_asserted" },
                "locale": "en",
                "timezone": "UTC",
                "now": "2026-11-30T12:00:00.000Z",
            },
        });
        Self::new(format!("/tools/{tool}"), Some(body))
    }

    fn mutation(tool: &str, arguments: &Value, operation_id: &str) -> Self {
        let request = Self::read(tool, arguments).with("operation-id", operation_id);
        request.fingerprinted()
    }

    fn refund(amount: &str, operation_id: &str) -> Self {
        Self::mutation("refund.issue", &json!({ "order": "ORD-1043", "amount": amount }), operation_id)
    }

    fn receipt(of: &Self) -> Self {
        let (id, fingerprint) = (of.header("operation-id"), of.header("request-fingerprint"));
        Self::new(format!("/receipts/{id}"), None).with("request-fingerprint", &fingerprint)
    }

    fn header(&self, name: &str) -> String {
        self.headers.iter().find(|(known, _)| known == name).expect("the header is there").1.clone()
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    fn body(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(self.body.as_mut().expect("a body"));
        self
    }

    /// With the fingerprint that belongs to it as it is now.
    fn fingerprinted(self) -> Self {
        let tool = self.path.trim_start_matches("/tools/").to_owned();
        let value = fingerprint(&tool, &self.header("contract-version"), self.body.as_ref().expect("a body"));
        self.with("request-fingerprint", &value)
    }

    async fn send(&self, provider: &AgentProvider) -> Result<SimpleAnswer, SimpleError> {
        let method = if self.body.is_some() { SimpleMethod::Post } else { SimpleMethod::Get };
        let body = self.body.as_ref().map(|body| body.to_string().into());
        client().call(method, &format!("{}{}", provider.url(), self.path), &self.headers, body).await
    }

    async fn ask(&self, provider: &AgentProvider) -> (u16, Value) {
        let answer = self.send(provider).await.expect("an answer");
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }
}

fn operation() -> String {
    Uuid::now_v7().to_string()
}

fn action(envelope: &Value) -> Value {
    let evidence = envelope["evidence"].as_array().expect("evidence");
    let actions: Vec<&Value> = evidence.iter().filter(|item| item["kind"] == "action").collect();
    assert_eq!(actions.len(), 1, "exactly one action: {envelope}");
    actions[0].clone()
}

#[tokio::test]
async fn discovery_is_conditional_and_wants_the_token() {
    let provider = provider();
    let answer = Request::discovery().send(&provider).await.expect("an answer");
    let manifest: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(manifest["protocol_version"], "1");
    let etag = answer.headers.iter().find(|(name, _)| name == "etag").expect("an ETag").1.clone();
    let again = Request::discovery().with("if-none-match", &format!("\"other\", {etag}"));
    assert_eq!(again.ask(&provider).await, (304, Value::Null));
    provider.set_contract_version("2026-10-01");
    let (status, manifest) = again.ask(&provider).await;
    assert_eq!((status, &manifest["contract_version"]), (200, &json!("2026-10-01")));
    provider.set_manifest(Some("{}".to_owned()));
    assert_eq!(Request::discovery().ask(&provider).await, (200, json!({})));
    for bearer in ["Bearer wrong", "demo-agent-provider-token"] {
        assert_eq!(Request::discovery().with("authorization", bearer).ask(&provider).await.0, 401);
    }
    assert_eq!(Request::discovery().without("authorization").ask(&provider).await.0, 401);
}

#[tokio::test]
async fn every_declared_kind_of_evidence_is_there() {
    let provider = provider();
    let (_, manifest) = Request::discovery().ask(&provider).await;
    let arguments = [
        ("order.get", json!({ "order": "ORD-1043" })),
        ("orders.search", json!({ "customer": "bruno", "limit": 2 })),
        ("order.cancel", json!({ "order": "ORD-1043" })),
        ("refund.issue", json!({ "order": "ORD-1043", "amount": "12.50" })),
    ];
    for tool in manifest["tools"].as_array().expect("tools") {
        let name = tool["name"].as_str().expect("a name");
        let (_, arguments) = arguments.iter().find(|(known, _)| *known == name).expect("arguments for each tool");
        let request = match tool["mutating"].as_bool() {
            Some(true) => Request::mutation(name, arguments, &operation()),
            Some(false) | None => Request::read(name, arguments),
        };
        let (status, envelope) = request.ask(&provider).await;
        assert_eq!((status, &envelope["status"]), (200, &json!("ok")), "{name}: {envelope}");
        let evidence = envelope["evidence"].as_array().expect("evidence");
        let ids: Vec<&str> = evidence.iter().map(|item| item["id"].as_str().expect("an id")).collect();
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)), "{name}: an id twice");
        let mut kinds: Vec<&str> = evidence.iter().map(|item| item["kind"].as_str().expect("a kind")).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut declared: Vec<&str> =
            tool["produces_evidence"].as_array().expect("kinds").iter().filter_map(Value::as_str).collect();
        declared.sort_unstable();
        assert_eq!(kinds, declared, "{name}");
        for member in ["of", "reference"] {
            let pointers = evidence.iter().filter_map(|item| item[member].as_str());
            assert!(pointers.into_iter().all(|target| ids.contains(&target)), "{name}: {member} points nowhere");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_and_what_will_not_be_done_is_said() {
    let provider = provider();
    let unknown = json!({ "order": "ORD-0001" });
    let (status, envelope) = Request::read("order.get", &unknown).ask(&provider).await;
    assert_eq!((status, &envelope["status"]), (200, &json!("not_found")));
    let shipped = Request::mutation("order.cancel", &json!({ "order": "ORD-1042" }), &operation());
    let (status, envelope) = shipped.ask(&provider).await;
    assert_eq!((status, &envelope["status"]), (200, &json!("rejected")));
    assert_eq!(action(&envelope)["outcome"], "rejected");
    assert_eq!((provider.effects_total(), provider.receipts()[0].state), (0, ReceiptState::Rejected));
    assert_eq!(Request::read("order.lose", &unknown).ask(&provider).await.0, 404);
    assert_eq!(Request::new("/elsewhere", None).ask(&provider).await.0, 404);
}

#[tokio::test]
async fn a_call_that_breaks_the_protocol_is_refused() {
    let provider = provider();
    let read = Request::read("order.get", &json!({ "order": "ORD-1043" }));
    let write = Request::refund("1.00", &operation());
    let refused = [
        (401, read.clone().without("authorization")),
        (400, read.clone().without("trace-id")),
        (400, read.clone().with("trace-id", &TRACE.to_uppercase())),
        (400, read.clone().with("trace-id", "4bf9")),
        (400, read.clone().without("contract-version")),
        (400, read.clone().with("contract-version", "2020-01-01")),
        (400, read.clone().with("operation-id", &operation())),
        (400, read.clone().with("request-fingerprint", &format!("sha256:{}", "0".repeat(64)))),
        (415, read.clone().with("content-type", "text/plain")),
        (400, read.clone().body(|body| body["arguments"] = json!([]))),
        (400, read.clone().body(|body| body["more"] = json!(1))),
        (400, read.clone().body(|body| body["context"]["turn"] = json!(1))),
        (400, read.clone().body(|body| body["context"]["now"] = json!("2026-11-30T12:00:00Z"))),
        (400, read.clone().body(|body| body["context"]["subject"]["channel"] = json!("agent"))),
        (400, read.clone().body(|body| body["context"]["subject"]["assurance"] = json!("verified"))),
        (400, read.clone().body(|body| body["context"]["workspace"] = json!(""))),
        (400, read.body(|body| drop(body["context"].as_object_mut().expect("members").remove("locale")))),
        (400, write.clone().without("operation-id")),
        (400, write.clone().without("request-fingerprint")),
        (400, write.clone().with("operation-id", "1")),
        (400, write.clone().with("operation-id", "936da01f-9abd-4d9d-80c7-02af85c822a8")),
        (400, write.clone().with("request-fingerprint", &format!("sha256:{}", "0".repeat(64)))),
        (400, write.clone().body(|body| body["arguments"]["amount"] = json!("2.00"))),
        (400, write.clone().body(|body| body["context"]["workspace"] = json!("other"))),
        (401, Request::receipt(&write).without("authorization")),
        (400, Request::receipt(&write).without("request-fingerprint")),
        (400, Request::receipt(&write).without("trace-id")),
        (400, Request::receipt(&write).without("contract-version")),
    ];
    for (expected, request) in refused {
        let (status, body) = request.ask(&provider).await;
        assert_eq!(status, expected, "{:?} {:?}: {body}", request.headers, request.body);
    }
    assert_eq!((provider.effects_total(), provider.receipts().len()), (0, 0), "nothing was done");
    assert_eq!(write.ask(&provider).await.0, 200, "as it stands it is good");
}

#[tokio::test]
async fn an_operation_has_one_effect_however_often_it_is_sent() {
    let provider = provider();
    let id = operation();
    let refund = Request::refund("10.00", &id);
    assert_eq!(Request::receipt(&refund).ask(&provider).await.0, 404, "it has not arrived yet");
    let (_, first) = refund.ask(&provider).await;
    let mut answers = Vec::new();
    for _ in 0..8 {
        let (refund, url) = (refund.clone(), provider.url().to_owned());
        answers.push(tokio::spawn(async move {
            let body = refund.body.map(|body| body.to_string().into());
            client().call(SimpleMethod::Post, &format!("{url}{}", refund.path), &refund.headers, body).await
        }));
    }
    for answer in answers {
        let answer = answer.await.expect("the task ends").expect("an answer");
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).expect("JSON"), first);
    }
    assert_eq!((provider.effects(&id), provider.effects_total(), provider.receipts().len()), (1, 1, 1));

    let (status, receipt) = Request::receipt(&refund).ask(&provider).await;
    assert_eq!((status, &receipt["state"], &receipt["response"]), (200, &json!("applied"), &first));
    assert_eq!((&receipt["tool"], &receipt["action"]), (&json!("refund.issue"), &json!("refund_issued")));
    assert_eq!(receipt["operation_id"], action(&first)["operation_id"]);

    let changed = refund.clone().body(|body| body["arguments"]["amount"] = json!("11.00")).fingerprinted();
    assert_eq!(changed.ask(&provider).await.0, 409, "one id, two requests");
    assert_eq!(Request::receipt(&changed).ask(&provider).await.0, 409);
    assert_eq!(provider.effects_log().len(), 1);
    assert_eq!(provider.effects_log()[0].arguments["amount"], "10.00");
}

#[tokio::test]
async fn a_receipt_expires_and_its_operation_is_not_done_again() {
    let provider = provider();
    let refund = Request::refund("10.00", &operation());
    assert_eq!(refund.ask(&provider).await.0, 200);
    provider.advance(AgentProviderOptions::default().receipt_retention);
    assert_eq!(Request::receipt(&refund).ask(&provider).await.0, 410);
    assert_eq!(refund.ask(&provider).await.0, 410);
    assert_eq!(provider.effects_total(), 1);
}

#[tokio::test]
async fn a_call_under_a_former_contract_version_is_still_served() {
    let provider = provider();
    let former = Request::refund("10.00", &operation());
    provider.set_contract_version("2026-10-01");
    let (status, envelope) = former.ask(&provider).await;
    assert_eq!((status, &envelope["contract_version"]), (200, &json!(VERSION)));
    let new = Request::refund("10.00", &operation()).with("contract-version", "2026-10-01").fingerprinted();
    assert_eq!(new.ask(&provider).await.1["contract_version"], "2026-10-01");
}

#[tokio::test]
async fn it_comes_back_at_its_address_and_knows_what_it_did() {
    let provider = provider();
    let refund = Request::refund("10.00", &operation());
    assert_eq!(refund.ask(&provider).await.0, 200);
    provider.stop().await;
    assert!(matches!(refund.send(&provider).await, Err(SimpleError::Connect { .. })), "nobody listens");
    provider.restart().expect("its port is still free");
    assert_eq!(Request::receipt(&refund).ask(&provider).await.0, 200);
}

/// Whether the connection ended by a reset.
fn is_reset(error: &SimpleError) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[tokio::test]
async fn a_fault_strikes_before_or_after_the_effect() {
    let silent = |answer: &Result<SimpleAnswer, SimpleError>| match answer {
        Err(error @ SimpleError::Exchange { .. }) => !is_reset(error),
        Ok(_) | Err(_) => false,
    };
    let reset = |answer: &Result<SimpleAnswer, SimpleError>| answer.as_ref().is_err_and(is_reset);
    let is = |wanted: u16, word: &'static str| {
        move |answer: &Result<SimpleAnswer, SimpleError>| {
            answer
                .as_ref()
                .is_ok_and(|answer| answer.status == wanted && String::from_utf8_lossy(&answer.body).contains(word))
        }
    };
    type Looks = Box<dyn Fn(&Result<SimpleAnswer, SimpleError>) -> bool>;
    let faults: Vec<(Fault, usize, Looks)> = vec![
        (Fault::None, 1, Box::new(is(200, "applied"))),
        (Fault::ResetBefore, 0, Box::new(reset)),
        (Fault::ResetAfter, 1, Box::new(reset)),
        (Fault::StallBefore(MOMENT), 0, Box::new(silent)),
        (Fault::StallAfter(MOMENT), 1, Box::new(silent)),
        (Fault::Late(MOMENT), 1, Box::new(is(200, "applied"))),
        (Fault::StatusBefore(503), 0, Box::new(is(503, "out_of_order"))),
        (Fault::StatusAfter(502), 1, Box::new(is(502, "out_of_order"))),
        (Fault::GarbageAfter, 1, Box::new(is(200, "<html>"))),
        (Fault::BrokenEvidenceAfter, 1, Box::new(is(200, "applied"))),
        (Fault::PendingAfter, 1, Box::new(is(200, "pending"))),
        (Fault::PartialAfter, 1, Box::new(silent)),
    ];
    for (fault, effects, looks) in faults {
        let provider = provider();
        provider.set_fault_plan(move |point| if point.what == What::Call { fault } else { Fault::None });
        let id = operation();
        let refund = Request::refund("10.00", &id);
        let began = Instant::now();
        let answer = refund.send(&provider).await;
        assert!(looks(&answer), "{fault:?}: {answer:?}");
        assert_eq!(provider.effects_total(), effects, "{fault:?}");
        if matches!(fault, Fault::StallBefore(_) | Fault::StallAfter(_) | Fault::Late(_)) {
            assert!(began.elapsed() >= MOMENT, "{fault:?}");
        }
        // Whatever happened, the receipt tells, and sending it again changes nothing but for the first effect.
        let (status, receipt) = Request::receipt(&refund).ask(&provider).await;
        assert_eq!(status, if effects == 1 { 200 } else { 404 }, "{fault:?}");
        provider.clear_fault_plan();
        let (_, healed) = refund.ask(&provider).await;
        assert_eq!((&action(&healed)["operation_id"], provider.effects(&id)), (&json!(id), 1), "{fault:?}");
        assert!(effects == 0 || receipt["response"] == healed, "{fault:?}");
    }
}

#[tokio::test]
async fn broken_evidence_is_broken() {
    let provider = provider();
    provider.set_fault_plan(|_| Fault::BrokenEvidenceAfter);
    let id = operation();
    let refund = Request::refund("10.00", &id);
    assert_ne!(action(&refund.ask(&provider).await.1)["operation_id"], json!(id));
    assert_ne!(action(&Request::receipt(&refund).ask(&provider).await.1["response"])["operation_id"], json!(id));
    for order in ["ORD-1043", "ORD-0001"] {
        let (_, envelope) = Request::read("order.get", &json!({ "order": order })).ask(&provider).await;
        let ids: Vec<&Value> = envelope["evidence"].as_array().expect("evidence").iter().map(|e| &e["id"]).collect();
        assert_eq!(ids.iter().filter(|id| **id == ids[ids.len() - 1]).count(), 2, "one id twice: {ids:?}");
    }
}

#[tokio::test]
async fn a_receipt_may_be_pending_first() {
    let provider = provider();
    let only_first = |point: &FaultPoint| point.what == What::Receipt && point.nth == 1;
    provider.set_fault_plan(move |point| if only_first(point) { Fault::PendingAfter } else { Fault::None });
    let refund = Request::refund("10.00", &operation());
    assert_eq!(refund.ask(&provider).await.0, 200);
    let (status, receipt) = Request::receipt(&refund).ask(&provider).await;
    assert_eq!((status, &receipt["state"], &receipt["response"]), (200, &json!("pending"), &Value::Null));
    assert_eq!(Request::receipt(&refund).ask(&provider).await.1["state"], "applied");
}

#[tokio::test]
async fn a_plan_sees_what_how_often_and_which_operation() {
    let provider = provider();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let notes = std::sync::Arc::clone(&seen);
    provider.set_fault_plan(move |point| {
        notes.lock().expect("no panic").push((point.what, point.operation_id.clone(), point.nth));
        Fault::None
    });
    let id = operation();
    let refund = Request::refund("10.00", &id);
    for request in [&Request::discovery(), &refund, &refund, &Request::receipt(&refund)] {
        request.ask(&provider).await;
    }
    let expected = vec![
        (What::Discovery, None, 1),
        (What::Call, Some(id.clone()), 1),
        (What::Call, Some(id.clone()), 2),
        (What::Receipt, Some(id), 1),
    ];
    assert_eq!(*seen.lock().expect("no panic"), expected);
}

#[tokio::test]
async fn a_late_call_whose_sender_has_given_up_still_has_its_one_effect() {
    let provider = provider();
    provider.set_fault_plan(|point| if point.nth == 1 { Fault::Late(MOMENT) } else { Fault::None });
    let id = operation();
    let refund = Request::refund("10.00", &id);
    let impatient = tokio::time::timeout(MOMENT / 6, refund.send(&provider)).await;
    assert!(impatient.is_err(), "it was not answered in time");
    assert_eq!(refund.ask(&provider).await.0, 200, "sent again, and overtakes");
    tokio::time::sleep(MOMENT * 2).await;
    assert_eq!((provider.effects(&id), provider.effects_total()), (1, 1));
}

#[tokio::test]
async fn a_connection_serves_more_than_one_request() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let provider = provider();
    let mut stream = tokio::net::TcpStream::connect(provider.address).await.expect("a connection");
    // Two requests in one piece, then a third that cannot be read.
    let get = "GET /.well-known/agent-provider HTTP/1.1\r\nhost: h\r\nauthorization: Bearer demo-agent-provider-token\r\n\r\n";
    stream.write_all(format!("{get}{get}nonsense\r\n\r\n").as_bytes()).await.expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("it ends the connection");
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{text}");
    assert_eq!(text.matches("HTTP/1.1 400 Refused\r\n").count(), 1, "{text}");
}
