//! What the embedded store does over whatever keeps its records, and the suite does not reach: what is
//! past goes by and by, pages, cuts; and what its records in memory promise.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::JobName;
use wasmcron_core::task::Task;
use wasmcron_core::time::Timestamp;
use wasmcron_store::embedded::engine::{Engine as _, Key, Range, Record, Tx as _};
use wasmcron_store::embedded::records::{
    AttemptRow, CheckpointBytes, Checkpoints, Cursor, Expiry, Idempotency, Leadership, Line, Lock,
    LogEvent, RunRow,
};
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::inspect::Inspect as _;
use wasmcron_store::leadership::Campaign;
use wasmcron_store::runs::{Finished, LogLine, Retention};
use wasmcron_store::schedule::{Published, Schedules as _, Submitted};
use wasmcron_store::{Result, StoreError};
use wasmcron_tests::conformance::{LONG, Running, Settings, World, keep};

use crate::memory::{MemoryHarness, on_paused_time};

const DAY: Duration = Duration::from_secs(86_400);

async fn worlds() -> (Arc<MemoryHarness>, World) {
    let harness = Arc::new(MemoryHarness::start());
    let world = World::new(harness.clone()).await;
    (harness, world)
}

fn rows<R: Record>(harness: &MemoryHarness) -> usize {
    harness.engine.look(|tx| tx.every::<R>().len())
}

fn line(text: String) -> LogLine {
    LogLine {
        at: Timestamp::EPOCH,
        attempt: 1,
        level: "info".into(),
        message: text,
        fields: Vec::new(),
    }
}

/// A run that failed, with everything that a run may leave behind.
async fn failed(world: &World, running: &Running, lines: usize) {
    let store = &world.store;
    running.save(world, 1, b"bytes").await;
    let lines: Vec<LogLine> = (0..lines).map(|n| line(n.to_string())).collect();
    store
        .append_log(&running.at, &lines, 10_000)
        .await
        .expect("append_log");
    let finished = store.finish(&running.failure()).await.expect("finish");
    assert_eq!(finished, Finished::Finished);
}

/// What an ended run leaves is gone for every reader once its age is over, and is taken away by later
/// writes, a bounded part by each.
#[test]
fn what_is_past_is_gone_at_once_and_swept_by_and_by() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let running = world.running(&term, &job, 1, &pod).await;
        failed(&world, &running, 450).await;
        let run = &running.at.run;

        world.pass(keep().age).await;
        assert!(world.store.run(run).await.expect("run").is_some());
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(world.store.run(run).await.expect("run"), None);
        let log = world.store.log(run, None, 10).await.expect("log");
        assert_eq!((log.lines, log.next), (vec![], None));
        let checkpoint = world.store.checkpoint(run).await.expect("checkpoint");
        assert_eq!(checkpoint, None);
        assert_eq!(rows::<Line>(&harness), 450, "reading takes nothing away");

        let mut left = 450;
        while rows::<Expiry>(&harness) > 0 {
            assert!(left > 0, "the sweep ends with the lines");
            world
                .store
                .set_waiting(&term, &job, None)
                .await
                .expect("a write");
            let now = rows::<Line>(&harness);
            assert!(left - now <= 100, "{left} lines became {now} at once");
            left = now;
        }
        assert_eq!(left, 0);
        let all = [
            rows::<RunRow>(&harness),
            rows::<AttemptRow>(&harness),
            rows::<Checkpoints>(&harness),
            rows::<CheckpointBytes>(&harness),
        ];
        assert_eq!(all, [0; 4]);
    });
}

