//! What a transaction promises of records, on a file and in memory.

use std::sync::atomic::Ordering;

use rusqlite::Connection;
use wasmcron_store::StoreError;
use wasmcron_store::embedded::engine::{Engine as _, Key, Range, Tx as _};
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions};

use crate::support::*;

/// The same test over a file and in memory.
fn over_both<F: Future<Output = ()>>(test: impl Fn(SqliteEngine) -> F) {
    on_runtime(async {
        let (_folder, path) = folder();
        test(open(&path).await).await;
        test(memory().await).await;
    });
}

#[test]
fn a_record_is_there_until_it_is_removed() {
    over_both(async |engine| {
        let key = Key::new("job", 7, "run");
        assert_eq!(get(&engine, key.clone()).await.unwrap(), None);
        put(&engine, key.clone(), "one").await.unwrap();
        put(&engine, key.clone(), "two").await.unwrap();
        assert_eq!(
            get(&engine, key.clone()).await.unwrap().as_deref(),
            Some("two")
        );
        let gone = engine
            .write("remove", move |tx| {
                assert!(tx.contains::<Note>(&key)?);
                let (first, second) = (tx.remove::<Note>(&key)?, tx.remove::<Note>(&key)?);
                assert!(!tx.contains::<Note>(&key)?);
                Ok((first, second))
            })
            .await;
        assert_eq!(gone.unwrap(), (true, false));
    });
}

#[test]
fn a_verb_sees_what_it_wrote() {
    over_both(async |engine| {
        let seen = engine.write("write", |tx| {
            assert_eq!(tx.count::<Group>(&Range::all(""))?, 0);
            tx.put(Key::named("a"), Group(1))?;
            tx.put(Key::named("b"), Group(2))?;
            let sum = tx.scan::<Group>(&Range::all(""), 10)?.len();
            Ok((sum, tx.get::<Group>(&Key::named("b"))?.map(|group| group.0)))
        });
        assert_eq!(seen.await.unwrap(), (2, Some(2)));
    });
}

#[test]
fn ranges_have_an_order_and_ends() {
    over_both(async |engine| {
        for (scope, order, name) in [
            ("s", 2, "b"),
            ("s", 1, "z"),
            ("s", 2, "a"),
            ("s", -5, ""),
            ("s", 2, "é"),
            ("t", 1, "x"),
            ("s", 3, "c"),
            ("", 0, "s"),
        ] {
            put(&engine, Key::new(scope, order, name), name)
                .await
                .unwrap();
        }
        let of = async |range, limit| {
            let rows = scan(&engine, range, limit).await;
            rows.iter()
                .map(|row| row.split('=').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        let all = ["s/-5/", "s/1/z", "s/2/a", "s/2/b", "s/2/é", "s/3/c"];
        assert_eq!(of(Range::all("s"), 100).await, all);
        assert_eq!(of(Range::all("s"), 2).await, all[..2]);
        assert_eq!(of(Range::all("s").up_to(2), 100).await, all[..5]);
        assert_eq!(of(Range::all("s").after(2, "a"), 100).await, all[3..]);
        assert_eq!(
            of(Range::all("s").after(2, "a").up_to(2), 1).await,
            all[3..4]
        );
        let mut backwards = all;
        backwards.reverse();
        assert_eq!(of(Range::all("s").backwards(), 100).await, backwards);
        assert_eq!(of(Range::all("s").up_to(1).backwards(), 1).await, ["s/1/z"]);
        assert_eq!(
            of(Range::all("s").after(2, "b").backwards(), 9).await,
            ["s/3/c", "s/2/é"]
        );
        assert_eq!(of(Range::all("none"), 9).await, [""; 0]);
        let counted = engine.read("count", |tx| {
            Ok((
                tx.count::<Note>(&Range::all("s"))?,
                tx.count::<Note>(&Range::all("s").after(2, "a").up_to(2))?,
            ))
        });
        assert_eq!(counted.await.unwrap(), (6, 2));
    });
}

/// A hand put something else there: everything around it can still be read.
#[test]
fn a_broken_record_breaks_nothing_else() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        for name in ["a", "b", "c"] {
            put(&engine, Key::named(name), name).await.unwrap();
        }
        let hand = Connection::open(&path).unwrap();
        hand.execute(
            "UPDATE notes SET value = '{\"text\": 5' WHERE name = 'b'",
            [],
        )
        .unwrap();
        let rows = scan(&engine, Range::all(""), 10).await;
        assert_eq!(rows, ["/0/a=a", "/0/b broken {\"text\": 5", "/0/c=c"]);
        let Err(StoreError::Corrupt { key, what, .. }) = get(&engine, Key::named("b")).await else {
            panic!("a broken record was read");
        };
        assert!(key.contains("notes") && key.contains("store.db"), "{key}");
        assert_eq!(what, "a note");
        let there = engine.read("contains", |tx| tx.contains::<Note>(&Key::named("b")));
        assert!(there.await.unwrap());
    });
}

