//! The one writer: a thread that takes all that is waiting, runs it in one transaction, and acknowledges after the
//! commit.
//!
//! **Invariant:** a job is acknowledged as done only when the transaction that holds it is on disk. **Invariant:** a
//! job that fails or panics takes back its own changes and nobody else's. The thread never sleeps to fill a batch: a
//! batch is what has gathered while the one before was being written.
//!
//! What may be lost ([`Later`]) waits in a queue of its own and is written when nothing durable waits, or at the latest
//! every [`LATER_EVERY`]; those transactions are not forced to disk, the next durable one takes them along.

use super::Db;
use super::runs::Recorder;
use crate::adapters::secrets::SecretBox;
use crate::domain::ids::KeyId;
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::engine::store_port::{StoreError, StoreResult};
use rusqlite::Connection;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Most jobs of one transaction.
const MAX_BATCH: usize = 256;
/// Most records written behind in one transaction.
const LATER_BATCH: usize = 256;
/// How long a record written behind may wait while the writer is busy or idle.
const LATER_EVERY: Duration = Duration::from_millis(200);

/// Why a whole batch was lost.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the transaction was not written: {0}")]
struct BatchLost(Arc<str>);

/// A job panicked; its changes were taken back.
#[derive(Debug, thiserror::Error)]
#[error("a store operation panicked")]
struct Panicked;

/// The store was closed, or its thread is gone.
#[derive(Debug, thiserror::Error)]
#[error("the store is closed or gave the operation up")]
struct Closed;

/// Tells the caller how its job ended; called after the commit.
type Acknowledge = Box<dyn FnOnce(Result<(), BatchLost>) + Send>;
/// Runs on the writer's connection; true when its changes shall stay.
type Job = Box<dyn FnOnce(&Db<'_>) -> (bool, Acknowledge) + Send>;

enum Message {
    Job(Job),
    /// Look at the other queue, or at whether to close.
    Wake,
    /// Write what may be lost, and tell.
    Flush(oneshot::Sender<()>),
}

/// What may be lost in a crash.
pub(super) enum Later {
    /// A finished run, and whether its organization's application is told.
    Run(Arc<Run>, bool),
    /// When keys were used.
    Touch(Vec<(KeyId, Timestamp)>),
}

/// What callers hold of the writer.
pub(super) struct Writer {
    jobs: SyncSender<Message>,
    later: SyncSender<Later>,
    shared: Arc<Shared>,
    finished: watch::Receiver<bool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    waiting_later: AtomicUsize,
    closing: AtomicBool,
}

impl Writer {
    /// Starts the thread. It holds `lock` until the last change is written.
    pub(super) fn start(
        conn: Connection,
        secrets: Arc<SecretBox>,
        lock: File,
        depth: usize,
        later_depth: usize,
    ) -> std::io::Result<Self> {
        let (jobs, job_queue) = sync_channel(depth);
        let (later, later_queue) = sync_channel(later_depth);
        let (finish, finished) = watch::channel(false);
        let shared = Arc::new(Shared::default());
        let thread = Thread { conn, secrets, jobs: job_queue, later: later_queue, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("toolgate-store-writer".to_owned()).spawn(move || {
            thread.run();
            drop(lock);
            let _ = finish.send(true);
        })?;
        Ok(Self { jobs, later, shared, finished, thread: Some(thread) })
    }

    /// Runs a job in the next transaction; returns when that is on disk.
    pub(super) async fn run<T, F>(&self, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> StoreResult<T> + Send + 'static,
    {
        if self.shared.closing.load(Ordering::Acquire) {
            return Err(closed());
        }
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            let result = guarded(|| job(db));
            let keep = result.is_ok();
            let acknowledge: Acknowledge = Box::new(move |written| {
                let result = match written {
                    Ok(()) => result,
                    // A refusal stands whatever became of the batch.
                    Err(lost) => result.and_then(|_| Err(StoreError::Unavailable(Box::new(lost)))),
                };
                let _ = answer.send(result);
            });
            (keep, acknowledge)
        });
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.jobs.try_send(Message::Job(job)) {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(match error {
                TrySendError::Full(_) => StoreError::Overloaded,
                TrySendError::Disconnected(_) => closed(),
            });
        }
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Queues what may be lost; false when the queue is full or the store closed.
    pub(super) fn later(&self, later: Later) -> bool {
        if self.shared.closing.load(Ordering::Acquire) {
            return false;
        }
        let waiting = self.shared.waiting_later.fetch_add(1, Ordering::Relaxed) + 1;
        if self.later.try_send(later).is_err() {
            self.shared.waiting_later.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if waiting.is_multiple_of(LATER_BATCH) {
            // A full queue of jobs means that the writer is awake anyway.
            let _ = self.jobs.try_send(Message::Wake);
        }
        true
    }

    /// Returns once everything that was queued to be written some time is written.
    pub(super) async fn flush(&self) -> StoreResult<()> {
        if self.shared.waiting_later.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let (done, flushed) = oneshot::channel();
        self.jobs.try_send(Message::Flush(done)).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Overloaded,
            TrySendError::Disconnected(_) => closed(),
        })?;
        flushed.await.map_err(|_| closed())
    }

    /// Jobs that wait.
    pub(super) fn depth(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Takes no more, writes what is queued, and returns when the database is closed.
    pub(super) async fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        let _ = self.jobs.try_send(Message::Wake);
        // An error means that the thread is gone, which is as good.
        let _ = self.finished.clone().wait_for(|finished| *finished).await;
    }
}

/// Waits for the thread, so that the file and its lock are free when the store is gone.
impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        let _ = self.jobs.try_send(Message::Wake);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable(Box::new(Closed))
}

