//! Many verbs in one transaction: what they share, and what they do not.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rusqlite::Connection;
use wasmcron_store::StoreError;
use wasmcron_store::embedded::engine::{Engine as _, Key, Tx as _};

use crate::support::*;

/// A connection of somebody else who is about to write.
fn blocker(path: &std::path::Path) -> Connection {
    let other = Connection::open(path).expect("another connection");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    other
}

fn log_bytes(path: &std::path::Path) -> u64 {
    let log = format!("{}-wal", path.display());
    std::fs::metadata(log).map_or(0, |log| log.len())
}

#[test]
fn an_error_takes_back_its_own_verb_only() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        let verbs = (0..100).map(|number| {
            engine.write("write", move |tx| {
                tx.put(Key::new("", number, "a"), note("x"))?;
                match number % 3 {
                    0 => Err(bad("write")),
                    1 => panic!("a fault in a verb"),
                    _ => Ok(()),
                }
            })
        });
        let answers = join_all(verbs).await;
        let good = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(good, 33);
        assert_eq!(count(&engine).await, 33);
    });
}

/// Verbs that waited together are flushed together.
#[test]
fn verbs_that_wait_share_a_commit() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("first"), "x").await.unwrap();
        let before = log_bytes(&path);
        let other = blocker(&path);
        let verbs = (0..100).map(|number| {
            engine.write("write", move |tx| {
                tx.put(Key::new("", number, "a"), note("x"))
            })
        });
        let free = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            other.execute_batch("ROLLBACK").unwrap();
        };
        let (answers, ()) = tokio::join!(join_all(verbs), free);
        assert!(answers.iter().all(Result::is_ok));
        // Alone, each of them would write three pages or more.
        let frames = (log_bytes(&path) - before) / 4_096;
        assert!(frames < 60, "{frames} pages for 100 verbs");
    });
}

/// The commit fails: nobody is told that his verb was kept, and none was.
#[test]
fn a_failed_commit_fails_all() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("first"), "x").await.unwrap();
        // A constraint that is checked at the commit alone.
        let hand = Connection::open(&path).unwrap();
        hand.execute_batch(
            "CREATE TABLE parents (id INTEGER PRIMARY KEY);
             CREATE TABLE children (id INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER poison AFTER INSERT ON notes WHEN new.name = 'poison'
             BEGIN INSERT INTO children VALUES (1); END;",
        )
        .unwrap();
        let other = blocker(&path);
        let verbs = ["a", "b", "poison", "c"].map(|name| put(&engine, Key::named(name), name));
        let mut told = engine.wakes();
        let waking = engine.write("wake", |tx| {
            tx.wake(wasmcron_store::control::Wake::Due);
            Ok(())
        });
        let free = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            other.execute_batch("ROLLBACK").unwrap();
        };
        let (answers, woken, ()) = tokio::join!(join_all(verbs), waking, free);
        // The first may have been taken before the others came.
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        assert!(failed >= 3, "{answers:?}");
        assert!(woken.is_err() && told.try_recv().is_err());
        assert_eq!(count(&engine).await, u64::try_from(5 - failed).unwrap());
        // The engine goes on.
        hand.execute_batch("DROP TRIGGER poison").unwrap();
        put(&engine, Key::named("poison"), "x").await.unwrap();
    });
}

#[test]
fn reading_never_waits_for_a_writer_and_writing_waits_for_a_time() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open_impatient(&path, Duration::from_millis(300)).await;
        put(&engine, Key::named("a"), "old").await.unwrap();
        let other = blocker(&path);
        other
            .execute("UPDATE notes SET value = '{\"text\":\"new\"}'", [])
            .unwrap();
        let began = Instant::now();
        let read = get(&engine, Key::named("a")).await.unwrap();
        assert_eq!(read.as_deref(), Some("old"));
        assert!(
            began.elapsed() < Duration::from_millis(250),
            "{:?}",
            began.elapsed()
        );
        let answer = put(&engine, Key::named("a"), "mine").await;
        let Err(StoreError::Unavailable { message, .. }) = &answer else {
            panic!("{answer:?}");
        };
        assert!(
            message.contains("store.db was locked by another process"),
            "{message}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(
            get(&engine, Key::named("a")).await.unwrap().as_deref(),
            Some("new")
        );
        put(&engine, Key::named("a"), "mine").await.unwrap();
    });
}

