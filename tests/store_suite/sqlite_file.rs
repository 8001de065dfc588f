//! What is special about SQLite: one folder, one process, one key, one file.

use crate::fixtures::*;
use crate::mutations::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use toolgate::adapters::secrets::SecretBox;
use toolgate::adapters::store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use toolgate::domain::operation::OperationEvent;
use toolgate::domain::run::RunOutcome;
use toolgate::engine::store_port::{
    Admission, ChangedRun, KeptCallback, ReservedWrite, Store, WriteAnswer, WriteId, WriteReservation,
};

fn open_with(dir: &Path, current: [u8; 32], previous: Option<[u8; 32]>) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(dir, SecretBox::new(current, previous), SqliteOptions::default())
}

fn refusal(dir: &Path, current: [u8; 32]) -> OpenError {
    match open_with(dir, current, None) {
        Ok(_) => panic!("the store opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_second_process_on_the_folder_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = open_sqlite(dir.path());
    let error = refusal(dir.path(), MASTER_KEY);
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("another toolgate is running"), "{error}");
    first.close().await;
    open_with(dir.path(), MASTER_KEY, None).expect("a closed store gives the folder free");
}

/// An organization's start must not cost what strangers have sent to it.
#[tokio::test]
async fn bodies_that_belong_to_no_open_run_are_not_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_sqlite(dir.path());
    let (tenant, endpoint) = tenant_with_endpoint(&*store, "acme").await;
    let (mine, stray) = (callback(&endpoint, "mine", "p1"), callback(&endpoint, "stray", "p2"));
    for record in [&mine, &stray] {
        assert_eq!(store.keep_callback(record, HOUR, 9).await.unwrap(), KeptCallback::Early);
    }
    let run = pending_run(&*store, &endpoint).await;
    store.accept_run(tenant.org.id, run.intent.id, "p1", &attempt("answered"), T0).await.unwrap();
    let file = fs::read_dir(dir.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let file = file.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "db")).expect("the database");
    let conn = rusqlite::Connection::open(file).expect("it opens");
    let spoiled = conn.execute("UPDATE callbacks SET body = x'00' WHERE webhook_id = 'stray'", ());
    assert_eq!(spoiled.expect("it is written"), 1);
    assert_eq!(store.early_callbacks(tenant.org.id, T0).await.unwrap(), [(run.intent.id, mine)]);
    let spoiled = conn.execute("UPDATE runs SET arguments = x'00'", ());
    assert_eq!(spoiled.expect("it is written"), 1);
    assert_eq!(store.open_runs(tenant.org.id).await.unwrap().len(), 1, "nor are arguments");
}

#[tokio::test]
async fn another_master_key_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    tenant_with_endpoint(&*open_sqlite(dir.path()), "acme").await;
    let error = refusal(dir.path(), [8; 32]);
    assert!(matches!(error, OpenError::WrongKey), "{error}");
    assert!(error.to_string().contains("the master key is not the one"), "{error}");
    open_with(dir.path(), MASTER_KEY, None).expect("the right one still opens");
}