/// Turns a panic of a job into an answer.
pub(super) fn guarded<T>(job: impl FnOnce() -> StoreResult<T>) -> StoreResult<T> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| Err(StoreError::Unavailable(Box::new(Panicked))))
}

struct Thread {
    conn: Connection,
    secrets: Arc<SecretBox>,
    jobs: Receiver<Message>,
    later: Receiver<Later>,
    shared: Arc<Shared>,
}

impl Thread {
    fn run(self) {
        let mut last_later = Instant::now();
        loop {
            let first = match self.jobs.recv_timeout(LATER_EVERY.saturating_sub(last_later.elapsed())) {
                Ok(Message::Job(job)) => Some(job),
                Ok(Message::Flush(done)) => {
                    self.flush(vec![done]);
                    None
                }
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Some(first) = first {
                self.write_batch(first);
            }
            if last_later.elapsed() >= LATER_EVERY {
                self.write_later();
                last_later = Instant::now();
            }
            while self.idle_with_a_portion() && self.write_later() > 0 {}
            if self.shared.closing.load(Ordering::Acquire) {
                break;
            }
        }
        self.finish();
    }

    fn idle_with_a_portion(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) == 0
            && self.shared.waiting_later.load(Ordering::Relaxed) >= LATER_BATCH
    }

