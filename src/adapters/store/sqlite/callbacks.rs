//! Callbacks: which run they belong to, and those that came before it.
//!
//! `early` waits for a run; [`claim`] makes it `claimed` when the run's own answer names it, so that neither time nor a
//! crash takes it away before it has settled that run. The other states only remember the `webhook-id`.

use super::run_rows::RunRow;
use super::runs::{self, ChangeRow};
use super::{Db, bytes, corrupt, endpoints, maybe_uuid_at, place, text_at, time_at, uuid_at};
use crate::adapters::secrets::SecretBox;
use crate::domain::ids::{EndpointId, OrgId, RunId};
use crate::domain::json::JsonText;
use crate::domain::run::RunStatus;
use crate::domain::time::Timestamp;
use crate::engine::store_port::{CallbackRecord, MAX_EARLY_CALLBACK_BYTES, StoreError, StoreResult};
use rusqlite::Row;
use std::time::Duration;

/// How long a `webhook-id` is remembered, and how long a claimed callback waits for its settling.
const REMEMBERED: Duration = Duration::from_hours(24);
const BODY: &str = "callbacks.body";

/// A callback with its body sealed.
pub(super) struct CallbackRow {
    endpoint_id: EndpointId,
    webhook_id: String,
    request_id: Option<RunId>,
    correlation_id: Option<String>,
    body: Vec<u8>,
    at: Timestamp,
}

impl CallbackRow {
    pub(super) fn new(secrets: &SecretBox, callback: &CallbackRecord) -> Self {
        let place = body_place(callback.endpoint_id, &callback.webhook_id);
        Self {
            endpoint_id: callback.endpoint_id,
            webhook_id: callback.webhook_id.clone(),
            request_id: callback.request_id,
            correlation_id: callback.correlation_id.clone(),
            body: secrets.seal(callback.body.as_str().as_bytes(), &place),
            at: callback.at,
        }
    }
}

/// As a rotation builds it inside a query: the endpoint and the `webhook-id`.
fn body_place(endpoint: EndpointId, webhook_id: &str) -> String {
    format!("{}:{webhook_id}", place(BODY, endpoint.uuid()))
}

/// What [`keep`] found, with runs as rows.
pub(super) enum Kept {
    Duplicate,
    Matches(Box<RunRow>),
    Final(Verdict, RunId),
    Early,
    TooMany,
}

/// What [`settle`] found, with runs as rows.
pub(super) enum Settled {
    Now(Box<RunRow>),
    Duplicate,
    Final(Verdict, RunId),
}

/// What a callback of a run that is final is recorded as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The run ended without a result.
    Late,
    /// The run has its result: the first one counts.
    Ignored,
}

impl Verdict {
    /// `None` while the run is open.
    const fn of(status: RunStatus) -> Option<Self> {
        match status {
            RunStatus::Pending | RunStatus::AwaitingApproval | RunStatus::Inspecting => None,
            RunStatus::Completed | RunStatus::Failed => Some(Verdict::Ignored),
            RunStatus::Started
            | RunStatus::Denied
            | RunStatus::Expired
            | RunStatus::Cancelled
            | RunStatus::Uncertain => Some(Verdict::Late),
        }
    }