#[test]
fn a_verb_that_reads_cannot_write() {
    over_both(async |engine| {
        let answer = engine
            .read("peek", |tx| tx.put(Key::named("a"), note("no")))
            .await;
        let Err(StoreError::Refused { verb: "peek", .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(count(&engine).await, 0);
    });
}

/// The first use of a table makes it; when that use fails, the next one makes it.
#[test]
fn a_table_of_a_failed_verb_is_made_again() {
    over_both(async |engine| {
        for _ in 0..2 {
            let answer = engine.write("fail", |tx| {
                tx.put(Key::named("a"), note("no"))?;
                assert_eq!(tx.count::<Note>(&Range::all(""))?, 1);
                Err::<(), _>(bad("fail"))
            });
            assert!(answer.await.is_err());
            assert_eq!(count(&engine).await, 0);
        }
        put(&engine, Key::named("a"), "yes").await.unwrap();
        assert_eq!(count(&engine).await, 1);
    });
}

#[test]
fn a_large_record_is_kept_whole() {
    over_both(async |engine| {
        let text = "0123456789abcdef".repeat(64 * 1_024);
        put(&engine, Key::named("big"), &text).await.unwrap();
        assert_eq!(get(&engine, Key::named("big")).await.unwrap(), Some(text));
    });
}

/// The machine's clock is set back an hour, then the store is opened by another process.
#[test]
fn the_clock_never_steps_back() {
    on_runtime(async {
        let (_folder, path) = folder();
        let (clock, wall) = set_clock(7_200_000);
        let timed = async || {
            let options = SqliteOptions {
                clock: clock.clone(),
                ..options(&path)
            };
            SqliteEngine::open(options).await.expect("an engine")
        };
        let (one, two) = (timed().await, timed().await);
        let now = async |engine: &SqliteEngine| {
            let now = engine.write("now", |tx| {
                tx.put(Key::named("a"), note("x"))?;
                let (first, again) = (tx.now(), tx.now());
                assert_eq!(first, again);
                Ok(first.as_millis())
            });
            now.await.expect("now")
        };
        assert_eq!(now(&one).await, 7_200_000);
        wall.store(3_600_000, Ordering::SeqCst);
        let later = now(&two).await;
        assert!((7_200_000..7_210_000).contains(&later), "{later}");
        let read = one
            .read("now", |tx| Ok(tx.now().as_millis()))
            .await
            .unwrap();
        assert!(read >= later, "{read} after {later}");
        drop((one, two));
        let three = timed().await;
        assert!(now(&three).await >= later);
        let warnings = three.warnings().await.unwrap().join("\n");
        assert!(warnings.contains("ahead of this machine"), "{warnings}");
        wall.store(9_000_000, Ordering::SeqCst);
        assert_eq!(now(&three).await, 9_000_000);
    });
}
