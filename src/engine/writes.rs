//! Writes of the APIs that are made once: their `Idempotency-Key` is reserved before, and their answer is kept after.
//!
//! **Invariant:** reserving is one atomic step of the store, and a reservation lives as long as the work: only its end, or
//! a start after a crash, frees the key of a write that was not made. **Invariant:** that a write was made is stored along
//! with what it changes, so a crash between the two cannot make it look undone.

use super::Engine;
use super::access::{OperatorAccess, WorkspaceAccess};
use super::in_flight::InFlightGuard;
use super::ports::StoreError;
use super::store_port::{ReservedWrite, StoreResult, WriteAnswer, WriteId, WriteReservation};
use std::future::Future;
use std::time::Duration;

/// How long an answer is kept: 24 hours, and as long again as any write may take.
const KEPT_FOR: Duration = Duration::from_secs(25 * 3600);

/// A store that does not take the end of a write at once is asked again after these pauses.
const ASK_AGAIN_AFTER: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// After those it is asked every so often.
const ASK_IN_THE_END_EVERY: Duration = Duration::from_secs(5);

/// The scope of the operator's keys.
const OPERATOR: &str = "operator";

/// A write that is asked for under a key.
#[derive(Clone, Debug)]
pub struct KeyedWrite {
    id: WriteId,
    content_hash: [u8; 32],
}

impl KeyedWrite {
    /// Which write it is.
    pub const fn id(&self) -> &WriteId {
        &self.id
    }

    /// SHA-256 of what is asked for.
    pub const fn content_hash(&self) -> &[u8; 32] {
        &self.content_hash
    }
}

impl WorkspaceAccess {
    /// A write under an `Idempotency-Key` of this workspace key.
    pub fn keyed_write(&self, key: String, content_hash: [u8; 32]) -> KeyedWrite {
        KeyedWrite { id: WriteId { scope: self.key().id.to_string(), key }, content_hash }
    }
}

impl OperatorAccess {
    /// A write under an `Idempotency-Key` of the operator.
    pub fn keyed_write(&self, key: String, content_hash: [u8; 32]) -> KeyedWrite {
        KeyedWrite { id: WriteId { scope: OPERATOR.to_owned(), key }, content_hash }
    }
}

/// The right and the duty to make a write: a stop waits for its end.
#[derive(Debug)]
pub struct WriteTicket {
    id: WriteId,
    _guard: InFlightGuard,
}

/// What asking for a write found.
#[derive(Debug)]
pub enum BegunWrite {
    /// It is to be made now.
    Make(WriteTicket),
    /// It was made and answered before.
    Answered(WriteAnswer),
    /// It is being made elsewhere.
    UnderWay,
    /// It was made, and its answer was lost.
    AnswerLost,
    /// The key stands for another write.
    Other,
}

impl Engine {
    /// Reserves the key of a write, or finds what became of it.
    pub async fn begin_write(&self, write: &KeyedWrite) -> StoreResult<BegunWrite> {
        let guard = self.0.in_flight.enter().ok_or(StoreError::Overloaded)?;
        let at = self.clock().now();
        let reservation = WriteReservation {
            id: write.id.clone(),
            content_hash: write.content_hash,
            at,
            expires_at: at.plus(KEPT_FOR),
        };
        Ok(match self.store().reserve_write(&reservation).await? {
            ReservedWrite::New => BegunWrite::Make(WriteTicket { id: reservation.id, _guard: guard }),
            ReservedWrite::Answered(answer) => BegunWrite::Answered(answer),
            ReservedWrite::UnderWay => BegunWrite::UnderWay,
            ReservedWrite::AnswerLost => BegunWrite::AnswerLost,
            ReservedWrite::Other => BegunWrite::Other,
        })
    }

    /// Keeps the answer to a write that was made.
    pub async fn keep_answer(&self, ticket: WriteTicket, answer: &WriteAnswer) {
        let (engine, answer) = (self.clone(), answer.clone());
        persist(self, ticket, move |id| {
            let (engine, answer) = (engine.clone(), answer.clone());
            async move { engine.store().answer_write(&id, &answer).await }
        })
        .await;
    }

    /// Frees the key of a write that was refused. One that changed something before it failed keeps its key.
    pub async fn release_write(&self, ticket: WriteTicket) {
        let engine = self.clone();
        persist(self, ticket, move |id| {
            let engine = engine.clone();
            async move { engine.store().release_write(&id).await }
        })
        .await;
    }
}

/// Has the store take the end of a write. The answer waits for that a little; after that the store is asked again beside
/// it until it does, since whoever repeats the write waits for its end. Who deletes a workspace key with that very key
/// leaves nobody who could ask again.
async fn persist<F>(engine: &Engine, ticket: WriteTicket, ask: impl Fn(WriteId) -> F + Send + 'static)
where
    F: Future<Output = StoreResult<()>> + Send,
{
    let WriteTicket { id, _guard: guard } = ticket;
    for pause in ASK_AGAIN_AFTER {
        let Err(error) = ask(id.clone()).await else { return };
        if matches!(error, StoreError::NotFound) {
            return;
        }
        tokio::time::sleep(pause).await;
    }
    // A stop does not wait for a store that does not answer: the next start takes the write's answer for lost.
    drop(guard);
    let engine = engine.clone();
    tokio::spawn(async move {
        while !engine.is_stopping() {
            match ask(id.clone()).await {
                Ok(()) | Err(StoreError::NotFound) => return,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the end of a write is not stored yet");
                }
            }
            tokio::time::sleep(ASK_IN_THE_END_EVERY).await;
        }
    });
}
