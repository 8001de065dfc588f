//! Opening: the folder's lock, the file, its migrations, and the proof that the master key is the right one.

use super::readers::Readers;
use super::writer::Writer;
use super::{OpTimer, SqliteStore, place};
use crate::adapters::secrets::{SecretBox, make_data_dir};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The database file inside the data folder.
const DATABASE_FILE: &str = "toolgate.db";
/// Locked as long as a store is open on the folder.
const LOCK_FILE: &str = "toolgate.lock";

/// Numbered from 1, forward only; a file that was ever released never changes.
const MIGRATIONS: &[&str] =
    &[include_str!("../migrations/0001_core.sql"), include_str!("../migrations/0002_mutations.sql")];

const KEY_CHECK: &str = "meta.key_check";
/// Rows sealed anew in one transaction.
const RESEAL_PORTION: usize = 500;

/// How a store is run.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Changes that may wait for the writer, and reads for a reader; beyond it the answer is `Overloaded`.
    pub queue_depth: usize,
    /// Records that may wait to be written behind; beyond it they are dropped.
    pub later_depth: usize,
    /// Reader threads.
    pub readers: usize,
    /// Told how long each operation took.
    pub timer: Option<OpTimer>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { queue_depth: 4096, later_depth: 16_384, readers: 3, timer: None }
    }
}

/// Why a store does not open, as a sentence for who runs the gateway.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or the folder cannot be made or used.
    #[error("{} cannot be used", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Another process has the folder.
    #[error("another toolgate is running on {}; one data folder serves one process", .data_dir.display())]
    Locked {
        /// The folder.
        data_dir: PathBuf,
    },
    /// SQLite refuses the file.
    #[error("{} cannot be opened as toolgate's database", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// A later version has written the file.
    #[error(
        "the database has format {found}, this toolgate knows formats up to {known}: it was written by a newer \
         toolgate; run that one"
    )]
    Newer {
        /// The file's format.
        found: u32,
        /// The newest format this version knows.
        known: u32,
    },
    /// Neither the master key nor its predecessor sealed what is in the file.
    #[error(
        "the master key is not the one this database was sealed with; give the right one, or give the former one as \
         its predecessor"
    )]
    WrongKey,
    /// The system gives no thread.
    #[error("the store's threads cannot be started")]
    Threads(#[source] io::Error),
}

impl SqliteStore {
    /// Number of the newest migration.
    pub const MIGRATION: u32 = MIGRATIONS.len() as u32;

    /// Opens the store of a data folder, making folder and database when they are missing. Blocks while migrations
    /// run, and while everything is sealed anew after a change of the master key.
    pub fn open(data_dir: &Path, secrets: SecretBox, options: SqliteOptions) -> Result<Self, OpenError> {
        let file_error = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::File { path, source }
        };
        make_data_dir(data_dir).map_err(file_error(data_dir))?;
        let lock = lock(data_dir)?;
        let path = data_dir.join(DATABASE_FILE);
        make_private(&path).map_err(file_error(&path))?;

        let database_error = |source| OpenError::Database { path: path.clone(), source };
        let mut conn = connect(&path, false).map_err(database_error)?;
        let found: u32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(database_error)?;
        if found > Self::MIGRATION {
            return Err(OpenError::Newer { found, known: Self::MIGRATION });
        }
        migrate(&mut conn, found).map_err(database_error)?;
        if !check_key(&mut conn, &secrets).map_err(database_error)? {
            return Err(OpenError::WrongKey);
        }

        let readers = (0..options.readers.max(1)).map(|_| connect(&path, true)).collect::<Result<Vec<_>, _>>();
        let secrets = Arc::new(secrets);
        let readers = Readers::start(readers.map_err(database_error)?, &secrets, options.queue_depth);
        let readers = readers.map_err(OpenError::Threads)?;
        let writer = Writer::start(conn, Arc::clone(&secrets), lock, options.queue_depth, options.later_depth)
            .map_err(OpenError::Threads)?;
        Ok(Self { writer, readers, secrets, timer: options.timer })
    }
}

