//! What does a durable write cost? Runs inserted by so many tasks at once, against a bare SQLite insert of the same size
//! with the same durability (WAL, `synchronous=FULL`), one transaction each.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{bare, fixture};
use tempfile::TempDir;
use toolgate::engine::ports::Store;
use toolgate::engine::store_port::Admission;

const FOR: Duration = Duration::from_secs(2);

fn main() {
    let folder = TempDir::new().expect("a temporary folder");
    let bare = bare::inserts_per_second(folder.path(), FOR);
    println!("{:<44} {bare:>10.0} /s   (baseline)", "bare SQLite insert, durable");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store: Arc<dyn Store> = fixture::open_store(&folder.path().join("store"));
        let org = fixture::add_org(store.as_ref(), 0, 1).await;
        for tasks in [1, 16, 64] {
            let rate = inserts_per_second(&store, &org, tasks).await;
            let what = format!("insert_run, {tasks} at once");
            println!("{what:<44} {rate:>10.0} /s   {:>6.2} × bare", rate / bare);
        }
        let begun = Instant::now();
        let mut taken = 0u32;
        while begun.elapsed() < FOR {
            if store.record_later(std::sync::Arc::new(fixture::finished_run(&org)), false) {
                taken += 1;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let rate = f64::from(taken) / begun.elapsed().as_secs_f64();
        println!("{:<44} {rate:>10.0} /s   {:>6.2} × bare", "record_later, as fast as the queue takes", rate / bare);
        store.close().await;
    });
}

async fn inserts_per_second(store: &Arc<dyn Store>, org: &fixture::BenchOrg, tasks: usize) -> f64 {
    let begun = Instant::now();
    let workers: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, org) = (Arc::clone(store), org.clone());
            tokio::spawn(async move {
                let mut count = 0u32;
                while begun.elapsed() < FOR {
                    store.insert_run(&fixture::open_run(&org), Admission::default()).await.expect("stored");
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for worker in workers {
        count += worker.await.expect("no panic");
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}