    /// Writes what is still queued and folds the log into the database file.
    fn finish(self) {
        while let Ok(message) = self.jobs.try_recv() {
            match message {
                Message::Job(job) => self.write_batch(job),
                Message::Flush(done) => self.flush(vec![done]),
                Message::Wake => {}
            }
        }
        while self.write_later() > 0 {}
        if let Err(error) = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "the log was not folded into the database; the next start does it");
        }
    }

    /// Runs everything that waits in one transaction.
    fn write_batch(&self, first: Job) {
        let mut batch = Vec::with_capacity(8);
        let mut flushes = Vec::new();
        batch.push(first);
        while batch.len() < MAX_BATCH {
            match self.jobs.try_recv() {
                Ok(Message::Job(job)) => batch.push(job),
                Ok(Message::Flush(done)) => flushes.push(done),
                Ok(Message::Wake) => {}
                Err(_) => break,
            }
        }
        self.shared.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
        let mut acknowledgements = Vec::with_capacity(batch.len());
        let written = self.transaction(|db| {
            for job in batch {
                savepoint(db.conn, || {
                    let (keep, acknowledge) = job(db);
                    acknowledgements.push(acknowledge);
                    keep
                })?;
            }
            Ok(())
        });
        let written = written.map_err(|error| {
            tracing::error!(%error, "a transaction was not written");
            BatchLost(Arc::from(error.to_string()))
        });
        for acknowledge in acknowledgements {
            acknowledge(written.clone());
        }
        if !flushes.is_empty() {
            self.flush(flushes);
        }
    }

    /// Writes everything that may be lost and tells who asked for it.
    fn flush(&self, flushes: Vec<oneshot::Sender<()>>) {
        while self.write_later() > 0 {}
        for done in flushes {
            let _ = done.send(());
        }
    }

    /// Runs `work` in a transaction. Jobs that were not reached when it breaks are dropped, which their callers see.
    fn transaction(&self, work: impl FnOnce(&Db<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let db = Db { conn: &self.conn, secrets: &self.secrets };
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = work(&db).and_then(|()| self.conn.prepare_cached("COMMIT")?.execute([]).map(drop));
        if done.is_err() && !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK")?;
        }
        done
    }

    /// Writes a portion of what may be lost; how many there were.
    fn write_later(&self) -> usize {
        let portion: Vec<Later> = self.later.try_iter().take(LATER_BATCH).collect();
        let count = portion.len();
        if count == 0 {
            return 0;
        }
        let written = self.without_force(|| {
            self.transaction(|db| {
                let mut runs = Recorder::new(db)?;
                for later in portion {
                    // One statement takes itself back when it fails: it needs no savepoint.
                    if matches!(later, Later::Run(_, true)) {
                        savepoint(db.conn, || later.try_write(db, &mut runs))?;
                    } else {
                        later.try_write(db, &mut runs);
                    }
                }
                Ok(())
            })
        });
        // Lowered only now: who asks whether something is unwritten sees what is being written too.
        self.shared.waiting_later.fetch_sub(count, Ordering::Relaxed);
        if let Err(error) = written {
            tracing::error!(%error, count, "records were not written");
        }
        count
    }

    /// Runs `work` with commits that are ordered but not forced to disk.
    fn without_force(&self, work: impl FnOnce() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        self.conn.execute_batch("PRAGMA synchronous = NORMAL")?;
        let done = work();
        // Without this every later receipt would promise too much: better no writer than such a one.
        self.conn.execute_batch("PRAGMA synchronous = FULL").expect("a pragma outside a transaction cannot fail");
        done
    }
}

impl Later {
    fn write(self, db: &Db<'_>, runs: &mut Recorder<'_>) -> StoreResult<()> {
        match self {
            Later::Run(run, announced) => runs.record(&run, announced),
            Later::Touch(used) => super::keys::touch(db, &used),
        }
    }

    /// As [`Later::write`]; a failure is logged.
    fn try_write(self, db: &Db<'_>, runs: &mut Recorder<'_>) -> bool {
        let written = guarded(|| self.write(db, runs));
        if let Err(error) = &written {
            tracing::warn!(error = %Chain(error), "a record was not written");
        }
        written.is_ok()
    }
}

/// Runs one job inside the transaction, taking its changes back unless it says to keep them.
fn savepoint(conn: &Connection, job: impl FnOnce() -> bool) -> rusqlite::Result<()> {
    conn.prepare_cached("SAVEPOINT job")?.execute([])?;
    let keep = job();
    if conn.is_autocommit() {
        // The database gave the whole transaction up (a full disk does that): nothing before this job is kept either.
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT),
            Some("the database gave up the transaction".to_owned()),
        ));
    }
    if !keep {
        conn.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    conn.prepare_cached("RELEASE job")?.execute([])?;
    Ok(())
}

/// An error with its sources, for a log line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