#[tokio::test]
async fn after_one_start_with_both_keys_the_former_one_is_needed_no_more() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_sqlite(dir.path());
    let (tenant, endpoint) = tenant_with_endpoint(&*store, "acme").await;
    let run = finished_run(&endpoint, T0);
    store.insert_run(&run, Admission::default()).await.unwrap();
    let settled = pending_run(&*store, &endpoint).await;
    let change = change(&settled, RunOutcome::completed(json(r#"{"sealed":"by itself"}"#)));
    let ChangedRun::Changed(settled) = store.change_run(&change).await.unwrap() else { panic!("it was open") };
    let open = pending_run(&*store, &endpoint).await;
    let early = callback(&endpoint, "w:1 'ü'", "p1");
    let kept = store.keep_callback(&early, HOUR, 9).await.unwrap();
    assert_eq!(kept, KeptCallback::Early);
    let (sent, mut operation) = sent_run(&*store, &endpoint).await;
    let mut receipt = after_event(&operation.progress, OperationEvent::Unclear, after(1));
    receipt.receipt = Some(json("[]"));
    store.update_operation(tenant.org.id, sent.intent.id, &receipt).await.unwrap();
    operation.progress = receipt;
    let write = WriteReservation {
        id: WriteId { scope: "operator".to_owned(), key: "k:1 'ü'".to_owned() },
        content_hash: [1; 32],
        at: T0,
        expires_at: T0.plus(HOUR),
    };
    let answer = WriteAnswer { status: 200, headers: Vec::new(), body: b"written".to_vec() };
    assert_eq!(store.reserve_write(&write).await.unwrap(), ReservedWrite::New);
    store.answer_write(&write.id, &answer).await.unwrap();
    drop(store);

    let rotated = open_with(dir.path(), [8; 32], Some(MASTER_KEY)).expect("both keys are known");
    assert_eq!(rotated.endpoint(tenant.org.id, endpoint.id).await.unwrap(), Some(endpoint.clone()));
    drop(rotated);
    let store = open_with(dir.path(), [8; 32], None).expect("the new key is enough");
    assert_eq!(store.endpoint(tenant.org.id, endpoint.id).await.unwrap(), Some(endpoint));
    assert_eq!(store.run(tenant.org.id, run.intent.id).await.unwrap(), Some(run));
    assert_eq!(store.org(tenant.org.id).await.unwrap(), Some(tenant.org.clone()), "with its reviewer");
    assert_eq!(store.operation(tenant.org.id, sent.intent.id).await.unwrap(), Some(operation));
    assert_eq!(store.reserve_write(&write).await.unwrap(), ReservedWrite::Answered(answer));
    assert_eq!(store.run(tenant.org.id, settled.intent.id).await.unwrap(), Some(*settled));
    let id = open.intent.id;
    let answered = store.accept_run(tenant.org.id, id, "p1", &attempt("answered"), after(1)).await.unwrap();
    assert_eq!(answered, Some(early));
    drop(store);
    assert!(matches!(refusal(dir.path(), MASTER_KEY), OpenError::WrongKey));
}

#[tokio::test]
async fn nothing_secret_can_be_read_in_the_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_sqlite(dir.path());
    let (tenant, endpoint) = tenant_with_endpoint(&*store, "acme").await;
    store.insert_run(&finished_run(&endpoint, T0), Admission::default()).await.unwrap();
    let run = pending_run(&*store, &endpoint).await;
    let error = json(r#"{"code":"x","message":"provider-said-so"}"#);
    let mut outcome = RunOutcome::completed(json(r#""settled-secret""#));
    outcome.error = Some(toolgate::domain::run::RunError::Provider(error));
    let mut changed = change(&run, outcome);
    changed.withheld_result = Some(json(r#""withheld-secret""#));
    store.change_run(&changed).await.unwrap();
    store.keep_callback(&callback(&endpoint, "w1", "p1"), HOUR, 9).await.unwrap();
    assert!(store.record_later(std::sync::Arc::new(finished_run(&endpoint, T0)), false));

    let (sent, operation) = sent_run(&*store, &endpoint).await;
    let mut receipt = after_event(&operation.progress, OperationEvent::Unclear, after(1));
    receipt.receipt = Some(json(r#""receipt-secret""#));
    store.update_operation(tenant.org.id, sent.intent.id, &receipt).await.unwrap();
    let id = WriteId { scope: "operator".to_owned(), key: "k".to_owned() };
    let write = WriteReservation { id, content_hash: [1; 32], at: T0, expires_at: T0.plus(HOUR) };
    store.reserve_write(&write).await.unwrap();
    let answer = WriteAnswer {
        status: 200,
        headers: vec![("location".to_owned(), "answer-secret".to_owned())],
        body: Vec::new(),
    };
    store.answer_write(&write.id, &answer).await.unwrap();
    listen(&*store, tenant.org.id).await;

    let contains = |needle: &str| {
        fs::read_dir(dir.path()).expect("a folder").any(|file| {
            let bytes = fs::read(file.expect("a file").path()).expect("readable");
            bytes.windows(needle.len()).any(|part| part == needle.as_bytes())
        })
    };
    let look = |when: &str| {
        assert!(contains("weather-report"), "the search finds what is there, {when}");
        for secret in [
            "s3cr3t-of-the-provider",
            "whsec_current-secret",
            "whsec_former-secret",
            "Secretville",
            "confidential-blue",
            "settled-secret",
            "withheld-secret",
            "provider-said-so",
            "early-secret-payload",
            "whsec_of-the-reviewer",
            "whsec_of-the-webhook",
            "body-secret",
            "receipt-secret",
            "answer-secret",
            "acme agent",
            "acme workspace",
        ] {
            assert!(!contains(secret), "{secret} {when}");
        }
    };
    look("while it is open");
    store.close().await;
    look("when it is closed");
}

/// What is on disk after an acknowledgement is what a process that dies right then leaves behind.
#[tokio::test]
async fn the_files_of_a_process_that_dies_hold_everything_acknowledged() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_sqlite(dir.path());
    let (tenant, endpoint) = tenant_with_endpoint(&*store, "acme").await;
    let run = pending_run(&*store, &endpoint).await;
    let left = tempfile::tempdir().expect("a folder");
    for name in ["toolgate.db", "toolgate.db-wal"] {
        fs::copy(dir.path().join(name), left.path().join(name)).expect("copied");
    }
    let after_the_crash = open_sqlite(left.path());
    assert_eq!(after_the_crash.run(tenant.org.id, run.intent.id).await.unwrap().as_ref(), Some(&run));
    assert_eq!(after_the_crash.load_org(tenant.org.id).await.unwrap(), store.load_org(tenant.org.id).await.unwrap());
}

#[tokio::test]
async fn migrations_run_once_and_a_newer_file_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    for _ in 0..3 {
        let status = open_sqlite(dir.path()).status().await.unwrap();
        assert_eq!((status.kind, status.migration), ("sqlite", SqliteStore::MIGRATION));
    }
    let file = rusqlite::Connection::open(dir.path().join("toolgate.db")).expect("opens");
    let version: u32 = file.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a number");
    assert_eq!(version, SqliteStore::MIGRATION);
    file.execute_batch("PRAGMA user_version = 999").expect("set");
    drop(file);
    let error = refusal(dir.path(), MASTER_KEY);
    assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error}");
    assert!(error.to_string().contains("newer toolgate"), "{error}");
}

#[test]
fn a_file_that_is_no_database_and_a_folder_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("toolgate.db"), "not a database at all, but long enough to tell").expect("written");
    let error = refusal(dir.path(), MASTER_KEY);
    assert!(matches!(error, OpenError::Database { .. }), "{error}");
    let error = refusal(&dir.path().join("toolgate.db").join("below-a-file"), MASTER_KEY);
    assert!(matches!(error, OpenError::File { .. }), "{error}");
}

#[tokio::test]
async fn the_files_are_closed_to_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let store = open_sqlite(&data);
    store.ping().await.unwrap();
    assert_eq!(fs::metadata(&data).expect("it is there").mode() & 0o777, 0o700);
    let mut names = Vec::new();
    for file in fs::read_dir(&data).expect("a folder") {
        let file = file.expect("a file");
        assert_eq!(file.metadata().expect("it is there").mode() & 0o777, 0o600, "{:?}", file.path());
        names.push(file.file_name().into_string().expect("a name"));
    }
    names.sort();
    assert_eq!(names, ["toolgate.db", "toolgate.db-shm", "toolgate.db-wal", "toolgate.lock"]);
}

#[tokio::test]
async fn every_operation_is_timed_under_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let timer = Arc::new(move |op: &'static str, _took| log.lock().expect("not poisoned").push(op));
    let options = SqliteOptions { timer: Some(timer), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), SecretBox::new(MASTER_KEY, None), options).expect("opens");
    let (_, endpoint) = tenant_with_endpoint(&store, "acme").await;
    pending_run(&store, &endpoint).await;
    let expected = ["create_org", "create_agent_key", "create_endpoint", "insert_run"];
    assert_eq!(*seen.lock().expect("not poisoned"), expected);
}

#[test]
fn the_store_serves_any_runtime() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_sqlite(dir.path());
    std::thread::scope(|scope| {
        for number in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(tenant(&**store, &format!("org-{number}")));
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    assert_eq!(runtime.block_on(store.status()).expect("it answers").orgs, 4);
}
