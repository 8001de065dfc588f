//! The result webhook: an organization's application is told of approvals waiting and runs finished. What is to be told
//! is stored together with what happened; telling it is tried again with growing pauses, and given up visibly.

use super::Engine;
use super::actors::registry::RegistryFault;
use super::dispatch::hook::HookMessage;
use super::ports::StoreError;
use super::store_port::{AuditEntry, DeliveryAttempt};
use crate::domain::announcement::{Delivery, DeliveryState};
use crate::domain::ids::{AuditId, DeliveryId, OrgId};
use crate::domain::json::JsonText;
use crate::domain::time::Timestamp;
use serde_json::json;
use std::time::Duration;

/// Pauses after each failed attempt; after the last one the message is given up.
const TRY_AGAIN_AFTER: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(5 * 3600),
    Duration::from_secs(10 * 3600),
];

/// An application has this long to take a message.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);

impl Engine {
    /// Tries once to deliver a message that is due.
    pub(super) async fn deliver(&self, org_id: OrgId, id: DeliveryId) {
        if let Err(error) = self.try_deliver(org_id, id).await {
            tracing::warn!(org = %org_id, delivery = %id, %error, "a message could not be delivered; it is tried again");
        }
    }

    async fn try_deliver(&self, org_id: OrgId, id: DeliveryId) -> Result<(), StoreError> {
        let Some(delivery) = self.store().delivery(org_id, id).await? else { return Ok(()) };
        if delivery.state != DeliveryState::Pending {
            return Ok(());
        }
        let catalog = match self.0.registry.get(org_id).await {
            Ok(org) => org.catalog(),
            Err(RegistryFault::NotFound) => return Ok(()),
            Err(RegistryFault::Store(error)) => return Err(error),
        };
        let failure = match catalog.org.webhook.clone() {
            None => Some("the organization has no webhook any more".to_owned()),
            Some(hook) => {
                let message = HookMessage { id: format!("msg_{id}"), body: delivery.body.clone() };
                match self.send_hook(&catalog, &hook, &message, DELIVERY_TIMEOUT).await {
                    Ok(answer) if (200..300).contains(&answer.status) => None,
                    Ok(answer) => Some(format!("the application answered HTTP {}", answer.status)),
                    Err(error) => Some(error.kind.to_string()),
                }
            }
        };
        let tried = attempt_after(&delivery, failure, catalog.org.webhook.is_some(), self.clock().now());
        let given_up = tried.state == DeliveryState::GivenUp;
        if given_up {
            let error = tried.error.as_deref().unwrap_or_default();
            tracing::warn!(org = %catalog.org.slug, delivery = %id, error, "a message to an application was given up");
        }
        let audit = given_up.then(|| self.given_up(&delivery, tried.error.as_deref()));
        self.store().note_delivery(&DeliveryAttempt { audit, ..tried }).await
    }

    fn given_up(&self, delivery: &Delivery, error: Option<&str>) -> AuditEntry {
        AuditEntry {
            id: AuditId::from_uuid(self.clock().new_uuid()),
            org_id: delivery.org_id,
            at: self.clock().now(),
            actor_kind: "system".to_owned(),
            actor_id: String::new(),
            actor_name: "toolgate".to_owned(),
            action: "webhook.give_up".to_owned(),
            object: format!("delivery/{}", delivery.id),
            changes: JsonText::of(&json!({ "event": delivery.event, "error": error })),
            from: String::new(),
            write: None,
        }
    }
}

/// What a message becomes by an attempt.
fn attempt_after(delivery: &Delivery, failure: Option<String>, has_hook: bool, now: Timestamp) -> DeliveryAttempt {
    let pause = TRY_AGAIN_AFTER.get(delivery.attempts as usize).filter(|_| has_hook);
    let (state, next_at) = match (&failure, pause) {
        (None, _) => (DeliveryState::Delivered, None),
        (Some(_), Some(pause)) => (DeliveryState::Pending, Some(now.plus(*pause))),
        (Some(_), None) => (DeliveryState::GivenUp, None),
    };
    DeliveryAttempt { org_id: delivery.org_id, id: delivery.id, state, next_at, error: failure, audit: None, at: now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_tried_with_growing_pauses_and_then_given_up() {
        let nil = uuid::Uuid::nil();
        let mut delivery = Delivery {
            id: DeliveryId::from_uuid(nil),
            org_id: OrgId::from_uuid(nil),
            event: "run.finished".to_owned(),
            body: JsonText::of(&json!({})),
            state: DeliveryState::Pending,
            attempts: 0,
            next_at: None,
            last_error: None,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
        };
        let now = Timestamp::from_millis(1_000);
        let mut pauses = Vec::new();
        loop {
            let tried = attempt_after(&delivery, Some("no".to_owned()), true, now);
            delivery.attempts += 1;
            let Some(next_at) = tried.next_at else {
                assert_eq!(tried.state, DeliveryState::GivenUp);
                break;
            };
            assert_eq!(tried.state, DeliveryState::Pending);
            pauses.push(next_at.since(now).as_secs());
        }
        assert_eq!(pauses, [5, 300, 1_800, 7_200, 18_000, 36_000]);
        assert_eq!(delivery.attempts, 7);
        let delivered = attempt_after(&delivery, None, true, now);
        assert_eq!((delivered.state, delivered.next_at), (DeliveryState::Delivered, None));
        delivery.attempts = 0;
        assert_eq!(attempt_after(&delivery, Some("none".to_owned()), false, now).state, DeliveryState::GivenUp);
    }
}