/// The id of a run that is past can be used anew before anything was swept, and nothing of the run
/// that had it shines through.
#[test]
fn an_id_that_is_past_is_free() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let running = world.running(&term, &job, 1, &pod).await;
        failed(&world, &running, 1_000).await;
        world.pass(keep().age + Duration::from_millis(1)).await;
        let task: Task = running.attempt.task.clone();
        let ask = wasmcron_store::schedule::Submission {
            task,
            idempotency: None,
        };
        let answer = world.store.submit(&ask).await.expect("submit");
        let run = running.at.run;
        assert_eq!(answer, Submitted::Accepted { run: run.clone() });
        let record = world.record(&run).await;
        assert_eq!((record.attempts, record.ended_at), (vec![], None));
        let log = world.store.log(&run, None, 10).await.expect("log");
        assert_eq!(log.lines, []);
        assert_eq!(
            world.store.checkpoint(&run).await.expect("checkpoint"),
            None
        );
        for _ in 0..20 {
            world
                .store
                .set_waiting(&term, &job, None)
                .await
                .expect("a write");
        }
        assert_eq!(rows::<Expiry>(&harness), 0);
        assert_eq!(
            world.record(&run).await.ended_at,
            None,
            "the sweep spares it"
        );
    });
}

/// A request is remembered for a day, and no longer.
#[test]
fn a_request_is_forgotten_after_a_day() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let pod = world.pod("a").await;
        let job = world.job(&world.lead(&pod).await, "j").await;
        let ask = || {
            let mut ask = world.manual(&job);
            ask.idempotency = Some(wasmcron_store::schedule::IdempotencyKey {
                key: "key".into(),
                body: "body".into(),
            });
            ask
        };
        let first = world.submitted(&ask()).await;
        world.pass(DAY).await;
        let answer = world.store.submit(&ask()).await.expect("submit");
        assert_eq!(answer, Submitted::Same { run: first });
        world.pass(Duration::from_millis(1)).await;
        let other = ask();
        let run = other.task.run.clone();
        let answer = world.store.submit(&other).await.expect("submit");
        assert_eq!(answer, Submitted::Accepted { run });
        world.pass(DAY + Duration::from_millis(1)).await;
        world.store.pause(&job, "ann", "").await.expect("a write");
        assert_eq!(rows::<Idempotency>(&harness), 0);
        assert_eq!(rows::<Expiry>(&harness), 0);
    });
}

/// A run that its job keeps no more is gone at once.
#[test]
fn a_surplus_run_is_gone_at_once() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let mut runs = Vec::new();
        for seconds in 1..=3 {
            world.pass(Duration::from_millis(1)).await;
            let running = world.running(&term, &job, seconds, &pod).await;
            let mut finish = running.failure();
            finish.retention = Retention { runs: 2, ..keep() };
            world.store.finish(&finish).await.expect("finish");
            runs.push(running.at.run);
        }
        assert_eq!(world.store.run(&runs[0]).await.expect("run"), None);
        assert_eq!(world.store.runs(&job, 10).await.expect("runs").len(), 2);
        world
            .store
            .set_waiting(&term, &job, None)
            .await
            .expect("a write");
        assert_eq!(rows::<RunRow>(&harness), 2);
    });
}

