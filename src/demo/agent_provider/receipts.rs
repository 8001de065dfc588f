//! The receipt store: one effect an operation, and what became of it.

use super::super::shop::WorkFault;
use crate::domain::time::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptState {
    /// It had its effect.
    Applied,
    /// The provider would not.
    Rejected,
}

impl ReceiptState {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReceiptState::Applied => "applied",
            ReceiptState::Rejected => "rejected",
        }
    }
}

/// What is kept of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// `Operation-Id`.
    pub operation_id: String,
    /// `Request-Fingerprint`.
    pub fingerprint: String,
    /// The tool.
    pub tool: String,
    /// The tool's action.
    pub action: String,
    /// How it ended.
    pub state: ReceiptState,
    /// When.
    pub recorded_at: Timestamp,
    /// Until when it is known.
    pub expires_at: Timestamp,
    /// The envelope it was answered with.
    pub response: Value,
}

impl Receipt {
    /// The body of an answer.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "operation_id": self.operation_id,
            "request_fingerprint": self.fingerprint,
            "tool": self.tool,
            "action": self.action,
            "state": self.state.as_str(),
            "recorded_at": self.recorded_at.to_string(),
            "expires_at": self.expires_at.to_string(),
            "response": self.response,
        })
    }
}

/// Something that was really done.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The operation that did it.
    pub operation_id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
}

/// A mutation that passed every check.
pub(super) struct Mutation<'a> {
    pub(super) operation_id: &'a str,
    pub(super) fingerprint: &'a str,
    pub(super) contract_version: &'a str,
    pub(super) tool: &'a str,
    pub(super) action: &'a str,
    pub(super) arguments: &'a Value,
}

/// What is known about an operation.
pub(super) enum Known<'a> {
    /// Nothing.
    Nothing,
    /// Its receipt.
    Receipt(&'a Receipt),
    /// Another request has this operation id.
    Conflict,
    /// Its receipt has expired.
    Gone,
}

#[derive(Default)]
pub(super) struct ReceiptStore {
    receipts: HashMap<String, Receipt>,
    order: Vec<String>,
    effects: Vec<Effect>,
}

impl ReceiptStore {
    /// What is known about an operation under this fingerprint.
    pub(super) fn look_up(&self, operation_id: &str, fingerprint: &str, now: Timestamp) -> Known<'_> {
        match self.receipts.get(operation_id) {
            None => Known::Nothing,
            Some(receipt) if receipt.fingerprint != fingerprint => Known::Conflict,
            Some(receipt) if receipt.expires_at <= now => Known::Gone,
            Some(receipt) => Known::Receipt(receipt),
        }
    }

    /// Does the work and keeps its receipt. Only for an operation of which nothing is known.
    pub(super) fn perform(
        &mut self,
        mutation: &Mutation<'_>,
        work: impl FnOnce(&Value) -> Result<Value, WorkFault>,
        now: Timestamp,
        retention: Duration,
    ) -> Value {
        let (state, mut envelope) = match work(mutation.arguments) {
            Ok(envelope) => (ReceiptState::Applied, envelope),
            Err(fault) => (ReceiptState::Rejected, json!({ "status": "rejected", "text": fault.message })),
        };
        let mut evidence = envelope["evidence"].as_array().cloned().unwrap_or_default();
        let reference = evidence.iter().find(|item| item["kind"] == "reference").map(|item| item["id"].clone());
        let mut action = json!({
            "kind": "action",
            "id": "done",
            "action": mutation.action,
            "outcome": state.as_str(),
            "operation_id": mutation.operation_id,
            "request_fingerprint": mutation.fingerprint,
            "recorded_at": now.to_string(),
        });
        if let Some(reference) = reference {
            action["reference"] = reference;
        }
        evidence.push(action);
        envelope["evidence"] = Value::Array(evidence);
        let envelope = super::envelope(mutation.contract_version, "ok", &envelope);
        if state == ReceiptState::Applied {
            self.effects.push(Effect {
                operation_id: mutation.operation_id.to_owned(),
                tool: mutation.tool.to_owned(),
                arguments: mutation.arguments.clone(),
            });
        }
        let receipt = Receipt {
            operation_id: mutation.operation_id.to_owned(),
            fingerprint: mutation.fingerprint.to_owned(),
            tool: mutation.tool.to_owned(),
            action: mutation.action.to_owned(),
            state,
            recorded_at: now,
            expires_at: now.plus(retention),
            response: envelope.clone(),
        };
        self.order.push(receipt.operation_id.clone());
        self.receipts.insert(receipt.operation_id.clone(), receipt);
        envelope
    }

    /// Every receipt, oldest first.
    pub(super) fn receipts(&self) -> Vec<Receipt> {
        self.order.iter().filter_map(|id| self.receipts.get(id)).cloned().collect()
    }

    /// Everything that was done, oldest first.
    pub(super) fn effects(&self) -> &[Effect] {
        &self.effects
    }
}
