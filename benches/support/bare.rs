//! A bare SQLite insert with the store's durability (WAL, `synchronous=FULL`), one transaction each.

use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the document that is inserted.
const DOCUMENT: usize = 600;

/// Inserts a second, into a database of its own in `folder`.
pub fn inserts_per_second(folder: &Path, for_long: Duration) -> f64 {
    let connection = Connection::open(folder.join("bare.db")).expect("a database");
    connection.pragma_update(None, "journal_mode", "WAL").expect("WAL");
    connection.pragma_update(None, "synchronous", "FULL").expect("FULL");
    connection.execute("CREATE TABLE IF NOT EXISTS runs (id BLOB PRIMARY KEY, document TEXT)", []).expect("a table");
    let document = "x".repeat(DOCUMENT);
    let begun = Instant::now();
    let mut count = 0u32;
    while begun.elapsed() < for_long {
        let id = uuid::Uuid::now_v7();
        connection
            .prepare_cached("INSERT INTO runs VALUES (?1, ?2)")
            .and_then(|mut insert| insert.execute((id.as_bytes().as_slice(), &document)))
            .expect("an insert");
        count += 1;
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}
