//! A receiver of an organization's signed messages: its reviewer, or its application.

use super::eventually;
use super::gate::Gate;
use super::node::sign;
use super::provider::{Provider, Received, Reply};
use super::tenant::Tenant;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use toolgate::engine::ports::Clock;

pub(crate) struct Hook {
    server: Provider,
    member: &'static str,
    secret: Mutex<String>,
}

impl Hook {
    /// A reviewer. It says nothing of use until it is told what to say.
    pub(crate) fn reviewer(tenant: &Tenant) -> Self {
        Self::set("reviewer", tenant)
    }

    /// An application that takes every message.
    pub(crate) fn webhook(tenant: &Tenant) -> Self {
        Self::set("webhook", tenant)
    }

    fn set(member: &'static str, tenant: &Tenant) -> Self {
        let hook = Self { server: Provider::median(&[]), member, secret: Mutex::default() };
        hook.register(tenant);
        hook
    }

    /// Registers it, again or for another organization; it gets another secret by that.
    #[track_caller]
    pub(crate) fn register(&self, tenant: &Tenant) {
        let url = format!("{}/hook?team=a", self.server.url());
        let set = tenant.patch("/v1/org", &json!({ self.member: { "url": url } })).expect(200).json();
        let secret = set[self.member]["secret"].as_str().expect("it is shown once").to_owned();
        *self.secret.lock().unwrap_or_else(PoisonError::into_inner) = secret;
    }

    /// Answers the next message so; replies queue up.
    pub(crate) fn next(&self, reply: Reply) {
        self.server.next(reply);
    }

    /// Decides about the next run so.
    pub(crate) fn says(&self, decision: &str) {
        self.next(said(decision));
    }

    /// Messages so far.
    pub(crate) fn messages(&self) -> Vec<Received> {
        self.server.calls()
    }

    /// The messages, once there are so many.
    #[track_caller]
    pub(crate) fn await_messages(&self, count: usize) -> Vec<Received> {
        let messages = eventually("the messages come", || Some(self.messages()).filter(|all| all.len() >= count));
        assert_eq!(messages.len(), count);
        messages
    }

    /// Asserts that a message is signed for this moment, as Standard Webhooks asks.
    #[track_caller]
    pub(crate) fn assert_signed(&self, gate: &Gate, message: &Received) {
        assert_eq!(message.path, "/hook?team=a");
        assert_eq!(message.header("content-type"), Some("application/json"));
        let now = gate.clock().now().as_millis() / 1000;
        let id = message.header("webhook-id").expect("an id");
        let seconds: i64 = message.header("webhook-timestamp").and_then(|at| at.parse().ok()).expect("a time");
        assert!((now - 1..=now).contains(&seconds), "{seconds} is not {now}");
        let secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
        let signature = sign(&secret, id, seconds, &message.body);
        assert_eq!(message.header("webhook-signature"), Some(signature.as_str()));
    }
}

/// A reviewer's answer.
pub(crate) fn said(decision: &str) -> Reply {
    Reply::json(200, &json!({ "decision": decision }))
}

/// The `data` of a message.
#[track_caller]
pub(crate) fn data(message: &Received) -> Value {
    message.json()["data"].clone()
}
