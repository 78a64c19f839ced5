//! Wake-ups between tasks and between processes that share a file.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;
use wasmcron_core::ids::PodAddress;
use wasmcron_store::control::Wake;
use wasmcron_store::embedded::engine::{Engine as _, Key, Tx as _};
use wasmcron_store::sqlite::SqliteEngine;

use crate::support::*;

const PATIENCE: Duration = Duration::from_secs(10);

async fn next(wakes: &mut Receiver<Wake>) -> Wake {
    let wake = timeout(PATIENCE, wakes.recv()).await;
    wake.expect("no wake-up").expect("a wake-up")
}

async fn wake(engine: &SqliteEngine, wake: Wake) {
    let told = engine.write("wake", move |tx| {
        tx.wake(wake);
        Ok(())
    });
    told.await.expect("told");
}

async fn queued(engine: &SqliteEngine, pod: &PodAddress) {
    let pod = pod.clone();
    let told = engine.write("queue", move |tx| {
        tx.queued(&pod);
        Ok(())
    });
    told.await.expect("told");
}

fn pod(name: &str) -> PodAddress {
    name.parse().expect("an address")
}

#[test]
fn tasks_of_one_process_hear_at_once_and_once() {
    on_runtime(async {
        let (_folder, path) = folder();
        for engine in [open(&path).await, memory().await] {
            let mut wakes = engine.wakes();
            let (mut a, b) = (
                engine.queue_changes(&pod("a")),
                engine.queue_changes(&pod("b")),
            );
            wake(&engine, Wake::Due).await;
            assert_eq!(wakes.try_recv(), Ok(Wake::Due));
            queued(&engine, &pod("a")).await;
            assert!(a.has_changed().unwrap());
            assert!(*a.borrow_and_update() > 0);
            assert!(!b.has_changed().unwrap());
            // Its own rows are not told a second time when the file is looked at.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            assert!(wakes.try_recv().is_err());
            assert!(!a.has_changed().unwrap());
        }
    });
}

#[test]
fn what_a_failed_verb_told_nobody_hears() {
    on_runtime(async {
        let (_folder, path) = folder();
        let (engine, other) = (open(&path).await, open(&path).await);
        let (mut wakes, mut others) = (engine.wakes(), other.wakes());
        let failed = engine.write("fail", |tx| {
            tx.wake(Wake::LeaderFree);
            Err::<(), _>(bad("fail"))
        });
        assert!(failed.await.is_err());
        wake(&engine, Wake::Jobs).await;
        assert_eq!(next(&mut wakes).await, Wake::Jobs);
        assert_eq!(next(&mut others).await, Wake::Jobs);
    });
}

/// Each engine is what another process would be: nothing but the file is shared.
#[test]
fn others_hear_in_order_and_soon() {
    on_runtime(async {
        let (_folder, path) = folder();
        let (one, two) = (open(&path).await, open(&path).await);
        let mut wakes = two.wakes();
        let mut changes = two.queue_changes(&pod("b"));
        for left in ["x", "y", "z"] {
            wake(&one, Wake::Left { pod: pod(left) }).await;
        }
        for left in ["x", "y", "z"] {
            assert_eq!(next(&mut wakes).await, Wake::Left { pod: pod(left) });
        }
        let mut took = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            queued(&one, &pod("b")).await;
            timeout(PATIENCE, changes.changed())
                .await
                .expect("a change")
                .expect("a sender");
            took.push(began.elapsed());
        }
        took.sort();
        // By the watch, not by the slow look of every second.
        assert!(took[10] < Duration::from_millis(300), "{took:?}");
    });
}

/// The file that is watched went away: the slow look serves.
#[test]
fn a_lost_watch_costs_a_second() {
    on_runtime(async {
        let (folder, path) = folder();
        let (one, two) = (open(&path).await, open(&path).await);
        std::fs::remove_file(folder.path().join("store.db-wake")).unwrap();
        let mut wakes = two.wakes();
        wake(&one, Wake::Due).await;
        assert_eq!(next(&mut wakes).await, Wake::Due);
    });
}

/// Signals that were removed before somebody read them: he is told to look at everything.
#[test]
fn who_missed_signals_looks_at_everything() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let mut wakes = engine.wakes();
        let mut changes = engine.queue_changes(&pod("a"));
        let hand = Connection::open(&path).unwrap();
        let sql = "INSERT INTO wasmcron_signals VALUES (5000, 1, 0, '{\"wake\":\"due\"}')";
        hand.execute(sql, []).unwrap();
        assert_eq!(next(&mut wakes).await, Wake::Subscribed);
        timeout(PATIENCE, changes.changed()).await.unwrap().unwrap();
        // Numbers that begin anew.
        hand.execute("DELETE FROM wasmcron_signals", []).unwrap();
        assert_eq!(next(&mut wakes).await, Wake::Subscribed);
        // What a newer version tells is skipped.
        let sql = "INSERT INTO wasmcron_signals VALUES (1, 1, 7, 'news'), (2, 1, 0, '{\"wake\":\"due\"}')";
        hand.execute(sql, []).unwrap();
        assert_eq!(next(&mut wakes).await, Wake::Due);
    });
}

#[test]
fn signals_are_trimmed() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        for number in 0..1_200 {
            let pod = pod(&format!("pod-{number}"));
            let told = engine.write("queue", move |tx| {
                tx.queued(&pod);
                Ok(())
            });
            told.await.unwrap();
        }
        let hand = Connection::open(&path).unwrap();
        let rows: i64 = hand
            .query_row("SELECT count(*) FROM wasmcron_signals", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(rows, 1_000);
    });
}