    const fn state(self) -> State {
        match self {
            Verdict::Late => State::Late,
            Verdict::Ignored => State::Ignored,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Early,
    Claimed,
    Settled,
    Late,
    Ignored,
}

impl State {
    const ALL: [State; 5] = [State::Early, State::Claimed, State::Settled, State::Late, State::Ignored];

    const fn as_str(self) -> &'static str {
        match self {
            State::Early => "early",
            State::Claimed => "claimed",
            State::Settled => "settled",
            State::Late => "late",
            State::Ignored => "ignored",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// It has not reached a run yet.
    const fn waits(self) -> bool {
        matches!(self, State::Early | State::Claimed)
    }
}

/// The state of a callback that was taken before, and until when.
fn known(db: &Db<'_>, callback: &CallbackRow) -> StoreResult<Option<(State, Timestamp)>> {
    let sql = "SELECT state, expires_at FROM callbacks WHERE endpoint_id = ?1 AND webhook_id = ?2";
    db.find(sql, (bytes(callback.endpoint_id.uuid()), &callback.webhook_id), |row| {
        Ok((State::parse(text_at(row, 0, "callback")?).ok_or_else(|| corrupt("callback"))?, time_at(row, 1)?))
    })
}

/// The run a callback belongs to, and how it stands: by our id, else by the provider's own, within this endpoint and
/// nowhere else.
fn matching(
    db: &Db<'_>,
    (org, endpoint): (OrgId, EndpointId),
    request_id: Option<RunId>,
    correlation_id: Option<&str>,
) -> StoreResult<Option<(RunId, RunStatus)>> {
    if let Some(id) = request_id {
        let found = runs::status_by_id(db, (org, endpoint), id)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    match correlation_id {
        Some(correlation_id) => runs::status_by_correlation(db, (org, endpoint), correlation_id),
        None => Ok(None),
    }
}

fn put(db: &Db<'_>, callback: &CallbackRow, state: State, run: Option<RunId>, until: Timestamp) -> StoreResult<()> {
    db.execute(
        "INSERT INTO callbacks (endpoint_id, webhook_id, state, run_id, request_id, correlation_id, body, at,
             expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (endpoint_id, webhook_id) DO UPDATE SET state = excluded.state, run_id = excluded.run_id,
             request_id = excluded.request_id, correlation_id = excluded.correlation_id, body = excluded.body,
             at = excluded.at, expires_at = excluded.expires_at",
        (
            bytes(callback.endpoint_id.uuid()),
            &callback.webhook_id,
            state.as_str(),
            run.map(|id| bytes(id.uuid())),
            callback.request_id.map(|id| bytes(id.uuid())),
            &callback.correlation_id,
            state.waits().then_some(&callback.body),
            callback.at.as_millis(),
            until.as_millis(),
        ),
    )?;
    Ok(())
}

pub(super) fn settle(db: &Db<'_>, callback: &CallbackRow, change: ChangeRow) -> StoreResult<Settled> {
    if endpoints::org_of(db, callback.endpoint_id)? != Some(change.org_id()) {
        return Err(StoreError::NotFound);
    }
    let run = runs::find(db, change.org_id(), change.run_id())?.filter(|run| run.endpoint_id == callback.endpoint_id);
    let Some(run) = run else { return Err(StoreError::NotFound) };
    if known(db, callback)?.is_some_and(|(state, _)| !state.waits()) {
        return Ok(Settled::Duplicate);
    }
    let until = change.at().max(callback.at).plus(REMEMBERED);
    match Verdict::of(run.outcome.status) {
        None => {
            put(db, callback, State::Settled, Some(run.id), until)?;
            Ok(Settled::Now(Box::new(runs::apply(db, run, change)?)))
        }
        Some(verdict) => {
            put(db, callback, verdict.state(), Some(run.id), until)?;
            Ok(Settled::Final(verdict, run.id))
        }
    }
}

pub(super) fn keep(db: &Db<'_>, callback: &CallbackRow, early_ttl: Duration, max_early: usize) -> StoreResult<Kept> {
    let endpoint = callback.endpoint_id;
    let Some(org) = endpoints::org_of(db, endpoint)? else { return Err(StoreError::NotFound) };
    let known = known(db, callback)?;
    if known.is_some_and(|(state, _)| !state.waits()) {
        return Ok(Kept::Duplicate);
    }
    // Looked for also when it is kept already: after a crash before the settling, this is the provider's second try.
    if let Some((run, status)) = matching(db, (org, endpoint), callback.request_id, callback.correlation_id.as_deref())?
    {
        let Some(verdict) = Verdict::of(status) else {
            let run = runs::find(db, org, run)?.ok_or_else(|| corrupt("run"))?;
            return Ok(Kept::Matches(Box::new(run)));
        };
        put(db, callback, verdict.state(), Some(run), callback.at.plus(REMEMBERED))?;
        return Ok(Kept::Final(verdict, run));
    }
    if known.is_some_and(|(_, until)| until > callback.at) {
        return Ok(Kept::Duplicate);
    }
    let kept = "SELECT count(*), total(length(body)) FROM callbacks
                WHERE endpoint_id = ?1 AND body IS NOT NULL AND state = 'early' AND expires_at > ?2";
    let kept = db.find(kept, (bytes(endpoint.uuid()), callback.at.as_millis()), |row| {
        Ok((row.get::<_, usize>(0)?, row.get::<_, f64>(1)? as u64))
    })?;
    let (count, kept_bytes) = kept.unwrap_or((0, 0));
    if count >= max_early || kept_bytes + callback.body.len() as u64 > MAX_EARLY_CALLBACK_BYTES {
        return Ok(Kept::TooMany);
    }
    put(db, callback, State::Early, None, callback.at.plus(early_ttl))?;
    Ok(Kept::Early)
}

const RECORD: &str = "endpoint_id, webhook_id, request_id, correlation_id, at, body";

/// Opens the body: ask for no more rows than are wanted.
fn record_of(db: &Db<'_>, row: &Row<'_>) -> StoreResult<CallbackRecord> {
    let endpoint_id = EndpointId::from_uuid(uuid_at(row, 0)?);
    let webhook_id: String = row.get(1)?;
    let sealed = row.get_ref(5)?.as_blob().map_err(|_| corrupt("callback"))?;
    let plain = db.secrets.open(sealed, &body_place(endpoint_id, &webhook_id)).map_err(|_| corrupt("callback"))?;
    let text = std::str::from_utf8(&plain).map_err(|_| corrupt("callback"))?;
    Ok(CallbackRecord {
        endpoint_id,
        webhook_id,
        request_id: run_id_at(row, 2)?,
        correlation_id: row.get(3)?,
        body: JsonText::parse(text).map_err(|_| corrupt("callback"))?,
        at: time_at(row, 4)?,
    })
}

fn run_id_at(row: &Row<'_>, column: usize) -> StoreResult<Option<RunId>> {
    Ok(maybe_uuid_at(row, column)?.map(RunId::from_uuid))
}

/// The callback that came before its run's own answer, if one did; from now on it waits for its settling.
pub(super) fn claim(
    db: &Db<'_>,
    endpoint: EndpointId,
    run: RunId,
    correlation_id: &str,
    at: Timestamp,
) -> StoreResult<Option<CallbackRecord>> {
    let sql = format!(
        "SELECT {RECORD} FROM callbacks
         WHERE endpoint_id = ?1 AND body IS NOT NULL
             AND ((state = 'claimed' AND run_id = ?2)
                 OR (state = 'early' AND expires_at > ?4 AND (request_id = ?2 OR correlation_id = ?3)))
         ORDER BY state = 'claimed' DESC, request_id IS ?2 DESC, at, webhook_id LIMIT 1"
    );
    let params = (bytes(endpoint.uuid()), bytes(run.uuid()), correlation_id, at.as_millis());
    let Some(found) = db.find(&sql, params, |row| record_of(db, row))? else { return Ok(None) };
    db.execute(
        "UPDATE callbacks SET state = 'claimed', run_id = ?3, expires_at = ?4
         WHERE endpoint_id = ?1 AND webhook_id = ?2",
        (bytes(endpoint.uuid()), &found.webhook_id, bytes(run.uuid()), at.plus(REMEMBERED).as_millis()),
    )?;
    Ok(Some(found))
}

/// What says which run a waiting callback belongs to.
struct Waiting {
    endpoint_id: EndpointId,
    webhook_id: String,
    request_id: Option<RunId>,
    correlation_id: Option<String>,
    /// The run that claimed it, whatever the time.
    claimed_by: Option<RunId>,
}

/// Callbacks that wait although their run is known and open by now. Of the others no body is read.
pub(super) fn early(db: &Db<'_>, org: OrgId, at: Timestamp) -> StoreResult<Vec<(RunId, CallbackRecord)>> {
    let sql = "SELECT endpoint_id, webhook_id, request_id, correlation_id, run_id FROM callbacks
         WHERE endpoint_id IN (SELECT id FROM endpoints WHERE org_id = ?1) AND body IS NOT NULL
             AND (state = 'claimed' OR expires_at > ?2)
         ORDER BY at, webhook_id";
    let waiting = db.all(sql, (bytes(org.uuid()), at.as_millis()), |row| {
        Ok(Waiting {
            endpoint_id: EndpointId::from_uuid(uuid_at(row, 0)?),
            webhook_id: row.get(1)?,
            request_id: run_id_at(row, 2)?,
            correlation_id: row.get(3)?,
            claimed_by: run_id_at(row, 4)?,
        })
    })?;
    let mut found = Vec::new();
    for callback in waiting {
        let run = match callback.claimed_by {
            Some(id) => runs::status(db, org, id)?.map(|status| (id, status)),
            None => {
                let correlation_id = callback.correlation_id.as_deref();
                matching(db, (org, callback.endpoint_id), callback.request_id, correlation_id)?
            }
        };
        if let Some((run, _)) = run.filter(|(_, status)| status.is_open()) {
            let sql = format!("SELECT {RECORD} FROM callbacks WHERE endpoint_id = ?1 AND webhook_id = ?2");
            let key = (bytes(callback.endpoint_id.uuid()), &callback.webhook_id);
            let record = db.find(&sql, key, |row| record_of(db, row))?.ok_or_else(|| corrupt("callback"))?;
            found.push((run, record));
        }
    }
    Ok(found)
}