fn lock(data_dir: &Path) -> Result<File, OpenError> {
    let path = data_dir.join(LOCK_FILE);
    let file_error = |source| OpenError::File { path: path.clone(), source };
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(file_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { data_dir: data_dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(file_error(source)),
    }
}

/// Makes the database file before SQLite does, closed to others; its log and index take over the mode.
fn make_private(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

fn connect(path: &Path, reader: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.set_prepared_statement_cache_capacity(256);
    conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;")?;
    if reader {
        conn.execute_batch("PRAGMA query_only = ON")?;
    } else {
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536")?;
        // A page that many runs touch is copied into the database once every 8,192 pages of log (32 MiB).
        conn.query_row("PRAGMA wal_autocheckpoint = 8192", [], |_| Ok(()))?;
        conn.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))?;
    }
    Ok(conn)
}

/// Each migration and its number are one transaction.
fn migrate(conn: &mut Connection, found: u32) -> rusqlite::Result<()> {
    for (number, sql) in (1u32..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        let transaction = conn.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
        tracing::info!(number, "database migrated");
    }
    Ok(())
}

/// Whether the master key, or its predecessor, is the one of this database. What the predecessor sealed is sealed anew,
/// so that it can be taken out of the configuration after one start.
fn check_key(conn: &mut Connection, secrets: &SecretBox) -> rusqlite::Result<bool> {
    let aad = place(KEY_CHECK, Uuid::nil());
    let stored: Option<Vec<u8>> =
        conn.query_row("SELECT value FROM meta WHERE name = 'key_check'", [], |row| row.get(0)).optional()?;
    if let Some(stored) = &stored {
        if secrets.open(stored, &aad).is_err() {
            return Ok(false);
        }
        if stored.starts_with(secrets.current_prefix()) {
            return Ok(true);
        }
        reseal(conn, secrets)?;
    }
    let check = secrets.seal(b"toolgate", &aad);
    conn.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('key_check', ?1)", (check,))?;
    Ok(true)
}

/// Table, column, and the rest of the place a sealed value is bound to, as SQL.
const SEALED: [(&str, &str, &str); 9] = [
    ("endpoints", "auth", "hex(id)"),
    ("endpoints", "callback_secrets", "hex(id)"),
    ("runs", "arguments", "hex(id)"),
    ("runs", "outcome", "hex(id)"),
    ("callbacks", "body", "hex(endpoint_id) || ':' || webhook_id"),
    ("hooks", "doc", "hex(org_id)"),
    ("operations", "body", "hex(run_id)"),
    ("operations", "receipt", "hex(run_id)"),
    ("writes", "answer", "scope || ':' || key"),
];

fn reseal(conn: &mut Connection, secrets: &SecretBox) -> rusqlite::Result<()> {
    for (table, column, place) in SEALED {
        let select = format!(
            "SELECT rowid, '{table}.{column}:' || {place}, {column} FROM {table}
             WHERE rowid > ?1 AND {column} IS NOT NULL AND substr({column}, 1, ?2) <> ?3 ORDER BY rowid LIMIT ?4"
        );
        let update = format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1");
        let mut last = i64::MIN;
        loop {
            let transaction = conn.transaction()?;
            let prefix = secrets.current_prefix();
            let portion: Vec<(i64, String, Vec<u8>)> = transaction
                .prepare_cached(&select)?
                .query_map((last, prefix.len(), prefix, RESEAL_PORTION), |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?
                .collect::<rusqlite::Result<_>>()?;
            let Some((newest, ..)) = portion.last() else { break };
            last = *newest;
            for (rowid, aad, sealed) in portion {
                match secrets.open(&sealed, &aad) {
                    Ok(plain) => {
                        transaction.prepare_cached(&update)?.execute((rowid, secrets.seal(&plain, &aad)))?;
                    }
                    // Damaged before: reading it says so.
                    Err(_) => tracing::warn!(table, column, rowid, "a sealed value does not open"),
                }
            }
            transaction.commit()?;
        }
    }
    Ok(())
}
