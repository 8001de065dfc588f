//! SQLite: the embedded default. One writer with group commit ([`writer`]), a few readers beside it ([`readers`]).
//!
//! The write-ahead log is forced to disk before anything is acknowledged (`synchronous = FULL`). Values of tenants and
//! providers that could be secret (credentials, secrets of callbacks and webhooks, arguments, results, bodies and receipts
//! of operations, answers to writes, kept callbacks) are kept sealed; keys exist only as hashes.

mod admission;
mod approvals;
mod audit;
mod callbacks;
mod deliveries;
mod due;
mod endpoints;
mod groups;
mod hooks;
mod keys;
mod open;
mod operations;
mod orgs;
mod pages;
mod port;
mod purge;
mod readers;
mod rows;
mod run_rows;
mod runs;
mod syncs;
#[cfg(test)]
mod tests;
mod tool_rows;
mod writer;
mod writes;

pub use open::{OpenError, SqliteOptions};

use crate::adapters::secrets::SecretBox;
use crate::domain::ids::OrgId;
use crate::domain::time::Timestamp;
use crate::engine::store_port::{StoreError, StoreResult};
use readers::Readers;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;
use writer::Writer;

/// Told how long each operation took, from the call to the answer; the name is that of the port's method.
pub type OpTimer = Arc<dyn Fn(&'static str, Duration) + Send + Sync>;

/// The store in one SQLite file.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    secrets: Arc<SecretBox>,
    timer: Option<OpTimer>,
}

/// What an operation works with: a connection inside a transaction, and the box that seals and opens.
struct Db<'a> {
    conn: &'a Connection,
    secrets: &'a SecretBox,
}

impl Db<'_> {
    /// Runs one statement; how many rows it changed.
    fn execute<P: Params>(&self, sql: &str, params: P) -> StoreResult<usize> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    /// The row a query finds, if any.
    fn find<P: Params, T>(
        &self,
        sql: &str,
        params: P,
        read: impl FnOnce(&Row<'_>) -> StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }

    /// Every row a query finds.
    fn all<P: Params, T>(
        &self,
        sql: &str,
        params: P,
        mut read: impl FnMut(&Row<'_>) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// The rows a query finds, until `read` has enough.
    fn until<P: Params, T>(
        &self,
        sql: &str,
        params: P,
        mut read: impl FnMut(&Row<'_>) -> StoreResult<Option<T>>,
    ) -> StoreResult<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(item) = read(row)? else { break };
            found.push(item);
        }
        Ok(found)
    }

    /// Whether a query finds anything.
    fn exists<P: Params>(&self, sql: &str, params: P) -> StoreResult<bool> {
        Ok(self.conn.prepare_cached(sql)?.exists(params)?)
    }

    /// Appends to the change feed.
    fn announce(&self, org: OrgId, at: Timestamp) -> StoreResult<()> {
        self.execute("INSERT INTO feed (org_id, at) VALUES (?1, ?2)", (bytes(org.uuid()), at.as_millis()))?;
        Ok(())
    }

    /// Raises the organization's revision and appends to the change feed. `NotFound` when it is gone.
    fn raise_revision(&self, org: OrgId, at: Timestamp) -> StoreResult<()> {
        let sql = "UPDATE orgs SET revision = revision + 1 WHERE id = ?1 AND state <> 'deleted'";
        if self.execute(sql, (bytes(org.uuid()),))? == 0 {
            return Err(StoreError::NotFound);
        }
        self.announce(org, at)
    }

    /// Compares the version of a record that is about to change. `versions` selects it by id and organization.
    fn expect_version(&self, versions: &str, key: (Uuid, OrgId), expected: Option<u64>) -> StoreResult<()> {
        let found: Option<u64> = self
            .conn
            .prepare_cached(versions)?
            .query_row((bytes(key.0), bytes(key.1.uuid())), |row| row.get(0))
            .optional()?;
        match (found, expected) {
            (None, _) => Err(StoreError::NotFound),
            (Some(found), Some(expected)) if found != expected => Err(StoreError::Stale),
            (Some(_), _) => Ok(()),
        }
    }

    fn open_sealed(&self, sealed: &[u8], column: &str, id: Uuid) -> StoreResult<String> {
        let plain = self.secrets.open(sealed, &place(column, id)).map_err(|_| corrupt("sealed value"))?;
        String::from_utf8(plain).map_err(|_| corrupt("sealed value"))
    }
}

impl SqliteStore {
    async fn write<T, F>(&self, op: &'static str, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> StoreResult<T> + Send + 'static,
    {
        let began = Instant::now();
        let result = self.writer.run(job).await;
        self.note(op, began);
        result
    }

    async fn read<T, F>(&self, op: &'static str, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> StoreResult<T> + Send + 'static,
    {
        let began = Instant::now();
        let result = self.readers.run(job).await;
        self.note(op, began);
        result
    }

    fn note(&self, op: &'static str, began: Instant) {
        if let Some(timer) = &self.timer {
            timer(op, began.elapsed());
        }
    }
}

/// Any error of the driver that no operation expects.
impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::Unavailable(Box::new(error))
    }
}

fn corrupt(what: &'static str) -> StoreError {
    StoreError::Corrupt { what }
}

/// Turns the refusal of a unique index into `NameTaken`.
fn name_taken(result: StoreResult<usize>, name: &str) -> StoreResult<usize> {
    result.map_err(|error| {
        let taken = matches!(&error, StoreError::Unavailable(source) if is_unique_violation(&**source));
        if taken { StoreError::NameTaken { name: name.to_owned() } } else { error }
    })
}

fn is_unique_violation(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error)
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

fn bytes(id: Uuid) -> [u8; 16] {
    id.into_bytes()
}

fn uuid_at(row: &Row<'_>, column: usize) -> StoreResult<Uuid> {
    Ok(Uuid::from_bytes(row.get(column)?))
}

fn maybe_uuid_at(row: &Row<'_>, column: usize) -> StoreResult<Option<Uuid>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(Uuid::from_bytes))
}

fn time_at(row: &Row<'_>, column: usize) -> StoreResult<Timestamp> {
    Ok(Timestamp::from_millis(row.get(column)?))
}

fn maybe_time_at(row: &Row<'_>, column: usize) -> StoreResult<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

fn text_at<'r>(row: &'r Row<'_>, column: usize, what: &'static str) -> StoreResult<&'r str> {
    row.get_ref(column)?.as_str().map_err(|_| corrupt(what))
}

/// What a sealed value is bound to: its column and the id of its record. Hex as SQLite writes it, so that a rotation
/// can build it inside a query.
fn place(column: &str, id: Uuid) -> String {
    [column, ":", id.as_simple().encode_upper(&mut Uuid::encode_buffer())].concat()
}
