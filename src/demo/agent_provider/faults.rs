//! What goes wrong on purpose, decided request by request.

use super::wire::{Answer, Delivery};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The manifest.
    Discovery,
    /// A tool.
    Call,
    /// The receipt of an operation.
    Receipt,
}

/// A request that a fault may strike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    /// What it is about.
    pub what: What,
    /// The operation it names; a read and a discovery name none.
    pub operation_id: Option<String>,
    /// Which request of this kind for this operation it is; the first is 1.
    pub nth: u32,
}

/// What strikes a request. *Before*: nothing was done. *After*: it was done as ever (a refused request is still refused),
/// and only the answer suffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The connection is reset.
    ResetBefore,
    /// The connection is reset instead of an answer.
    ResetAfter,
    /// Silence for this long, then the end of the connection.
    StallBefore(Duration),
    /// Silence for this long instead of an answer, then the end of the connection.
    StallAfter(Duration),
    /// The request waits this long and is then done and answered as ever, even if its sender has given up by then.
    Late(Duration),
    /// This status, and an error for a body.
    StatusBefore(u16),
    /// This status, and an error for a body.
    StatusAfter(u16),
    /// Status 200 with a body that is no JSON.
    GarbageAfter,
    /// Evidence that breaks its contract: the action of another operation, or one id twice.
    BrokenEvidenceAfter,
    /// An action, or a receipt, that says `pending`.
    PendingAfter,
    /// Half of the body, then the end of the connection.
    PartialAfter,
}

/// Where a fault strikes.
pub(super) enum Strike {
    /// The request is not looked at.
    Instead {
        /// Silence first.
        pause: Duration,
        /// What its sender gets.
        delivery: Delivery,
    },
    /// The request is done, this much later.
    Afterwards {
        /// Silence first.
        pause: Duration,
    },
}

impl Fault {
    /// Whether the request is done at all.
    pub(super) fn strike(self) -> Strike {
        let instead = |pause, delivery| Strike::Instead { pause, delivery };
        match self {
            Fault::ResetBefore => instead(Duration::ZERO, Delivery::Reset),
            Fault::StallBefore(pause) => instead(pause, Delivery::Close),
            Fault::StatusBefore(status) => instead(Duration::ZERO, Delivery::Whole(out_of_order(status))),
            Fault::Late(pause) => Strike::Afterwards { pause },
            Fault::None
            | Fault::ResetAfter
            | Fault::StallAfter(_)
            | Fault::StatusAfter(_)
            | Fault::GarbageAfter
            | Fault::BrokenEvidenceAfter
            | Fault::PendingAfter
            | Fault::PartialAfter => Strike::Afterwards { pause: Duration::ZERO },
        }
    }

    /// What becomes of the answer, after this much silence.
    pub(super) fn deliver(self, answer: Answer) -> (Duration, Delivery) {
        let delivery = match self {
            Fault::StallAfter(pause) => return (pause, Delivery::Close),
            Fault::ResetAfter => Delivery::Reset,
            Fault::StatusAfter(status) => Delivery::Whole(out_of_order(status)),
            Fault::GarbageAfter => Delivery::Whole(Answer::json(200, "<html>all is well</html>".to_owned())),
            Fault::BrokenEvidenceAfter => Delivery::Whole(rewritten(answer, break_evidence)),
            Fault::PendingAfter => Delivery::Whole(rewritten(answer, make_pending)),
            Fault::PartialAfter => Delivery::Half(answer),
            Fault::None | Fault::ResetBefore | Fault::StallBefore(_) | Fault::Late(_) | Fault::StatusBefore(_) => {
                Delivery::Whole(answer)
            }
        };
        (Duration::ZERO, delivery)
    }
}

fn out_of_order(status: u16) -> Answer {
    let error = json!({ "error": { "code": "out_of_order", "message": "this provider is out of order" } });
    Answer::json(status, error.to_string())
}

/// The answer with another body. Only a good answer has evidence or a state.
fn rewritten(answer: Answer, rewrite: fn(&mut Value)) -> Answer {
    match serde_json::from_str::<Value>(&answer.body) {
        Ok(mut body) if answer.status == 200 => {
            rewrite(&mut body);
            Answer { body: body.to_string(), ..answer }
        }
        Ok(_) | Err(_) => answer,
    }
}

fn action(envelope: &mut Value) -> Option<&mut Value> {
    envelope["evidence"].as_array_mut()?.iter_mut().find(|item| item["kind"] == "action")
}

fn break_evidence(body: &mut Value) {
    let envelope = if body["response"].is_object() { &mut body["response"] } else { &mut *body };
    if let Some(action) = action(envelope) {
        action["operation_id"] = json!(Uuid::now_v7().to_string());
    } else if let Some(evidence) = envelope.get_mut("evidence").and_then(Value::as_array_mut) {
        let again = evidence.first().cloned().unwrap_or_else(|| json!({ "kind": "rumour", "id": "rumour" }));
        evidence.push(again);
    } else if body["state"].is_string() {
        body["operation_id"] = json!(Uuid::now_v7().to_string());
    }
}

fn make_pending(body: &mut Value) {
    if body["state"].is_string() {
        body["state"] = json!("pending");
        body["response"] = Value::Null;
    } else if let Some(action) = action(body) {
        action["outcome"] = json!("pending");
        if let Some(members) = action.as_object_mut() {
            members.remove("recorded_at");
        }
    }
}
