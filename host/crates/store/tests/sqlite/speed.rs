//! How many verbs a second, beside what the disk allows one after another. Printed, not judged:
//! `cargo test --release -p wasmcron-store --test sqlite speed -- --ignored --nocapture`

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use wasmcron_store::embedded::engine::{Engine as _, Key, Tx as _};

use crate::support::*;

/// How long each measure takes.
const FOR: Duration = Duration::from_secs(2);

/// A second's worth of what happened in a time.
fn rate(count: i64, began: Instant) -> i64 {
    let millis = i64::try_from(began.elapsed().as_millis()).expect("a short time");
    count * 1_000 / millis.max(1)
}

fn raw(path: &std::path::Path, text: &str) -> i64 {
    let hand = Connection::open(path).expect("a connection");
    hand.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE raw (value TEXT)",
    )
    .expect("a table");
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < FOR {
        hand.prepare_cached("INSERT INTO raw VALUES (?1)")
            .and_then(|mut insert| insert.execute([text]))
            .expect("a row");
        count += 1;
    }
    rate(count, began)
}

#[test]
#[ignore = "measures; says nothing about right or wrong"]
fn verbs_a_second() {
    on_runtime(async {
        let folder =
            tempfile::tempdir_in(std::env::var("WASMCRON_SPEED_IN").unwrap_or("/tmp".into()));
        let folder = folder.expect("a folder");
        let text = "x".repeat(500);
        println!(
            "raw INSERT and COMMIT: {}/s",
            raw(&folder.path().join("raw.db"), &text)
        );
        for callers in [1, 16, 64, 256] {
            let path = folder.path().join(format!("{callers}.db"));
            let engine = Arc::new(open(&path).await);
            let began = Instant::now();
            let work = (0..callers).map(|caller: i64| {
                let (engine, text) = (engine.clone(), text.clone());
                tokio::spawn(async move {
                    let (mut done, mut longest) = (0, Duration::ZERO);
                    while began.elapsed() < FOR {
                        let started = Instant::now();
                        let (key, record) = (
                            Key::new("job", done, &caller.to_string()),
                            note(&format!("{done} {text}")),
                        );
                        // About what a verb does: look, write a record, move another.
                        let verb = engine.write("verb", move |tx| {
                            tx.get::<Note>(&Key::new("job", done - 1, "x"))?;
                            tx.put(Key::named(&caller.to_string()), record.clone())?;
                            tx.put(key, record)
                        });
                        verb.await.expect("a verb");
                        longest = longest.max(started.elapsed());
                        done += 1;
                    }
                    (done, longest)
                })
            });
            let work: Vec<_> = work.collect();
            let (mut all, mut most) = (0, Duration::ZERO);
            for work in work {
                let (done, longest) = work.await.expect("a caller");
                all += done;
                most = most.max(longest);
            }
            println!(
                "{callers} callers: {}/s, the longest took {most:?}",
                rate(all, began)
            );
            let (began, mut reads) = (Instant::now(), 0);
            while began.elapsed() < FOR / 4 {
                get(&engine, Key::named("0")).await.expect("a read");
                reads += 1;
            }
            println!("    one reader: {}/s", rate(reads, began));
        }
    });
}