/// Pages bring each entry once, in the order of names, and an end.
#[test]
fn pages_bring_each_entry_once() {
    on_paused_time(async {
        let (_, world) = worlds().await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let mut jobs: Vec<JobName> = Vec::new();
        for n in 0..2_000 {
            jobs.push(world.job(&term, &format!("j{n:04}")).await);
        }
        for chunk in jobs.chunks(100) {
            let fires: Vec<_> = chunk.iter().map(|job| world.firing(job, 1, &pod)).collect();
            let answers = world.publish(&term, &fires).await;
            assert!(answers.iter().all(|answer| *answer == Published::Published));
        }
        let (mut seen, mut sizes, mut cursor) = (Vec::new(), Vec::new(), None);
        loop {
            let page = world.store.view(cursor).await.expect("view");
            sizes.push(page.jobs.len());
            seen.extend(page.jobs.into_iter().map(|view| view.job));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((&seen, sizes), (&jobs, vec![1_000, 1_000, 0]));
        let (mut runs, mut cursor) = (0, None);
        loop {
            let page = world.store.scheduled(cursor).await.expect("scheduled");
            runs += page.entries.len();
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(runs, 2_000);
    });
}

/// The execution log keeps about as many events as it may, the latest, without a hole.
#[test]
fn the_execution_log_is_trimmed() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let options = EmbeddedOptions {
            execution_log_max: 100,
            ..EmbeddedOptions::default()
        };
        let store = EmbeddedStore::new(harness.engine.clone(), options);
        let pod = world.pod("a").await;
        let job = world.job(&world.lead(&pod).await, "j").await;
        for _ in 0..200 {
            store.pause(&job, "ann", "").await.expect("pause");
            store.resume(&job, "ann").await.expect("resume");
            assert!(rows::<LogEvent>(&harness) < 140);
        }
        let events = store.execution_log(None, 1_000).await.expect("events");
        assert!(events.len() >= 100);
        let positions: Vec<i64> = events
            .iter()
            .map(|event| event.id.parse().expect("a position"))
            .collect();
        assert!(positions.windows(2).all(|two| two[0] + 1 == two[1]));
        assert_eq!(events.last().expect("events").event, "job.resumed");
        let wrong = store.execution_log(Some("x"), 1).await;
        assert!(matches!(wrong, Err(StoreError::Refused { .. })));
    });
}

/// A lease or lock that a clock stepping back made long lasts no longer than was asked for.
#[test]
fn what_a_clock_made_long_is_cut() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let (pod, other) = (world.pod("a").await, world.pod("b").await);
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        world.running(&term, &job, 1, &pod).await;
        let far = world.now().await + DAY * 365;
        let stretch = |tx: &mut wasmcron_tests::memory_store::MemoryTx<'_>| -> Result<()> {
            let (lease, lock) = (Key::named(""), Key::named("j"));
            let mut held = Leadership::clone(&tx.get(&lease)?.expect("a lease"));
            held.until = Some(far);
            tx.put(lease, held)?;
            let mut held = Lock::clone(&tx.get(&lock)?.expect("a lock"));
            held.expires_at = far;
            tx.put(lock, held)
        };
        harness.engine.edit(stretch).expect("damage");
        for _ in 0..2 {
            let answer = world.store.campaign(&other, LONG * 9).await;
            let Ok(Campaign::Held { expires_in, .. }) = answer else {
                panic!("{answer:?}");
            };
            let locks = world.store.locks(std::slice::from_ref(&job)).await;
            let lock = locks.expect("locks")[0].clone().expect("a lock");
            assert_eq!((expires_in, lock.expires_in), (LONG, LONG));
        }
        world.pass(LONG + Duration::from_millis(1)).await;
        let locks = world.store.locks(std::slice::from_ref(&job)).await;
        assert_eq!(locks.expect("locks"), [None]);
        assert_eq!(world.store.leader().await.expect("leader"), None);
    });
}

/// A report is the same object as long as its pod says the same.
#[test]
fn a_report_is_shared_while_it_is_the_same() {
    on_paused_time(async {
        let (_, world) = worlds().await;
        let pod = world.pod("a").await;
        let report = async || {
            let pods = world.store.pods().await.expect("pods");
            pods[0].report.clone().expect("a report")
        };
        let first = report().await;
        world.beat(&pod).await;
        let same = (*first).clone();
        world.store.report(&pod, &same).await.expect("report");
        assert!(Arc::ptr_eq(&first, &report().await));
        let mut other = same;
        other.version = "2".into();
        world.store.report(&pod, &other).await.expect("report");
        assert!(!Arc::ptr_eq(&first, &report().await));
    });
}