/// More verbs than the queue holds, and nobody serves it: each is told in time.
#[test]
fn a_full_queue_is_an_answer() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open_impatient(&path, Duration::from_millis(200)).await;
        let other = blocker(&path);
        let began = Instant::now();
        let verbs = (0..3_000).map(|number| {
            engine.write("write", move |tx| {
                tx.put(Key::new("", number, ""), note("x"))
            })
        });
        let answers = join_all(verbs).await;
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        let told = |words: &str| {
            let says = |answer: &&wasmcron_store::Result<()>| matches!(answer, Err(StoreError::Unavailable { message, .. }) if message.contains(words));
            answers.iter().filter(says).count()
        };
        assert!(told("verbs wait already") > 1_000);
        assert!(told("locked by another process") > 0);
        assert!(answers.iter().all(Result::is_err));
        other.execute_batch("ROLLBACK").unwrap();
        // Callers who gave up are not served behind their backs.
        put(&engine, Key::named("after"), "x").await.unwrap();
        assert_eq!(count(&engine).await, 1);
    });
}

/// Readers come and go without a pause while much is written: the log stays bounded.
#[test]
fn the_log_stays_small_and_goes_away() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = std::sync::Arc::new(open(&path).await);
        let text = "x".repeat(16_000);
        put(&engine, Key::named("0"), &text).await.unwrap();
        let reading = {
            let engine = engine.clone();
            tokio::spawn(async move {
                loop {
                    let reads = (0..8).map(|_| get(&engine, Key::named("0")));
                    assert!(join_all(reads).await.iter().all(Result::is_ok));
                }
            })
        };
        let mut most = 0;
        for round in 0..120 {
            let writes = (0..64).map(|number: i64| {
                put(
                    &engine,
                    Key::new("", number % 200, &round.to_string()),
                    &text,
                )
            });
            assert!(join_all(writes).await.iter().all(Result::is_ok));
            most = most.max(log_bytes(&path));
        }
        println!("written 120 MiB, the log had {} KiB at most", most / 1_024);
        assert!(most < 48 * 1_024 * 1_024, "{most}");
        reading.abort();
        let _ = reading.await;
        drop(engine);
        assert_eq!(log_bytes(&path), 0);
        assert!(!std::path::Path::new(&format!("{}-wal", path.display())).exists());
    });
}

/// Somebody reads for minutes: the log grows, an operator is told, and it shrinks once he is done.
#[test]
fn a_reader_that_stays_is_told_of() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN").unwrap();
        let seen: i64 = other
            .query_row("SELECT count(*) FROM notes", [], |row| row.get(0))
            .unwrap();
        assert_eq!(seen, 1);
        for number in 0..100 {
            // Other bytes each time: SQLite does not write what stands there already.
            let text = number.to_string().repeat(500_000);
            put(&engine, Key::new("", number % 4, "big"), &text)
                .await
                .unwrap();
        }
        let warnings = engine.warnings().await.unwrap().join("\n");
        assert!(
            warnings.contains("a process keeps an old view of the store open"),
            "{warnings}"
        );
        other.execute_batch("ROLLBACK").unwrap();
        let began = Instant::now();
        while log_bytes(&path) > 16 * 1_024 * 1_024 {
            put(&engine, Key::named("a"), "x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{}",
                log_bytes(&path)
            );
        }
        let warnings = engine.warnings().await.unwrap().join("\n");
        assert!(!warnings.contains("old view"), "{warnings}");
    });
}
