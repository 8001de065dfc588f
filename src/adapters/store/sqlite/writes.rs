//! Writes of the tenant's and the operator's API that came with an `Idempotency-Key`.
//!
//! A key is `reserved` before the write, `made` in the transaction of the write itself, `answered` after it. A crash in
//! between leaves `reserved`, which [`recover`] frees, or `made`, which it marks `lost`.

use super::rows;
use super::{Db, corrupt, text_at};
use crate::adapters::secrets::SecretBox;
use crate::engine::store_port::{ReservedWrite, StoreError, StoreResult, WriteAnswer, WriteId, WriteReservation};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

const ANSWER: &str = "writes.answer";

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reserved,
    Made,
    Answered,
    Lost,
}

impl State {
    const ALL: [State; 4] = [State::Reserved, State::Made, State::Answered, State::Lost];

    const fn as_str(self) -> &'static str {
        match self {
            State::Reserved => "reserved",
            State::Made => "made",
            State::Answered => "answered",
            State::Lost => "lost",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

#[derive(Serialize, Deserialize)]
struct AnswerDoc {
    status: u16,
    headers: Vec<(String, String)>,
    /// Base64: any bytes may be answered.
    body: String,
}

/// As a rotation builds it inside a query: the scope and the key.
fn answer_place(id: &WriteId) -> String {
    format!("{ANSWER}:{}:{}", id.scope, id.key)
}

/// Seals an answer, before the writer is asked.
pub(super) fn sealed(secrets: &SecretBox, id: &WriteId, answer: &WriteAnswer) -> Vec<u8> {
    let doc = AnswerDoc { status: answer.status, headers: answer.headers.clone(), body: STANDARD.encode(&answer.body) };
    secrets.seal(rows::to_text(&doc).as_bytes(), &answer_place(id))
}

fn opened(db: &Db<'_>, id: &WriteId, sealed: &[u8]) -> StoreResult<WriteAnswer> {
    let plain = db.secrets.open(sealed, &answer_place(id)).map_err(|_| corrupt("write"))?;
    let doc: AnswerDoc = serde_json::from_slice(&plain).map_err(|_| corrupt("write"))?;
    let body = STANDARD.decode(&doc.body).map_err(|_| corrupt("write"))?;
    Ok(WriteAnswer { status: doc.status, headers: doc.headers, body })
}

pub(super) fn reserve(db: &Db<'_>, reservation: &WriteReservation) -> StoreResult<ReservedWrite> {
    let id = &reservation.id;
    let sql = "SELECT content_hash, state, answer FROM writes WHERE scope = ?1 AND key = ?2 AND expires_at > ?3";
    let known = db.find(sql, (&id.scope, &id.key, reservation.at.as_millis()), |row| {
        if row.get::<_, [u8; 32]>(0)? != reservation.content_hash {
            return Ok(ReservedWrite::Other);
        }
        match State::parse(text_at(row, 1, "write")?).ok_or_else(|| corrupt("write"))? {
            State::Reserved | State::Made => Ok(ReservedWrite::UnderWay),
            State::Lost => Ok(ReservedWrite::AnswerLost),
            State::Answered => {
                let sealed = row.get_ref(2)?.as_blob().map_err(|_| corrupt("write"))?;
                Ok(ReservedWrite::Answered(opened(db, id, sealed)?))
            }
        }
    })?;
    if let Some(known) = known {
        return Ok(known);
    }
    db.execute(
        "INSERT INTO writes (scope, key, content_hash, state, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (scope, key) DO UPDATE SET content_hash = excluded.content_hash, state = excluded.state,
             answer = NULL, expires_at = excluded.expires_at",
        (&id.scope, &id.key, reservation.content_hash, State::Reserved.as_str(), reservation.expires_at.as_millis()),
    )?;
    Ok(ReservedWrite::New)
}

/// Notes that a write is made, in its own transaction.
pub(super) fn made(db: &Db<'_>, id: &WriteId) -> StoreResult<()> {
    let sql = "UPDATE writes SET state = ?3 WHERE scope = ?1 AND key = ?2 AND state = ?4";
    db.execute(sql, (&id.scope, &id.key, State::Made.as_str(), State::Reserved.as_str()))?;
    Ok(())
}

pub(super) fn answer(db: &Db<'_>, id: &WriteId, sealed: &[u8]) -> StoreResult<()> {
    let sql = "UPDATE writes SET state = ?3, answer = ?4 WHERE scope = ?1 AND key = ?2";
    match db.execute(sql, (&id.scope, &id.key, State::Answered.as_str(), sealed))? {
        0 => Err(StoreError::NotFound),
        _ => Ok(()),
    }
}

pub(super) fn release(db: &Db<'_>, id: &WriteId) -> StoreResult<()> {
    let sql = "DELETE FROM writes WHERE scope = ?1 AND key = ?2 AND state = ?3";
    db.execute(sql, (&id.scope, &id.key, State::Reserved.as_str()))?;
    // Nobody answers it any more, so nobody shall wait for that.
    let sql = "UPDATE writes SET state = ?3 WHERE scope = ?1 AND key = ?2 AND state = ?4";
    db.execute(sql, (&id.scope, &id.key, State::Lost.as_str(), State::Made.as_str()))?;
    Ok(())
}

/// Forgets every write of one scope.
pub(super) fn forget(db: &Db<'_>, scope: &str) -> StoreResult<()> {
    db.execute("DELETE FROM writes WHERE scope = ?1", (scope,))?;
    Ok(())
}

/// After a crash nothing is under way any more.
pub(super) fn recover(db: &Db<'_>) -> StoreResult<()> {
    db.execute("DELETE FROM writes WHERE state = ?1", (State::Reserved.as_str(),))?;
    db.execute("UPDATE writes SET state = ?2 WHERE state = ?1", (State::Made.as_str(), State::Lost.as_str()))?;
    Ok(())
}
