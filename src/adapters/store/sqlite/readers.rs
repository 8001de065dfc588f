//! A few reader threads, each with a connection of its own, fed from one bounded queue.

use super::Db;
use super::writer::{closed, guarded};
use crate::adapters::secrets::SecretBox;
use crate::engine::store_port::{StoreError, StoreResult};
use rusqlite::Connection;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&Db<'_>) + Send>;

/// What callers hold of the readers.
pub(super) struct Readers {
    jobs: Mutex<Option<SyncSender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Starts one thread a connection.
    pub(super) fn start(connections: Vec<Connection>, secrets: &Arc<SecretBox>, depth: usize) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(depth);
        let queue = Arc::new(Mutex::new(queue));
        let threads = connections
            .into_iter()
            .map(|conn| {
                let (queue, secrets) = (Arc::clone(&queue), Arc::clone(secrets));
                std::thread::Builder::new()
                    .name("toolgate-store-reader".to_owned())
                    .spawn(move || serve(&conn, &secrets, &queue))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), threads: Mutex::new(threads) })
    }

    /// Runs a job on one committed state of the database.
    pub(super) async fn run<T, F>(&self, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> StoreResult<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            let _ = answer.send(guarded(|| {
                // Dropped at the end, which ends the read.
                let _state = db.conn.unchecked_transaction()?;
                job(db)
            }));
        });
        match self.jobs.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            None => return Err(closed()),
            Some(jobs) => match jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => return Err(StoreError::Overloaded),
                Err(TrySendError::Disconnected(_)) => return Err(closed()),
            },
        }
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Answers what is queued and ends the threads.
    pub(super) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

fn serve(conn: &Connection, secrets: &SecretBox, queue: &Mutex<Receiver<Job>>) {
    let db = Db { conn, secrets };
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(&db),
            Err(_) => return,
        }
    }
}
