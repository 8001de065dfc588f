//! What only shows from inside: one batch, a full queue, a panic.

use super::*;
use crate::engine::store_port::Store;
use futures_util::future::join_all;
use std::sync::mpsc::{Receiver, Sender, channel};

fn open_in(dir: &std::path::Path, options: SqliteOptions) -> SqliteStore {
    SqliteStore::open(dir, SecretBox::new([1; 32], None), options).expect("the store opens")
}

fn note(store: &SqliteStore, name: &'static str, fails: bool) -> impl Future<Output = StoreResult<()>> {
    store.write("test", move |db| {
        db.execute("INSERT INTO meta (name, value) VALUES (?1, x'00')", (name,))?;
        if fails { Err(StoreError::InUse) } else { Ok(()) }
    })
}

async fn noted(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT name FROM meta WHERE name LIKE 'note%' ORDER BY name";
    store.read("test", move |db| db.all(sql, (), |row| Ok(row.get(0)?))).await.expect("it reads")
}

/// Occupies the writer until the sender says so; the receiver hears when it is occupied.
fn occupy(store: &SqliteStore) -> (impl Future<Output = StoreResult<()>>, Receiver<()>, Sender<()>) {
    let (go, wait) = channel();
    let (tell, occupied) = channel();
    let job = store.write("test", move |_| {
        tell.send(()).expect("the test listens");
        wait.recv().expect("the test says so");
        Ok(())
    });
    (job, occupied, go)
}

#[tokio::test]
async fn jobs_of_one_batch_fail_and_panic_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_in(dir.path(), SqliteOptions::default());
    let (blocker, occupied, go) = occupy(&store);
    let panics = store.write("test", |db| -> StoreResult<()> {
        db.execute("INSERT INTO meta (name, value) VALUES ('note-panicked', x'00')", ())?;
        panic!("a bug in a job");
    });
    let release = async {
        while occupied.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        go.send(()).expect("the writer waits");
        Ok(())
    };
    let jobs = async {
        tokio::join!(note(&store, "note-1", false), note(&store, "note-2", true), panics, note(&store, "note-3", false))
    };
    // Polled in this order: the blocker is in the queue first, the jobs behind it, then it is let go.
    let (blocked, (one, two, three, four), released) = tokio::join!(blocker, jobs, release);
    let _: StoreResult<()> = released;
    assert!(blocked.is_ok() && one.is_ok() && four.is_ok());
    assert!(matches!(two, Err(StoreError::InUse)));
    assert!(matches!(three, Err(StoreError::Unavailable(_))));
    assert_eq!(noted(&store).await, ["note-1", "note-3"]);
    note(&store, "note-4", false).await.expect("the writer has survived");
    let read: StoreResult<()> = store.read("test", |_| panic!("a bug in a read")).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))));
    assert_eq!(noted(&store).await.len(), 3, "the readers have survived");
}

#[tokio::test]
async fn a_lost_transaction_is_lost_for_everyone_in_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_in(dir.path(), SqliteOptions::default());
    let gives_up = store.write("test", |db| {
        db.conn.execute_batch("ROLLBACK")?;
        Ok(())
    });
    assert!(matches!(gives_up.await, Err(StoreError::Unavailable(_))));
    note(&store, "note-1", false).await.expect("the writer has survived");
    assert_eq!(noted(&store).await, ["note-1"]);
}

#[tokio::test]
async fn a_full_queue_is_an_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = SqliteOptions { queue_depth: 2, later_depth: 2, ..SqliteOptions::default() };
    let store = open_in(dir.path(), options);
    let (blocker, occupied, go) = occupy(&store);
    let flood = async {
        while occupied.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let names = ["note-1", "note-2", "note-3", "note-4"];
        let mut waiting: Vec<_> = names.iter().map(|name| Box::pin(note(&store, name, false))).collect();
        let full = futures_util::future::poll_fn(|cx| {
            let polled: Vec<_> = waiting.iter_mut().map(|job| job.as_mut().poll(cx)).collect();
            std::task::Poll::Ready(polled)
        })
        .await;
        let refused = full.iter().filter(|p| matches!(p, std::task::Poll::Ready(Err(StoreError::Overloaded)))).count();
        assert_eq!((refused, store.writer.depth()), (2, 2));
        assert!(store.writer.later(writer::Later::Touch(Vec::new())));
        assert!(store.writer.later(writer::Later::Touch(Vec::new())));
        assert!(!store.writer.later(writer::Later::Touch(Vec::new())), "what may be lost is dropped, and it shows");
        go.send(()).expect("the writer waits");
        let rest = waiting.into_iter().take(2);
        assert!(join_all(rest).await.iter().all(Result::is_ok));
    };
    let (blocked, ()) = tokio::join!(blocker, flood);
    blocked.expect("the blocker ends well");
    assert_eq!(noted(&store).await, ["note-1", "note-2"]);
    store.close().await;
    assert!(!store.writer.later(writer::Later::Touch(Vec::new())));
}

#[tokio::test]
async fn records_are_written_behind_without_a_close() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_in(dir.path(), SqliteOptions::default());
    for _ in 0..1000 {
        assert!(store.writer.later(writer::Later::Touch(Vec::new())));
    }
    // The writer drains on its own: the queue takes far more than its depth in the end.
    let mut taken = 0;
    while taken < 40_000 {
        if store.writer.later(writer::Later::Touch(Vec::new())) {
            taken += 1;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn receipts_are_forced_to_disk_and_readers_cannot_write() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_in(dir.path(), SqliteOptions::default());
    assert!(store.writer.later(writer::Later::Touch(Vec::new())));
    for _ in 0..3 {
        let forced = store.write("test", |db| Ok(db.conn.query_row("PRAGMA synchronous", [], |row| row.get(0))?));
        let forced: i64 = forced.await.expect("a number");
        assert_eq!(forced, 2, "FULL");
    }
    let mode = store.write("test", |db| Ok(db.conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?));
    let mode: String = mode.await.expect("a word");
    assert_eq!(mode, "wal");
    let written = store.read("test", |db| db.execute("DELETE FROM meta", ())).await;
    assert!(written.is_err());
}
