//! Good providers pass every rule; one that breaks a rule fails at that rule's line and at no other.

mod agent_provider;
mod mcp;
mod median;
mod topology;

use super::{CallbackOptions, CheckOptions, Line, Mark, SampleCall, run};
use crate::adapters::transport::{SimpleClient, SimpleMethod};
use crate::demo::local_server::{LocalServer, RecordedRequest, Recorder};
use crate::domain::endpoint::EndpointAuth;
use crate::domain::json::JsonText;
use crate::domain::secret::Secret;
use crate::domain::tool::Dialect;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use std::sync::Arc;
use std::time::Duration;

/// Headers that a twisted provider hands on, both ways.
const HANDED_ON: [&str; 9] = [
    "authorization",
    "contract-version",
    "etag",
    "if-none-match",
    "median-signature",
    "operation-id",
    "request-fingerprint",
    "trace-id",
    "x-auth",
];

fn options(dialect: Dialect, base_url: &str, auth: EndpointAuth) -> CheckOptions {
    CheckOptions {
        dialect,
        base_url: base_url.to_owned(),
        auth,
        call: None,
        allow_mutations: false,
        callback: None,
        timeout: Duration::from_secs(10),
    }
}

fn sample(tool: &str, arguments: &str) -> Option<SampleCall> {
    let arguments = JsonText::parse(arguments).expect("JSON");
    Some(SampleCall { tool: tool.to_owned(), arguments, caller: Some("web:7".to_owned()) })
}

async fn lines_of(options: &CheckOptions) -> Vec<Line> {
    let mut lines = Vec::new();
    let summary = run(options, &mut |line| lines.push(line.clone())).await.expect("something can be checked");
    let count = |mark: Mark| lines.iter().filter(|line| line.mark == mark).count();
    assert_eq!((summary.ok, summary.failed, summary.skipped), (count(Mark::Ok), count(Mark::Fail), count(Mark::Skip)));
    lines
}

fn rules(lines: &[Line], mark: Mark) -> Vec<&'static str> {
    lines.iter().filter(|line| line.mark == mark).map(|line| line.rule).collect()
}

fn in_a_system<T>(test: impl Future<Output = T>) -> T {
    actix::System::new().block_on(test)
}

type ChangeRequest = Box<dyn Fn(&mut RecordedRequest) + Send + Sync>;
type ChangeAnswer = Box<dyn Fn(&RecordedRequest, &mut u16, &mut String) + Send + Sync>;

/// What is wrong with a provider: a good one behind it is asked another question, or its answer is changed.
struct Twist {
    request: ChangeRequest,
    answer: ChangeAnswer,
}

impl Twist {
    fn request(change: impl Fn(&mut RecordedRequest) + Send + Sync + 'static) -> Self {
        Self { request: Box::new(change), answer: Box::new(|_, _, _| {}) }
    }

    fn answer(change: impl Fn(&RecordedRequest, &mut u16, &mut String) + Send + Sync + 'static) -> Self {
        Self { request: Box::new(|_| {}), answer: Box::new(change) }
    }
}

struct Twisted {
    good_url: String,
    client: SimpleClient,
    twist: Twist,
}

/// Starts a provider with something wrong in front of a good one.
fn twisted(good_url: &str, twist: Twist) -> LocalServer {
    let client = SimpleClient::new(None, Duration::from_secs(10)).expect("a client");
    let data = Data::from(Arc::new(Twisted { good_url: good_url.to_owned(), client, twist }));
    let server = LocalServer::start(move |routes: &mut ServiceConfig| {
        routes.app_data(data.clone()).default_service(web::to(pass));
    });
    server.expect("a port of loopback is free")
}

async fn pass(twisted: Data<Twisted>, request: HttpRequest, body: Bytes) -> HttpResponse {
    let recorder = Recorder::default();
    recorder.note(&request, &body);
    let mut request = recorder.requests().remove(0);
    (twisted.twist.request)(&mut request);
    let headers: Vec<(String, String)> = request
        .headers
        .iter()
        .filter(|(name, _)| HANDED_ON.contains(&name.as_str()) || name.starts_with("x-callback"))
        .cloned()
        .collect();
    let (method, body) = match request.method.as_str() {
        "GET" => (SimpleMethod::Get, None),
        _ => (SimpleMethod::Post, Some(request.body.clone().into())),
    };
    let url = format!("{}{}", twisted.good_url, request.path);
    let answer = twisted.client.call(method, &url, &headers, body).await.expect("the good provider answers");
    let (mut status, mut text) = (answer.status, String::from_utf8_lossy(&answer.body).into_owned());
    (twisted.twist.answer)(&request, &mut status, &mut text);
    let mut response = HttpResponse::build(StatusCode::from_u16(status).expect("a status"));
    for (name, value) in answer.headers.iter().filter(|(name, _)| HANDED_ON.contains(&name.as_str())) {
        response.insert_header((name.as_str(), value.as_str()));
    }
    response.content_type("application/json").body(text)
}

#[test]
fn nobody_there_is_one_failure_and_the_rest_is_not_guessed() {
    in_a_system(async {
        let auth = EndpointAuth::SigningSecret(Secret::new("s"));
        let lines = lines_of(&options(Dialect::Median, "http://127.0.0.1:1", auth)).await;
        let failed = rules(&lines, Mark::Fail);
        assert_eq!(failed.first(), Some(&"manifest: answer"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.came.contains("no connection")));
        assert!(rules(&lines, Mark::Ok).is_empty(), "nothing can be said for it");
    });
}

#[test]
fn what_cannot_be_checked_is_refused_before_anything_is_sent() {
    in_a_system(async {
        let auth = || EndpointAuth::SigningSecret(Secret::new("s"));
        for url in ["shop", "ftp://shop.example", "http://shop.example/?a=1", "http://shop.example/#a"] {
            assert!(run(&options(Dialect::Median, url, auth()), &mut |_| {}).await.is_err(), "{url}");
        }
        let wrong = options(Dialect::Topology, "http://127.0.0.1:1", auth());
        assert!(run(&wrong, &mut |_| {}).await.is_err(), "credentials of another dialect");
    });
}