/// An error leaves nothing of what a verb wrote, and a reader cannot write.
#[test]
fn an_error_takes_everything_back() {
    on_paused_time(async {
        let harness = MemoryHarness::start();
        let engine = &harness.engine;
        let cursor = |ms| Cursor(Timestamp::from_millis(ms));
        engine
            .edit(|tx| tx.put(Key::named("kept"), cursor(1)))
            .expect("edit");
        let failed: Result<()> = engine
            .write("test", move |tx| {
                tx.put(Key::named("kept"), cursor(2))?;
                tx.put(Key::named("kept"), cursor(3))?;
                tx.remove::<Cursor>(&Key::named("kept"))?;
                tx.put(Key::new("scope", 1, "new"), cursor(4))?;
                Err(StoreError::Unavailable {
                    verb: "test",
                    message: String::new(),
                })
            })
            .await;
        assert!(failed.is_err());
        let left = engine.look(|tx| tx.every::<Cursor>());
        assert_eq!(left.len(), 1);
        let kept = engine.look(|tx| tx.get::<Cursor>(&Key::named("kept")));
        assert_eq!(*kept.expect("get").expect("a row"), cursor(1));
        let read = engine
            .read("test", move |tx| tx.put(Key::named("x"), cursor(1)))
            .await;
        assert!(matches!(read, Err(StoreError::Refused { .. })));
    });
}

/// A snapshot is a moment: what happens later does not change it, and it can be gone back to twice.
#[test]
fn a_snapshot_is_a_moment() {
    on_paused_time(async {
        let (harness, world) = worlds().await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let before = harness.engine.snapshot();
        for _ in 0..2 {
            let running = world.running(&term, &job, 1, &pod).await;
            failed(&world, &running, 1).await;
            assert_eq!(world.cursor(&job).await, world.at(1));
            harness.engine.restore(&before);
            assert_eq!(world.cursor(&job).await, world.at(0));
            assert_eq!(world.store.runs(&job, 10).await.expect("runs"), []);
        }
        let settings = Settings::default();
        let other = world.store_with(settings).await;
        assert_eq!(other.counts().await.expect("counts").jobs, 1);
    });
}

/// Ranges begin and end where they say.
#[test]
fn ranges_begin_and_end_where_they_say() {
    on_paused_time(async {
        let harness = MemoryHarness::start();
        let cursor = Cursor(Timestamp::EPOCH);
        let places = [(1, "a"), (1, "b"), (2, "a"), (3, "")];
        harness
            .engine
            .edit(|tx| {
                for (order, name) in places {
                    tx.put(Key::new("s", order, name), cursor)?;
                    tx.put(Key::new("t", order, name), cursor)?;
                }
                Ok(())
            })
            .expect("edit");
        let scan = |range: Range, limit| {
            let found = harness.engine.look(|tx| tx.scan::<Cursor>(&range, limit));
            let keys = found.expect("scan").into_iter().map(|(key, _)| key);
            keys.map(|key| (key.order, key.name.to_string()))
                .collect::<Vec<_>>()
        };
        let named = |places: &[(i64, &str)]| -> Vec<(i64, String)> {
            let owned = places
                .iter()
                .map(|(order, name)| (*order, (*name).to_owned()));
            owned.collect()
        };
        let all = Range::all("s");
        assert_eq!(scan(all.clone(), 9), named(&places));
        assert_eq!(scan(all.clone().up_to(2), 9), named(&places[..3]));
        assert_eq!(scan(all.clone().after(1, "a"), 2), named(&places[1..3]));
        let last = named(&[(3, ""), (2, "a")]);
        assert_eq!(scan(all.clone().backwards(), 2), last);
        assert_eq!(scan(all.clone().after(3, "").up_to(2), 9), []);
        assert_eq!(scan(all.clone().after(2, "b").up_to(2), 9), []);
        let count = |range: Range| harness.engine.look(|tx| tx.count::<Cursor>(&range));
        assert_eq!(count(all.clone()).expect("count"), 4);
        assert_eq!(count(all.after(1, "a").up_to(2)).expect("count"), 2);
    });
}
